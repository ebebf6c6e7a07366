"""Storage in a directory: ``file:///path`` or a plain path."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tao_ray.files import copy_tree, fsync, move_tree, walk_files
from tao_ray.storage.layout import (
    check_key,
    check_prefix,
    complete_files,
    covering,
    is_marker,
    marker,
    refuse_nesting,
)

_WORK = ".partial"  # what is being written or deleted; each entry locked by the process at it
_ATTEMPTS = 5


class FileStorage:
    """See `tao_ray.storage.base.Storage`. The directory's file system needs rename and flock."""

    def __init__(self, root: Path):
        self._root = root
        self.uri = root.as_uri()

    def put_dir(self, source: Path, key: str) -> int:
        check_key(key)
        if not source.exists():
            raise FileNotFoundError(source)
        refuse_nesting(self, key)
        with self._work() as work:
            new = work / "new"
            size = copy_tree(source, new, durable=True)
            if new.is_dir():
                for directory, _, _ in os.walk(new):
                    fsync(Path(directory))
            token = work / "marker"
            token.write_text(f"{uuid.uuid4()}\n")
            fsync(token)
            target, mark = self._root / key, self._root / marker(key)
            with self._lock():
                target.parent.mkdir(parents=True, exist_ok=True)
                mark.unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    target.rename(work / "old")
                new.rename(target)
                fsync(target.parent)
                token.rename(mark)
                fsync(target.parent)
        return size

    def get_dir(self, key: str, destination: Path) -> int:
        check_key(key)
        destination.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS):
            token = self._token(key)
            if token is None:
                raise KeyError(key)
            partial = destination.with_name(f".{destination.name[:200]}.{uuid.uuid4().hex[:12]}")
            try:
                with suppress(FileNotFoundError):
                    size = copy_tree(self._root / key, partial)
                    if self._token(key) == token:  # else it was replaced under our hands
                        move_tree(partial, destination)
                        return size
            finally:
                if partial.is_dir():
                    shutil.rmtree(partial)
                else:
                    partial.unlink(missing_ok=True)
        raise KeyError(key)

    def exists(self, key: str) -> bool:
        return self._token(check_key(key)) is not None

    def list(self, prefix: str = "") -> dict[str, int]:
        check_prefix(prefix)
        return complete_files(dict(self._walk(prefix)), covering(self, prefix))

    def delete_prefix(self, prefix: str) -> int:
        check_prefix(prefix)
        size = sum(self.list(prefix).values())
        with self._work() as work, self._lock():
            if prefix:
                targets = [marker(prefix), prefix]
            else:
                names = [path.name for path in self._root.iterdir() if path.name != _WORK]
                targets = sorted(names, key=is_marker, reverse=True)
            for number, target in enumerate(targets):
                with suppress(FileNotFoundError):
                    (self._root / target).rename(work / str(number))
                    fsync((self._root / target).parent)
        return size

    def _token(self, key: str) -> str | None:
        """What the artifact's marker says; another one after each `put_dir`."""
        try:
            return (self._root / marker(key)).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        start = self._root / prefix
        if start.is_file():
            yield prefix, start.stat().st_size
            return
        for relative, path in walk_files(start):
            if not relative.startswith(f"{_WORK}/"):
                with suppress(FileNotFoundError):
                    yield f"{prefix}/{relative}" if prefix else relative, path.stat().st_size

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Held while names change, so that two writers do not mix."""
        with open(self._root / _WORK / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _work(self) -> Iterator[Path]:
        """A directory of our own in the storage; those of dead writers are cleared away."""
        parent = self._root / _WORK
        parent.mkdir(parents=True, exist_ok=True)
        own = parent / uuid.uuid4().hex
        with open(f"{own}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            own.mkdir()
            try:
                for other in parent.glob("*.lock"):
                    _clear_if_dead(other)
                yield own
            finally:
                shutil.rmtree(own)
                Path(lock.name).unlink(missing_ok=True)


def _clear_if_dead(lock: Path) -> None:
    try:
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    except (FileNotFoundError, BlockingIOError):
        pass
