"""A parameter of a search space in the making: its range may still be narrowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tao_ray.network.bounds import Bounds, bounds_of
from tao_ray.network.range_rules import counts_epochs, leaf, propose
from tao_ray.network.schema import SchemaParameter
from tao_ray.space import Categorical, Float, Integer, Ordered, Parameter

NEEDS_RANGE = "needs a range of your own"


@dataclass
class Draft:
    """What `build` makes a parameter from, and where it came from.

    default: the value the base spec or the schema gives, or None if there is none; it may lie
        outside a range that the user gave. options: instead of low and high. whole: integers.
    """

    name: str
    default: Any
    origin: str
    whole: bool = False
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    open_low: bool = False
    open_high: bool = False
    exclude: tuple[float, ...] = ()
    options: tuple[Any, ...] | None = None
    weights: tuple[float, ...] | None = None
    ordered: bool = False

    def build(self) -> Parameter:
        """The parameter; a default outside the range becomes the nearest value inside.

        Raises:
            SpaceError: the range is empty.
        """
        if self.options is not None:
            return self._choices(self.options)
        middle = self._number(None)
        if self.default is None:
            return middle
        inside = self.low <= self.default <= self.high
        return self._number(self.default if inside else middle.snap(self.default))

    def _number(self, default: Any) -> Parameter:
        if self.whole:
            return Integer(
                self.name,
                int(self.low),
                int(self.high),
                log=self.log,
                step=self.step,
                default=default,
                exclude=self.exclude,
            )
        return Float(
            self.name,
            self.low,
            self.high,
            log=self.log,
            step=self.step,
            default=default,
            exclude=self.exclude,
            open_low=self.open_low,
            open_high=self.open_high,
        )

    def narrow(self, low: float = -math.inf, high: float = math.inf) -> bool:
        """Cut the range to [low, high]; False, and nothing done, if that leaves no two values."""
        if self.options is not None:
            return self._narrow_options(low, high)
        step = self.step or (1 if self.whole else 0)
        new_low, new_high = max(low, self.low), min(high, self.high)
        if self.whole:
            new_low, new_high = math.ceil(new_low), math.floor(new_high)
        if step:  # keep the grid
            new_low = self.low + math.ceil((new_low - self.low) / step - 1e-9) * step
        if new_low + step > new_high or new_low >= new_high:
            return False
        self.open_low = self.open_low and new_low == self.low
        self.open_high = self.open_high and new_high == self.high
        self.low, self.high = new_low, new_high
        return True

    def _narrow_options(self, low: float, high: float) -> bool:
        options = self.options or ()
        kept = [i for i, option in enumerate(options) if low <= option <= high]
        if kept:
            self.options = tuple(options[i] for i in kept)
            self.weights = self.weights and tuple(self.weights[i] for i in kept)
        return bool(kept)

    def _choices(self, options: tuple[Any, ...]) -> Parameter:
        if not self.ordered:
            known = any(
                o == self.default and isinstance(o, bool) == isinstance(self.default, bool)
                for o in options
            )
            return Categorical(
                self.name, options, self.weights, self.default if known else options[0]
            )
        start = options[len(options) // 2]
        if self.default is not None:
            start = min(options, key=lambda option: abs(option - self.default))
        return Ordered(self.name, options, self.weights, start)


def draft_from_schema(
    parameter: SchemaParameter, default: Any, epochs: int | None
) -> list[Draft] | str:
    """The range of a parameter that a package offers, or why there is none.

    A list of numbers becomes one draft per element (`parameter.name[i]`).
    epochs: the length of a full training, if known.
    """
    if parameter.type == "bool":
        if not isinstance(default, bool):
            return f"{NEEDS_RANGE}: its default is {default!r}"
        return [Draft(parameter.name, default, "on or off", options=(False, True))]
    if parameter.enum and "list" not in parameter.type:
        return _from_enum(parameter, default)
    if "list" in parameter.type or isinstance(default, list):
        return _from_list(parameter, default, epochs)
    if parameter.type not in ("int", "float", "any"):
        return f"{NEEDS_RANGE}: it is a {parameter.type} without a list of options"
    draft = _from_number(
        parameter.name, default, bounds_of(parameter), parameter.type == "int", epochs
    )
    return draft if isinstance(draft, str) else [draft]


def _from_enum(parameter: SchemaParameter, default: Any) -> list[Draft] | str:
    options = parameter.enum or ()
    if default not in options:
        return f"{NEEDS_RANGE}: its default {default!r} is none of the schema's {list(options)}"
    weights = parameter.option_weights or (1.0,) * len(options)
    kept = [i for i, w in enumerate(weights) if w > 0 or options[i] == default]
    floor = min((w for w in weights if w > 0), default=1.0)  # for a default that weighs nothing
    draft = Draft(
        parameter.name,
        default,
        f"the schema's options {', '.join(map(str, options))}",
        options=tuple(options[i] for i in kept),
        weights=tuple(weights[i] or floor for i in kept) if parameter.option_weights else None,
    )
    if draft.weights:
        draft.origin += f" with its weights {', '.join(f'{w:g}' for w in weights)}"
    if are_numbers(draft.options or ()):
        sort_options(draft)
    return [draft]


def sort_options(draft: Draft) -> None:
    """Make numeric options an ordered parameter, weights going along."""
    options = draft.options or ()
    order = sorted(range(len(options)), key=options.__getitem__)
    draft.options = tuple(options[i] for i in order)
    draft.weights = draft.weights and tuple(draft.weights[i] for i in order)
    draft.ordered = True


def are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _from_list(parameter: SchemaParameter, default: Any, epochs: int | None) -> list[Draft] | str:
    """One draft per element where the schema bounds the elements or their name says enough."""
    if not isinstance(default, list) or not default or not are_numbers(default):
        return f"{NEEDS_RANGE}: it is a list, {default!r}; give options"
    whole = all(isinstance(v, int) for v in default)
    is_known = counts_epochs(parameter.name) or leaf(parameter.name).endswith("betas")
    drafts = []
    for i, value in enumerate(default):
        bounds = bounds_of(parameter, i)
        if not is_known and not (math.isfinite(bounds.low) and math.isfinite(bounds.high)):
            return f"{NEEDS_RANGE}: it is a list whose elements have no bounds; give options"
        draft = _from_number(f"{parameter.name}[{i}]", value, bounds, whole, epochs)
        if isinstance(draft, str):
            return draft
        drafts.append(draft)
    return drafts


def _from_number(
    name: str, default: Any, bounds: Bounds, whole: bool, epochs: int | None
) -> Draft | str:
    if default is None:
        return f"{NEEDS_RANGE}: neither the base spec nor the schema has a default"
    if not are_numbers([default]) or not math.isfinite(default):
        return f"{NEEDS_RANGE}: its default is {default!r}"
    if whole and default != int(default):
        return f"{NEEDS_RANGE}: its default {default!r} is not a whole number"
    default = int(default) if whole else float(default)
    if bounds.power is not None:
        return _from_powers(name, default, bounds)
    at_open_end = (bounds.open_low and default == bounds.low) or (
        bounds.open_high and default == bounds.high
    )
    if not bounds.low <= default <= bounds.high and not at_open_end:
        return f"{NEEDS_RANGE}: its default {default:g} is not {bounds.text}, as the schema says"
    found = propose(name, default, bounds, whole=whole, epochs=epochs)
    if isinstance(found, str):
        return f"{NEEDS_RANGE}: {found}"
    draft = Draft(
        name,
        default,
        ("log scale, " if found.log else "") + found.why,
        whole=whole,
        low=found.low,
        high=found.high,
        log=found.log,
        open_low=found.open_low,
        open_high=found.open_high,
        exclude=bounds.exclude,
    )
    if bounds.multiple is not None:
        align(draft, bounds.multiple)
        if not draft.low <= default <= draft.high:
            return f"{NEEDS_RANGE}: no {bounds.text} is at or below its default {default:g}"
    if draft.low >= draft.high:
        return f"its only value is {default:g}"
    return draft


def align(draft: Draft, multiple: int) -> None:
    """Search multiples only, linearly: of the range, and the default as it is."""
    draft.low = math.ceil(draft.low / multiple) * multiple
    draft.high = math.floor(draft.high / multiple) * multiple
    if draft.default is not None and draft.default > draft.high:
        draft.high = draft.default
    draft.step, draft.log = multiple, False
    draft.open_low = draft.open_high = False
    if draft.high - draft.low < multiple:
        draft.high = draft.low


def _from_powers(name: str, default: float, bounds: Bounds) -> Draft | str:
    powers = bounds.powers(bounds.high if math.isfinite(bounds.high) else default * 4)
    if not powers:
        return f"{NEEDS_RANGE}: the schema leaves no power of {bounds.power}"
    options = tuple(sorted({*powers, default}))
    origin = f"powers of {bounds.power}; the schema takes {bounds.text}"
    return Draft(name, default, origin, options=options, ordered=True)
