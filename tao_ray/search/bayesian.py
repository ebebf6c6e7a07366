"""`bayesian`: a Gaussian process with expected improvement, genuinely parallel.

The model and acquisition are those of the `bayesian-optimization` package; the space's encoding
brings logarithms, steps and one-hot categories. Trials in flight enter the model as constant
liars, so N workers get N different proposals.

Sources: Jones et al., "Efficient Global Optimization", 1998; Ginsbourger et al., "Kriging is
well-suited to parallelize optimization", 2010.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tao_ray.search.base import Algorithm, Config, Exhausted, Proposal, SearchSettings
from tao_ray.search.fifo import RunToEnd
from tao_ray.search.history import TrialRecord
from tao_ray.search.options import Options
from tao_ray.search.proposer import BaseProposer

if TYPE_CHECKING:
    from bayes_opt.acquisition import AcquisitionFunction

    from tao_ray.space import SearchSpace

Array = np.ndarray

_MOST_OBSERVATIONS = 250
"""Fitting is cubic in the observations; the best and the newest of them are kept."""


class BayesianOptions(Options):
    """Knobs of Bayesian optimisation."""

    initial: int | None = Field(
        None,
        ge=1,
        description="Trials before the model is used, the first points included "
        "(default: a fifth of the trials, at least 3 and at most 10).",
    )
    xi: float = Field(
        0.0, ge=0, description="Improvement asked for, in standard deviations; higher explores."
    )


def initial_trials(options_initial: int | None, trials: int) -> int:
    """Trials that cover the space before a model is used."""
    return options_initial if options_initial is not None else min(10, max(3, trials // 5))


class GaussianProcessProposer(BaseProposer):
    """Sobol points, then the maximum of an acquisition function over a Gaussian process."""

    def __init__(self, space: SearchSpace, settings: SearchSettings, initial: int) -> None:
        super().__init__(space, settings)
        self.initial = initial
        self._sobol = space.sobol(max(initial, 1), settings.seed)

    def acquisition(self, number: int) -> AcquisitionFunction:
        """The acquisition function of proposal `number`."""
        raise NotImplementedError

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        evidence = self.history.past + self.history.ended
        if number < self.initial or len(evidence) < 2:
            config = self.first_new([*self._sobol[number - len(self.settings.points) :]])
            return self.new_sample(rng) if config is None else Proposal(config)
        config = self._suggest(number, evidence, rng)
        return self.new_sample(rng) if config is None else Proposal(config)

    def _suggest(
        self, number: int, evidence: list[TrialRecord], rng: np.random.Generator
    ) -> Config | None:
        """The best new configuration by the model; None if all its candidates are known."""
        from bayes_opt import TargetSpace

        from tao_ray.search.gp import regressor

        points, losses = self._observations(evidence)
        target = TargetSpace(
            None,
            {f"u{i}": (0.0, 1.0) for i in range(self.space.dimensions)},
            allow_duplicate_points=True,
        )
        for point, loss in zip(points, losses, strict=True):
            target.register(point, -loss)
        gp = regressor(self.space.dimensions)
        state = np.random.RandomState(rng.integers(2**32))
        best = self.acquisition(number).suggest(
            gp, target, n_random=2000, n_smart=3, random_state=state
        )
        config = self.space.decode(best)
        if self.is_new(config):
            return config
        return self.first_new(self.space.decode(u) for u in self._near(best, rng))

    def _observations(self, evidence: list[TrialRecord]) -> tuple[Array, Array]:
        """Encoded configurations and losses; failures count as the worst loss seen, so that the
        model turns away from them."""
        from tao_ray.search.gp import tame

        if len(evidence) > _MOST_OBSERVATIONS:
            half = _MOST_OBSERVATIONS // 2
            best = sorted(evidence[:-half], key=lambda t: t.loss)[:half]
            evidence = best + evidence[-half:]
        losses = tame(np.array([t.loss for t in evidence]))
        failed = self.history.failed[-_MOST_OBSERVATIONS // 5 :]
        points = np.array([self.space.encode(t.config) for t in [*evidence, *failed]])
        return points, np.concatenate([losses, np.full(len(failed), losses.max())])

    def _near(self, point: Array, rng: np.random.Generator) -> list[Array]:
        """Ever wider neighbours of a point whose configuration has been tried."""
        return [
            np.clip(point + rng.normal(0, scale, point.shape), 0, 1)
            for scale in np.geomspace(0.01, 1.0, 60)
        ]


class ExpectedImprovementProposer(GaussianProcessProposer):
    """Expected improvement; running trials are liars at the worst loss seen."""

    def __init__(
        self, space: SearchSpace, settings: SearchSettings, options: BayesianOptions
    ) -> None:
        super().__init__(space, settings, initial_trials(options.initial, settings.trials))
        self.xi = options.xi

    def acquisition(self, number: int) -> AcquisitionFunction:
        from bayes_opt.acquisition import ConstantLiar, ExpectedImprovement

        liar = ConstantLiar(ExpectedImprovement(self.xi), strategy="min")
        liar.dummies = [self.space.encode(t.config) for t in self.history.running]
        return liar


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
