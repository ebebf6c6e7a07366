"""Rungs, brackets and the successive-halving rules, against the papers' arithmetic."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from search_cases import make_space, settings

from tao_ray.errors import TaoRayError
from tao_ray.search import Decision, TrialStatus, build
from tao_ray.search.asha import PromotionAsha, StoppingAsha
from tao_ray.search.hyperband import SynchronousHalving
from tao_ray.search.rungs import (
    Bracket,
    Rung,
    ceil_div,
    floor_log,
    geometric_rungs,
    hyperband_brackets,
)
from tao_ray.search.simulation import Simulation, simulate
from tao_ray.space import Float, SearchSpace

BUDGETS = (1, 3, 9, 16, 20, 27, 81, 100, 243)
LINE = SearchSpace([Float("x", 0.0, 1.0)])

PAPER = {
    # Table 1 of the Hyperband paper: R = 81, eta = 3
    (81, 3): [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ],
    (27, 3): [
        [(27, 1), (9, 3), (3, 9), (1, 27)],
        [(12, 3), (4, 9), (1, 27)],
        [(6, 9), (2, 27)],
        [(4, 27)],
    ],
    (20, 3): [[(9, 2), (3, 6), (1, 20)], [(5, 6), (1, 20)], [(3, 20)]],
    (16, 4): [[(16, 1), (4, 4), (1, 16)], [(6, 4), (1, 16)], [(3, 16)]],
    (1, 3): [[(1, 1)]],
}


@pytest.mark.parametrize(("budget", "eta"), PAPER)
def test_bracket_tables_by_hand(budget: int, eta: int) -> None:
    table = [[(r.size, r.epoch) for r in b.rungs] for b in hyperband_brackets(budget, eta)]
    assert table == PAPER[budget, eta]


@pytest.mark.parametrize("eta", [2, 3, 4])
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_bracket_exists_and_ends_at_the_full_budget(budget: int, eta: int) -> None:
    brackets = hyperband_brackets(budget, eta)
    s_max = len(brackets) - 1
    assert eta**s_max <= budget < eta ** (s_max + 1)
    for s, bracket in zip(range(s_max, -1, -1), brackets, strict=True):
        assert bracket.size == ceil_div((s_max + 1) * eta**s, s + 1)
        assert [r.epoch for r in bracket.rungs] == [budget // eta ** (s - i) for i in range(s + 1)]
        assert [r.size for r in bracket.rungs] == [bracket.size // eta**i for i in range(s + 1)]


def run(
    name: str, max_epochs: int, trials: int, eta: int, workers: int, **options: Any
) -> Simulation:
    algorithm = build(
        name,
        LINE,
        settings(trials=trials, max_epochs=max_epochs, points=(), max_concurrent=workers),
        {"reduction_factor": eta, **options},
    )
    return simulate(algorithm, lambda c, e: c["x"] + 1 / e, max_epochs=max_epochs, workers=workers)


def reached(result: Simulation, epochs: list[int]) -> dict[int, int]:
    """How many trials trained to each of `epochs` at least."""
    return {e: sum(t.epoch >= e for t in result.trials) for e in epochs}


@pytest.mark.parametrize("eta", [2, 3, 4])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("workers", [1, 5])
def test_hyperband_trains_exactly_the_table(budget: int, eta: int, workers: int) -> None:
    brackets = hyperband_brackets(budget, eta)
    result = run("hyperband", budget, sum(b.size for b in brackets), eta, workers)
    assert result.epochs == sum(b.epochs for b in brackets)
    stops = Counter(t.epoch for t in result.trials)
    theory: Counter[int] = Counter()
    for bracket in brackets:
        sizes = [r.size for r in bracket.rungs] + [0]
        for rung, size, following in zip(bracket.rungs, sizes, sizes[1:], strict=False):
            theory[rung.epoch] += size - following
    assert stops == +theory


@pytest.mark.parametrize("name", ["bohb", "dehb"])
@pytest.mark.parametrize("budget", [9, 20, 27])
def test_its_descendants_train_the_same_table(name: str, budget: int) -> None:
    brackets = hyperband_brackets(budget, 3)
    result = run(name, budget, sum(b.size for b in brackets), 3, workers=3)
    assert result.epochs == sum(b.epochs for b in brackets)


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("trials", [1, 2, 10, 26, 28, 40, 50])
def test_hyperband_with_brackets_left_unfilled(trials: int, workers: int) -> None:
    result = run("hyperband", 27, trials, 3, workers)
    assert len(result.trials) == trials
    assert any(t.status is TrialStatus.COMPLETED for t in result.trials)


def test_hyperband_keeps_the_best_of_each_rung() -> None:
    result = run("hyperband", 27, 27, 3, workers=4)  # the first bracket alone
    ranked = sorted(result.trials, key=lambda t: t.config["x"])
    assert [t.epoch for t in ranked] == [27] + [9] * 2 + [3] * 6 + [1] * 18


def test_a_rung_of_failures_lets_the_remaining_ones_through() -> None:
    rule = SynchronousHalving([Bracket((Rung(1, 3), Rung(3, 1)))])
    for trial in ("a", "b", "c"):
        rule.add(trial, {})
    rule.gone("a")
    assert rule.report("b", 1, 5.0) is Decision.PAUSE
    assert rule.runnable() == []
    rule.gone("c")
    assert (rule.runnable(), rule.losers()) == (["b"], [])


def test_a_trial_that_cannot_survive_is_stopped_at_once() -> None:
    rule = SynchronousHalving([Bracket((Rung(1, 3), Rung(3, 1)))])
    for trial in ("a", "b", "c"):
        rule.add(trial, {})
    assert rule.report("a", 1, 1.0) is Decision.PAUSE
    assert rule.report("b", 1, 2.0) is Decision.STOP
    rule.gone("b")
    assert rule.report("c", 1, 0.5) is Decision.PAUSE
    assert (rule.runnable(), rule.losers()) == (["c"], ["a"])


@pytest.mark.parametrize(
    ("low", "budget", "eta", "rungs"),
    [
        (1, 27, 3, (1, 3, 9, 27)),
        (1, 20, 3, (1, 3, 9, 20)),
        (3, 27, 3, (3, 9, 27)),
        (1, 243, 3, (1, 3, 9, 27, 81, 243)),
        (1, 1, 3, (1,)),
        (30, 20, 2, (20,)),
        (2, 100, 4, (2, 8, 32, 100)),
    ],
)
def test_geometric_rungs(low: int, budget: int, eta: int, rungs: tuple[int, ...]) -> None:
    assert geometric_rungs(low, budget, eta) == rungs


def test_floor_log_is_exact_where_floats_are_not() -> None:
    assert floor_log(243, 3) == 5
    assert floor_log(1, 3) == 0
    assert floor_log(10**15, 10) == 15


def test_stopping_asha_keeps_the_best_third_seen_so_far() -> None:
    rule = StoppingAsha(9, {1: 3, 3: 3})
    decisions = {}
    for trial, loss in zip("abcdefg", (5.0, 6.0, 4.0, 3.0, 4.5, 2.9, 3.5), strict=True):
        rule.add(trial, {})
        decisions[trial] = rule.report(trial, 1, loss)
    going = [t for t, d in decisions.items() if d is Decision.CONTINUE]
    # the best so far always; at six, the best two: f is the second after d was the first
    assert going == ["a", "c", "d", "f"]


def test_stopping_asha_counts_trials_that_are_about_to_arrive() -> None:
    """Of six side by side two go on, although the best arrive last."""
    rule = StoppingAsha(9, {3: 3})
    names = "abcdef"
    for name in names:
        rule.add(name, {})
    for epoch in (1, 2):
        for loss, name in zip((6.0, 5.0, 4.0, 3.0, 2.0, 1.0), names, strict=True):
            rule.report(name, epoch, loss)
    decisions = [rule.report(n, 3, loss) for n, loss in zip(names, (6, 5, 4, 3, 2, 1), strict=True)]
    assert decisions == [Decision.STOP] * 4 + [Decision.CONTINUE] * 2
    rule = StoppingAsha(9, {3: 3})
    for name in "ab":
        rule.add(name, {})
    rule.report("b", 1, 0.0)  # far from the rung: nothing is known of it yet
    assert rule.report("a", 3, 1.0) is Decision.CONTINUE


def test_stopping_asha_lets_one_go_on_when_those_to_come_disappoint() -> None:
    rule = StoppingAsha(9, {3: 3})
    for name in "ab":
        rule.add(name, {})
        rule.report(name, 2, {"a": 2.0, "b": 1.0}[name])
    assert rule.report("a", 3, 2.0) is Decision.STOP
    assert rule.report("b", 3, 3.0) is Decision.CONTINUE


def test_stopping_asha_judges_only_at_rungs_and_lets_the_top_rung_finish() -> None:
    rule = StoppingAsha(9, {1: 3, 3: 3})
    for trial in "ab":
        rule.add(trial, {})
    assert rule.report("a", 1, 1.0) is Decision.CONTINUE
    assert rule.report("a", 2, 9.0) is Decision.CONTINUE
    assert rule.report("b", 1, 2.0) is Decision.STOP


def test_each_rung_has_its_own_reduction() -> None:
    """Of twelve side by side, four pass the first rung and two the second."""
    rule = StoppingAsha(9, {3: 3, 6: 2})
    assert rule.milestones() == [3, 6, 9]
    going = [f"t{i}" for i in range(12)]
    for name in going:
        rule.add(name, {})
    left = {}
    for epoch in range(1, 10):
        decisions = {n: rule.report(n, epoch, float(n[1:])) for n in going}
        going = [n for n in going if decisions[n] is Decision.CONTINUE]
        for name in decisions.keys() - set(going):
            rule.gone(name)
        left[epoch] = going
    assert len(left[2]) == 12
    assert left[5] == left[3] == ["t0", "t1", "t2", "t3"]
    assert left[9] == left[6] == ["t0", "t1"]


@pytest.mark.parametrize(
    ("epochs", "options", "etas"),
    [
        (27, {}, {9: 3, 16: 2}),
        (20, {}, {7: 3, 12: 2}),
        (100, {}, {34: 3, 58: 2}),
        (27, {"min_epochs": 3}, {3: 3, 9: 3, 16: 2}),
        (4, {}, {3: 3}),
    ],
)
def test_auto_judges_again_midway_to_the_end(
    epochs: int, options: dict[str, int], etas: dict[int, int]
) -> None:
    algorithm = build("auto", LINE, settings(max_epochs=epochs), options)
    assert algorithm.rule.milestones() == [*etas, epochs]
    assert isinstance(algorithm.rule, StoppingAsha)
    assert algorithm.rule.brackets[0].etas == etas
    for epoch, eta in etas.items():
        assert f"1 in {eta} after epoch {epoch}" in algorithm.why


def test_a_full_training_that_was_never_seen_at_a_rung_is_not_stopped_there() -> None:
    for rule in (StoppingAsha(9, {3: 3}), PromotionAsha(9, {3: 3})):
        for trial in "ab":
            rule.add(trial, {})
        assert rule.report("a", 9, 1.0) is Decision.CONTINUE
        assert rule.report("b", 9, 2.0) is Decision.CONTINUE


def test_a_report_that_skips_a_rung_is_judged_there() -> None:
    rule = StoppingAsha(9, {1: 3, 3: 3})
    for trial in "ab":
        rule.add(trial, {})
    assert rule.report("a", 4, 1.0) is Decision.CONTINUE
    assert rule.report("b", 5, 2.0) is Decision.STOP


def test_promotion_asha_promotes_the_best_third_highest_rung_first() -> None:
    rule = PromotionAsha(9, {1: 3, 3: 3})
    for i in range(9):
        rule.add(f"t{i}", {})
        assert rule.report(f"t{i}", 1, float(i)) is Decision.PAUSE
    assert rule.runnable() == ["t0", "t1", "t2"]
    for i in range(3):
        rule.resumed(f"t{i}")
        assert rule.report(f"t{i}", 3, float(-i)) is Decision.PAUSE
    assert rule.runnable() == ["t2"]
    rule.resumed("t2")
    assert rule.report("t2", 9, 0.0) is not Decision.PAUSE
    rule.gone("t2")
    assert rule.losers() == []
    rule.exhausted()
    assert set(rule.losers()) == {f"t{i}" for i in range(9)} - {"t2"}


@pytest.mark.parametrize("trials", [27, 81])
def test_promotion_spends_about_what_successive_halving_does(trials: int) -> None:
    result = run("asha", 27, trials, 3, workers=4, variant="promotion", min_epochs=1)
    counts = reached(result, [1, 3, 9, 27])
    for rung, following in ((1, 3), (3, 9), (9, 27)):
        assert counts[following] >= max(1, counts[rung] // 3)
        assert counts[following] <= counts[rung] // 3 + 1 + 2 * counts[rung] ** 0.5


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
def test_brackets_start_one_rung_later_each(variant: str) -> None:
    result = run("asha", 27, 30, 3, workers=1, brackets=3, min_epochs=1, variant=variant)
    lowest = [min(t.epoch for t in result.trials[i::3]) for i in range(3)]
    assert lowest == [1, 3, 9]


def test_more_brackets_than_rungs_are_refused() -> None:
    with pytest.raises(TaoRayError, match="brackets: 5, but the rungs"):
        build("asha", LINE, settings(max_epochs=27), {"brackets": 5})


def test_asha_samplers_propose_valid_trials() -> None:
    for sampler in ("random", "sobol", "bayesian", "tpe"):
        algorithm = build("asha", make_space(), settings(trials=12), {"sampler": sampler})
        result = simulate(algorithm, lambda c, e: c["dropout"] + 1 / e, max_epochs=9, workers=2)
        assert len(result.trials) == 12
