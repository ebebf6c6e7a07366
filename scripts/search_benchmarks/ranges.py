"""What ranges are worth: epochs that `auto` needs over the derived space of the package to reach
what uniform sampling of its schema's ranges reaches with the whole budget.

The schema's learning rate spans [0, 1] and its default is 2e-4, as TAO's packages have it. Uniform
sampling draws every parameter linearly from the schema's range, as TAO's own search does; where
the schema has no upper end it gets ours. Same network, same length of a full training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from search_benchmarks.digits import FULL, Digits, plan
from tao_ray.network.network import Network
from tao_ray.network.schema import SchemaParameter
from tao_ray.search import SearchSettings, build
from tao_ray.search.base import Algorithm
from tao_ray.search.simulation import SimulatedTrial, simulate
from tao_ray.space import Categorical, Float, Integer, Parameter, SearchSpace


@dataclass(frozen=True)
class Comparison:
    """reached: the validation error of uniform sampling, percent. epochs: what `auto` took to get
    there, infinity if the budget did not suffice; epochs_with_defaults: with the network's
    defaults as its first trial, as is usual."""

    reached: float
    epochs: float
    epochs_with_defaults: float


def compare(seed: int, budget: int) -> Comparison:
    """One seed's comparison."""
    search = {"algorithm": "auto", "trials": budget, "seed": seed}
    usual, without = plan(search), plan({**search, "start_with_defaults": False})
    settings = SearchSettings(trials=-(-budget // FULL), max_epochs=FULL, seed=seed)
    derived = usual.derived.space
    raw = SearchSpace(list(_raw(usual.network, derived)), derived.constraints)
    uniform = Digits()
    simulate(build("random", raw, settings, {}), uniform, max_epochs=FULL, epoch_budget=budget)
    target = min(uniform.losses)
    return Comparison(
        target,
        _epochs_to(target, without.algorithm(), budget),
        _epochs_to(target, usual.algorithm(), budget),
    )


class _Reached(Exception):
    """Nothing more is to be seen."""


class _Until(Digits):
    def __init__(self, target: float) -> None:
        super().__init__()
        self.target = target

    def train(self, trial: SimulatedTrial) -> float:
        loss = super().train(trial)
        if loss <= self.target:
            raise _Reached
        return loss


def _epochs_to(target: float, algorithm: Algorithm, budget: int) -> float:
    digits = _Until(target)
    try:
        simulate(algorithm, digits, max_epochs=FULL, epoch_budget=budget)
    except _Reached:
        return len(digits.losses)
    return math.inf


def _raw(network: Network, derived: SearchSpace) -> Iterator[Parameter]:
    for parameter in derived.parameters:
        schema: SchemaParameter = network.parameters[parameter.name]
        if isinstance(parameter, Categorical):
            yield parameter
            continue
        low = parameter.low if schema.minimum is None else schema.minimum
        high = schema.maximum
        if high is None or math.isinf(high):
            high = parameter.high
        if isinstance(parameter, Integer):
            yield Integer(parameter.name, int(low), int(high), default=parameter.default)
        else:
            yield Float(parameter.name, low, high, default=parameter.default, open_low=low == 0.0)
