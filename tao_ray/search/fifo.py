"""The rule that lets every trial run to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tao_ray.search.base import Decision


class RunToEnd:
    """A scheduling rule that never stops or pauses a trial."""

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None: ...

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        return Decision.CONTINUE

    def runnable(self) -> list[str]:
        return []

    def losers(self) -> list[str]:
        return []

    def resumed(self, trial_id: str) -> None: ...

    def gone(self, trial_id: str) -> None: ...

    def exhausted(self) -> None: ...

    def milestones(self) -> list[int]:
        return []
