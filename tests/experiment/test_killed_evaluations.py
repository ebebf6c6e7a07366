"""Whole runs whose driver is killed while something is evaluated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import configure

from tao_ray.journal import read_events
from tao_ray.trial.state import RunState

pytestmark = pytest.mark.slow


def killed(tmp_path: Path, when: Callable[[RunState], bool]) -> Path:
    """The directory of a run whose driver was killed as soon as its state was such."""
    command = [sys.executable, "-m", "tao_ray.tune", str(tmp_path / "run.yaml"), "--yes"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while True:
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
        found = list((tmp_path / "runs").glob("small/*/journal.sqlite"))
        if found and when(RunState.fold(read_events(found[0]))):
            break
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    directory = found[0].parent
    assert not (directory / "result.json").exists()
    return directory


def resumed(directory: Path) -> Any:
    """Its result."""
    resume = [sys.executable, "-m", "tao_ray.cli", "resume", str(directory), "--yes"]
    subprocess.run(resume, check=True, capture_output=True, timeout=240)
    return json.loads((directory / "result.json").read_text())


def jobs_of(directory: Path) -> list[str]:
    return sorted(p.name for p in (directory / "jobs" / ".jobs").iterdir() if p.is_dir())


def test_a_trial_s_evaluation_is_not_run_twice(tmp_path: Path) -> None:
    configure(tmp_path, objective={"source": "evaluate"})
    directory = killed(tmp_path, lambda s: any(t.evaluation for t in s.trials.values()))
    result = resumed(directory)
    assert result["status"] == "done"
    assert [t["status"] for t in result["trials"]] == ["completed", "completed"]
    assert result["objective"]["metric"] == "test_acc_1"
    assert result["final_evaluation"]["status"] == "reused"
    assert result["final_evaluation"]["metric"] == result["best"]["metric"]
    assert jobs_of(directory) == ["0000-1", "0001-1", "eval-0000-1", "eval-0001-1"]
    assert (directory / "report.html").is_file()


def test_the_final_evaluation_is_not_run_twice(tmp_path: Path) -> None:
    configure(tmp_path)
    directory = killed(tmp_path, lambda s: "final" in s.evaluations)
    result = resumed(directory)
    assert result["status"] == "done"
    assert result["final_evaluation"]["status"] == "measured"
    assert result["baseline"]["status"] == "measured"
    assert jobs_of(directory) == ["0000-1", "0001-1", "eval-baseline-1", "eval-final-1"]
    # The review's first trial was the run's first.
    spec = (directory / "jobs" / "0000" / "spec_1.yaml").read_text()
    assert spec.rstrip() in (directory / "review.md").read_text()
