"""When a search ends before it is done: a target, patience, or trials that all fail alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.state import Objective

_OF_THE_CONFIGURATION = {
    FailureKind.NAN,
    FailureKind.OOM,
    FailureKind.TIMEOUT,
    FailureKind.BATCH,
    FailureKind.SPEC,
}
"""What a bad configuration can bring about: several in a row are no sign of a broken setup once
anything has succeeded."""
_MENDED_OUTSIDE = {
    FailureKind.CAPACITY,
    FailureKind.PROVISION,
    FailureKind.LINK,
    FailureKind.HOST_KEY,
    FailureKind.MACHINE_LOST,
    FailureKind.CREDENTIALS,
    FailureKind.IMAGE_ACCESS,
    FailureKind.DISK_FULL,
    FailureKind.DATA,
}
"""What a user can put right without another configuration: the run can go on then."""


@dataclass(frozen=True)
class Halt:
    """Why the search ends before it is done.

    resumable: something is left to do, and the same run can do it later. interrupted: by a user
    or a signal; otherwise what was found counts as the run's result.
    """

    reason: str
    resumable: bool
    interrupted: bool = False


@dataclass(frozen=True)
class Limits:
    """Bounds the conductor keeps.

    max_epochs: a full training; 1 for a single-shot action. target: value of the objective at which
    the search ends. patience_trials: ended trials without a new best after which it ends.
    """

    max_epochs: int
    max_concurrent: int
    max_retries: int = 2
    max_failures_in_a_row: int = 3
    target: float | None = None
    patience_trials: int | None = None


class StopRules:
    """Counts what the rules need, also while a journal is replayed; halts only when asked."""

    def __init__(self, limits: Limits, objective: Objective):
        self._limits = limits
        self._objective = objective
        self._failures: list[FailureKind] = []
        self._succeeded = False
        self._best_loss = math.inf
        self._ended_since_best = 0

    def ended(self, failure: Failure | None, loss: float | None) -> None:
        """A trial ended. loss: that of a trial that did not fail, if it was measured."""
        self._ended_since_best += 1
        if loss is not None and loss < self._best_loss:
            self._best_loss, self._ended_since_best = loss, 0
        if failure:
            self._failures.append(failure.kind)
        else:
            self._failures.clear()
            self._succeeded = True

    def after(self, loss: float | None) -> Halt | None:
        """The user's own rules, after an epoch with this loss, or the end of a trial (None)."""
        limits, metric = self._limits, self._objective.metric
        target = None if limits.target is None else self._objective.loss(limits.target)
        if target is not None and loss is not None and loss <= target:
            value = self._objective.value(loss)
            text = f"{metric} = {value:.6g} reached the target {limits.target:g}"
            return Halt(text, resumable=False)
        if limits.patience_trials and self._ended_since_best >= limits.patience_trials:
            text = f"no new best {metric} in the last {self._ended_since_best} trials"
            return Halt(text, resumable=False)
        return None

    def after_failure(self, failure: Failure) -> Halt | None:
        """Whether trials have failed alike too often, `failure` the last of them."""
        n = self._limits.max_failures_in_a_row
        if self._failures[-n:] != [failure.kind] * n:
            return None
        if self._succeeded and failure.kind in _OF_THE_CONFIGURATION:
            return None
        text = f"{n} trials in a row failed alike: {failure.kind.cause} - {failure.message}"
        return Halt(text, resumable=failure.kind in _MENDED_OUTSIDE)
