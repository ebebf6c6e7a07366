"""Platforms whose machines are rented while a run needs them: a pool, an engine, and copies.

A trial's files live on the machine its last job ran on; what must not be lost with the machine is
copied off it (`keep`), and put onto another machine before a job there needs it. So to the rest of
the project a workspace simply outlives its machines.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from tao_ray.journal import JournalWriter
from tao_ray.platforms.base import (
    Event,
    Exit,
    Job,
    JobHandle,
    LinkError,
    MachineLostError,
    Offset,
)
from tao_ray.platforms.kept import KeptFiles
from tao_ray.platforms.machine import Engine, Machine
from tao_ray.platforms.pool_host import Pool, PoolHost, PoolSpec, RecordedPool, RemotePool

_BEGINNING = Offset()


class RentedPlatform:
    """See `tao_ray.platforms.base.Platform`, and there `RentsMachines` and `KeepsCopies`.

    spec: how the pool is made. machine: the link to a machine by its name. root: the engine's
    directory on every machine. journal: the run's. A copy in another process uses the pool of the
    original; without one, jobs can be found and looked at, but not launched.
    """

    keeps_files_between_jobs = True

    def __init__(self, spec: PoolSpec, engine: Engine, root: str, kept: KeptFiles, journal: Path):
        self._spec = spec
        self._engine = engine
        self._root = root
        self._kept = kept
        self._host: PoolHost | None = None
        self._handles: dict[str, RentedJob] = {}
        self._journal = journal
        self._client: Pool = RecordedPool(journal)

    def __getstate__(self) -> dict[str, object]:
        # A pool of this very process cannot be asked from another; its journal can be read.
        client = (
            self._client if isinstance(self._client, RemotePool) else RecordedPool(self._journal)
        )
        return {**self.__dict__, "_host": None, "_handles": {}, "_client": client}

    @property
    def pool(self) -> Pool:
        """The pool, or what the journal says of it."""
        return self._client

    # -- machines -------------------------------------------------------------------------------

    def rent(self, journal: JournalWriter) -> None:
        """Take over the run's machines and begin to make what jobs ask for."""
        self._host = PoolHost(self._spec, journal)
        self._client = self._host.client

    def expect(self, jobs: int | None) -> None:
        """No more than so many jobs will ever run at a time from now on."""
        self.pool.expect(jobs)

    def vacate(self) -> None:
        """Begin to delete all machines; returns at once."""
        self.pool.close()

    def left(self) -> list[str]:
        """Machines that are not verified gone yet, after `vacate`."""
        return self.pool.left()

    def close(self) -> None:
        if self._host is not None:
            self._host.end()
            self._host = None

    # -- jobs -----------------------------------------------------------------------------------

    def workspace(self, name: str) -> str:
        return f"{self._root}/{_checked(name)}"

    def launch(self, job: Job) -> JobHandle:
        name = self.pool.lease(job.id, job.workspace, job.image)
        machine = self._machine(name)
        with self.minding(name):
            handle = self._engine.attach(machine, job.id) if job.needs else None
            if handle is None:
                for path in job.needs:
                    self._bring(machine, path)
            handle = self._engine.launch(machine, job)
        self.pool.started(job.id)
        return RentedJob(self, name, job.workspace, handle)

    def attach(self, job_id: str) -> JobHandle | None:
        place = self.pool.where(job_id)
        if place is None:
            return None
        if not place.here:
            return self._kept.job(place.workspace, job_id, f"{place.machine} is gone")
        known = self._handles.get(job_id)
        if known is not None and known.machine == place.machine:
            return known  # a handle holds nothing but what never changes
        with self.minding(place.machine):
            handle = self._engine.attach(self._machine(place.machine), job_id)
        if handle is None:
            return None
        return self._handles.setdefault(
            job_id, RentedJob(self, place.machine, place.workspace, handle)
        )

    def release(self, job_id: str) -> None:
        self._handles.pop(job_id, None)
        place = self.pool.where(job_id)
        if place is None:
            return
        if place.here:
            with self.minding(place.machine):
                self._engine.release(self._machine(place.machine), job_id)
        self._kept.drop_job(place.workspace, job_id)
        self.pool.release(job_id)

    def discard(self, workspace: str) -> None:
        _checked(workspace)
        for name in self.pool.places(workspace):
            with self.minding(name):
                self._engine.discard(self._machine(name), workspace)
        for job_id in self.pool.jobs(workspace):
            self._handles.pop(job_id, None)
            self.pool.release(job_id)
        self._kept.discard(workspace)

    # -- copies ---------------------------------------------------------------------------------

    def keep(self, job_id: str, paths: Sequence[str], *, last: bool) -> None:
        """See `tao_ray.platforms.base.KeepsCopies`."""
        place = self.pool.where(job_id)
        if place is None or not place.here:
            return
        handle = self.attach(job_id)
        if handle is None:
            return
        self._kept.keep(handle, place.workspace, paths)
        if last:
            self._kept.keep_job(handle, place.workspace)
            self.pool.settled(job_id)

    def kept(self, workspace: str) -> dict[str, str]:
        """See `tao_ray.platforms.base.KeepsCopies`."""
        files = self._kept.files(workspace)
        return {path: self._kept.location(workspace, path) for path in files}

    def drop_kept(self, workspace: str, path: str) -> None:
        """A file of a workspace is not wanted any more: neither are its copies."""
        self._kept.drop(workspace, path)

    def _bring(self, machine: Machine, path: str) -> None:
        """Have a file of some workspace on the machine. Raises MachineLostError if it is lost."""
        root = PurePosixPath(self._root)
        if root not in PurePosixPath(path).parents:
            return  # not ours: the user's own, on the machine
        if machine.run(f"test -e '{path}'").code == 0:
            return
        workspace, _, relative = path[len(self._root) + 1 :].partition("/")
        with tempfile.TemporaryDirectory(prefix="tao-ray-") as directory:
            copy = Path(directory, "file")
            if not self._kept.get(workspace, relative, copy):
                self._fetch_elsewhere(workspace, path, copy)
            machine.put(str(copy), path)

    def _fetch_elsewhere(self, workspace: str, path: str, copy: Path) -> None:
        for name in self.pool.places(workspace):
            with self.minding(name):
                try:
                    self._machine(name).get(path, str(copy))
                    return
                except FileNotFoundError:
                    continue
        raise MachineLostError(f"{path} is on no machine any more, and was not kept")

    # -- inside ---------------------------------------------------------------------------------

    def _machine(self, name: str) -> Machine:
        return self._spec.machine(name)

    @contextmanager
    def minding(self, name: str) -> Iterator[None]:
        """Tell the pool if a machine does not answer."""
        try:
            yield
        except (LinkError, MachineLostError) as error:
            self.pool.trouble(name)
            raise LinkError(error.message, where=error.where, remedy=error.remedy) from error


