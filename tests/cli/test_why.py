"""``tao-ray why``: what a user is told about a run's failures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tao_ray.cli import main
from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import Event, Journal
from tao_ray.trial.failure import Failure, FailureKind

OOM = Failure(FailureKind.OOM, "CUDA out of memory", ("epoch 1", "CUDA out of memory"))
LOST = Failure(FailureKind.MACHINE_LOST, "killed by signal 9")


def proposed(trial: str, batch: int) -> Event:
    return Event("proposed", trial, {"config": {"dataset.batch_size": batch}, "info": {}})


def ended(trial: str, status: str, failure: Failure | None = None) -> Event:
    return Event("ended", trial, {"status": status, "failure": failure and failure.to_json()})


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    made = RunDir.create(tmp_path, "night")
    journal = Journal(made.journal)
    adjustment = {"key": "dataset.batch_size", "asked": 64, "used": 60, "reason": "60 samples"}
    epoch: Mapping[str, Any] = {"epoch": 3, "metrics": {}, "loss": 0.5, "job": "0001-1"}
    journal.append(
        Event("run", data={"what": "started"}),
        proposed("0000", 64),
        Event("job", "0000", {"job": "0000-1", "segment": 1, "resume_epoch": 0}),
        Event("launched", "0000", {"job": "0000-1", "adjustments": [adjustment]}),
        Event("retry", "0000", {"failure": LOST.to_json()}),
        ended("0000", "failed", OOM),
        proposed("0001", 8),
        Event("epoch", "0001", epoch),
        Event("decision", "0001", {"epoch": 3, "decision": "stop", "loss": 0.5}),
        ended("0001", "stopped"),
        Event("run", data={"what": "ended", "status": "done", "reason": ""}),
    )
    journal.close()
    return made.path


def test_a_run_s_failures_by_cause(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(run_dir)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].endswith(": done")
    assert shown[2:] == [
        "1 of 2 trials: out of memory (0000)",
        "    CUDA out of memory",
        "    | epoch 1",
        "    | CUDA out of memory",
        f"    what to do: {FailureKind.OOM.remedy}",
    ]


def test_one_trial_with_its_history(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(run_dir), "0"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("trial 0000 failed: out of memory\n    CUDA out of memory\n")
    assert f"whole log: tao-ray logs night/{run_dir.name} 0000" in text
    assert f"after: {FailureKind.MACHINE_LOST.cause}\n      killed by signal 9" in text
    assert "dataset.batch_size: 64 was asked, 60 was used: 60 samples" in text


def test_a_trial_that_did_not_fail(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(run_dir), "1"]) == 0
    assert "was stopped by the algorithm after epoch 3" in capsys.readouterr().out


def test_a_trial_that_is_not_there(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(run_dir), "7"]) == 2
    assert "trials: 0000, 0001" in capsys.readouterr().err
