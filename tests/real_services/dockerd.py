"""A Docker Engine of its own, and a small image for it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IMAGE = "registry.invalid/userland:1"

# The image holds links only: its userland, interpreters included, is this host's.
MOUNTS = {
    "/usr": "/usr:ro",
    sys.prefix: f"{sys.prefix}:ro",
    sys.base_prefix: f"{sys.base_prefix}:ro",
}


class Dockerd:
    """`environment` leads the docker command to this engine.

    Containers can "have GPUs": the hook that would give them real ones does nothing here.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        # A socket's path must be short.
        self.socket = Path(tempfile.mkdtemp(prefix="dockerd-")) / "s"
        self.environment = {**os.environ, "DOCKER_HOST": f"unix://{self.socket}"}
        self._process: subprocess.Popen[bytes] | None = None
        hooks = directory / "hooks"
        hooks.mkdir(parents=True)
        hook = hooks / "nvidia-container-runtime-hook"
        hook.write_text("#!/bin/sh\nexit 0\n")
        hook.chmod(0o755)
        self.path = f"{hooks}:{os.environ['PATH']}"

    def start(self) -> None:
        options = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"]
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        for option, name in places.items():
            options += [f"--{option}", str(self.directory / name)]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["dockerd", *options, "-H", f"unix://{self.socket}"],
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": self.path},
            )
        for _ in range(300):
            if self.docker("version", check=False).returncode == 0:
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        pytest.skip(f"dockerd does not start here: {(self.directory / 'log').read_text()[-500:]}")

    def docker(self, *arguments: str, stdin: bytes = b"", check: bool = True):  # type: ignore[no-untyped-def]
        return subprocess.run(
            ["docker", *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment,
            check=check,
        )

    def make_image(self) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name in ("usr", "tmp", "etc", "proc", "root", "sbin"):
                member = tarfile.TarInfo(name)
                member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
                archive.addfile(member)
            for name in ("bin", "lib", "lib64"):
                if os.path.islink(f"/{name}"):
                    member = tarfile.TarInfo(name)
                    member.type, member.linkname = tarfile.SYMTYPE, f"usr/{name}"
                    archive.addfile(member)
        self.docker("import", "-", IMAGE, stdin=buffer.getvalue())

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=60)
        shutil.rmtree(self.socket.parent, ignore_errors=True)


def running_dockerd(directory: Path) -> Iterator[Dockerd]:
    """The body of a fixture: a running engine with `IMAGE`. Skips where there is none."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("no dockerd here, or not root: scripts/test_services.sh installs it")
    engine = Dockerd(directory)
    engine.start()
    try:
        engine.make_image()
        yield engine
    finally:
        for name in engine.docker("ps", "-aq", check=False).stdout.decode().split():
            engine.docker("rm", "-f", name, check=False)
        engine.stop()
