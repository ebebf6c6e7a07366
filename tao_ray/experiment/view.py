"""How a run is shown: the contract of the terminal view and of whoever else looks on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from tao_ray.experiment.plan import Plan
    from tao_ray.experiment.result import Result
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.trial.state import RunState


class View(Protocol):
    """What a user sees of a run."""

    def open(self, terminal: TextIO, plan: Plan, run_dir: RunDir) -> None:
        """The run is about to start."""

    def update(self, state: RunState, now: float) -> None:
        """Show the state; called a few times a second."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def close(self, state: RunState, result: Result | None) -> None:
        """The run has ended, or failed if there is no result."""
