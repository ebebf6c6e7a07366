"""The report as a reader sees it: complete, self-contained, safe, and possible at any time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from made_runs import HOSTILE, MadeRun, many_trials

from tao_ray.cli import main
from tao_ray.errors import TaoRayError
from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import Event, Journal
from tao_ray.report import RunData, read_run, report_line, write_report
from tao_ray.report.html import render_html
from tao_ray.report.markdown import render_markdown
from tao_ray.report.text import shown
from tao_ray.report.writing import document
from tao_ray.trial.failure import FailureKind
from tao_ray.trial.state import RunState


class Page(HTMLParser):
    """The tags of a page, its visible text, and whether every tag is closed in order."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "wbr"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.words += data


@pytest.fixture(scope="module")
def html(done_run: RunDir) -> str:
    return write_report(done_run).read_text("utf-8")


@pytest.fixture(scope="module")
def markdown(done_run: RunDir, html: str) -> str:
    return (done_run.path / "report.md").read_text("utf-8")


def test_a_reader_finds_every_answer(done_run: RunDir, html: str, markdown: str) -> None:
    run = read_run(done_run)
    assert run.best is not None
    assert run.reference is not None
    trial, epoch = run.best
    best, reference = run.value(trial), run.value(run.reference)
    assert best is not None
    assert reference is not None
    assert run.result is not None
    for text in (Page(html).words, re.sub(r"[*`]", "", markdown)):
        assert f"The best is trial {trial.id} with {shown(best, 5)} at epoch {epoch.epoch}" in text
        assert f"{shown(reference, 5)} → {shown(best, 5)}" in text
        assert f"{best - reference:+.3g}" in text
        assert "Is it noise?" in text
        assert "not metered" in text
        assert "out of memory" in text
        assert "lower the batch size" in text
        assert "the objective became NaN" in text
        assert "No checkpoint of the winner was found" in text  # nothing was really trained
        assert "digits_mlp train -e ./spec.yaml" in text
        assert "dataset.workers" in text  # left out
        assert "tao-ray tune" in text
        for name in trial.config:
            assert name in text


def test_every_trial_is_in_the_table(done_run: RunDir, markdown: str) -> None:
    run = read_run(done_run)
    table = markdown.split("## All trials")[1].split("## ")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| 0")]
    assert rows == [t.id for t in run.ranked]
    assert sorted(rows) == sorted(run.state.trials)


def test_html_is_whole_and_needs_nothing_else(html: str) -> None:
    page = Page(html)
    assert not re.search(r"https?:|//\w|url\(|@import|srcset|file:", html.split("</style>")[0])
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed")
        assert "src" not in attributes
        href = attributes.get("href")
        assert href is None or href.startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    links = [(a["href"] or "")[1:] for t, a in page.tags if t == "a"]
    assert set(links) <= set(ids)
    assert len(ids) == len(set(ids))
    assert sum(tag == "script" for tag, _ in page.tags) == 1


def test_what_others_wrote_is_escaped(html: str, markdown: str) -> None:
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert "<script>" not in re.sub(r"```.*?```", "", markdown, flags=re.S)
    assert HOSTILE in markdown  # as it is, in a code block


def test_no_plot_holds_a_place_that_is_not_a_number(html: str) -> None:
    assert not re.search(r'="[^"]*\b(nan|inf|None)\b', html)
    assert html.count("<svg") >= 2 * 8


@pytest.mark.parametrize("epochs", [0, 1, 2, 5, 13, 40])
def test_a_run_can_be_reported_while_it_goes_on(tmp_path: Path, epochs: int) -> None:
    made = MadeRun(tmp_path).go(epochs)
    try:
        text = write_report(made.dir).read_text("utf-8")
        assert "The run is going on" in text
    finally:
        made.journal.close()
    assert "The run was interrupted" in write_report(made.dir).read_text("utf-8")


def test_every_beginning_of_a_run_can_be_reported(done_run: RunDir) -> None:
    run = read_run(done_run)
    for end in [2, 3, 4, 5, 8, *range(10, len(run.events), 37)]:
        events = run.events[:end]
        state = RunState.fold(events)
        part = replace(
            run, state=state, events=events, phase="running", now=state.last_time, result=None
        )
        assert render_html(document(part))
        assert render_markdown(document(part))


def test_the_end_of_an_interrupted_run(tmp_path: Path) -> None:
    run_dir = MadeRun(tmp_path).go(30).end(interrupted=True)
    run = read_run(run_dir)
    assert run.phase == "interrupted"
    assert run.result is not None
    text = write_report(run_dir).read_text("utf-8")
    assert "tao-ray resume" in text


def test_a_result_older_than_the_journal_is_not_used(tmp_path: Path) -> None:
    run_dir = MadeRun(tmp_path).go(10).end(interrupted=True)
    assert read_run(run_dir).result is not None
    journal = Journal(run_dir.journal)
    journal.append(Event("run", None, {**read_run(run_dir).facts, "what": "resumed"}))
    journal.close()
    assert read_run(run_dir).result is None


def test_a_run_without_any_success(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, trials=3, max_concurrent=1, algorithm="random")
    for trial in ("0000", "0001", "0002"):
        made.fail(trial, FailureKind.CODE, "boom")
    text = Page(write_report(made.go().end()).read_text("utf-8")).words
    assert "no success" in text
    assert "the network's code failed" in text


