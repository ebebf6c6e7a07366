"""Trials that have stopped improving end; nothing else changes."""

from __future__ import annotations

from tao_ray.search.base import Decision
from tao_ray.search.fifo import RunToEnd
from tao_ray.search.patience import Patience


def decisions(losses: list[float], patience: int) -> list[Decision]:
    rule = Patience(RunToEnd(), patience)
    rule.add("0000", {})
    return [rule.report("0000", n, loss) for n, loss in enumerate(losses, 1)]


def test_a_trial_is_stopped_after_its_patience() -> None:
    losses = [3.0, 2.0, 2.5, 1.0, 1.0, 1.5]
    kinds = decisions(losses, 2)
    assert kinds == [Decision.CONTINUE] * 5 + [Decision.STOP]


def test_an_improving_trial_goes_on() -> None:
    assert set(decisions([float(-n) for n in range(20)], 1)) == {Decision.CONTINUE}
