"""The run's figures as gauges at Ray's Prometheus endpoint.

Ray puts ``ray_`` before each name. ``docs/grafana-dashboard.json`` shows these gauges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tao_ray.search.base import TrialStatus
from tao_ray.tracking.tracker import RunInfo
from tao_ray.trial.state import EVALUATING, PAUSED, PENDING, RUNNING, RunState

if TYPE_CHECKING:
    from tao_ray.experiment.result import Result

_ENDS = (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)
STATES = (PENDING, RUNNING, PAUSED, EVALUATING, *(status.value for status in _ENDS))

GAUGES = {
    "tao_best_metric": "The objective of the best trial so far, in its own direction",
    "tao_trials": "Trials by state",
    "tao_trials_planned": "Trials the search is to make",
    "tao_epochs_trained": "Epochs that all trials have trained",
    "tao_slots": "Trials that may run at a time",
    "tao_utilisation": "Share of the slots in which a trial runs, 0 to 1",
    "tao_elapsed_seconds": "How long the run has been active",
    "tao_machines": "Rented machines that exist",
    "tao_cost_usd_per_hour": "What the rented machines cost per hour",
    "tao_cost_usd": "What the run has cost",
}
"""Name of each gauge and what it shows. All have the tag ``run``; `tao_trials` has ``state``."""


def figures(state: RunState, info: RunInfo, now: float) -> dict[str, float]:
    """The value of each gauge but `tao_trials`. The best metric is absent until there is one.

    now: seconds since the epoch.
    """
    by_state = trials_by_state(state)
    running = by_state[RUNNING] + by_state[EVALUATING]
    best = state.best(info.objective)
    shown = {
        "tao_trials_planned": info.trials,
        "tao_epochs_trained": sum(len(trial.epochs) for trial in state.trials.values()),
        "tao_slots": info.slots,
        "tao_utilisation": running / info.slots,
        "tao_elapsed_seconds": state.elapsed(now),
        "tao_machines": len(state.ledger.existing()),
        "tao_cost_usd_per_hour": state.ledger.price_per_hour(),
        "tao_cost_usd": state.ledger.cost(now),
    }
    if best is not None and best[1].loss is not None:
        shown["tao_best_metric"] = info.objective.value(best[1].loss)
    return {name: float(value) for name, value in shown.items()}


def trials_by_state(state: RunState) -> dict[str, int]:
    """How many trials are in each of `STATES`."""
    statuses = [trial.status for trial in state.trials.values()]
    return {name: statuses.count(name) for name in STATES}


class GaugeTracker:
    """Keeps the gauges at the run's figures. Needs a running Ray. Implements `tracker.Tracker`."""

    def __init__(self, info: RunInfo, now: Callable[[], float] = time.time):
        from ray.util.metrics import Gauge

        self._info = info
        self._now = now
        self._tags = {"run": info.id}
        self._gauges: Mapping[str, Any] = {
            name: Gauge(name, text, ("run", "state") if name == "tao_trials" else ("run",))
            for name, text in GAUGES.items()
        }

    def update(self, state: RunState) -> None:
        """See `Tracker`."""
        for name, value in figures(state, self._info, self._now()).items():
            self._gauges[name].set(value, tags=self._tags)
        for status, count in trials_by_state(state).items():
            self._gauges["tao_trials"].set(count, tags={**self._tags, "state": status})

    def close(self, state: RunState, result: Result | None) -> None:
        """See `Tracker`."""
        self.update(state)
