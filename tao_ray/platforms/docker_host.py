"""Platform ``docker``: jobs as containers of this host's Docker Engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tao_ray.platforms.base import Check
from tao_ray.platforms.docker import ULIMITS, DockerEngine
from tao_ray.platforms.docker_image import Progress, Registry
from tao_ray.platforms.local import LocalPlatform
from tao_ray.platforms.local_machine import LocalMachine


class DockerPlatform(LocalPlatform):
    """See `tao_ray.platforms.base.Platform`; the keywords are those of `DockerEngine`."""

    def __init__(
        self,
        root: Path | str,
        *,
        image: str | None = None,
        registry: Registry | None = None,
        slots: int | None = None,
        env: Mapping[str, str] | None = None,
        gpus: Sequence[int | str] | None = None,
        shm_size: str = "16g",
        ulimits: Mapping[str, str] = ULIMITS,
        mounts: Mapping[str, str] | None = None,
        network: str | None = None,
        progress: Progress | None = None,
    ):
        self.root = Path(root).expanduser().resolve()
        self._machine = LocalMachine(os.environ)
        self._engine = DockerEngine(
            str(self.root),
            image=image,
            registry=registry,
            env=env,
            slots=slots,
            gpus=gpus,
            shm_size=shm_size,
            ulimits=ulimits,
            mounts=mounts,
            network=network,
            progress=progress,
        )
        # Whether a path under `data` means the same here as in the container.
        targets = {source: target.partition(":")[0] for source, target in (mounts or {}).items()}
        self.shares_files = all(source == target for source, target in targets.items())

    def preflight(self) -> list[Check]:
        return self._engine.preflight(self._machine)
