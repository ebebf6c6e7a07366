"""The Brev session: which token there is, until when, and handing it to the CLI.

``brev login --token T`` is the only way the CLI itself offers to take a token, and it shows T to
every user of this host in the process list (and, without DO_NOT_TRACK, to telemetry). All it
keeps of T is ``$HOME/.brev/credentials.json``. That file is written here instead, readable by
its owner alone, with the content `login` would give it. Only where the file that is already there
has another form, so this CLI keeps its session differently, the command is left to do it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tao_ray.platforms.brev.errors import BrevAuthError

TOKEN = "BREV_API_TOKEN"
TOKEN_FILE = "BREV_API_TOKEN_FILE"
API_KEY = "BREV_API_KEY"
_KNOWN = {"access_token", "refresh_token", "api_key", "api_key_org_id"}
_PLACEHOLDER = "auto-login"


class Session:
    """The session in `home`, with the token that `environment` names (read anew each time)."""

    def __init__(self, home: Path, environment: Mapping[str, str]):
        self._file = home / ".brev" / "credentials.json"
        self._environment = environment

    def token(self) -> str | None:
        """The token to log in with, if one is given: from the file, else the variable."""
        path = self._environment.get(TOKEN_FILE)
        if path:
            try:
                token = Path(path).expanduser().read_text().strip()
            except OSError as error:
                raise BrevAuthError(
                    f"cannot read the token: {error.strerror or error}",
                    where=f"{TOKEN_FILE}={path}",
                    remedy=f"write the token into that file, or unset {TOKEN_FILE}",
                ) from None
            if token:
                return token
        return self._environment.get(TOKEN, "").strip() or None

    def uses_api_key(self) -> bool:
        """An API key is active: it wins over tokens, and a token login would erase it."""
        return bool(self._environment.get(API_KEY) or self._stored().get("api_key"))

    def expires_at(self) -> float | None:
        """When the session ends (`time.time`), None if it does not end by itself or is unknown.

        A token's session cannot be renewed by the CLI; one made by ``brev login`` can.
        """
        if self.uses_api_key():
            return None
        token = self.token()
        if token is None:
            stored = self._stored()
            if ":" in str(stored.get("refresh_token", "")):
                return None
            token = str(stored.get("access_token", ""))
        return expiry(token)

    def can_be_written(self) -> bool:
        """Whether the CLI keeps its session in the form known here."""
        try:
            document = json.loads(self._file.read_text())
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
            return True  # absent, or torn: the CLI does not write it atomically
        return isinstance(document, dict) and set(document) <= _KNOWN

    def holds(self, token: str) -> bool:
        """Whether the CLI's session is this token's."""
        stored = self._stored()
        return {key: stored.get(key) for key in ("access_token", "refresh_token")} == _slots(token)

    def write(self, token: str) -> None:
        """Make this token's session the CLI's."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._file.parent)  # made with mode 0600
        with os.fdopen(handle, "w") as file:
            json.dump(_slots(token), file)
        os.replace(temporary, self._file)

    def redact(self, text: str) -> str:
        """The text without any secret of the session."""
        stored = self._stored()
        secrets = [str(stored.get(key, "")) for key in ("access_token", "refresh_token", "api_key")]
        secrets += [self._environment.get(key, "") for key in (TOKEN, API_KEY)]
        with contextlib.suppress(BrevAuthError):
            secrets.append(self.token() or "")
        for secret in secrets:
            if len(secret) > len(_PLACEHOLDER):
                text = text.replace(secret, "***")
        return text

    def _stored(self) -> dict[str, Any]:
        try:
            document = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}


def expiry(token: str) -> float | None:
    """The `exp` claim of a JWT (seconds, `time.time`), None for any other text."""
    claims = _claims(token)
    exp = claims.get("exp") if claims else None
    return float(exp) if isinstance(exp, (int, float)) else None


def _claims(token: str) -> dict[str, Any] | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    return claims if isinstance(claims, dict) else None


def _slots(token: str) -> dict[str, str]:
    """Where `login` would put the token: a JWT is an access token, anything else renews one."""
    if _claims(token) is not None:
        return {"access_token": token, "refresh_token": _PLACEHOLDER}
    return {"access_token": _PLACEHOLDER, "refresh_token": token}
