"""docs/algorithms.md and configs/algorithms: there for every algorithm, and true."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tao_ray.search import algorithms, options_model, parse_options

REPO = Path(__file__).resolve().parents[2]
PAGE = (REPO / "docs" / "algorithms.md").read_text(encoding="utf-8")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_docs", REPO / "scripts" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_knobs_are_up_to_date() -> None:
    assert generator().with_knobs(PAGE) == PAGE, "run scripts/gen_docs.py"


def test_a_knob_that_changes_is_noticed() -> None:
    stale = PAGE.replace("| `sobol` |", "| `sobolev` |")
    assert stale != PAGE
    assert generator().with_knobs(stale) == PAGE


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_is_described_with_its_knobs(name: str) -> None:
    [section] = re.findall(rf"^## `{name}`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert f"<!-- knobs: {name} -->" in section
    for knob, field in options_model(name).model_fields.items():
        assert f"| `{knob}` |" in section
        assert field.description


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_has_a_configuration(name: str) -> None:
    text = (REPO / "configs" / "algorithms" / f"{name}.yaml").read_text(encoding="utf-8")
    search = yaml.safe_load(text)["search"]
    assert search["algorithm"] == name
    parse_options(name, search.get("options", {}))
