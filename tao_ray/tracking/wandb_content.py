"""What W&B is told of a run: pure functions of the run's state."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tao_ray.search.base import TrialStatus
from tao_ray.tracking.tracker import RunInfo
from tao_ray.trial.state import EpochState, Objective, RunState, TrialState

SUMMARY = "summary"
_FACTS = ("network", "action", "algorithm", "metric", "direction", "at", "max_epochs", "version")
_STEM_LENGTH = 48
"""W&B takes ids of up to 64 characters everywhere."""


def run_id(info: RunInfo, state: RunState, name: str) -> str:
    """W&B's id of a trial's run or of `SUMMARY`: the same after a resume, and of this run only."""
    # Two directories may hold runs of one name and second; a moved directory holds the same run.
    mark = hashlib.sha256(f"{info.id} {state.started!r}".encode()).hexdigest()[:6]
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", info.id)
    return f"{stem[-_STEM_LENGTH:]}-{mark}-{name}"


def run_config(state: RunState) -> dict[str, Any]:
    """What all W&B runs of a run have in their configuration."""
    return {"tao_ray": {key: state.facts[key] for key in _FACTS if key in state.facts}}


def trial_config(state: RunState, trial: TrialState) -> dict[str, Any]:
    """The hyperparameters by their own names, as W&B's parameter panels want them."""
    shared = run_config(state)["tao_ray"]
    return {**trial.config, "tao_ray": {**shared, "trial": trial.id, **trial.info}}


def row(epoch: EpochState) -> dict[str, Any]:
    """One point of a trial's history. W&B's step is the epoch."""
    seconds = {} if epoch.seconds is None else {"epoch_seconds": epoch.seconds}
    return {"epoch": epoch.epoch, **seconds, **epoch.metrics}


def trial_summary(state: RunState, trial: TrialState, objective: Objective) -> dict[str, Any]:
    """What a trial comes to. `objective` is the value it is judged by, not that of the last epoch.

    Only what is known is there.
    """
    judged = trial.judged(objective.at)
    summary: dict[str, Any] = {"status": trial.status, "epochs_trained": len(trial.epochs)}
    if judged is not None and judged.loss is not None:
        summary |= {"objective": objective.value(judged.loss), "objective_epoch": judged.epoch}
    if trial.ended is not None:
        summary["seconds"] = trial.ended - trial.proposed
    if (cost := state.trial_cost(trial.id)) is not None:
        summary["cost_usd"] = cost
    if trial.retries:
        summary["retries"] = trial.retries
    if trial.failure is not None:
        summary |= {"failure": trial.failure.kind.value, "failure_message": trial.failure.message}
    return summary


def exit_code(trial: TrialState) -> int:
    """W&B shows a run as failed if this is not 0."""
    return int(trial.status == TrialStatus.FAILED.value)


_RESULTS = ("objective", "objective_epoch", "epochs_trained", "seconds", "cost_usd", "failure")


def trial_table(state: RunState, objective: Objective) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the table of all trials, one row each, one column per hyperparameter.

    A column holds numbers or text, never both, so that it can be an axis of parallel coordinates
    and an input of a feature importance; what is missing or not finite is None.
    """
    trials = list(state.trials.values())
    names = list(dict.fromkeys(name for trial in trials for name in trial.config))
    columns = [["trial", *(trial.id for trial in trials)]]
    columns += [["status", *(trial.status for trial in trials)]]
    columns += [[name, *_uniform([t.config.get(name) for t in trials])] for name in names]
    summaries = [trial_summary(state, trial, objective) for trial in trials]
    columns += [[name, *_uniform([s.get(name) for s in summaries])] for name in _RESULTS]
    return [column[0] for column in columns], [
        list(r) for r in zip(*(c[1:] for c in columns), strict=True)
    ]


def _uniform(values: Sequence[Any]) -> list[Any]:
    known = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return [v if v is not None and math.isfinite(v) else None for v in values]
    return [None if value is None else str(value) for value in values]


def run_summary(
    state: RunState, objective: Objective, result: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the whole run comes to. result: the content of ``result.json``, once there is one."""
    statuses = [trial.status for trial in state.trials.values()]
    summary: dict[str, Any] = {"trials_proposed": len(statuses)}
    summary |= {f"trials_{s}": statuses.count(s) for s in dict.fromkeys(statuses)}
    summary["epochs_trained"] = sum(len(trial.epochs) for trial in state.trials.values())
    best = state.best(objective)
    if best is not None:
        trial, judged = best
        assert judged.loss is not None
        summary["best"] = {
            "trial": trial.id,
            "objective": objective.value(judged.loss),
            "epoch": judged.epoch,
            "hyperparameters": dict(trial.config),
        }
    for name, record in state.evaluations.items():
        summary["final_evaluation" if name == "final" else name] = dict(record)
    if result is not None:
        summary["result"] = result["status"]
        if result["cost"] is not None:
            summary["cost"] = result["cost"]
    return summary
