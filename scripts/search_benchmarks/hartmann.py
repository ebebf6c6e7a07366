"""Multi-fidelity Hartmann functions: a known optimum, a known price for judging too early.

The definition of mf-prior-bench 1.10 (Mallik et al., "PriorBand", NeurIPS 2023): at epoch z of R
the weights alpha of the Hartmann function are lowered by ``bias * (1 - log z / log R)`` and
half-normal noise of that share of `noise` is added; at z = R it is the plain function. "bad"
differs from "good" in more of both: at its first epochs hills and valleys change places.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from search_benchmarks import Case, Outcome, trials
from tao_ray.search import SearchSettings, build
from tao_ray.search.simulation import simulate
from tao_ray.space import Float, SearchSpace

FULL = 27

_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = {
    3: np.array([[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]]),
    6: np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    ),
}
_P = {
    3: 1e-4
    * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]),
    6: 1e-4
    * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    ),
}
OPTIMUM = {3: -3.86278, 6: -3.32237}


@dataclass(frozen=True)
class Hartmann:
    """One function; `seed` is that of its noise, which is fixed per point and epoch."""

    dimensions: int
    bias: float
    noise: float
    max_epochs: int = 27
    seed: int = 0

    @property
    def space(self) -> SearchSpace:
        return SearchSpace([Float(f"x{i}", 0.0, 1.0) for i in range(self.dimensions)])

    def __call__(self, config: Mapping[str, Any], epoch: int) -> float:
        """The loss reported at `epoch` (1..max_epochs)."""
        x = np.array([config[f"x{i}"] for i in range(self.dimensions)])
        early = 1 - np.log(epoch) / np.log(self.max_epochs)
        squares = (_A[self.dimensions] * (x - _P[self.dimensions]) ** 2).sum(axis=1)
        value = -float(((_ALPHA - self.bias * early) * np.exp(-squares)).sum())
        if early <= 0:
            return value
        packed = x.tobytes() + struct.pack("qq", epoch, self.seed)
        digest = hashlib.blake2b(packed, digest_size=8).digest()
        draw = np.random.default_rng(int.from_bytes(digest, "little")).normal()
        return value + abs(float(draw)) * self.noise * float(early)

    def true_value(self, config: Mapping[str, Any]) -> float:
        """The noise-free value at full fidelity."""
        return self(config, self.max_epochs)


PRESETS = {
    "3-D good": (3, 2.5, 2.0),
    "3-D bad": (3, 3.5, 4.0),
    "6-D good": (6, 2.5, 2.0),
    "6-D bad": (6, 3.5, 4.0),
}
"""Name -> (dimensions, bias, noise)."""

COLUMNS = {name: (name,) for name in PRESETS}


def run(case: Case) -> Outcome:
    """One search; the value is the noise-free one of what it returns, after a full training."""
    function = Hartmann(*PRESETS[case.problem], FULL, case.seed)
    settings = SearchSettings(
        trials=trials(case, FULL),
        max_epochs=FULL,
        max_concurrent=case.workers,
        seed=case.seed,
    )
    result = simulate(
        build(case.algorithm, function.space, settings, {}),
        function,
        max_epochs=FULL,
        workers=case.workers,
        epoch_budget=case.budget,
    )
    return Outcome(case, function.true_value(result.best.config), result.epochs, result.wall)
