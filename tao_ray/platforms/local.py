"""Platform ``local``: jobs as processes of this host."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tao_ray.platforms.base import Check
from tao_ray.platforms.local_machine import LocalHost, LocalMachine
from tao_ray.platforms.machine import MachineShape
from tao_ray.platforms.process import ProcessEngine
from tao_ray.platforms.single import SingleMachine


class LocalPlatform(SingleMachine):
    """See `tao_ray.platforms.base.Platform`; the keywords are those of `ProcessEngine`.

    Jobs start from the environment and the GPUs (``CUDA_VISIBLE_DEVICES``) that *this object's
    maker* has: make it in the driver and pickle it to workers, whose own environment Ray alters.
    ``PATH`` begins with this interpreter's directory, so commands installed beside it are found.
    A job's image is not used: choosing this platform is the wish to run without it.
    """

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
        super().__init__(
            LocalHost(machine).create(machine.name, MachineShape()),
            ProcessEngine(str(self.root), env=env, activate=activate, slots=slots, gpus=gpus),
        )

    def preflight(self) -> list[Check]:
        return [
            replace(check, runnable=True) if check.name == "tools" else check
            for check in super().preflight()
        ]
