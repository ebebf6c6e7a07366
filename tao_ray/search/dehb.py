"""`dehb`: differential evolution in one population per fidelity, over Hyperband's brackets.

The first round of brackets evaluates the random initial populations, one per fidelity. Every later
bracket starts with children: a member of its lowest fidelity's population is the target, its mutant
comes from the evaluated members (rand/1), the crossover is binomial, and the child takes the
target's seat if it is not worse. The best of a rung are promoted to the next fidelity by training
on from their checkpoints, where each takes the seat of the worst member if it is not worse.

Source: Awad et al., "DEHB: Evolutionary Hyperband for Scalable, Robust and Efficient
Hyperparameter Optimization", IJCAI 2021, with its published constants (F = 0.5, p = 0.5). The
paper fills the upper rungs of later brackets with fresh children; here checkpoints make a
promotion cheaper than a new training, so all brackets promote, as the paper's first one does. It
also evolves from the second bracket on, when nearly all that is known comes from the youngest
trainings: on functions whose first epochs mislead, such children were worse than random draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tao_ray.search.base import (
    Algorithm,
    Config,
    Exhausted,
    Proposal,
    SearchSettings,
    TrialStatus,
)
from tao_ray.search.hyperband import SynchronousHalving, describe
from tao_ray.search.options import HalvingOptions, required_epochs
from tao_ray.search.proposer import BaseProposer
from tao_ray.search.rungs import Bracket, hyperband_brackets

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

Array = NDArray[np.float64]

_ATTEMPTS = 50
_FEWEST_PARENTS = 3


class DehbOptions(HalvingOptions):
    """Knobs of DEHB."""

    mutation_factor: float = Field(
        default=0.5, gt=0, le=2, description="F, the length of a mutation."
    )
    crossover_probability: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Probability of each parameter to come from the mutant.",
    )


@dataclass
class Member:
    """A seat in a population; unevaluated members are infinitely bad."""

    vector: Array
    loss: float = math.inf


@dataclass(frozen=True)
class Child:
    """A trial as the populations see it: its bracket's rungs, and its seat in the lowest."""

    rungs: frozenset[int]
    lowest: int
    seat: int


class DehbProposer(BaseProposer):
    """Counts trials into brackets exactly as the rule does, so both agree on each one's rungs."""

    def __init__(
        self,
        space: SearchSpace,
        settings: SearchSettings,
        options: DehbOptions,
        brackets: Sequence[Bracket],
    ) -> None:
        super().__init__(space, settings)
        self.options = options
        # A fidelity's population is as large as the bracket that starts there.
        self.populations = {
            b.rungs[0].epoch: self._random_members(b.size, number)
            for number, b in enumerate(brackets)
        }
        self._schedule = [
            Child(frozenset(r.epoch for r in b.rungs), b.rungs[0].epoch, seat)
            for b in brackets
            for seat in range(b.size)
        ]
        self._children: dict[str, Child] = {}

    def _random_members(self, size: int, number: int) -> list[Member]:
        rng = np.random.default_rng([self.settings.seed, number, size])
        return [Member(rng.random(len(self.space))) for _ in range(size)]

    def _child(self, number: int) -> Child:
        return self._schedule[number % len(self._schedule)]

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        if number < len(self._schedule):
            return self.new_sample(rng)
        child = self._child(number)
        target = self.populations[child.lowest][child.seat].vector
        parents = self._parents(child.lowest)
        config = self.first_new(
            self.space.from_unit(self._cross(target, self._mutant(parents, rng), rng))
            for _ in range(_ATTEMPTS)
        )
        return self.new_sample(rng) if config is None else Proposal(config)

    def _parents(self, epoch: int) -> list[Array]:
        """Evaluated members of the fidelity; of all fidelities, then anyone, if too few."""
        everyone = [m for population in self.populations.values() for m in population]
        for pool in (self.populations[epoch], everyone):
            evaluated = [m.vector for m in pool if math.isfinite(m.loss)]
            if len(evaluated) >= _FEWEST_PARENTS:
                return evaluated
        return [m.vector for m in everyone]

    def _mutant(self, parents: list[Array], rng: np.random.Generator) -> Array:
        """rand/1; a coordinate that leaves the cube is drawn anew."""
        few = len(parents) < _FEWEST_PARENTS
        a, b, c = (parents[i] for i in rng.choice(len(parents), 3, replace=few))
        mutant = a + self.options.mutation_factor * (b - c)
        outside = (mutant < 0) | (mutant > 1)
        return np.where(outside, rng.random(len(mutant)), mutant)

    def _cross(self, target: Array, mutant: Array, rng: np.random.Generator) -> Array:
        """Binomial; at least one coordinate comes from the mutant."""
        take = rng.random(len(target)) < self.options.crossover_probability
        take[rng.integers(len(target))] = True
        return np.where(take, mutant, target)

    def started(self, trial_id: str, proposal: Proposal) -> None:
        self._children[trial_id] = self._child(len(self.history))
        super().started(trial_id, proposal)

    def tell(
        self, trial_id: str, config: Config, fidelity: int, loss: float | None, status: TrialStatus
    ) -> None:
        super().tell(trial_id, config, fidelity, loss, status)
        child = self._children[trial_id]
        if status is not TrialStatus.RUNNING or loss is None or fidelity not in child.rungs:
            return
        population = self.populations[fidelity]
        worst = max(range(len(population)), key=lambda i: population[i].loss)
        seat = child.seat if fidelity == child.lowest else worst
        if loss <= population[seat].loss:
            population[seat] = Member(np.array(self.space.unit(config)), loss)


def build(space: SearchSpace, settings: SearchSettings, options: DehbOptions) -> Algorithm:
    """DEHB."""
    max_epochs = required_epochs("dehb", settings)
    brackets = hyperband_brackets(max_epochs, options.reduction_factor, options.min_epochs)
    return Algorithm(
        "dehb",
        DehbProposer(space, settings, options, brackets),
        SynchronousHalving(brackets),
        why=f"{describe(brackets)}; differential evolution with F = {options.mutation_factor:g}, "
        f"p = {options.crossover_probability:g}",
    )
