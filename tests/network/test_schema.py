from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tao_ray.network import PackageError, parse_math_cond, parse_schema

FORMS = {
    "> 0.0": [(">", 0.0)],
    "> 0": [(">", 0)],
    ">0": [(">", 0)],
    ">= 0.0": [(">=", 0.0)],
    ">= 1": [(">=", 1)],
    ">= 0": [(">=", 0)],
    ">=0": [(">=", 0)],
    "> 0.0 <= 1.0": [(">", 0.0), ("<=", 1.0)],
    "!= 0": [("!=", 0)],
    "> depends_on": [(">", "depends_on")],
    "/ 8": [("/", 8)],
    "/ 2": [("/", 2)],
    "^ 2": [("^", 2)],
}


@pytest.mark.parametrize(("text", "clauses"), FORMS.items())
def test_every_condition_of_the_dialect_with_and_without_spaces(
    text: str, clauses: list[tuple[str, Any]]
) -> None:
    assert parse_math_cond(text) == clauses
    assert parse_math_cond(text.replace(" ", "")) == clauses
    assert parse_math_cond(f"  {text} ") == clauses


@pytest.mark.parametrize("text", ["", "0", "> ", "> 0 and more", "~ 3", "> lr"])
def test_other_conditions_are_refused(text: str) -> None:
    with pytest.raises(PackageError, match="is not understood"):
        parse_math_cond(text)


def parsed(properties: dict[str, Any], **root: Any) -> Any:
    return parse_schema(json.dumps({"properties": properties, **root}), "toy.schema.json")


def test_bare_infinity_and_integer_operands_survive() -> None:
    schema = parse_schema(
        '{"properties": {"lr": {"type": "float", "minimum": 0, "maximum": Infinity}}}', "x"
    )
    assert schema.parameters["lr"].maximum == math.inf


def test_type_names_become_taos_own() -> None:
    kinds = {"integer": "int", "number": "float", "boolean": "bool", "ordered_int": "ordered_int"}
    schema = parsed({name: {"type": name} for name in kinds})
    assert {n: p.type for n, p in schema.parameters.items()} == kinds


def test_nested_collections_give_dotted_names_and_indexed_names_stay() -> None:
    schema = parsed(
        {
            "train": {
                "type": "collection",
                "properties": {
                    "automl_disabled_parameters": ["classify"],
                    "classify": {
                        "type": "collection",
                        "properties": {"cls_weight[1]": {"type": "float"}},
                    },
                    "backend_kwargs": {"type": "collection", "default": {}},
                },
            },
            "automl_disabled_parameters": ["train"],
        }
    )
    assert list(schema.parameters) == ["train.classify.cls_weight[1]", "train.backend_kwargs"]
    assert schema.parameters["train.backend_kwargs"].type == "collection"


def test_the_first_branch_that_is_not_null_counts() -> None:
    branches = [{"type": "null"}, {"type": "number", "minimum": 1}, {"type": "array"}]
    parameter = parsed({"lr": {"anyOf": branches, "default": 2}}).parameters["lr"]
    assert (parameter.type, parameter.minimum, parameter.default) == ("float", 1, 2)


def test_a_leaf_without_a_type_is_kept_but_says_so() -> None:
    assert parsed({"odd": {"default": 1}}).parameters["odd"].type == "any"


def test_dependencies_bounds_weights_and_flags() -> None:
    schema = parsed(
        {
            "sigma": {"type": "list_2", "minimum": [0, 1], "maximum": [2, 3], "popular": True},
            "blur": {"type": "int", "depends_on": "a, b", "exclusiveMinimum": 3},
            "a": {"type": "int", "parent_param": "TRUE", "automl_enabled": True},
            "mode": {"type": "categorical", "enum": ["x", "y"], "option_weights": [0.2, 0.8]},
        }
    )
    blur, mode = schema.parameters["blur"], schema.parameters["mode"]
    assert blur.parents == ("a", "b")
    assert blur.exclusive_minimum == 3
    assert (mode.enum, mode.option_weights) == (("x", "y"), (0.2, 0.8))
    assert schema.parameters["sigma"].minimum == (0, 1)
    assert schema.parameters["sigma"].popular
    assert schema.parameters["a"].parent_param
    assert schema.parameters["a"].automl_enabled


def test_a_leafs_own_flag_beats_the_root_list() -> None:
    schema = parsed(
        {
            "train": {
                "type": "collection",
                "properties": {
                    "lr": {"type": "float", "automl_enabled": True},
                    "seed": {"type": "int", "automl_enabled": False},
                    "clip": {"type": "float"},
                    "warmup": {"type": "int"},
                },
            }
        },
        automl_disabled_parameters=["train", "train.lr", "train.warmup"],
    )
    disabled = {n: schema.is_disabled(n) for n in schema.parameters}
    assert disabled == {
        "train.lr": False,
        "train.seed": True,
        "train.clip": False,
        "train.warmup": True,
    }


def test_every_schema_of_the_bank_parses(shared_dir: Any) -> None:
    paths = sorted(shared_dir.glob("tao-bank/skills/models/*/schemas/*.schema.json"))
    read = 0
    for path in paths:
        if path.name.startswith(("cosmos-job-metadata", "train_request")):
            continue  # not of actions
        schema = parse_schema(path.read_text("utf-8"), str(path))
        read += 1
        assert schema.parameters, path
        for parameter in schema.parameters.values():
            assert isinstance(parameter.type, str)
            assert all(parent in schema.parameters for parent in parameter.parents)
    assert read >= 40
