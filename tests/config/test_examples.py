"""The files in configs/ load, and those of the built-in network come to a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_ray.config import load_config
from tao_ray.experiment.plan import make_plan

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FILES = sorted(CONFIGS.rglob("*.yaml"))
BUILT_IN = [path for path in FILES if "package: digits_mlp" in path.read_text(encoding="utf-8")]
ENVIRONMENT = {"CHECKPOINT": "/models/model.pth", "TEACHER": "/models/teacher.pth"}


def ident(path: Path) -> str:
    return str(path.relative_to(CONFIGS))


def test_both_kinds_are_there() -> None:
    assert len(BUILT_IN) >= 16
    assert len(FILES) > len(BUILT_IN)


@pytest.mark.parametrize("path", FILES, ids=ident)
def test_every_configuration_is_valid(path: Path) -> None:
    assert load_config(path, env=ENVIRONMENT).name


@pytest.mark.parametrize("path", BUILT_IN, ids=ident)
def test_every_configuration_of_the_built_in_network_comes_to_a_plan(path: Path) -> None:
    plan = make_plan(load_config(path, env=ENVIRONMENT))
    assert plan.algorithm().why
    assert plan.network.name == "digits_mlp"
