"""The Gaussian process of every model-based algorithm here: it knows about learning curves.

The loss of configuration x after some epochs is modelled as ``f(x) + w * g(x) + noise``: f is the
loss after a full training, g what is still to be learned, and the weight w falls from one to
zero as training proceeds (`decay`). Losses of stopped trials inform the prediction of full
trainings that way, and noise may shrink with w as well. Without epochs every w is zero and this
is an ordinary process with a Matern-5/2 kernel. The basis is that of Klein et al., "Fast
Bayesian Optimization of Machine Learning Hyperparameters on Large Datasets", AISTATS 2017.

Few observations cannot tell many length scales apart, so hyperparameters maximise the posterior,
not the likelihood. The prior on length scales grows with the square root of the dimension, as
distances do (Hvarfner et al., "Vanilla Bayesian Optimization Performs Great in High Dimensions",
ICML 2024). Written in numpy: a tenth of the time of a general library at these sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

Array = NDArray[np.float64]

_SCALE_AT_ONE = 0.17
"""Typical length scale in one dimension of the unit cube."""
_JITTER = 1e-8
_ITERATIONS = 25
_FEW = 60
"""With more observations than this the posterior has a single maximum that matters."""


def decay(epochs: Array, max_epochs: int) -> Array:
    """How much is still to be learned after `epochs`, by the logarithm: one after the first
    epoch, zero after the last."""
    if max_epochs == 1:
        return np.zeros(len(epochs))
    return np.asarray(1 - np.log(np.maximum(epochs, 1)) / np.log(max_epochs), dtype=float)


def tame(losses: Array) -> Array:
    """Losses with diverged ones pulled in: nothing lies further above the median than three
    times the distance from the best to the median, so one explosion does not flatten the rest."""
    best, median = losses.min(), np.median(losses)
    spread = median - best
    return np.minimum(losses, median + 3 * spread) if spread > 0 else losses


def best_and_newest(losses: Array, most: int) -> list[int]:
    """Which of many observations to fit to, in their order: fitting is cubic in their number."""
    n, half = len(losses), most // 2
    if n <= most:
        return list(range(n))
    best = np.argsort(losses[: n - half], kind="stable")[:half]
    return [*sorted(best.tolist()), *range(n - half, n)]


class GaussianProcess:
    """Fit with `fit`, ask with `predict`; both work on points of the unit cube.

    `X_train_` and the signatures are scikit-learn's, so the acquisition functions of the
    `bayesian-optimization` package take it as their model.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        scale = _SCALE_AT_ONE * np.sqrt(dimensions)
        # log of: variance of f, of g, constant of g, noise, noise of g; then length scales
        self._center = np.log([1.0, 1.0, 1.0, 1e-4, 1e-2, *[scale] * dimensions])
        self._width = np.array([1.0, 1.0, 1.0, 1.5, 2.0, *[0.5] * dimensions])

    def fit(self, points: Array, values: Array, weights: Array | None = None) -> GaussianProcess:
        """points: (n, d); values: (n,); weights: (n,) decays, zero when not given."""
        self.X_train_ = points
        self._w = np.zeros(len(points)) if weights is None else weights
        final = values[self._w == 0]
        basis = final if len(final) > 1 else values
        self._mean, self.deviation = float(basis.mean()), float(values.std()) or 1.0
        self._z = (values - self._mean) / self.deviation
        squares = _squares(points)
        starts = [self._center]
        if len(points) <= _FEW:
            starts.append(self._center - np.r_[np.zeros(5), self._width[5:]])
        fits = [self._maximum(start, squares) for start in starts]
        self._theta = min(fits, key=lambda fit: fit.fun).x
        self._solve(squares)
        return self

    def believe(self, points: Array) -> GaussianProcess:
        """Take the mean at `points` for observed: the model becomes surer there, and nothing
        else changes. For trials in flight."""
        if len(points):
            believed = (self.predict(points) - self._mean) / self.deviation
            self.X_train_ = np.vstack([self.X_train_, points])
            self._w = np.append(self._w, np.zeros(len(points)))
            self._z = np.append(self._z, believed)
            self._solve(_squares(self.X_train_))
        return self

    def _maximum(self, start: Array, squares: Array) -> Any:
        """The posterior's maximum reached from `start`, as scipy reports it."""
        low, high = self._center - 4 * self._width, self._center + 4 * self._width
        return minimize(
            self._loss,
            start,
            args=(squares,),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": _ITERATIONS},
        )

    def predict(self, points: Array, return_std: bool = False) -> Any:
        """Mean loss after a full training, (m,); with `return_std` also its deviation."""
        matern, _ = _matern(self._scaled(points))
        cross = self._var_f * matern
        mean = self._mean + self.deviation * (cross @ self._alpha)
        if not return_std:
            return mean
        half = solve_triangular(self._chol, cross.T, lower=True)
        variance = self._var_f - (half * half).sum(0)
        return mean, self.deviation * np.sqrt(np.maximum(variance, 1e-12))

    def _scaled(self, points: Array) -> Array:
        """Squared distances to the training points in length scales, (m, n)."""
        a, b = points / self._scales, self.X_train_ / self._scales
        square = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
        return np.asarray(np.maximum(square, 0.0))

    def _solve(self, squares: Array) -> None:
        self._var_f = float(np.exp(self._theta[0]))
        self._scales = np.exp(self._theta[5:])
        covariance, *_ = self._covariance(self._theta, squares)
        self._chol = cholesky(covariance, lower=True)
        self._alpha = cho_solve((self._chol, True), self._z)

    def _covariance(self, theta: Array, squares: Array) -> tuple[Array, Array, Array]:
        """Covariance of the training values, the Matern part alone, its radial derivative."""
        var_f, var_g, const_g, noise, noise_g = np.exp(theta[:5])
        n = len(self._w)
        matern, slope = _matern((squares @ np.exp(-2 * theta[5:])).reshape(n, n))
        ww = np.outer(self._w, self._w)
        covariance = (var_f + ww * var_g) * matern + ww * const_g
        covariance[np.diag_indices_from(covariance)] += _JITTER + noise + noise_g * self._w**2
        return covariance, matern, slope

    def _loss(self, theta: Array, squares: Array) -> tuple[float, Array]:
        """Negative log posterior of the hyperparameters, and its gradient."""
        covariance, matern, slope = self._covariance(theta, squares)
        offset = (theta - self._center) / self._width
        try:
            chol = cholesky(covariance, lower=True)
        except LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve((chol, True), np.eye(len(self._z)))
        alpha = inverse @ self._z
        value = 0.5 * self._z @ alpha + np.log(np.diag(chol)).sum() + 0.5 * offset @ offset
        sensitivity = inverse - np.outer(alpha, alpha)  # twice d value / d covariance
        var_f, var_g, const_g, noise, noise_g = np.exp(theta[:5])
        ww = np.outer(self._w, self._w)
        diagonal = np.diag(sensitivity)
        radial = sensitivity * (var_f + ww * var_g) * slope
        gradient = (
            0.5
            * np.r_[
                (sensitivity * matern).sum() * var_f,
                (sensitivity * matern * ww).sum() * var_g,
                (sensitivity * ww).sum() * const_g,
                diagonal.sum() * noise,
                (diagonal * self._w**2).sum() * noise_g,
                (radial.ravel() @ squares) * np.exp(-2 * theta[5:]),
            ]
        )
        return float(value), gradient + offset / self._width


def _squares(points: Array) -> Array:
    """Squared coordinate differences of all pairs, (n * n, d)."""
    differences = points[:, None, :] - points[None, :, :]
    return np.asarray(differences * differences).reshape(-1, points.shape[1])


def _matern(square: Array) -> tuple[Array, Array]:
    """Matern-5/2 of a squared distance, and minus its derivative by the log length scale per
    unit of squared distance."""
    root = np.sqrt(5 * square)
    falloff = np.exp(-root)
    return (1 + root + root * root / 3) * falloff, 5 / 3 * (1 + root) * falloff
