"""What `refresh` writes, and the certificates that later versions mint."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any

from brev_emulator import machines
from brev_emulator.account import Account

_COMMON = """  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  PasswordAuthentication no
  IdentitiesOnly yes
  AddKeysToAgent yes
  ForwardAgent yes
  RequestTTY yes
  ServerAliveInterval 30
  ControlMaster auto
  ControlPath ~/.ssh/brev-control-%C
  ControlPersist 10m
"""


def write(account: Account, home: str, *, torn: bool = False, without: str | None = None) -> None:
    """Rewrite key and configuration in place (not atomically, as the original does)."""
    brev = os.path.join(home, ".brev")
    os.makedirs(brev, exist_ok=True)
    with open(os.path.join(account.directory, "key")) as file:
        key = file.read()
    pem = os.path.join(brev, "brev.pem")
    with open(os.open(pem, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(key)
    cloudflared = os.path.join(brev, "cloudflared")
    if not os.path.exists(cloudflared):
        proxy = os.path.join(os.path.dirname(__file__), "proxy.py")
        with open(cloudflared, "w") as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{proxy}" "$@"\n')
        os.chmod(cloudflared, 0o755)
    text = "# written by brev refresh\n"
    for item in account.instances():
        running = account.status(item)[0] in ("RUNNING", "UNHEALTHY")  # unhealthy ones run
        if not running or item["name"] == without:
            continue
        for alias in (item["name"], f"{item['name']}-host"):
            text += _blocks(account, item, alias, home, pem)
    with open(os.path.join(brev, "ssh_config"), "w") as file:
        file.write(text[: len(text) // 2] if torn else text)


def _blocks(account: Account, item: dict[str, Any], alias: str, home: str, pem: str) -> str:
    match = account.behaviour["match"]
    port = item["port"] or 1  # running, but sshd does not answer yet
    if account.behaviour["route"] == "proxy":
        route = (
            f"  ProxyCommand {home}/.brev/cloudflared access ssh --hostname 127.0.0.1:{port}\n"
            f"  User {machines.user()}\n"
        )
    else:
        route = f"  Hostname 127.0.0.1\n  Port {port}\n  User {machines.user()}\n"
    text = ""
    if match != "off":
        mint = f"{account.directory}/bin/brev mint-cert {alias} {home}"
        identity = f'  IdentityFile "{home}/.brev/ssh-certs/{alias}"\n'
        text += f'Match host {alias} exec "{mint}"\n{identity}'
        text += f"{route}{_COMMON}" if match == "required" else ""
    if match != "required":
        text += f'Host {alias}\n{route}  IdentityFile "{pem}"\n{_COMMON}'
    return text + "\n"


def mint(account: Account, home: str, alias: str) -> int:
    """A key of the moment and a short-lived certificate beside it; the exit code."""
    if account.fault("mint-cert", name=alias):
        print("could not mint a certificate", file=sys.stderr)
        return 1
    place = os.path.join(home, ".brev", "ssh-certs")
    os.makedirs(place, mode=0o700, exist_ok=True)
    fresh = os.path.join(place, f".{alias}.{os.getpid()}.{time.time_ns()}")
    machines.keygen(fresh)
    machines.run_keygen(
        *("-s", os.path.join(account.directory, "ca"), "-I", alias, "-n", machines.user()),
        *("-V", "-1m:+5m", f"{fresh}.pub"),
    )
    target = os.path.join(place, alias)
    for source, name in ((f"{fresh}-cert.pub", f"{target}-cert.pub"), (fresh, target)):
        shutil.move(source, name)
    os.unlink(f"{fresh}.pub")
    return 0
