"""Rules between parameters. Each limits one parameter, its subject, by the values of others."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Constraint(ABC):
    """A rule that `subject` keeps, given its `parents`. Repairing never moves a parent."""

    subject: str

    @property
    @abstractmethod
    def parents(self) -> tuple[str, ...]:
        """The parameters the limits depend on."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The rule in words, for messages."""

    @abstractmethod
    def limits(self, config: Mapping[str, Any]) -> tuple[float, float]:
        """The closed interval that the parents' values leave to the subject."""

    def holds(self, config: Mapping[str, Any]) -> bool:
        low, high = self.limits(config)
        return bool(low <= config[self.subject] <= high)


@dataclass(frozen=True)
class GreaterThan(Constraint):
    """subject > parent."""

    subject: str
    parent: str

    @property
    def parents(self) -> tuple[str, ...]:
        return (self.parent,)

    @property
    def text(self) -> str:
        return f"{self.subject} > {self.parent}"

    def limits(self, config: Mapping[str, Any]) -> tuple[float, float]:
        return math.nextafter(config[self.parent], math.inf), math.inf


@dataclass(frozen=True)
class AtMost(Constraint):
    """subject <= factor * parent + offset."""

    subject: str
    parent: str
    factor: float = 1
    offset: float = 0

    @property
    def parents(self) -> tuple[str, ...]:
        return (self.parent,)

    @property
    def text(self) -> str:
        product = self.parent if self.factor == 1 else f"{self.factor:g} * {self.parent}"
        return f"{self.subject} <= {product}" + (f" {self.offset:+g}" if self.offset else "")

    def limits(self, config: Mapping[str, Any]) -> tuple[float, float]:
        return -math.inf, self.factor * config[self.parent] + self.offset


@dataclass(frozen=True)
class Condition:
    """`subject` is searched only where `parent` has one of `values`; elsewhere it is its default.

    A value that has no effect is thus one configuration, not many that look different to a model.
    """

    subject: str
    parent: str
    values: tuple[Any, ...]

    @property
    def text(self) -> str:
        return f"{self.subject} only if {self.parent} is {' or '.join(map(repr, self.values))}"

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Whether the subject is searched in this configuration."""
        return config[self.parent] in self.values
