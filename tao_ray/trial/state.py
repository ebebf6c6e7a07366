"""What a run has done so far: a fold of its journal.

The driver, a resumed driver, `tao-ray status` and the report all see a run through this one fold,
so they cannot disagree.

Events (kind: fields of `data`):

======== ========================================================================================
run      what ("started" | "resumed" | "stopping" | "ended"), and facts about it
proposed config, info, start: a trial exists (the proposer has been told `started`)
job      job, segment, resume_epoch: about to be launched
launched job: it runs; adjustments: spec values that had to differ from what was asked
epoch    job, epoch, metrics, loss (None where the objective was not measured), seconds, seen;
         late: metrics of earlier epochs that became known since; guide: the loss that rungs go
         by, where it is not the objective's
decision epoch, decision ("continue" | "pause" | "stop")
job_end  job, code, signal, stopped: nothing of the job runs any more
retry    failure: an infrastructure failure; the trial goes on in a new job
resumed  a paused trial runs again
evaluating epoch, status: the training is over, with this status if the checkpoint of this epoch
         can be evaluated; late
evaluated epoch, loss, metrics: the objective, measured by an evaluate job
ended    status ("completed" | "stopped" | "failed"), failure, late
said     text: a notice to the user
evaluation name ("baseline", "final" or the trial's), and the whole record of it
         (`experiment.evaluation_records`)
deleted  paths, bytes: checkpoints that nothing needs; held, held_by_all: bytes of checkpoints
         there were before, of this trial and of all. Without a trial: job: a baseline's
kept     mode, kept, held_by_all: the checkpoints left at the run's end, and why
machine  what a rented machine does, see `tao_ray.platforms.ledger`
published uri, bytes: what is left of the run was stored there
exhausted the search will propose nothing more
======== ========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tao_ray.journal import Event
from tao_ray.platforms.ledger import Ledger
from tao_ray.search.base import Decision, TrialStatus, WeightsFrom
from tao_ray.search.tradeoff import pareto_front
from tao_ray.trial.failure import Failure

PENDING, RUNNING, PAUSED, EVALUATING = "pending", "running", "paused", "evaluating"


@dataclass(frozen=True)
class Objective:
    """What is optimised. Losses ("lower is better") are made and unmade here, nowhere else.

    at: "best" judges a trial by its best epoch, "last" by its last measured one.
    others: further (metric, direction) pairs, measured at the epoch the trial is judged by.
    """

    metric: str
    direction: str
    at: str = "best"
    others: tuple[tuple[str, str], ...] = ()

    def loss(self, value: float) -> float:
        """The value as a loss."""
        return value if self.direction == "minimize" else -value

    value = loss  # its own inverse

    def losses(self, epoch: EpochState) -> tuple[float, ...] | None:
        """The losses of all objectives at an epoch; None if one was not measured there."""
        values = [(epoch.metrics.get(m), d) for m, d in self.others]
        if epoch.loss is None or any(v is None or not math.isfinite(v) for v, _ in values):
            return None
        return (
            epoch.loss,
            *(v if d == "minimize" else -v for v, d in values if v is not None),
        )


@dataclass(frozen=True)
class Evaluation:
    """The objective is measured by an evaluate job of each trial, after its training.

    guide: the training's own metric, by which rungs decide and the checkpoint is chosen; None if
    it reports none that is known: then the last checkpoint is evaluated.
    """

    guide: Objective | None = None


@dataclass(frozen=True)
class EpochState:
    """One completed epoch. `loss` is None where the objective was not measured.

    guide: the loss of the training's own metric, where the objective comes from evaluate jobs.
    """

    epoch: int
    metrics: Mapping[str, float]
    loss: float | None
    seconds: float | None
    time: float
    job: str
    guide: float | None = None


@dataclass
class JobState:
    """One launch of a trial. `resume_epoch`: the epoch of the checkpoint it started from.

    retired: the trial has done with it (paused, or lost): it must not run on, nor be attached.
    """

    id: str
    segment: int
    resume_epoch: int
    started: float
    launched: float | None = None
    ended: float | None = None
    code: int | None = None
    retired: bool = False


@dataclass
class TrialState:
    """One trial. deleted, deleted_bytes, peak_bytes: of its checkpoints.

    Of one whose objective is measured by an evaluate job: trained: how its training ended; chosen:
    the epoch whose checkpoint is evaluated; evaluation: the record of that.
    """

    id: str
    config: Mapping[str, Any]
    info: Mapping[str, Any]
    start: WeightsFrom | None
    proposed: float
    status: str = PENDING
    epochs: dict[int, EpochState] = field(default_factory=dict)
    decided: int = 0
    jobs: list[JobState] = field(default_factory=list)
    retries: int = 0
    adjustments: list[Mapping[str, Any]] = field(default_factory=list)
    failure: Failure | None = None
    ended: float | None = None
    deleted: int = 0
    deleted_bytes: int = 0
    peak_bytes: int = 0
    trained: str = ""
    chosen: int | None = None
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    _judged: dict[str, EpochState | None] = field(default_factory=dict, repr=False, compare=False)
    """What `judged` and `guided` have found since the last change: they are asked all the time."""

    def note(self, epoch: EpochState) -> None:
        """Take in an epoch, or more of a known one."""
        self.epochs[epoch.epoch] = epoch
        self._judged.clear()

    @property
    def alive(self) -> bool:
        """Not ended."""
        return self.ended is None

    @property
    def trains(self) -> bool:
        """Its training is not over: it runs, or may go on."""
        return self.alive and self.status != EVALUATING

    @property
    def last_epoch(self) -> int:
        """The last completed epoch, counted over all its jobs (and its donor's, if it has one)."""
        return max(self.epochs, default=self.start.epoch if self.start else 0)

    def measured(self) -> list[EpochState]:
        """Epochs with a finite objective, in order."""
        found = [self.epochs[e] for e in sorted(self.epochs)]
        return [e for e in found if e.loss is not None and math.isfinite(e.loss)]

    def judged(self, at: str) -> EpochState | None:
        """The epoch this trial is judged by, or None if the objective was never measured."""
        if at not in self._judged:
            epochs = self.measured()
            found = epochs[-1:] if at == "last" else epochs
            self._judged[at] = min(found, key=lambda e: (e.loss, e.epoch), default=None)
        return self._judged[at]

    def guided(self, at: str) -> EpochState | None:
        """As `judged`, by the training's own metric where the objective is measured elsewhere."""
        key = f"guided {at}"
        if key not in self._judged:
            epochs = [e for n in sorted(self.epochs) if (e := self.epochs[n]).guide is not None]
            found = epochs[-1:] if at == "last" else epochs
            self._judged[key] = min(found, key=lambda e: (e.guide, e.epoch), default=None)
        return self._judged[key]

    @property
    def last_job(self) -> JobState | None:
        """The newest launch."""
        return self.jobs[-1] if self.jobs else None


@dataclass
class RunState:
    """A whole run. `status`: what the last `run` event said; `facts`: what it said of itself.

    deleted, deleted_bytes: checkpoints of no trial (a baseline's).
    """

    trials: dict[str, TrialState] = field(default_factory=dict)
    status: str = "new"
    facts: Mapping[str, Any] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None
    active_s: float = 0.0
    exhausted: bool = False
    notices: list[tuple[float, str]] = field(default_factory=list)
    evaluations: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    kept: Mapping[str, Any] | None = None
    peak_bytes: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    last_seq: int = 0
    last_time: float = 0.0
    _since: float | None = None

    @classmethod
    def fold(cls, events: Iterable[Event]) -> RunState:
        """The state after these events."""
        state = cls()
        for event in events:
            state.apply(event)
        return state

    def apply(self, event: Event) -> None:
        """Take in one event."""
        self.last_seq = event.seq
        if event.trial is None:
            self._apply_to_run(event)
        elif event.kind == "proposed":
            start = event.data.get("start")
            self.trials[event.trial] = TrialState(
                event.trial,
                event.data["config"],
                event.data.get("info", {}),
                WeightsFrom(**start) if start else None,
                event.time,
            )
        else:
            _apply_to_trial(self.trials[event.trial], event)
            self.peak_bytes = max(self.peak_bytes, event.data.get("held_by_all", 0))
        self.last_time = event.time

    def _apply_to_run(self, event: Event) -> None:
        if event.kind == "run":
            self.status = event.data["what"]
            if self.status in ("started", "resumed"):
                if self._since is not None:  # the driver before this one was killed
                    self.active_s += self.last_time - self._since
                self.facts = event.data
                self.started = self.started or event.time
                self._since, self.ended = event.time, None
            elif self.status == "ended" and self._since is not None:
                self.active_s += event.time - self._since
                self._since, self.ended = None, event.time
        elif event.kind == "said":
            self.notices.append((event.time, event.data["text"]))
        elif event.kind == "evaluation":
            self.evaluations[event.data["name"]] = event.data
        elif event.kind == "kept":
            self.kept = event.data
        elif event.kind == "deleted":
            self.deleted += len(event.data["paths"])
            self.deleted_bytes += event.data["bytes"]
        elif event.kind == "machine":
            self.ledger.apply(event.data, event.time)
        elif event.kind == "exhausted":
            self.exhausted = True

    @property
    def adjustments(self) -> list[dict[str, Any]]:
        """Spec values that differ from what was asked, each once, with the trials it concerns."""
        listed: dict[str, dict[str, Any]] = {}
        for trial in self.trials.values():
            for adjustment in trial.adjustments:
                entry = listed.setdefault(repr(adjustment), {**adjustment, "trials": []})
                entry["trials"].append(trial.id)
        return list(listed.values())

    def trial_cost(self, trial_id: str) -> float | None:
        """US dollars of a trial's jobs, its evaluation's too; None where nothing was rented."""
        if not self.ledger.machines:
            return None
        costs = self.ledger.workspace_costs(self.last_time)
        return costs.get(trial_id, 0.0) + costs.get(f"eval-{trial_id}", 0.0)

    def elapsed(self, now: float) -> float:
        """Seconds this run has been active, times between a crash and its resumption left out."""
        return self.active_s + (now - self._since if self._since is not None else 0.0)

    def best(self, objective: Objective) -> tuple[TrialState, EpochState] | None:
        """The best trial and its epoch: among successes, or, if there is none, among all."""
        judged = [(t, e) for t in self.trials.values() if (e := t.judged(objective.at)) is not None]
        good = [pair for pair in judged if pair[0].status != TrialStatus.FAILED.value]
        return min(good or judged, key=lambda pair: (pair[1].loss, pair[0].id), default=None)

    def pareto_front(self, objective: Objective) -> list[str]:
        """Trials, failed ones aside, that no other beats in all objectives."""
        losses = {}
        for trial in self.trials.values():
            judged = trial.judged(objective.at)
            of_all = objective.losses(judged) if judged else None
            if of_all is not None and trial.status != TrialStatus.FAILED.value:
                losses[trial.id] = of_all
        names = list(losses)
        return [names[i] for i in pareto_front([losses[name] for name in names])]


def _apply_to_trial(trial: TrialState, event: Event) -> None:
    data = event.data
    for epoch, metrics in data.get("late", {}).items():
        if known := trial.epochs.get(int(epoch)):
            trial.note(replace(known, metrics={**known.metrics, **metrics}))
    if event.kind == "job":
        trial.status = RUNNING
        trial.jobs.append(JobState(data["job"], data["segment"], data["resume_epoch"], event.time))
    elif event.kind == "launched":
        trial.jobs[-1].launched = event.time
        trial.adjustments = list(data.get("adjustments", ()))
    elif event.kind == "epoch":
        trial.note(
            EpochState(
                data["epoch"],
                data["metrics"],
                data["loss"],
                data.get("seconds"),
                event.time,
                data["job"],
                data.get("guide"),
            )
        )
    elif event.kind == "decision":
        trial.decided = data["epoch"]
        if data["decision"] == Decision.PAUSE.value:
            trial.status = PAUSED
            trial.jobs[-1].retired = True
    elif event.kind == "job_end":
        for job in trial.jobs:
            if job.id == data["job"]:
                job.ended, job.code = event.time, data.get("code")
    elif event.kind == "retry":
        trial.retries += 1
        trial.jobs[-1].retired = True
    elif event.kind == "resumed":
        trial.status = RUNNING
    elif event.kind == "evaluating":
        trial.status, trial.trained, trial.chosen = EVALUATING, data["status"], data["epoch"]
    elif event.kind == "evaluation":
        trial.evaluation = data
    elif event.kind == "evaluated":
        judged = trial.epochs[data["epoch"]]
        metrics = {**judged.metrics, **data["metrics"]}
        trial.note(replace(judged, metrics=metrics, loss=data["loss"]))
    elif event.kind == "deleted":
        trial.deleted += len(data["paths"])
        trial.deleted_bytes += data["bytes"]
        trial.peak_bytes = max(trial.peak_bytes, data["held"])
    elif event.kind == "ended":
        trial.status, trial.ended = data["status"], event.time
        if data.get("failure"):
            trial.failure = Failure.from_json(data["failure"])
