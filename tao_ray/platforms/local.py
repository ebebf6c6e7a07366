"""Platform ``local``: jobs as processes of this host."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tao_ray.platforms.base import Check, Job, JobHandle
from tao_ray.platforms.local_machine import LocalHost, LocalMachine
from tao_ray.platforms.machine import MachineShape
from tao_ray.platforms.process import ProcessEngine


class LocalPlatform:
    """See `tao_ray.platforms.base.Platform`; the keywords are those of `ProcessEngine`.

    Jobs start from the environment and the GPUs (``CUDA_VISIBLE_DEVICES``) that *this object's
    maker* has: make it in the driver and pickle it to workers, whose own environment Ray alters.
    ``PATH`` begins with this interpreter's directory, so commands installed beside it are found.
    A job's image is not used: choosing this platform is the wish to run without it.
    """

    keeps_files_between_jobs = True
    shares_files = True

    def __init__(
        self,
        root: Path | str,
        *,
        slots: int | None = None,
        env: Mapping[str, str] | None = None,
        activate: str | None = None,
        gpus: Sequence[int | str] | None = None,
    ):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if gpus is None and visible:
            gpus = [gpu.strip() for gpu in visible.split(",")]
        self.root = Path(root).expanduser().resolve()
        path = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"
        machine = LocalMachine({**os.environ, "PATH": path})
        self._machine = LocalHost(machine).create(machine.name, MachineShape())
        self._engine = ProcessEngine(
            str(self.root), env=env, activate=activate, slots=slots, gpus=gpus
        )

    @property
    def gpus(self) -> list[str]:
        """The GPUs jobs can reserve."""
        return self._engine.gpus(self._machine)

    def preflight(self) -> list[Check]:
        checks = self._engine.preflight(self._machine)
        return [replace(c, runnable=True) if c.name == "tools" else c for c in checks]

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
