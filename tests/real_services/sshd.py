"""An SSH server on loopback: stands for a machine."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tao_ray.platforms.ssh_config import SshTarget


class Sshd:
    """Call `start`; the server answers when that returns."""

    def __init__(
        self, directory: Path, *, options: str = "", environment: Mapping[str, str] | None = None
    ):
        variables = {"HOME": str(directory), **(environment or {})}
        self.directory = directory
        self.port = _free_port()
        self.key = directory / "client key"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        make_key(self.key)
        self.new_host_key()
        shutil.copy(f"{self.key}.pub", directory / "authorized_keys")
        (directory / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {directory / 'host_key'}\n"
            f"AuthorizedKeysFile {directory / 'authorized_keys'}\nPidFile {directory / 'pid'}\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            # The start files of a developer's shell would be most of the time of every command.
            f"SetEnv {' '.join(f'{k}={v}' for k, v in variables.items())}\n{options}\n"
        )

    @property
    def target(self) -> SshTarget:
        return SshTarget("127.0.0.1", getpass.getuser(), self.port, str(self.key))

    def new_host_key(self) -> None:
        """Another machine in the place of this one, after the next `start`."""
        make_key(self.directory / "host_key")

    def start(self) -> None:
        config = self.directory / "sshd_config"
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stdout=log, stderr=log
            )
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError((self.directory / "log").read_text())

    def servers(self) -> list[psutil.Process]:
        """The listening process, then those of its connections. Not what they run."""
        assert self._process is not None
        listener = psutil.Process(self._process.pid)
        sessions = [p for p in listener.children(recursive=True) if p.name() == "sshd"]
        return [listener, *sessions]

    def end_connections(self) -> None:
        for process in self.servers()[1:]:
            process.kill()

    def suspend(self) -> None:
        for process in self.servers():
            process.suspend()

    def resume(self) -> None:
        for process in self.servers():
            process.resume()

    def stop(self) -> None:
        """End the server and all connections at once; what was started through it goes on."""
        if self._process is None or self._process.poll() is not None:
            return
        for process in self.servers():
            process.send_signal(signal.SIGKILL)
        self._process.wait()


def make_key(path: Path) -> None:
    for old in (path, Path(f"{path}.pub")):
        old.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)


def running_sshd(
    directory: Path, options: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[Sshd]:
    """The body of a fixture: a running server, ended afterwards. Skips where there is none."""
    if not os.path.exists("/usr/sbin/sshd"):
        pytest.skip("no OpenSSH server here: scripts/test_services.sh installs it")
    os.makedirs("/run/sshd", exist_ok=True)
    server = Sshd(directory, options=options, environment=environment)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
