"""The `brev` command of the emulator."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from typing import Any

from brev_emulator import auth, create, execute, sshconfig
from brev_emulator.account import Account, opened
from brev_emulator.catalogue import search

_SHORT = {"-t": "type", "-n": "name", "-d": "detached", "-c": "count", "-p": "parallel"}
_FLAGS = {
    "login": "token skip-browser email auth",
    "ls": "all org json",
    "search": "json gpu-name provider min-vram sort desc wide",
    "start": "detached name",
    "exec": "host",
    "stop": "all",
}
_SWITCHES = {
    *("json", "all", "detached", "host", "dry-run", "stdin", "desc", "wide", "skip-browser"),
    *("stoppable", "rebootable", "flex-ports", "help", "version"),
}
_HIDDEN = {"api-key", "org-id"}
_PUBLIC = {"search", "login", "mint-cert"}


def main(arguments: list[str]) -> int:
    directory, home = os.environ["BREV_EMULATOR"], os.environ["HOME"]
    command = arguments[0] if arguments else "--help"
    with opened(directory) as account:
        _record(account, arguments)
        if command == "--version":
            print(f"Current Version: v{account.behaviour['version']}")
            return 0
        if "--help" in arguments:
            print(_help(account, command))
            return 0
        wait = account.delay("call")
        name = arguments[1] if len(arguments) > 1 else ""
        fault = account.fault(command, name=name) if command != "create" else None
        fault = fault or account.fault("*")
    time.sleep(wait)
    if fault and (code := _strike(fault)) is not None:
        return code
    try:
        words, flags = _parse(command, arguments[1:], directory)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        with opened(directory) as account:
            auth.pollute(account, home)
            if command not in _PUBLIC:
                auth.check(account, home)
        if command == "create":
            return create.create(directory, words, flags)
        if command == "exec":
            return execute.execute(directory, home, words)
        with opened(directory) as account:
            return _run(account, home, command, words, flags, fault)
    except auth.LoggedOut as out:
        if out.asks:
            auth.prompt()
        return 1


def _run(
    account: Account,
    home: str,
    command: str,
    words: list[str],
    flags: dict[str, str],
    fault: dict[str, Any] | None,
) -> int:
    if command == "login":
        return auth.login(account, home, flags)
    if command == "ls":
        return _ls(account, home, words, flags)
    if command == "search":
        return search(account, flags)
    if command == "delete":
        return _each(account, words, fault, "delete")
    if command == "stop":
        return _each(account, words, fault, "stop")
    if command == "start":
        return _start(account, words)
    if command == "set":
        account.data["active"] = words[0]
        return 0
    if command == "mint-cert":
        return sshconfig.mint(account, words[1], words[0])  # whatever HOME ssh has
    if command == "refresh":
        effect = fault["effect"] if fault else ""
        if effect == "empty_user":
            print("ssh user is empty", file=sys.stderr)
            return 1
        without = fault["value"] if fault and effect == "missing_alias" else None
        sshconfig.write(account, home, torn=effect == "torn", without=without)
        print("refreshing brev...\nbrev has been refreshed")
        return 0
    print(f'unknown command "{command}" for "brev"', file=sys.stderr)
    return 1


def _ls(account: Account, home: str, words: list[str], flags: dict[str, str]) -> int:
    orgs, active = account.data["orgs"], account.data["active"]
    if words and words[0] in ("orgs", "org"):
        rows = [{"name": org, "id": f"org-{org}", "is_active": org == active} for org in orgs]
        print(json.dumps(rows, indent=2))
        return 0
    if words:
        return 0  # a word it does not know: nothing, and success
    if "org" in flags and auth.load(home).get("api_key"):
        print("--org cannot be used with an API key", file=sys.stderr)
        return 1
    org = flags.get("org", active)
    if org not in orgs:
        print(f"no org found with name {org}", file=sys.stderr)
        return 1
    rows = [_row(account, item) for item in account.instances() if item["org"] == org]
    if "json" not in flags:
        print(f"You have {len(rows)} instances in Org {org}\n NAME  STATUS  ID")
        for row in rows:
            print(f" {row['name']}  {row['status']}  {row['id']}")
    elif account.behaviour["json_shape"] == "array":
        print(json.dumps(rows or None, indent=2))
    else:
        print(json.dumps({"workspaces": rows or None}, indent=2))
    return 0


def _row(account: Account, item: dict[str, Any]) -> dict[str, Any]:
    status, build, health = account.status(item)
    ready = status == "RUNNING" and build == "COMPLETED"
    return {
        "name": item["name"],
        "id": item["id"],
        "status": status,
        "build_status": build,
        "shell_status": "READY" if ready else "NOT READY",
        "health_status": health,
        "instance_type": "-" if account.data["types_hidden"] else item["type"],
        "instance_kind": "gpu",
        "gpu": "-" if account.data["types_hidden"] else item["gpu"],
    }


def _each(account: Account, words: list[str], fault: dict[str, Any] | None, what: str) -> int:
    effect = fault["effect"] if fault else ""
    failed = False
    for name in words:
        item = account.named(name)
        if effect == "refused":
            print("pkg/cmd/delete.go:61: 500 Internal Server Error", file=sys.stderr)
            failed = True
        elif item is None or item["org"] != account.data["active"]:
            print(f"util.go:88: instance with id/name {name} not found", file=sys.stderr)
            failed = True
        elif what == "stop" and item["type"] in account.behaviour["not_stoppable"]:
            print(f"instance {name} does not support stop", file=sys.stderr)
            failed = True
        elif effect != "ignored":
            if what == "stop":
                account.stop(item)
            elif item["deleted"] is None:
                account.delete(item)
            if effect == "lost_response":
                print('RESTY ERROR Delete "https://api": EOF\nEOF', file=sys.stderr)
                failed = True
    if not failed:
        print("\n".join(words))
    return int(failed)


def _start(account: Account, words: list[str]) -> int:
    item = account.named(words[0])
    if item is None:
        print(f"no instance {words[0]}; looking for a local path of that name")
        return 0
    status = account.status(item)[0]
    if status != "STOPPED":
        print(f"Instance is not stopped status={status}", file=sys.stderr)
        return 1
    account.start(item)
    return 0


def _strike(fault: dict[str, Any]) -> int | None:
    """Faults any command may have; None: go on (polluted, or it is the command's own)."""
    effect = fault["effect"]
    texts = {
        "network": 'RESTY WARN dial tcp: lookup api: no such host\nRESTY ERROR Get "https://api"\n'
        "dial tcp: lookup api: no such host",
        "refused_connection": "dial tcp 127.0.0.1:443: connect: connection refused",
        "401": "unexpected response: 401 Unauthorized",
        "server": "unexpected response: 502 Bad Gateway",
        "location": "location us-central9 is not available for this organization",
        "unknown_flag": "unknown flag: --detached",
        "text": str(fault["value"]),
    }
    if effect in texts:
        print(texts[effect], file=sys.stderr)
        return 1
    if effect == "eof":
        print("You are currently logged out, would you like to log in? [Y/n]: ", end="")
        print("EOF", file=sys.stderr)
        return 1
    if effect == "hang":
        if os.fork() == 0:  # a child that keeps the output open
            time.sleep(float(fault["value"] or 600))
            os._exit(0)
        time.sleep(float(fault["value"] or 600))
        return 1
    if effect in ("garbage", "empty"):
        print("[x] <html>{not json" if effect == "garbage" else "", end="")
        return 0
    if effect == "null":
        print('{"workspaces": null}')
        return 0
    if effect == "panic":
        print("panic: runtime error: invalid memory address\ngoroutine 1", file=sys.stderr)
        return 2
    if effect == "pollution":
        print("no oauth found for token\n[notice] a new version is there {0.6.400}")
    if effect == "slow":
        time.sleep(float(fault["value"]))
    return None


def _parse(command: str, arguments: list[str], directory: str) -> tuple[list[str], dict[str, str]]:
    with opened(directory) as account:
        known = set(_known(account, command)) | (_HIDDEN if command == "login" else set())
    words: list[str] = []
    flags: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if not word.startswith("-"):
            words.append(word)
            continue
        key, equals, value = word.partition("=")
        key = _SHORT.get(key, key[2:] if key.startswith("--") else "")
        if key not in known:
            raise ValueError(f"unknown flag: {word}")
        flags[key] = value if equals else "" if key in _SWITCHES else rest.pop(0)
    return words, flags


def _known(account: Account, command: str) -> list[str]:
    if command == "create":
        return list(account.behaviour["create_flags"])
    known = _FLAGS.get(command, "").split()
    if not account.behaviour["ls_json"]:
        known = [flag for flag in known if flag != "json"]
    return known


def _help(account: Account, command: str) -> str:
    lines = [f"Usage:\n  brev {command}\n\nFlags:"]
    short = {flag: letter for letter, flag in _SHORT.items()}
    for flag in _known(account, command):
        lines.append(f"  {short[flag] + ', ' if flag in short else '    '}--{flag}   about {flag}")
    lines.append("  -h, --help   help")
    return "\n".join(lines)


def _record(account: Account, arguments: list[str]) -> None:
    mask = os.umask(0)
    os.umask(mask)
    account.note(
        "call",
        arguments=arguments,
        stdin_device=stat.S_ISCHR(os.fstat(0).st_mode),
        stdout_piped=not stat.S_ISCHR(os.fstat(1).st_mode),
        umask=mask,
        do_not_track=os.environ.get("DO_NOT_TRACK"),
        group_leader=os.getpgrp() == os.getpid(),
        cwd=os.getcwd(),
    )
