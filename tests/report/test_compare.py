"""Runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import MadeRun

from tao_ray.cli import main
from tao_ray.experiment.run_dir import RunDir
from tao_ray.report import read_run
from tao_ray.report.compare import comparison, remarks, rows
from tao_ray.report.html import render_html
from tao_ray.report.text import shown, signed


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Random search, of other data in the same way."""
    made = MadeRun(tmp_path_factory.mktemp("other"), algorithm="random", trials=3, max_epochs=5)
    return made.go().end()


def test_the_table(done_run: RunDir, other_run: RunDir) -> None:
    runs = [read_run(done_run), read_run(other_run)]
    bests = [r.value(r.best[0]) for r in runs if r.best]
    assert len(bests) == 2
    assert None not in bests
    table = {row[0]: row[1:] for row in rows(runs)}
    assert table["algorithm"] == ["asha, seed 3", "random, seed 0"]
    assert table["trials"] == ["24 of 24, 2 failed", "3 of 3"]
    assert [cell.split()[0] for cell in table["best"]] == [shown(b, 5) for b in bests]
    ahead = (bests[1] or 0) - (bests[0] or 0)
    assert table[f"better than {runs[0].id} by"] == ["–", signed(ahead)]
    assert table["train.optim.lr"] == [
        shown(r.best[0].config["train.optim.lr"]) for r in runs if r.best
    ]
    assert remarks(runs) == [
        f"The epochs of a full training differ: {runs[0].id}: 18, {runs[1].id}: 5"
    ]


def test_what_cannot_be_compared_is_said(done_run: RunDir, tmp_path: Path) -> None:
    made = MadeRun(
        tmp_path, objective={"metric": "val_loss", "direction": "minimize"}, max_epochs=18
    )
    runs = [read_run(done_run), read_run(made.go(3).close())]
    said = " ".join(remarks(runs))
    assert "The objectives differ" in said
    assert f"{runs[1].id} has not ended: interrupted" in said
    assert not any(row[0].startswith("better than") for row in rows(runs))
    assert "<svg" not in render_html(comparison(runs))


def test_the_command(
    done_run: RunDir, other_run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    runs = [str(done_run.path), str(other_run.path)]
    assert main(["compare", *runs, "--html", str(page)]) == 0
    said = capsys.readouterr().out
    assert "gain over the defaults" in said
    assert page.read_text("utf-8").count("<svg") == 4
