"""Population training: chains of trials, exploits, mutations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from search_cases import POPULATIONS, loss_at, make_space, settings

from tao_ray.search import Decision, Proposal, TrialStatus, Wait, WeightsFrom, build
from tao_ray.search.pbt import perturbed
from tao_ray.search.simulation import Simulation, replay, simulate


def run(name: str, workers: int = 4, seed: int = 3, **options: Any) -> Simulation:
    s = settings(trials=4, max_epochs=20, max_concurrent=workers, seed=seed)
    algorithm = build(name, make_space(), s, options)
    return simulate(algorithm, loss_at, max_epochs=20, workers=workers)


@pytest.mark.parametrize("name", POPULATIONS)
def test_every_member_trains_the_full_budget_in_one_chain(name: str) -> None:
    result = run(name, generations=4)
    assert sum(t.status is TrialStatus.COMPLETED for t in result.trials) == 4
    by_id = {t.trial_id: t for t in result.trials}
    exploits = [t for t in result.trials if t.start is not None]
    for trial in exploits:
        assert trial.start is not None
        donor = by_id[trial.start.trial_id]
        assert trial.info["exploits"] == donor.trial_id
        assert trial.start.epoch in (5, 10, 15)
        assert donor.epoch >= trial.start.epoch
    # a loser hears the verdict an epoch or two after the milestone
    assert 4 * 20 <= result.epochs <= 4 * 20 + 2 * len(exploits)


class Pair:
    """Two members, reported to by hand."""

    def __init__(self, name: str) -> None:
        s = settings(trials=2, max_epochs=20, max_concurrent=2)
        self.algorithm = build(name, make_space(), s, {"generations": 4})
        for trial_id in ("early", "late"):
            proposal = self.ask()
            assert isinstance(proposal, Proposal)
            self.algorithm.proposer.started(trial_id, proposal)
            self.algorithm.rule.add(trial_id, proposal.info)

    def ask(self) -> Any:
        return self.algorithm.proposer.ask(2)

    def report(self, trial_id: str, epochs: range, loss: float) -> list[Decision]:
        decisions = []
        for epoch in epochs:
            self.algorithm.proposer.tell(trial_id, {}, epoch, loss, TrialStatus.RUNNING)
            decisions.append(self.algorithm.rule.report(trial_id, epoch, loss))
        return decisions


@pytest.mark.parametrize("name", POPULATIONS)
def test_a_member_that_is_done_is_not_replaced(name: str) -> None:
    """The one that started late arrives at a milestone when the other one trains its last epoch."""
    pair = Pair(name)
    assert set(pair.report("early", range(1, 20), 9.0)) == {Decision.CONTINUE}
    assert set(pair.report("late", range(1, 16), 1.0)) == {Decision.CONTINUE}
    assert pair.report("early", range(20, 21), 9.0) == [Decision.CONTINUE]
    assert isinstance(pair.ask(), Wait)


@pytest.mark.parametrize("name", POPULATIONS)
def test_a_member_ahead_by_an_interval_is_compared_all_the_same(name: str) -> None:
    """Its first report after the last member's arrival is that of its next milestone."""
    pair = Pair(name)
    assert set(pair.report("early", range(1, 10), 9.0)) == {Decision.CONTINUE}
    assert set(pair.report("late", range(1, 6), 1.0)) == {Decision.CONTINUE}
    assert pair.report("early", range(10, 11), 9.0) == [Decision.STOP]
    assert pair.ask().start == WeightsFrom("late", 5)


@pytest.mark.parametrize("name", POPULATIONS)
def test_nobody_pauses_while_every_member_has_a_slot(name: str) -> None:
    """A quarter of four members exploits at each of three milestones: seven job starts."""
    for seed in range(4):
        result = run(name, seed=seed, generations=4)
        assert sum(t.start is not None for t in result.trials) == 3
        assert result.job_starts == 7


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_worst_of_a_milestone_copies_the_best(name: str) -> None:
    result = run(name, generations=4)
    founders = [t for t in result.trials if t.start is None]
    worst = max(founders, key=lambda t: t.losses[4])
    best = min(founders, key=lambda t: t.losses[4])
    assert worst.status is TrialStatus.STOPPED
    heir = next(
        t for t in result.trials if t.info["member"] == int(worst.info["member"]) and t.start
    )
    assert heir.start is not None
    assert (heir.start.trial_id, heir.start.epoch) == (best.trial_id, 5)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_donors_checkpoint_is_protected_until_it_was_used(workers: int) -> None:
    """Replaying a run call by call, each exploit's donor is protected just before it starts."""
    s = settings(trials=4, max_epochs=20, max_concurrent=workers)
    result = run("pbt", workers=workers, generations=4)
    fresh: Any = build("pbt", make_space(), s, {"generations": 4})
    used = 0
    for call in result.calls:
        if call[0] == "proposer.started" and call[1][1].start is not None:
            assert call[1][1].start in fresh.rule.donors()
            used += 1
        replay(fresh, [call])
    assert used == 3
    assert fresh.rule.donors() == []


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", POPULATIONS)
def test_with_fewer_slots_members_wait_for_each_other(name: str, workers: int) -> None:
    result = run(name, workers=workers, generations=4)
    assert result.epochs == 4 * 20
    first = [t for t in result.trials if t.start is None]
    worst = max(first, key=lambda t: t.losses[4])
    assert worst.epoch == 5
    assert worst.status is TrialStatus.STOPPED


def test_a_failed_member_continues_from_a_good_one_once_per_milestone() -> None:
    def objective(config: Any, epoch: int) -> float:
        if config["optim"] != "sgd":
            return loss_at(config, epoch)
        return -1.0 if epoch < 7 else float("nan")

    space = make_space()
    sgd = space.snap({"lr": 1e-3, "optim": "sgd"})
    s = settings(trials=4, max_epochs=20, max_concurrent=4, points=(space.defaults(), sgd))
    result = simulate(
        build("pbt", space, s, {"generations": 4}), objective, max_epochs=20, workers=4
    )
    failed = [t for t in result.trials if t.status is TrialStatus.FAILED]
    assert failed
    heir = next(t for t in result.trials if t.info["member"] == 1 and t is not failed[0])
    assert heir.start is not None
    assert heir.start.epoch == 5


def test_mutations_move_every_number_and_keep_every_constraint() -> None:
    space = make_space()
    rng = np.random.default_rng(0)
    config = space.snap({"dropout": 0.0, "crop_min": 64, "crop_max": 72, "batch": 1})
    for _ in range(20):
        mutated = perturbed(space, config, rng, resample=0.0)
        assert space.violations(mutated) == []
        assert mutated["optim"] == config["optim"]
        moved = mutated["lr"] / config["lr"]
        assert any(moved == pytest.approx(f, rel=1e-3) for f in (1.2, 0.8))
        config = dict(mutated)
    drawn = [perturbed(space, config, rng, resample=1.0)["optim"] for _ in range(50)]
    assert set(drawn) == {"sgd", "adam", "lamb"}


def test_small_numbers_take_a_step_where_a_factor_changes_nothing() -> None:
    space = make_space()
    config = space.snap({"dropout": 0.0, "batch": 2})
    seen = [perturbed(space, config, np.random.default_rng(i), resample=0.0) for i in range(40)]
    assert {c["batch"] for c in seen} == {1, 4}
    assert {c["dropout"] for c in seen} == {0.0, 0.05}
