"""Platform ``ssh``: hosts that the user owns. Nothing is created or deleted there but jobs.

Files of a trial stay on one host, so a workspace is bound to a host when its first job starts. The
binding is a line of a file in the run directory, written before the host is asked for anything:
every process that has the run directory finds every job again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tao_ray.platforms.base import (
    CapacityError,
    Check,
    Job,
    JobHandle,
    LinkError,
    PlatformError,
)
from tao_ray.platforms.process import ProcessEngine
from tao_ray.platforms.ssh import SshMachine
from tao_ray.platforms.ssh_config import SshTarget

_AVOID_S = 60.0  # a host that could not be reached is not tried for a new trial that long


@dataclass(frozen=True)
class Host:
    """One host. gpus: those to use, None: all it shows. slots: jobs at a time, None: by its GPUs,
    or 1 without any. name: for records and messages, unique."""

    name: str
    target: SshTarget
    gpus: tuple[str, ...] | None = None
    slots: int | None = None


class HostsPlatform:
    """See `tao_ray.platforms.base.Platform`.

    engine: makes the engine of a host, given its slots and gpus: ``partial(ProcessEngine, root)``.
    All have the same root.
    directory: on this host (or a file system that all supervisors share), for the record of
    bindings and the pinned host keys. findings: what its maker has to add to the preflight.
    """

    keeps_files_between_jobs = True

    def __init__(
        self,
        hosts: Sequence[Host],
        engine: Callable[..., ProcessEngine],
        directory: Path | str,
        *,
        findings: Sequence[Check] = (),
    ):
        self._hosts = {host.name: host for host in hosts}
        self._directory = Path(directory).resolve()
        self._bindings = Bindings(self._directory / "hosts.jsonl")
        known = self._directory / "known_hosts"
        self._machines = {host.name: SshMachine(host.name, host.target, known) for host in hosts}
        self._engine = engine
        self._findings = tuple(findings)
        self._engines = {h.name: engine(slots=h.slots, gpus=h.gpus) for h in hosts}

    @property
    def gpus(self) -> list[str]:
        """The GPUs of the hosts that can be reached, as ``host:gpu``."""
        found: list[str] = []
        for name, machine in self._machines.items():
            with contextlib.suppress(LinkError):
                found += [f"{name}:{gpu}" for gpu in self._engines[name].gpus(machine)]
        return found

    def preflight(self) -> list[Check]:
        with ThreadPoolExecutor(len(self._hosts)) as pool:
            found = [check for checks in pool.map(self._check, self._hosts) for check in checks]
        return [*found, *self._findings]

    def workspace(self, name: str) -> str:
        first = next(iter(self._hosts))
        return self._engines[first].workspace(self._machines[first], name)

    def launch(self, job: Job) -> JobHandle:
        with self._bindings.locked():  # so that no other process is about to choose
            state = self._bindings.read()
        bound = state.host_of(job)
        for name in [] if bound else self._by_room(state):
            try:
                self._make_ready(name, job)
            except LinkError:
                with self._bindings.locked():
                    self._bindings.add(avoid=name, at=time.time())
                continue
            with self._bindings.locked():
                bound = self._bindings.read().host_of(job)
                if bound is not None:  # by another process, meanwhile
                    break
                # Another host is tried only when it is certain that nothing was started here.
                self._bindings.add(job=job.id, workspace=job.workspace, host=name)
                try:
                    return self._engines[name].launch(self._machines[name], job)
                except CapacityError:
                    self._bindings.add(job=job.id, workspace=job.workspace, host=None)
        if bound is None:
            raise CapacityError("no host has room, or none can be reached", where=f"job {job.id}")
        machine = self._machine_of(bound)
        if job.id not in state.jobs:
            with self._bindings.locked():
                self._bindings.add(job=job.id, workspace=job.workspace, host=bound)
        self._make_ready(bound, job)
        return self._engine_of(bound).launch(machine, job)

    def attach(self, job_id: str) -> JobHandle | None:
        host = self._bindings.read().jobs.get(job_id)
        return self._engine_of(host).attach(self._machine_of(host), job_id) if host else None

    def release(self, job_id: str) -> None:
        host = self._bindings.read().jobs.get(job_id)
        if host is not None:
            self._engine_of(host).release(self._machine_of(host), job_id)

    def discard(self, workspace: str) -> None:
        host = self._bindings.read().workspaces.get(workspace)
        if host is not None:
            self._engine_of(host).discard(self._machine_of(host), workspace)
            with self._bindings.locked():
                self._bindings.add(workspace=workspace, host=None)

    def close(self) -> None:
        for machine in self._machines.values():
            machine.close()

    def _by_room(self, state: Bindings.State) -> list[str]:
        """The hosts, those with the fewest trials for their size first."""
        load = dict.fromkeys(self._hosts, 0)
        for host in state.workspaces.values():
            load[host] = load.get(host, 0) + 1

        def size(host: Host) -> int:
            return host.slots or len(host.gpus or ()) or 1

        return sorted(
            self._hosts,
            key=lambda name: (
                time.time() - state.avoided.get(name, 0.0) < _AVOID_S,
                load[name] / size(self._hosts[name]),
            ),
        )

    def _make_ready(self, name: str, job: Job) -> None:
        """Reach the host and have on it what the job needs to start."""
        machine = self._machines[name]
        host = self._hosts[name]
        if host.slots is None and not self._engines[name].gpus(machine):
            self._engines[name] = self._engine(slots=1, gpus=host.gpus)
        self._engines[name].prepare(machine, job.image)

    def _machine_of(self, host: str) -> SshMachine:
        return self._machines[self._known(host)]

    def _engine_of(self, host: str) -> ProcessEngine:
        return self._engines[self._known(host)]

    def _known(self, host: str) -> str:
        if host not in self._hosts:
            raise PlatformError(
                f"jobs of this run are on host {host}, which the configuration does not list",
                where=str(self._bindings.path),
                remedy="list it again under platform.hosts until this run is over",
            )
        return host

    def _check(self, name: str) -> list[Check]:
        machine = self._machines[name]
        try:
            machine.run("true", timeout=30.0)
            checks = self._engines[name].preflight(machine)
        except PlatformError as error:
            return [Check(f"{name}: ssh", False, error.message, error.remedy or "")]
        reached = Check(f"{name}: ssh", True, machine.target.address)
        return [reached, *(replace(check, name=f"{name}: {check.name}") for check in checks)]


class Bindings:
    """A file of JSON lines: which job and which workspace are on which host. The last line that
    names one holds. Appended under a lock and flushed to disk; a torn last line is no line."""

    @dataclass(frozen=True)
    class State:
        """jobs, workspaces: id or name -> host. avoided: host -> when it could not be reached."""

        jobs: dict[str, str]
        workspaces: dict[str, str]
        avoided: dict[str, float]

        def host_of(self, job: Job) -> str | None:
            """Where the job is, or must go because its trial's files are there."""
            return self.jobs.get(job.id) or self.workspaces.get(job.workspace)

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> Bindings.State:
        state = Bindings.State({}, {}, {})
        text = self.path.read_bytes() if self.path.exists() else b""
        for line in text.split(b"\n")[:-1]:
            with contextlib.suppress(ValueError):
                self._fold(state, json.loads(line))
        return state

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """No other process adds lines meanwhile."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def add(self, **record: Any) -> None:
        """Append one line; call it within `locked`."""
        # A newline first, in case the last writer died in the middle of a line.
        line = b"\n" + json.dumps(record).encode() + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def _fold(state: Bindings.State, record: dict[str, Any]) -> None:
        if "avoid" in record:
            state.avoided[record["avoid"]] = record["at"]
            return
        for names, key in ((state.jobs, "job"), (state.workspaces, "workspace")):
            if key in record:
                if record["host"] is None:
                    names.pop(record[key], None)
                else:
                    names[record[key]] = record["host"]
