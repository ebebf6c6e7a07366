"""`pbt`: population based training.

Source: Jaderberg et al., "Population Based Training of Neural Networks", 2017, with truncation
selection and perturbation by 1.2 or 0.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, model_validator

from tao_ray.search.base import Algorithm, Config, SearchSettings
from tao_ray.search.options import Options, required_epochs
from tao_ray.search.population import Exploit, Population
from tao_ray.search.rungs import ceil_div
from tao_ray.space import Categorical

if TYPE_CHECKING:
    from tao_ray.space import Parameter, SearchSpace


class PopulationOptions(Options):
    """Knobs that `pbt` and `pb2` share."""

    population: int | None = Field(
        default=None,
        ge=2,
        description="Members trained side by side (default: the number of trials).",
    )
    perturbation_interval: int | None = Field(
        default=None, ge=1, description="Epochs between comparisons (default: from generations)."
    )
    generations: int | None = Field(
        default=None, ge=1, description="Comparisons within a training, plus one (default: 5)."
    )
    quantile: float = Field(
        default=0.25,
        gt=0,
        le=0.5,
        description="Share of the population that copies, and is copied.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and {"perturbation_interval", "generations"} <= data.keys():
            raise ValueError("perturbation_interval and generations say the same: give one")
        return data

    def shape(self, name: str, settings: SearchSettings) -> dict[str, Any]:
        """The population's size, interval and so on, for `settings`."""
        max_epochs = required_epochs(name, settings)
        return {
            "size": self.population or max(2, settings.trials),
            "interval": self.perturbation_interval or ceil_div(max_epochs, self.generations or 5),
            "max_epochs": max_epochs,
            "quantile": self.quantile,
        }


class PbtOptions(PopulationOptions):
    """Knobs of population based training."""

    mutation_factor: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="A perturbed number is multiplied by 1 plus or minus this.",
    )
    resample_probability: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Probability of drawing a hyperparameter anew instead.",
    )


class PbtPopulation(Population):
    """Explores by perturbing or redrawing each hyperparameter of the donor."""

    def __init__(self, space: SearchSpace, settings: SearchSettings, options: PbtOptions) -> None:
        super().__init__(space, settings, **options.shape("pbt", settings))
        self.options = options

    def explore(self, exploit: Exploit, rng: np.random.Generator) -> Config:
        return perturbed(
            self.space,
            exploit.donor.config,
            rng,
            factor=self.options.mutation_factor,
            resample=self.options.resample_probability,
        )


def perturbed(
    space: SearchSpace,
    config: Config,
    rng: np.random.Generator,
    *,
    factor: float = 0.2,
    resample: float = 0.25,
) -> Config:
    """`config` with every number moved and every category kept, or, with probability
    `resample`, drawn anew; valid under every constraint."""
    fresh = space.sample(rng)
    mutated = {}
    for parameter in space.parameters:
        value = config[parameter.name]
        redraw, up = rng.random() < resample, rng.random() < 0.5
        if redraw:
            mutated[parameter.name] = fresh[parameter.name]
        elif isinstance(parameter, Categorical):
            mutated[parameter.name] = value
        else:
            mutated[parameter.name] = _moved(parameter, value, 1 + factor if up else 1 - factor)
    return space.snap(mutated)


def _moved(parameter: Parameter, value: Any, by: float) -> Any:
    """The value times `by`; where that changes nothing (a zero, a small integer, a power of
    two) its neighbour in the same direction."""
    moved = parameter.snap(value * by)
    if moved != value:
        return moved
    step = 0.1 if parameter.cardinality is None else 1 / parameter.cardinality
    unit = parameter.to_unit(value)
    return parameter.from_unit(unit + step if by > 1 else unit - step)


def describe(population: Population) -> str:
    """The population in one line."""
    epochs = ", ".join(map(str, population.milestones())) or "no epoch"
    manner = "waiting for each other" if population.synchronous else "without waiting"
    return f"{population.size} members compared at epochs {epochs}, {manner}"


def build(space: SearchSpace, settings: SearchSettings, options: PbtOptions) -> Algorithm:
    """Population based training."""
    population = PbtPopulation(space, settings, options)
    return Algorithm("pbt", population, population, why=describe(population))
