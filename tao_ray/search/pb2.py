"""`pb2`: population based training that explores with a bandit instead of at random.

A Gaussian process over hyperparameters and time models how much the loss falls from one
milestone to the next; an exploit takes the hyperparameters with the best upper confidence bound
on that, given what other members are trying.

Source: Parker-Holder et al., "Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits", NeurIPS 2020. Time enters as one more input of the kernel; categories
are one-hot, so they are chosen by the model too.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tao_ray.search.acquire import best_points
from tao_ray.search.base import Algorithm, Config, Proposal, SearchSettings
from tao_ray.search.gaussian_process import Array, GaussianProcess
from tao_ray.search.pbt import PopulationOptions, describe, perturbed
from tao_ray.search.population import Exploit, Population

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

_FEWEST = 4
"""Observed intervals before the model is used."""


class Pb2Options(PopulationOptions):
    """Knobs of population based bandits."""

    kappa: float = Field(default=1.0, gt=0, description="Deviations of optimism in the bound.")


class Pb2Population(Population):
    """Explores where the model expects the loss to fall fastest."""

    def __init__(self, space: SearchSpace, settings: SearchSettings, options: Pb2Options) -> None:
        super().__init__(space, settings, **options.shape("pb2", settings))
        self.options = options
        self._inherited: dict[str, dict[int, float]] = {}
        """Trial -> the donor's loss at the milestone the trial started from."""

    def started(self, trial_id: str, proposal: Proposal) -> None:
        if proposal.start is not None:
            donor = self.history[proposal.start.trial_id]
            epoch = proposal.start.epoch
            self._inherited[trial_id] = {epoch: donor.curve[epoch]}
        super().started(trial_id, proposal)

    def explore(self, exploit: Exploit, rng: np.random.Generator) -> Config:
        inputs, changes = self._changes()
        if len(changes) < _FEWEST:
            return perturbed(self.space, exploit.donor.config, rng)
        now = self._time(exploit.milestone)
        gp = GaussianProcess(inputs.shape[1]).fit(inputs, changes)
        running = np.array([self.space.encode(t.config) for t in self.history.running])
        if len(running):
            gp.believe(np.column_stack([running, np.full(len(running), now)]))

        def score(x: Array) -> Array:
            mean, deviation = gp.predict(
                np.column_stack([x, np.full(len(x), now)]), return_std=True
            )
            return np.asarray(self.options.kappa * deviation - mean)

        donor = self.space.encode(exploit.donor.config)
        return self.space.decode(best_points(score, donor[None, :], rng)[0])

    def _changes(self) -> tuple[Array, Array]:
        """(encoded configuration and time, change of loss) per trial and interval."""
        inputs, changes = [], []
        for record in self.history:
            curve = {**self._inherited.get(record.trial_id, {}), **record.curve}
            reached = [m for m in self.milestones() if m in curve]
            for before, after in pairwise(reached):
                inputs.append([*self.space.encode(record.config), self._time(before)])
                changes.append(curve[after] - curve[before])
        return np.array(inputs), np.array(changes)

    def _time(self, epoch: int) -> float:
        return epoch / max(self.milestones())


def build(space: SearchSpace, settings: SearchSettings, options: Pb2Options) -> Algorithm:
    """Population based bandits."""
    population = Pb2Population(space, settings, options)
    return Algorithm("pb2", population, population, why=describe(population))
