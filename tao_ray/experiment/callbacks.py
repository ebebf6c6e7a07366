"""Tells a notebook or script what happens in its run, as it happens."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from tao_ray.experiment.collect import trial_record
from tao_ray.trial.state import RunState, TrialState

if TYPE_CHECKING:
    from tao_ray.experiment.plan import Plan
    from tao_ray.experiment.result import Result
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.experiment.view import View

OnTrial = Callable[[dict[str, Any]], object]
OnEpoch = Callable[[str, int, Mapping[str, float]], object]
OnResult = Callable[["Result"], object]


@dataclass(frozen=True)
class Callbacks:
    """What a user wants to hear of; see `tao_ray.run`."""

    on_trial: OnTrial | None = None
    on_epoch: OnEpoch | None = None
    on_result: OnResult | None = None


class CallbackView:
    """A view that also calls back. Called in the driver's own thread.

    What an earlier driver of a resumed run has seen is not told again. An exception of a callback
    is told to the user once, with its traceback in the driver's log; the run goes on.
    """

    def __init__(self, view: View, callbacks: Callbacks, clock: Callable[[], float] = time.time):
        self._view = view
        self._callbacks = callbacks
        self._clock = clock
        self._opened = 0.0
        self._plan: Plan | None = None
        self._told: set[tuple[str, str | int]] = set()
        self._blamed: set[str] = set()

    def open(self, terminal: TextIO, plan: Plan, run_dir: RunDir) -> None:
        """See `View`."""
        self._plan, self._opened = plan, self._clock()
        self._view.open(terminal, plan, run_dir)

    def update(self, state: RunState, now: float) -> None:
        """See `View`."""
        self._view.update(state, now)
        self._tell(state)

    def say(self, text: str) -> None:
        """See `View`."""
        self._view.say(text)

    def close(self, state: RunState, result: Result | None) -> None:
        """See `View`."""
        self._tell(state)
        self._view.close(state, result)
        if result is not None:
            self._call("on_result", result)

    def _tell(self, state: RunState) -> None:
        for trial in state.trials.values():
            if self._is_news(trial.id, "proposed", trial.proposed):
                self._call("on_trial", {**self._record(trial), "status": "proposed"})
            for number, epoch in sorted(trial.epochs.items()):
                if self._is_news(trial.id, number, epoch.time):
                    self._call("on_epoch", trial.id, number, dict(epoch.metrics))
            if trial.ended is not None and self._is_news(trial.id, "ended", trial.ended):
                self._call("on_trial", self._record(trial))

    def _record(self, trial: TrialState) -> dict[str, Any]:
        assert self._plan is not None
        return trial_record(trial, self._plan.objective)

    def _is_news(self, trial_id: str, what: str | int, when: float) -> bool:
        if when < self._opened or (trial_id, what) in self._told:
            return False
        self._told.add((trial_id, what))
        return True

    def _call(self, name: str, *arguments: Any) -> None:
        callback = getattr(self._callbacks, name)
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception as error:
            if name not in self._blamed:
                self._blamed.add(name)
                traceback.print_exc()
                self._view.say(f"{name} raised {type(error).__name__}: {error}; the run goes on")
