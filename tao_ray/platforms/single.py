"""A platform that is one engine on one machine."""

from __future__ import annotations

from tao_ray.platforms.base import Check, Job, JobHandle
from tao_ray.platforms.machine import Machine
from tao_ray.platforms.process import ProcessEngine


class SingleMachine:
    """See `tao_ray.platforms.base.Platform`."""

    keeps_files_between_jobs = True

    def __init__(self, machine: Machine, engine: ProcessEngine):
        self._machine = machine
        self._engine = engine

    @property
    def gpus(self) -> list[str]:
        """The GPUs jobs can reserve."""
        return self._engine.gpus(self._machine)

    def preflight(self) -> list[Check]:
        return self._engine.preflight(self._machine)

    def workspace(self, name: str) -> str:
        return self._engine.workspace(self._machine, name)

    def launch(self, job: Job) -> JobHandle:
        return self._engine.launch(self._machine, job)

    def attach(self, job_id: str) -> JobHandle | None:
        return self._engine.attach(self._machine, job_id)

    def release(self, job_id: str) -> None:
        self._engine.release(self._machine, job_id)

    def discard(self, workspace: str) -> None:
        self._engine.discard(self._machine, workspace)

    def close(self) -> None:
        self._machine.close()
