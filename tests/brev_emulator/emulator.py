"""`BrevEmulator`: set the account up, script what goes wrong, and ask what it has cost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brev_emulator import account as accounts
from brev_emulator import auth, machines
from brev_emulator.account import Account, opened
from brev_emulator.profiles import CATALOGUE, CURRENT, PROFILES


@dataclass(frozen=True)
class Bill:
    """What the account knows of one instance. Times are `time.time`, None: not yet.

    billed_s: seconds from creation to the request for deletion, without those stopped.
    """

    name: str
    id: str
    type: str
    price_per_hour: float
    created: float
    deleted: float | None
    billed_s: float
    alive: bool

    @property
    def cost(self) -> float:
        return self.billed_s / 3600.0 * self.price_per_hour


class BrevEmulator:
    """An account in a directory. profile: a key of `PROFILES`; keywords override its switches.

    `environment` is what a process needs to meet this Brev: PATH, HOME and BREV_EMULATOR.
    """

    def __init__(self, directory: Path, profile: str = CURRENT, **switches: Any):
        self.directory = directory.resolve()
        self.home = self.directory / "home"
        self._start(profile, switches)

    @staticmethod
    def missing() -> str | None:
        """Why it cannot run here, None if it can."""
        if machines.sshd() is None or shutil.which("ssh-keygen") is None:
            return "no sshd: run scripts/test_services.sh, or apt-get install openssh-server"
        return None

    @property
    def executable(self) -> Path:
        return self.directory / "bin" / "brev"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.executable.parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "BREV_EMULATOR": str(self.directory),
        }

    def token(self, seconds: float = 3600.0, **claims: Any) -> str:
        """A new token that this account accepts for so long."""
        with self._opened() as account:
            token = auth.make_token(seconds, number=len(account.data["issued"]), **claims)
            account.data["issued"].append(token)
        return token

    def log_in(self) -> None:
        """As if the user had run `brev login`: a session that renews itself."""
        self.change(renewable=True)
        auth.save(str(self.home), {"access_token": "", "refresh_token": "session:device"})

    def revoke(self, token: str = "all") -> None:
        """No session works any more, or not this token's."""
        with self._opened() as account:
            revoked = account.data["revoked"]
            account.data["revoked"] = "all" if token == "all" else [*revoked, token]

    def behave(self, **switches: Any) -> None:
        """Change switches of the profile, from the next call on."""
        with self._opened() as account:
            account.behaviour.update(switches)

    def change(self, **values: Any) -> None:
        """Change the account: catalogue, capacity (type -> instances), orgs, active, tools
        (name -> script on new instances' PATH), types_hidden, renewable."""
        with self._opened() as account:
            account.data.update(values)

    def delays(self, **seconds: float) -> None:
        """Change delays (`account.DELAYS`, and `scale`)."""
        with self._opened() as account:
            account.data["delays"].update(seconds)

    def price(self, type: str, price_per_hour: float) -> None:
        with self._opened() as account:
            for row in account.data["catalogue"]:
                if row["type"] == type:
                    row["price_per_hour"] = price_per_hour

    def fault(
        self,
        command: str,
        effect: str,
        times: int | None = 1,
        *,
        value: Any = None,
        **about: str,
    ) -> None:
        """Script a fault for the next calls of a command ("*": any); times None: for good.

        about: only for this ``name=`` or (create) this ``type=``. docs/rehearsal.md lists effects.
        """
        fault = {"command": command, "effect": effect, "times": times, "value": value, **about}
        with self._opened() as account:
            account.data["faults"].append(fault)

    def clear_faults(self) -> None:
        self.change(faults=[])

    def add(self, name: str, type: str = "l40s-1x.north", plan: str = "") -> None:
        """An instance somebody has made."""
        with self._opened() as account:
            row = next(row for row in account.data["catalogue"] if row["type"] == type)
            account.add(name, row, plan)["org"] = account.data["active"]

    def kill(self, name: str) -> None:
        """End everything on the instance; Brev goes on showing it as RUNNING, and billing it."""
        with self._named(name) as (account, item):
            item["killed"] = True
            machines.kill(account.directory, item)

    def restart(self, name: str) -> None:
        """sshd answers again after `kill`, with the files that were there."""
        with self._named(name) as (_, item):
            item["killed"] = False

    def kill_sshd(self, name: str) -> None:
        """End sshd and its connections only; detached jobs go on. `restart` brings it back."""
        with self._named(name) as (_, item):
            item["killed"] = True
            if item["pid"] is not None:
                machines.end_tree(item["pid"])
            item["pid"] = None

    def kill_docker(self, name: str) -> bool:
        """End the instance's Docker Engine, if a container runs there: whether one did. The next
        `docker` starts the engine again, which ends the container."""
        with self._named(name) as (account, item):
            named: dict[str, int] = {}
            for pid in machines.processes(account.directory, item):
                with contextlib.suppress(OSError):
                    named[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
            in_use = "dockerd" in named and any(n.startswith("containerd-shim") for n in named)
            for part in ("dockerd", "containerd") if in_use else ():
                os.kill(named[part], signal.SIGKILL)
            return in_use

    def freeze(self, name: str) -> None:
        """Stop all processes of the instance (SIGSTOP): links hang."""
        with self._named(name) as (account, item):
            machines.signal_all(account.directory, item, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        with self._named(name) as (account, item):
            machines.signal_all(account.directory, item, signal.SIGCONT)

    def vanish(self, name: str) -> None:
        """The instance is gone from the account, unasked."""
        with self._named(name) as (account, item):
            account.vanish(item)

    def home_of(self, name: str) -> Path:
        """The instance's home directory on this host."""
        with self._named(name) as (account, item):
            return Path(machines.place(account.directory, item)) / "home"

    def instances(self) -> dict[str, str]:
        """name -> status of what is not gone."""
        with self._opened() as account:
            return {item["name"]: account.status(item)[0] for item in account.instances()}

    def alive(self) -> list[str]:
        """Names of instances that nobody has asked to delete: each of them costs money."""
        return [bill.name for bill in self.bills() if bill.alive]

    def bills(self) -> list[Bill]:
        """Every instance there ever was, in order of creation."""
        now = time.time()
        with self._opened() as account:
            return [
                Bill(
                    item["name"],
                    item["id"],
                    item["type"],
                    item["price"],
                    item["created"],
                    item["deleted"],
                    sum((end or now) - begin for begin, end in item["billed"]),
                    item["deleted"] is None and not item["gone"],
                )
                for item in account.data["instances"]
            ]

    def ledger(self) -> list[dict[str, Any]]:
        """Events of all instances: created, sshd, started, stopped, deleted, gone, vanished."""
        return _lines(self.directory / "ledger.jsonl")

    def calls(self, command: str = "") -> list[dict[str, Any]]:
        """Every call of `brev` so far, with what it found about stdin, umask, environment."""
        return [
            line
            for line in _lines(self.directory / "calls.jsonl")
            if line["event"] == "call" and (not command or line["arguments"][:1] == [command])
        ]

    def stop_all(self) -> None:
        """End every process of every instance. Only processes of this emulator are touched."""
        with self._opened() as account:
            for item in account.data["instances"]:
                item["killed"] = True
                machines.kill(account.directory, item)

    def __enter__(self) -> BrevEmulator:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_all()

    def _start(self, profile: str, switches: Mapping[str, Any]) -> None:
        if (self.directory / "account.json").exists():
            return
        for path in (self.home, self.directory / "bin", self.directory / "instances"):
            path.mkdir(parents=True, exist_ok=True)
        for key in ("key", "ca"):
            machines.keygen(str(self.directory / key))
        main = Path(__file__).with_name("main.py")
        self.executable.write_text(
            f'#!/bin/sh\nBREV_EMULATOR="{self.directory}"\nexport BREV_EMULATOR\n'
            f'exec "{sys.executable}" -S -E "{main}" "$@"\n'
        )
        self.executable.chmod(0o755)
        accounts.write(
            str(self.directory),
            {
                "behaviour": {**PROFILES[profile], **switches},
                "delays": {**accounts.DELAYS, "scale": 1.0},
                "catalogue": CATALOGUE,
                "capacity": {},
                "orgs": ["lab"],
                "active": "lab",
                "types_hidden": False,
                "renewable": False,
                "issued": [],
                "revoked": [],
                "faults": [],
                "tools": {},
                "instances": [],
            },
        )

    def _opened(self) -> contextlib.AbstractContextManager[Account]:
        return opened(str(self.directory))

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[tuple[Account, dict[str, Any]]]:
        with self._opened() as account:
            item = account.named(name)
            if item is None:
                raise KeyError(name)
            yield account, item


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
