"""Several objectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from search_cases import settings

from tao_ray.errors import TaoRayError
from tao_ray.search import TrialStatus, build, pareto_front
from tao_ray.search.base import Proposal
from tao_ray.search.tradeoff import scalarised
from tao_ray.space import Float, SearchSpace

SQUARE = SearchSpace([Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)])


def search(name: str, trials: int = 40) -> list[tuple[float, float]]:
    """Both losses of every trial: accuracy wants x = 0, latency x = 1; y only hurts."""
    s = settings(points=(), trials=trials, max_epochs=None, objectives=2)
    proposer: Any = build(name, SQUARE, s, {}).proposer
    found = []
    for i in range(trials):
        proposal = proposer.ask(0)
        assert isinstance(proposal, Proposal)
        c = proposal.config
        losses = (c["x"] ** 2 + c["y"], (1 - c["x"]) ** 2 + c["y"])
        proposer.started(f"t{i}", proposal)
        proposer.tell_others(f"t{i}", losses[1:])
        proposer.tell(f"t{i}", c, 0, losses[0], TrialStatus.COMPLETED)
        found.append(losses)
    return found


def hypervolume(losses: list[tuple[float, float]]) -> float:
    """Area dominated within [0, 1] x [0, 1]; at most about 0.83 here."""
    front = sorted(losses[i] for i in pareto_front(losses))
    area, ceiling = 0.0, 1.0
    for a, b in front:
        if a < 1 and b < ceiling:
            area += (1 - a) * (ceiling - b)
            ceiling = b
    return area


@pytest.mark.parametrize("name", ["bayesian", "tpe"])
def test_proposals_cover_the_front(name: str) -> None:
    losses = search(name)
    assert hypervolume(losses) > hypervolume(search("random")) + 0.03
    xs = sorted(losses[i][0] for i in pareto_front(losses))
    assert xs[0] < 0.2
    assert xs[-1] > 0.5


def test_a_scalarisation_prefers_what_dominates() -> None:
    losses = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.4, 0.4]])
    winners = set()
    for seed in range(50):
        values = scalarised(losses, np.random.default_rng(seed))
        assert values[2] == values.max()
        winners.add(int(values.argmin()))
    assert winners == {0, 1, 3}


def test_the_front_keeps_equals_and_drops_the_dominated() -> None:
    assert pareto_front([(1, 2), (2, 1), (2, 2), (1, 2), (3, 0)]) == [0, 1, 3, 4]
    assert pareto_front([]) == []


def test_algorithms_of_one_objective_refuse_several() -> None:
    with pytest.raises(TaoRayError, match="asha follows a single objective, and 2 are given"):
        build("asha", SQUARE, settings(points=(), objectives=2), {})
