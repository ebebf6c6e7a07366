"""No secret on a command line, in a log, a record, a report, or a file that others may read.

Neither here nor on the machines. One whole search on the emulated Brev, with secrets of every kind.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from brev_emulator.docker import IMAGE, docker_missing, docker_tool
from brev_emulator.emulator import BrevEmulator
from test_brev import REPO, Searches, emulator, finished, searches

sys.path.insert(0, str(REPO / "tests" / "tracking"))

from wandb_server import wandb_server

__all__ = ["emulator", "searches"]  # fixtures
pytestmark = pytest.mark.slow

PRIVATE = "nvcr.io/tests/userland:1"
REGISTRY = f"""#!/bin/sh
# An engine whose registry, nvcr.io, wants a login; what it hands out is the local image.
real="$HOME/bin/docker-real"
config="$HOME/.docker"
echo "$@" >> "$HOME/../docker-calls"
[ "$1" != --config ] || {{ config=$2; shift 2; }}
case "$1 $2" in
"login --username")
    mkdir -p "$config"
    printf '{{"auths": {{"nvcr.io": {{"auth": "%s"}}}}}}' \
        "$(printf '%s:%s' "$3" "$(cat)" | base64 -w 0)" > "$config/config.json"
    echo "logged in at $config" >> "$HOME/../logins" ;;
"manifest inspect" | "pull {PRIVATE}")
    [ -s "$config/config.json" ] || {{ echo "unauthorized" >&2; exit 1; }}
    [ "$1" = manifest ] || exec "$real" tag {IMAGE} {PRIVATE} ;;
