"""Categories as numbers, for the models that treat them as such."""

from __future__ import annotations

from typing import Any

from tao_ray.space import Categorical


def index_of(parameter: Categorical, value: Any) -> int:
    """The position of a valid value among a categorical's options; True is not 1 here."""
    return [repr(option) for option in parameter.options].index(repr(value))


def probabilities(parameter: Categorical) -> list[float]:
    """The prior probability of each option."""
    weights = parameter.weights or (1.0,) * len(parameter.options)
    return [w / sum(weights) for w in weights]
