"""Pauses, promotions and exploits with real jobs: the two kinds of relaunch a search makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from test_search import WAIT_S, crash_script, only_run, tune, write_config

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import Event, read_events
from tao_ray.trial.state import RunState, TrialState

pytestmark = pytest.mark.slow


def searched(directory: Path, **sections: Any) -> tuple[RunDir, list[Event], list[TrialState]]:
    """The run of a configuration that has ended well, its journal and its trials."""
    config = write_config(directory, "run", **sections)
    driver = tune(config)
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode == 0, out
    run = only_run(config)
    assert crash_script().check(run, None) == []
    events = read_events(run.journal)
    return run, events, list(RunState.fold(events).trials.values())


def test_hyperband_pauses_and_resumes_what_the_paper_says(tmp_path: Path) -> None:
    """R = 4, eta = 2: 4x1 > 2x2 > 1x4, then 3x2 > 1x4, in two slots."""
    search = {
        "algorithm": "hyperband",
        "trials": 7,
        "max_epochs": 4,
        "max_concurrent": 2,
        "options": {"reduction_factor": 2},
    }
    _, events, trials = searched(tmp_path, search=search)
    assert sorted(len(t.epochs) for t in trials[:4]) == [1, 1, 2, 4]
    assert sorted(len(t.epochs) for t in trials[4:]) == [2, 2, 4]

    promoted, beaten = (
        [loss for t in trials[:4] if (len(t.epochs) > 1) is far and (loss := t.epochs[1].loss)]
        for far in (True, False)
    )
    assert max(promoted) <= min(beaten)

    resumed = [e.trial for e in events if e.kind == "resumed"]
    assert len(resumed) == 4
    for trial in trials:
        # A job per promotion, each from the checkpoint of the rung before: no epoch twice.
        assert len(trial.jobs) == 1 + resumed.count(trial.id)
        rungs = [1, 2] if trial.id < "0004" else [2]
        assert [job.resume_epoch for job in trial.jobs[1:]] == rungs[: len(trial.jobs) - 1]


def test_an_exploit_trains_the_donors_weights_with_its_own_learning_rate(tmp_path: Path) -> None:
    lr = {"min": 1e-5, "max": 1e-1, "scale": "log"}
    search = {
        "algorithm": "pbt",
        "parameters": {"train.optim.lr": lr},
        "trials": 4,
        "max_epochs": 8,
        "max_concurrent": 4,
        "options": {"perturbation_interval": 2},
    }
    # Epochs longer than a start takes, so that members reach their milestones side by side.
    model = {"overrides": {"train.seconds_per_epoch": 3}}
    run, _, trials = searched(tmp_path, model=model, search=search)
    assert all(t.start is None for t in trials[:4])
    exploits = trials[4:]
    assert exploits
    assert [len(t.jobs) for t in trials] == [1] * len(trials)
    by_id = {t.id: t for t in trials}
    for trial in exploits:
        assert trial.start is not None
        donor = by_id[trial.start.trial_id]
        assert min(trial.epochs) == trial.start.epoch + 1
        asked = trial.config["train.optim.lr"]
        assert asked != donor.config["train.optim.lr"]

        spec = yaml.safe_load((run.trial(trial.id) / "spec.yaml").read_text())
        weights = Path(spec["train"]["pretrained_model_path"])
        assert donor.id in weights.parts
        assert spec["train"]["num_epochs"] == 8 - trial.start.epoch
        log = (run.trial(trial.id) / "log.txt").read_text()
        assert f"Epoch 0: learning rate {asked!r}" in log
        assert "Resuming training" not in log
