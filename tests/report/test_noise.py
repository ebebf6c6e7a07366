"""The verdict on noise: its estimates against known noise, and each answer it can give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import MadeRun, Training

from tao_ray.report import RunData, read_run
from tao_ray.report.evaluations import selected_by
from tao_ray.report.markdown import render_markdown
from tao_ray.report.noise import expected_maximum, jitter, late_mean, verdict
from tao_ray.report.writing import document
from tao_ray.trial.state import EpochState, TrialState


def curve(losses: list[float]) -> TrialState:
    trial = TrialState("0000", {}, {}, None, 0.0)
    for epoch, loss in enumerate(losses, 1):
        trial.epochs[epoch] = EpochState(epoch, {}, loss, 1.0, 0.0, "0000-1")
    return trial


def test_jitter_is_the_noise_without_the_trend() -> None:
    rng = np.random.default_rng(1)
    epochs = np.arange(2000)
    found = jitter(curve(list(5 - 0.01 * epochs + rng.normal(0, 0.3, epochs.size))))
    assert found == pytest.approx(0.3, rel=0.1)
    assert jitter(curve(list(5 - 0.01 * epochs))) == pytest.approx(0.0, abs=1e-9)


def test_jitter_needs_a_curve_that_is_long_enough() -> None:
    assert jitter(curve([1.0] * 8)) is None
    assert jitter(curve([1.0] * 9)) == 0.0


def test_late_mean_is_the_last_quarter() -> None:
    assert late_mean(curve([9.0] * 12 + [1.0, 2.0, 3.0, 4.0])) == 2.5
    assert late_mean(curve([5.0, 1.0])) == 3.0


@pytest.mark.parametrize("n", [2, 5, 12, 100])
def test_expected_maximum(n: int) -> None:
    draws = np.random.default_rng(2).normal(size=(20000, n)).max(axis=1)
    assert expected_maximum(n) == pytest.approx(draws.mean(), rel=0.06)
    assert expected_maximum(1) == 0.0


def run_of(root: Path, training: Training, **search: Any) -> RunData:
    settings = {"algorithm": "random", "trials": 6, "max_concurrent": 2, "max_epochs": 16, **search}
    return read_run(MadeRun(root, training, **settings).go().end())


def saturating(gain: float, noise: float) -> Training:
    """Trial 3 is better than all others by `gain`."""

    def value(trial: str, config: Mapping[str, Any], epoch: int) -> float:
        jitter = np.random.default_rng([int(trial), epoch, 7]).normal(0, noise)
        better = gain if trial == "0003" else 0.0
        return float((0.8 + better) * (1 - math.exp(-epoch)) + jitter)

    return value


def test_a_large_gain_is_told_from_noise(tmp_path: Path) -> None:
    found = verdict(run_of(tmp_path, saturating(0.1, 0.002)))
    assert found.tone == "plain"  # the larger part of the noise is not known
    assert "more than seed-to-seed noise, usually larger, is not known" in found.title
    assert any("another seed is not known" in reason for reason in found.reasons)
    assert any("validation data is finite is not counted" in reason for reason in found.reasons)


def with_final(root: Path, evaluated: str) -> RunData:
    """A large gain, and a final evaluation on `evaluated`; the search validated on /data/val."""
    made = MadeRun(
        root,
        saturating(0.1, 0.002),
        overrides={"dataset.val_dataset.images_dir": "/data/val"},
        algorithm="random",
        trials=6,
        max_concurrent=2,
        max_epochs=16,
    ).go()
    data = {"dataset.test_dataset.images_dir": evaluated}
    found = {"metric": 0.88, "metrics": {"test_acc_1": 0.88}, "baseline": 0.8, "improvement": 0.08}
    made.evaluation("final", "eval-final-1", data=data, **found)
    return read_run(made.end())


@pytest.mark.parametrize(
    ("evaluated", "seen", "tone"),
    [
        ("/data/test", False, "good"),
        ("/data/val", True, "plain"),
        ("/data", None, "plain"),  # it holds what the search selected by
    ],
)
def test_only_other_data_confirms_a_gain(
    tmp_path: Path, evaluated: str, seen: bool | None, tone: str
) -> None:
    run = with_final(tmp_path, evaluated)
    assert selected_by(run) is seen
    assert verdict(run).tone == tone
    said = render_markdown(document(run)).split("Which gain to quote")[1].split("\n")[0]
    assert "optimistic" in said
    assert ("used other data, which" in said) == (seen is False)
    assert ("used the same data" in said) == (seen is True)
    assert "+0.08" in said or seen is True


def test_the_samples_that_a_gain_needs_are_those_of_its_standard_error(tmp_path: Path) -> None:
    def value(trial: str, config: Mapping[str, Any], epoch: int) -> float:
        return 0.9 if trial == "0003" else 0.8

    [said] = [r for r in verdict(run_of(tmp_path, value)).reasons if "finite" in r]
    # 4 * (0.9 * 0.1 + 0.8 * 0.2) / 0.1²
    assert "needs about 100 of them" in said


def test_a_winner_judged_before_its_curve_is_flat_is_said(tmp_path: Path) -> None:
    def early(trial: str, config: Mapping[str, Any], epoch: int) -> float:
        peak = 0.05 if (trial, epoch) == ("0003", 2) else 0.0
        return 0.8 + peak + 0.01 * int(trial) + 1e-4 * (epoch % 2)

    first = verdict(run_of(tmp_path, early)).reasons[0]
    assert "The winner is judged by an earlier epoch, 2" in first


def test_equally_good_trials_are_noise(tmp_path: Path) -> None:
    found = verdict(run_of(tmp_path, saturating(0.0, 0.02)))
    assert found.tone in ("bad", "plain")
    assert "clearly" not in found.title


def test_a_middling_gain_is_unclear(tmp_path: Path) -> None:
    found = verdict(run_of(tmp_path, saturating(0.03, 0.01)))
    assert found.tone == "unclear"


def test_the_defaults_can_win(tmp_path: Path) -> None:
    def defaults_first(trial: str, config: Mapping[str, Any], epoch: int) -> float:
        return 0.9 if trial == "0000" else 0.5

    found = verdict(run_of(tmp_path, defaults_first))
    assert found.title == "No trial is better than the network's defaults (trial 0)."


def test_defaults_that_were_stopped_early_are_no_fair_reference(tmp_path: Path) -> None:
    def slow_defaults(trial: str, config: Mapping[str, Any], epoch: int) -> float:
        return 0.1 if trial == "0000" else 0.02 * epoch + 0.1 * int(trial)

    run = run_of(tmp_path, slow_defaults, algorithm="asha", options={"variant": "promotion"})
    assert run.reference is not None
    assert run.best is not None
    last = run.reference.last_epoch
    assert last < run.best[1].epoch
    found = verdict(run)
    assert found.tone == "unclear"
    assert "not trained as long" in found.title
    then = run.epoch_value(run.best[0].epochs[last])
    assert then is not None
    assert any(f"the difference was +{then - 0.1:.3g}" in reason for reason in found.reasons)


def test_short_curves_leave_it_open(tmp_path: Path) -> None:
    found = verdict(run_of(tmp_path, saturating(0.1, 0.0), max_epochs=4))
    assert found.title == "It cannot be told whether the gain is noise."


def test_without_a_reference_the_gain_is_unknown(tmp_path: Path) -> None:
    run = run_of(tmp_path, saturating(0.1, 0.0), max_epochs=4)
    state = run.state
    del state.trials["0000"]
    assert "The gain is unknown" in verdict(replace(run, state=state)).title
