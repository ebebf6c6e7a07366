"""`asha`: asynchronous successive halving, stopping or promoting.

Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020. The
stopping variant decides when a trial reaches a rung and never relaunches a job; the promotion
variant of the paper pauses every trial at its rung and resumes the best third of a rung, which
spends fewer epochs and costs a job start per promotion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AliasChoices, Field, model_validator

from tao_ray.errors import TaoRayError
from tao_ray.search.base import Algorithm, Decision, SearchSettings
from tao_ray.search.options import Options, required_epochs
from tao_ray.search.rungs import floor_log, geometric_rungs
from tao_ray.search.samplers import Sampler, build_sampler

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace


class AshaOptions(Options):
    """Knobs of asynchronous successive halving."""

    min_epochs: int | None = Field(
        default=None,
        ge=1,
        validation_alias=AliasChoices("min_epochs", "grace_period"),
        description="Epochs every trial trains before it can be stopped, the lowest rung "
        "(default: max_epochs / reduction_factor**2, at least 1); `grace_period` is the same.",
    )
    reduction_factor: int = Field(
        default=3, ge=2, description="One trial in this many goes on at each rung (eta)."
    )
    brackets: int = Field(
        default=1,
        ge=1,
        description="Brackets trials are dealt to in turn; each starts one rung later.",
    )
    variant: Literal["stopping", "promotion"] = Field(
        default="stopping",
        description="stopping: a job is stopped, never relaunched; promotion: jobs pause at each "
        "rung and the best are resumed.",
    )
    sampler: Sampler = Field(default="sobol", description="Where new configurations come from.")

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and {"min_epochs", "grace_period"} <= data.keys():
            raise ValueError("min_epochs and grace_period are the same knob: give one of them")
        return data


class _Rungs:
    """The recorded losses of one bracket, per rung below a full training, in order of arrival."""

    def __init__(self, etas: Mapping[int, int]) -> None:
        self.etas = etas
        """Rung -> one trial in this many goes on."""
        self.losses: dict[int, dict[str, float]] = {e: {} for e in etas}
        self.passed: set[int] = set()
        """Rungs from which a trial has gone on (stopping variant)."""

    def record(self, trial_id: str, epoch: int, loss: float) -> int | None:
        """Note the rungs newly reached at `epoch`; the highest of them, or None."""
        reached = [e for e in self.etas if e <= epoch and trial_id not in self.losses[e]]
        for rung in reached:
            self.losses[rung][trial_id] = loss
        return reached[-1] if reached else None


def best(losses: Mapping[str, float], count: int) -> list[str]:
    """The `count` best trials, best first; equal losses in their order."""
    return sorted(losses, key=losses.__getitem__)[:count]


class _Asha:
    """What both variants share: dealing trials to brackets."""

    def __init__(self, max_epochs: int, etas: Mapping[int, int], brackets: int = 1) -> None:
        """etas: for each rung below `max_epochs`, in order, one trial in how many goes on."""
        self.max_epochs = max_epochs
        self.brackets = [_Rungs(dict(list(etas.items())[s:])) for s in range(brackets)]
        self._bracket: dict[str, _Rungs] = {}
        self._added = 0

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None:
        self._bracket[trial_id] = self.brackets[self._added % len(self.brackets)]
        self._added += 1

    def milestones(self) -> list[int]:
        return [*self.brackets[0].etas, self.max_epochs]


class StoppingAsha(_Asha):
    """A trial that reaches a rung goes on if it is among the best ``n // eta`` of the n seen
    there so far, itself included; the best one always goes on.

    Trials that run and are close to the rung count as seen, with the loss they have. Otherwise
    the first to arrive of many that run side by side would be judged against nobody. Should those
    disappoint when they arrive, the last of them goes on.
    """

    def __init__(self, max_epochs: int, etas: Mapping[int, int], brackets: int = 1) -> None:
        super().__init__(max_epochs, etas, brackets)
        self._running: dict[str, tuple[int, float]] = {}
        """Running trial -> its last epoch and loss."""

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        self._running[trial_id] = epoch, loss
        rungs = self._bracket[trial_id]
        rung = rungs.record(trial_id, epoch, loss)
        if rung is None or epoch >= self.max_epochs:
            return Decision.CONTINUE
        close = {
            other: value
            for other, (at, value) in self._running.items()
            if self._bracket[other] is rungs and 2 * rung <= 3 * at < 3 * rung
        }
        losses = {**rungs.losses[rung], **close}
        keep = max(1, len(losses) // rungs.etas[rung])
        last_chance = rung not in rungs.passed and not close
        if trial_id in best(losses, keep) or last_chance:
            rungs.passed.add(rung)
            return Decision.CONTINUE
        return Decision.STOP

    def runnable(self) -> list[str]:
        return []

    def losers(self) -> list[str]:
        return []

    def resumed(self, trial_id: str) -> None: ...

    def gone(self, trial_id: str) -> None:
        self._running.pop(trial_id, None)

    def exhausted(self) -> None: ...


class PromotionAsha(_Asha):
    """Every trial pauses at its rung; while a rung's best ``n // eta`` hold a paused trial,
    that one is promoted, highest rung first. Trials left over at the end are losers."""

    def __init__(self, max_epochs: int, etas: Mapping[int, int], brackets: int = 1) -> None:
        super().__init__(max_epochs, etas, brackets)
        self._paused: dict[str, int] = {}
        """Paused trial -> the rung it waits at."""
        self._running: set[str] = set()
        self._exhausted = False

    def add(self, trial_id: str, info: Mapping[str, Any]) -> None:
        super().add(trial_id, info)
        self._running.add(trial_id)

    def report(self, trial_id: str, epoch: int, loss: float) -> Decision:
        rungs = self._bracket[trial_id]
        rung = rungs.record(trial_id, epoch, loss)
        if rung is None or epoch >= self.max_epochs:
            return Decision.CONTINUE
        self._paused[trial_id] = rung
        self._running.discard(trial_id)
        return Decision.PAUSE

    def runnable(self) -> list[str]:
        promotable = []
        for rungs in self.brackets:
            for rung, losses in rungs.losses.items():
                promotions = self._promotions(len(losses), rungs.etas[rung])
                for trial_id in best(losses, promotions):
                    if self._paused.get(trial_id) == rung:
                        promotable.append((-rung, losses[trial_id], trial_id))
        return [trial_id for *_, trial_id in sorted(promotable)]

    def losers(self) -> list[str]:
        if not self._exhausted or self._running or self.runnable():
            return []
        return list(self._paused)

    def resumed(self, trial_id: str) -> None:
        del self._paused[trial_id]
        self._running.add(trial_id)

    def gone(self, trial_id: str) -> None:
        self._paused.pop(trial_id, None)
        self._running.discard(trial_id)

    def exhausted(self) -> None:
        self._exhausted = True

    def _promotions(self, n: int, eta: int) -> int:
        """A search too small to fill a rung still trains its best to the end."""
        return max(1, n // eta) if self._exhausted and not self._running else n // eta


def build(space: SearchSpace, settings: SearchSettings, options: AshaOptions) -> Algorithm:
    """ASHA over the sampler of `options`."""
    max_epochs = required_epochs("asha", settings)
    min_epochs = options.min_epochs or max(1, max_epochs // options.reduction_factor**2)
    rungs = geometric_rungs(min_epochs, max_epochs, options.reduction_factor)
    if options.brackets > len(rungs):
        most = floor_log(max_epochs, options.reduction_factor) + 1
        raise TaoRayError(
            f"brackets: {options.brackets}, but the rungs {list(rungs)} allow {len(rungs)}",
            where="search.options",
            remedy=f"lower brackets or min_epochs (at most {most} brackets with min_epochs 1)",
        )
    kind = StoppingAsha if options.variant == "stopping" else PromotionAsha
    etas = dict.fromkeys(rungs[:-1], options.reduction_factor)
    return Algorithm(
        "asha",
        build_sampler(options.sampler, space, settings),
        kind(max_epochs, etas, options.brackets),
        why=f"{options.variant} at epochs {', '.join(map(str, etas)) or 'none'}: the best "
        f"1 in {options.reduction_factor} goes on; configurations from {options.sampler}",
    )
