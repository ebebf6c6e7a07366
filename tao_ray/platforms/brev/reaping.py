"""Deleting Brev machines without a run: the reaper's process, and what a user does by hand."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.locks import try_lock
from tao_ray.platforms.brev.provider import BrevProvider
from tao_ray.platforms.brev.spec import BrevSpec
from tao_ray.platforms.fleet import PoolSettings
from tao_ray.platforms.reaper import Reaper, ReaperSpec

_log = logging.getLogger(__name__)
_HANDOVER_S = 10.0


def cleaner(org: str | None) -> BrevProvider:
    """A provider that only finds and deletes, for whoever asks on a terminal."""
    return _provider(ReaperSpec(".", "", 0.0, org), lambda data: None)


def _provider(spec: ReaperSpec, tell: Callable[[Mapping[str, Any]], None]) -> BrevProvider:
    made = BrevSpec(
        run=spec.run, directory=Path(spec.directory), settings=PoolSettings(), org=spec.org
    )
    return made.provider(tell, time.sleep)


def start_reaper(spec: ReaperSpec) -> None:
    """Start the run's reaper, unless it runs. Returns when one is watching."""
    directory = Path(spec.directory)
    with open(directory / "reaper.log", "ab") as log:
        started = subprocess.run(
            [sys.executable, "-m", "tao_ray.platforms.brev.reaping", json.dumps(asdict(spec))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            timeout=60,
            check=False,
        )
    if started.returncode:
        raise TaoRayError(
            "the reaper, which deletes machines if this process dies, could not be started",
            where=str(directory / "reaper.log"),
            remedy="see that file; no machine was made",
        )


def main() -> None:
    """Leave the caller's session and watch. The caller goes on once this process has."""
    spec = ReaperSpec(**json.loads(sys.argv[1]))
    if os.fork():
        os._exit(0)
    os.setsid()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr, force=True
    )
    with ExitStack() as lock:
        # Become this run's only reaper.
        file = lock.enter_context(open(Path(spec.directory, "reaper.lock"), "a"))
        if not try_lock(file, _HANDOVER_S):
            return
        _log.info("watching %s", spec.run)
        Reaper(spec, lambda tell: _provider(spec, tell), over=lock.close).run()
        _log.info("nothing is left")


if __name__ == "__main__":
    main()
