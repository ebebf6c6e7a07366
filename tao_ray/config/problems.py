"""What is wrong with a configuration, in the words its author reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tao_ray.errors import TaoRayError

KeyPath = tuple[str | int, ...]
"""Keys from the root of a configuration; list positions are integers."""


def key_text(path: KeyPath) -> str:
    """The path as it is written for ``--set`` and in errors: ``a.b[1].c``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    file: the file, or the ``--set`` argument that brought the value. line: 1-based, None if the
    problem has no line. key: dotted. value: as it may be shown (never a secret), "" if there is
    none. message: what is wrong and what is allowed. hint: what to do.
    """

    file: str
    line: int | None
    key: str
    value: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        key = "" if where == f"--set {self.key}" else self.key
        text = ": ".join(part for part in (where, key, self.message) if part)
        if self.value:
            text += f" (got {self.value})"
        return f"{text}\n  -> {self.hint}" if self.hint else text


class ConfigError(TaoRayError):
    """Everything that is wrong with a configuration (`problems`), not only the first thing."""

    def __init__(self, problems: Sequence[Problem]):
        self.problems = tuple(problems)
        blocks = [str(problem) for problem in self.problems]
        if len(blocks) > 1:
            blocks.insert(0, f"{len(blocks)} problems in the configuration")
        super().__init__("\n".join(blocks))
