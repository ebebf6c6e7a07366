"""What W&B has recorded offline is what the journal says, after kills and resumptions too."""

from __future__ import annotations

import math
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from driving import EVENTS, SECRET, drive, finish, helpers_of, state_of
from wandb_files import RecordedRun, recorded_runs

pytestmark = pytest.mark.slow


def same(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a + b))


def check(directory: Path) -> dict[str, RecordedRun]:
    """Compare all that was recorded with the journal."""
    state = state_of(directory)
    runs = recorded_runs(directory / "wandb")
    assert sorted(runs) == sorted([*state.trials, "summary"])
    assert {run.group for run in runs.values()} == {"made/20260102-030405"}
    assert len({run.id for run in runs.values()}) == len(runs)
    for trial in state.trials.values():
        run = runs[trial.id]
        assert run.steps == sorted(trial.epochs)
        for step, point in run.points:
            expected = {"epoch": step, "epoch_seconds": 0.5, **trial.epochs[step].metrics}
            known = {k: v if v != "NaN" else math.nan for k, v in point.items()}
            assert known.keys() <= expected.keys()
            assert known.keys() >= expected.keys() - {"kpi"}
            assert all(same(known[key], expected[key]) for key in known)
        assert {k: v for k, v in run.config.items() if k in trial.config} == trial.config
        assert run.summary["status"] == trial.status
        assert run.exit_codes[-1] == (1 if trial.status == "failed" else 0)
    table = runs["summary"].table("trials")
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["trial"] for row in rows] == list(state.trials)
    for row, trial in zip(rows, state.trials.values(), strict=True):
        judged = trial.judged("best")
        assert row["objective"] == (None if judged is None else -(judged.loss or 0))
        assert row["epochs_trained"] == len(trial.epochs)
        assert row["status"] == trial.status
        assert row["train.lr"] == trial.config["train.lr"]
    return runs


def test_an_undisturbed_run(run_directory: Path) -> None:
    said = finish(drive("offline", run_directory))
    runs = check(run_directory)
    assert all(len(run.folders) == 1 for run in runs.values())
    assert f"wandb sync {run_directory}/wandb/offline-run-*" in said
    assert runs["0004"].summary["failure"] == "spec"
    assert runs["0005"].summary["failure_message"] == "acc is nan"
    assert runs["0006"].summary["retries"] == 1
    assert runs["0002"].points[0][1]["kpi"] == 1.0
    assert runs["0003"].config["tao_ray"] == {
        "network": "toy",
        "action": "train",
        "algorithm": "asha",
        "metric": "acc",
        "trial": "0003",
        "bracket": 1,
    }
    assert runs["summary"].summary["best"]["trial"] == "0008"
    assert runs["summary"].summary["baseline"]["value"] == 0.25
    assert runs["summary"].summary["final_evaluation"]["value"] == 0.75
    columns = runs["summary"].table("trials")["columns"]
    assert columns[2:7] == ["train.lr", "train.batch", "train.kind", "train.flag", "train.mixed"]
    for column in ("train.lr", "train.batch", "train.mixed", "objective", "seconds"):
        values = [row[columns.index(column)] for row in runs["summary"].table("trials")["data"]]
        assert {type(value) for value in values} <= {int, float, type(None)}
    assert not list((run_directory / "wandb").glob(".staging*"))


def test_nothing_of_w_and_b_reaches_the_terminal_and_no_key_the_disk(run_directory: Path) -> None:
    said = finish(drive("offline", run_directory))
    assert all("W&B: " in line or line.startswith("  wandb sync") for line in said.splitlines())
    for path in run_directory.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_an_interrupted_run_is_recorded_as_far_as_it_got_and_goes_on(run_directory: Path) -> None:
    finish(drive("offline", run_directory, EVENTS // 2))
    before = recorded_runs(run_directory / "wandb")
    assert before["0003"].summary["status"] in ("running", "paused")
    assert before["0003"].points
    finish(drive("offline", run_directory))
    runs = check(run_directory)
    assert len(runs["0003"].folders) == 2
    assert len(runs["0000"].folders) == 1


@pytest.mark.parametrize(
    ("moment", "call"),
    [("before finish", 1), ("before the mark", 4), ("before the move", 5), ("after the move", 3)],
)
def test_a_kill_at_the_worst_moments(run_directory: Path, moment: str, call: int) -> None:
    process = drive("offline", run_directory, EVENTS, moment, str(call))
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    finish(drive("offline", run_directory))
    runs = check(run_directory)
    assert all(len(run.folders) == 1 for run in runs.values())
    assert helpers_of(process.pid) == []


def test_kills_at_random(run_directory: Path) -> None:
    generator = random.Random(5)
    killed = 0
    for _ in range(4):
        process = drive("offline", run_directory)
        try:
            process.communicate(timeout=generator.uniform(2.0, 6.0))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
    assert killed
    finish(drive("offline", run_directory))
    check(run_directory)
