"""Several objectives: scalarised proposals with random weights (ParEGO).

Knowles, "ParEGO: a hybrid algorithm with on-line landscape approximation for expensive
multiobjective optimization problems", IEEE Trans. Evolutionary Computation 10(1), 2006. Each
proposal draws weights for the objectives, makes one loss of every trial's losses by the augmented
Tchebycheff function, and asks a single-objective algorithm that has been told those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tao_ray.search.base import Config, Exhausted, Proposal, Proposer, TrialStatus, Wait

_RHO = 0.05
"""Weight of the plain sum in the augmented Tchebycheff function, as published."""
_WEIGHTS = 1
"""What the generator of a proposal's weights is for, beside the seed and its number."""


@dataclass(frozen=True)
class _Told:
    trial_id: str
    config: Config
    fidelity: int
    losses: tuple[float, ...] | None
    status: TrialStatus


class ParEgo:
    """A proposer for several losses, around one that knows a single loss.

    `observe` gives all losses of a trial, right before each `tell` that carries the first one.
    """

    def __init__(self, make: Callable[[], Proposer], seed: int):
        """make: a fresh single-objective proposer."""
        self._make = make
        self._seed = seed
        self._past: list[tuple[str, Proposal] | _Told] = []
        self._started = 0
        self._observed: dict[str, tuple[float, ...]] = {}

    def observe(self, trial_id: str, losses: Sequence[float]) -> None:
        """All losses of a trial at the epoch it is judged by, lower is better, all finite."""
        self._observed[trial_id] = tuple(losses)

    def ask(self, n_running: int) -> Proposal | Wait | Exhausted:
        """See `Proposer.ask`."""
        proposer = self._make()
        weigh = self._weighing()
        for event in self._past:
            if isinstance(event, _Told):
                loss = None if event.losses is None else weigh(event.losses)
                proposer.tell(event.trial_id, event.config, event.fidelity, loss, event.status)
            else:
                proposer.started(*event)
        return proposer.ask(n_running)

    def started(self, trial_id: str, proposal: Proposal) -> None:
        """See `Proposer.started`."""
        self._started += 1
        self._past.append((trial_id, proposal))

    def tell(
        self, trial_id: str, config: Config, fidelity: int, loss: float | None, status: TrialStatus
    ) -> None:
        """See `Proposer.tell`."""
        losses = None if loss is None else self._observed.get(trial_id, (loss,))
        self._past.append(_Told(trial_id, config, fidelity, losses, status))

    def _weighing(self) -> Callable[[tuple[float, ...]], float]:
        """This proposal's scalarisation: every objective on its observed range, then weighted."""
        import numpy as np  # not for those who only want the front

        seen = np.array([t.losses for t in self._past if isinstance(t, _Told) and t.losses])
        if not len(seen):
            return lambda losses: losses[0]
        low, high = seen.min(axis=0), seen.max(axis=0)
        span = np.where(high > low, high - low, 1.0)
        rng = np.random.default_rng([self._seed, self._started, _WEIGHTS])
        weights = rng.dirichlet(np.ones(seen.shape[1]))

        def weigh(losses: tuple[float, ...]) -> float:
            weighted = weights * (np.asarray(losses) - low) / span
            return float(weighted.max() + _RHO * weighted.sum())

        return weigh


def pareto_front(losses: dict[str, tuple[float, ...]]) -> list[str]:
    """The trials that no other one is at least as good as everywhere and better somewhere."""

    def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        return a != b and all(x <= y for x, y in zip(a, b, strict=True))

    finite = {name: values for name, values in losses.items() if all(map(math.isfinite, values))}
    return [
        name
        for name, values in finite.items()
        if not any(dominates(other, values) for other in finite.values())
    ]
