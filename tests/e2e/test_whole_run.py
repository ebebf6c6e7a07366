"""A run through every stage, its data and results in an S3 bucket, its driver killed midway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from test_search import crash_script

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import read_events
from tao_ray.standin.data import _SPLITS, _bundled
from tao_ray.storage import open_storage
from tao_ray.trial.state import Objective, RunState

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tracking"))
from wandb_files import recorded_runs

pytestmark = pytest.mark.slow
WAIT_S = 1200
TRIALS = 12


@pytest.fixture
def place(tmp_path: Path, s3_environment: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a configuration, and a bucket with its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    rows = _bundled()
    data = {}
    for split, part in _SPLITS.items():
        directory = tmp_path / "upload" / split
        directory.mkdir(parents=True)
        np.savetxt(directory / "digits.csv", rows[part], fmt="%d", delimiter=",")
        data[f"dataset.{split}_dataset.images_dir"] = f"s3://bucket/whole-data/{split}"
    open_storage("s3://bucket").put_dir(tmp_path / "upload", "whole-data")
    (tmp_path / "start").mkdir()
    (tmp_path / "start.yaml").write_text(f"results_dir: {tmp_path}/start\ntrain: {{num_epochs: 1}}")
    done = command("-m", "tao_ray.standin", "train", "-e", str(tmp_path / "start.yaml"))
    assert done.returncode == 0, done.stdout
    config = {
        "name": "whole",
        "results": "s3://bucket/whole-results",
        "model": {
            "package": "digits_mlp",
            "checkpoint": str(tmp_path / "start" / "train" / "model_epoch_000.pth"),
            "overrides": {"train.seconds_per_epoch": 0.3},
        },
        "data": data,
        "search": {
            "algorithm": "asha",
            "trials": TRIALS,
            "max_epochs": 9,
            "max_concurrent": 3,
            "exclude": ["model.hidden_dim"],
        },
        "tracking": {"wandb": {"project": "whole"}},
    }
    (tmp_path / "whole.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def tao_ray(*arguments: str) -> str:
    done = command("-m", "tao_ray.cli", *arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


def killed_after(epochs: int) -> RunDir:
    """Start the run, and kill its driver once so many epochs are journalled."""
    start = [sys.executable, "-m", "tao_ray.tune", "whole.yaml", "--yes"]
    driver = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and driver.poll() is None:
        for run in RunDir.all(Path("runs/whole")):
            if sum(e.kind == "epoch" for e in read_events(run.journal)) >= epochs:
                driver.kill()
                driver.communicate()
                return run
        time.sleep(0.1)
    driver.kill()
    raise AssertionError(driver.communicate()[0])


def test_every_stage_killed_and_resumed(place: Path) -> None:
    checked = tao_ray("check", "whole.yaml", "--preflight")
    assert "s3://bucket/whole-data/train" in checked
    assert "a probe was stored and deleted again" in checked

    run = killed_after(epochs=12)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)  # nothing may depend on where a run is resumed from
    out = tao_ray("resume", str(run.path), "--yes")
    os.chdir(place)

    assert crash_script().check(run, None) == []
    result = json.loads(run.result.read_text())
    assert result["status"] == "done"
    assert result["final_evaluation"]["status"] == "measured"
    assert result["final_evaluation"]["improvement"] > 0.2
    assert result["data"]["dataset.train_dataset.images_dir"] == "s3://bucket/whole-data/train"
    files = [path for path in run.jobs.glob("*/results/*/*.pth") if not path.is_symlink()]
    kept = [path.name for path in files]
    assert kept == [Path(result["best"]["checkpoint"]["path"]).name]
    staged = json.loads(run.evaluation("data_staging").read_text())["data"]
    assert [record["status"] for record in staged] == ["reused"] * 3
    assert all(Path(record["path"]).is_absolute() for record in staged)
    assert not list(elsewhere.iterdir())

    assert f"stored: s3://bucket/whole-results/{run.id}" in out
    stored = open_storage("s3://bucket/whole-results").list(run.id)
    names = {key.removeprefix(f"{run.id}/") for key in stored}
    assert names >= {"report.html", "result.json", "best_spec.yaml", "review.md"}
    uri = result["best"]["checkpoint"]["uri"]
    assert uri.removeprefix("s3://bucket/whole-results/") in stored
    assert uri in (run.path / "report.html").read_text()

    same_as_the_journal(run)
    exported = tao_ray("export", str(run.path), "--to", "winner")
    assert "winner" in exported
    handover = json.loads(Path("winner/handover.json").read_text())
    assert handover["checkpoint"]["uri"] == uri

    # A run that is finished is shown, not run again.
    before = run.journal.read_bytes()
    again = tao_ray("resume", str(run.path))
    assert "is finished" in again
    assert f"(trial {result['best']['trial']}" in again
    assert run.journal.read_bytes() == before


def same_as_the_journal(run: RunDir) -> None:
    """W&B's offline folders hold each point of the journal once."""
    state = RunState.fold(read_events(run.journal))
    recorded = recorded_runs(run.path / "wandb")
    assert sorted(recorded) == sorted([*state.trials, "summary"])
    for trial in state.trials.values():
        assert recorded[trial.id].steps == sorted(trial.epochs)
        for step, point in recorded[trial.id].points:
            metrics: dict[str, Any] = {**trial.epochs[step].metrics}
            assert {k: point[k] for k in metrics} == metrics
    table = recorded["summary"].table("trials")
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    facts = state.facts
    objective = Objective(facts["metric"], facts["direction"], facts["at"])
    assert [row["trial"] for row in rows] == list(state.trials)
    assert len(rows) == TRIALS
    for row, trial in zip(rows, state.trials.values(), strict=True):
        judged = trial.judged(objective.at)
        assert judged is not None
        assert judged.loss is not None
        assert row["objective"] == objective.value(judged.loss)
        assert row["epochs_trained"] == len(trial.epochs)
    assert recorded["summary"].summary["final_evaluation"]["status"] == "measured"
