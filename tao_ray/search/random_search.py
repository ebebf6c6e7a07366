"""`random`: uniform in the encoded space, or a scrambled Sobol sequence.

Source: Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from tao_ray.search.base import Algorithm, Exhausted, Proposal, SearchSettings
from tao_ray.search.fifo import RunToEnd
from tao_ray.search.options import Options
from tao_ray.search.proposer import BaseProposer

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace


class RandomOptions(Options):
    """Knobs of random search."""

    sobol: bool = Field(
        default=False, description="A scrambled Sobol sequence: covers the space evenly."
    )


class RandomProposer(BaseProposer):
    """Draws every configuration independently of all results."""

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        return self.new_sample(rng)


class SobolProposer(BaseProposer):
    """Walks along a scrambled Sobol sequence; random draws replace repeated points."""

    def __init__(self, space: SearchSpace, settings: SearchSettings) -> None:
        super().__init__(space, settings)
        self._sequence = space.sobol(settings.trials, settings.seed)

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        config = self._sequence[number - len(self.settings.points)]
        return Proposal(config) if self.is_new(config) else self.new_sample(rng)


def proposer(space: SearchSpace, settings: SearchSettings, options: RandomOptions) -> BaseProposer:
    """The proposer alone, for algorithms that bring their own rule."""
    return (SobolProposer if options.sobol else RandomProposer)(space, settings)


def build(space: SearchSpace, settings: SearchSettings, options: RandomOptions) -> Algorithm:
    """Random search; every trial runs to its end."""
    kind = "a scrambled Sobol sequence" if options.sobol else "independent uniform draws"
    return Algorithm(
        "random",
        proposer(space, settings, options),
        RunToEnd(),
        why=f"{settings.trials} trials from {kind}, each trained to its end",
    )
