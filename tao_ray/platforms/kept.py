"""Copies of jobs and of files that outlive the machines they were on.

In the storage: ``<workspace>/files/<path>``, one artifact for each kept file of a workspace, and
``<workspace>/jobs/<id>``, what a job has said and how it ended.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from urllib.parse import unquote

from tao_ray.platforms.base import (
    Event,
    Exit,
    JobHandle,
    LogLine,
    MachineLostError,
    Offset,
    PlatformError,
    StatusLine,
)
from tao_ray.storage import Storage

_STATUS, _LOG, _EXIT = "status", "log", "exit.json"
_BEGINNING = Offset()


class KeptFiles:
    """What is kept of one run. May be pickled."""

    def __init__(self, storage: Storage):
        self._storage = storage

    def files(self, workspace: str) -> dict[str, int]:
        """Kept files of a workspace: path in it -> bytes."""
        prefix = f"{workspace}/files"
        found = self._storage.list(prefix)
        return {key.removeprefix(f"{prefix}/"): size for key, size in found.items()}

    def keep(self, handle: JobHandle, workspace: str, paths: Sequence[str]) -> None:
        """Copy files of the job's workspace, and drop what was kept of it before.

        A file is dropped only when all of the new ones are there. Files that are kept already, with
        the same size, are not copied again. FileNotFoundError if one is absent,
        PlatformError if one is being written.
        """
        present, kept = handle.list(), self.files(workspace)
        for path in paths:
            if path not in present:
                raise FileNotFoundError(f"{path} of {handle.job_id}")
            if kept.get(path) != present[path]:
                self._copy(handle, workspace, path, present[path])
        for path in kept.keys() - set(paths):
            self.drop(workspace, path)

    def _copy(self, handle: JobHandle, workspace: str, path: str, size: int) -> None:
        with tempfile.TemporaryDirectory(prefix="tao-ray-") as directory:
            copy = Path(directory, "file")
            handle.fetch(path, str(copy))
            if copy.stat().st_size != size:
                raise PlatformError(f"{path} changes while it is being copied", where=handle.job_id)
            self._storage.put_dir(copy, f"{workspace}/files/{path}")

    def get(self, workspace: str, path: str, destination: Path) -> bool:
        """Copy a kept file, or all that is below a directory, to a local path; False: nothing is
        kept there."""
        found = [name for name in self.files(workspace) if is_below(name, path)]
        for name in found:
            below = name.removeprefix(path).lstrip("/")
            self._storage.get_dir(f"{workspace}/files/{name}", destination / below)
        return bool(found)

    def location(self, workspace: str, path: str) -> str:
        """Where a kept file lies: a path on this host, or a URI."""
        address = f"{self._storage.uri}/{workspace}/files/{path}"
        return unquote(address.removeprefix("file://")) if address[:7] == "file://" else address

    def drop(self, workspace: str, path: str) -> None:
        """Delete a kept file, or all below a directory."""
        self._storage.delete_prefix(f"{workspace}/files/{path}")

    def discard(self, workspace: str) -> None:
        """Delete all that is kept of a workspace."""
        self._storage.delete_prefix(workspace)

    def keep_job(self, handle: JobHandle, workspace: str) -> None:
        """Copy what an ended job has said."""
        key = f"{workspace}/jobs/{handle.job_id}"
        if self._storage.exists(key):
            return
        with tempfile.TemporaryDirectory(prefix="tao-ray-") as directory:
            with (
                open(f"{directory}/{_STATUS}", "wb") as status,
                open(f"{directory}/{_LOG}", "wb") as log,
            ):
                for event in handle.events():
                    if isinstance(event, StatusLine):
                        status.write(event.data)
                    elif isinstance(event, LogLine):
                        log.write(event.data + b"\n")
                    elif isinstance(event, Exit):
                        Path(directory, _EXIT).write_text(json.dumps(asdict(event)))
            self._storage.put_dir(Path(directory), key)

    def drop_job(self, workspace: str, job_id: str) -> None:
        """Delete what is kept of a job."""
        self._storage.delete_prefix(f"{workspace}/jobs/{job_id}")

    def job(self, workspace: str, job_id: str, lost: str) -> KeptJob:
        """A job whose machine is gone. lost: how it ended if nothing of it was kept."""
        return KeptJob(self, self._storage, workspace, job_id, lost)


class KeptJob:
    """See `tao_ray.platforms.base.JobHandle`: an ended job, read from its copy."""

    def __init__(self, kept: KeptFiles, storage: Storage, workspace: str, job_id: str, lost: str):
        self.job_id = job_id
        self._kept = kept
        self._workspace = workspace
        self._status, self._log, self._exit = b"", b"", Exit(None, detail=lost)
        with tempfile.TemporaryDirectory(prefix="tao-ray-") as directory, suppress(KeyError):
            copy = Path(directory, "job")
            storage.get_dir(f"{workspace}/jobs/{job_id}", copy)
            self._status = (copy / _STATUS).read_bytes()
            self._log = (copy / _LOG).read_bytes()
            self._exit = Exit(**json.loads((copy / _EXIT).read_text()))

    def events(self, offset: Offset = _BEGINNING, *, logs: bool = True) -> Iterator[Event]:
        for line in self._status[offset.status :].splitlines(keepends=True):
            offset = Offset(offset.status + len(line), offset.log)
            yield StatusLine(line, offset)
        for line in self._log[offset.log :].splitlines(keepends=True) if logs else ():
            offset = Offset(offset.status, offset.log + len(line))
            yield LogLine(line.removesuffix(b"\n"), offset)
        yield self._exit

    def stop(self, grace_s: float = 30.0) -> Exit:
        del grace_s
        return self._exit

    def poll(self) -> Exit | None:
        return self._exit

    def fetch(self, path: str, destination: str) -> None:
        if not self._kept.get(self._workspace, path, Path(destination)):
            raise FileNotFoundError(f"{path} of {self.job_id} was not kept")

    def put(self, source: str, path: str) -> None:
        raise MachineLostError(f"cannot put {path}: its machine is gone", where=self.job_id)

    def list(self, path: str = "") -> dict[str, int]:
        found = self._kept.files(self._workspace)
        return {name: size for name, size in found.items() if not path or is_below(name, path)}

    def remove(self, path: str) -> None:
        for name in self.list(path):
            self._kept.drop(self._workspace, name)


def is_below(name: str, path: str) -> bool:
    """Whether a path is `path` or lies below it."""
    return name == path or name.startswith(f"{path.rstrip('/')}/")
