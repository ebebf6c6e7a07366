"""The resolved dump, and how two of them differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from tao_ray.config import ParameterRange, RunConfig, config_differences, load_config

Load = Callable[..., RunConfig]

FULL = """\
name: full
model:
  package: p
  overrides: {train.lr: 1e-6, train.classes: {0: cat}, train.none: null}
  key: ${env:TAO_KEY}
data:
  train: [a, s3://b]
  dataset.x.dir: c
objective: {metric: loss, direction: minimize}
search:
  algorithm: asha
  trials: ${env:TRIALS}
  parameters:
    train.lr: {min: 1e-6, max: 1e-3, scale: log}
    train.kind: {options: [sgd, null, 3, on], weights: [1, 1, 2, 0]}
platform:
  kind: local
  env:
    THREADS: 4
    HF_TOKEN: ${env:MY_TOKEN:-}
    API_KEY: s3cret
    USER_ID: ${env:WHO}
results: out
"""
ENV = {"TAO_KEY": "s3cret", "TRIALS": "12", "MY_TOKEN": "s3cret", "WHO": "me", "API_KEY": "s3cret"}


def test_a_dump_reads_back_as_the_same_configuration(load: Load, tmp_path: Path) -> None:
    config = load(FULL, env=ENV)
    text = yaml.safe_dump(config.dump(), sort_keys=False)
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "experiment.yaml"
    copy.write_text(text)
    again = load_config(copy, env=ENV)
    assert again.dump() == config.dump()
    assert again.model_dump() == config.model_dump()
    assert again.model.key is not None
    assert again.model.key.get_secret_value() == "s3cret"


def test_a_dump_is_resolved_and_holds_no_secret(load: Load, tmp_path: Path) -> None:
    dump = load(FULL, env=ENV).dump()
    assert "s3cret" not in repr(dump)
    assert dump["model"]["key"] == "${env:TAO_KEY}"
    assert dump["platform"]["env"] == {
        "THREADS": "4",
        "HF_TOKEN": "${env:MY_TOKEN:-}",
        "API_KEY": "${env:API_KEY}",
        "USER_ID": "me",
    }
    assert dump["search"]["trials"] == 12
    assert dump["search"]["seed"] == 0
    assert dump["results"] == str(tmp_path / "out")
    assert dump["data"]["dataset.x.dir"] == str(tmp_path / "c")


def test_a_key_that_is_written_out_is_not_dumped(load: Load) -> None:
    config = load("name: a\nmodel: {package: p, key: s3cret}\n")
    assert "key" not in config.dump()["model"]
    assert "s3cret" not in repr(config)


def test_a_package_that_is_a_directory_is_dumped_as_its_path(load: Load, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    text = "name: a\nmodel: {package: %s}\n"
    assert load(text % "here").dump()["model"]["package"] == str(tmp_path / "here")
    assert load(text % "dino").dump()["model"]["package"] == "dino"


def test_differences(load: Load) -> None:
    before = load(FULL, env=ENV).dump()
    assert config_differences(before, before) == []
    changed = ["search.trials=30", "search.max_epochs=5", "search.parameters.train.lr.max=1"]
    now = load(FULL, ["model.key=${env:API_KEY}", *changed], ENV).dump()
    assert sorted(config_differences(before, now)) == [
        "model.key: '${env:TAO_KEY}' -> '${env:API_KEY}'",
        "search.max_epochs: (not set) -> 5",
        "search.parameters.train.lr.max: 0.001 -> 1",
        "search.trials: 12 -> 30",
    ]
    assert config_differences({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}) == ["a.b: [1] -> [1, 2]"]
    assert config_differences({"a": 1}, {"a": True}) == ["a: 1 -> True"]
    assert config_differences({"a": 1}, {}) == ["a: 1 -> (not set)"]
    assert config_differences({"a": 1, "b": {}}, {"a": 1.0}) == []


def test_a_configuration_cannot_be_changed(minimal: Load) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        minimal().search.trials = 3


def test_models_built_in_code_obey_the_same_rules() -> None:
    with pytest.raises(ValidationError, match="max: must be above min, which is 2"):
        ParameterRange(min=2, max=1)