class RentedJob:
    """See `tao_ray.platforms.base.JobHandle`; tells the pool of the job's end."""

    def __init__(self, platform: RentedPlatform, machine: str, workspace: str, handle: JobHandle):
        self.job_id = handle.job_id
        self.machine = machine
        self._platform = platform
        self._workspace = workspace
        self._handle = handle
        self._over = False

    def events(self, offset: Offset = _BEGINNING, *, logs: bool = True) -> Iterator[Event]:
        with self._platform.minding(self.machine):
            for event in self._handle.events(offset, logs=logs):
                if isinstance(event, Exit):
                    self._ended()
                yield event

    def stop(self, grace_s: float = 30.0) -> Exit:
        with self._platform.minding(self.machine):
            ended = self._handle.stop(grace_s)
        self._ended()
        return ended

    def poll(self) -> Exit | None:
        with self._platform.minding(self.machine):
            ended = self._handle.poll()
        if ended is not None:
            self._ended()
        return ended

    def fetch(self, path: str, destination: str) -> None:
        with self._platform.minding(self.machine):
            self._handle.fetch(path, destination)

    def put(self, source: str, path: str) -> None:
        with self._platform.minding(self.machine):
            self._handle.put(source, path)

    def list(self, path: str = "") -> dict[str, int]:
        with self._platform.minding(self.machine):
            return self._handle.list(path)

    def remove(self, path: str) -> None:
        with self._platform.minding(self.machine):
            self._handle.remove(path)
        self._platform.drop_kept(self._workspace, path)

    def _ended(self) -> None:
        if not self._over:
            self._platform.pool.give_back(self.job_id)
            self._over = True


def _checked(name: str) -> str:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or any(part.startswith(".") for part in parts):
        raise ValueError(f"not a workspace's name: {name!r}")
    return name
