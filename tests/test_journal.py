"""The journal survives kills, keeps one writer and lets readers in at any time."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tao_ray.errors import TaoRayError
from tao_ray.journal import (
    Event,
    Journal,
    JournalLocked,
    JournalLost,
    is_being_written,
    read_events,
)


def test_events_come_back_in_order_with_their_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    first = journal.append(Event("run", data={"what": "started"}))
    journal.append(Event("epoch", "0001", {"loss": float("nan")}), Event("decision", "0001"))
    assert [e.seq for e in journal.read()] == [1, 2, 3]
    assert first[0].time > 0
    assert [e.kind for e in journal.read(trial="0001")] == ["epoch", "decision"]
    assert [e.kind for e in journal.read(after=2)] == ["decision"]
    assert journal.read(trial="0001")[0].data["loss"] != journal.read(trial="0001")[0].data["loss"]


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    with pytest.raises(TypeError):
        journal.append(Event("good"), Event("bad", data={"x": object()}))
    assert journal.read() == []
    assert journal.append(Event("next"))[0].seq == 1


def test_threads_take_turns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")

    def write(name: str) -> list[int]:
        written = []
        for _ in range(25):
            written += [e.seq for e in journal.append(Event("a", name), Event("b", name))]
            assert len(journal.read(trial=name)) == len(written)
        return written

    names = [f"{i:04d}" for i in range(4)]
    with ThreadPoolExecutor(len(names)) as pool:
        told = dict(zip(names, pool.map(write, names), strict=True))
    for name in names:
        assert [e.seq for e in journal.read(trial=name)] == told[name]
    events = journal.read()
    assert [e.kind for e in events] == ["a", "b"] * 100  # no transaction inside another


def test_a_run_directory_that_is_deleted_is_told_to_the_user(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    journal = Journal(directory / "journal.sqlite")
    journal.append(Event("good"))
    shutil.rmtree(directory)
    with pytest.raises(JournalLost, match="can no longer be recorded") as error:
        journal.append(Event("next"))
    assert str(directory) in str(error.value)
    assert error.value.exit_code == 130


def test_a_full_disk_is_told_to_the_user_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    journal.append(Event("good"))
    journal._db.execute("PRAGMA max_page_count=1")  # SQLite's own way to run out of room
    with pytest.raises(JournalLost, match="full"):
        journal.append(Event("big", data={"text": "x" * 100_000}))
    journal._db.execute("PRAGMA max_page_count=1000000")
    journal.append(Event("after"))
    assert [e.kind for e in read_events(path)] == ["good", "after"]


def test_a_damaged_journal_is_told_to_the_user(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(TaoRayError, match="the journal cannot be read"):
        read_events(path)


def test_there_is_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first = Journal(path)
    assert is_being_written(path)
    with pytest.raises(JournalLocked, match="another process is running"):
        Journal(path, wait_s=0)
    first.append(Event("run"))
    assert len(read_events(path)) == 1
    first.close()
    assert not is_being_written(path)
    Journal(path).close()


WRITER = """
import sys
from pathlib import Path
from tao_ray.journal import Event, Journal
journal = Journal(Path(sys.argv[1]), wait_s=10)
n = len(journal.read())
while True:
    journal.append(Event("a", data={"n": n}), Event("b", data={"n": n}))
    print(n, flush=True)
    n += 2
"""


def test_sigkill_loses_nothing_acknowledged_and_keeps_transactions_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    acknowledged = -2
    for round_ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            acknowledged = int(writer.stdout.readline())
            time.sleep(0.01 * round_)
            os.kill(writer.pid, signal.SIGKILL)
            rest = writer.stdout.read().split("\n")
            acknowledged = max([acknowledged, *(int(n) for n in rest[:-1] if n)])
        events = read_events(path)
        assert len(events) % 2 == 0
        assert [e.data["n"] for e in events[::2]] == list(range(0, len(events), 2))
        assert events[-1].data["n"] >= acknowledged


def test_a_reader_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_events(tmp_path / "journal.sqlite")
    assert not is_being_written(tmp_path / "journal.sqlite")


def test_a_journal_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(Exception, match="has format 99"):
        Journal(path)
