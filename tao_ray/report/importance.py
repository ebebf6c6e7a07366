"""Which parameters matter: functional analysis of variance over a small random forest.

Source: Hutter, Hoos, Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter
Importance", ICML 2014. A forest is fitted to the trials; its variance over the whole search space
is split exactly into what each parameter explains alone (its main effect) and the rest
(interactions). The forest is fitted to ranks, so that one diverged trial does not outweigh all
others, and on the unit cube, where the search's prior is uniform.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tao_ray.report.run_data import RunData
from tao_ray.trial.state import TrialState

if TYPE_CHECKING:
    import numpy as np

LEAST_TRIALS = 8
_USELESS_FIT = 0.2
"""Out-of-bag R² that a forest reaches on pure noise now and then."""
_TREES = 48
_FEATURE_SHARE = 5 / 6
_COMPARABLE_SHARE = 0.6


@dataclass(frozen=True)
class Effect:
    """Share of the variance a parameter explains alone: mean, and 10 and 90 percent of trees."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Importance:
    """Effects, largest first. fit: out-of-bag R² of the forest: 1 is perfect, 0 is useless.

    epoch, trials: the epoch at which trials were compared, and how many.
    """

    effects: tuple[Effect, ...]
    fit: float
    epoch: int
    trials: int

    @property
    def tentative(self) -> bool:
        """Whether the forest predicts trials it has not seen hardly better than chance."""
        return self.fit < _USELESS_FIT


