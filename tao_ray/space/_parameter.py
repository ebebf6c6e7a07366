"""The contract of a parameter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

from tao_ray.errors import TaoRayError


class SpaceError(TaoRayError):
    """A search space that cannot be, or a value that cannot be placed in one."""


def as_number(value: Any, name: str) -> float:
    """`value`, a number of Python's or numpy's, as a plain float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SpaceError(f"{value!r} is not a number", where=name)
    return float(value)


class Parameter(ABC):
    """One searched parameter. Immutable.

    A parameter has two images of a value:

    * *unit*, one number in [0, 1] in which the prior is uniform: equal intervals get equal
      probability, options get intervals as wide as their weights. For sampling, Sobol points,
      differential evolution, kernel densities.
    * *encoding*, `width` numbers in [0, 1] in which distance means similarity: one number for
      an ordered kind, one-hot for categories. For models such as a Gaussian process.

    Both are exact: ``from_unit(to_unit(v)) == v`` and ``decode(encode(v)) == v`` for every valid
    value. Values are plain Python objects that JSON can hold.
    """

    kind: ClassVar[str]
    """"float", "integer", "ordered" or "categorical"."""

    name: str
    default: Any

    @property
    @abstractmethod
    def cardinality(self) -> int | None:
        """The number of valid values, or None for a float without steps."""

    @property
    def width(self) -> int:
        """How many numbers the encoding has."""
        return 1

    @abstractmethod
    def snap(self, value: Any) -> Any:
        """The valid value nearest to `value`. Idempotent.

        Raises:
            SpaceError: `value` is of a kind that has no nearest valid value.
        """

    @abstractmethod
    def problem(self, value: Any) -> str | None:
        """Why `value` is not valid, or None if it is."""

    @abstractmethod
    def nearest(self, value: Any, low: float, high: float) -> Any | None:
        """The valid value within [low, high] nearest to `value`; None if there is none."""

    @abstractmethod
    def to_unit(self, value: Any) -> float:
        """Where a valid value lies in [0, 1]."""

    @abstractmethod
    def from_unit(self, u: float) -> Any:
        """The value at `u`; numbers outside [0, 1] count as the nearer end."""

    def encode(self, value: Any) -> list[float]:
        """The model's image of a valid value: `width` numbers in [0, 1]."""
        return [self.to_unit(value)]

    def decode(self, u: Sequence[float]) -> Any:
        """The value of an encoding, or the nearest to any `width` numbers."""
        return self.from_unit(u[0])
