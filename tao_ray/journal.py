"""The journal: every fact of a run, on disk before it is acted on.

One SQLite file per run, one table, append only. A fact is on disk when `append` returns: the
whole list or none of it. There is one writer at a time, held by a lock on a file beside the
journal, so whoever resumes a run waits until the last writer is really gone. Readers open the
file at any time.

SQLite's rollback journal is used rather than its write-ahead log because run directories often
live on network file systems, where the latter does not work.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tao_ray.errors import TaoRayError
from tao_ray.locks import try_lock

FILE_NAME = "journal.sqlite"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Event:
    """One fact. `seq` and `time` (seconds since the epoch) are given by the journal."""

    kind: str
    trial: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    time: float = 0.0
    seq: int = 0


class JournalWriter(Protocol):
    """Whatever can append: the journal itself, or a stub of the process that holds it."""

    def append(self, *events: Event) -> list[Event]:
        """Write all events in one transaction; returns them with `seq` and `time` set."""

    def read(self, *, after: int = 0, trial: str | None = None) -> list[Event]:
        """Events with a `seq` above `after`, of one trial or of all, in order."""


class JournalLocked(TaoRayError):
    """Another process is writing this journal."""


class JournalLost(TaoRayError):
    """A journal that can no longer be written: a full disk, a deleted run directory."""

    exit_code = 130  # what was written is safe, so the run goes on from there


class Journal:
    """The writer, for all threads of a process. Use `read_events` to only read."""

    def __init__(self, path: Path, *, wait_s: float = 1.0):
        """Open or create the journal and become its one writer.

        Raises JournalLocked if another process still is after `wait_s` seconds.
        """
        self.path = path
        self._lock = open(path.with_suffix(".lock"), "a")  # noqa: SIM115 - held for life
        if not try_lock(self._lock, wait_s):
            self._lock.close()
            raise JournalLocked(
                "another process is running this experiment",
                where=str(path.parent),
                remedy="wait for it, or end it with `tao-ray stop`",
            )
        self._turn = threading.Lock()  # a connection has one transaction, whichever thread began it
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA busy_timeout=10000")
        self._db.execute("PRAGMA journal_mode=TRUNCATE")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, time REAL NOT NULL,"
            " kind TEXT NOT NULL, trial TEXT, data TEXT NOT NULL)"
        )
        self._db.execute("CREATE INDEX IF NOT EXISTS by_trial ON events (trial, seq)")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            raise TaoRayError(
                f"the journal has format {version}, this version writes {SCHEMA_VERSION}",
                where=str(path),
                remedy="use the version of tao_ray that started the run",
            )
        self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def append(self, *events: Event) -> list[Event]:
        """See `JournalWriter.append`. Raises JournalLost."""
        try:
            with self._turn:
                return self._append(events)
        except sqlite3.Error as error:
            raise JournalLost(
                f"the run can no longer be recorded: {error}",
                where=str(self.path),
                remedy="see that the run directory is still there, may be written to and has room "
                f"on its disk, then go on with: tao-ray resume {self.path.parent}",
            ) from error

    def _append(self, events: Iterable[Event]) -> list[Event]:
        written = []
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for event in events:
                now = time.time()
                cursor = self._db.execute(
                    "INSERT INTO events (time, kind, trial, data) VALUES (?, ?, ?, ?)",
                    (now, event.kind, event.trial, json.dumps(dict(event.data))),
                )
                written.append(
                    Event(event.kind, event.trial, event.data, now, int(cursor.lastrowid or 0))
                )
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite itself rolls back when the disk is full
                self._db.execute("ROLLBACK")
            raise
        return written

    def read(self, *, after: int = 0, trial: str | None = None) -> list[Event]:
        """See `JournalWriter.read`."""
        with self._turn:
            return list(_select(self._db, after, trial))

    def close(self) -> None:
        """Stop being the writer."""
        self._db.close()
        self._lock.close()


def read_events(path: Path, *, after: int = 0, trial: str | None = None) -> list[Event]:
    """Events of a journal that this process does not write.

    Raises FileNotFoundError if there is none, TaoRayError if it is no journal or is damaged.
    """
    if not path.is_file():
        raise FileNotFoundError(path)
    # A writer killed in the middle of a transaction leaves a rollback that the next reader must
    # do, so a reader opens for writing wherever it may.
    mode = "rw" if os.access(path, os.W_OK) else "ro"
    with closing(sqlite3.connect(f"file:{path}?mode={mode}", uri=True, timeout=10)) as db:
        try:
            return list(_select(db, after, trial))
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # created this instant, nothing in it yet
                return []
            raise _unreadable(path, error) from None
        except sqlite3.DatabaseError as error:
            raise _unreadable(path, error) from None


def _unreadable(path: Path, error: sqlite3.Error) -> TaoRayError:
    return TaoRayError(
        f"the journal cannot be read: {error}",
        where=str(path),
        remedy="see that you may read it and that its disk is sound; a copy of the run directory "
        "will do",
    )


def is_being_written(path: Path) -> bool:
    """Whether some process is this journal's writer now."""
    lock = path.with_suffix(".lock")
    if not lock.exists():
        return False
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _select(db: sqlite3.Connection, after: int, trial: str | None) -> Iterator[Event]:
    where, args = "seq > ?", [after]
    rows: Iterable[tuple[Any, ...]]
    if trial is None:
        rows = db.execute(f"SELECT * FROM events WHERE {where} ORDER BY seq", args)
    else:
        rows = db.execute(
            f"SELECT * FROM events WHERE {where} AND trial = ? ORDER BY seq", [*args, trial]
        )
    for seq, when, kind, name, data in rows:
        yield Event(kind, name, json.loads(data), when, seq)
