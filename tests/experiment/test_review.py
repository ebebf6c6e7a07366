"""What is shown and asked before a run, and that it is what then runs."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from small_runs import SmallRun, configure, trained_checkpoint

from tao_ray.cli import main
from tao_ray.config import RunConfig
from tao_ray.errors import TaoRayError
from tao_ray.experiment.before_search import Begun, Stopped, before_search, begun
from tao_ray.experiment.consent import Answers, NoConsent, consent, too_long
from tao_ray.experiment.estimate import estimate
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.experiment.review import make_review
from tao_ray.experiment.review_text import markdown
from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import read_events
from tao_ray.platforms.base import HasPrices
from tao_ray.platforms.local import LocalPlatform
from tao_ray.search import algorithms


class Priced(LocalPlatform):
    """This host, at two dollars an hour for each job."""

    def price_per_hour(self, jobs: int) -> float | None:
        return 2.0 * jobs


def never(question: str) -> bool:
    raise AssertionError(f"nobody must be asked: {question}")


def begin(
    config: RunConfig, answers: Answers, platform: type[LocalPlatform] = LocalPlatform
) -> tuple[RunDir, str]:
    """Everything before a search; the run's directory and what was printed."""
    plan = make_plan(config)
    run_dir = RunDir.create(Path(str(config.results)), config.name)
    out = io.StringIO()
    before_search(plan, run_dir, platform(run_dir.jobs), 0, answers, Console(file=out, width=200))
    return run_dir, out.getvalue()


def test_the_first_trials_are_the_runs_first_trials(tmp_path: Path) -> None:
    search = {"algorithm": "asha", "trials": 4, "max_epochs": 2, "max_concurrent": 4, "seed": 5}
    run = SmallRun(configure(tmp_path, search=search))
    review = make_review(run.plan, run.platform, 0, tmp_path)
    run.search()
    assert [trial.id for trial in review.first] == ["0000", "0001", "0002", "0003"]
    proposed = {e.trial: e.data["config"] for e in run.journal.read() if e.kind == "proposed"}
    for trial in review.first:
        assert proposed[trial.id] == trial.config
        assert (run.run_dir.jobs / trial.id / "spec_1.yaml").read_text() == trial.spec
        assert trial.spec.rstrip() in markdown(review)


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_can_be_reviewed(tmp_path: Path, name: str) -> None:
    search = {"algorithm": "random", "trials": 9, "max_epochs": 9, "max_concurrent": 3}
    config = configure(tmp_path, search=search)
    config = config.model_copy(
        # A population goes on from the weights of others: their shape must not be searched.
        update={
            "search": config.search.model_copy(
                update={"algorithm": name, "exclude": ["model.hidden_dim"]}
            )
        }
    )
    review = make_review(make_plan(config), LocalPlatform(tmp_path / "jobs"), 0, tmp_path)
    assert len(review.first) == 3
    assert f"**algorithm**: {name}" in markdown(review)


def test_the_review_says_what_will_happen(tmp_path: Path) -> None:
    data = {"inference": str(tmp_path), "train_sample_count": 100}
    config = configure(tmp_path, data=data, objective={"at": "last"})
    plan = make_plan(config)
    text = markdown(make_review(plan, LocalPlatform(tmp_path / "jobs"), 0, tmp_path / "runs"))
    for part in (
        "digits_mlp, action `train`",
        "**platform**: local",
        "**price**: free",
        f"**results**: {tmp_path}/runs",
        "100 training samples (configured)",
        "2 trials of up to 2 epochs",
        "maximize `val_acc_1`",
        "the last epoch of a trial",
        "| `train.optim.lr` | 0.0002 to 0.01, log scale |",
        "| `model.hidden_dim` | one of 32, 64, 96 |",
        "### Trial 0000 (the network's defaults)",
        "**search**: unknown: no run of digits_mlp train on local",
        "**baseline**: trial 0, the network's defaults",
        f"test_acc_1 by evaluate on dataset.test_dataset.images_dir: {tmp_path} of the winner's",
    ):
        assert part in text