def unit(parameter: Mapping[str, Any], value: Any) -> float:
    """Where a value lies in its parameter's range or list of options, in [0, 1]."""
    options = parameter.get("values") or parameter.get("options")
    if options is not None:
        known = [repr(o) for o in options]
        at = known.index(repr(value)) if repr(value) in known else 0
        return (at + 0.5) / len(known)
    low, high, number = parameter["low"], parameter["high"], float(value)
    if parameter.get("log"):
        low, high, number = math.log(low), math.log(high), math.log(max(number, low / 2, 1e-300))
    return min(max((number - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def comparable(run: RunData) -> tuple[int, list[tuple[TrialState, float]]]:
    """The latest epoch that most measured trials reached, and their losses up to it.

    Values of trials that were stopped early and of those that trained on are not comparable.
    """
    measured = [t for t in run.trials if t.measured()]
    need = max(LEAST_TRIALS, math.ceil(_COMPARABLE_SHARE * len(measured)))
    reached = sorted((t.measured()[-1].epoch for t in measured), reverse=True)
    if len(reached) < need:
        return 0, []
    epoch = reached[need - 1]
    losses = []
    for trial in measured:
        until = [e.loss for e in trial.measured() if e.epoch <= epoch and e.loss is not None]
        if trial.measured()[-1].epoch >= epoch and until:
            losses.append((trial, until[-1] if run.objective.at == "last" else min(until)))
    return epoch, losses


def importance(run: RunData) -> Importance | None:
    """The importance of every searched parameter, or None with too few trials to compare."""
    import numpy as np

    epoch, losses = comparable(run)
    varied = [p for p in run.space if len({repr(t.config.get(p["name"])) for t, _ in losses}) > 1]
    if len(losses) < LEAST_TRIALS or not varied:
        return None
    x = np.array([[unit(p, t.config[p["name"]]) for p in varied] for t, _ in losses])
    values = np.array([loss for _, loss in losses])
    y = np.array([(values < v).sum() + ((values == v).sum() - 1) / 2 for v in values])
    if y.std() == 0:
        return None
    shares, fit = _forest(x, y / y.std())
    effects = [
        Effect(p["name"], float(s.mean()), *(float(q) for q in np.quantile(s, (0.1, 0.9))))
        for p, s in zip(varied, shares.T, strict=True)
    ]
    effects.sort(key=lambda e: -e.share)
    return Importance(tuple(effects), fit, epoch, len(losses))


@dataclass(frozen=True)
class _Leaves:
    """A fitted tree: boxes in the unit cube (n leaves x d) and the value in each."""

    low: np.ndarray
    high: np.ndarray
    value: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        inside = (x[:, None] >= self.low) & ((x[:, None] < self.high) | (self.high == 1.0))
        values: np.ndarray = self.value[inside.all(axis=2).argmax(axis=1)]
        return values

    def main_effects(self) -> np.ndarray:
        """Share of the tree's variance over the cube that each parameter explains alone."""
        import numpy as np

        width = self.high - self.low
        volume = width.prod(axis=1)
        mean = float(volume @ self.value)
        total = float(volume @ (self.value - mean) ** 2)
        shares = np.zeros(width.shape[1])
        for j in range(len(shares) if total > 0 else 0):
            edges = np.unique(np.concatenate([self.low[:, j], self.high[:, j]]))
            middle = (edges[1:] + edges[:-1]) / 2
            covers = (self.low[:, j] <= middle[:, None]) & (middle[:, None] < self.high[:, j])
            marginal = covers @ (self.value * volume / width[:, j])
            shares[j] = np.diff(edges) @ (marginal - mean) ** 2 / total
        return shares


def _forest(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Main effects per tree (trees x d), and the out-of-bag R²."""
    import numpy as np

    rng = np.random.default_rng(0)
    n = len(y)
    effects = []
    votes, voted = np.zeros(n), np.zeros(n)
    for _ in range(_TREES):
        drawn = rng.integers(n, size=n)
        tree = _fit(x[drawn], y[drawn], rng)
        effects.append(tree.main_effects())
        out = np.setdiff1d(np.arange(n), drawn)
        votes[out] += tree.predict(x[out])
        voted[out] += 1
    known = voted > 0
    residual = y[known] - votes[known] / voted[known]
    return np.array(effects), 1 - float((residual**2).mean() / y[known].var())


def _fit(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> _Leaves:
    """A regression tree on the unit cube; leaves hold at least two, or three of many, samples."""
    import numpy as np

    d = x.shape[1]
    tried = max(1, math.ceil(_FEATURE_SHARE * d))
    smallest = 3 if len(y) >= 40 else 2
    boxes: list[tuple[np.ndarray, np.ndarray, float]] = []
    todo = [(np.arange(len(y)), np.zeros(d), np.ones(d))]
    while todo:
        rows, low, high = todo.pop()
        features = rng.permutation(d)[:tried]
        split = _split(x[rows][:, features], y[rows], smallest)
        if split is None:
            boxes.append((low, high, float(y[rows].mean())))
            continue
        j, at = features[split[0]], split[1]
        left = x[rows, j] < at
        for side, edge in ((left, high), (~left, low)):
            cut = edge.copy()
            cut[j] = at
            bounds = (low, cut) if edge is high else (cut, high)
            todo.append((rows[side], *bounds))
    lows, highs, values = zip(*boxes, strict=True)
    return _Leaves(np.array(lows), np.array(highs), np.array(values))


def _split(x: np.ndarray, y: np.ndarray, smallest: int) -> tuple[int, float] | None:
    """The column and threshold that reduce the squared error most, all columns at once."""
    import numpy as np

    n = len(y)
    if n < 2 * smallest or np.ptp(y) == 0:
        return None
    order = x.argsort(axis=0)
    sorted_x = np.take_along_axis(x, order, axis=0)
    sums = y[order].cumsum(axis=0)
    left = np.arange(1, n)[:, None]
    score = sums[:-1] ** 2 / left + (sums[-1] - sums[:-1]) ** 2 / (n - left)
    possible = sorted_x[1:] > sorted_x[:-1]
    possible[: smallest - 1] = False
    possible[n - smallest :] = False
    score = np.where(possible, score, -np.inf)
    i, j = np.unravel_index(score.argmax(), score.shape)
    if not np.isfinite(score[i, j]):
        return None
    return int(j), float((sorted_x[i, j] + sorted_x[i + 1, j]) / 2)
