"""Importance: the forest's arithmetic, and whether it finds what is known to matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import MadeRun, many_trials

from tao_ray.experiment.run_dir import RunDir
from tao_ray.report import read_run
from tao_ray.report.importance import _fit, _forest, _Leaves, comparable, importance, unit
from tao_ray.report.space_plots import by_telling, importance_bars


def test_the_leaves_tile_the_cube() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((80, 4))
    tree = _fit(x, x[:, 0] * 3 + rng.normal(size=80), rng)
    assert (tree.high - tree.low).prod(axis=1).sum() == pytest.approx(1.0)
    probes = rng.random((200, 4))
    inside = (probes[:, None] >= tree.low) & (probes[:, None] < tree.high)
    assert (inside.all(axis=2).sum(axis=1) == 1).all()


def test_main_effects_of_a_tree_worked_by_hand() -> None:
    """Left half 0; the right half is 2 below and 4 above x1 = 1/2."""
    tree = _Leaves(
        low=np.array([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]]),
        high=np.array([[0.5, 1.0], [1.0, 0.5], [1.0, 1.0]]),
        value=np.array([0.0, 2.0, 4.0]),
    )
    # Mean 1.5, variance 2.75; marginals of x0: 0 and 3, of x1: 1 and 2.
    assert tree.main_effects() == pytest.approx([2.25 / 2.75, 0.25 / 2.75])


def test_the_learning_rate_is_found_to_matter(tmp_path: Path) -> None:
    found = importance(read_run(many_trials(tmp_path, 60, 4)))
    assert found is not None
    assert found.effects[0].name == "train.optim.lr"
    assert found.effects[0].share > 0.5
    assert found.effects[1].share < 0.2
    assert sum(e.share for e in found.effects) <= 1.0 + 1e-9
    assert found.fit > 0.5
    assert (found.epoch, found.trials) == (4, 60)


def test_noise_is_not_found_to_matter() -> None:
    fits = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = rng.permutation(30).astype(float)
        fits.append(_forest(rng.random((30, 10)), y / y.std())[1])
    assert np.mean(fits) < 0.1


def test_trials_are_compared_at_an_epoch_most_of_them_reached(done_run: RunDir) -> None:
    run = read_run(done_run)
    epoch, losses = comparable(run)
    assert 0 < epoch < run.max_epochs
    assert len(losses) >= 0.6 * sum(bool(t.measured()) for t in run.trials)
    for trial, loss in losses:
        seen = [e.loss for e in trial.measured() if e.epoch <= epoch]
        assert loss == min(seen)


@pytest.mark.parametrize(("fit", "tentative"), [(0.1, True), (0.5, False)])
def test_a_forest_that_knows_nothing_orders_nothing(
    done_run: RunDir, fit: float, tentative: bool
) -> None:
    run = read_run(done_run)
    measured = importance(run)
    assert measured is not None
    found = replace(measured, fit=fit)
    assert found.tentative is tentative
    names = [p["name"] for p in by_telling(run, found)]
    listed = [p["name"] for p in run.space]
    assert (names == listed) is tentative
    assert names[0] == (listed[0] if tentative else found.effects[0].name)
    assert ("%?" in importance_bars(found, 400)) is tentative


def test_too_few_trials_have_no_importance(tmp_path: Path) -> None:
    assert importance(read_run(MadeRun(tmp_path, trials=4).go().end())) is None


@pytest.mark.parametrize(
    ("parameter", "value", "place"),
    [
        ({"low": 0.0, "high": 4.0}, 1.0, 0.25),
        ({"low": 1e-4, "high": 1.0, "log": True}, 1e-2, 0.5),
        ({"low": 0.0, "high": 4.0}, 9.0, 1.0),
        ({"options": ["a", "b"]}, "b", 0.75),
        ({"options": [False, True]}, True, 0.75),
        ({"options": [[1, 2], [3, 4]]}, [1, 2], 0.25),
    ],
)
def test_places_in_the_unit_interval(
    parameter: Mapping[str, Any], value: Any, place: float
) -> None:
    assert unit(parameter, value) == pytest.approx(place)
