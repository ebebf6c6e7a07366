"""Fixtures every test may use."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Real model packages and status files, if this machine has them beside the checkout."""
    path = Path(os.environ.get("TAO_RAY_SHARED", REPO.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no shared data at {path} (set TAO_RAY_SHARED)")
    return path


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 service on loopback, in a process of its own, with a bucket named ``bucket``."""
    pytest.importorskip("moto")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                put = urllib.request.Request(f"{url}/bucket", method="PUT")
                put.add_header("Host", f"127.0.0.1:{port}")
                urllib.request.urlopen(put, timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, "the S3 service ended"
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def s3_environment(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ACCESS_KEY", "somebody")
    monkeypatch.setenv("SECRET_KEY", "something")
    monkeypatch.setenv("S3_ENDPOINT_URL", s3_endpoint)
