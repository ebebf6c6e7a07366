"""The link to this host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tao_ray.platforms import LinkError
from tao_ray.platforms.local_machine import LocalMachine
from tao_ray.platforms.machine import Chunk


@pytest.fixture
def machine() -> LocalMachine:
    return LocalMachine(os.environ, poll_interval=0.01)


def found(follower: Iterator[Chunk | None]) -> list[tuple[str, int, bytes]]:
    """What one look finds."""
    chunks = []
    while (chunk := next(follower)) is not None:
        chunks.append((os.path.basename(chunk.path), chunk.offset, chunk.data))
    return chunks


def test_run(machine: LocalMachine) -> None:
    result = machine.run("cat; echo no >&2; exit 3", stdin=b"yes")
    assert (result.code, result.stdout, result.stderr) == (3, b"yes", b"no\n")


def test_run_has_a_deadline(machine: LocalMachine) -> None:
    with pytest.raises(LinkError, match=r"within 0\.1 s"):
        machine.run("sleep 30", timeout=0.1)


def test_follow(machine: LocalMachine, tmp_path: Path) -> None:
    first, late = tmp_path / "first", tmp_path / "late"
    first.write_bytes(b"12345")
    follower = machine.follow({str(first): 3, str(late): 0})
    assert found(follower) == [("first", 3, b"45")]
    assert found(follower) == []
    with first.open("ab") as file:
        file.write(b"67")
    late.write_bytes(b"x")
    assert found(follower) == [("first", 5, b"67"), ("late", 0, b"x")]
    first.write_bytes(b"a")
    assert found(follower) == [("first", 0, b"a")]
    other = tmp_path / "other"
    other.write_bytes(b"longer than before")
    other.rename(first)
    assert found(follower) == [("first", 0, b"longer than before")]


def test_follow_hands_out_large_files_in_pieces_and_in_order(
    machine: LocalMachine, tmp_path: Path
) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(b"x" * (5 << 20))
    small.write_bytes(b"y")
    seen = found(machine.follow({str(small): 0, str(large): 0}))
    assert seen[0][0] == "small"
    assert [len(data) for name, _, data in seen[1:]] == [1 << 20] * 5


def test_watching_is_cheap(tmp_path: Path) -> None:
    """CPU of one look at three files (status, log, exit record) of a quiet job."""
    machine = LocalMachine(os.environ, poll_interval=0.001)
    (tmp_path / "status").write_bytes(b"s")
    (tmp_path / "log").write_bytes(b"l")
    names = ("status", "log", "exit")
    follower = machine.follow({str(tmp_path / name): 0 for name in names})
    found(follower)
    begun = time.thread_time()
    for _ in range(200):
        assert next(follower) is None
    assert (time.thread_time() - begun) / 200 < 0.0003
