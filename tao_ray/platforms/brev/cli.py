"""The `brev` command, called so that neither its prompts, its hangs nor its output surprise us.

Only the verbs login, search, create, ls, refresh, delete, start and stop are used, and `exec` where
the user wants it (`platform.link`). Jobs and files go over SSH: `exec` and `copy` may run a command
twice or start a stopped instance.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tao_ray.locks import try_lock
from tao_ray.platforms.brev import records
from tao_ray.platforms.brev.errors import (
    NEW_TOKEN,
    BrevAuthError,
    BrevError,
    BrevMissingError,
    BrevTimeoutError,
    BrevUnsupportedError,
    failure,
    logged_out,
)
from tao_ray.platforms.brev.records import Instance, InstanceType, Organization
from tao_ray.platforms.brev.session import TOKEN, TOKEN_FILE, Session

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FLAG = re.compile(r"^\s+(?:-\w, )?--([A-Za-z][\w-]*)", re.MULTILINE)
_TIMEOUTS = {"create": 180.0, "refresh": 120.0}


class _Result(NamedTuple):
    code: int
    stdout: str
    stderr: str


class BrevCli:
    """Calls `brev`, one call at a time over all processes of this user.

    environment: what the command starts from (default: this process's, read anew each time);
        ``HOME`` says whose session it is, BREV_API_TOKEN_FILE or BREV_API_TOKEN holds a token to
        log in with. Without a token the session of an earlier ``brev login`` is used.
    timeout: seconds for one call, default by verb (60 to 180).
    lock_timeout: seconds to wait for the calls of others.

    Every method raises a `BrevError`: BrevMissingError, BrevAuthError, BrevTimeoutError,
    BrevNetworkError, BrevUnsupportedError, BrevOutputError, or what its own text says.
    """

    def __init__(
        self,
        executable: str = "brev",
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
        lock_timeout: float = 300.0,
    ):
        self._executable = executable
        self._environment = os.environ if environment is None else environment
        self._timeout = timeout
        self._lock_timeout = lock_timeout
        self._home = Path(self._environment.get("HOME") or Path.home())
        self._session = Session(self._home, self._environment)
        self._mutex = threading.Lock()
        self._flags: dict[str, frozenset[str]] = {}

    @property
    def ssh_config(self) -> Path:
        """The file `refresh` writes. Read it under `lock`: it is not written atomically."""
        return self._home / ".brev" / "ssh_config"

    def version(self) -> str:
        """Such as ``0.6.327``; "" if the CLI does not say."""
        found = re.search(r"\d+\.\d+\.\d+", self._spawn("--version").stdout)
        return found[0] if found else ""

    def supports(self, command: str, flag: str) -> bool:
        """Whether ``brev COMMAND --help`` lists ``--FLAG``. Asked once."""
        if command not in self._flags:
            result = self._spawn(command, "--help")
            self._flags[command] = frozenset(_FLAG.findall(result.stdout + result.stderr))
        return flag in self._flags[command]

    def require(self, command: str, flag: str) -> None:
        """Raises BrevUnsupportedError if this CLI has no such flag."""
        if not self.supports(command, flag):
            raise BrevUnsupportedError(
                f"this CLI{f' ({self.version()})' if self.version() else ''} has no --{flag}",
                where=f"brev {command}",
                remedy="install a current brev CLI (0.6.317 or later), or remove the option from "
                "`platform` if you set it",
            )

    def expires_at(self) -> float | None:
        """When the session ends (`time.time`); None if it renews itself or does not say."""
        return self._session.expires_at()

    def uses_api_key(self) -> bool:
        """Whether an API key is active; then no token is used."""
        return self._session.uses_api_key()

    def login(self) -> None:
        """Log in with the given token, if there is one, and prove the session with `ls`."""
        self.ls()

    def ls(self, org: str | None = None) -> list[Instance]:
        """The user's instances in the active organisation, or in the one named."""
        self.require("ls", "json")
        chosen = ["--org", org] if org and not self.uses_api_key() else []
        return records.instances(self._call("ls", "--json", *chosen))

    def organizations(self) -> list[Organization]:
        self.require("ls", "json")
        return records.organizations(self._call("ls", "orgs", "--json"))

    def search(self) -> list[InstanceType]:
        """The public catalogue of types and prices. Needs no session."""
        self.require("search", "json")
        return records.instance_types(self._call("search", "--json", session=False))

    def create(self, name: str, type: str, options: Mapping[str, str] | None = None) -> None:
        """Ask for an instance; neither success nor failure says whether it exists: ask `ls`.

        options: further flags without their dashes, such as ``cloud-cred-id``.
        Raises BrevNameTakenError, BrevCapacityError, BrevRefusedError.
        """
        flags = ["--type", type]
        self.require("create", "type")
        for flag, value in (options or {}).items():
            self.require("create", flag)
            flags += [f"--{flag}", value]
        if self.supports("create", "detached"):
            flags.append("--detached")
        self._call("create", check_name(name), *flags)

    def delete(self, name: str) -> None:
        """Ask for the deletion, which takes a while. Raises BrevNotFoundError."""
        self._call("delete", check_name(name))

    def start(self, name: str) -> None:
        """Start a stopped instance, without waiting. An unknown name is no error to the CLI."""
        detached = ["--detached"] if self.supports("start", "detached") else []
        self._call("start", check_name(name), *detached)

    def stop(self, name: str) -> None:
        """Ask for the stop. Raises BrevNotFoundError, BrevRefusedError."""
        self._call("stop", check_name(name))

    def refresh(self) -> None:
        """Write the SSH configuration and key of all running instances."""
        self._call("refresh")

    def exec(self, name: str, command: str, timeout: float) -> str:
        """What a command on an instance printed, and more lines. See `platforms.brev.exec`.

        command: one word for a shell, harmless when it is run twice, without any secret.
        """
        return self._call("exec", check_name(name), command, timeout=timeout)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """No other process of this user calls `brev` through this class meanwhile.

        The CLI writes its session and the SSH configuration in place; two at a time tear them.
        Do not call other methods inside.
        """
        deadline = time.monotonic() + self._lock_timeout
        path = self._home / ".brev" / "tao-ray.lock"
        if not self._mutex.acquire(timeout=self._lock_timeout):
            raise self._locked_out(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(path, "a", opener=_private) as file:
                if not try_lock(file, deadline - time.monotonic()):
                    raise self._locked_out(path)
                yield
        finally:
            self._mutex.release()

    def _call(self, *arguments: str, session: bool = True, timeout: float | None = None) -> str:
        """Standard output of a successful call, after one forced new login if need be."""
        with self.lock():
            if session:
                self._log_in(force=False)
            result = self._spawn(*arguments, timeout=timeout)
            lost = session and result.code and logged_out(result.stdout, result.stderr)
            if lost and self._log_in(force=True):
                result = self._spawn(*arguments, timeout=timeout)
        if result.code:
            redact = self._session.redact
            error = failure(arguments[0], result.code, redact(result.stdout), redact(result.stderr))
            if isinstance(error, BrevAuthError):
                self._explain_expiry(error)
            raise error
        return result.stdout

    def _log_in(self, *, force: bool) -> bool:
        """Make the token's session the CLI's where it is not yet; False: no token is given."""
        token = None if self.uses_api_key() else self._session.token()
        if token is None:
            return False
        if self._session.can_be_written():
            if force or not self._session.holds(token):
                self._session.write(token)
        elif force:
            # This CLI keeps its session in a form unknown here; `--token` is all it offers. The
            # token is in the process list while this runs; an API key avoids that.
            result = self._spawn("login", "--token", token)
            if result.code:
                redact = self._session.redact
                raise failure("login", result.code, redact(result.stdout), redact(result.stderr))
        return True

    def _explain_expiry(self, error: BrevError) -> None:
        expires = self.expires_at()
        if expires is not None and expires <= time.time():
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(expires))
            error.message = f"the Brev token expired at {when}"
            error.remedy = NEW_TOKEN

    def _spawn(self, *arguments: str, timeout: float | None = None) -> _Result:
        """Run the command in its own process group and end all of it when its time is up.

        Output goes to files: a background child that holds a pipe open could not be waited out.
        """
        # What follows is a token, or a long word that says nothing to a reader.
        words = {"login": 1, "exec": 2}.get(arguments[0])
        shown = " ".join(("brev", *arguments[:words]))
        path = shutil.which(self._executable, path=self._environment.get("PATH"))
        if path is None:
            raise BrevMissingError(
                f"the command {self._executable!r} was not found",
                where="brev",
                remedy="install the brev CLI (https://docs.nvidia.com/brev) and see that it is on "
                "PATH",
            )
        environment = {**self._environment, "DO_NOT_TRACK": "1"}
        environment.pop(TOKEN, None)
        environment.pop(TOKEN_FILE, None)
        # `exec` starts an agent that outlives it, with the key, where none is named.
        environment.setdefault("SSH_AUTH_SOCK", "/nonexistent")
        timeout = timeout or self._timeout or _TIMEOUTS.get(arguments[0], 60.0)
        _log.debug("%s", shown)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                cwd="/",  # `start` takes a directory of the instance's name for a repository
                start_new_session=True,
                umask=0o077,
            )
            try:
                code = process.wait(timeout)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise BrevTimeoutError(
                        f"did not end within {timeout:g} s and was killed",
                        where=shown,
                        remedy="check this machine's network; run it by hand to see where it hangs",
                    ) from None
                raise
            stdout.seek(0)
            stderr.seek(0)
            return _Result(
                code,
                stdout.read().decode(errors="replace"),
                stderr.read().decode(errors="replace"),
            )

    def _locked_out(self, path: Path) -> BrevTimeoutError:
        return BrevTimeoutError(
            f"another process kept the lock for {self._lock_timeout:g} s",
            where=str(path),
            remedy=f"see who holds it with `fuser {path}` and end that process",
        )


def check_name(name: str) -> str:
    """The name, if Brev would accept it. Raises BrevError."""
    if not _NAME.fullmatch(name):
        raise BrevError(
            f"not a name for an instance: {name!r}",
            where="brev",
            remedy="use 1 to 63 letters, digits, '.', '_' and '-', the first a letter or digit",
        )
    return name


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
