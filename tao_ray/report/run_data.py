"""What a report is made of: one run, read from its directory."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.errors import TaoRayError
from tao_ray.journal import Event, is_being_written, read_events
from tao_ray.report.job_times import JobTime, job_times
from tao_ray.search.base import TrialStatus
from tao_ray.trial.state import EpochState, Objective, RunState, TrialState

if TYPE_CHECKING:
    from tao_ray.experiment.run_dir import RunDir

REFERENCE = "0000"
"""Trial 0 runs the network's defaults."""


@dataclass(frozen=True)
class RunData:
    """One run as it stands at `now`.

    phase: "running", "interrupted" (resumable) or "ended". outcome: how it ended, in words.
    result: the content of ``result.json`` if it describes this state of the run, else None.
    config_text: the configuration as it was recorded, without secrets.
    """

    id: str
    path: Path
    state: RunState
    events: Sequence[Event]
    phase: str
    outcome: str
    now: float
    result: Mapping[str, Any] | None
    config_text: str

    @cached_property
    def objective(self) -> Objective:
        facts = self.facts
        return Objective(facts["metric"], facts["direction"], facts["at"])

    @cached_property
    def reported(self) -> Objective:
        """What the training reports, epoch by epoch, and rungs decide by.

        It differs from the objective where an evaluate job of each trial measures that.
        """
        guide = self.facts.get("guide")
        return Objective(guide["metric"], guide["direction"]) if guide else self.objective

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the run journalled about itself when it started."""
        return self.state.facts

    @property
    def max_epochs(self) -> int:
        return int(self.facts["max_epochs"])

    @property
    def trials(self) -> list[TrialState]:
        return list(self.state.trials.values())

    @property
    def space(self) -> Sequence[Mapping[str, Any]]:
        """The searched parameters, described as in ``result.json``."""
        return self.facts.get("search_space") or (self.result or {}).get("search_space") or ()

    @cached_property
    def best(self) -> tuple[TrialState, EpochState] | None:
        return self.state.best(self.objective)

    @cached_property
    def tied(self) -> list[TrialState]:
        """Other trials, failed ones aside, with exactly the best one's value."""
        if self.best is None:
            return []
        first, value = self.best[0].id, self.value(self.best[0])
        good = [t for t in self.trials if t.status != TrialStatus.FAILED.value]
        return [t for t in good if t.id != first and self.value(t) == value]

    @property
    def reference(self) -> TrialState | None:
        """Trial 0, if its objective was measured."""
        trial = self.state.trials.get(REFERENCE)
        return trial if trial and trial.judged(self.objective.at) else None

    @cached_property
    def ranked(self) -> list[TrialState]:
        """Trials, best first; those without a value last."""
        failed = TrialStatus.FAILED.value

        def key(trial: TrialState) -> tuple[bool, bool, float, str]:
            judged = trial.judged(self.objective.at)
            loss = judged.loss if judged and judged.loss is not None else 0.0
            return (judged is None, trial.status == failed, loss, trial.id)

        return sorted(self.trials, key=key)

    def value(self, trial: TrialState) -> float | None:
        """What a trial is judged by, in the objective's own direction."""
        return self.epoch_value(trial.judged(self.objective.at))

    def epoch_value(self, epoch: EpochState | None) -> float | None:
        """One epoch's objective, in its own direction."""
        if epoch is None or epoch.loss is None:
            return None
        return self.objective.value(epoch.loss)

    def reported_value(self, epoch: EpochState | None) -> float | None:
        """One epoch's value of `reported`, in its own direction."""
        if epoch is None or not self.facts.get("guide"):
            return self.epoch_value(epoch)
        return None if epoch.guide is None else self.reported.value(epoch.guide)

    def gain(self, value: float, over: float) -> float:
        """By how much `value` is better than `over`; negative if it is worse."""
        return self.objective.loss(over) - self.objective.loss(value)

    @property
    def rented(self) -> bool:
        """Whether it had machines that cost money."""
        return bool(self.state.ledger.machines)

    @cached_property
    def jobs(self) -> list[JobTime]:
        """Every job that had a slot, in order of time."""
        return job_times(self.state, self.events, self.now)

    @property
    def elapsed(self) -> float:
        """Seconds the run was active."""
        return self.state.elapsed(self.now)

    @property
    def epochs_trained(self) -> int:
        return sum(len(t.epochs) for t in self.trials)


def read_run(run_dir: RunDir) -> RunData:
    """Read a run, at any time of its life.

    Raises:
        TaoRayError: the run has not started yet.
    """
    running = is_being_written(run_dir.journal)
    events = read_events(run_dir.journal)
    state = RunState.fold(events)
    if not state.facts:
        raise TaoRayError(
            "nothing has been tried yet", where=str(run_dir.path), remedy="wait until it has begun"
        )
    last = [e for e in events if e.kind == "run"][-1].data
    phase, outcome = "running" if running else "interrupted", ""
    if state.status == "ended":
        interrupted = last["status"] == "interrupted"
        phase, outcome = "interrupted" if interrupted else "ended", last["status"]
        if last.get("reason"):
            outcome += f": {last['reason']}"
    elif not running:
        outcome = "its driver is no more"
    return RunData(
        id=run_dir.id,
        path=run_dir.path,
        state=state,
        events=events,
        phase=phase,
        outcome=outcome,
        now=state.ended or (time.time() if phase == "running" else state.last_time),
        result=_result(run_dir.result, state),
        config_text=_text(run_dir.experiment),
    )


def _result(path: Path, state: RunState) -> Mapping[str, Any] | None:
    """The result, unless it is missing or older than the journal: the run was resumed since."""
    text = _text(path)
    if not text or state.status != "ended":
        return None
    result: dict[str, Any] = json.loads(text)
    return result if result["timing"]["ended"] == state.ended else None


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""
