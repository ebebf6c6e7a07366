"""Population based training: a member is a chain of trials, an exploit starts the next one.

Members are compared at milestones, every `interval` epochs. The place of a member that was among
the worst at a milestone is taken by a new trial that starts from the weights a good member had
there, with explored hyperparameters, and trains the remaining epochs. A population costs one job
start per member and one per exploit.

With a slot for every member nobody waits: a member trains on past a milestone and is compared at
its next report after the last one has come; a loser then has trained an epoch or so in vain.
With fewer slots members pause at a milestone until all have reached it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tao_ray.search.base import (
    Config,
    Decision,
    Exhausted,
    Proposal,
    SearchSettings,
    TrialStatus,
    Wait,
    WeightsFrom,
)
from tao_ray.search.proposer import BaseProposer

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace


@dataclass(frozen=True)
class Score:
    """A member's loss at a milestone, and the trial whose weights go with it."""

    member: int
    trial_id: str
    config: Config
    loss: float


@dataclass(frozen=True)
class Exploit:
    """A member's next trial, not started yet."""

    member: int
    donor: Score
    milestone: int


@dataclass
class _Paused:
    """Trials held at a milestone until every member is there."""

    waiting: dict[str, int] = field(default_factory=dict)
    runnable: list[str] = field(default_factory=list)
    losers: list[str] = field(default_factory=list)

    def forget(self, trial_id: str) -> None:
        self.waiting.pop(trial_id, None)
        for names in (self.runnable, self.losers):
            if trial_id in names:
                names.remove(trial_id)


