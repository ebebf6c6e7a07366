"""Ranges that the user gives, checked against what the schema allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tao_ray.config.search import ParameterRange
from tao_ray.errors import TaoRayError
from tao_ray.network.bounds import Bounds, bounds_of
from tao_ray.network.draft import (
    Draft,
    align,
    are_numbers,
    draft_from_schema,
    sort_options,
)
from tao_ray.network.range_rules import WIDE, is_learning_rate, is_weight_decay
from tao_ray.network.schema import SchemaParameter


class RangeError(TaoRayError):
    """A range that cannot be searched; `where` is its key in the user's configuration."""

    def __init__(self, name: str, message: str, remedy: str):
        super().__init__(message, where=f"search.parameters.{name}", remedy=remedy)


def draft_from_user(
    name: str,
    wanted: ParameterRange,
    parameter: SchemaParameter | None,
    element: int | None,
    default: Any,
    epochs: int | None,
) -> list[Draft]:
    """What the user asked for; what was left unsaid comes from the rules of the defaults.

    parameter: the schema's leaf, or None where no schema knows the key. element: its element
    that `name` is, for lists. default: the base spec's value or the schema's, None if unknown.

    Raises:
        RangeError: not within the schema's bounds or options, or not enough to search.
    """
    if wanted.options is not None:
        return [_from_options(name, wanted, parameter, element, default)]
    given = any(v is not None for v in (wanted.min, wanted.max, wanted.step, wanted.scale))
    proposal: list[Draft] | str = "no schema says what it may be"
    if parameter is not None and element is None:
        proposal = draft_from_schema(parameter, default, epochs)
    if not given:
        if isinstance(proposal, str):
            raise RangeError(
                name, f"an empty range, and {proposal}", "give min and max, or options"
            )
        return proposal
    kind = parameter.type if parameter is not None and element is None else None
    allowed = list(parameter.enum or ()) if parameter is not None else []
    if allowed and are_numbers(allowed) and not isinstance(proposal, str):
        return [_within_enum(proposal[0], wanted)]
    if kind in ("bool", "string", "categorical") or allowed:
        raise RangeError(
            name,
            f"it is a {kind}, which has no min and max",
            f"give options, a list out of {allowed}" if allowed else "give options: [...]",
        )
    if (kind is not None and "list" in kind) or isinstance(default, list):
        raise RangeError(
            name,
            "it is a list, which has no min and max",
            f"give options, a list of lists, or ranges for its elements: {name}[0]",
        )
    bounds = bounds_of(parameter, element) if parameter is not None else Bounds()
    start = proposal[0] if isinstance(proposal, list) else None
    return [_from_interval(name, wanted, bounds, kind, default, start)]


def _from_interval(
    name: str,
    wanted: ParameterRange,
    bounds: Bounds,
    kind: str | None,
    default: Any,
    start: Draft | None,
) -> Draft:
    default = default if default is not None and are_numbers([default]) else None
    given = [v for v in (wanted.min, wanted.max, wanted.step) if v is not None]
    if kind == "int":
        whole = True
    elif kind == "float":
        whole = False
    else:
        whole = all(isinstance(v, int) for v in [*given, *([] if default is None else [default])])
    if whole and not all(float(v).is_integer() for v in given):
        raise RangeError(
            name, f"it takes whole numbers, not {given}", "give whole numbers for min, max and step"
        )
    low = _end(name, "min", wanted.min, bounds, bounds.low, start and start.low)
    high = _end(name, "max", wanted.max, bounds, bounds.high, start and start.high)
    if low >= high:
        raise RangeError(
            name, f"nothing lies between {low:g} and {high:g}", "give both min and max"
        )
    log, why = _scale(name, wanted, low, high, start)
    convert: Callable[[Any], Any] = int if whole else float
    draft = Draft(
        name,
        None if default is None else convert(default),
        f"your range{why}",
        whole=whole,
        low=convert(low),
        high=convert(high),
        log=log,
        step=None if wanted.step is None else convert(wanted.step),
        open_low=bounds.open_low and low == bounds.low,
        open_high=bounds.open_high and high == bounds.high,
        exclude=bounds.exclude,
    )
    if bounds.power is not None:
        draft.options, draft.ordered = tuple(p for p in bounds.powers(high) if p >= low), True
        draft.origin = f"powers of {bounds.power} in your range"
        if not draft.options:
            raise RangeError(name, f"no power of {bounds.power} is in it", "widen the range")
    if bounds.multiple is not None:
        if draft.step is not None and draft.step % bounds.multiple:
            raise RangeError(
                name,
                f"a step of {draft.step:g} leaves the multiples of {bounds.multiple} that the "
                "schema asks for",
                f"give a multiple of {bounds.multiple}, or no step",
            )
        step = draft.step
        align(draft, bounds.multiple)
        draft.step = step or draft.step
        draft.origin = f"multiples of {bounds.multiple} in your range"
        if draft.low >= draft.high:
            raise RangeError(
                name, f"fewer than two multiples of {bounds.multiple} are in it", "widen the range"
            )
    return draft


