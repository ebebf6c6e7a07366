"""The two contracts every search algorithm is made of. Plain Python: no Ray, no TAO.

A *proposer* says which configuration to try next; a *scheduling rule* says, at each reported
epoch, whether a trial goes on. Both see **losses**: the conductor converts an objective to "lower
is better" once, so no algorithm knows a direction. Neither ever sees a non-finite loss.

Both are state machines over the calls they receive. `ask`, `runnable` and `losers` are pure
queries; state changes only in `started`, `tell`, `add`, `report`, `resumed`, `gone` and
`exhausted`. Every such call is journalled, so replaying the journal through a fresh instance
restores it exactly: there is no state to pickle. Randomness comes from a generator seeded with
``(seed, purpose, number)``, never from a stream and never from ``hash()``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

Config = Mapping[str, Any]
"""Parameter name -> value, every searched parameter present, already snapped by the space."""


@dataclass(frozen=True)
class WeightsFrom:
    """Start a trial from another trial's weights (population based training's *exploit*).

    `epoch` is the donor's 1-based completed epoch; the new trial trains the epochs after it.
    """

    trial_id: str
    epoch: int


@dataclass(frozen=True)
class Proposal:
    """A configuration to try. `info` is JSON, journalled with the trial and given to the rule."""

    config: Config
    info: Mapping[str, Any] = field(default_factory=dict)
    start: WeightsFrom | None = None


class Wait:
    """Nothing to propose until a running trial reports: ask again after the next event."""


class Exhausted:
    """Nothing to propose ever again."""


class TrialStatus(str, Enum):
    """What a `tell` is about. RUNNING: an intermediate epoch. The others end the trial."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class Decision(str, Enum):
    """What a rule decides about a trial that has reported an epoch."""

    CONTINUE = "continue"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True)
class PastTrial:
    """A trial of an earlier search, for a warm start: one loss at one fidelity."""

    config: Config
    fidelity: int
    loss: float


@dataclass(frozen=True)
class SearchSettings:
    """What an algorithm is built from, besides its space and its own options.

    trials: number of trials, the priors included.
    max_epochs: epochs of a full training (R), or None for an action without an epoch budget.
    points: configurations to try first, in order (trial 0, the network's defaults, included).
    warm_start: results of earlier searches of the same objective, snapped to this space.
    objectives: how many losses a trial has; with more than one the proposer `SeesTradeOffs`.
    """

    trials: int
    max_epochs: int | None
    max_concurrent: int = 1
    seed: int = 0
    points: tuple[Config, ...] = ()
    warm_start: tuple[PastTrial, ...] = ()
    objectives: int = 1


@runtime_checkable
class Proposer(Protocol):
    """Says what to try next."""

    def ask(self, n_running: int) -> Proposal | Wait | Exhausted:
        """The next proposal, given `n_running` trials in flight. Pure: asking twice is harmless.

        The configuration is already snapped: what is told back later is exactly this one.
        """

    def started(self, trial_id: str, proposal: Proposal) -> None:
        """`proposal` became trial `trial_id` and runs from now on."""

    def tell(
        self, trial_id: str, config: Config, fidelity: int, loss: float | None, status: TrialStatus
    ) -> None:
        """A result.

        fidelity: completed epochs (0 for an action without epochs).
        loss: finite, by the objective's `at` rule; None exactly when the status is FAILED.
        Status RUNNING comes once per validated epoch, then one of the others once, last.
        """


@runtime_checkable
class GivesWeights(Protocol):
    """A proposer whose proposals may start from the weights of other trials."""

    def donors(self) -> list[WeightsFrom]:
        """Every checkpoint a later proposal may name. Pure.

        A checkpoint is in it as soon as its epoch was reported, and once out never in again:
        what is not in it is deleted.
        """


@runtime_checkable
class SeesTradeOffs(Protocol):
    """A proposer for more than one objective; `tell` is about the first of them."""

    def tell_others(self, trial_id: str, losses: Sequence[float]) -> None:
        """Losses of the further objectives, in their order; finite.

        Comes once per trial that has them, before its last `tell`. A trial without them counts
        as failed.
        """


@runtime_checkable
class SchedulingRule(Protocol):
    """Says which trials go on."""

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None:
        """A trial was admitted; `info` is its proposal's."""

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        """The trial completed `epoch` (1-based) with `loss`. Epochs of a trial only increase.

        PAUSE ends the job and keeps the checkpoint of this epoch; the trial waits for
        `runnable` or `losers` to name it.
        """

    def runnable(self) -> list[str]:
        """Paused trials that may go on now, most deserving first. Pure."""

    def losers(self) -> list[str]:
        """Paused trials that will never go on. Pure. Each is then reported `gone`."""

    def resumed(self, trial_id: str) -> None:
        """A trial named by `runnable` runs again."""

    def gone(self, trial_id: str) -> None:
        """The trial ended: completed, stopped, failed. Never called twice for one trial."""

    def exhausted(self) -> None:
        """No further trial will be added: rungs that wait for more members settle now.

        After this call, once no trial runs, every paused trial is in `runnable` or `losers`.
        """

    def milestones(self) -> list[int]:
        """Epochs at which this rule can pause or stop (rungs), ascending; [] if at any epoch.

        Validation and checkpoint intervals are clamped to divide them.
        """


@dataclass(frozen=True)
class Algorithm:
    """A named algorithm, ready to run."""

    name: str
    proposer: Proposer
    rule: SchedulingRule
    why: str = ""
    """One sentence for the review: what was chosen and why."""
