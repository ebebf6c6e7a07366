"""The sections `objective` and `search`: what is better, and how it is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from tao_ray.config.base import (
    Count,
    Finding,
    Flag,
    Location,
    Number,
    Real,
    Section,
    Value,
    Whole,
    Words,
    refusal,
)
from tao_ray.config.names import ALGORITHMS, DEFAULT_ALGORITHM, NOT_YET, PLANNED_ALGORITHMS
from tao_ray.config.sources import ObjectiveSource


class OtherObjective(Section):
    """A further objective, for a trade-off such as accuracy against latency."""

    metric: str = Field(description="Name of the metric as the network reports it.")
    direction: Literal["minimize", "maximize"] = Field(
        description="Whether a smaller or a larger value is better."
    )


class ObjectiveConfig(Section):
    """What a trial is judged by."""

    metric: str | None = Field(
        default=None,
        description="Name of the metric as the network reports it. Default: the network's own.",
    )
    direction: Literal["minimize", "maximize"] | None = Field(
        default=None,
        description="Whether a smaller or a larger value is better. Default: what is known of the "
        "metric; required for a metric that is not known.",
    )
    at: Literal["best", "last"] = Field(
        default="best", description="Which epoch counts: the trial's best one, or its last one."
    )
    source: ObjectiveSource | None = Field(
        default=None,
        description="Where its value is from: `status` (status.json), `evaluate` (an evaluate job "
        "on each trial's chosen checkpoint), or one of the keys of "
        "[`objective.source`](#objectivesource). Default: the file that the package names for "
        "it, else `status`.",
    )
    accept_proxy: Flag = Field(
        default=False,
        description="Search although the winner cannot be judged by the network's own measure: "
        "the objective only stands in for a metric that evaluate jobs report, or the network has "
        "no evaluate action, or no data was given for it.",
    )
    others: Annotated[list[OtherObjective], Words("a list of further objectives")] = Field(
        default_factory=list,
        description="Further objectives: the search looks for the best trade-offs, with "
        "`search.algorithm` bayesian, tpe or random. `objective` may also be written as a list, "
        "whose first entry names the one that picks `best`.",
    )


class ParameterRange(Section):
    """The values to try for one spec key. What is left out is taken from the package's schema."""

    min: Number | None = Field(default=None, description="Smallest value.")
    max: Number | None = Field(default=None, description="Largest value.")
    scale: Literal["linear", "log"] | None = Field(
        default=None,
        description="`log` searches orders of magnitude evenly. Default: `log` for learning rates, "
        "weight decay and wide positive ranges, else `linear`.",
    )
    step: Number | None = Field(default=None, description="Distance between the values, from min.")
    options: Annotated[list[Value], Words("a list of values")] | None = Field(
        default=None, description="The values themselves, instead of a range."
    )
    weights: Annotated[list[Real], Words("a list of numbers")] | None = Field(
        default=None, description="How often each option is drawn, relative to the others."
    )

    def rules(self) -> Iterator[Finding]:
        if self.options is not None:
            yield from self._option_rules(self.options)
        elif self.weights is not None:
            yield Finding(("weights",), "needs options to weigh")
        if self.min is not None and self.max is not None and self.min >= self.max:
            yield Finding(("max",), f"must be above min, which is {self.min}")
        if self.step is not None and self.step <= 0:
            yield Finding(("step",), "must be above 0")
        if self.scale == "log" and self.min is not None and self.min <= 0:
            yield Finding(("min",), "must be above 0 on a log scale", "or use scale: linear")

    def _option_rules(self, options: list[Any]) -> Iterator[Finding]:
        for key in ("min", "max", "scale", "step"):
            if getattr(self, key) is not None:
                yield Finding((key,), "cannot be combined with options")
        if not options:
            yield Finding(("options",), "must hold at least one value")
        # Compared with their type, because 1 == True == 1.0.
        known = [(type(option), option) for option in options]
        for index, option in enumerate(known):
            if option in known[:index]:
                yield Finding(("options", index), "given twice")
        if self.weights is None:
            return
        if len(self.weights) != len(options):
            yield Finding(
                ("weights",),
                f"must have one number for each of the {len(options)} options, "
                f"and has {len(self.weights)}",
            )
        for index, weight in enumerate(self.weights):
            if weight < 0:
                yield Finding(("weights", index), "must be a number of at least 0")
        if self.weights and not any(self.weights):
            yield Finding(("weights",), "must not all be 0")


