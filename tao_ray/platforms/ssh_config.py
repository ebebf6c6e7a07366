"""How a machine is reached by SSH: an alias of a configuration file, or explicit keys, or both."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from tao_ray.platforms.base import LinkError

_ATTEMPTS = 3
_LOOKUP = """
import json, sys, paramiko
print(json.dumps(dict(paramiko.SSHConfig.from_path(sys.argv[1]).lookup(sys.argv[2]))))
"""


@dataclass(frozen=True)
class SshTarget:
    """What is known of a host beforehand; keys given here win over those of the file.

    host: a host name, an address, or an alias of `config_file`. config_file: a file in the format
    of ``ssh_config``, which must then know `host`. None: ``~/.ssh/config`` if there is one, which
    need not.
    """

    host: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    config_file: str | None = None

    @property
    def address(self) -> str:
        """For error messages."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}{f':{self.port}' if self.port else ''}"


@dataclass(frozen=True)
class Route:
    """All that is needed to connect now. user: None is this process's user."""

    host: str
    port: int
    user: str | None
    identity_files: tuple[str, ...]
    proxy_command: str | None


def find_route(target: SshTarget, timeout: float) -> Route:
    """Look the target up, anew each time: addresses and certificates in such files change.

    Runs the commands of ``Match … exec`` blocks. A file that does not know the host, or cannot be
    parsed, is read again a few times: tools rewrite such files in place. Raises LinkError.
    """
    found = _lookup(target, time.monotonic() + timeout)
    identities = found.get("identityfile", [])
    if target.identity_file:
        identities = [target.identity_file]
    proxy = found.get("proxycommand")
    return Route(
        host=found["hostname"],
        port=target.port or int(found.get("port", 22)),
        user=target.user or found.get("user"),
        identity_files=tuple(os.path.expanduser(name) for name in identities),
        proxy_command=None if proxy is None or proxy.lower() == "none" else proxy,
    )


def _lookup(target: SshTarget, deadline: float) -> dict[str, Any]:
    file = target.config_file or os.path.expanduser("~/.ssh/config")
    if target.config_file is None and not os.path.exists(file):
        return {"hostname": target.host}
    for attempt in range(_ATTEMPTS):
        found: dict[str, Any] | None
        try:
            found = _read(file, target.host, deadline)
            problem = f"there is no host {target.host} in it, or its Match command failed"
        except (OSError, paramiko.ConfigParseError, paramiko.CouldNotCanonicalize) as error:
            found, problem = None, f"cannot be read: {error}"
        if found is not None and (target.config_file is None or found != {"hostname": target.host}):
            return found
        if attempt < _ATTEMPTS - 1:
            time.sleep(max(0.0, min(0.5, deadline - time.monotonic())))
    raise LinkError(problem, where=file, remedy=f"check with: ssh -F {file} -G {target.host}")


def _read(file: str, host: str, deadline: float) -> dict[str, Any]:
    text = Path(file).read_text()
    if not re.search(r"^\s*match\b.*\bexec\b", text, re.IGNORECASE | re.MULTILINE):
        # Not get_hostnames(): it fails on Match blocks.
        return dict(paramiko.SSHConfig.from_text(text).lookup(host))
    # In a process of its own: the command of a Match block may hang, and is given our stdin.
    process = subprocess.Popen(
        [sys.executable, "-c", _LOOKUP, file, host],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise LinkError(f"a Match command for {host} does not end", where=file) from None
    if process.returncode:
        raise paramiko.ConfigParseError(stderr.decode(errors="replace").strip()[-500:])
    found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return found
