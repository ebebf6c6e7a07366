"""`bayesian`: a Gaussian process with expected improvement, genuinely parallel.

The acquisition function is that of the `bayesian-optimization` package, over a process that the
other model-based algorithms share (`gaussian_process`); the space's encoding brings logarithms,
steps and one-hot categories. Trials in flight enter the model as constant liars, so N workers
get N different proposals.

Sources: Jones et al., "Efficient Global Optimization", 1998; Ginsbourger et al., "Kriging is
well-suited to parallelize optimization", 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tao_ray.search.acquire import best_points
from tao_ray.search.base import Algorithm, Exhausted, Proposal, SearchSettings
from tao_ray.search.fifo import RunToEnd
from tao_ray.search.gaussian_process import (
    Array,
    GaussianProcess,
    best_and_newest,
    tame,
)
from tao_ray.search.history import TrialRecord
from tao_ray.search.options import Options
from tao_ray.search.proposer import BaseProposer

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

_MOST_OBSERVATIONS = 200
"""Fitting is cubic in the observations; the best and the newest of them are kept."""


class BayesianOptions(Options):
    """Knobs of Bayesian optimisation."""

    initial: int | None = Field(
        default=None,
        ge=1,
        description="Trials before the model is used, the first points included "
        "(default: a fifth of the trials, at least 3 and at most 10).",
    )
    xi: float = Field(
        default=0.0,
        ge=0,
        description="Improvement looked for, in deviations of the losses; higher explores.",
    )


def initial_trials(asked: int | None, trials: int) -> int:
    """Trials that cover the space before a model is used."""
    return asked if asked is not None else min(10, max(3, trials // 5))


class GaussianProcessProposer(BaseProposer):
    """Sobol points, then what a subclass makes of the observations."""

    def __init__(self, space: SearchSpace, settings: SearchSettings, initial: int) -> None:
        super().__init__(space, settings)
        self.initial = initial
        self._sobol = space.sobol(initial, settings.seed)

    def candidates(
        self, number: int, points: Array, losses: Array, rng: np.random.Generator
    ) -> Array:
        """Encoded candidates for proposal `number`, best first: (k, d).

        points: (n, d) encoded configurations; losses: (n,), failures at the worst loss seen.
        """
        raise NotImplementedError

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        evidence = self.evidence()
        if number < self.initial or len(evidence) < 2:
            config = self.first_new(self._sobol[number - len(self.settings.points) :])
        else:
            points, losses = self._observations(evidence, rng)
            best = self.candidates(number, points, losses, rng)
            config = self.first_new(self.space.decode(u) for u in _with_neighbours(best, rng))
        return self.new_sample(rng) if config is None else Proposal(config)

    def _observations(
        self, evidence: list[TrialRecord], rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Failures count as the worst loss seen, so that the model turns away from them."""
        losses = tame(self.losses(evidence, rng))
        kept = best_and_newest(losses, _MOST_OBSERVATIONS)
        failed = self.history.failed[-_MOST_OBSERVATIONS // 5 :]
        trials = [*(evidence[i] for i in kept), *failed]
        points = np.array([self.space.encode(t.config) for t in trials])
        return points, np.concatenate([losses[kept], np.full(len(failed), losses.max())])


class ExpectedImprovementProposer(GaussianProcessProposer):
    """Expected improvement; running trials are liars at the worst loss seen."""

    def __init__(
        self, space: SearchSpace, settings: SearchSettings, options: BayesianOptions
    ) -> None:
        super().__init__(space, settings, initial_trials(options.initial, settings.trials))
        self.xi = options.xi

    def candidates(
        self, number: int, points: Array, losses: Array, rng: np.random.Generator
    ) -> Array:
        from bayes_opt.acquisition import ExpectedImprovement

        running = [self.space.encode(t.config) for t in self.history.running]
        model = GaussianProcess(self.space.dimensions).fit(
            np.array([*points, *running]),
            np.concatenate([losses, np.full(len(running), losses.max())]),
        )
        improvement = ExpectedImprovement(self.xi * model.deviation)
        improvement.y_max = -losses.min()  # the package maximises

        def score(x: Array) -> Array:
            mean, deviation = model.predict(x, return_std=True)
            return np.asarray(improvement.base_acq(-mean, deviation))

        return best_points(score, points[np.argsort(losses, kind="stable")[:5]], rng)


def _with_neighbours(points: Array, rng: np.random.Generator) -> Iterator[Array]:
    """The points, then ever wider neighbours of the first: for when all of them are known."""
    yield from points
    for scale in np.geomspace(0.01, 1.0, 60):
        yield np.clip(points[0] + rng.normal(0, scale, points[0].shape), 0, 1)


def proposer(
    space: SearchSpace, settings: SearchSettings, options: BayesianOptions | None = None
) -> BaseProposer:
    """The proposer alone, for algorithms that bring their own rule."""
    return ExpectedImprovementProposer(space, settings, options or BayesianOptions())


def build(space: SearchSpace, settings: SearchSettings, options: BayesianOptions) -> Algorithm:
    """Bayesian optimisation; every trial runs to its end."""
    first = initial_trials(options.initial, settings.trials)
    return Algorithm(
        "bayesian",
        proposer(space, settings, options),
        RunToEnd(),
        why=f"{first} trials cover the space, then a Gaussian process with expected improvement",
    )
