"""Platform ``docker``: jobs as containers of this host's Docker Engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tao_ray.platforms.base import Check
from tao_ray.platforms.docker import DockerEngine
from tao_ray.platforms.local_machine import LocalMachine
from tao_ray.platforms.single import SingleMachine


class DockerPlatform(SingleMachine):
    """See `tao_ray.platforms.base.Platform`; `settings` are the keywords of `DockerEngine`.

    findings: what its maker has to add to the preflight. The Docker client starts from the
    environment (``DOCKER_HOST``) that this object's maker has.
    """

    def __init__(self, root: Path | str, *, findings: Sequence[Check] = (), **settings: Any):
        self.root = Path(root).expanduser().resolve()
        self._findings = tuple(findings)
        super().__init__(LocalMachine(os.environ), DockerEngine(str(self.root), **settings))

    def preflight(self) -> list[Check]:
        return [*super().preflight(), *self._findings]
