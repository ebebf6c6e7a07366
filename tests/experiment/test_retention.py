"""Retention: what it keeps is all that is ever asked for, and little more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journalled import ended

from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.retention import (
    BEST,
    DONOR,
    FRONT,
    MAY_WIN,
    REFERENCE,
    RESUME,
    UNREPORTED,
    Needs,
    needs_of,
)
from tao_ray.experiment.stop_rules import Limits
from tao_ray.journal import Event, Journal
from tao_ray.network.checkpoints import CheckpointFile
from tao_ray.search import build
from tao_ray.search.base import GivesWeights, SearchSettings, WeightsFrom
from tao_ray.search.simulation import simulate
from tao_ray.space import Float, SearchSpace
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.state import Objective, RunState, TrialState

SPACE = SearchSpace([Float("x", 0.0, 1.0, default=0.5)])
OBJECTIVE = Objective("acc", "maximize")
EPOCHS = 9
SIZE = 1000


# -- what is kept of one trial --------------------------------------------------------------------


def files(*epochs: int | None) -> list[CheckpointFile]:
    return [CheckpointFile(f"{e}", e, SIZE) for e in epochs]


def running(last_epoch: int, **needs: Any) -> Needs:
    return Needs("0000-1", 0, last_epoch, True, False, **needs)


def test_a_running_trial_keeps_what_it_can_resume_from_and_what_was_not_reported() -> None:
    # The newest reported one may be half written when the machine dies, so one more stays.
    kept = running(5).keep(files(1, 2, 3, 4, 5, 6))
    assert kept == {"4": RESUME, "5": RESUME, "6": UNREPORTED}


def test_a_paused_trial_keeps_its_rung_and_one_without_it_two() -> None:
    paused = Needs("0000-1", 0, 3, True, True)
    assert paused.keep(files(1, 2, 3)) == {"3": RESUME}
    assert paused.keep(files(1, 2)) == {"1": RESUME, "2": RESUME}


def test_the_best_epoch_is_kept_or_the_last_one_saved_before_it() -> None:
    kept = running(9, chosen=((5, MAY_WIN),)).keep(files(2, 4, 6, 8))
    assert kept == {"4": MAY_WIN, "6": RESUME, "8": RESUME}


def test_epochs_of_a_donor_come_before_the_own_ones() -> None:
    heir = Needs("0001-1", 4, 7, True, False, pinned=((5, DONOR),))
    assert heir.keep(files(1, 2, 3)) == {"1": DONOR, "2": RESUME, "3": RESUME}


def test_a_checkpoint_the_network_keeps_by_itself_goes_with_the_trial() -> None:
    ended = Needs("0000-1", 0, 9, False, False)
    assert ended.keep(files(None, 9)) == {}
    best = Needs("0000-1", 0, 9, False, False, chosen=((9, BEST),))
    assert best.keep(files(None, 8, 9)) == {"None": BEST, "9": BEST}


# -- what a search may still need ------------------------------------------------------------------


class World:
    """Trials without a network: an epoch writes a file, and whatever is read must be there."""

    def __init__(self, path: Path, name: str, concurrent: int, options: Mapping[str, Any]):
        self.journal = Journal(path / "journal.sqlite")
        settings = SearchSettings(
            trials=8,
            max_epochs=EPOCHS,
            max_concurrent=concurrent,
            seed=3,
            points=(SPACE.defaults(),),
        )
        limits = Limits(max_epochs=EPOCHS, max_concurrent=concurrent)
        algorithm = build(name, SPACE, settings, options)
        self.search = Conductor(algorithm, OBJECTIVE, self.journal, limits)
        self.search.replay(self.journal.read())
        self.files: dict[str, set[int]] = {}
        self.read: list[str] = []
        self.most = 0

    def thin(self) -> None:
        """Delete what is not needed; each trial's files by its own count of epochs."""
        state = self.search.state
        for trial, needs in needs_of(state, OBJECTIVE, self.search.donors()).items():
            found = [CheckpointFile(str(e), e, SIZE) for e in sorted(self.files.get(trial, ()))]
            self.files[trial] = {int(path) for path in needs.keep(found)}
        self.most = max(self.most, *(len(f) for f in self.files.values()), 0)

    def start(self, trial: TrialState) -> None:
        segment = len(trial.jobs) + 1
        job = {"job": f"{trial.id}-{segment}", "segment": segment, "resume_epoch": 0}
        offset = trial.start.epoch if trial.start else 0
        if segment > 1:
            self.read.append(f"{trial.id} resumes from {trial.last_epoch}")
            assert trial.last_epoch - offset in self.files[trial.id], self.read[-1]
        elif trial.start:
            donor = self.search.state.trials[trial.start.trial_id]
            own = trial.start.epoch - (donor.start.epoch if donor.start else 0)
            self.read.append(f"{trial.id} starts from {donor.id} at {own}")
            assert own in self.files[donor.id], self.read[-1]
        self.journal.append(Event("job", trial.id, job))
        self.files.setdefault(trial.id, set())

    def run(self, fail: Mapping[str, int] | None = None) -> RunState:
        """To the end. fail: trial -> the epoch at which its code fails."""
        search = self.search
        while not search.finished():
            search.settle_losers()
            while (trial := search.next_resumed() or search.next_proposed()) is not None:
                self.start(trial)
                search.catch_up()
            self.thin()
            for trial in search.unfinished():
                if trial.last_epoch == EPOCHS:
                    search.on_completed(trial.id)
                elif (fail or {}).get(trial.id) == trial.last_epoch:
                    search.on_failure(trial.id, Failure(FailureKind.CODE, "broken"))
                else:
                    self.train(trial)
                self.thin()
        return search.state

    def train(self, trial: TrialState) -> None:
        epoch = trial.last_epoch + 1
        value = trial.config["x"] - 0.02 * abs(epoch - 2)  # the best epoch is not the last
        job = trial.jobs[-1].id
        self.files[trial.id].add(epoch - (trial.start.epoch if trial.start else 0))
        self.search.on_epoch(trial.id, epoch, {"acc": value}, job=job)


