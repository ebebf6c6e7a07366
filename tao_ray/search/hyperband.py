"""`hyperband`: synchronous successive halving over the paper's bracket table.

Source: Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization",
JMLR 2018. Brackets fill one after another, from the most exploratory (s_max) to the one that
trains everything to the end (s = 0), and then again from the first. A trial pauses at its rung;
once the rung is complete its best resume from their checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tao_ray.search.base import Algorithm, Decision, SearchSettings
from tao_ray.search.options import HalvingOptions, required_epochs
from tao_ray.search.rungs import Bracket, hyperband_brackets
from tao_ray.search.samplers import Sampler, build_sampler

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace


class HyperbandOptions(HalvingOptions):
    """Knobs of Hyperband."""

    sampler: Sampler = Field(default="random", description="Where new configurations come from.")


@dataclass
class HalvingRun:
    """One bracket being filled and halved. Rungs are judged when everyone has arrived."""

    bracket: Bracket
    closed: bool = False
    """No further trial enters: the bracket is full, or the search is exhausted."""
    entered: int = 0
    rung: int = 0
    waiting_for: set[str] = field(default_factory=set)
    """Trials on their way to the current rung."""
    arrived: dict[str, float] = field(default_factory=dict)
    """Trials paused at the current rung, with their losses."""
    runnable: list[str] = field(default_factory=list)
    losers: list[str] = field(default_factory=list)

    def add(self, trial_id: str) -> None:
        self.waiting_for.add(trial_id)
        self.entered += 1
        self.closed = self.entered == self.bracket.size

    def next_epoch(self) -> int:
        """Where the trials that run now pause."""
        return self.bracket.rungs[self.rung].epoch

    @property
    def survivors(self) -> int:
        """Trials of the current rung that go on. A bracket that stayed partly empty keeps the
        same fraction, and at least one."""
        planned = self.bracket.rungs[self.rung + 1].size
        if not self.closed or self.entered == self.bracket.size:
            return planned
        return max(1, planned * self.entered // self.bracket.size)

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        if epoch < self.next_epoch() or self.rung == len(self.bracket.rungs) - 1:
            return Decision.CONTINUE
        self.waiting_for.discard(trial_id)
        if sum(v <= loss for v in self.arrived.values()) >= self.survivors:
            self.settle()
            return Decision.STOP
        self.arrived[trial_id] = loss
        self.settle()
        return Decision.PAUSE

    def settle(self) -> None:
        """Judge the rung if it is complete: the best go on, the others are losers."""
        if not self.closed or self.waiting_for or self.runnable or not self.arrived:
            return
        ranked = sorted(self.arrived, key=self.arrived.__getitem__)
        self.runnable = ranked[: self.survivors]
        self.losers += ranked[self.survivors :]
        self.arrived = {}
        self.rung += 1

    def resumed(self, trial_id: str) -> None:
        self.runnable.remove(trial_id)
        self.waiting_for.add(trial_id)

    def gone(self, trial_id: str) -> None:
        self.waiting_for.discard(trial_id)
        self.arrived.pop(trial_id, None)
        for paused in (self.runnable, self.losers):
            if trial_id in paused:
                paused.remove(trial_id)
        self.settle()


class SynchronousHalving:
    """Deals trials to brackets in order of admission, cyclically."""

    def __init__(self, brackets: Sequence[Bracket]) -> None:
        self._brackets = brackets
        self._runs: list[HalvingRun] = []
        self._run_of: dict[str, HalvingRun] = {}

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None:
        if not self._runs or self._runs[-1].closed:
            bracket = self._brackets[len(self._runs) % len(self._brackets)]
            self._runs.append(HalvingRun(bracket))
        self._runs[-1].add(trial_id)
        self._run_of[trial_id] = self._runs[-1]

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        return self._run_of[trial_id].report(trial_id, epoch, loss)

    def runnable(self) -> list[str]:
        return [t for run in self._runs for t in run.runnable]

    def losers(self) -> list[str]:
        return [t for run in self._runs for t in run.losers]

    def resumed(self, trial_id: str) -> None:
        self._run_of[trial_id].resumed(trial_id)

    def gone(self, trial_id: str) -> None:
        self._run_of[trial_id].gone(trial_id)

    def exhausted(self) -> None:
        for run in self._runs:
            run.closed = True
            run.settle()

    def milestones(self) -> list[int]:
        return sorted({r.epoch for b in self._brackets for r in b.rungs})

    def cut(self, trial_id: str) -> tuple[int, float]:
        """The next epoch at which the trial is judged, and the loss it must stay below to go on
        there as far as is known now (infinity while nothing is, and at the last rung)."""
        run = self._run_of[trial_id]
        if run.rung == len(run.bracket.rungs) - 1:
            return run.next_epoch(), math.inf
        losses = sorted(run.arrived.values())
        full = len(losses) >= run.survivors
        return run.next_epoch(), losses[run.survivors - 1] if full else math.inf


def describe(brackets: Sequence[Bracket]) -> str:
    """The bracket table in one line."""
    rows = (" > ".join(f"{r.size}x{r.epoch}" for r in b.rungs) for b in brackets)
    return "brackets (trials x epochs) " + "; ".join(rows)


def build(space: SearchSpace, settings: SearchSettings, options: HyperbandOptions) -> Algorithm:
    """Hyperband over the sampler of `options`."""
    max_epochs = required_epochs("hyperband", settings)
    brackets = hyperband_brackets(max_epochs, options.reduction_factor, options.min_epochs)
    return Algorithm(
        "hyperband",
        build_sampler(options.sampler, space, settings),
        SynchronousHalving(brackets),
        why=describe(brackets),
    )