class Population(BaseProposer):
    """Proposer and scheduling rule in one, since an exploit is a decision of both.

    Subclasses say how to explore. `info` of a proposal: ``member``, and for an exploit
    ``exploits`` (the donor's trial) and ``at_epoch``.
    """

    def __init__(
        self,
        space: SearchSpace,
        settings: SearchSettings,
        *,
        size: int,
        interval: int,
        max_epochs: int,
        quantile: float,
    ) -> None:
        super().__init__(space, settings)
        self.size = size
        self.max_epochs = max_epochs
        self.quantile = quantile
        self.synchronous = settings.max_concurrent < size
        self.scores: dict[int, dict[int, Score]] = {
            m: {} for m in range(interval, max_epochs, interval)
        }
        self._member_of: dict[str, int] = {}
        self._alive: set[int] = set(range(size))
        """Members that run, wait, or have an exploit pending."""
        self._unjudged: dict[int, list[int]] = {}
        """Member -> milestones its trial has reached and was not compared at yet, ascending."""
        self._exploits: list[Exploit] = []
        self._replaced: set[tuple[int, int]] = set()
        self._paused = _Paused()
        self._sobol = space.sobol(size, settings.seed)

    def explore(self, exploit: Exploit, rng: np.random.Generator) -> Config:
        """Hyperparameters for the trial that starts from the donor's weights; valid ones."""
        raise NotImplementedError

    # -- the proposer ---------------------------------------------------------------------------

    def _answer(self) -> Proposal | Wait | Exhausted:
        number = len(self.history)
        rng = np.random.default_rng([self.settings.seed, number])
        if self._exploits:
            return self._exploit(self._exploits[0], rng)
        member = len(set(self._member_of.values()))
        if member < self.size:
            return self._founder(member, rng)
        return Wait() if self._alive else Exhausted()

    def _founder(self, member: int, rng: np.random.Generator) -> Proposal:
        points = self.settings.points
        if member < len(points):
            return Proposal(points[member], {"member": member})
        config = self.first_new(self._sobol[member - len(points) :]) or self.space.sample(rng)
        return Proposal(config, {"member": member})

    def _exploit(self, exploit: Exploit, rng: np.random.Generator) -> Proposal:
        donor = exploit.donor
        return Proposal(
            self.explore(exploit, rng),
            {
                "member": exploit.member,
                "exploits": donor.trial_id,
                "at_epoch": exploit.milestone,
            },
            WeightsFrom(donor.trial_id, exploit.milestone),
        )

    def started(self, trial_id: str, proposal: Proposal) -> None:
        super().started(trial_id, proposal)
        if proposal.start is not None:
            self._exploits.pop(0)
        self._member_of[trial_id] = proposal.info["member"]
        self._unjudged[proposal.info["member"]] = []

    def tell(
        self, trial_id: str, config: Config, fidelity: int, loss: float | None, status: TrialStatus
    ) -> None:
        super().tell(trial_id, config, fidelity, loss, status)
        member = self._member_of[trial_id]
        if status is TrialStatus.FAILED:
            self._replace(member, fidelity)
        if status is not TrialStatus.RUNNING and all(e.member != member for e in self._exploits):
            self._alive.discard(member)

    def _replace(self, member: int, fidelity: int) -> None:
        """A failed member continues from a good one's weights, once per milestone."""
        oldest = self._oldest()
        for milestone in sorted(self.scores, reverse=True):
            donors = [s for s in self._ranked(milestone) if s.member != member]
            new = (member, milestone) not in self._replaced
            if oldest <= milestone <= fidelity and donors and new:
                self._replaced.add((member, milestone))
                self._exploits.append(Exploit(member, donors[0], milestone))
                return

    # -- the rule -------------------------------------------------------------------------------

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None: ...

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        member = self._member_of[trial_id]
        if epoch in self.scores:
            config = self.history[trial_id].config
            self.scores[epoch][member] = Score(member, trial_id, config, loss)
            self._unjudged[member].append(epoch)
        reached = self._unjudged[member]
        if not reached or epoch == self.max_epochs:
            return Decision.CONTINUE  # a member that has reached the end is compared no more
        if self.synchronous:
            return self._wait(trial_id, epoch)
        complete = [m for m in reached if self._alive <= self.scores[m].keys()]
        if not complete:
            return Decision.CONTINUE
        self._unjudged[member] = [m for m in reached if m > complete[-1]]
        return self._judge(trial_id, complete[-1])

    def _wait(self, trial_id: str, epoch: int) -> Decision:
        """Pause at a milestone; the last to arrive is judged at once and need not stop to go
        on."""
        self._paused.waiting[trial_id] = epoch
        if not self._settle():
            return Decision.PAUSE
        stops = trial_id in self._paused.losers
        self._paused.forget(trial_id)
        return Decision.STOP if stops else Decision.CONTINUE

    def _judge(self, trial_id: str, milestone: int) -> Decision:
        """Whether the trial goes on; otherwise its member's exploit is queued."""
        ranked = self._ranked(milestone)
        cut = min(max(1, int(self.quantile * len(ranked))), len(ranked) // 2)
        member = self._member_of[trial_id]
        if member not in [s.member for s in ranked[len(ranked) - cut :]]:
            return Decision.CONTINUE
        rng = np.random.default_rng([self.settings.seed, milestone, member])
        self._exploits.append(Exploit(member, ranked[int(rng.integers(cut))], milestone))
        self._answers.clear()
        return Decision.STOP

    def _settle(self) -> bool:
        """Judge everyone at a milestone once all living members wait there."""
        if len(self._paused.waiting) < len(self._alive):
            return False
        for trial_id, milestone in self._paused.waiting.items():
            self._unjudged[self._member_of[trial_id]] = []
            stops = self._judge(trial_id, milestone) is Decision.STOP
            (self._paused.losers if stops else self._paused.runnable).append(trial_id)
        self._paused.waiting = {}
        return True

    def _ranked(self, milestone: int) -> list[Score]:
        """Scores, best first; a trial that failed later is neither donor nor measure."""
        sound = (
            s
            for s in self.scores[milestone].values()
            if self.history[s.trial_id].status is not TrialStatus.FAILED
        )
        return sorted(sound, key=lambda s: s.loss)

    def runnable(self) -> list[str]:
        return list(self._paused.runnable)

    def losers(self) -> list[str]:
        return list(self._paused.losers)

    def resumed(self, trial_id: str) -> None:
        self._paused.forget(trial_id)

    def gone(self, trial_id: str) -> None:
        self._paused.forget(trial_id)
        if self._paused.waiting:
            self._settle()

    def exhausted(self) -> None: ...

    def milestones(self) -> list[int]:
        return list(self.scores)

    def _oldest(self) -> int:
        """The milestone the slowest living member has reached: weights before it are gone."""
        passed = [
            max((m for m in self.scores if member in self.scores[m]), default=0)
            for member in self._alive
        ]
        return min(passed, default=0)

    def donors(self) -> list[WeightsFrom]:
        """Checkpoints that an exploit may still start from: they must not be deleted."""
        oldest = self._oldest()
        pending = [WeightsFrom(e.donor.trial_id, e.milestone) for e in self._exploits]
        kept = [
            WeightsFrom(s.trial_id, m)
            for m in self.scores
            if m >= oldest and self._alive
            for s in self._ranked(m)
        ]
        return list(dict.fromkeys([*pending, *kept]))
