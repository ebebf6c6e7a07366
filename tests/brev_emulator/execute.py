"""`brev exec`, with the ways it surprises: names from stdin, the name after the output, a second
run of a command that failed, a stopped instance started."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time

from brev_emulator import sshconfig
from brev_emulator.account import opened


def execute(directory: str, home: str, words: list[str]) -> int:
    if not stat.S_ISCHR(os.fstat(0).st_mode):
        words = [*sys.stdin.read().split("\n"), *words]
        words = [word for word in words if word]
    *names, command = words
    if command.startswith("@"):
        with open(command[1:]) as file:
            command = file.read()
    failed = False
    for name in names:
        if len(names) > 1:
            print(f"=== {name} ===", file=sys.stderr)
        code = _one(directory, home, name, command)
        failed = failed or code != 0
        if code == 0 and not stat.S_ISCHR(os.fstat(1).st_mode):
            print(name, flush=True)
    return int(failed)


def _one(directory: str, home: str, name: str, command: str) -> int:
    with opened(directory) as account:
        sshconfig.write(account, home)
        behaviour = account.behaviour
    if behaviour["exec_agent_line"]:
        print("Agent pid 4242", flush=True)
    code = _ssh(home, name, command)
    if code == 0 or not behaviour["exec_replay"]:
        if code:
            print(f"exit status {code}", file=sys.stderr)
        return code
    print("Connection failed, checking instance status...", file=sys.stderr)
    with opened(directory) as account:
        item = account.named(name)
        if item is None:
            print(f"could not look up instance: {name} not found", file=sys.stderr)
            return 1
        status = account.status(item)[0]
        if status == "STOPPED":
            account.start(item)
        elif status != "RUNNING":
            print(f"instance {name} is in state {status}", file=sys.stderr)
            return 1
    for _ in range(600):
        with opened(directory) as account:
            sshconfig.write(account, home)
            if account.named(name) and (account.named(name) or {}).get("pid"):
                break
        time.sleep(0.05)
    code = _ssh(home, name, command)
    if code:
        print(f"exit status {code}", file=sys.stderr)
    return code


def _ssh(home: str, name: str, command: str) -> int:
    config = os.path.join(home, ".brev", "ssh_config")
    options = ["-o", "RequestTTY=no", "-o", "ControlMaster=no", "-o", "ControlPath=none"]
    line = ["ssh", "-F", config, *options, "-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR"]
    done = subprocess.run([*line, name, command], stdin=subprocess.DEVNULL, check=False)
    return done.returncode
