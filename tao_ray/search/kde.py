"""A multivariate kernel density over configurations: continuous, integer and categorical.

The product kernel of Falkner et al., "BOHB" (ICML 2018), on the space's uniform image: a normal
truncated to [0, 1] for floats, the same normal integrated over a value's cell for integers and
ordered values, Aitchison and Aitken's for categories. Bandwidths follow the normal reference
rule. One more component is uniform, so that the ratio of two densities does not favour corners
where neither has a point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tao_ray.search.base import Config
from tao_ray.search.categories import index_of
from tao_ray.space import Categorical, SearchSpace

Array = NDArray[np.float64]


def as_point(space: SearchSpace, config: Config) -> Array:
    """One number per parameter: a place in [0, 1], or a category's index; (p,)."""
    point = np.array(space.unit(config))
    for i, parameter in enumerate(space.parameters):
        if isinstance(parameter, Categorical):
            point[i] = index_of(parameter, config[parameter.name])
    return point


def from_point(space: SearchSpace, point: Array) -> Config:
    """The configuration at a point."""
    units = [
        p.to_unit(p.options[int(x)]) if isinstance(p, Categorical) else float(x)
        for p, x in zip(space.parameters, point, strict=True)
    ]
    return space.from_unit(units)


class MixedDensity:
    """The density of (n, p) points of `space`, as `as_point` gives them."""

    def __init__(self, space: SearchSpace, points: Array, min_bandwidth: float) -> None:
        self.points = points
        self.parameters = space.parameters
        n, p = points.shape
        self.uniform = float(np.prod([1 / (q.cardinality or 1) for q in self.parameters]))
        spread = points.std(axis=0, ddof=1 if n > 1 else 0)
        self.bandwidths = np.maximum(1.06 * spread * n ** (-1 / (4 + p)), min_bandwidth)
        for i, parameter in enumerate(self.parameters):
            if isinstance(parameter, Categorical):
                k = len(parameter.options)
                self.bandwidths[i] = min(self.bandwidths[i], (k - 1) / k)

    def log_density(self, queries: Array) -> Array:
        """(m, p) -> (m,)."""
        product = np.zeros((len(queries), len(self.points)))
        for i, parameter in enumerate(self.parameters):
            x, centers = queries[:, i, None], self.points[None, :, i]
            width = self.bandwidths[i]
            if isinstance(parameter, Categorical):
                other = width / max(1, len(parameter.options) - 1)
                kernel = np.where(x == centers, 1 - width, other)
            else:
                inside = ndtr((1 - centers) / width) - ndtr(-centers / width)
                if parameter.cardinality is None:
                    z = (x - centers) / width
                    kernel = np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * width) / inside
                else:
                    half = 0.5 / parameter.cardinality
                    upper, lower = (x + half - centers) / width, (x - half - centers) / width
                    kernel = (ndtr(upper) - ndtr(lower)) / inside
            product += np.log(np.maximum(kernel, 1e-32))
        total = np.exp(product).sum(axis=1) + self.uniform
        return np.asarray(np.log(total / (len(self.points) + 1)))

    def sample(self, count: int, factor: float, rng: np.random.Generator) -> Array:
        """`count` points near those of the density, bandwidths widened by `factor`; (count, p)."""
        samples = self.points[rng.integers(len(self.points), size=count)].copy()
        for i, parameter in enumerate(self.parameters):
            if isinstance(parameter, Categorical):
                moves = rng.random(count) < self.bandwidths[i]
                samples[moves, i] = rng.integers(len(parameter.options), size=int(moves.sum()))
            else:
                width = factor * self.bandwidths[i]
                low, high = ndtr(-samples[:, i] / width), ndtr((1 - samples[:, i]) / width)
                quantile = low + rng.random(count) * (high - low)
                samples[:, i] = np.clip(samples[:, i] + width * ndtri(quantile), 0, 1)
        return np.asarray(samples)
