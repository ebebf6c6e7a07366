"""Where a learning curve is heading: power laws, averaged by how well they fit.

For each exponent c of a grid the curve is ``a + b * epoch**-c`` with normal noise; under a
normal-inverse-gamma prior the prediction is a Student t in closed form, and the exponents are
weighted by their marginal likelihood. After Domhan et al., "Speeding Up Automatic Hyperparameter
Optimization of Deep Neural Networks by Extrapolation of Learning Curves", IJCAI 2015, whose
larger family needs sampling.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import gammaln, stdtr

_EXPONENTS = np.geomspace(0.1, 4.0, 12)
_PRIOR_VARIANCE = 100.0
_PRIOR_SHAPE = 0.5
_PRIOR_NOISE = 0.05
"""Expected noise before any is seen, in standard deviations of the curve."""


def probability_above(curve: Mapping[int, float], epoch: int, threshold: float) -> float:
    """The probability that the loss at `epoch` exceeds `threshold`, given losses by epoch."""
    epochs = np.array(sorted(curve), dtype=float)
    losses = np.array([curve[int(e)] for e in epochs])
    center, scale = losses[-1], losses.std() or 1.0
    y = (losses - center) / scale
    n = len(y)
    shape = _PRIOR_SHAPE + n / 2
    evidence, tails = [], []
    for c in _EXPONENTS:
        x = np.column_stack([np.ones(n), epochs**-c])
        precision = x.T @ x + np.eye(2) / _PRIOR_VARIANCE
        weights = np.linalg.solve(precision, x.T @ y)
        rate = _PRIOR_SHAPE * _PRIOR_NOISE**2 + 0.5 * float(y @ y - weights @ precision @ weights)
        at = np.array([1.0, float(epoch) ** -c])
        variance = rate / shape * (1 + float(at @ np.linalg.solve(precision, at)))
        t = ((threshold - center) / scale - float(at @ weights)) / np.sqrt(variance)
        tails.append(1 - stdtr(2 * shape, t))
        evidence.append(
            -shape * np.log(rate) - 0.5 * np.linalg.slogdet(precision)[1] + gammaln(shape)
        )
    odds = np.exp(np.array(evidence) - max(evidence))
    return float(odds @ np.array(tails) / odds.sum())
