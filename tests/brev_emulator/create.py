"""`brev create`: a chain of types, progress on stderr, names on stdout, and its ways to fail."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from typing import Any

from brev_emulator.account import Account, opened

_REFUSALS = {
    "no_capacity": "is currently unavailable (no capacity)",
    "quota": "unexpected response: 403 quota exceeded for this organization",
    "credit": "unexpected response: 400 insufficient credits",
    "location": "unexpected response: 400 location us-central9 is not available",
    "server": "unexpected response: 500 Internal Server Error",
    "text": "",
}
_PLANS = {"create_failed", "failure", "unhealthy", "stuck", "mute", "half_built"}
_EOF = 'RESTY WARN Post "https://api/workspaces": EOF, Attempt 1\nRESTY ERROR Post: EOF\nEOF'


def create(directory: str, words: list[str], flags: dict[str, str]) -> int:
    names = [*words[:1], *([flags["name"]] if "name" in flags else [])]
    if not names or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", names[0]):
        print("invalid instance name", file=sys.stderr)
        return 1
    with opened(directory) as account:
        types = [text for text in flags.get("type", "").split(",") if text]
        stdin = account.behaviour["create_stdin"]
        wait = account.delay("boot")
        if not types:
            rows = [row for row in account.data["catalogue"] if row["vram_per_gpu_gb"] >= 20]
            types = [row["type"] for row in sorted(rows, key=lambda row: row["price_per_hour"])]
    if stdin == "always" or "stdin" in flags:
        types += _piped_types()
    count = int(flags.get("count", "1"))
    made: list[str] = []
    for number in range(1, count + 1):
        name = names[0] if count == 1 else f"{names[0]}-{number}"
        for type_ in types:
            with opened(directory) as account:
                result = _attempt(account, name, type_)
            if result == "hang":
                time.sleep(600)
            if result == "made":
                made.append(name)
                break
            if result == "stop":
                break
    if len(made) < count:
        print(f"could only create {len(made)}/{count} instances", file=sys.stderr)
        return 1
    if "detached" not in flags:
        deadline = time.monotonic() + float(flags.get("timeout", "300"))
        while time.monotonic() < deadline:  # ready or not, it ends with success
            with opened(directory) as account:
                found = [account.named(name) for name in made]
                states = [account.status(item)[0] if item else "" for item in found]
            if not set(states) & {"STARTING", "DEPLOYING"}:
                break
            time.sleep(min(5.0, wait / 2 + 0.01))
    print("\n".join(made))
    return 0


def _attempt(account: Account, name: str, type_: str) -> str:
    """One request: "made", "next" (the chain goes on), "stop", or "hang"."""
    print(f"gpucreate.go:812: trying {type_} for {name}", file=sys.stderr)
    row = next((row for row in account.data["catalogue"] if row["type"] == type_), None)
    if row is None:
        print(f"{type_} is not a recognized type", file=sys.stderr)
        return "next"
    fault = account.fault("create", name=name, type=type_) or {"effect": "", "value": None}
    effect = fault["effect"]
    if effect == "duplicate" or account.named(name) is not None:
        print("unexpected response: 400 duplicate workspace with name", file=sys.stderr)
        return "stop"
    limit = account.data["capacity"].get(type_)
    running = [item for item in account.instances() if item["type"] == type_]
    if limit is not None and len(running) >= limit:
        effect = "no_capacity"
    if effect in _REFUSALS:
        words = fault["value"] if effect == "text" else f"{type_} {_REFUSALS[effect]}"
        print(words, file=sys.stderr)
        return "next"
    if effect == "lost_request":
        print(_EOF, file=sys.stderr)
        return "next"
    item = account.add(name, row, effect if effect in _PLANS else "")
    item["org"] = account.data["active"]
    if effect in ("lost_response", "half_built"):
        print(_EOF, file=sys.stderr)
        return "next"
    return "hang" if effect == "hang" else "made"


def _piped_types() -> list[str]:
    if stat.S_ISCHR(os.fstat(0).st_mode):
        return []
    text = sys.stdin.read()
    try:
        rows: list[dict[str, Any]] = json.loads(text)
        return [str(row["type"]) for row in rows]
    except ValueError:
        return [line.split()[0] for line in text.splitlines()[1:] if line.strip()]
