"""Instances as processes: an sshd each, on loopback, with its own host key and home directory."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from typing import Any

MARK = "BREV_EMULATED_INSTANCE"
"""Environment variable that everything run on an instance inherits, so that it can be ended."""


def sshd() -> str | None:
    """Path of the OpenSSH server, if it is installed."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def place(directory: str, item: dict[str, Any]) -> str:
    return os.path.join(directory, "instances", item["id"])


@functools.cache
def can_be_private() -> bool:
    """Whether an instance can have a /var/tmp of its own (which needs root, or the like)."""
    command = ["unshare", "--mount", "mount", "--bind", "/tmp", "/var/tmp"]
    quiet = subprocess.DEVNULL
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, stdout=quiet, stderr=quiet, check=False).returncode == 0
    return False


def _privately(here: str) -> list[str]:
    """What to put before a command so that it has a /var/tmp of its own, as machines have."""
    if not can_be_private():
        return []
    os.makedirs(os.path.join(here, "var-tmp"), exist_ok=True)
    text = 'mount --bind "$0/var-tmp" /var/tmp && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", text, here]


def keygen(path: str) -> None:
    """A new key pair."""
    run_keygen("-t", "ed25519", "-N", "", "-f", path)


def run_keygen(*options: str) -> None:
    quiet = subprocess.DEVNULL
    subprocess.run(["ssh-keygen", "-q", *options], check=True, stdin=quiet, stdout=quiet)


def start(directory: str, item: dict[str, Any], data: dict[str, Any]) -> None:
    """Start the instance's sshd; fills in `port` and `pid`. Files of an earlier life stay."""
    here = place(directory, item)
    home = os.path.join(here, "home")
    if not os.path.isdir(home):
        os.makedirs(os.path.join(home, "bin"))
        keygen(os.path.join(here, "host_key"))
        for name, text in data["tools"].items():
            _executable(os.path.join(home, "bin", name), text)
        _executable(
            os.path.join(here, "enter"),
            f"#!/bin/sh\nexport HOME='{home}' {MARK}='{here}'\n"
            'PATH="$HOME/bin:$PATH"\nexport PATH\ncd "$HOME" || exit 1\n'
            '[ -n "$SSH_ORIGINAL_COMMAND" ] || exec "${SHELL:-/bin/sh}" -l\n'
            # So that a test can ask what has ever been on a command line there.
            f"printf '%s\\n' \"$SSH_ORIGINAL_COMMAND\" >> '{here}/commands'\n"
            'exec "${SHELL:-/bin/sh}" -c "$SSH_ORIGINAL_COMMAND"\n',
        )
    certificates_only = data["behaviour"]["match"] == "required"
    for _ in range(5):
        item["port"] = _free_port()
        config = os.path.join(here, "sshd_config")
        with open(config, "w") as file:
            file.write(
                f"Port {item['port']}\nListenAddress 127.0.0.1\nHostKey {here}/host_key\n"
                f"AuthorizedKeysFile {'none' if certificates_only else directory + '/key.pub'}\n"
                f"TrustedUserCAKeys {directory}/ca.pub\nPidFile {here}/sshd.pid\n"
                "StrictModes no\nUsePAM no\nPasswordAuthentication no\n"
                "KbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 500\n"
                f"MaxSessions 500\nSubsystem sftp {_sftp_server()}\nPrintMotd no\n"
                f"ForceCommand {here}/enter\n"
                # Else bash would read this host's ~/.bashrc, which may do anything.
                "SetEnv SHLVL=9\n"
            )
        with open(os.path.join(here, "sshd.log"), "ab") as log:
            process = subprocess.Popen(
                [*_privately(here), sshd() or "sshd", "-D", "-e", "-f", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), MARK: here},
            )
        if _listening(item["port"], process):
            item["pid"] = process.pid
            return
    with open(os.path.join(here, "sshd.log")) as file:
        raise RuntimeError(f"sshd did not start: {file.read()[-2000:]}")


def kill(directory: str, item: dict[str, Any]) -> None:
    """End the instance's sshd, its connections, and everything that was run on it."""
    signal_all(directory, item, signal.SIGKILL)
    item["pid"] = None


def signal_all(directory: str, item: dict[str, Any], number: signal.Signals) -> int:
    """Send a signal to every process of the instance; how many there were."""
    found = processes(directory, item)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return len(found)


def processes(directory: str, item: dict[str, Any]) -> list[int]:
    """Pids of the instance: sshd, all that carry the mark, and their descendants.

    sshd itself is known by its pid and configuration: its title overwrites its environment.
    """
    here = place(directory, item)
    mark, config = f"{MARK}={here}".encode(), f"{here}/sshd_config".encode()
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                parents[int(entry)] = int(file.read().rsplit(b")", 1)[1].split()[1])
            with open(f"/proc/{entry}/environ", "rb") as file:
                carries = mark in file.read().split(b"\0")
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                is_sshd = int(entry) == item["pid"] and config in file.read()
            if carries or is_sshd:
                marked.add(int(entry))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    while True:
        more = {pid for pid, parent in parents.items() if parent in marked} - marked
        if not more:
            return sorted(marked)
        marked |= more


def end_tree(pid: int) -> None:
    """Kill the sshd of this pid and the processes that serve its connections."""
    serving = [pid]
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
            name, rest = file.read().split(b"(", 1)[1].rsplit(b")", 1)
            if name.startswith(b"sshd") and int(rest.split()[1]) in serving:
                serving.append(int(entry))
    for process in serving:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listening(port: int, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + 5.0
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        time.sleep(0.01)
    return False


def _sftp_server() -> str:
    for path in ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"):
        if os.path.exists(path):
            return path
    return "/usr/lib/ssh/sftp-server"


def _executable(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
