"""A proposer that learns from unfinished trainings: expected improvement of the final loss.

Every trial contributes losses along its curve, stopped or running ones too; the process of
`gaussian_process` predicts from them the loss after a full training. Trials in flight are
believed to end as predicted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from tao_ray.search.acquire import best_points
from tao_ray.search.base import Exhausted, Proposal, SearchSettings, TrialStatus
from tao_ray.search.gaussian_process import (
    Array,
    GaussianProcess,
    best_and_newest,
    decay,
    tame,
)
from tao_ray.search.history import TrialRecord
from tao_ray.search.proposer import BaseProposer

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

_MOST_TRIALS = 70
_MOST_FAILURES = 20


class CurveModelProposer(BaseProposer):
    """Sobol points, then expected improvement under the learning-curve process."""

    def __init__(
        self,
        space: SearchSpace,
        settings: SearchSettings,
        *,
        max_epochs: int,
        initial: int,
        rungs: Sequence[int],
        between: Sequence[int],
    ) -> None:
        super().__init__(space, settings)
        self.max_epochs = max_epochs
        self.initial = initial
        self.rungs = rungs
        """Where curves are read, besides their ends."""
        self.between = between
        """Where they are read as well until a training has come to its end."""
        self._sobol = space.sobol(initial, settings.seed)

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        if number < self.initial:
            config = self.first_new(self._sobol[number - len(self.settings.points) :])
            return self.new_sample(rng) if config is None else Proposal(config)
        observed = [
            t
            for t in [*self.history.past, *self.history]
            if t.curve and t.status is not TrialStatus.FAILED
        ]
        if len(observed) < 2:
            return self.new_sample(rng)
        points = self._candidates(observed, rng)
        config = self.first_new(self.space.decode(u) for u in points)
        return self.new_sample(rng) if config is None else Proposal(config)

    def model(self, observed: Sequence[TrialRecord]) -> GaussianProcess:
        """The process fitted to the curves of `observed`, and to failures as full trainings that
        ended with the worst loss seen."""
        losses = np.array([t.loss for t in observed])
        kept = [observed[i] for i in best_and_newest(losses, _MOST_TRIALS)]
        early = all(t.fidelity < self.max_epochs for t in kept)
        rows = [(t.config, e, t.curve[e]) for t in kept for e in self._readings(t, early)]
        worst = max(loss for *_, loss in rows)
        failed = self.history.failed[-_MOST_FAILURES:]
        rows += [(t.config, self.max_epochs, worst) for t in failed]
        points = np.array([self.space.encode(config) for config, *_ in rows])
        weights = decay(np.array([float(epoch) for _, epoch, _ in rows]), self.max_epochs)
        values = tame(np.array([loss for *_, loss in rows]))
        return GaussianProcess(self.space.dimensions).fit(points, values, weights)

    def _readings(self, trial: TrialRecord, early: bool) -> list[int]:
        """The epochs of a trial's curve that are used: the first at or after each reading, and its
        end. `early`: no training has ended, so where curves are heading shows in their shape
        alone; later it is known from whole trainings, and the shape only misleads."""
        seen = sorted(trial.curve)
        wanted = {*self.rungs, *(self.between if early else ())}
        places = {bisect_left(seen, epoch) for epoch in wanted} - {len(seen)}
        return [seen[i] for i in sorted(places | {len(seen) - 1})]

    def _candidates(self, observed: Sequence[TrialRecord], rng: np.random.Generator) -> Array:
        model = self.model(observed)
        running = np.array([self.space.encode(t.config) for t in self.history.running])
        model.believe(running)
        tried = np.array([self.space.encode(t.config) for t in observed])
        expected = model.predict(tried)
        best = expected.min()

        def improvement(x: Array) -> Array:
            mean, deviation = model.predict(x, return_std=True)
            z = (best - mean) / deviation
            density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
            return np.asarray(deviation * (z * ndtr(z) + density))

        return best_points(improvement, tried[np.argsort(expected, kind="stable")[:5]], rng)
