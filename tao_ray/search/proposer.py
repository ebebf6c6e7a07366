"""What every proposer shares: first points, counting, seeding, no duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from tao_ray.search.base import Config, Exhausted, Proposal, SearchSettings, TrialStatus, Wait
from tao_ray.search.history import History, TrialRecord
from tao_ray.search.tradeoff import Array, scalarised

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

_ATTEMPTS = 200
"""Random draws without a new configuration after which a space counts as used up."""


class BaseProposer:
    """Asks the subclass for a configuration once the user's first points are used up.

    Subclasses implement `propose`; they read `self.history` and draw from the generator given
    to them, which depends on the seed and the proposal's number alone.
    """

    def __init__(self, space: SearchSpace, settings: SearchSettings) -> None:
        self.space = space
        self.settings = settings
        self.history = History(settings.warm_start)
        self._seen: set[str] = set()
        self._answers: dict[int, Proposal | Wait | Exhausted] = {}

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Wait | Exhausted:
        """Proposal `number` (0-based, the first points counted)."""
        raise NotImplementedError

    def ask(self, n_running: int) -> Proposal | Wait | Exhausted:
        """See `Proposer.ask`. Answers are kept until the next event: asking again costs nothing."""
        if n_running not in self._answers:
            # One thread: sums in another order would change proposals from machine to machine,
            # and matrices this small only lose by being shared out.
            with threadpool_limits(1, user_api="blas"):
                self._answers[n_running] = self._answer()
        return self._answers[n_running]

    def _answer(self) -> Proposal | Wait | Exhausted:
        number = len(self.history)
        if number >= self.settings.trials:
            return Exhausted()
        if number < len(self.settings.points):
            return Proposal(self.settings.points[number])
        return self.propose(number, np.random.default_rng([self.settings.seed, number]))

    def started(self, trial_id: str, proposal: Proposal) -> None:
        """See `Proposer.started`."""
        self._answers.clear()
        self._seen.add(self._key(proposal.config))
        self.history.started(trial_id, proposal.config)

    def tell(
        self, trial_id: str, config: Config, fidelity: int, loss: float | None, status: TrialStatus
    ) -> None:
        """See `Proposer.tell`."""
        self._answers.clear()
        self.history.tell(trial_id, fidelity, loss, status)

    def tell_others(self, trial_id: str, losses: Sequence[float]) -> None:
        """See `SeesTradeOffs.tell_others`."""
        self._answers.clear()
        self.history[trial_id].others = tuple(losses)

    def evidence(self) -> list[TrialRecord]:
        """Trials that ended with all their losses, those of earlier searches first."""
        others = self.settings.objectives - 1
        return [t for t in self.history.past + self.history.ended if len(t.others) == others]

    def losses(self, trials: Sequence[TrialRecord], rng: np.random.Generator) -> Array:
        """One final loss per trial of `evidence`; with several objectives they are weighed by
        `rng`."""
        if self.settings.objectives == 1:
            return np.array([t.loss for t in trials])
        return scalarised(np.array([[t.loss, *t.others] for t in trials]), rng)

    def is_new(self, config: Config) -> bool:
        """Whether no trial of this search has had exactly this configuration."""
        return self._key(config) not in self._seen

    def first_new(self, candidates: Iterable[Config]) -> Config | None:
        """The first candidate that is new, or None."""
        return next((c for c in candidates if self.is_new(c)), None)

    def new_sample(self, rng: np.random.Generator) -> Proposal | Exhausted:
        """A random new configuration; Exhausted when the space seems to hold no other."""
        config = self.first_new(self.space.sample(rng) for _ in range(_ATTEMPTS))
        return Exhausted() if config is None else Proposal(config)

    def _key(self, config: Config) -> str:
        return repr([_plain(config[name]) for name in self.space.names])


def _plain(value: Any) -> Any:
    """numpy scalars and Python's own must compare alike."""
    return value.item() if isinstance(value, np.generic) else value
