"""The Gaussian process behind `bayesian` and `bfbo`: scikit-learn's, with priors.

Eight observations cannot tell twenty length scales apart, so hyperparameters are fitted to the
posterior, not to the likelihood alone. The prior on length scales grows with the square root of
the dimension, which keeps distances of typical points comparable to the scale (Hvarfner et al.,
"Vanilla Bayesian Optimization Performs Great in High Dimensions", ICML 2024).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

Array = np.ndarray
_Evaluate = Callable[..., tuple[float, Array]]

_NOISE = 1e-3
_ITERATIONS = 25


def regressor(dimensions: int) -> GaussianProcessRegressor:
    """An unfitted regressor over the unit cube of that many dimensions."""
    scale = 0.5 * np.sqrt(dimensions)
    kernel = ConstantKernel(1.0, (0.05, 20.0)) * Matern(
        np.full(dimensions, scale), (0.05, 50.0), nu=2.5
    ) + WhiteKernel(_NOISE, (1e-6, 0.5))
    center = np.log([1.0, *[scale] * dimensions, _NOISE])
    width = np.array([1.0, *[0.7] * dimensions, 2.0])
    return GaussianProcessRegressor(
        kernel, alpha=1e-8, normalize_y=True, optimizer=_Posterior(center, width)
    )


class _Posterior:
    """Maximises likelihood times a log-normal prior; scikit-learn calls it as its optimizer."""

    def __init__(self, center: Array, width: Array) -> None:
        self.center = center
        self.width = width

    def __call__(
        self, objective: _Evaluate, start: Array, bounds: Array
    ) -> tuple[Array, float]:
        def negative_log_posterior(theta: Array) -> tuple[float, Array]:
            value, gradient = objective(theta, eval_gradient=True)
            z = (theta - self.center) / self.width
            return value + 0.5 * float(z @ z), gradient + z / self.width

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = minimize(
                negative_log_posterior,
                start,
                jac=True,
                bounds=bounds,
                method="L-BFGS-B",
                options={"maxiter": _ITERATIONS},
            )
        return best.x, float(best.fun)


def tame(losses: Array) -> Array:
    """Losses with diverged ones pulled in: nothing lies further above the median than three
    times the distance from the best to the median, so one explosion does not flatten the rest."""
    best, median = losses.min(), np.median(losses)
    spread = median - best
    if spread <= 0:
        return losses
    return np.minimum(losses, median + 3 * spread)
