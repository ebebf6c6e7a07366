"""`auto`: the default. Chooses its parts from trials, epochs and slots, and says so.

The network's defaults first, then a few Sobol points, then the learning-curve model
(`curve_model`), which was the best of those compared in docs/benchmarks.md. Where trainings have
epochs to save, asynchronous successive halving stops the worse ones after a third of a full
training - later than ASHA's habit, because a model that has seen a third of each curve predicts
well, and because rankings of very young trainings mislead. Of those left, the worse half stops
midway to the end: of many trainings side by side only the best are worth their last epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import Field

from tao_ray.search.asha import StoppingAsha
from tao_ray.search.base import Algorithm, SchedulingRule, SearchSettings
from tao_ray.search.curve_model import CurveModelProposer
from tao_ray.search.fifo import RunToEnd
from tao_ray.search.options import Options
from tao_ray.search.rungs import ceil_div, geometric_rungs

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

_REDUCTION = 3
_LATE_REDUCTION = 2
_LEAST_GRACE = 3


class AutoOptions(Options):
    """Knobs of the default."""

    early_stopping: bool = Field(
        default=True,
        description="Stop the worse trainings early. False where starting, validating or saving "
        "takes longer than an epoch.",
    )
    initial: int | None = Field(
        default=None,
        ge=1,
        description="Trials before the model is used, the first points included (default: a "
        "half of the trials, at least 4 and at most 8; and as many as run at once).",
    )
    min_epochs: int | None = Field(
        default=None,
        ge=1,
        description="Epochs every trial trains before it can be stopped (default: a third of a "
        "full training, at least 3).",
    )


def build(space: SearchSpace, settings: SearchSettings, options: AutoOptions) -> Algorithm:
    """The default algorithm, with its choices explained."""
    # What starts before anything is known may as well cover the space.
    covering = max(min(8, max(4, settings.trials // 2)), settings.max_concurrent)
    initial = options.initial or min(covering, settings.trials)
    rule, readings, stopping = _rule(settings.max_epochs, options)
    max_epochs = settings.max_epochs or 1
    proposer = CurveModelProposer(
        space,
        settings,
        max_epochs=max_epochs,
        initial=initial,
        rungs=readings,
        between=_between(readings),
    )
    first = "the defaults first, " if settings.points else ""
    return Algorithm(
        "auto",
        proposer,
        rule,
        why=f"{first}{initial} trials that cover the space, then expected improvement by a "
        f"learning-curve model; {stopping}",
    )


def _rule(
    max_epochs: int | None, options: AutoOptions
) -> tuple[SchedulingRule, Sequence[int], str]:
    """The scheduling rule, where the model reads curves, and why the rule is this one."""
    if max_epochs is None:
        return RunToEnd(), (), "no early stopping, for the action has no epochs"
    if not options.early_stopping:
        return RunToEnd(), (), "no early stopping, as asked"
    grace = options.min_epochs or max(_LEAST_GRACE, ceil_div(max_epochs, _REDUCTION))
    rungs = geometric_rungs(grace, max_epochs, _REDUCTION)
    if len(rungs) == 1:
        return RunToEnd(), (), f"no early stopping, for {max_epochs} epochs are too few"
    etas = _etas(rungs)
    stops = ", ".join(f"1 in {eta} after epoch {epoch}" for epoch, eta in etas.items())
    # Curves are not read midway: with more readings the model found less on the real network.
    return StoppingAsha(max_epochs, etas), rungs, f"the best seen so far go on: {stops}"


def _etas(rungs: Sequence[int]) -> dict[int, int]:
    """For each rung, one trial in how many goes on; with one more rung midway (by the logarithm)
    between the last of `rungs` and the full training they end with."""
    *below, full = rungs
    etas = dict.fromkeys(below, _REDUCTION)
    etas.setdefault(round(math.sqrt(below[-1] * full)), _LATE_REDUCTION)
    return etas


def _between(rungs: Sequence[int]) -> list[int]:
    """Where the model reads curves besides the rungs while no training has ended: at a third of
    the first rung, and twice between that and it and between all rungs."""
    stretches = pairwise([max(1, rungs[0] // _REDUCTION), *rungs]) if rungs else ()
    return sorted({low + k * (high - low) // 3 for low, high in stretches for k in range(3)})
