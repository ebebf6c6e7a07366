"""What can go wrong with Brev, and the text a user reads then.

The CLI exits with 1 for everything, so its words decide. They are matched as substrings of both
streams: its errors embed function names and build paths that differ between versions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tao_ray.platforms.base import CapacityError, PlatformError


class BrevError(PlatformError):
    """A Brev command failed, and what it was to do may or may not have happened."""

    transient = False
    """Whether the same call may well succeed a little later."""


class BrevMissingError(BrevError):
    """The CLI is not installed."""


class BrevUnsupportedError(BrevError):
    """This CLI lacks a flag or command that is needed."""


class BrevAuthError(BrevError):
    """Logged out, and logging in again did not help. Nothing was done."""


class BrevNetworkError(BrevError):
    """The service was not reached, or its answer was lost."""

    transient = True


class BrevServerError(BrevError):
    """The service itself failed."""

    transient = True


class BrevTimeoutError(BrevError):
    """The CLI did not end in time, or another process did not hand on the lock."""

    transient = True


class BrevOutputError(BrevError):
    """The CLI said it had succeeded, but its output cannot be understood."""

    transient = True


class BrevNotFoundError(BrevError):
    """No instance has this name."""


class BrevNameTakenError(BrevError):
    """An instance of this name exists, or one is still being deleted."""


class BrevRefusedError(BrevError):
    """This type cannot be had in this account at all; another may."""


class BrevCapacityError(BrevError, CapacityError):
    """No capacity, quota or credit for this type now; another type or a later time may do."""


class BrevProvisionError(BrevError):
    """An instance was made but did not become usable."""


class Pattern(NamedTuple):
    """Words of the CLI (a regular expression), what they mean, and what to do."""

    words: str
    error: type[BrevError]
    meaning: str
    remedy: str


NEW_TOKEN = (
    "make a new token in the Brev console and put it into BREV_API_TOKEN, or into the file named "
    "by BREV_API_TOKEN_FILE, which is read again before the next call; without a token, run "
    "`brev login`"
)
ANOTHER_TYPE = "choose another GPU or provider (platform.gpu, platform.provider)"

_LOGGED_OUT = re.compile(
    r"currently logged out|malformed refresh token|unauthorized|token is expired|not logged in"
    r"|(?:status|code|http)\D{0,10}401\b",
    re.IGNORECASE,
)
_BARE_EOF = re.compile(r"^(?:error: )?EOF\s*\Z", re.IGNORECASE | re.MULTILINE)

PATTERNS = (
    Pattern(
        r"duplicate workspace",
        BrevNameTakenError,
        "an instance of this name exists already, or is still being deleted",
        "wait until `brev ls` no longer shows it, or delete it with `brev delete NAME`",
    ),
    Pattern(
        r"not a recognized type",
        BrevRefusedError,
        "Brev does not know this instance type",
        "see `brev search` for the types there are, and set platform.type to one of them",
    ),
    Pattern(
        r"location[^\n]*(?:not (?:allowed|supported|available|permitted|found)|invalid|reject)"
        r"|(?:invalid|unsupported|rejected)[^\n]{0,20}location",
        BrevRefusedError,
        "the location behind this type is rejected",
        f"this account may not use that region; {ANOTHER_TYPE}",
    ),
    Pattern(
        r"no capacity|currently unavailable|insufficient capacity|out of capacity",
        BrevCapacityError,
        "no capacity for this type now",
        f"{ANOTHER_TYPE}, or try again later",
    ),
    Pattern(
        r"quota",
        BrevCapacityError,
        "the organisation's quota is used up",
        "delete instances that are not needed (`brev ls`), use fewer with platform.machines, "
        "or ask Brev for a larger quota",
    ),
    Pattern(
        r"insufficient (?:credit|fund|balance)|out of credits?|credits? (?:exhausted|limit)"
        r"|payment required",
        BrevCapacityError,
        "the organisation has no credit left",
        "add credit in the Brev console (billing), then continue with --resume",
    ),
    Pattern(
        r"unknown (?:shorthand )?flag|unknown command",
        BrevUnsupportedError,
        "this brev CLI does not know an option that is needed",
        "install a current brev CLI, and remove options from `platform` that it does not list in "
        "`brev create --help`",
    ),
    Pattern(
        r"could not look up instance",
        BrevNotFoundError,
        "Brev could not look the instance up: it is gone, or the session has ended",
        "see `brev ls`; if that asks for a login, " + NEW_TOKEN,
    ),
    Pattern(
        r"instance with id/name .* not found",
        BrevNotFoundError,
        "there is no instance of this name in the active organisation",
        "see `brev ls`; switch the organisation with `brev set NAME` if it is another one's",
    ),
    Pattern(
        r"no org(?:s|anization)? (?:exist|found)",
        BrevAuthError,
        "the account has no active organisation",
        "run `brev ls orgs`, then `brev set NAME`",
    ),
    Pattern(
        r"no such host|could not resolve|temporary failure in name resolution",
        BrevNetworkError,
        "a host name could not be resolved",
        "check this machine's network and DNS; for an instance, see that `brev ls` shows RUNNING",
    ),
    Pattern(
        r"connection refused|connection reset|network is unreachable|i/o timeout|tls handshake"
        r"|unexpected eof|deadline exceeded|RESTY",
        BrevNetworkError,
        "the connection was refused or broke off",
        "check this machine's network (proxy, firewall); if it works, Brev itself may have "
        "trouble: try again later",
    ),
    Pattern(
        r"\b50[0234] (?:internal|bad|service|gateway)|(?:status|code|http)\D{0,10}50[0234]\b",
        BrevServerError,
        "Brev's service failed",
        "try again later; see the status page of Brev if it goes on",
    ),
    Pattern(
        r"does not support stop",
        BrevRefusedError,
        "this type of instance cannot be stopped",
        "delete it instead: `brev delete NAME`",
    ),
)


def logged_out(stdout: str, stderr: str) -> bool:
    """Whether a failed command says that there is no session.

    A bare EOF is the login prompt that found no input, unless a connection was lost: then the
    HTTP client (resty) has said so as well.
    """
    if _LOGGED_OUT.search(stdout) or _LOGGED_OUT.search(stderr):
        return True
    return bool(_BARE_EOF.search(stderr)) and "RESTY" not in stderr


def failure(command: str, code: int, stdout: str, stderr: str) -> BrevError:
    """The error for a command that exited with `code`; the texts hold no secret any more."""
    said = "\n".join(part for part in (stdout.strip(), stderr.strip()) if part)
    if logged_out(stdout, stderr):
        return _error(command, BrevAuthError, "the session has ended", NEW_TOKEN, said)
    for words, error, meaning, remedy in PATTERNS:
        if re.search(words, said, re.IGNORECASE):
            return _error(command, error, meaning, remedy, said)
    remedy = f"run `brev {command.split()[0]}` by hand to see more"
    return _error(command, BrevError, f"failed with exit code {code}", remedy, said)


def _error(command: str, error: type[BrevError], meaning: str, remedy: str, said: str) -> BrevError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    quote = f" (it said: {' | '.join(lines[-3:])[-500:]})" if lines else ""
    return error(meaning + quote, where=f"brev {command}", remedy=remedy)
