"""Ends jobs that should have ended: the net under the trials' supervisors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tao_ray.trial.state import PAUSED, RunState, TrialState

_PATIENCE_S = 5.0
_PARALLEL = 4


class Watchdog:
    """Puts away the job of a trial that has ended or paused some time ago.

    A trial's supervisor does that at once; but it can be dead, or kept by Tune for the next trial
    with nobody to tell it that there is none.
    """

    def __init__(self, put_away: Callable[[str], None]):
        """put_away: ends the last job of the trial of that id and journals it."""
        self._put_away = put_away
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="watchdog")
        self._at_work: dict[str, Future[None]] = {}
        self._since: dict[str, float] = {}

    def look(self, state: RunState, now: float) -> None:
        """Start putting away what is overdue. Returns at once."""
        for trial in state.trials.values():
            if not _should_have_ended(trial):
                self._since.pop(trial.id, None)
            elif now - self._since.setdefault(trial.id, now) > _PATIENCE_S:
                at_work = self._at_work.get(trial.id)
                if at_work is None or at_work.done():
                    self._at_work[trial.id] = self._pool.submit(self._put_away, trial.id)

    def close(self) -> None:
        """Wait for what is at work."""
        self._pool.shutdown(wait=True)


def _should_have_ended(trial: TrialState) -> bool:
    job = trial.last_job
    return job is not None and job.ended is None and (not trial.trains or trial.status == PAUSED)
