"""How long a run may take and what it may cost, from what was measured; else it is unknown."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao_ray.experiment.evaluation import TRAIN
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import read_events
from tao_ray.platforms.base import HasPrices, Platform
from tao_ray.trial.state import RunState

_RUNS_READ = 20


@dataclass(frozen=True)
class Estimate:
    """Upper bounds: every trial trains to its end. None is unknown.

    trial_s: seconds of one full training. wall_s: of the search. usd: for the search.
    basis: where that comes from. price: US dollars per hour for all machines at once.
    """

    trial_s: float | None
    wall_s: float | None
    usd: float | None
    price: float | None
    basis: str

    @property
    def hours(self) -> float | None:
        """Of the search."""
        return None if self.wall_s is None else self.wall_s / 3600


def estimate(
    plan: Plan, platform: Platform, root: Path, baseline: Mapping[str, Any] | None = None
) -> Estimate:
    """What the search of `plan` takes at most.

    root: where earlier runs of the same network, action and platform are looked for.
    """
    trial_s, basis = _trial_seconds(plan, root, baseline or {})
    settings = plan.settings
    at_once = min(settings.max_concurrent, settings.trials)
    price = platform.price_per_hour(at_once) if isinstance(platform, HasPrices) else None
    if trial_s is None:
        return Estimate(None, None, None, price, basis)
    wall_s = trial_s * math.ceil(settings.trials / at_once)
    usd = None if price is None else price * wall_s / 3600
    return Estimate(trial_s, wall_s, usd, price, basis)


def _trial_seconds(plan: Plan, root: Path, baseline: Mapping[str, Any]) -> tuple[float | None, str]:
    if baseline.get("kind") == TRAIN and baseline.get("trained_s"):
        return float(baseline["trained_s"]), "measured by the baseline's training"
    per_epoch = []
    runs = 0
    for state in _earlier(plan, root):
        measured = [s for t in state.trials.values() if (s := _seconds_per_epoch(t)) is not None]
        runs += bool(measured)
        per_epoch += measured
    what = f"{plan.network.name} {plan.network.action.name} on {_platform(plan)}"
    if not per_epoch:
        return None, f"no run of {what} in {root} tells how long it takes; the first trial will"
    typical = statistics.median(per_epoch)
    unit = "per trial" if plan.single_shot else "per epoch"
    basis = (
        f"{typical:.3g} s {unit}, the median of {len(per_epoch)} trials in {runs} earlier run(s) "
        f"of {what}; other data or spec values may take longer"
    )
    return typical * plan.max_epochs, basis


def _earlier(plan: Plan, root: Path) -> Iterator[RunState]:
    """Earlier runs of the same kind, newest first."""
    if not root.is_dir():
        return
    runs = [run for name in root.iterdir() for run in RunDir.all(name)]
    for run in sorted(runs, key=lambda r: r.path.name, reverse=True)[:_RUNS_READ]:
        try:
            state = RunState.fold(read_events(run.journal))
        except (OSError, sqlite3.Error, LookupError):
            continue  # not readable, or of a version with other events
        facts = (state.facts.get("network"), state.facts.get("action"), state.facts.get("platform"))
        if facts == (plan.network.name, plan.network.action.name, _platform(plan)):
            yield state


def _seconds_per_epoch(trial: Any) -> float | None:
    """Job time per trained epoch, with what starting and ending takes."""
    times = [j.ended - j.launched for j in trial.jobs if j.launched and j.ended]
    return sum(times) / len(trial.epochs) if times and trial.epochs else None


def _platform(plan: Plan) -> str:
    return plan.config.platform.kind if plan.config.platform else "local"
