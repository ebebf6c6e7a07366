"""The machines of a run, on platforms that rent them: taken over at its start, gone at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tao_ray.journal import JournalWriter
from tao_ray.platforms.base import Platform, RentsMachines
from tao_ray.trial.state import RunState

_LOOK_S = 0.2
_SAY_S = 30.0


@contextmanager
def machines(
    platform: Platform, journal: JournalWriter, say: Callable[[str], None], *, keep: bool = False
) -> Iterator[None]:
    """Machines can be had inside the block. They are verified gone after it, however it ends.

    keep: they stay if it ends well. Whoever comes next takes them over, within the time after which
    the reaper does.
    """
    if not isinstance(platform, RentsMachines):
        yield
        return
    platform.rent(journal)
    try:
        yield
    except BaseException:
        _vacate(platform, say)
        raise
    if not keep:
        _vacate(platform, say)


def _vacate(platform: RentsMachines, say: Callable[[str], None]) -> None:
    platform.vacate()
    said = 0.0
    while left := platform.left():
        if time.monotonic() - said > _SAY_S:
            said = time.monotonic()
            say(f"deleting {', '.join(left)}; if this process is killed, the reaper goes on")
        time.sleep(_LOOK_S)


class Demand:
    """Tells the platform how many jobs may still run at a time, so that it lets go of the rest."""

    def __init__(self, platform: Platform, trials: int, max_concurrent: int):
        self._platform = platform
        self._trials = trials
        self._max_concurrent = max_concurrent
        self._said: int | None = None

    def look(self, state: RunState, *, searching: bool = True) -> None:
        """Called often. searching: trials may still come or go on."""
        if not isinstance(self._platform, RentsMachines):
            return
        alive = searching * sum(trial.alive for trial in state.trials.values())
        over = state.exhausted or not searching
        coming = 0 if over else max(0, self._trials - len(state.trials))
        jobs = max(1, min(self._max_concurrent, alive + coming))  # one is for the evaluation
        if jobs != self._said:
            self._said = jobs
            self._platform.expect(jobs)
