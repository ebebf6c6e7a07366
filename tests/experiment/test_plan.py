"""What a plan refuses and warns of."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import configure

from tao_ray.errors import TaoRayError
from tao_ray.experiment.plan import make_plan


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
