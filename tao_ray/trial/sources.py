"""Where the objective's value is, if not in status.json: the log, a file, a user's function.

docs/objectives.md describes them to users.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.network.tree import get_path


class HookError(TaoRayError):
    """A user's function cannot be used."""


@dataclass(frozen=True)
class Report:
    """What is known when an epoch was completed; what a user's function is given.

    epoch: 1-based; for an action without epochs 1. metrics: what status.json says of it.
    log: the last lines of the job's output, oldest first.
    read: the content of a file below the job's results directory; FileNotFoundError if absent.
    """

    epoch: int
    metrics: Mapping[str, float]
    log: Sequence[str]
    read: Callable[[str], bytes]


@dataclass(frozen=True)
class LogPattern:
    """Each match in the job's output is a completed epoch, in order.

    The value is the group named ``value``, else the first one. A group named ``epoch`` holds the
    1-based epoch, one named ``epoch0`` the 0-based one, where not every epoch is printed.
    """

    pattern: str

    def match(self, line: str) -> tuple[int | None, float] | None:
        """(epoch or None, value) of a line of output; None if it holds no value."""
        found = re.search(self.pattern, line)
        if found is None:
            return None
        groups = found.groupdict()
        try:
            value = float(groups["value"] if "value" in groups else found[1])
        except (TypeError, ValueError):
            return None
        if groups.get("epoch0"):
            return int(groups["epoch0"]) + 1, value
        return (int(groups["epoch"]) if groups.get("epoch") else None), value

    def missing(self, report: Report) -> str:
        """Why there was no value, for the user."""
        return f"no line of the output matched {self.pattern!r}"


@dataclass(frozen=True)
class MetricFile:
    """A JSON file below the results directory, read when an epoch or the job is complete.

    json_path: dotted, with ``[i]`` for lists. metric: the key where there is no json_path.
    """

    path: str
    metric: str
    json_path: str | None = None

    def value(self, report: Report) -> float | None:
        """The number in the file; None if there is no file, or not yet such a number in it."""
        try:
            content = json.loads(report.read(self.path))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        found = self._find(content)
        try:
            return None if found is None or isinstance(found, bool) else float(found)
        except (TypeError, ValueError):
            return None

    def _find(self, content: Any) -> Any:
        if not isinstance(content, dict | list):
            return content if self.json_path is None else None
        if self.json_path is None and isinstance(content, dict) and self.metric in content:
            return content[self.metric]
        path = self.json_path or self.metric
        # A list at the top is reached as `[0].name`.
        return get_path({"top": content}, f"top{'' if path.startswith('[') else '.'}{path}")

    def missing(self, report: Report) -> str:
        """Why there was no value, for the user."""
        try:
            text = report.read(self.path)
        except FileNotFoundError:
            return f"there is no {self.path} below the results directory"
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            return f"{self.path} is not JSON: {error}"
        held = ", ".join(map(str, content)) if isinstance(content, dict) else repr(content)[:80]
        return f"{self.path} has no number at {self.json_path or self.metric}; it holds: {held}"


@dataclass(frozen=True)
class Hook:
    """A user's function: ``def objective(report: Report) -> float | None``.

    target: ``module:function``. directory: where the module is looked for first. key: where the
    configuration names it.
    """

    target: str
    directory: str = ""
    key: str = "objective.source.python"
    _loaded: list[Callable[[Report], Any]] = field(
        default_factory=list, compare=False, repr=False, init=False
    )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": []}

    def load(self) -> Callable[[Report], Any]:
        """The function. Raises HookError."""
        if not self._loaded:
            module, _, name = self.target.partition(":")
            if self.directory and self.directory not in sys.path:
                sys.path.insert(0, self.directory)
            try:
                function = getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError, SyntaxError) as error:
                raise HookError(
                    f"{self.target} cannot be imported: {error}",
                    where=self.key,
                    remedy="put the module beside the configuration, or install it",
                ) from error
            if not callable(function):
                raise HookError(f"{self.target} is not a function", where=self.key)
            self._loaded.append(function)
        return self._loaded[0]

    def value(self, report: Report) -> float | None:
        """What the function returns. Raises HookError if it raises."""
        function = self.load()
        try:
            value = function(report)
            return None if value is None else float(value)
        except Exception as error:
            raise HookError(
                f"{self.target} failed at epoch {report.epoch}: {type(error).__name__}: {error}",
                where=self.key,
            ) from error

    def missing(self, report: Report) -> str:
        """Why there was no value, for the user."""
        seen = ", ".join(sorted(report.metrics)) or "no metric at all"
        return f"{self.target} returned None each time; status.json has {seen}"


Source = LogPattern | MetricFile | Hook
