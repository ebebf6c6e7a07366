"""The search loop: what is journalled, decided and remembered. No Ray, a real journal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tao_ray.experiment.conductor import Conductor, ReplayMismatch
from tao_ray.experiment.stop_rules import Halt, Limits
from tao_ray.journal import Event, Journal
from tao_ray.search import build
from tao_ray.search.base import Algorithm, Decision, SearchSettings
from tao_ray.space import Float, SearchSpace
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.state import Objective, RunState

SPACE = SearchSpace([Float("x", 0.0, 1.0, default=0.5)])
EPOCHS = 9


def algorithm(name: str = "asha", trials: int = 6, concurrent: int = 2) -> Algorithm:
    settings = SearchSettings(
        trials=trials,
        max_epochs=EPOCHS,
        max_concurrent=concurrent,
        seed=3,
        points=(SPACE.defaults(),),
    )
    return build(name, SPACE, settings, {})


def conductor(
    journal: Journal, name: str = "asha", direction: str = "maximize", **limits: Any
) -> Conductor:
    bounds = Limits(**{"max_epochs": EPOCHS, "max_concurrent": 2, **limits})
    made = Conductor(algorithm(name), Objective("acc", direction), journal, bounds)
    made.replay(journal.read())
    return made


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.sqlite")


def launch(journal: Journal, trial_id: str, segment: int = 1) -> None:
    """What a supervisor writes when it starts a job."""
    job = f"{trial_id}-{segment}"
    journal.append(
        Event("job", trial_id, {"job": job, "segment": segment, "resume_epoch": 0}),
        Event("launched", trial_id, {"job": job}),
    )


def fail_next(search: Conductor, journal: Journal, failure: Failure) -> None:
    """A new trial, whose first job fails."""
    trial = search.next_proposed()
    assert trial is not None
    launch(journal, trial.id)
    search.on_failure(trial.id, failure)


def run_all(search: Conductor, journal: Journal, stop_after: int | None = None) -> int:
    """Drive every trial to its end, one epoch of each running trial at a time.

    stop_after: return after so many epochs, in the middle of things.
    """
    epochs = 0
    while not search.finished():
        search.settle_losers()
        while (trial := search.next_resumed() or search.next_proposed()) is not None:
            launch(journal, trial.id, len(trial.jobs) + 1)
        search.catch_up()
        for trial in search.unfinished():
            if trial.last_epoch == EPOCHS:
                search.on_completed(trial.id)
                continue
            epoch = trial.last_epoch + 1
            value = trial.config["x"] + 0.01 * epoch
            job = trial.jobs[-1].id
            decision = search.on_epoch(trial.id, epoch, {"acc": value}, job=job)
            epochs += 1
            assert decision is Decision.CONTINUE or not search.state.trials[trial.id].alive
            if epochs == stop_after:
                return epochs
    return epochs


def told(events: list[Event]) -> list[tuple[str, str | None, Mapping[str, Any]]]:
    facts = ("config", "epoch", "decision", "loss", "status")
    return [(e.kind, e.trial, {k: e.data.get(k) for k in facts}) for e in events]


@pytest.mark.parametrize("stop_after", [1, 2, 5, 9, 14, 17])
def test_a_search_killed_at_any_epoch_goes_on_as_if_undisturbed(
    tmp_path: Path, stop_after: int
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    undisturbed = Journal(tmp_path / "a" / "journal.sqlite")
    run_all(conductor(undisturbed, max_concurrent=1), undisturbed)

    journal = Journal(tmp_path / "b" / "journal.sqlite")
    run_all(conductor(journal, max_concurrent=1), journal, stop_after)
    run_all(conductor(journal, max_concurrent=1), journal)

    assert told(journal.read()) == told(undisturbed.read())


def test_a_crash_between_an_epoch_and_its_decision(tmp_path: Path, journal: Journal) -> None:
    whole = conductor(journal)
    run_all(whole, journal)
    events = journal.read()
    cut = Journal(tmp_path / "cut.sqlite")
    # Everything up to an epoch whose decision stopped its trial, without that decision.
    at = next(
        i for i, e in enumerate(events) if e.kind == "decision" and e.data["decision"] == "stop"
    )
    cut.append(*events[:at])
    resumed = conductor(cut)
    trial = resumed.state.trials[events[at].trial or ""]
    assert trial.status == "stopped"
    assert told(cut.read()) == told(events[: at + 2])


def test_values_become_losses_once(journal: Journal, tmp_path: Path) -> None:
    run_all(conductor(journal), journal)
    mirrored = Journal(tmp_path / "mirrored.sqlite")
    search = conductor(mirrored, direction="minimize")
    on_epoch = search.on_epoch
    search.on_epoch = lambda trial, epoch, metrics, **f: on_epoch(  # type: ignore[method-assign]
        trial, epoch, {"acc": -metrics["acc"]}, **f
    )
    run_all(search, mirrored)
    assert told(journal.read()) == told(mirrored.read())


def test_a_nan_ends_the_trial_as_a_failure_and_keeps_what_it_had(journal: Journal) -> None:
    search = conductor(journal)
    trial = search.next_proposed()
    assert trial is not None
    launch(journal, trial.id)
    search.on_epoch(trial.id, 1, {"acc": 0.9}, job="0000-1")
    assert search.on_epoch(trial.id, 2, {"acc": math.nan}, job="0000-1") is Decision.STOP
    assert trial.status == "failed"
    assert trial.failure is not None
    assert trial.failure.kind is FailureKind.NAN
    assert [e.loss for e in trial.measured()] == [-0.9]

    other = search.next_proposed()
    assert other is not None
    launch(journal, other.id)
    search.on_epoch(other.id, 1, {"acc": 0.1}, job="0001-1")
    best = search.state.best(search.objective)
    assert best is not None
    assert best[0].id == other.id  # a failed trial never ranks above a sound one


def test_epochs_without_the_objective_are_kept_but_not_decided(journal: Journal) -> None:
    search = conductor(journal)
    trial = search.next_proposed()
    assert trial is not None
    launch(journal, trial.id)
    assert search.on_epoch(trial.id, 1, {"other": 1.0}, job="0000-1") is Decision.CONTINUE
    assert trial.epochs[1].loss is None
    assert "decision" not in [e.kind for e in journal.read()]


def test_an_epoch_trained_again_replaces_the_older_and_decides_nothing(journal: Journal) -> None:
    search = conductor(journal)
    trial = search.next_proposed()
    assert trial is not None
    launch(journal, trial.id)
    search.on_epoch(trial.id, 1, {"acc": 0.3}, job="0000-1")
    search.on_epoch(trial.id, 1, {"acc": 0.4}, job="0000-2")
    assert trial.epochs[1].metrics["acc"] == 0.4
    assert [e.kind for e in journal.read()].count("decision") == 1


def test_infrastructure_failures_are_retried_and_bounded(journal: Journal) -> None:
    search = conductor(journal, max_retries=2)
    trial = search.next_proposed()
    assert trial is not None
    lost = Failure(FailureKind.MACHINE_LOST, "gone")
    for segment in (1, 2):
        launch(journal, trial.id, segment)
        assert search.on_failure(trial.id, lost)
        assert trial.alive
    launch(journal, trial.id, 3)
    assert not search.on_failure(trial.id, lost)
    assert trial.status == "failed"
    assert all(job.retired for job in trial.jobs[:2])


def test_failures_of_the_setup_stop_the_run_with_the_shared_cause(journal: Journal) -> None:
    search = conductor(journal, max_failures_in_a_row=3)
    for n in range(3):
        assert search.halt is None
        fail_next(search, journal, Failure(FailureKind.DATA, f"no file {n}"))
    assert search.halt == Halt(
        "3 trials in a row failed alike: the data is missing or not what the network expects - "
        "no file 2",
        resumable=True,
    )
    assert search.next_proposed() is None


def test_a_run_goes_on_when_what_stopped_it_was_put_right(journal: Journal) -> None:
    search = conductor(journal, name="random", max_failures_in_a_row=1)
    fail_next(search, journal, Failure(FailureKind.CREDENTIALS, "the token has expired"))
    assert search.halt is not None
    assert search.halt.resumable

    resumed = conductor(journal, name="random", max_failures_in_a_row=1)
    assert resumed.halt is None
    assert resumed.next_proposed() is not None


def test_a_defect_that_only_another_configuration_mends_ends_a_run(journal: Journal) -> None:
    search = conductor(journal, name="random", max_failures_in_a_row=1)
    fail_next(search, journal, Failure(FailureKind.CODE, "KeyError"))
    assert search.halt is not None
    assert not search.halt.resumable


def test_bad_configurations_do_not_stop_a_run_that_has_succeeded(journal: Journal) -> None:
    search = conductor(journal, name="random", max_failures_in_a_row=2)
    first = search.next_proposed()
    assert first is not None
    launch(journal, first.id)
    for epoch in range(1, EPOCHS + 1):
        search.on_epoch(first.id, epoch, {"acc": 0.5}, job="0000-1")
    search.on_completed(first.id)
    for _ in range(3):
        trial = search.next_proposed()
        assert trial is not None
        launch(journal, trial.id)
        search.on_epoch(trial.id, 1, {"acc": math.inf}, job="x")
    assert search.halt is None


def test_no_more_trials_run_than_there_are_slots(journal: Journal) -> None:
    search = conductor(journal, max_concurrent=2)
    assert search.next_proposed() is not None
    assert search.next_proposed() is not None
    assert search.next_proposed() is None


def test_a_journal_that_decides_otherwise_is_refused(tmp_path: Path, journal: Journal) -> None:
    run_all(conductor(journal), journal)
    forged = Journal(tmp_path / "forged.sqlite")
    for event in journal.read():
        data = dict(event.data)
        if event.kind == "decision" and data["decision"] == "stop":
            data["decision"] = "pause"
        forged.append(Event(event.kind, event.trial, data))
    with pytest.raises(ReplayMismatch, match="the journal says pause, replaying it says stop"):
        conductor(forged)


def test_what_trials_wrote_is_taken_in_before_what_follows_it(journal: Journal) -> None:
    search = conductor(journal)
    trial = search.next_proposed()
    assert trial is not None
    launch(journal, trial.id)
    search.on_epoch(trial.id, 1, {"acc": 0.5}, job="0000-1")
    assert search.state.trials[trial.id].jobs[0].launched is not None
    assert told(journal.read()) == told(journal.read())
    assert RunState.fold(journal.read()).trials == search.state.trials


def test_metrics_that_come_late_belong_to_their_epoch(journal: Journal) -> None:
    search = conductor(journal)
    trial = search.next_proposed()
    assert trial is not None
    launch(journal, trial.id)
    search.on_epoch(trial.id, 1, {"acc": 0.5}, job="0000-1")
    late = {1: {"train_loss": 2.5}}
    search.on_epoch(trial.id, 2, {"acc": 0.6}, job="0000-1", late=late)
    assert trial.epochs[1].metrics == {"acc": 0.5, "train_loss": 2.5}
    assert RunState.fold(journal.read()).trials[trial.id].epochs[1].metrics["train_loss"] == 2.5


def test_a_target_ends_the_search_with_what_there_is(journal: Journal) -> None:
    search = conductor(journal, name="random", target=0.5)
    first = search.next_proposed()
    second = search.next_proposed()
    assert first is not None
    assert second is not None
    launch(journal, first.id)
    launch(journal, second.id)
    search.on_epoch(first.id, 1, {"acc": 0.49}, job="0000-1")
    assert search.halt is None
    search.on_epoch(second.id, 1, {"acc": 0.51}, job="0001-1")
    assert search.halt == Halt("acc = 0.51 reached the target 0.5", resumable=False)
    search.end_all()
    assert [t.status for t in search.state.trials.values()] == ["stopped", "stopped"]


def test_patience_counts_trials_without_a_new_best(journal: Journal) -> None:
    search = conductor(journal, name="random", patience_trials=2, max_concurrent=1)
    for value, halted in ((0.5, False), (0.6, False), (0.6, False), (0.55, True)):
        trial = search.next_proposed()
        assert trial is not None
        launch(journal, trial.id)
        search.on_epoch(trial.id, EPOCHS, {"acc": value}, job=f"{trial.id}-1")
        search.on_completed(trial.id)
        assert (search.halt is not None) is halted
    assert conductor(journal, name="random", patience_trials=2).halt is None  # asked anew on resume
