"""The sections `evaluation`, `review`, `budget` and `retention`: what surrounds the search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from tao_ray.config.base import Count, Finding, Positive, Section, Whole


class EvaluationConfig(Section):
    """The evaluate jobs: of the starting model (the baseline) and of the winner."""

    gpus: Whole | None = Field(
        default=None, description="GPUs of an evaluate job. Default: those of a trial."
    )
    metric: str | None = Field(
        default=None,
        description="The metric they compare, as the evaluate action reports it. Default: what is "
        "known of the network, else the objective's name.",
    )
    direction: Literal["minimize", "maximize"] | None = Field(
        default=None,
        description="Whether a smaller or a larger value of it is better. Default: what is known "
        "of the metric.",
    )

    python: str | None = Field(
        default=None,
        description="A function of yours, `module:function`, that returns the metric's value from "
        "what an evaluate job has written; [objectives](objectives.md#a-function) has its "
        "signature. Default: what status.json says.",
    )

    def rules(self) -> Iterator[Finding]:
        if self.direction is not None and self.metric is None:
            yield Finding(("direction",), "needs the metric it is about", "set evaluation.metric")
        if self.python is not None and not re.fullmatch(r"[\w.]+:\w+", self.python):
            yield Finding(("python",), "must be module:function")


class ReviewConfig(Section):
    """What is shown, and asked, before a run starts."""

    long_run_hours: Positive = Field(
        default=24.0,
        description="A run whose estimate is longer needs an answer of its own (`--accept-long`).",
    )


class BudgetConfig(Section):
    """What the run may take. A run whose estimate exceeds it needs an answer of its own
    (`--accept-long`)."""

    hours: Positive | None = Field(default=None, description="Hours from start to end.")
    cost_usd: Positive | None = Field(
        default=None, description="US dollars, on platforms that cost money."
    )
    baseline_usd: Positive | None = Field(
        default=None,
        description="US dollars for the baseline, which is measured before the review. Default: "
        "`cost_usd`.",
    )


class RetentionConfig(Section):
    """Which checkpoints stay. Logs, specs and metrics always do."""

    mode: Literal["auto", "manual"] = Field(
        default="auto",
        description="`auto` deletes, while the run goes on, every checkpoint that no resumption, "
        "promotion, exploit or final evaluation can need. `manual` deletes nothing: the result "
        "lists what nothing needs.",
    )
    keep: Count = Field(
        default=1, description="Trials whose checkpoint stays for good, the best ones."
    )
