"""Deleting Brev machines without a run: by the reaper, and by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tao_ray.platforms.brev.provider import BrevProvider
from tao_ray.platforms.brev.spec import BrevSpec
from tao_ray.platforms.fleet import PoolSettings
from tao_ray.platforms.reaper import ReaperSpec


def cleaner(org: str | None) -> BrevProvider:
    """A provider that only finds and deletes, for whoever asks on a terminal."""
    return provider(ReaperSpec(".", "", 0.0, org), lambda data: None)


def provider(spec: ReaperSpec, tell: Callable[[Mapping[str, Any]], None]) -> BrevProvider:
    """A provider that only finds and deletes."""
    made = BrevSpec(
        run=spec.run, directory=Path(spec.directory), settings=PoolSettings(), org=spec.org
    )
    return made.provider(tell, time.sleep)
