"""A whole run whose driver is killed between its search and its final evaluation's end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_runs import configure

from tao_ray.journal import read_events
from tao_ray.trial.state import RunState

pytestmark = pytest.mark.slow


def test_it_is_not_run_twice(tmp_path: Path) -> None:
    configure(tmp_path)
    command = [sys.executable, "-m", "tao_ray.tune", str(tmp_path / "run.yaml"), "--yes"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while True:
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
        found = list((tmp_path / "runs").glob("small/*/journal.sqlite"))
        if found and "final" in RunState.fold(read_events(found[0])).evaluations:
            break
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    directory = found[0].parent
    assert not (directory / "result.json").exists()

    resume = [sys.executable, "-m", "tao_ray.cli", "resume", str(directory), "--yes"]
    subprocess.run(resume, check=True, capture_output=True, timeout=240)
    result = json.loads((directory / "result.json").read_text())
    assert result["status"] == "done"
    assert result["final_evaluation"]["status"] == "measured"
    assert result["baseline"]["status"] == "measured"
    jobs = sorted(p.name for p in (directory / "jobs" / ".jobs").iterdir() if p.is_dir())
    assert jobs == ["0000-1", "0001-1", "eval-baseline-1", "eval-final-1"]
    # The review's first trial was the run's first.
    spec = (directory / "jobs" / "0000" / "spec_1.yaml").read_text()
    assert spec.rstrip() in (directory / "review.md").read_text()
