"""What follows a run beside the terminal view, and how it is kept from disturbing the run."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tao_ray.trial.state import Objective, RunState

if TYPE_CHECKING:
    from tao_ray.experiment.result import Result

Say = Callable[[str], None]
"""Tells the user a line that stays."""

_EVERY_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunInfo:
    """What a tracker knows of a run besides its state.

    id: ``<name>/<time>``. directory: the run directory. slots: trials at a time.
    """

    id: str
    directory: Path
    objective: Objective
    trials: int
    slots: int


class Tracker(Protocol):
    """Shows a run's state elsewhere.

    The state is a fold of the journal and all that a tracker goes by: whatever it finds in it and
    has not shown yet, it shows, in a resumed run too. It may raise anything; it is then no longer
    called.
    """

    def update(self, state: RunState) -> None:
        """Show what is new; called about once a second."""

    def close(self, state: RunState, result: Result | None) -> None:
        """Show what is left. result: how the run ended, None if it broke."""


class Trackers:
    """Several trackers as one that never raises: one that does is dropped, and the user told."""

    def __init__(self, trackers: Sequence[tuple[str, Tracker]] = (), say: Say = print):
        """trackers: each with the name that the user knows it by."""
        self._trackers = list(trackers)
        self._say = say

    def update(self, state: RunState) -> None:
        """See `Tracker`."""
        self._each(lambda tracker: tracker.update(state))

    def close(self, state: RunState, result: Result | None) -> None:
        """See `Tracker`."""
        self._each(lambda tracker: tracker.close(state, result))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for entry in list(self._trackers):
            name, tracker = entry
            try:
                call(tracker)
            except Exception as error:
                self._trackers.remove(entry)
                _log.warning("%s failed", name, exc_info=error)
                self._say(f"{name} is off from here on: {error} (see driver.log)")


class Background:
    """Runs a tracker in a thread of its own, so that it may take its time.

    Only the newest state waits for the thread: a slow tracker sees fewer states, it does not fall
    behind.
    """

    def __init__(self, make: Callable[[Say], Tracker], say: Say, patience_s: float):
        """make: creates the tracker, in the thread; what it is given to speak with works there.

        patience_s: how long `close` waits for the tracker.
        """
        self._make = make
        self._say = say
        self._patience_s = patience_s
        self._words: deque[str] = deque()
        self._state: RunState | None = None
        self._seen = -1
        self._end: tuple[RunState, Result | None] | None = None
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="tracker", daemon=True)
        self._thread.start()

    def update(self, state: RunState) -> None:
        """Hand over the state; returns at once. Raises what the tracker raised."""
        self._speak()
        if self._state is None and state.last_seq != self._seen:
            self._seen = state.last_seq
            self._state = snapshot(state)

    def close(self, state: RunState, result: Result | None) -> None:
        """Wait until the tracker is closed. Raises TimeoutError if that takes too long."""
        self._end = snapshot(state), result
        self._ended.set()
        self._thread.join(self._patience_s)
        self._speak()
        if self._thread.is_alive():
            raise TimeoutError(f"it did not finish within {self._patience_s:.0f} s")

    def _speak(self) -> None:
        while self._words:
            self._say(self._words.popleft())
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            tracker = self._make(self._words.append)
            while not self._ended.wait(_EVERY_S):
                if self._state is not None:
                    tracker.update(self._state)
                    self._state = None
            assert self._end is not None
            tracker.close(*self._end)
        except Exception as error:
            self._error = error


def snapshot(state: RunState) -> RunState:
    """A copy that does not change with the state."""
    trials = {
        name: replace(
            trial,
            epochs=dict(trial.epochs),
            jobs=[replace(job) for job in trial.jobs],
            adjustments=list(trial.adjustments),
        )
        for name, trial in state.trials.items()
    }
    return replace(
        state,
        trials=trials,
        notices=list(state.notices),
        evaluations=dict(state.evaluations),
    )
