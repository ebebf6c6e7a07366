"""The key `objective.source`: where the objective's value is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from tao_ray.config.base import Finding, Section, Words


class SourceConfig(Section):
    """Where the objective is, if not in status.json: exactly one of `log_regex`, `file`, `python`.
    docs/objectives.md explains them."""

    log_regex: str | None = Field(
        default=None,
        description="A pattern of a line of the job's output. The value is its group `value`, "
        "else its first one; a group `epoch` (from 1) or `epoch0` (from 0) says the epoch, "
        "without which each match is the next one.",
    )
    file: str | None = Field(
        default=None,
        description="A JSON file that the job writes below its results directory, such as "
        "`metrics.json`.",
    )
    json_path: str | None = Field(
        default=None,
        description="With `file`: where in it the number is, such as `test.scores[0].f1`. "
        "Default: the metric's name.",
    )
    python: str | None = Field(
        default=None,
        description="A function of yours, `module:function`, that returns the value.",
    )

    def rules(self) -> Iterator[Finding]:
        given = [k for k in ("log_regex", "file", "python") if getattr(self, k) is not None]
        if len(given) != 1:
            yield Finding((), "needs exactly one of log_regex, file and python")
        if self.json_path is not None and self.file is None:
            yield Finding(("json_path",), "is only for a file")
        if self.python is not None and not re.fullmatch(r"[\w.]+:\w+", self.python):
            yield Finding(("python",), "must be module:function")
        if self.log_regex is not None:
            try:
                groups = re.compile(self.log_regex).groups
            except re.error as error:
                yield Finding(("log_regex",), f"is not a regular expression: {error}")
            else:
                if not groups:
                    yield Finding(("log_regex",), "needs a group, in parentheses, for the value")


ObjectiveSource = Annotated[
    Annotated[Literal["status", "evaluate"], Tag("<text>")]
    | Annotated[SourceConfig, Tag("<mapping>")],
    Discriminator(lambda value: "<text>" if isinstance(value, str) else "<mapping>"),
    Words("'status', 'evaluate', or a mapping with log_regex, file or python"),
]
