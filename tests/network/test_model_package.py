from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from toy_package import Toy

from tao_ray.network import PackageError, load_package


def bank(root: Path, names: dict[str, dict[str, Any]]) -> Path:
    for name, info in names.items():
        package = Toy(root / "skills" / "models" / name)
        package.info.update(info)
        package.write()
    return root


def test_names_find_a_package_by_directory_alias_or_network_arch(tmp_path: Path) -> None:
    root = bank(
        tmp_path,
        {
            "train-a": {"network_arch": "net_a", "aliases": ["Alpha Net"]},
            "train-b": {"network_arch": "net_b"},
        },
    )
    for ref in ("train-a", "net_a", "Alpha Net", "alpha-net", "NET-A"):
        assert load_package(ref, Path("/"), root).name == "train-a"
    models = root / "skills" / "models"
    assert load_package("net_b", Path("/"), models).name == "train-b"


def test_the_bank_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_SKILL_BANK_PATH", str(bank(tmp_path, {"train-a": {}})))
    assert load_package("toy", Path("/")).name == "train-a"


def test_a_directory_is_relative_to_the_configuration(toy: Toy) -> None:
    directory = toy.write()
    assert load_package(f"./{directory.name}", directory.parent).directory == directory
    assert load_package(directory.name, directory.parent).directory == directory


@pytest.mark.parametrize("name", ["digits_mlp", "standin"])
def test_the_built_in_network_needs_no_bank(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAO_SKILL_BANK_PATH", raising=False)
    assert load_package(name, Path("/")).network_arch == "digits_mlp"


def test_an_ambiguous_name_lists_the_candidates(tmp_path: Path) -> None:
    root = bank(tmp_path, {"train-a": {}, "train-b": {}})
    with pytest.raises(PackageError) as error:
        load_package("toy", Path("/"), root)
    assert str(error.value) == (
        "model.package: 'toy' names 2 packages: train-a, train-b\n  -> give one of these names"
    )


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    root = bank(tmp_path, {"train-dino": {"network_arch": "dino"}, "train-reid": {}})
    with pytest.raises(PackageError) as error:
        load_package("train-dyno", Path("/"), root)
    assert str(error.value).startswith(
        f"model.package: no package is called 'train-dyno' in {root}\n"
        "  -> nearest names: train-dino"
    )


def test_a_name_without_a_bank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAO_SKILL_BANK_PATH", raising=False)
    with pytest.raises(PackageError) as error:
        load_package("dino", Path("/nowhere"))
    assert str(error.value) == (
        "model.package: 'dino' is no directory, and no skill bank is set to look the name up in\n"
        "  -> set TAO_SKILL_BANK_PATH to the skill bank, or give the package's directory"
    )


def test_a_misspelt_built_in_name_without_a_bank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAO_SKILL_BANK_PATH", raising=False)
    with pytest.raises(PackageError, match="-> did you mean 'digits_mlp'\\? Or set TAO_SKILL"):
        load_package("digits_mpl", Path("/nowhere"))


def test_a_bank_without_packages(tmp_path: Path) -> None:
    with pytest.raises(PackageError) as error:
        load_package("dino", Path("/"), tmp_path)
    assert str(error.value) == (
        f"TAO_SKILL_BANK_PATH: no model packages in {tmp_path}\n"
        "  -> point it at the skill bank (it holds skills/models) or at the models directory"
    )


def test_subcommands_come_from_the_command(toy: Toy) -> None:
    toy.info["actions"] |= {
        "retrain": {"command": "toy train -e {config_path}"},
        "script": {"command": "python run.py --run-config {config_path}"},
        "module": {"command": "python -m toy evaluate -e {config_path}"},
    }
    actions = load_package(str(toy.write()), Path("/")).actions
    found = {n: a.subcommand for n, a in actions.items() if n in ("retrain", "script", "module")}
    assert found == {"retrain": "train", "script": "script", "module": "evaluate"}


def test_packages_of_the_bank_load(shared_dir: Path) -> None:
    models = shared_dir / "tao-bank" / "skills" / "models"
    directories = sorted(models.iterdir())
    assert len(directories) == 8
    for directory in directories:
        package = load_package(str(directory), Path("/"))
        action = package.action("train")
        assert action.schema is not None
        assert action.template is not None
        info = yaml.safe_load((directory / "references" / "skill_info.yaml").read_text())
        assert set(package.actions) == set(info["actions"])
        declared = sum(len(a.get("inputs") or {}) for a in info["actions"].values())
        assert sum(len(a.inputs) for a in package.actions.values()) == declared
