"""The emulated account: instances with their states over time, faults, and the ledger.

All of it lies in one directory. Each use takes the directory's lock, moves every instance to
where it would be by now, and writes the account back; nothing runs in between.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from brev_emulator import machines

DELAYS = {"call": 0.0, "boot": 0.3, "ssh": 0.2, "stop": 0.1, "delete": 0.3}
"""Seconds, each times the delay `scale`: for any call, until RUNNING, from there until sshd
answers, until STOPPED, and for which a deleted instance stays DELETING."""


class Account:
    """`data` is what the file holds; use `opened` to get one."""

    def __init__(self, directory: str, data: dict[str, Any]):
        self.directory = directory
        self.data = data

    @property
    def behaviour(self) -> dict[str, Any]:
        behaviour: dict[str, Any] = self.data["behaviour"]
        return behaviour

    def delay(self, what: str) -> float:
        return float(self.data["delays"][what]) * float(self.data["delays"].get("scale", 1.0))

    def fault(self, command: str, **about: str) -> dict[str, Any] | None:
        """The first fault scripted for this, used up by one."""
        for fault in self.data["faults"]:
            if fault["command"] not in (command, "*") or fault["times"] == 0:
                continue
            if all(fault[key] == about.get(key) for key in ("name", "type") if key in fault):
                if fault["times"] is not None:
                    fault["times"] -= 1
                self.note("fault", command=command, effect=fault["effect"], **about)
                return dict(fault)
        return None

    def instances(self) -> list[dict[str, Any]]:
        """Those that are not gone."""
        return [item for item in self.data["instances"] if not item["gone"]]

    def named(self, name: str) -> dict[str, Any] | None:
        found = [item for item in self.instances() if name in (item["name"], item["id"])]
        found.sort(key=lambda item: item["deleted"] is not None)
        return found[0] if found else None

    def add(self, name: str, row: dict[str, Any], plan: str = "") -> dict[str, Any]:
        """A new instance. plan: "" or how it goes wrong (`status`); "mute": no sshd."""
        now = time.time()
        item = {
            "id": f"i{len(self.data['instances']) + 1:05d}",
            "name": name,
            "type": row["type"],
            "gpu": row["gpu_name"],
            "price": row["price_per_hour"],
            "plan": plan,
            "created": now,
            "up": now + self.delay("boot"),
            "stopped": None,
            "deleted": None,
            "gone": False,
            "pid": None,
            "port": None,
            "killed": False,
            "billed": [[now, None]],
        }
        self.data["instances"].append(item)
        self._ledger("created", item, now)
        return item

    def status(self, item: dict[str, Any]) -> tuple[str, str, str]:
        """status, build_status, health_status as the CLI shows them."""
        now = time.time()
        plan = item["plan"]
        if item["deleted"] is not None:
            return "DELETING", "COMPLETED", ""
        if item["stopped"] is not None:
            return ("STOPPED" if now >= item["stopped"] else "STOPPING"), "COMPLETED", ""
        if plan == "half_built":
            return "DEPLOYING", "PENDING", ""
        if plan == "stuck" or now < item["up"]:
            return "STARTING", "BUILDING", ""
        if plan == "failure":
            return "FAILURE", "CREATE_FAILED", ""
        build = "CREATE_FAILED" if plan == "create_failed" else "COMPLETED"
        if plan == "unhealthy":
            return "UNHEALTHY", build, "UNHEALTHY"
        return "RUNNING", build, "HEALTHY"

    def delete(self, item: dict[str, Any]) -> None:
        item["deleted"] = now = time.time()
        self._stop_billing(item, now)
        machines.kill(self.directory, item)
        self._ledger("deleted", item, now)

    def stop(self, item: dict[str, Any]) -> None:
        now = time.time()
        item["stopped"] = now + self.delay("stop")
        self._stop_billing(item, now)
        machines.kill(self.directory, item)
        self._ledger("stopped", item, now)

    def start(self, item: dict[str, Any]) -> None:
        now = time.time()
        item.update(stopped=None, up=now + self.delay("boot"), killed=False)
        item["billed"].append([now, None])
        self._ledger("started", item, now)

    def vanish(self, item: dict[str, Any]) -> None:
        """The provider loses the instance: gone at once, nobody asked for it."""
        now = time.time()
        item["gone"] = True
        self._stop_billing(item, now)
        machines.kill(self.directory, item)
        self._ledger("vanished", item, now)

    def advance(self) -> None:
        now = time.time()
        for item in self.instances():
            if item["deleted"] is not None:
                if now >= item["deleted"] + self.delay("delete"):
                    item["gone"] = True
                    self._ledger("gone", item, now)
                continue
            up = self.status(item)[0] in ("RUNNING", "UNHEALTHY") and item["plan"] != "mute"
            due = now >= item["up"] + self.delay("ssh") and not item["killed"]
            if up and due and item["pid"] is None:
                machines.start(self.directory, item, self.data)
                self._ledger("sshd", item, now)

    def note(self, event: str, **about: Any) -> None:
        """A line in the record of calls and faults."""
        with open(os.path.join(self.directory, "calls.jsonl"), "a") as file:
            file.write(json.dumps({"at": time.time(), "event": event, **about}) + "\n")

    def _stop_billing(self, item: dict[str, Any], now: float) -> None:
        if item["billed"][-1][1] is None:
            item["billed"][-1][1] = now

    def _ledger(self, event: str, item: dict[str, Any], at: float) -> None:
        about = {key: item[key] for key in ("id", "name", "type", "price")}
        with open(os.path.join(self.directory, "ledger.jsonl"), "a") as file:
            file.write(json.dumps({"at": at, "event": event, **about}) + "\n")


@contextlib.contextmanager
def opened(directory: str) -> Iterator[Account]:
    """The account under its lock, brought up to now; written back at the end."""
    with open(os.path.join(directory, "lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = os.path.join(directory, "account.json")
        with open(path) as file:
            account = Account(directory, json.load(file))
        account.advance()
        try:
            yield account
        finally:
            write(directory, account.data)


def write(directory: str, data: dict[str, Any]) -> None:
    path = os.path.join(directory, "account.json")
    with open(path + ".new", "w") as file:
        json.dump(data, file, indent=1)
    os.replace(path + ".new", path)