def _end(
    name: str, side: str, value: float | None, bounds: Bounds, bound: float, proposed: Any
) -> float:
    """One end of the interval: the user's, else the proposal's, else the schema's."""
    if value is None:
        if proposed is not None:
            return float(proposed)
        if math.isfinite(bound):
            return bound
        raise RangeError(name, f"there is no {side}, and the schema has none", f"give {side}")
    if not bounds.low <= value <= bounds.high:
        raise RangeError(
            name,
            f"{side} is {value:g}, but the schema takes {bounds.text}",
            f"choose a {side} that is {bounds.text}",
        )
    return value


def _scale(
    name: str, wanted: ParameterRange, low: float, high: float, start: Draft | None
) -> tuple[bool, str]:
    if wanted.scale is not None:
        return wanted.scale == "log", f", {wanted.scale} scale"
    if wanted.step is not None or low <= 0:
        return False, ", linear scale"
    if is_learning_rate(name) or is_weight_decay(name):
        return True, ", log scale as for any learning rate or weight decay"
    if high / low > WIDE:
        return True, f", log scale because its ends are more than {WIDE}x apart"
    if wanted.min is None and wanted.max is None and start is not None and start.log:
        return True, ", log scale"
    return False, ", linear scale"


def _within_enum(draft: Draft, wanted: ParameterRange) -> Draft:
    low = -math.inf if wanted.min is None else wanted.min
    high = math.inf if wanted.max is None else wanted.max
    options = draft.options or ()
    if wanted.step is not None or wanted.scale is not None:
        raise RangeError(
            draft.name,
            f"it is one of {list(options)}, which have no step or scale",
            "give min and max, or options",
        )
    if not draft.narrow(low, high):
        raise RangeError(
            draft.name,
            f"none of the schema's {list(options)} is between {low:g} and {high:g}",
            "give min and max that hold some of them, or options",
        )
    draft.origin = "the schema's options in your range"
    return draft


def _from_options(
    name: str,
    wanted: ParameterRange,
    parameter: SchemaParameter | None,
    element: int | None,
    default: Any,
) -> Draft:
    options, kind = list(wanted.options or ()), None
    if parameter is not None and element is None:
        kind = parameter.type
    for position, option in enumerate(options):
        options[position] = _checked_option(name, option, kind, parameter, element)
    weights = [1.0] * len(options) if wanted.weights is None else list(wanted.weights)
    kept = [i for i, weight in enumerate(weights) if weight > 0]
    draft = Draft(
        name,
        default,
        "your options" + (" with your weights" if wanted.weights else ""),
        options=tuple(options[i] for i in kept),
        weights=tuple(weights[i] for i in kept) if wanted.weights else None,
    )
    if are_numbers(options):
        if default is not None and not are_numbers([default]):
            draft.default = None
        sort_options(draft)
    return draft


def _checked_option(
    name: str, option: Any, kind: str | None, parameter: SchemaParameter | None, element: int | None
) -> Any:
    """`option` as the schema's type takes it."""
    if parameter is None:
        return option
    remedy = "leave it out of options"
    if parameter.enum and (kind is None or "list" not in kind):
        for allowed in parameter.enum:
            if allowed == option and isinstance(allowed, bool) == isinstance(option, bool):
                return allowed
        raise RangeError(
            name, f"{option!r} is not one of the schema's {list(parameter.enum)}", remedy
        )
    if kind == "bool" and not isinstance(option, bool):
        raise RangeError(name, f"{option!r} is not true or false", remedy)
    if kind == "string" and not isinstance(option, str):
        raise RangeError(name, f"{option!r} is not text", "put it in quotes")
    if kind is not None and "list" in kind and not isinstance(option, list):
        raise RangeError(name, f"{option!r} is not a list", "give options as a list of lists")
    if kind in ("int", "float"):
        if not are_numbers([option]) or (kind == "int" and option != int(option)):
            wanted = "a whole number" if kind == "int" else "a number"
            raise RangeError(name, f"{option!r} is not {wanted}", remedy)
        bounds = bounds_of(parameter, element)
        if not bounds.allows(option):
            raise RangeError(
                name, f"{option!r} is not allowed: the schema takes {bounds.text}", remedy
            )
        return int(option) if kind == "int" else float(option)
    return option