*) exec "$real" "$@" ;;
esac
"""


@pytest.fixture
def secrets(emulator: BrevEmulator) -> dict[str, str]:
    """Variable -> its recognisable value. The Brev token is one that the account takes."""
    names = ("NGC_KEY", "ACCESS_KEY", "SECRET_KEY", "WANDB_API_KEY", "HF_TOKEN")
    planted = {name: f"planted{name.lower()}{uuid.uuid4().hex}"[:40] for name in names}
    return {**planted, "BREV_API_TOKEN": emulator.token(seconds=3600.0)}


def test_no_secret_is_left_anywhere(
    searches: Searches,
    emulator: BrevEmulator,
    secrets: dict[str, str],
    s3_endpoint: str,
    tmp_path: Path,
) -> None:
    if reason := docker_missing():
        pytest.skip(reason)
    tools = docker_tool(tmp_path)
    emulator.change(tools={"docker-real": tools["docker"], "docker": REGISTRY}, renewable=False)
    (emulator.home / ".brev" / "credentials.json").unlink()  # the token is the only session
    mounts = {"/usr": "/usr:ro"}
    mounts |= {path: f"{path}:ro" for path in (sys.prefix, sys.base_prefix, str(REPO))}
    searches.write(
        results="s3://bucket/secrets",
        model={"image": PRIVATE},
        search={"trials": 3, "max_concurrent": 2},
        tracking={"wandb": {"project": "p"}},
        platform={
            "engine": "docker",
            "mounts": mounts,
            "network": "host",
            "ulimits": {},
            "shm_size": "64m",
            "pass_env": ["HF_TOKEN", "ACCESS_KEY", "SECRET_KEY"],
        },
    )
    sessions = set(Path("/tmp/ray").glob("session_2*"))
    with wandb_server() as board, Watch(secrets, tmp_path) as watch:
        driver = searches.start(S3_ENDPOINT_URL=s3_endpoint, WANDB_BASE_URL=board.url, **secrets)
        out = finished(driver, 0)
    assert board.named(), "the key of W&B was not used"
    logins = [path.read_text() for path in tmp_path.glob("brev/instances/*/logins")]
    assert logins, "the key of NGC was not used"
    assert not any("/.docker" in text for text in logins), "it would stay on the machine"
    assert not any(value in out for value in secrets.values())
    # Every command line of brev, docker and SSH is in files, too, which are searched below.
    assert watch.on_command_lines == set()
    assert watch.readable_by_others == set()
    new = set(Path("/tmp/ray").glob("session_2*")) - sessions
    assert new, "Ray's own files are elsewhere"
    roots = [tmp_path, *(path for path in new if not path.is_symlink())]
    left = holding(secrets, roots)
    # What the CLI itself keeps of its session, and what the account knows of its tokens.
    known = {emulator.home / ".brev" / "credentials.json", emulator.directory / "account.json"}
    assert {path: names for path, names in left.items() if path not in known} == {}
    assert left.keys() == known, "the search itself finds what is there"
    assert not exposed(emulator.home / ".brev" / "credentials.json", emulator.home)


def test_the_watch_sees_what_it_is_to_see(tmp_path: Path) -> None:
    secrets = {"A": f"planted{uuid.uuid4().hex}"}
    machine = tmp_path / "brev" / "instances" / "i1"
    machine.mkdir(parents=True)
    for name, mode in (("open", 0o644), ("closed", 0o600)):
        (machine / name).write_text(secrets["A"])
        (machine / name).chmod(mode)
    encoded = base64.b64encode(f"x{secrets['A']}".encode()).decode()
    with Watch(secrets, tmp_path) as watch:
        subprocess.run(["sh", "-c", "sleep 1; true", encoded], check=True)
        time.sleep(0.5)
    assert len(watch.on_command_lines) == 1
    assert watch.readable_by_others == {f"['A']: {machine / 'open'}"}


class Watch:
    """Looks at all command lines of this host, and at files on the machines while jobs run."""

    def __init__(self, secrets: dict[str, str], directory: Path):
        self.on_command_lines: set[str] = set()
        self.readable_by_others: set[str] = set()
        self._secrets = secrets
        self._directory = directory
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(look, pause))
            for look, pause in ((self._look_at_processes, 0.02), (self._look_at_files, 0.3))
        ]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, look, pause: float) -> None:  # type: ignore[no-untyped-def]
        while not self._over.wait(pause):
            look()

    def _look_at_processes(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (process / "cmdline").read_bytes()
                if names := found_in(self._secrets, line):
                    self.on_command_lines.add(f"{names}: {line[:200]!r}")

    def _look_at_files(self) -> None:
        for machine in (self._directory / "brev" / "instances").glob("*"):
            for path, names in holding(self._secrets, [machine]).items():
                if exposed(path, machine):
                    self.readable_by_others.add(f"{names}: {path}")
        for path, names in holding(self._secrets, [*Path("/tmp").glob("tmp.*")]).items():
            if exposed(path, Path("/tmp")):  # of the machines, too
                self.readable_by_others.add(f"{names}: {path}")


def holding(secrets: dict[str, str], roots: list[Path]) -> dict[Path, list[str]]:
    """Files that hold secrets, as they are or in base64 -> which."""
    found: dict[Path, list[str]] = {}
    for path in files_below(roots):
        with contextlib.suppress(OSError):
            if names := found_in(secrets, path.read_bytes()):
                found[path] = names
    return found


def files_below(roots: list[Path]) -> Iterator[Path]:
    for root in roots:
        for directory, inner, names in os.walk(root):
            if Path(directory).name == "docker":  # the engine's own store: images and layers
                inner.clear()
                continue
            yield from (
                path
                for name in names
                if (path := Path(directory, name)).is_file() and not path.is_symlink()
            )


def found_in(secrets: dict[str, str], data: bytes) -> list[str]:
    decoded = b""
    for word in re.findall(rb"[A-Za-z0-9+/]{32,}", data):
        with contextlib.suppress(ValueError):
            decoded += base64.b64decode(word + b"=" * (-len(word) % 4))
    text = data + decoded
    return [name for name, value in secrets.items() if value.encode() in text]


def exposed(path: Path, root: Path) -> bool:
    """Whether other users of a machine whose files are below `root` can read it."""
    with contextlib.suppress(OSError):  # it is gone
        readable = path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
        above = [p for p in path.parents if root in p.parents]
        return bool(readable) and all(p.stat().st_mode & stat.S_IXOTH for p in above)
    return False
