"""Whether an algorithm suits a network: what cannot go together, and what is better known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tao_ray.errors import TaoRayError
from tao_ray.network.conventions import TRAINING_ACTIONS
from tao_ray.space import Float

if TYPE_CHECKING:
    from tao_ray.config import RunConfig, SearchConfig
    from tao_ray.network.network import Network
    from tao_ray.space import Parameter, SearchSpace
    from tao_ray.trial.state import Evaluation

_LEARN_FROM_RUNGS = ("dehb", "pbt", "pb2")
"""Algorithms whose proposals need the objective of trainings that have not ended."""
_CONTINUE_WEIGHTS = ("pbt", "pb2")
"""Algorithms whose trials go on from the weights of others with changed hyperparameters."""
_PAUSE = ("bohb", "hyperband", "hyperband_es")
"""Algorithms that pause trials and let the best go on later, each in a new job."""
_SHORT_TRIALS = ("asha", *_PAUSE)
"""Algorithms that start many trials to stop most of them early."""


def check_guided(
    algorithm: str, evaluation: Evaluation, network: Network, milestones: Sequence[int]
) -> None:
    """Raises TaoRayError for an algorithm that cannot do with an evaluation after the training."""
    if algorithm in _LEARN_FROM_RUNGS:
        raise TaoRayError(
            f"{algorithm} learns from values at its rungs, and an evaluate job gives a value only "
            "after the training",
            where="objective.source",
            remedy="take another search.algorithm, such as auto, asha or bayesian",
        )
    if milestones and evaluation.guide is None:
        raise TaoRayError(
            f"{algorithm} stops trials early by what the training reports, and no metric of "
            f"{network.name}'s training is known",
            where="objective.source",
            remedy="take a search.algorithm that trains every trial to its end: random, bayesian, "
            "tpe; or auto with search.options.early_stopping: false",
        )


def remarks(config: RunConfig, network: Network, space: SearchSpace) -> list[str]:
    """What a user should know of this algorithm on this network.

    Raises TaoRayError if it cannot work: trials that pause need a network that can resume, and
    weights that are handed on must fit.
    """
    _check_resumption(config.search, network)
    return [*_of_shapes(config, network, space), *_of_start_up(config.search, network)]


def _pauses(search: SearchConfig) -> bool:
    return search.algorithm in _PAUSE or search.options.get("variant") == "promotion"


def _check_resumption(search: SearchConfig, network: Network) -> None:
    if _pauses(search) and network.wiring.resume_key is None and network.package is not None:
        raise TaoRayError(
            f"{search.algorithm} lets paused trials go on from their checkpoints, and "
            f"{network.name} cannot resume a training",
            where="search.algorithm",
            remedy="take one that never pauses a trial: auto, asha, bayesian, tpe or random",
        )


def _of_start_up(search: SearchConfig, network: Network) -> Iterator[str]:
    if network.conventions.slow_start and search.algorithm in _SHORT_TRIALS:
        again = ", and loads them again whenever a paused trial goes on" if _pauses(search) else ""
        yield (
            f"a job of {network.name} takes long to load its weights{again}: {search.algorithm} "
            "saves little by trials of few epochs; raise search.options.min_epochs, or take "
            "bayesian with fewer trials"
        )


def _of_shapes(config: RunConfig, network: Network, space: SearchSpace) -> Iterator[str]:
    """Parameters that may decide whether given weights fit.

    Sizes and kinds in the spec's `model` block do; a real number there, such as a dropout, does
    not. Raises TaoRayError if nobody chose to search them and trials hand on their weights.
    """
    search = config.search
    names = ", ".join(p.name for p in space.parameters if _may_shape(p))
    by_default, start = search.parameters == "default", config.model.checkpoint
    if not names:
        return
    if search.algorithm in _CONTINUE_WEIGHTS:
        if by_default:
            raise TaoRayError(
                f"{search.algorithm} goes on from the weights of other trials, and they may not "
                f"fit where these differ: {names}",
                where="search.parameters",
                remedy=f"search.exclude: [{names}], or name the parameters to search",
            )
        yield f"{search.algorithm}: an exploit fails if the donor's weights do not fit its {names}"
    elif start and network.action.name in TRAINING_ACTIONS:
        keep = f"; search.exclude: [{names}] leaves them as they are" if by_default else ""
        what = f"trials start from {start}, and may fail where its weights do not fit"
        yield f"{what} their {names}{keep}"


def _may_shape(parameter: Parameter) -> bool:
    return parameter.name.startswith("model.") and not isinstance(parameter, Float)
