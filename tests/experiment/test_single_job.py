"""``tao-ray run``: one job of any action, as a user starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_runs import configure, trained_checkpoint

from tao_ray.cli import main
from tao_ray.storage import open_storage


def directory(tmp_path: Path, action: str) -> Path:
    (found,) = (tmp_path / "runs" / f"small-{action}").iterdir()
    return found


def result(tmp_path: Path, action: str) -> Any:
    return json.loads((directory(tmp_path, action) / "result.json").read_text())


def test_a_training_shows_its_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"package": "digits_mlp", "overrides": {"model.hidden_dim": 32}, "key": "s3cret"}
    configure(tmp_path, model=model)
    assert main(["run", str(tmp_path / "run.yaml")]) == 0
    out = capsys.readouterr().out
    assert "epoch 1/2: val_loss = " in out
    assert "epoch 2/2: val_loss = " in out
    assert "done in" in out
    data = result(tmp_path, "train")
    assert (data["status"], data["job"], data["failure"]) == ("done", "train-1", None)
    assert [e["epoch"] for e in data["epochs"]] == [1, 2]
    assert data["epochs"][1]["metrics"]["val_acc_1"] == data["metrics"]["val_acc_1"]
    assert Path(data["results_dir"], "train", "model_epoch_001.pth").is_file()
    home = directory(tmp_path, "train")
    assert "hidden_dim: 32" in (home / "spec.yaml").read_text()
    assert "Epoch 1" in (home / "log.txt").read_text()
    assert "finished successfully" in (home / "status.json").read_text()
    assert b"s3cret" not in b"".join(p.read_bytes() for p in home.iterdir() if p.is_file())
    assert list((home / "jobs" / ".jobs").glob("train-1")) == []  # released


def test_what_a_job_wrote_is_stored_in_the_bucket(
    tmp_path: Path,
    s3_environment: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # the records of a run with its results elsewhere are in ./runs
    configure(tmp_path, results="s3://bucket/jobs")
    assert main(["run", str(tmp_path / "run.yaml")]) == 0
    home = directory(tmp_path, "train")
    assert f"stored: s3://bucket/jobs/small-train/{home.name} (" in capsys.readouterr().out
    stored = open_storage("s3://bucket/jobs").list(f"small-train/{home.name}")
    names = {name.removeprefix(f"small-train/{home.name}/"): size for name, size in stored.items()}
    checkpoint = "results/train/model_epoch_001.pth"
    assert {"result.json", "spec.yaml", "log.txt", "status.json", checkpoint} <= set(names)
    results = Path(result(tmp_path, "train")["results_dir"])
    assert names[checkpoint] == (results / "train" / "model_epoch_001.pth").stat().st_size


def test_an_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = trained_checkpoint(tmp_path / "before")
    configure(tmp_path)
    arguments = ["run", str(tmp_path / "run.yaml"), "--action", "evaluate", "--logs"]
    assert main([*arguments, "--set", f"model.checkpoint={checkpoint}"]) == 0
    out = capsys.readouterr().out
    assert "test_acc_1 = " in out
    assert "Execution status: PASS" in out
    assert 0 < result(tmp_path, "evaluate")["metrics"]["test_acc_1"] < 1


def test_a_job_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"no checkpoint")
    configure(tmp_path, model={"package": "digits_mlp", "checkpoint": str(broken)})
    assert main(["run", str(tmp_path / "run.yaml"), "--action", "evaluate"]) == 3
    out = capsys.readouterr().out
    assert "failed: the network's code failed" in out
    data = result(tmp_path, "evaluate")
    assert data["status"] == "failed"
    assert data["failure"]["evidence"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--action", "export"], "has no action 'export'"),
        (["--action", "evaluate"], "evaluate.checkpoint: takes one"),
        (["--action", "evaluate", "--set", "model.checkpoint=/no.pth"], "no such file"),
    ],
)
def test_what_cannot_run_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    configure(tmp_path)
    assert main(["run", str(tmp_path / "run.yaml"), *arguments]) == 2
    assert error in capsys.readouterr().err
    assert not list((tmp_path / "runs").glob("small*"))


def test_an_interrupt_ends_the_job(tmp_path: Path) -> None:
    model = {"package": "digits_mlp", "overrides": {"train.seconds_per_epoch": 60}}
    configure(tmp_path, model=model)
    command = [sys.executable, "-m", "tao_ray.cli", "run", str(tmp_path / "run.yaml")]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (started := list((tmp_path / "runs").glob("*/*/jobs/.jobs/train-1/started"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int(started[0].read_text().split()[0])
    run.send_signal(signal.SIGINT)
    assert run.wait(30) == 130
    assert result(tmp_path, "train")["status"] == "stopped"
    process = Path(f"/proc/{pid}/stat")  # a zombie stays where nobody reaps it
    assert not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z"
