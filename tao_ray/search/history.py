"""What a proposer has been told, in the order it was told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tao_ray.search.base import Config, PastTrial, TrialStatus


@dataclass
class TrialRecord:
    """One trial: its configuration and its losses by fidelity."""

    trial_id: str
    config: Config
    status: TrialStatus = TrialStatus.RUNNING
    curve: dict[int, float] = field(default_factory=dict)
    """Completed epochs -> loss. Kept when the trial fails later."""
    others: tuple[float, ...] = ()
    """Losses of further objectives."""

    @property
    def fidelity(self) -> int:
        """The highest fidelity with a loss; call only when there is one."""
        return max(self.curve)

    @property
    def loss(self) -> float:
        """The loss at the highest fidelity seen."""
        return self.curve[self.fidelity]


class History:
    """Every trial this search has started, first started first."""

    def __init__(self, warm_start: Sequence[PastTrial] = ()) -> None:
        self._trials: dict[str, TrialRecord] = {}
        self.past = [
            TrialRecord(f"past-{i}", p.config, TrialStatus.COMPLETED, {p.fidelity: p.loss})
            for i, p in enumerate(warm_start)
        ]
        """Trials of earlier searches; they are evidence but no trials of this search."""

    def started(self, trial_id: str, config: Config) -> None:
        self._trials[trial_id] = TrialRecord(trial_id, config)

    def tell(self, trial_id: str, fidelity: int, loss: float | None, status: TrialStatus) -> None:
        record = self._trials[trial_id]
        record.status = status
        if loss is not None:
            record.curve[fidelity] = loss

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[TrialRecord]:
        return iter(self._trials.values())

    def __getitem__(self, trial_id: str) -> TrialRecord:
        return self._trials[trial_id]

    @property
    def running(self) -> list[TrialRecord]:
        """Trials that have not ended; paused ones are among them."""
        return [t for t in self if t.status is TrialStatus.RUNNING]

    @property
    def ended(self) -> list[TrialRecord]:
        """Trials that ended with a loss."""
        ends = (TrialStatus.COMPLETED, TrialStatus.STOPPED)
        return [t for t in self if t.status in ends and t.curve]

    @property
    def failed(self) -> list[TrialRecord]:
        return [t for t in self if t.status is TrialStatus.FAILED]
