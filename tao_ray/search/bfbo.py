"""`bfbo`: batches by GP-UCB with a decaying kappa and local penalisation of running points.

Each proposal minimises a lower confidence bound of the loss, ``mean - kappa * deviation``; kappa
falls geometrically over the search, from exploring to exploiting. A trial in flight does not
enter the model; instead it repels: the bound is discounted by the probability that the optimum
does not lie in the ball around it that its expected loss and the slope of the model rule out.

Sources: Srinivas et al., "Gaussian Process Optimization in the Bandit Setting", ICML 2010;
Gonzalez et al., "Batch Bayesian Optimization via Local Penalization", AISTATS 2016.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from tao_ray.search.acquire import best_points
from tao_ray.search.base import Algorithm, SearchSettings
from tao_ray.search.bayesian import GaussianProcessProposer, initial_trials
from tao_ray.search.fifo import RunToEnd
from tao_ray.search.gaussian_process import Array, GaussianProcess
from tao_ray.search.options import Options

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace


class BfboOptions(Options):
    """Knobs of batch GP-UCB."""

    initial: int | None = Field(
        default=None,
        ge=1,
        description="Trials before the model is used, the first points included "
        "(default: a fifth of the trials, at least 3 and at most 10).",
    )
    kappa: float = Field(default=2.0, gt=0, description="Deviations of optimism at the start.")
    final_kappa: float = Field(default=0.3, gt=0, description="Deviations of optimism at the end.")


class PenalisedUcbProposer(GaussianProcessProposer):
    """GP-UCB whose running points repel."""

    def __init__(self, space: SearchSpace, settings: SearchSettings, options: BfboOptions) -> None:
        super().__init__(space, settings, initial_trials(options.initial, settings.trials))
        self.options = options

    def kappa(self, number: int) -> float:
        """Geometric from `kappa` to `final_kappa` between the first and the last proposal."""
        span = max(1, self.settings.trials - 1 - self.initial)
        progress = min(1.0, (number - self.initial) / span)
        start, end = self.options.kappa, self.options.final_kappa
        return float(start * (end / start) ** progress)

    def candidates(
        self, number: int, points: Array, losses: Array, rng: np.random.Generator
    ) -> Array:
        gp = GaussianProcess(self.space.dimensions).fit(points, losses)
        kappa = self.kappa(number)
        running = np.array([self.space.encode(t.config) for t in self.history.running])
        penalty = _penalty(gp, running, losses.min(), rng) if len(running) else None

        def score(x: Array) -> Array:
            mean, deviation = gp.predict(x, return_std=True)
            gain = (losses.mean() - mean + kappa * deviation) / gp.deviation
            positive = np.logaddexp(0.0, gain)  # the penalty scales, so the score must not be < 0
            return np.asarray(positive if penalty is None else positive * penalty(x))

        best = points[np.argsort(losses, kind="stable")[:5]]
        return best_points(score, best, rng)


def _penalty(
    gp: GaussianProcess, running: Array, lowest: float, rng: np.random.Generator
) -> Callable[[Array], Array]:
    """The probability that each point lies outside all balls around running points."""
    slope = _steepest(gp, rng)
    mean, deviation = gp.predict(running, return_std=True)

    def penalty(x: Array) -> Array:
        distance = np.linalg.norm(x[:, None, :] - running[None, :, :], axis=-1)
        outside = ndtr((slope * distance - (mean - lowest)) / (np.sqrt(2) * deviation))
        return np.asarray(np.prod(np.maximum(outside, 1e-12), axis=1))

    return penalty


def _steepest(gp: GaussianProcess, rng: np.random.Generator) -> float:
    """The largest slope of the mean over random points: the Lipschitz constant's estimate."""
    x = rng.random((500, gp.dimensions))
    step = 1e-3
    here = gp.predict(x)
    slopes = [(gp.predict(x + step * unit) - here) / step for unit in np.eye(gp.dimensions)]
    return float(max(np.linalg.norm(slopes, axis=0).max(), 1e-6))


def build(space: SearchSpace, settings: SearchSettings, options: BfboOptions) -> Algorithm:
    """Batch GP-UCB; every trial runs to its end."""
    proposer = PenalisedUcbProposer(space, settings, options)
    return Algorithm(
        "bfbo",
        proposer,
        RunToEnd(),
        why=f"{proposer.initial} trials cover the space, then GP-UCB with kappa falling from "
        f"{options.kappa:g} to {options.final_kappa:g}; running trials repel",
    )
