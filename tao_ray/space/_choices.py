"""One of a list: numbers that are ordered, or categories that are not."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar

from tao_ray.space._parameter import Parameter, SpaceError, as_number


@dataclass(frozen=True)
class _Choices(Parameter):
    """What both share: options, their weights, and an interval of the unit line for each."""

    name: str
    options: tuple[Any, ...]
    weights: tuple[float, ...] | None = None
    default: Any = None
    _edges: tuple[float, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        self._set("options", tuple(self.options))
        if not self.options:
            raise SpaceError("there are no options", where=self.name, remedy="give at least one")
        if any(self._index(o) != i for i, o in enumerate(self.options)):
            raise SpaceError("an option is given twice", where=self.name, remedy="remove one")
        weights = (1.0,) * len(self.options) if self.weights is None else tuple(self.weights)
        if len(weights) != len(self.options) or not all(w > 0 for w in weights):
            raise SpaceError(
                f"the weights {list(weights)} do not suit {len(self.options)} options",
                where=self.name,
                remedy="give one positive weight per option",
            )
        total = float(sum(weights))
        self._set("_edges", (0.0, *(edge / total for edge in accumulate(weights))))
        if self.default is None:
            self._set("default", self.options[0])
        self._set("default", self.options[self._known(self.default)])

    @property
    def cardinality(self) -> int:
        return len(self.options)

    def problem(self, value: Any) -> str | None:
        if self._index(value) is None:
            return f"{value!r} is not one of {list(self.options)}"
        return None

    def to_unit(self, value: Any) -> float:
        i = self._known(value)
        return (self._edges[i] + self._edges[i + 1]) / 2

    def from_unit(self, u: float) -> Any:
        i = bisect.bisect_right(self._edges, u) - 1
        return self.options[min(max(i, 0), len(self.options) - 1)]

    def _index(self, value: Any) -> int | None:
        """The position of `value`; True is not 1 here."""
        is_bool = isinstance(value, bool)
        for i, option in enumerate(self.options):
            if option == value and isinstance(option, bool) == is_bool:
                return i
        return None

    def _known(self, value: Any) -> int:
        i = self._index(value)
        if i is None:
            raise SpaceError(
                f"{value!r} is not one of {list(self.options)}",
                where=self.name,
                remedy="use one of the options",
            )
        return i

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)


@dataclass(frozen=True)
class Ordered(_Choices):
    """One of ascending numbers such as powers of two; the encoding is the rank.

    weights: relative prior probability of each. default: None takes the first.
    """

    kind: ClassVar[str] = "ordered"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not isinstance(o, int | float) or isinstance(o, bool) for o in self.options):
            raise SpaceError("ordered options are numbers", where=self.name)
        if list(self.options) != sorted(self.options):
            raise SpaceError(
                f"the options {list(self.options)} do not ascend",
                where=self.name,
                remedy="sort them",
            )

    def snap(self, value: Any) -> Any:
        number = as_number(value, self.name)
        return min(self.options, key=lambda option: abs(option - number))

    def nearest(self, value: Any, low: float, high: float) -> Any | None:
        allowed = [option for option in self.options if low <= option <= high]
        if not allowed:
            return None
        within = min(max(value, allowed[0]), allowed[-1])
        return min(allowed, key=lambda option: abs(option - within))

    def encode(self, value: Any) -> list[float]:
        return [(self._known(value) + 0.5) / len(self.options)]

    def decode(self, u: Sequence[float]) -> Any:
        rank = int(u[0] * len(self.options))
        return self.options[min(max(rank, 0), len(self.options) - 1)]


@dataclass(frozen=True)
class Categorical(_Choices):
    """One of several values without order: strings, booleans, whole lists.

    The encoding is one-hot; two booleans take a single number. weights: relative prior
    probability of each. default: None takes the first.
    """

    kind: ClassVar[str] = "categorical"

    @property
    def is_bool(self) -> bool:
        return len(self.options) == 2 and all(isinstance(o, bool) for o in self.options)

    @property
    def width(self) -> int:
        return 1 if self.is_bool else len(self.options)

    def snap(self, value: Any) -> Any:
        return self.options[self._known(value)]

    def nearest(self, value: Any, low: float, high: float) -> Any | None:
        return self.snap(value)

    def encode(self, value: Any) -> list[float]:
        if self.is_bool:
            return [float(value)]
        chosen = self._known(value)
        return [float(i == chosen) for i in range(len(self.options))]

    def decode(self, u: Sequence[float]) -> Any:
        if self.is_bool:
            return bool(u[0] >= 0.5)
        return self.options[max(range(len(self.options)), key=lambda i: u[i])]
