"""What the plots of a run are drawn from: rungs, and the timeline."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from made_runs import MadeRun

from tao_ray.experiment.run_dir import RunDir
from tao_ray.report import read_run, write_report
from tao_ray.report.curves import learning_curve, measured_over_cost, value_range
from tao_ray.report.rungs import rungs
from tao_ray.report.svg import Scale, padded
from tao_ray.report.timeline import slots_used, timeline_bars
from tao_ray.trial.state import Objective


def test_rungs_are_where_the_journal_says_trials_were_stopped(done_run: RunDir) -> None:
    run = read_run(done_run)
    stops = [e for e in run.events if e.kind == "decision" and e.data["decision"] == "stop"]
    found = rungs(run)
    assert [r.epoch for r in found] == [*sorted({e.data["epoch"] for e in stops}), 18]
    for rung in found[:-1]:
        stopped = {e.trial for e in stops if e.data["epoch"] == rung.epoch}
        assert stopped <= rung.ended
        assert all(run.state.trials[t].last_epoch > rung.epoch for t in rung.went_on)
    assert found[-1].went_on == {t.id for t in run.trials if t.status == "completed"}


def test_paused_trials_wait_at_their_rung(tmp_path: Path) -> None:
    run = read_run(MadeRun(tmp_path, options={"variant": "promotion"}).go(25).close())
    paused = {t.id for t in run.trials if t.status == "paused"}
    assert paused
    waiting = {t for rung in rungs(run) for t in rung.waiting}
    assert paused <= waiting


def test_a_search_without_early_stopping_has_no_rungs(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, algorithm="random", trials=2, max_epochs=3)
    assert rungs(read_run(made.go().end())) == []


def test_the_timeline_has_every_job_and_no_overlap(done_run: RunDir) -> None:
    run = read_run(done_run)
    bars = timeline_bars(run)
    assert sorted(b.job.id for b in bars) == sorted(j.id for t in run.trials for j in t.jobs)
    for lane in range(max(b.lane for b in bars) + 1):
        times = [(b.start, b.end) for b in bars if b.lane == lane]
        assert all(end <= start for (_, end), (start, _) in pairwise(times))
    assert max(b.lane for b in bars) < 3  # no more lanes than slots
    share, slots = slots_used(run, bars)
    assert 0.3 < share <= 1.0
    assert slots == 3


def test_ticks_are_round_and_within() -> None:
    assert Scale(0.0, 1.0, 0, 100).ticks(5) == [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    assert Scale(1e-5, 1e-1, 0, 100, log=True).ticks(9) == [1e-05, 1e-4, 0.001, 0.01, 0.1]
    assert Scale(4, 16, 0, 100, log=True).ticks(9) == [5.0, 10.0]
    assert Scale(2.0, 2.0, 0, 100).ticks(5) == [2.0]
    assert Scale(2.0, 2.0, 0, 100)(2.0) == 50


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_far_worse_values_do_not_press_the_good_ones_together(direction: str) -> None:
    objective = Objective("m", direction)
    good, bad = [0.94, 0.95, 0.96, 0.97], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    values = [objective.value(-v) for v in good + bad]
    (low, high), cut = value_range(objective, values)
    assert cut == len(bad)
    assert high - low < 0.1
    assert all(low <= objective.value(-v) <= high for v in good)


def test_evenly_spread_and_equal_values_all_fit() -> None:
    objective = Objective("m", "minimize")
    assert value_range(objective, [i / 20 for i in range(21)])[1] == 0
    assert value_range(objective, [1.0] * 9 + [5.0]) == (padded([1.0, 5.0]), 0)
    assert value_range(objective, [0.0, 9.0, 9.1]) == (padded([0.0, 9.1]), 0)


def test_a_rented_run_shows_its_machines_and_what_they_cost(tmp_path: Path) -> None:
    run = read_run(MadeRun(tmp_path, rented=True).go().end())
    assert {b.job.machine for b in timeline_bars(run)} == {"m-a", "m-b", "m-c"}
    leases = run.state.ledger.leases
    assert all(b.job.machine == leases[b.job.id].machine for b in timeline_bars(run))
    spent = [usd for usd, _ in measured_over_cost(run)]
    assert spent == sorted(spent)
    assert 0 < spent[0] < spent[-1] < run.state.ledger.cost(run.now)
    text = (write_report(RunDir(run.path)).parent / "report.md").read_text()
    assert f"cost: **${run.state.ledger.cost(run.now):.2f}**" in text
    assert "| m2 | l40s | 3600.00 |" in text
    assert "No machine was lost or given up." in text
    assert "Best so far over cost" in (run.path / "report.html").read_text()


def test_where_trials_are_evaluated_the_curves_are_the_trainings(tmp_path: Path) -> None:
    run = read_run(MadeRun(tmp_path, objective={"source": "evaluate"}).go().end())
    assert run.objective.metric == "test_acc_1"
    assert run.reported.metric == "val_acc_1"
    for trial in run.trials:
        assert len(trial.measured()) == 1
        assert [epoch for epoch, _ in learning_curve(run, trial)] == sorted(trial.epochs)
    first = rungs(run)[0]
    assert len(first.values) == len(run.trials)
    html = write_report(RunDir(run.path)).read_text()
    assert "Learning curves of all trials" in html
    assert "of an evaluate job each" in html
