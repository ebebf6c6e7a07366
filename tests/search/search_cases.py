"""A search space and an objective like a real network's, in closed form."""

from __future__ import annotations

import math
from typing import Any

from tao_ray.search import SearchSettings
from tao_ray.space import Categorical, Float, GreaterThan, Integer, Ordered, SearchSpace

POPULATIONS = ("pbt", "pb2")


def make_space() -> SearchSpace:
    return SearchSpace(
        [
            Float("lr", 1e-6, 1e-1, log=True, default=1e-4),
            Float("dropout", 0.0, 0.5, default=0.1),
            Integer("crop_min", 8, 64, step=8, default=16),
            Integer("crop_max", 16, 128, step=8, default=64),
            Ordered("batch", (1, 2, 4, 8, 16), default=4),
            Categorical("optim", ("sgd", "adam", "lamb"), default="adam"),
            Categorical("flip", (False, True), default=False),
        ],
        [GreaterThan("crop_max", "crop_min")],
    )


def loss_at(config: Any, epoch: int) -> float:
    """A valley around lr = 1e-3, dropout = 0.2, adam; learning curves that cross a little."""
    final = (
        0.1 * (math.log10(config["lr"]) + 3) ** 2
        + 2 * (config["dropout"] - 0.2) ** 2
        + {"sgd": 0.3, "adam": 0.0, "lamb": 0.1}[config["optim"]]
        + 0.02 * abs(config["batch"] - 8)
        + 0.001 * abs(config["crop_max"] - 96)
    )
    return final + (1 + config["dropout"]) / max(1, epoch)


def settings(**given: Any) -> SearchSettings:
    defaults: dict[str, Any] = {
        "trials": 20,
        "max_epochs": 9,
        "max_concurrent": 1,
        "seed": 3,
        "points": (make_space().defaults(),),
    }
    return SearchSettings(**{**defaults, **given})
