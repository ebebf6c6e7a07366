"""Sessions as the CLI keeps and checks them. A signature is never checked locally."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from typing import Any

from brev_emulator.account import Account

ISSUER = "https://brevdev.us.auth0.com/"
_AUTO = "auto-login"


class LoggedOut(Exception):
    """The command ends here. asks: with the prompt for a login."""

    def __init__(self, *, asks: bool):
        self.asks = asks
        super().__init__()


def make_token(seconds: float, *, issuer: str = ISSUER, skew: float = 0.0, number: int = 0) -> str:
    now = time.time()
    claims = {"iss": issuer, "iat": int(now + skew), "exp": int(now + seconds), "jti": number}
    head, body = (_encode({"alg": "RS256", "typ": "JWT"}), _encode(claims))
    return f"{head}.{body}.c2lnbmF0dXJl{number}"


def claims(token: str) -> dict[str, Any] | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def valid(token: str) -> bool:
    found = claims(token)
    now = time.time()
    return bool(found and found.get("exp", 0) > now and found.get("iat", now) <= now + 1)


def load(home: str) -> dict[str, Any]:
    try:
        with open(os.path.join(home, ".brev", "credentials.json")) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(home: str, document: dict[str, Any]) -> None:
    os.makedirs(os.path.join(home, ".brev"), exist_ok=True)
    with open(os.path.join(home, ".brev", "credentials.json"), "w") as file:
        json.dump(document, file)


def pollute(account: Account, home: str) -> None:
    """Every command prints this first if the token's issuer is a stranger."""
    found = claims(_tokens(account, home)[0])
    if found and found.get("iss") != ISSUER:
        print("no oauth found for token")


def login(account: Account, home: str, flags: dict[str, str]) -> int:
    if "api-key" in flags:
        if not account.behaviour["api_key_login"]:
            print("unknown flag: --api-key", file=sys.stderr)
            return 1
        save(home, {"api_key": flags["api-key"], "api_key_org_id": flags["org-id"]})
        print(f"API key saved for org {flags['org-id']}")
        return 0
    token = flags.get("token")
    if token is None:
        raise LoggedOut(asks=True)
    access, refresh = (token, _AUTO) if valid(token) else (_AUTO, token)
    if account.behaviour["session_form"] == "other":
        save(home, {"session": {"token": token}})
    else:
        save(home, {"access_token": access, "refresh_token": refresh})
    check(account, home)  # saved before it is checked
    print("\nWelcome to Brev\n")
    return 0


def check(account: Account, home: str) -> None:
    """Raises LoggedOut, with the CLI's words on its streams, unless there is a session."""
    stored = load(home)
    if stored.get("api_key") and account.behaviour["session_form"] == "known":
        return
    access, refresh = _tokens(account, home)
    if not valid(access):
        access = _renewed(account, home, refresh)
    revoked = account.data["revoked"]
    if revoked == "all" or access in revoked or access not in account.data["issued"]:
        print("unexpected response: 401 Unauthorized", file=sys.stderr)
        raise LoggedOut(asks=False)


def _renewed(account: Account, home: str, refresh: str) -> str:
    if ":" in refresh and account.data["renewable"]:
        access = make_token(3600.0, number=len(account.data["issued"]))
        account.data["issued"].append(access)
        save(home, {"access_token": access, "refresh_token": refresh})
        return access
    if refresh and refresh != _AUTO:
        print("WARN: malformed refresh token, logging out")
        with open(os.path.join(home, ".brev", ".invalid-refresh-token"), "w") as file:
            file.write(refresh)
        save(home, {"access_token": "", "refresh_token": ""})
    raise LoggedOut(asks=True)


def _tokens(account: Account, home: str) -> tuple[str, str]:
    stored = load(home)
    if account.behaviour["session_form"] == "other":
        session = stored.get("session")
        return (session["token"] if isinstance(session, dict) else "", "")
    return str(stored.get("access_token", "")), str(stored.get("refresh_token", ""))


def prompt() -> None:
    """Asks for a login; reads stdin, as the original does: an open pipe blocks here."""
    print("You are currently logged out, would you like to log in? [Y/n]: ", end="", flush=True)
    if not sys.stdin.readline():
        print("EOF", file=sys.stderr)
        return
    time.sleep(300)  # the login in a browser that nobody completes


def _encode(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