def test_time_is_estimated_from_earlier_runs(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    root = tmp_path / "runs"
    assert estimate(run.plan, run.platform, root).trial_s is None
    state = run.search()
    times = [j.ended - j.launched for t in state.trials.values() for j in t.jobs]  # type: ignore[operator]
    found = estimate(run.plan, run.platform, root)
    assert found.trial_s == pytest.approx(sum(times) / 2)
    assert found.wall_s == pytest.approx(sum(times))  # two trials, one at a time
    assert found.usd is None
    assert "2 trials in 1 earlier run(s) of digits_mlp train on local" in found.basis
    priced = estimate(run.plan, Priced(tmp_path / "jobs"), root)
    assert priced.usd == pytest.approx(2.0 * sum(times) / 3600)
    measured = estimate(run.plan, run.platform, root, {"kind": "train", "trained_s": 60.0})
    assert measured.wall_s == 120.0


def planned(tmp_path: Path, **sections: Any) -> Plan:
    return make_plan(configure(tmp_path, **sections))


def test_what_is_too_long(tmp_path: Path) -> None:
    measured = {"kind": "train", "trained_s": 3600.0 * 20}
    plan = planned(tmp_path, budget={"hours": 50, "cost_usd": 79})
    found = estimate(plan, Priced(tmp_path / "jobs"), tmp_path, measured)
    assert too_long(plan, found) == [
        "the estimate, 40 h, exceeds review.long_run_hours, which is 24",
        "the estimate, 80 USD, exceeds budget.cost_usd, which is 79",
    ]
    plan = planned(tmp_path, budget={"hours": 39}, review={"long_run_hours": 41})
    found = estimate(plan, LocalPlatform(tmp_path / "jobs"), tmp_path, measured)
    assert too_long(plan, found) == ["the estimate, 40 h, exceeds budget.hours, which is 39"]


FREE, PAID = LocalPlatform, Priced
LONG = ["the estimate, 40 h, exceeds budget.hours, which is 39"]


@pytest.mark.parametrize(
    ("platform", "answers", "exceeded", "by"),
    [
        (FREE, Answers(), [], "free platform"),
        (FREE, Answers(yes=True), [], "--yes"),
        (FREE, Answers(ask=lambda question: True), [], "terminal"),
        (FREE, Answers(ask=lambda question: False), [], None),
        (PAID, Answers(), [], None),
        (PAID, Answers(yes=True, ask=never), [], "--yes"),
        (PAID, Answers(ask=lambda question: True), [], "terminal"),
        (FREE, Answers(), LONG, None),
        (FREE, Answers(yes=True), LONG, None),
        (FREE, Answers(yes=True, ask=never), LONG, None),
        (FREE, Answers(accept_long=True), LONG, "free platform"),
        (PAID, Answers(accept_long=True), LONG, None),
        (PAID, Answers(yes=True, accept_long=True), LONG, "--yes"),
        (FREE, Answers(ask=lambda question: True), LONG, "terminal"),
        (FREE, Answers(ask=lambda question: "Start" in question), LONG, None),
    ],
)
def test_who_agrees(
    tmp_path: Path,
    platform: type[LocalPlatform],
    answers: Answers,
    exceeded: list[str],
    by: str | None,
) -> None:
    given: Callable[[], str] = lambda: consent(  # noqa: E731
        platform(tmp_path), answers, exceeded, "the search"
    )
    if by is not None:
        assert given() == by
        return
    with pytest.raises(NoConsent) as caught:
        given()
    assert caught.value.exit_code == 2


AFAR = ["s3://bucket/train: every trial reads it from S3, 20 x 3.00 GB"]


@pytest.mark.parametrize(
    ("platform", "answers", "by"),
    [
        (FREE, Answers(), "free platform"),
        (PAID, Answers(yes=True), None),
        (PAID, Answers(yes=True, accept_unstaged=True), "--yes"),
        (PAID, Answers(accept_unstaged=True), None),
        (PAID, Answers(ask=lambda question: True), "terminal"),
        (PAID, Answers(ask=lambda question: "Start" in question), None),
    ],
)
def test_data_that_is_read_from_afar_needs_an_answer_where_that_costs_money(
    tmp_path: Path, platform: type[LocalPlatform], answers: Answers, by: str | None
) -> None:
    if by is not None:
        assert consent(platform(tmp_path), answers, [], "the search", AFAR) == by
        return
    with pytest.raises(NoConsent):
        consent(platform(tmp_path), answers, [], "the search", AFAR)


def test_knobs_are_named_for_a_long_run(tmp_path: Path) -> None:
    with pytest.raises(NoConsent) as caught:
        consent(LocalPlatform(tmp_path), Answers(yes=True), LONG, "the search")
    assert "--accept-long" in str(caught.value)
    assert "search.trials" in str(caught.value)


def test_a_review_is_left_and_what_was_agreed_is_not_asked_again(tmp_path: Path) -> None:
    config = configure(tmp_path)
    run_dir, printed = begin(config, Answers())
    assert "baseline: trial 0" in printed
    assert f"review: {run_dir.review}" in printed
    assert run_dir.review.read_text().startswith("# Review: small")
    assert begun(run_dir) == Begun(True, None)
    assert yaml.safe_load(run_dir.evaluation("baseline").read_text())["status"] == "pending"
    again = Answers(ask=never)
    console = Console(file=io.StringIO())
    before_search(make_plan(config), run_dir, LocalPlatform(run_dir.jobs), 0, again, console)


def test_a_no_leaves_no_run_to_resume(tmp_path: Path) -> None:
    with pytest.raises(NoConsent):
        begin(configure(tmp_path), Answers(ask=lambda question: False))
    assert RunDir.all(tmp_path / "runs" / "small") == []
    (review,) = (tmp_path / "runs").glob("small/*/review.md")
    assert "## Searched parameters" in review.read_text()


def test_nothing_that_costs_money_starts_without_consent(tmp_path: Path) -> None:
    assert isinstance(Priced(tmp_path), HasPrices)
    assert not isinstance(LocalPlatform(tmp_path), HasPrices)
    model = {"package": "digits_mlp", "checkpoint": trained_checkpoint(tmp_path / "start")}
    config = configure(tmp_path, model=model)
    with pytest.raises(NoConsent, match="costs money"):
        begin(config, Answers(), Priced)
    assert not list((tmp_path / "runs").glob("small/*/jobs/.jobs/*"))

    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return len(asked) == 1

    with pytest.raises(NoConsent):
        begin(config, Answers(ask=ask), Priced)
    assert "the baseline, one job at 2.00 USD/h" in asked[0]
    assert asked[1] == "Start the search?"
    (job,) = (tmp_path / "runs").glob("small/*/jobs/.jobs/eval-*")
    assert job.name == "eval-baseline-1"
    (review,) = job.parents[2].glob("review.md")
    assert re.search(
        r"\*\*baseline\*\*: test_acc_1 = 0\.\d+ \(job eval-baseline-1", review.read_text()
    )


def test_a_stop_request_during_the_baseline(tmp_path: Path) -> None:
    model = {"package": "digits_mlp", "checkpoint": trained_checkpoint(tmp_path / "start")}
    config = configure(tmp_path, model=model)
    plan = make_plan(config)
    run_dir = RunDir.create(tmp_path / "runs", config.name)

    class StopsAtLaunch(LocalPlatform):
        def launch(self, job: Any) -> Any:
            run_dir.stop_request.touch()
            return super().launch(job)

    console = Console(file=io.StringIO())
    with pytest.raises(Stopped) as caught:
        before_search(plan, run_dir, StopsAtLaunch(run_dir.jobs), 0, Answers(), console)
    assert caught.value.exit_code == 130
    assert not begun(run_dir).agreed
    before_search(plan, run_dir, LocalPlatform(run_dir.jobs), 0, Answers(), console)
    kinds = [e.data.get("status") for e in read_events(run_dir.journal) if e.kind == "evaluation"]
    assert kinds[-1] == "measured"


def test_a_counted_training_set_stays_with_the_run(tmp_path: Path) -> None:
    config = configure(tmp_path)
    plan = make_plan(config, counted_samples=40)
    run_dir = RunDir.create(tmp_path / "runs", config.name)
    before_search(
        plan, run_dir, LocalPlatform(run_dir.jobs), 0, Answers(), Console(file=io.StringIO())
    )
    assert begun(run_dir) == Begun(True, 40)


def test_a_failed_baseline_stops_before_the_review(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"")
    config = configure(tmp_path, model={"package": "digits_mlp", "checkpoint": str(broken)})
    with pytest.raises(TaoRayError, match="the baseline failed"):
        begin(config, Answers(ask=never))


def test_the_command_prints_it_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path)
    assert main(["review", str(tmp_path / "run.yaml")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Review: small")
    assert f"results_dir: {tmp_path}/runs/small/<time>/jobs/0000/results" in out
    assert not (tmp_path / "runs" / "small").exists()


def test_a_terminal_is_asked(tmp_path: Path) -> None:
    configure(tmp_path)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tao_ray.tune", str(tmp_path / "run.yaml")]
    tune = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"Start the search? [y/N]" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b"n\n")
    assert tune.wait(30) == 2
    shown += os.read(ours, 4096)
    os.close(ours)
    assert b"Review: small" in shown
    assert b"Searched parameters" in shown
    assert b"not started: the answer was no" in shown
    assert not list((tmp_path / "runs").glob("small/*/jobs/*"))