def test_one_trial_that_never_reported(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, trials=1, algorithm="random").go(0)
    text = Page(write_report(made.close()).read_text("utf-8")).words
    assert "There is no result yet." in text


def test_a_run_that_has_not_begun_says_so(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "empty")
    with pytest.raises(FileNotFoundError):
        write_report(run_dir)
    Journal(run_dir.journal).close()
    with pytest.raises(TaoRayError, match="nothing has been tried yet"):
        write_report(run_dir)
    assert "could not be written (nothing has been tried yet)" in report_line(run_dir)


def test_a_hundred_trials_take_less_than_three_seconds(tmp_path: Path) -> None:
    run_dir = many_trials(tmp_path, 100, 30)
    begun = time.process_time()
    line = report_line(run_dir)
    assert time.process_time() - begun < 3.0
    assert line == f"report: {run_dir.path / 'report.html'}"
    assert (run_dir.path / "report.html").stat().st_size < 4e6


def test_a_tie_is_told(tmp_path: Path) -> None:
    def tied(trial: str, config: Mapping[str, Any], epoch: int) -> float:
        return 0.9 if trial in ("0002", "0003") and epoch == 2 else 0.5

    run_dir = MadeRun(tmp_path, tied, algorithm="random", trials=4, max_epochs=3).go().end()
    assert [t.id for t in read_run(run_dir).tied] == ["0003"]
    text = render_markdown(document(read_run(run_dir)))
    assert "**Tie**: trial 0003 (epoch 2) reached exactly the same value." in text
    assert "the lowest number is called the best" in text
    assert "a tie with 0003" in text


def test_what_auto_chose_is_said(tmp_path: Path) -> None:
    run = read_run(MadeRun(tmp_path, algorithm="auto").go(5).close())
    text = render_markdown(document(run))
    assert "`auto` (the defaults first, " in text
    assert "expected improvement by a learning-curve model" in text


def test_ends_of_ranges_are_told_from_ends_of_the_network(tmp_path: Path) -> None:
    # The schema takes dropouts from 0 on, and learning rates below the range that is searched.
    made = MadeRun(tmp_path, algorithm="random", trials=1, max_epochs=2).go()
    run = read_run(made.end())
    ends = {"model.dropout": 0.0, "train.optim.lr": _low(run, "train.optim.lr")}
    first = run.state.trials["0000"]
    first.config = {**first.config, **ends}
    text = render_markdown(document(run))
    assert "the network allows nothing beyond: `model.dropout` (0 is the least)" in text
    assert "At an end of its range: `train.optim.lr`. A wider range" in text


def _low(run: RunData, name: str) -> float:
    return next(float(p["low"]) for p in run.space if p["name"] == name)


@pytest.mark.parametrize(
    ("name", "epoch", "counts_from_0"),
    [("model_epoch_007.pth", 8, True), ("model_epoch_008.pth", 8, False), ("best.pth", 8, False)],
)
def test_files_that_are_counted_from_0(
    done_run: RunDir, name: str, epoch: int, counts_from_0: bool
) -> None:
    run = read_run(done_run)
    assert run.result is not None
    checkpoint = {"path": f"/kept/{name}", "epoch": epoch, "bytes": 1}
    result = {**run.result, "best": {**run.result["best"], "checkpoint": checkpoint}}
    text = render_markdown(document(replace(run, result=result)))
    assert (f"counts its files from 0: `{name}` is what epoch {epoch} left" in text) is (
        counts_from_0
    )


def test_an_evaluated_checkpoint_is_named_where_it_is_now(done_run: RunDir) -> None:
    run = read_run(done_run)
    assert run.result is not None
    record = {"status": "measured", "metrics": {"test_acc_1": 0.9}, "epoch": 3}
    run.state.evaluations["final"] = record | {"trial": "0004", "checkpoint": "/gone/m_002.pth"}
    run.state.evaluations["baseline"] = record | {"trial": "0000", "checkpoint": "/gone/m_002.pth"}
    kept = {"trial": "0004", "epoch": 3, "bytes": 1, "why": "best", "path": "/kept/m_002.pth"}
    retention = {
        "mode": "auto",
        "kept": [kept],
        "kept_bytes": 1,
        "deleted_checkpoints": 1,
        "deleted_bytes": 1,
        "peak_bytes": 2,
        "peak_bytes_per_trial": {},
    }
    text = render_markdown(document(replace(run, result={**run.result, "retention": retention})))
    assert "| checkpoint | trial 0000, epoch 3: `m_002.pth`, not kept | `/kept/m_002.pth` |" in text


def test_longer_training_says_its_epochs_and_what_it_rents(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, rented=True, trials=2, algorithm="random", max_epochs=4).go()
    text = render_markdown(document(read_run(made.end())))
    rents = "rents machines on local, $3600.00 per hour each"
    assert f"# train it longer, 8 epochs, supervised as in the search: {rents}" in text
    assert f"Repeating the search {rents}; this run cost $" in text


def test_the_command(done_run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(done_run.path)]) == 0
    assert capsys.readouterr().out == f"{done_run.path / 'report.html'}\n"
