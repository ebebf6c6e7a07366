"""What the plots of a run are drawn from: rungs, and the timeline."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from made_runs import MadeRun

from tao_ray.experiment.run_dir import RunDir
from tao_ray.report import read_run
from tao_ray.report.run_plots import rungs, timeline_bars, utilisation
from tao_ray.report.svg import Scale


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
    assert 0.3 < utilisation(run, bars) <= 1.0


def test_ticks_are_round_and_within() -> None:
    assert Scale(0.0, 1.0, 0, 100).ticks(5) == [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    assert Scale(1e-5, 1e-1, 0, 100, log=True).ticks(9) == [1e-05, 1e-4, 0.001, 0.01, 0.1]
    assert Scale(4, 16, 0, 100, log=True).ticks(9) == [5.0, 10.0]
    assert Scale(2.0, 2.0, 0, 100).ticks(5) == [2.0]
    assert Scale(2.0, 2.0, 0, 100)(2.0) == 50
