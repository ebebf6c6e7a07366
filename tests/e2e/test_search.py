"""Whole searches as a user runs them: `python -m tao_ray.tune`, real jobs, real Ray."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import read_events
from tao_ray.trial.state import RunState

pytestmark = pytest.mark.slow
REPO = Path(__file__).resolve().parents[2]
WAIT_S = 180


def write_config(directory: Path, name: str, **sections: Any) -> Path:
    config = {
        "name": name,
        "results": str(directory / "runs"),
        "model": {
            "package": "digits_mlp",
            "overrides": {"train.seconds_per_epoch": 0.1},
        },
        "search": {"algorithm": "asha", "trials": 6, "max_epochs": 9, "max_concurrent": 2},
    }
    for section, values in sections.items():
        config[section] = {**config.get(section, {}), **values}  # type: ignore[dict-item]
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def tune(config: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tao_ray.tune", str(config), "--yes", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def tao_ray(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tao_ray.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    return done.stdout


def only_run(config: Path) -> RunDir:
    (run,) = RunDir.all(config.parent / "runs" / config.stem)
    return run


def wait_for_epochs(config: Path, n: int) -> RunDir:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for run in RunDir.all(config.parent / "runs" / config.stem):
            if sum(e.kind == "epoch" for e in read_events(run.journal)) >= n:
                return run
        time.sleep(0.1)
    raise AssertionError("no epochs")


def crash_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crash", REPO / "scripts" / "crash.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.smoke
def test_a_search_from_config_to_result(tmp_path: Path) -> None:
    config = write_config(tmp_path, "whole")
    driver = tune(config)
    run = wait_for_epochs(config, 1)
    live = json.loads(tao_ray("status", str(run.path), "--json"))
    assert live["phase"] == "running"
    assert live["trials"][0]["job"] == "0000-1"
    assert "train.optim.lr" in live["trials"][0]["hyperparameters"]
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode == 0, out

    result = json.loads(run.result.read_text())
    assert result["status"] == "done"
    assert [t["id"] for t in result["trials"]] == [f"{n:04d}" for n in range(6)]
    best = result["best"]
    assert best["metric"] == max(t["metric"] for t in result["trials"])
    assert Path(best["checkpoint"]["path"]).is_file()
    assert f"best val_acc_1: {best['metric']:.6g}" in out
    spec = yaml.safe_load(run.best_spec.read_text())
    assert spec["train"]["optim"]["lr"] == best["hyperparameters"]["train.optim.lr"]
    assert spec["train"]["num_epochs"] == 9
    for trial in result["trials"]:
        names = {p.name for p in run.trial(trial["id"]).iterdir()}
        assert names == {"spec.yaml", "status.json", "log.txt", "result.json"}
    # Nothing of Ray's, or of any library's, reached the terminal.
    assert not [line for line in out.splitlines() if "ray" in line.lower() and "WARN" in line]

    text = tao_ray("status", str(run.path))
    assert "6/6 trials ended" in text
    assert "Epoch 0" in tao_ray("logs", str(run.path), "0")
    assert crash_script().check(run, None) == []


def test_stopped_and_resumed_a_sequential_search_is_as_if_undisturbed(tmp_path: Path) -> None:
    crash = crash_script()
    search = {"max_concurrent": 1, "trials": 5}
    reference = write_config(tmp_path, "reference", search=search)
    assert tune(reference).wait(WAIT_S) == 0

    config = write_config(tmp_path, "stopped", search=search)
    driver = tune(config)
    run = wait_for_epochs(config, 4)
    driver.send_signal(signal.SIGINT)
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode == 130, out
    assert f"go on with: tao-ray resume {run.path}" in out
    assert crash.jobs_alive(run) == []
    assert json.loads(tao_ray("status", str(run.path), "--json"))["phase"] == "ended"

    changed = tune(config, "--resume", "--set", "search.trials=9")
    out, _ = changed.communicate(timeout=WAIT_S)
    assert changed.returncode == 2
    assert "search.trials: 5 -> 9" in out

    driver = tune(config, "--resume")
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode == 0, out
    assert crash.check(run, crash.outcome(only_run(reference))) == []


@pytest.mark.smoke
def test_a_killed_search_resumes_with_nothing_lost(tmp_path: Path) -> None:
    crash = crash_script()
    config = write_config(tmp_path, "killed")
    rng = random.Random(7)
    driver = tune(config)
    for epochs in (3, 8):
        run = wait_for_epochs(config, epochs)
        time.sleep(rng.uniform(0.0, 1.0))
        driver.kill()
        driver.wait()
        assert not run.result.exists()
        driver = tune(config, "--resume")
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode == 0, out
    assert crash.check(run, None) == []


def test_stop_from_another_process(tmp_path: Path) -> None:
    config = write_config(tmp_path, "asked")
    driver = tune(config)
    run = wait_for_epochs(config, 2)
    assert "has stopped" in tao_ray("stop", str(run.path))
    assert driver.wait(WAIT_S) == 130
    assert crash_script().jobs_alive(run) == []


@pytest.mark.smoke
def test_a_second_interrupt_leaves_at_once_and_the_jobs_are_found_again(tmp_path: Path) -> None:
    crash = crash_script()
    overrides = {"train.seconds_per_epoch": 0.5}
    config = write_config(tmp_path, "left", model={"overrides": overrides})
    driver = tune(config)
    run = wait_for_epochs(config, 1)
    driver.send_signal(signal.SIGINT)
    driver.send_signal(signal.SIGINT)
    started = time.monotonic()
    driver.wait(WAIT_S)
    assert time.monotonic() - started < 30
    driver = tune(config, "--resume", str(run.path))
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode == 0, out
    assert crash.check(run, None) == []


@pytest.mark.smoke
def test_a_setup_that_cannot_work_ends_with_its_cause(tmp_path: Path) -> None:
    overrides = {"dataset.label_noise": 0.1, "train.seconds_per_epoch": 0.0}
    config = write_config(
        tmp_path,
        "broken",
        model={"overrides": overrides},
        platform={"kind": "local", "activate": str(tmp_path / "activate")},
    )
    (tmp_path / "activate").write_text("digits_mlp() { echo 'No space left on device'; exit 1; }\n")
    driver = tune(config)
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode == 3, out
    assert "no success: 3 trials in a row failed alike: the disk is full" in out
    assert "-> free space where the evidence says" in out
    state = RunState.fold(read_events(only_run(config).journal))
    assert len(state.trials) in (3, 4)  # the other slot's may have started meanwhile
