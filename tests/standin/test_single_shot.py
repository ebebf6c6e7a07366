"""evaluate, prune and quantize of digits_mlp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from standin_jobs import Job

from tao_ray.standin import checkpoint


def kpi(job: Job, action: str) -> dict[str, float]:
    last = job.lines(action)[-1]
    assert last["message"] == f"{action.capitalize()} finished successfully."
    values: dict[str, float] = last["kpi"]
    return values


@pytest.fixture
def run(
    new_job: Callable[[str], Job], trained: Job
) -> Callable[[str, dict[str, object]], tuple[Job, dict[str, float]]]:
    """Run an action on the trained checkpoint: the job and what it measured."""
    key = {"evaluate": "checkpoint", "prune": "checkpoint", "quantize": "model_path"}
    count = 0

    def run(action: str, values: dict[str, object]) -> tuple[Job, dict[str, float]]:
        nonlocal count
        count += 1
        job = new_job(f"{action}{count}")
        source = {f"{action}.{key[action]}": str(trained.checkpoint(7))}
        result = job.run(action, {**source, **values})
        assert result.returncode == 0, result.stderr
        return job, kpi(job, action)

    return run


Run = Callable[[str, dict[str, object]], tuple[Job, dict[str, float]]]


def test_evaluate_measures_on_a_split_of_its_own(run: Run, trained: Job) -> None:
    job, values = run("evaluate", {})
    assert set(values) == {"test_loss", "test_acc_1"}
    assert values["test_acc_1"] > 0.9
    assert values["test_loss"] != trained.values()[-1]["val_loss"]
    assert "Test metrics generated." in job.messages("evaluate")


def test_evaluate_needs_a_checkpoint(job: Job) -> None:
    assert job.run("evaluate").returncode == 1
    assert job.lines("evaluate")[-1]["message"] == (
        "Parameter validation error: Missing mandatory value: evaluate.checkpoint"
    )


def test_pruning_nothing_changes_nothing(run: Run, trained: Job) -> None:
    _, values = run("prune", {"prune.threshold": 0.0})
    assert values["val_acc_1"] == trained.values()[-1]["val_acc_1"]
    assert values["sparsity"] < 0.1
    assert values["score"] == pytest.approx(values["val_acc_1"] - 0.1 * (1 - values["sparsity"]))


def test_pruning_more_costs_accuracy(run: Run) -> None:
    few, many = (run("prune", {"prune.threshold": t})[1] for t in (0.05, 0.8))
    assert many["sparsity"] > few["sparsity"]
    assert many["size_kb"] < few["size_kb"]
    assert many["val_acc_1"] < few["val_acc_1"]


def test_pruning_units_removes_whole_units(run: Run) -> None:
    job, _ = run("prune", {"prune.granularity": "unit", "prune.threshold": 0.6})
    pruned = checkpoint.load(job.results / "prune/model_pruned.pth").network
    weight, bias = pruned.layers[0]
    following = pruned.layers[1][0]
    gone = ~weight.any(axis=0)
    assert 0 < gone.sum() < len(bias)
    assert not bias[gone].any()
    assert not following[gone].any()
    assert np.isfinite(pruned.vector).all()


def test_quantizing_to_fewer_bits_costs_accuracy(run: Run, trained: Job) -> None:
    (_, fine), (_, coarse) = (run("quantize", {"quantize.bits": b}) for b in (8, 2))
    assert fine["val_acc_1"] == pytest.approx(trained.values()[-1]["val_acc_1"], abs=0.01)
    assert coarse["val_acc_1"] < fine["val_acc_1"] - 0.05
    assert coarse["size_kb"] == pytest.approx(fine["size_kb"] / 4)


@pytest.mark.parametrize(
    "change",
    [
        {"quantize.algorithm": "mse"},
        {"quantize.algorithm": "percentile", "quantize.percentile": 97.0},
        {"quantize.per_channel": True},
    ],
)
def test_quantize_settings_have_an_effect(run: Run, change: dict[str, object]) -> None:
    plain = run("quantize", {"quantize.bits": 3})[1]
    changed = run("quantize", {"quantize.bits": 3, **change})[1]
    assert changed["val_loss"] != plain["val_loss"]


def test_what_they_write_can_be_evaluated(run: Run, new_job: Callable[[str], Job]) -> None:
    job, _ = run("quantize", {"quantize.bits": 4})
    model = job.results / "quantize/quantized_model.pth"
    after = new_job("after")
    assert after.run("evaluate", {"evaluate.checkpoint": str(model)}).returncode == 0
    assert kpi(after, "evaluate")["test_acc_1"] > 0.8
