"""What every algorithm's options model shares."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tao_ray.errors import TaoRayError
from tao_ray.search.base import SearchSettings


class Options(BaseModel):
    """Knobs of one algorithm, given by the user as ``search.options``."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HalvingOptions(Options):
    """Knobs of the successive-halving family."""

    min_epochs: int = Field(
        default=1,
        ge=1,
        description="Epochs every trial trains before it can be stopped (the lowest rung).",
    )
    reduction_factor: int = Field(
        default=3, ge=2, description="One trial in this many goes on at each rung (eta)."
    )


def required_epochs(name: str, settings: SearchSettings) -> int:
    """R, or the error that `name` needs an epoch budget this action does not have."""
    if settings.max_epochs is None:
        raise TaoRayError(
            f"{name} divides an epoch budget among trials, and this action has none",
            where="search.algorithm",
            remedy="use random, bayesian, bfbo or tpe, or set search.max_epochs if the "
            "action does train for epochs",
        )
    return settings.max_epochs
