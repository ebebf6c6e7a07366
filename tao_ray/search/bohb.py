"""`bohb`: Hyperband's brackets with configurations from a kernel density model per fidelity.

The model of the largest fidelity that has enough results is used: the best 15 % of its
configurations against the rest. A third of the proposals stay random. Fidelities below
max_epochs / reduction_factor are not modelled unless asked for: in docs/benchmarks.md the paper's
choice to start with the lowest cost more than it gained.

Source: Falkner et al., "BOHB: Robust and Efficient Hyperparameter Optimization at Scale", ICML
2018, with its published constants but the width of the draws: 5 instead of 3. The random share are
Sobol points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tao_ray.search.base import Algorithm, Config, Exhausted, Proposal, SearchSettings, TrialStatus
from tao_ray.search.history import TrialRecord
from tao_ray.search.hyperband import SynchronousHalving, describe
from tao_ray.search.options import HalvingOptions, required_epochs
from tao_ray.search.random_search import SobolProposer
from tao_ray.search.rungs import hyperband_brackets

if TYPE_CHECKING:
    from tao_ray.search.kde import MixedDensity
    from tao_ray.space import SearchSpace


class BohbOptions(HalvingOptions):
    """Knobs of BOHB."""

    random_fraction: float = Field(
        default=1 / 3, ge=0, le=1, description="Share of random proposals."
    )
    top_fraction: float = Field(
        default=0.15, gt=0, lt=1, description="Share of results that are good."
    )
    min_points: int | None = Field(
        default=None, ge=2, description="Good points a model needs (default: parameters + 1)."
    )
    min_model_epochs: int | None = Field(
        default=None,
        ge=1,
        description="Lowest fidelity that is modelled (default: max_epochs / reduction_factor; "
        "1 is the paper's). Younger trainings often rank configurations wrongly.",
    )
    candidates: int = Field(
        default=64, ge=1, description="Draws from the good density per proposal."
    )
    bandwidth_factor: float = Field(
        default=5.0,
        gt=0,
        description="Widens the bandwidths of the draws (3 is the paper's).",
    )
    min_bandwidth: float = Field(default=1e-3, gt=0, description="Keeps a collapsed model diverse.")


class DensityProposer(SobolProposer):
    """Proposes where good configurations are dense and bad ones are not; its random share are
    Sobol points."""

    def __init__(
        self,
        space: SearchSpace,
        settings: SearchSettings,
        options: BohbOptions,
        fidelities: Sequence[int],
    ) -> None:
        super().__init__(space, settings)
        self.options = options
        self.fidelities = sorted(fidelities, reverse=True)
        self.lowest = options.min_model_epochs or max(fidelities) // options.reduction_factor
        self.min_points = options.min_points or len(space) + 1

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        results = self._modelled()
        # Without a model this is Hyperband over Sobol points: the same seed, the same trials.
        if results is None or rng.random() < self.options.random_fraction:
            return super().propose(number, rng)
        config = self._from_model(results, rng)
        return self.new_sample(rng) if config is None else Proposal(config)

    def _modelled(self) -> list[tuple[float, Config]] | None:
        """The results at the largest fidelity that has enough of them; None if none has."""
        for fidelity in (f for f in self.fidelities if f >= self.lowest):
            results = self._results(fidelity)
            if len(results) >= self.min_points + 2:
                return results
        return None

    def _results(self, fidelity: int) -> list[tuple[float, Config]]:
        """(loss, configuration) of every trial that was judged at `fidelity`, best first. A
        failure on the way there counts as infinitely bad."""
        results = [
            (loss, record.config)
            for record in [*self.history.past, *self.history]
            if (loss := self._loss_at(record, fidelity)) is not None
        ]
        return sorted(results, key=lambda result: result[0])

    def _loss_at(self, record: TrialRecord, fidelity: int) -> float | None:
        """The loss at the first report from `fidelity` on, below the next fidelity."""
        above = min((f for f in self.fidelities if f > fidelity), default=math.inf)
        reached = [e for e in record.curve if fidelity <= e < above]
        if reached:
            return record.curve[min(reached)]
        below = max((f for f in self.fidelities if f < fidelity), default=0)
        failed_here = record.status is TrialStatus.FAILED and (
            below <= max(record.curve, default=0) < fidelity
        )
        return math.inf if failed_here else None

    def _from_model(
        self, results: list[tuple[float, Config]], rng: np.random.Generator
    ) -> Config | None:
        from tao_ray.search.kde import as_point, from_point

        points = np.array([as_point(self.space, config) for _, config in results])
        n_good = max(self.min_points, int(self.options.top_fraction * len(points)))
        n_bad = max(self.min_points, len(points) - n_good)
        good, bad = self._density(points[:n_good]), self._density(points[-n_bad:])
        draws = good.sample(self.options.candidates, self.options.bandwidth_factor, rng)
        ratio = good.log_density(draws) - bad.log_density(draws)
        ranked = draws[np.argsort(-ratio, kind="stable")]
        return self.first_new(from_point(self.space, point) for point in ranked)

    def _density(self, points: np.ndarray) -> MixedDensity:
        from tao_ray.search.kde import MixedDensity

        return MixedDensity(self.space, points, self.options.min_bandwidth)


def build(space: SearchSpace, settings: SearchSettings, options: BohbOptions) -> Algorithm:
    """BOHB."""
    max_epochs = required_epochs("bohb", settings)
    brackets = hyperband_brackets(max_epochs, options.reduction_factor, options.min_epochs)
    rule = SynchronousHalving(brackets)
    return Algorithm(
        "bohb",
        DensityProposer(space, settings, options, rule.milestones()),
        rule,
        why=f"{describe(brackets)}; configurations from a kernel density model",
    )
