"""`hyperband_es`: Hyperband that stops a job as soon as its fate is clear.

The losses of a running trial are extrapolated to its next rung. If they would, with the stated
confidence, be worse than what the rung's survivors need - or, on the way to the last epoch, than
the best full training so far - the job stops at once. See `curves` for the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tao_ray.search.base import Algorithm, Decision, SearchSettings
from tao_ray.search.hyperband import HyperbandOptions, SynchronousHalving, describe
from tao_ray.search.options import required_epochs
from tao_ray.search.rungs import hyperband_brackets
from tao_ray.search.samplers import build_sampler

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace


class HyperbandEsOptions(HyperbandOptions):
    """Knobs of Hyperband with early stopping."""

    confidence: float = Field(
        default=0.95,
        gt=0.5,
        lt=1,
        description="Probability of missing the cut at which a job stops.",
    )
    min_points: int = Field(
        default=4, ge=3, description="Reported epochs before a curve is extrapolated."
    )


class ExtrapolatingHalving(SynchronousHalving):
    """Synchronous halving that also looks ahead."""

    def __init__(self, brackets: Any, max_epochs: int, confidence: float, min_points: int) -> None:
        super().__init__(brackets)
        self.max_epochs = max_epochs
        self.confidence = confidence
        self.min_points = min_points
        self._curves: dict[str, dict[int, float]] = {}
        self._best_final = math.inf

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None:
        super().add(trial_id, info)
        self._curves[trial_id] = {}

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        curve = self._curves[trial_id]
        curve[epoch] = loss
        decision = super().report(trial_id, epoch, loss)
        if epoch == self.max_epochs:
            self._best_final = min(self._best_final, loss)
        if decision is not Decision.CONTINUE or len(curve) < self.min_points:
            return decision
        return Decision.STOP if self._hopeless(trial_id, epoch) else decision

    def _hopeless(self, trial_id: str, epoch: int) -> bool:
        from tao_ray.search.curves import probability_above

        target, cut = self.cut(trial_id)
        if target == self.max_epochs:
            cut = self._best_final
        if epoch >= target or math.isinf(cut):
            return False
        return probability_above(self._curves[trial_id], target, cut) >= self.confidence


def build(space: SearchSpace, settings: SearchSettings, options: HyperbandEsOptions) -> Algorithm:
    """Hyperband with learning-curve extrapolation."""
    max_epochs = required_epochs("hyperband_es", settings)
    brackets = hyperband_brackets(max_epochs, options.reduction_factor, options.min_epochs)
    return Algorithm(
        "hyperband_es",
        build_sampler(options.sampler, space, settings),
        ExtrapolatingHalving(brackets, max_epochs, options.confidence, options.min_points),
        why=f"{describe(brackets)}; a job stops when it misses its cut with probability "
        f"{options.confidence:g}",
    )
