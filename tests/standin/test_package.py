"""The model package of digits_mlp is what `config.FIELDS` declares, and loads like a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_ray.network import load_package, resolve_network
from tao_ray.network.ranges import derive_space
from tao_ray.standin import PACKAGE
from tao_ray.standin.config import FIELDS, REQUIRED
from tao_ray.standin.package_files import files


def test_the_generated_files_are_up_to_date() -> None:
    for name, text in files().items():
        assert (PACKAGE / name).read_text() == text, "run python -m tao_ray.standin.package_files"


def test_it_loads_with_all_its_actions() -> None:
    package = load_package(str(PACKAGE), Path("/"))
    assert package.network_arch == "digits_mlp"
    assert package.automl_enabled
    assert set(package.actions) == set(REQUIRED)
    for name, action in package.actions.items():
        assert action.schema is not None
        assert action.template is not None
        assert set(action.schema.parameters) == set(FIELDS)
        assert action.command == f"digits_mlp {name} -e {{config_path}}"


@pytest.mark.parametrize("action", ["prune", "quantize"])
def test_what_is_not_enabled_may_be_searched_by_name(action: str) -> None:
    schema = load_package(str(PACKAGE), Path("/")).actions[action].schema
    assert schema is not None
    own = [n for n in schema.parameters if n.startswith(f"{action}.")]
    assert own
    assert not any(schema.is_disabled(name) for name in own)
    assert not any(schema.parameters[name].automl_enabled for name in own)


def test_the_default_search_space(tmp_path: Path) -> None:
    from tao_ray.config import load_config

    path = tmp_path / "run.yaml"
    path.write_text("name: x\nmodel: {package: digits_mlp}\nplatform: {kind: local}\n")
    config = load_config(path)
    network = resolve_network(config.model, config.data, config.objective, tmp_path)
    assert (network.metric, network.direction) == ("val_acc_1", "maximize")
    space = derive_space(network, config.search).space
    assert set(space.names) == {
        "train.optim.lr",
        "train.optim.weight_decay",
        "train.optim.policy",
        "model.hidden_dim",
        "model.dropout",
        "dataset.batch_size",
        "dataset.augmentation.random_shift.enable",
        "dataset.augmentation.random_shift.shift_probability",
        "dataset.augmentation.random_erase_min",
        "dataset.augmentation.random_erase_max",
    }
