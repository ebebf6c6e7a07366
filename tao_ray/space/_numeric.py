"""Floats and integers on an interval.

Valid values form a grid, so that a value survives the way through the unit cube unchanged and a
spec stays readable: multiples of the step if there is one, else integers, else floats of six
significant digits (of the interval's length on a linear scale, of the value on a log scale). The
default is valid as it is, on the grid or not.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tao_ray.space._parameter import Parameter, SpaceError, as_number

_DIGITS = 6
_SAME = 1e-12
"""Two values closer than this in the unit interval are one: far below the grid, above rounding."""


@dataclass(frozen=True)
class _Numeric(Parameter):
    """What floats and integers share: a monotone map of [low, high] onto the unit interval."""

    name: str
    low: float
    high: float
    log: bool = False
    step: float | None = None
    default: Any = None
    exclude: tuple[float, ...] = ()
    _start: float = field(init=False, repr=False, compare=False, default=0.0)
    _length: float = field(init=False, repr=False, compare=False, default=1.0)
    _anchor: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise SpaceError(
                f"the range {self.low:g} to {self.high:g} is not an interval",
                where=self.name,
                remedy="give a finite min below a finite max; fix a single value by an override",
            )
        if self.log and self.low <= 0:
            raise SpaceError(
                f"a log scale cannot start at {self.low:g}",
                where=self.name,
                remedy="give a min above 0, or scale: linear",
            )
        if self.step is not None and (self.log or not 0 < self.step <= self.high - self.low):
            raise SpaceError(
                f"a step of {self.step:g} does not divide {self.low:g} to {self.high:g}"
                + (" on a log scale" if self.log else ""),
                where=self.name,
                remedy="give a positive step smaller than max - min and a linear scale, or none",
            )
        self._set("_start", self._ends()[0])
        self._set("_length", self._ends()[1] - self._start)
        if self.default is None:
            self._set("default", self.from_unit(0.5))
        elif not self.low <= self.default <= self.high:
            raise SpaceError(
                f"the default {self.default:g} is outside {self.low:g} to {self.high:g}",
                where=self.name,
                remedy="widen the range to include the default",
            )
        elif self.default != self._on_grid(self.default):
            self._set("_anchor", self.default)

    def snap(self, value: Any) -> Any:
        number = self._clipped(value)
        rounded = self._on_grid(number)
        if self._anchor is not None and (self._is_anchor(number) or self._is_anchor(rounded)):
            return self._anchor
        return rounded

    def problem(self, value: Any) -> str | None:
        try:
            nearest = self.snap(value)
        except SpaceError as error:
            return error.message
        if not self.low <= value <= self.high:
            return f"{value!r} is outside {self.low:g} to {self.high:g}"
        if nearest != value or type(nearest) is not type(value):
            return f"{value!r} is not a valid value; the nearest is {nearest!r}"
        return None

    def nearest(self, value: Any, low: float, high: float) -> Any | None:
        within = min(max(value, low), high)
        found = self.snap(min(max(within, self.low), self.high))
        if found < low:
            found = self.snap(self._neighbour(found, up=True))
        elif found > high:
            found = self.snap(self._neighbour(found, up=False))
        if low <= found <= high:
            return found
        return self._anchor if self._anchor is not None and low <= self._anchor <= high else None

    def to_unit(self, value: Any) -> float:
        u = (self._scaled(value) - self._start) / self._length
        return min(max(u, 0.0), 1.0)

    def from_unit(self, u: float) -> Any:
        scaled = self._start + min(max(u, 0.0), 1.0) * self._length
        return self.snap(math.exp(scaled) if self.log else scaled)

    @abstractmethod
    def _ends(self) -> tuple[float, float]:
        """The scaled values at unit 0 and 1."""

    @abstractmethod
    def _on_grid(self, value: float) -> Any:
        """The nearest value of the grid."""

    @abstractmethod
    def _neighbour(self, value: Any, *, up: bool) -> Any:
        """The next value of the grid above or below one of it, unbounded."""

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else float(value)

    def _is_anchor(self, value: float) -> bool:
        return abs(self.to_unit(value) - self.to_unit(self._anchor)) <= _SAME

    def _beside_excluded(self, value: Any) -> Any:
        """`value`, or the next one that is not excluded."""
        for up in (True, False):
            found = value
            while found in self.exclude:
                found = self._neighbour(found, up=up)
            if self.low <= found <= self.high:
                return found
        raise SpaceError("every value of the range is excluded", where=self.name)

    def _clipped(self, value: Any) -> float:
        """`value` within the range: a log scale knows no number at or below zero."""
        # A plain float is the common case, and this is the inner loop of sampling.
        number = value if type(value) is float else as_number(value, self.name)
        if not math.isfinite(number):
            raise SpaceError(f"{number!r} is not finite", where=self.name)
        return min(max(number, self.low), self.high)

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)


@dataclass(frozen=True)
class Float(_Numeric):
    """A float in [low, high], an open end excluded.

    log: the prior is uniform in log(value). step: valid values are low + k * step.
    default: any value in range; None takes the middle (geometric on a log scale).
    exclude: single values that are not valid.
    """

    kind: ClassVar[str] = "float"
    open_low: bool = False
    open_high: bool = False
    _decimals: int = field(init=False, repr=False, compare=False, default=_DIGITS)
    _first: float = field(init=False, repr=False, compare=False, default=0.0)
    _last: float = field(init=False, repr=False, compare=False, default=1.0)

    def __post_init__(self) -> None:
        for attribute in ("low", "high", "default"):
            value = getattr(self, attribute)
            self._set(attribute, None if value is None else float(value))
        if -math.inf < self.low < self.high < math.inf:
            largest = max(abs(self.low), abs(self.high))
            by_length = _DIGITS - math.floor(math.log10(self.high - self.low))
            self._set("_decimals", min(by_length, 14 - math.ceil(math.log10(largest))))
        first, last = self.low, self.high
        if self.step is not None and self.step > 0:
            steps = math.floor((last - first) / self.step + 1e-9)
            last = min(self._tidy(first + steps * self.step), last)
        if self.open_low and first <= self.low:
            first = self._neighbour(first, up=True)
        if self.open_high and last >= self.high:
            last = self._neighbour(last, up=False)
        self._set("_first", first)
        self._set("_last", last)
        super().__post_init__()

    @property
    def cardinality(self) -> int | None:
        if self.step is None:
            return None
        return round((self._last - self._first) / self.step) + 1

    def _ends(self) -> tuple[float, float]:
        return self._scaled(self.low), self._scaled(self.high)

    def _on_grid(self, value: float) -> float:
        if self.step is not None:
            value = self.low + round((value - self.low) / self.step) * self.step
        value = min(max(self._tidy(value), self._first), self._last)
        return self._beside_excluded(value) if self.exclude else value

    def _tidy(self, value: float) -> float:
        if self.step is not None:
            return float(f"{value:.12g}") + 0.0  # 0.1 + 2 * 0.1 is 0.3
        if self.log:
            return float(f"{value:.{_DIGITS}g}")
        return round(value, self._decimals) + 0.0  # + 0.0: no negative zero

    def _neighbour(self, value: float, *, up: bool) -> float:
        if self.step is not None:
            distance = self.step
        elif self.log:
            distance = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
        else:
            distance = 10.0**-self._decimals
        return self._tidy(value + distance if up else value - distance)


@dataclass(frozen=True)
class Integer(_Numeric):
    """An integer in [low, high], both included.

    log: the prior is uniform in log(value). step: valid values are low + k * step, so multiples
    of 8 are ``Integer(name, 8, 64, step=8)``. default: any integer in range; None takes the
    middle. exclude: single values that are not valid.
    """

    kind: ClassVar[str] = "integer"

    @property
    def cardinality(self) -> int:
        return int(self.high - self.low) // self._stride + 1 - len(self.exclude)

    @property
    def _stride(self) -> int:
        return int(self.step or 1)

    def _ends(self) -> tuple[float, float]:
        # Half a step beyond both ends: every integer gets an interval of the same weight.
        margin = self._stride / 2
        return self._scaled(self.low - margin), self._scaled(self.high + margin)

    def _on_grid(self, value: float) -> int:
        last = int(self.high - self.low) // self._stride
        position = min(max(round((value - self.low) / self._stride), 0), last)
        found = int(self.low) + position * self._stride
        return self._beside_excluded(found) if self.exclude else found

    def _neighbour(self, value: int, *, up: bool) -> int:
        return value + self._stride if up else value - self._stride