def _known_algorithm(name: str) -> str:
    if name in ALGORITHMS:
        return name
    if name in PLANNED_ALGORITHMS:
        raise refusal(Finding((), NOT_YET, f"available: {', '.join(ALGORITHMS)}"))
    raise ValueError(name)


AlgorithmName = Annotated[
    str,
    AfterValidator(_known_algorithm),
    Words(f"one of {', '.join(ALGORITHMS)}", choices=ALGORITHMS),
]
Parameters = Annotated[
    Annotated[Literal["default"], Tag("<text>")]
    | Annotated[dict[str, ParameterRange], Tag("<mapping>")],
    Discriminator(lambda value: "<mapping>" if isinstance(value, dict) else "<text>"),
    Words("'default', or a mapping of spec keys to ranges"),
]


class StopConfig(Section):
    """When a search, or a trial of it, ends early because enough is known."""

    target: Real | None = Field(
        default=None, description="The search ends once a trial reaches this value of the metric."
    )
    patience_trials: Count | None = Field(
        default=None,
        description="The search ends after this many ended trials in a row without a new best.",
    )
    patience_epochs: Count | None = Field(
        default=None,
        description="A trial ends after this many measured epochs without an own best.",
    )


Conditions = Annotated[
    dict[str, dict[str, Annotated[list[Value], Words("a list of values")]]],
    Words("a mapping of spec keys to `{other key: [values]}`"),
]


class SearchConfig(Section):
    """What is varied, by which algorithm, and how much of it."""

    algorithm: AlgorithmName = Field(
        default=DEFAULT_ALGORITHM,
        description="The search algorithm.",
        json_schema_extra={"enum": list(ALGORITHMS)},
    )
    parameters: Parameters = Field(
        default="default",
        description="`default` searches what the package recommends. A mapping of spec keys to "
        "ranges searches exactly those.",
    )
    exclude: Annotated[list[str], Words("a list of spec keys")] = Field(
        default_factory=list, description="Spec keys to drop from the default parameters."
    )
    allow_disabled: Flag = Field(
        default=False,
        description="Allow parameters that the package keeps out of automatic search.",
    )
    trials: Count = Field(
        default=20, description="Number of trials, the first of which is the network's defaults."
    )
    max_epochs: Count | None = Field(
        default=None, description="Epochs of a full training. Default: what the base spec says."
    )
    max_concurrent: Count = Field(default=1, description="Trials that run at the same time.")
    seed: Whole = Field(default=0, description="The same seed gives the same proposals.")
    start_with_defaults: Flag = Field(
        default=True, description="Make trial 0 the network's defaults: what a gain is a gain over."
    )
    points: list[dict[str, Value]] = Field(
        default_factory=list,
        description="Configurations to try first, after the defaults: searched spec keys with "
        "values; what is left out is as in the defaults.",
    )
    warm_start: list[Location] = Field(
        default_factory=list,
        description="Run directories, or `result.json` files, of earlier searches of the same "
        "network and objective, whose trials the model learns from.",
    )
    stop: StopConfig = Field(
        default_factory=StopConfig, description="When to end early because enough is known."
    )
    when: Conditions = Field(
        default_factory=dict,
        description="Parameters that are searched only where another has certain values, such as "
        "`{train.optim.momentum: {train.optim.optim: [sgd]}}`; elsewhere they keep their default.",
    )
    options: dict[str, Value] = Field(
        default_factory=dict,
        description="The algorithm's own knobs, such as `{reduction_factor: 3}`.",
    )

    def rules(self) -> Iterator[Finding]:
        if isinstance(self.parameters, dict):
            if not self.parameters:
                yield Finding(("parameters",), "must name at least one spec key")
            if self.exclude:
                yield Finding(("exclude",), "is only for parameters: default", "leave it out")
        least = self.options.get("min_epochs")
        if isinstance(least, int) and self.max_epochs is not None and least > self.max_epochs:
            yield Finding(
                ("options", "min_epochs"),
                f"must not exceed search.max_epochs, which is {self.max_epochs}",
            )
