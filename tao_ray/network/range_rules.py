"""Ranges worth searching, from a parameter's name, bounds and default.

A schema's bounds say what a network accepts, not what is sensible: a learning rate between 0 and
1 is legal and hopeless. The rules here narrow the bounds around the default by what the name
means. They know names, never networks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tao_ray.network.bounds import Bounds
from tao_ray.network.conventions import Conventions
from tao_ray.network.tree import get_path

WIDE = 100
"""A positive range whose ends differ by more than this factor is searched on a log scale."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_A_RATE = _words(
    "decay mult multiplier step steps factor ratio scheduler policy gamma warmup power epoch "
    "epochs monitor patience scale size proj"
)
_NO_EFFECT = _words("workers prefetch pin persistent")
_BOOKKEEPING = _words("seed interval gpus gpu nodes checkpointer verbose")
_NOT_TRAINING = _words("val validation test infer inference eval evaluation evaluate calibration")
_AS_STATED = "the schema's bounds"
_OPTIMIZER_KEYS = ("optimizer", "optim", "optimizer_type", "optim_type", "name", "type")
_SCHEDULER_KEYS = ("lr_scheduler", "scheduler", "policy")


@dataclass(frozen=True)
class Range:
    """A proposal. `why` is one sentence part: where it came from."""

    low: float
    high: float
    log: bool
    why: str
    open_low: bool = False
    open_high: bool = False


def leaf(name: str) -> str:
    """The last key of a dotted name, without an index."""
    return re.sub(r"(\[\d+\])+$", "", name.rsplit(".", 1)[-1])


def tokens(name: str) -> set[str]:
    """The words of the last key: ``train.optim.lr_backbone`` -> lr, backbone."""
    return set(re.split(r"[_\-]+", leaf(name).casefold()))


def is_learning_rate(name: str) -> bool:
    """Whether the name is that of a learning rate itself, not of its schedule or a multiplier."""
    words = tokens(name)
    return bool({"lr"} & words or {"learning", "rate"} <= words) and not words & _NOT_A_RATE


def is_weight_decay(name: str) -> bool:
    words = tokens(name)
    return {"weight", "decay"} <= words or "wd" in words


def is_batch_size(name: str) -> bool:
    return {"batch", "size"} <= tokens(name)


def counts_epochs(name: str) -> bool:
    """Whether the value is a point or a length in epochs: decay steps, warm-up."""
    key = leaf(name).casefold()
    return key in ("lr_steps", "lr_step_size", "milestones") or bool(
        {"epoch", "epochs"} & tokens(name)
    )


def reason_to_leave_out(
    name: str,
    conventions: Conventions,
    base_spec: Mapping[str, Any],
    tasks: Sequence[Any] = (),
) -> str | None:
    """Why a parameter that a package offers is not worth a search, or None if it is.

    tasks: the values the schema allows for the spec's key `task`, if it has one.
    """
    words = tokens(name)
    if name in (*conventions.epoch_keys, *conventions.step_cap_keys):
        return "it is the length of a training, which search.max_epochs sets"
    if words & _NO_EFFECT:
        return "it changes the speed of loading data, not what is learned"
    if words & _BOOKKEEPING:
        return "it is no hyperparameter"
    path = name.casefold().split(".")
    outside = set(re.split(r"[_\-.\[\]]+", ".".join(path[:-1])))
    if "augmentation" in " ".join(path[:-1]):
        outside |= words
    if outside & _NOT_TRAINING:
        return "it concerns data that is not trained on"
    return _other_task(path, base_spec.get("task"), tasks) or _no_effect_beside(name, base_spec)


def _other_task(path: list[str], task: Any, tasks: Sequence[Any]) -> str | None:
    """Networks with several tasks keep a block for each, named like the task."""
    block = next((key for key in path[:-1] if key in tasks), task)
    if task not in tasks or block == task:
        return None
    return f"it belongs to the task {block}, and the spec's task is {task}"


def _no_effect_beside(name: str, base_spec: Mapping[str, Any]) -> str | None:
    """Why the choices made beside it in the spec leave the parameter without effect."""
    siblings = get_path(base_spec, name.rsplit(".", 1)[0]) if "." in name else base_spec
    if not isinstance(siblings, Mapping):
        return None

    def chosen(keys: tuple[str, ...]) -> str:
        return next((s for k in keys if isinstance(s := siblings.get(k), str)), "")

    optimizer, scheduler = chosen(_OPTIMIZER_KEYS), chosen(_SCHEDULER_KEYS)
    key = leaf(name).casefold()
    if key == "momentum" and re.match(r"adam|adadelta|adagrad|lamb", optimizer, re.IGNORECASE):
        return f"the spec's optimizer is {optimizer}, which has no momentum"
    if key == "lr_step_size" and scheduler.casefold().startswith("multistep"):
        return f"the spec's schedule is {scheduler}, which steps at lr_steps"
    if key == "lr_steps" and scheduler.casefold() in ("step", "steplr"):
        return f"the spec's schedule is {scheduler}, which steps every lr_step_size"
    return None


