"""Maximising an acquisition function over the unit cube without gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_UNIFORM = 1500
_LOCAL = 500
_KEPT = 10
_STEPS = (0.05, 0.02, 0.005)


def best_points(score: Callable[[Array], Array], anchors: Array, rng: np.random.Generator) -> Array:
    """Points of high score, best first, (10, d).

    Starts from uniform points and from neighbours of `anchors` (good configurations, (k, d));
    in many dimensions uniform points never come near those. Neighbours differ in a random
    subset of coordinates. The best are then refined with ever smaller steps.
    """
    dimensions = anchors.shape[1]
    centers = anchors[rng.integers(len(anchors), size=_LOCAL)]
    moved = rng.random(centers.shape) < max(0.3, 2 / dimensions)
    near = np.clip(centers + moved * rng.normal(0, 0.1, centers.shape), 0, 1)
    points = np.vstack([rng.random((_UNIFORM, dimensions)), near])
    for step in _STEPS:
        top = points[np.argsort(-score(points), kind="stable")[:_KEPT]]
        around = np.repeat(top, 20, axis=0)
        around = np.clip(around + rng.normal(0, step, around.shape), 0, 1)
        points = np.vstack([top, around])
    return points[np.argsort(-score(points), kind="stable")[:_KEPT]]
