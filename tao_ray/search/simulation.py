"""Runs an algorithm against a function in simulated time: for tests, benchmarks and estimates.

The order of calls is the one the real conductor keeps, so what is shown here holds there.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tao_ray.search.base import (
    Algorithm,
    Config,
    Decision,
    Exhausted,
    Proposal,
    TrialStatus,
    Wait,
    WeightsFrom,
)

Objective = Callable[[Config, int], float]
"""(configuration, 1-based epoch) -> loss; a non-finite loss is a failure of the trial.
For an action without epochs the epoch given is 0."""


@dataclass
class SimulatedTrial:
    """One trial's life."""

    trial_id: str
    config: Config
    info: dict[str, Any]
    start: WeightsFrom | None = None
    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    status: TrialStatus = TrialStatus.RUNNING
    paused: bool = False
    job_starts: int = 1

    @property
    def best(self) -> float:
        """The lowest loss seen; infinity before the first."""
        return min(self.losses, default=math.inf)


@runtime_checkable
class Trainer(Protocol):
    """An objective that has to know the trial: its weights, or whose weights it starts from."""

    def train(self, trial: SimulatedTrial) -> float:
        """Train `trial` for one epoch, number ``trial.epoch``, and return its loss."""


@dataclass
class Simulation:
    """What happened. `wall` is in units of `epoch_seconds`."""

    trials: list[SimulatedTrial] = field(default_factory=list)
    epochs: int = 0
    wall: float = 0.0
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    """Every state-changing call in order, as the journal would hold them."""

    @property
    def job_starts(self) -> int:
        return sum(t.job_starts for t in self.trials)

    @property
    def best(self) -> SimulatedTrial:
        """The trial a search would return: the lowest loss reported by a trial that did not
        fail, or by any if all did."""
        sound = [t for t in self.trials if t.status is not TrialStatus.FAILED] or self.trials
        return min(sound, key=lambda t: t.best)


class Deadlock(RuntimeError):
    """The algorithm waits although nothing runs, or left a trial paused."""


def simulate(
    algorithm: Algorithm,
    objective: Objective | Trainer,
    *,
    max_epochs: int | None,
    workers: int = 1,
    epoch_seconds: Callable[[Config], float] = lambda config: 1.0,
    epoch_budget: int | None = None,
    at: str = "best",
) -> Simulation:
    """Run `algorithm` to its end, or until `epoch_budget` epochs were trained.

    at: "best" or "last", the rule that turns a trial's losses into the loss that is told.
    """
    return _Conductor(algorithm, objective, max_epochs, workers, epoch_seconds, at).run(
        math.inf if epoch_budget is None else epoch_budget
    )


def replay(algorithm: Algorithm, calls: list[tuple[str, tuple[Any, ...]]]) -> None:
    """Feed recorded calls to a fresh algorithm, as a resumed run does."""
    for name, args in calls:
        part, method = name.split(".")
        getattr(getattr(algorithm, part), method)(*args)


class _Conductor:
    def __init__(
        self,
        algorithm: Algorithm,
        objective: Objective | Trainer,
        max_epochs: int | None,
        workers: int,
        epoch_seconds: Callable[[Config], float],
        at: str,
    ) -> None:
        self.algorithm = algorithm
        self.objective = objective
        self.max_epochs = max_epochs
        self.workers = workers
        self.epoch_seconds = epoch_seconds
        self.at = at
        self.result = Simulation()
        self.by_id: dict[str, SimulatedTrial] = {}
        self.events: list[tuple[float, int, str]] = []
        self.scheduled = 0
        self.settled = False

    def run(self, budget: float) -> Simulation:
        self.fill()
        while self.events and self.result.epochs < budget:
            self.result.wall, _, trial_id = heapq.heappop(self.events)
            self.step(self.by_id[trial_id])
            self.fill()
        if self.result.epochs < budget and any(t.paused for t in self.result.trials):
            raise Deadlock("trials were left paused")
        return self.result

    def call(self, name: str, *args: Any) -> Any:
        self.result.calls.append((name, args))
        part, method = name.split(".")
        return getattr(getattr(self.algorithm, part), method)(*args)

    def fill(self) -> None:
        """Give every free slot work: losers end first, promotions come before new trials."""
        while True:
            for trial_id in self.algorithm.rule.losers():
                self.by_id[trial_id].paused = False
                self.end(self.by_id[trial_id], TrialStatus.STOPPED)
            if len(self.events) >= self.workers:
                return
            runnable = self.algorithm.rule.runnable()
            if runnable:
                trial = self.by_id[runnable[0]]
                trial.paused = False
                trial.job_starts += 1
                self.call("rule.resumed", trial.trial_id)
                self.schedule(trial)
            elif not self.start_new():
                return

    def start_new(self) -> bool:
        answer = self.algorithm.proposer.ask(len(self.events))
        if isinstance(answer, Proposal):
            self.start(answer)
            return True
        if isinstance(answer, Wait) and not self.events:
            raise Deadlock("the proposer waits although nothing runs")
        if isinstance(answer, Exhausted) and not self.settled:
            self.settled = True
            self.call("rule.exhausted")
            return True
        return False

    def start(self, proposal: Proposal) -> None:
        trial = SimulatedTrial(
            f"t{len(self.by_id):04d}", proposal.config, dict(proposal.info), proposal.start
        )
        if proposal.start is not None:
            trial.epoch = proposal.start.epoch
        self.by_id[trial.trial_id] = trial
        self.result.trials.append(trial)
        self.call("proposer.started", trial.trial_id, proposal)
        self.call("rule.add", trial.trial_id, trial.info)
        self.schedule(trial)

    def schedule(self, trial: SimulatedTrial) -> None:
        self.scheduled += 1
        when = self.result.wall + self.epoch_seconds(trial.config)
        heapq.heappush(self.events, (when, self.scheduled, trial.trial_id))

    def step(self, trial: SimulatedTrial) -> None:
        self.result.epochs += 1
        if self.max_epochs is not None:
            trial.epoch += 1
        loss = self.train(trial)
        if not math.isfinite(loss):
            trial.epoch = max(0, trial.epoch - 1)
            self.end(trial, TrialStatus.FAILED)
            return
        trial.losses.append(loss)
        if self.max_epochs is None:
            self.end(trial, TrialStatus.COMPLETED)
            return
        told = self.loss_of(trial)
        self.tell(trial, told, TrialStatus.RUNNING)
        decision = self.call("rule.report", trial.trial_id, trial.epoch, told)
        if trial.epoch == self.max_epochs:
            self.end(trial, TrialStatus.COMPLETED)
        elif decision is Decision.STOP:
            self.end(trial, TrialStatus.STOPPED)
        elif decision is Decision.PAUSE:
            trial.paused = True
        else:
            self.schedule(trial)

    def train(self, trial: SimulatedTrial) -> float:
        if isinstance(self.objective, Trainer):
            return self.objective.train(trial)
        return self.objective(trial.config, trial.epoch)

    def end(self, trial: SimulatedTrial, status: TrialStatus) -> None:
        trial.status = status
        loss = None if status is TrialStatus.FAILED else self.loss_of(trial)
        self.tell(trial, loss, status)
        self.call("rule.gone", trial.trial_id)

    def tell(self, trial: SimulatedTrial, loss: float | None, status: TrialStatus) -> None:
        self.call("proposer.tell", trial.trial_id, trial.config, trial.epoch, loss, status)

    def loss_of(self, trial: SimulatedTrial) -> float:
        return trial.best if self.at == "best" else trial.losses[-1]
