"""Proposers by name, for the algorithms whose own part is the scheduling rule."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Literal

from tao_ray.search.base import SearchSettings
from tao_ray.search.proposer import BaseProposer

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

Sampler = Literal["random", "sobol", "bayesian", "tpe"]


def build_sampler(name: Sampler, space: SearchSpace, settings: SearchSettings) -> BaseProposer:
    """The proposer `name` with its default options."""
    if name in ("random", "sobol"):
        from tao_ray.search import random_search

        options = random_search.RandomOptions(sobol=name == "sobol")
        return random_search.proposer(space, settings, options)
    module = importlib.import_module(f"tao_ray.search.{name}")
    return module.proposer(space, settings)  # type: ignore[no-any-return]
