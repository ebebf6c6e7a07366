"""A rule that also ends trials that have stopped improving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tao_ray.search.base import Decision, SchedulingRule


@dataclass
class _Progress:
    best: float
    since: int = 0


class Patience:
    """Around another rule: a trial without an own best for `patience` reports is stopped.

    It only ever stops what the other rule would have continued.
    """

    def __init__(self, rule: SchedulingRule, patience: int):
        self._rule = rule
        self._patience = patience
        self._progress: dict[str, _Progress] = {}

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        decision = self._rule.report(trial_id, epoch, loss)
        progress = self._progress.setdefault(trial_id, _Progress(loss, -1))
        if loss < progress.best or progress.since < 0:
            progress.best, progress.since = loss, 0
        else:
            progress.since += 1
        patient = progress.since < self._patience
        return decision if patient or decision is not Decision.CONTINUE else Decision.STOP

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None:
        self._rule.add(trial_id, info)

    def runnable(self) -> list[str]:
        return self._rule.runnable()

    def losers(self) -> list[str]:
        return self._rule.losers()

    def resumed(self, trial_id: str) -> None:
        self._rule.resumed(trial_id)

    def gone(self, trial_id: str) -> None:
        self._rule.gone(trial_id)

    def exhausted(self) -> None:
        self._rule.exhausted()

    def milestones(self) -> list[int]:
        # Trials end at any epoch, so no interval has to divide where they do; but the other
        # rule's rungs still need their checkpoints.
        return self._rule.milestones()
