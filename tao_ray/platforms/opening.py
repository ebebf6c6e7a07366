"""From the configuration's `platform` section to a platform."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tao_ray.platforms.base import Platform
from tao_ray.platforms.local import LocalPlatform

if TYPE_CHECKING:
    from tao_ray.config import PlatformConfig


def open_platform(
    config: PlatformConfig | None, root: Path, max_concurrent: int
) -> tuple[Platform, int]:
    """The platform (`local` if none was chosen) and the GPUs each trial gets there.

    root: the run's own directory for jobs, for platforms that keep them on this host.
    """
    env = dict(config.env) if config else {}
    activate = config.activate if config else None
    slots = config.slots if config else None
    platform = LocalPlatform(root, slots=slots, env=env, activate=activate)
    gpus = config.gpus_per_trial if config else None
    if gpus is None:
        gpus = 1 if platform.gpus else 0
    if gpus == 0 and slots is None:
        # Without GPUs nothing else bounds how many jobs this host is given at a time.
        platform = LocalPlatform(root, slots=max_concurrent, env=env, activate=activate)
    return platform, gpus
