"""Rented machines in the report: money and time that add up, and what went wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import SECONDS_PER_EVENT, MadeRun

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import Event
from tao_ray.report import read_run, write_report
from tao_ray.report.machines import machine_troubles, rent_note, uses
from tao_ray.trial.failure import Failure, FailureKind


def markdown(run_dir: RunDir) -> str:
    return (write_report(run_dir).parent / "report.md").read_text()


def test_evaluations_are_among_the_jobs_of_their_machine(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, rented=True, trials=3).go()
    made.evaluation("final", "eval-final-1", metric=0.9)
    run = read_run(made.end())
    job = next(j for j in run.jobs if j.evaluates)
    assert (job.id, job.owner, job.machine) == ("eval-final-1", "final", "m-a")
    assert job.seconds == pytest.approx(2 * SECONDS_PER_EVENT)
    held = sum(use.held for use in uses(run))
    assert held == pytest.approx(
        sum(lease.seconds(0) for lease in run.state.ledger.leases.values())
    )


def test_without_machines_an_evaluation_lasts_as_long_as_its_record_says(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, trials=2).go()
    made.evaluation("baseline", "eval-baseline-1", metric=0.9)
    job = next(j for j in read_run(made.end()).jobs if j.evaluates)
    assert job.seconds == pytest.approx(SECONDS_PER_EVENT)
    assert not job.running


def test_the_share_of_jobs_is_that_of_the_ledger(tmp_path: Path) -> None:
    run_dir = MadeRun(tmp_path, rented=True).go().end()
    run = read_run(run_dir)
    share = run.state.ledger.utilisation(run.now)
    assert share is not None
    cost = run.state.ledger.cost(run.now)
    found = uses(run)
    assert sum(use.cost for use in found) == pytest.approx(cost)
    # All machines have the same price here.
    assert sum(use.idle_cost for use in found) == pytest.approx(cost * (1 - share))
    assert f"that were paid for: {share:.0%}. The rest" in markdown(run_dir)


def test_a_machine_that_never_came_is_told_of_with_what_it_cost(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, rented=True, trials=3).go()
    made.machine("m-d", "wanted", slots=1)
    made.machine("m-d", "skipped", type="l4", text="no capacity")
    made.machine("m-d", "asked", type="l40s", price=3600.0, text="")
    made.machine("m-d", "made", text="the request was taken")
    made.machine("m-d", "abandoned", type="l40s", text="m-d: it never appeared\n  -> choose")
    made.machine("m-d", "asked", type="a100", price=7200.0, text="")
    made.machine("m-d", "ready")
    run_dir = made.end()
    run = read_run(run_dir)
    missed, left = machine_troubles(run)
    assert missed == "m4: not to be had was `l4` (no capacity)."
    assert left.startswith("m4: `l40s` was given up after 0.7 s: it never appeared; `a100` was")
    assert left.endswith("ready 1.4 s later; counted as paid for the first: 1.4 s, $1.40.")
    assert [use.rent.type for use in uses(run) if use.label == "m4"] == ["l40s", "a100"]
    text = markdown(run_dir)
    assert left in text
    assert "| m4 | l40s | 3600.00 | 1.4 s | 0 s | $1.40 | $1.40 | given up, gone |" in text
    assert rent_note(run) == "rents machines on local, $3600.00 to $7200.00 per hour each"


def test_a_lost_machine_s_trials_are_told_of(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, rented=True, trials=3, max_concurrent=1, algorithm="random").go(2)
    made.machine("m-a", "lost", text="it vanished")
    failure = Failure(FailureKind.MACHINE_LOST, "its machine is gone")
    made.journal.append(Event("retry", "0000", {"failure": failure.to_json()}))
    job = {"job": "0000-2", "segment": 2, "resume_epoch": 1}
    made.journal.append(Event("job", "0000", job))
    made.machine("m-b", "leased", job="0000-2", workspace="0000")
    made.journal.append(Event("launched", "0000", {"job": "0000-2"}))
    lost, went_on = machine_troubles(read_run(made.close()))
    assert "m1: `l40s` was lost after" in lost
    assert "it vanished; it had 0000-1" in lost
    assert went_on == (
        "trial 0000: job 0000-1 on m1 broke off (its machine is gone); it went on after epoch 1 "
        "as 0000-2 on m2."
    )