def propose(
    name: str, default: float, bounds: Bounds, *, whole: bool, epochs: int | None
) -> Range | str:
    """The range to search around `default`, or why there is none without a user's word.

    whole: the parameter takes integers. epochs: the length of a full training, if known.
    The default is always inside; where it breaks the bounds itself, the range reaches to it.
    """
    found = _by_name(name, default, bounds, epochs) or _by_bounds(default, bounds, whole)
    return found if isinstance(found, str) else _fitted(found, default, bounds, whole)


def _by_name(name: str, default: float, bounds: Bounds, epochs: int | None) -> Range | str | None:
    words = tokens(name)
    if is_learning_rate(name):
        if default <= 0:
            return "the default is not positive, so a learning rate has no anchor"
        # A rate above 1 is rare (Adadelta, LARS): beyond it no further than twice the default.
        high = min(default * 100, max(1.0, default * 2))
        return Range(default / 100, high, True, f"within 100x of the default {default:g}")
    if is_weight_decay(name):
        if default > 0:
            high = min(default * 100, 1.0)
            return Range(default / 100, high, True, f"within 100x of the default {default:g}")
        return Range(0.0, min(bounds.high, 0.1), False, "weight decay from none upwards")
    if counts_epochs(name):
        return _epoch_range(default, epochs)
    if is_batch_size(name) and bounds.low > 0 and math.isfinite(bounds.high):
        return Range(bounds.low, bounds.high, True, _AS_STATED)
    if 0 < default < 1 and words & {"momentum", "beta", "betas", "ema"}:
        return _near_one(default)
    if bounds.low >= 0 and bounds.high <= 1:
        if words & {"drop", "dropout"}:
            return Range(0.0, 0.5, False, "dropout up to a half")
        if "smoothing" in words:
            return Range(0.0, 0.3, False, "label smoothing up to 0.3")
        if {"layer", "decay"} <= words:
            return Range(0.5, 1.0, False, "layer-wise decay from a half to none")
    if words & {"mult", "multiplier"} and default > 0:
        return Range(default / 10, default * 10, True, f"within 10x of the default {default:g}")
    return None


def _near_one(default: float) -> Range:
    """Averages over 1 / (1 - value) steps: that span is what matters, within 5x."""
    distance = 1 - default
    return Range(
        max(0.0, 1 - 5 * distance),
        1 - distance / 5,
        False,
        f"averages 5x shorter to 5x longer than the default {default:g}",
    )


def _epoch_range(default: float, epochs: int | None) -> Range | str:
    if default <= 0:
        return "the default is not positive, so the range has no anchor"
    low, high, why = default / 2, default * 2, f"within 2x of the default {default:g}"
    if epochs is not None and high > epochs:
        low, high = min(low, max(1.0, epochs / 2)), max(default, float(epochs))
        why += f", no later than the {epochs} epochs of a training"
    return Range(low, high, True, why)


def _by_bounds(default: float, bounds: Bounds, whole: bool) -> Range | str:
    low, high = bounds.low, bounds.high
    if math.isfinite(low) and math.isfinite(high):
        if low > 0 and high / low > WIDE:
            return Range(
                max(low, default / 10) if default > 0 else low,
                min(high, default * 10) if default > 0 else high,
                True,
                f"within 10x of the default {default:g}",
            )
        return Range(low, high, False, _AS_STATED)
    if default <= 0:
        return f"the schema leaves a side open and the default is {default:g}"
    factor = 2 if whole else 10
    return Range(
        default / factor, default * factor, True, f"within {factor}x of the default {default:g}"
    )


def _fitted(found: Range, default: float, bounds: Bounds, whole: bool) -> Range:
    """`found` inside the bounds, on whole numbers, and around the default."""
    # Six digits: 100 * 1e-6 is 9.999999999999999e-05 otherwise.
    low = max(float(f"{found.low:.6g}"), bounds.low)
    high = min(float(f"{found.high:.6g}"), bounds.high)
    if whole:
        low, high = math.ceil(low), math.floor(high)
    why = found.why
    if why != _AS_STATED and bounds.text != "any number":
        why += f"; the schema takes {bounds.text}"
    elif bounds.text != "any number":
        why += f": {bounds.text}"
    open_low = bounds.open_low and low == bounds.low
    open_high = bounds.open_high and high == bounds.high
    if default < low or (open_low and default == low):
        low, open_low = default, False
        why += f"; reaches down to the default {default:g}"
    if default > high or (open_high and default == high):
        high, open_high = default, False
        why += f"; reaches up to the default {default:g}"
    log = found.log and low > 0
    return replace(
        found, low=low, high=high, log=log, why=why, open_low=open_low, open_high=open_high
    )
