"""What a plan refuses and warns of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from small_runs import configure

import tao_ray.standin
from tao_ray.errors import TaoRayError
from tao_ray.experiment.plan import make_plan

STANDIN = Path(tao_ray.standin.__file__).parent


@pytest.mark.parametrize("algorithm", ["pbt", "pb2"])
def test_populations_do_not_vary_the_shape_of_weights_by_default(
    tmp_path: Path, algorithm: str
) -> None:
    search = {"algorithm": algorithm, "trials": 4, "max_epochs": 8}
    with pytest.raises(TaoRayError) as refused:
        make_plan(configure(tmp_path, search=search))
    assert "model.hidden_dim" in str(refused.value)
    assert "model.dropout" not in str(refused.value)

    plan = make_plan(configure(tmp_path, search={**search, "exclude": ["model.hidden_dim"]}))
    assert "model.dropout" in plan.derived.space.names
    assert not any(algorithm in warning for warning in plan.derived.warnings)


def test_who_names_a_shape_for_a_population_is_warned(tmp_path: Path) -> None:
    parameters = {"model.hidden_dim": {"min": 16, "max": 64}}
    search = {"algorithm": "pbt", "trials": 4, "max_epochs": 8, "parameters": parameters}
    [warning] = make_plan(configure(tmp_path, search=search)).derived.warnings
    assert "model.hidden_dim" in warning


def test_other_algorithms_vary_it(tmp_path: Path) -> None:
    plan = make_plan(configure(tmp_path, search={"algorithm": "asha", "max_epochs": 8}))
    assert "model.hidden_dim" in plan.derived.space.names


@pytest.mark.parametrize("action", ["prune", "quantize"])
@pytest.mark.parametrize(
    "algorithm", ["asha", "hyperband", "hyperband_es", "bohb", "dehb", "pbt", "pb2"]
)
def test_an_action_without_epochs_is_refused_to_what_divides_them(
    tmp_path: Path, action: str, algorithm: str
) -> None:
    name = {"prune": "prune.threshold", "quantize": "quantize.percentile"}[action]
    model = {"package": "digits_mlp", "action": action, "checkpoint": "/models/model.pth"}
    search = {"algorithm": algorithm, "parameters": {name: {}}, "trials": 4}
    with pytest.raises(TaoRayError, match="epoch budget"):
        make_plan(configure(tmp_path, model=model, search=search))


def test_a_job_of_several_nodes_is_refused(tmp_path: Path) -> None:
    config = configure(
        tmp_path, model={"package": "digits_mlp", "overrides": {"train.num_nodes": 2}}
    )
    with pytest.raises(TaoRayError, match="one machine") as refused:
        make_plan(config)
    assert "train.num_nodes=1" in str(refused.value.remedy)


@pytest.mark.parametrize("action", ["prune", "quantize"])
def test_what_acts_on_the_training_is_not_searched_for_a_trained_model(
    tmp_path: Path, action: str
) -> None:
    model = {"package": "digits_mlp", "action": action, "checkpoint": "/models/model.pth"}
    with pytest.raises(TaoRayError) as refused:
        make_plan(configure(tmp_path, model=model, search={"algorithm": "random"}))
    text = str(refused.value)
    assert "model.dropout, dataset.batch_size, dataset.workers" in text
    assert f"acts on the training, and {action} takes a trained model" in text
    assert f"parameters of {action} itself: {action}." in text


def test_weights_that_may_not_fit_are_told_of(tmp_path: Path) -> None:
    model = {"package": "digits_mlp", "checkpoint": "/models/model.pth"}
    search = {"algorithm": "asha", "max_epochs": 8}
    [warning] = make_plan(configure(tmp_path, model=model, search=search)).derived.warnings
    assert "may fail where its weights do not fit their model.hidden_dim" in warning
    search["exclude"] = ["model.hidden_dim"]
    assert make_plan(configure(tmp_path, model=model, search=search)).derived.warnings == ()


@pytest.mark.parametrize(
    ("search", "works"),
    [
        ({"algorithm": "hyperband"}, False),
        ({"algorithm": "asha", "options": {"variant": "promotion"}}, False),
        ({"algorithm": "asha"}, True),
    ],
)
def test_who_pauses_trials_needs_a_network_that_resumes(
    tmp_path: Path, search: dict[str, Any], works: bool
) -> None:
    package = tmp_path / "digits_mlp"
    shutil.copytree(STANDIN / "package", package)
    for path in package.rglob("*"):
        if path.is_file():
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(n for n in lines if not n.rstrip().endswith(": resume_model")))
            text = path.read_text().replace("resume_training_checkpoint_path", "forgotten")
            path.write_text(text)
    config = configure(
        tmp_path, model={"package": str(package)}, search={**search, "max_epochs": 8}
    )
    if works:
        make_plan(config)
    else:
        with pytest.raises(TaoRayError, match="digits_mlp cannot resume a training"):
            make_plan(config)
