"""Several objectives: the front, and proposals that look for it."""

from __future__ import annotations

import numpy as np

from tao_ray.search import build
from tao_ray.search.base import Proposal, Proposer, SearchSettings, TrialStatus
from tao_ray.search.parego import ParEgo, pareto_front
from tao_ray.space import Float, SearchSpace

SPACE = SearchSpace([Float("x", -2.0, 2.0, default=-2.0), Float("y", 0.0, 1.0, default=1.0)])


def losses(config: dict[str, float]) -> tuple[float, float]:
    """Both are best at y = 0; x between 0 and 1 trades one for the other."""
    return config["x"] ** 2 + config["y"], (config["x"] - 1) ** 2 + config["y"]


def make() -> Proposer:
    settings = SearchSettings(trials=30, max_epochs=None, seed=2, points=(SPACE.defaults(),))
    return build("bayesian", SPACE, settings, {}).proposer


def search(proposer: Proposer, trials: int) -> dict[str, tuple[float, float]]:
    found = {}
    for number in range(trials):
        proposal = proposer.ask(0)
        assert isinstance(proposal, Proposal)
        trial_id = f"{number:04d}"
        proposer.started(trial_id, proposal)
        both = losses(dict(proposal.config))
        if isinstance(proposer, ParEgo):
            proposer.observe(trial_id, both)
        proposer.tell(trial_id, proposal.config, 1, both[0], TrialStatus.COMPLETED)
        found[trial_id] = both
    return found


def test_the_front_holds_what_nothing_beats() -> None:
    points = {"a": (1.0, 3.0), "b": (2.0, 2.0), "c": (3.0, 3.0), "d": (2.0, 2.0), "e": (0.0, 9.0)}
    assert pareto_front(points) == ["a", "b", "d", "e"]
    assert pareto_front({"a": (float("nan"), 0.0)}) == []
    assert pareto_front({}) == []


def test_it_finds_the_trade_off_where_one_objective_finds_an_end() -> None:
    several = search(ParEgo(make, seed=2), 25)
    single = search(make(), 25)

    def spread(found: dict[str, tuple[float, float]]) -> float:
        front = np.array([found[name] for name in pareto_front(found)])
        near = front[front.sum(axis=1) < 1.2]  # the true front's sums are between 0.5 and 1
        return float(np.ptp(near[:, 0])) if len(near) else 0.0

    assert spread(several) > 0.5
    assert spread(several) > spread(single)


def test_same_calls_same_proposals() -> None:
    first, second = ParEgo(make, seed=3), ParEgo(make, seed=3)
    search(first, 10)
    search(second, 10)
    a, again, b = first.ask(1), first.ask(1), second.ask(1)
    assert a == again == b
    other = ParEgo(make, seed=4)
    search(other, 10)
    assert other.ask(1) != a
