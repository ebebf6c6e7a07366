"""What a schema allows a leaf to be, and the rules it states between leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tao_ray.network.schema import DEPENDS_ON, ActionSchema, SchemaParameter, parse_math_cond
from tao_ray.network.tree import get_path
from tao_ray.space import AtMost, Constraint, GreaterThan

_CLASS_COUNT_KEYS = ("dataset.num_classes", "model.num_classes")


@dataclass(frozen=True)
class Bounds:
    """The numbers a schema allows. Unbounded sides are infinite.

    multiple: values are multiples of it. power: values are powers of it, itself the least.
    exclude: single values that are not allowed.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    multiple: int | None = None
    power: int | None = None
    exclude: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """Such as ``> 0 and <= 1``; "any number" without bounds."""
        parts = []
        if self.low > -math.inf:
            parts.append(f"{'>' if self.open_low else '>='} {self.low:g}")
        if self.high < math.inf:
            parts.append(f"{'<' if self.open_high else '<='} {self.high:g}")
        if self.multiple is not None:
            parts.append(f"a multiple of {self.multiple}")
        if self.power is not None:
            parts.append(f"a power of {self.power}")
        parts += [f"not {value:g}" for value in self.exclude]
        return " and ".join(parts) or "any number"

    def allows(self, value: float) -> bool:
        """Whether the schema takes `value`."""
        return (
            (value > self.low if self.open_low else value >= self.low)
            and (value < self.high if self.open_high else value <= self.high)
            and (self.multiple is None or value % self.multiple == 0)
            and (self.power is None or value in self.powers(value))
            and value not in self.exclude
        )

    def powers(self, high: float) -> list[int]:
        """The powers within the bounds, up to `high`."""
        found, value = [], self.power or 0
        while 1 < value <= min(high, self.high):
            if value >= self.low:
                found.append(value)
            value *= self.power or 0
        return found


def bounds_of(parameter: SchemaParameter, element: int | None = None) -> Bounds:
    """The bounds a leaf's schema states, or those of one element of a list."""
    low, open_low = _bound(parameter.minimum, element, -math.inf), False
    high, open_high = _bound(parameter.maximum, element, math.inf), False
    if parameter.exclusive_minimum is not None and parameter.exclusive_minimum >= low:
        low, open_low = parameter.exclusive_minimum, True
    if parameter.exclusive_maximum is not None and parameter.exclusive_maximum <= high:
        high, open_high = parameter.exclusive_maximum, True
    multiple = power = None
    exclude: list[float] = []
    for operator, operand in _clauses(parameter):
        if isinstance(operand, str) or (operator == "/" and parameter.parents):
            continue  # a rule between leaves: see `rules_of`
        if operator in (">", ">=") and (operand > low or (operand == low and operator == ">")):
            low, open_low = operand, operator == ">"
        elif operator in ("<", "<=") and (operand < high or (operand == high and operator == "<")):
            high, open_high = operand, operator == "<"
        elif operator == "!=":
            exclude.append(operand)
        elif operator == "/":
            multiple = int(operand)
        elif operator == "^":
            power = int(operand)
    if parameter.type == "int":  # an integer beyond an open end is one further
        if open_low and math.isfinite(low):
            low, open_low = math.floor(low) + 1, False
        if open_high and math.isfinite(high):
            high, open_high = math.ceil(high) - 1, False
    return Bounds(low, high, open_low, open_high, multiple, power, tuple(exclude))


def rules_of(schema: ActionSchema, base_spec: Mapping[str, Any]) -> Iterator[Constraint]:
    """The rules between two leaves that the schema states by ``depends_on``.

    * ``> depends_on``: above the parent.
    * ``/ n`` with a parent: at most an n-th of it.
    * ``num_select`` of detection transformers, which names its parent without a condition: at
      most the number of queries, and below queries times classes, out of which it selects.
    """
    for parameter in schema.parameters.values():
        for parent in parameter.parents:
            for operator, operand in _clauses(parameter):
                if operator == ">" and operand == DEPENDS_ON:
                    yield GreaterThan(parameter.name, parent)
                elif operator == "/" and not isinstance(operand, str):
                    yield AtMost(parameter.name, parent, factor=1 / operand)
            if parameter.name.endswith("num_select") and parent.endswith("num_queries"):
                # With two classes or more, queries * classes - 1 is never the lower limit.
                one_class = _number_of_classes(base_spec) == 1
                yield AtMost(parameter.name, parent, offset=-1 if one_class else 0)


def _number_of_classes(base_spec: Mapping[str, Any]) -> int | None:
    counts = (get_path(base_spec, key) for key in _CLASS_COUNT_KEYS)
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


def _clauses(parameter: SchemaParameter) -> list[tuple[str, float | str]]:
    return parse_math_cond(parameter.math_cond) if parameter.math_cond else []


def _bound(bound: Any, element: int | None, unbounded: float) -> float:
    if isinstance(bound, tuple):
        bound = bound[element] if element is not None and element < len(bound) else None
    return unbounded if bound is None else bound
