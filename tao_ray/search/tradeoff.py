"""Several objectives at once: random scalarisations, and the Pareto front.

Source: Knowles, "ParEGO: A Hybrid Algorithm With On-Line Landscape Approximation for Expensive
Multiobjective Optimization Problems", 2006. Every proposal weighs the objectives anew, so that
together the proposals spread along the front.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_RHO = 0.05


def scalarised(losses: Array, rng: np.random.Generator) -> Array:
    """One loss per trial from (n, k) losses: the augmented Tchebycheff norm under weights drawn
    from the simplex, each objective scaled to [0, 1] over the trials."""
    low, span = losses.min(axis=0), np.ptp(losses, axis=0)
    scaled = (losses - low) / np.where(span > 0, span, 1.0)
    weighted = scaled * rng.dirichlet(np.ones(losses.shape[1]))
    return np.asarray(weighted.max(axis=1) + _RHO * weighted.sum(axis=1))


def pareto_front(losses: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the rows that no other row beats: nowhere worse and somewhere better."""
    rows = np.asarray(losses, dtype=float)
    return [
        i
        for i, row in enumerate(rows)
        if not ((rows <= row).all(axis=1) & (rows < row).any(axis=1)).any()
    ]