ALGORITHMS = [
    ("random", 2, {}),
    ("asha", 3, {"min_epochs": 1}),
    ("asha", 3, {"min_epochs": 1, "variant": "promotion"}),
    ("hyperband", 2, {}),
    ("bohb", 3, {}),
    ("dehb", 2, {}),
    ("pbt", 8, {"generations": 3}),
    ("pbt", 3, {"generations": 4}),
    ("pb2", 4, {"population": 4, "generations": 4}),
]


@pytest.mark.parametrize(("name", "concurrent", "options"), ALGORITHMS)
@pytest.mark.parametrize("fail", [{}, {"0001": 3, "0002": 4, "0009": 5}])
def test_nothing_that_is_read_later_is_ever_deleted(
    tmp_path: Path, name: str, concurrent: int, options: dict[str, Any], fail: dict[str, int]
) -> None:
    world = World(tmp_path, name, concurrent, options)
    state = world.run(fail)
    best = state.best(OBJECTIVE)
    assert best is not None
    trial, judged = best
    own = judged.epoch - (trial.start.epoch if trial.start else 0)
    assert {t: f for t, f in world.files.items() if f} == {trial.id: {own}}
    # Two to resume from, the best one, and what a population copies from.
    assert world.most <= (3 if name not in ("pbt", "pb2") else 5)
    if name in ("hyperband", "pbt", "pb2") or "variant" in options:
        assert world.read, "this case is meant to resume or to exploit"


@pytest.mark.parametrize("seed", range(12))
def test_donors_are_named_as_long_as_they_may_be_asked_for(seed: int) -> None:
    def loss(config: Mapping[str, Any], epoch: int) -> float:
        broken = (epoch * 7 + int(config["x"] * 1000) + seed) % 11 == 0
        return float("nan") if broken else -config["x"] - 0.01 * epoch

    def fresh() -> Any:
        settings = SearchSettings(trials=6, max_epochs=20, max_concurrent=6, seed=seed)
        return build("pbt", SPACE, settings, {"generations": 5})

    calls = simulate(fresh(), loss, max_epochs=20, workers=6).calls
    algorithm = fresh()
    assert isinstance(algorithm.proposer, GivesWeights)
    reported: set[WeightsFrom] = set()
    gone: set[WeightsFrom] = set()
    for call, args in calls:
        if call == "proposer.started" and args[1].start is not None:
            assert args[1].start not in gone
        part, method = call.split(".")
        getattr(getattr(algorithm, part), method)(*args)
        if call == "rule.report":
            reported.add(WeightsFrom(args[0], args[1]))
        gone |= reported - set(algorithm.proposer.donors())


def chosen(*events: Event, keep: int = 1) -> dict[str, tuple[tuple[int, str], ...]]:
    state = RunState.fold(events)
    return {t: n.chosen for t, n in needs_of(state, OBJECTIVE, (), keep).items() if n.chosen}


def test_only_the_best_ended_trials_keep_a_checkpoint() -> None:
    trials = [*ended("0000", 0.3), *ended("0001", 0.1), *ended("0002", 0.2)]
    assert chosen(*trials) == {"0001": ((1, BEST),)}
    assert chosen(*trials, keep=2) == {"0001": ((1, BEST),), "0002": ((1, BEST),)}


def test_a_failed_trial_keeps_one_only_until_another_has_succeeded() -> None:
    failed = ended("0000", 0.1, "failed")
    assert chosen(*failed) == {"0000": ((1, BEST),)}
    assert chosen(*failed, *ended("0001", 0.5)) == {"0001": ((1, BEST),)}


def test_with_several_objectives_the_whole_front_stays() -> None:
    def trial(name: str, loss: float, latency: float) -> list[Event]:
        metrics = {"latency": latency}
        return [
            replace(e, data={**e.data, "metrics": metrics}) if e.kind == "epoch" else e
            for e in ended(name, loss)
        ]

    both = Objective("acc", "maximize", others=(("latency", "minimize"),))
    trials = [*trial("0000", 0.1, 9), *trial("0001", 0.2, 5), *trial("0002", 0.3, 7)]
    needs = needs_of(RunState.fold(trials), both, ())
    assert {t: n.chosen for t, n in needs.items() if n.chosen} == {
        "0000": ((1, BEST),),
        "0001": ((1, FRONT),),
    }


def test_trial_0_stays_until_it_was_evaluated_as_the_reference() -> None:
    def baseline(status: str) -> Event:
        return Event("evaluation", data={"name": "baseline", "kind": "trial 0", "status": status})

    trials = [*ended("0000", 0.3), *ended("0001", 0.1)]
    waiting = chosen(baseline("pending"), *trials)
    assert waiting == {"0000": ((1, REFERENCE),), "0001": ((1, BEST),)}
    assert chosen(baseline("pending"), *trials, baseline("measured")) == {"0001": ((1, BEST),)}
