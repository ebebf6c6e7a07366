"""From a package's schema and the user's wishes to a search space, on small packages."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tao_ray.config import DataConfig, ModelConfig, ObjectiveConfig, SearchConfig
from tao_ray.network.bounds import bounds_of
from tao_ray.network.draft import draft_from_schema
from tao_ray.network.keys import SpecError
from tao_ray.network.network import Network
from tao_ray.network.ranges import DerivedSpace, derive_space
from tao_ray.network.resolve import resolve_network
from tao_ray.network.schema import SchemaParameter
from tao_ray.network.tree import set_path
from tao_ray.space import Categorical, Float, Integer, Ordered

LR = {"type": "float", "default": 2e-4, "minimum": 0.0, "maximum": 1.0, "math_cond": "> 0.0"}
INF = math.inf


def network_of(
    directory: Path,
    leaves: dict[str, dict[str, Any]],
    *,
    template: dict[str, Any] | None = None,
    arch: str = "tiny",
    task: str | None = None,
) -> Network:
    """A real package on disk whose train schema holds `leaves`, all enabled unless they say so.

    template: dotted key -> value, besides the leaves' defaults.
    """
    root: dict[str, Any] = {"properties": {}, "default": {}}
    spec: dict[str, Any] = {"train": {"num_epochs": 20}}
    if task is not None:
        spec["task"] = task
        root["properties"]["task"] = {"type": "categorical", "enum": ["classify", "segment"]}
    for name, leaf in leaves.items():
        *blocks, last = name.split(".")
        node = root
        for block in blocks:
            node = node["properties"].setdefault(block, {"properties": {}})
        node["properties"][last] = {"automl_enabled": True, **leaf}
        if "default" in leaf and "[" not in name:
            set_path(spec, name, leaf["default"])
            set_path(root["default"], name, leaf["default"])
    for name, value in (template or {}).items():
        set_path(spec, name, value)
    info = {
        "network_arch": arch,
        "automl_enabled": True,
        "actions": {"train": {"command": "tiny train -e {config_path}", "config_format": "yaml"}},
    }
    for path, text in {
        "references/skill_info.yaml": yaml.safe_dump(info),
        "references/spec_template_train.yaml": yaml.safe_dump(spec),
        "schemas/train.schema.json": json.dumps(root),
    }.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return resolve_network(
        ModelConfig(package=str(directory)),
        DataConfig(),
        ObjectiveConfig(metric="val_acc", direction="maximize"),
        directory,
    )


def derive(directory: Path, leaves: dict[str, dict[str, Any]], **more: Any) -> DerivedSpace:
    return derive_space(network_of(directory, leaves, **more), SearchConfig())


def derive_user(
    directory: Path,
    leaves: dict[str, dict[str, Any]],
    parameters: dict[str, Any],
    allow_disabled: bool = False,
    **more: Any,
) -> DerivedSpace:
    search = SearchConfig(parameters=parameters, allow_disabled=allow_disabled)
    return derive_space(network_of(directory, leaves, **more), search)


def interval(derived: DerivedSpace, name: str) -> tuple[float, float, bool]:
    parameter = derived.space[name]
    assert isinstance(parameter, Float | Integer)
    return parameter.low, parameter.high, parameter.log


# --- default ranges ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "leaf", "expected"),
    [
        ("train.optim.lr", LR, (2e-6, 2e-2, True)),
        ("train.optim.lr_backbone", {**LR, "maximum": 1e-3}, (2e-6, 1e-3, True)),
        ("train.learning_rate", {**LR, "minimum": 1e-5, "maximum": INF}, (1e-5, 2e-2, True)),
        ("train.base_lr", {**LR, "default": 1.0, "maximum": INF}, (0.01, 2.0, True)),
        ("train.optim.weight_decay", {**LR, "default": 0.01}, (1e-4, 1.0, True)),
        ("train.weight_decay", {**LR, "default": 0.0, "math_cond": None}, (0.0, 0.1, False)),
        ("train.optim.lr_decay", {**LR, "default": 0.1}, (0.0, 1.0, False)),
        ("train.optim.momentum", {**LR, "default": 0.9}, (0.5, 0.98, False)),
        ("model.ema_decay", {**LR, "default": 0.9998}, (0.999, 0.99996, False)),
        ("train.wide", {**LR, "default": 3.0, "minimum": 0.01, "maximum": 100.0}, (0.3, 30, True)),
        ("train.margin", {"type": "float", "default": 2.0, "minimum": 1.0}, (1.0, 20.0, True)),
        ("model.layers", {"type": "int", "default": 6, "minimum": 1}, (3, 12, True)),
        ("model.depth", {"type": "int", "default": 4, "minimum": 1, "maximum": 8}, (1, 8, False)),
        ("model.dropout", {"type": "float", "default": 0.1, "minimum": 0.0, "maximum": 1.0},
         (0.0, 0.5, False)),
        ("model.dropout", {"type": "float", "default": 0.7, "minimum": 0.0, "maximum": 1.0},
         (0.0, 0.7, False)),
        ("model.hue", {**LR, "default": 0.0, "maximum": 0.5}, (0.0, 0.5, False)),
        ("train.optim.lr_step_size",
         {"type": "int", "default": 11, "minimum": 1, "maximum": 10000}, (6, 20, True)),
        ("model.width", {"type": "int", "default": 60, "minimum": 10, "maximum": 99,
                         "math_cond": "/ 8"}, (16, 96, False)),
    ],
)  # fmt: skip
def test_ranges_follow_the_name_the_bounds_and_the_default(
    tmp_path: Path, name: str, leaf: dict[str, Any], expected: tuple[float, float, bool]
) -> None:
    leaf = {k: v for k, v in leaf.items() if v is not None}
    derived = derive(tmp_path, {name: leaf})
    assert interval(derived, name) == pytest.approx(expected)
    assert derived.space.defaults() == {name: leaf["default"]}
    assert derived.origins[name]


def test_a_value_of_the_base_spec_is_the_anchor_not_the_schemas(tmp_path: Path) -> None:
    derived = derive(tmp_path, {"train.optim.lr": LR}, template={"train.optim.lr": 1e-3})
    assert derived.space.defaults() == {"train.optim.lr": 1e-3}
    assert interval(derived, "train.optim.lr") == (1e-5, 0.1, True)


def test_multiples_powers_and_enums_keep_their_shape(tmp_path: Path) -> None:
    derived = derive(
        tmp_path,
        {
            "model.crop": {
                "type": "int", "default": 64, "minimum": 8, "maximum": 128, "math_cond": "/ 8",
            },
            "model.rank": {
                "type": "int", "default": 12, "minimum": 1, "maximum": 100, "math_cond": "^ 2",
            },
            "model.channels": {"type": "ordered_int", "default": 3, "enum": [3, 1]},
            "train.schedule": {
                "type": "categorical", "default": "linear", "enum": ["linear", "cosine", "none"],
                "option_weights": [0.2, 0.8, 0.0],
            },
            "train.flag": {"type": "bool", "default": True},
        },
    )  # fmt: skip
    space = derived.space
    assert space["model.crop"] == Integer("model.crop", 8, 128, step=8, default=64)
    assert space["model.rank"] == Ordered("model.rank", (2, 4, 8, 12, 16, 32, 64), default=12)
    assert space["model.channels"] == Ordered("model.channels", (1, 3), default=3)
    assert space["train.schedule"] == Categorical(
        "train.schedule", ("linear", "cosine"), (0.2, 0.8), "linear"
    )
    assert space["train.flag"] == Categorical("train.flag", (False, True), default=True)


def test_what_does_not_change_learning_is_left_out_with_a_reason(tmp_path: Path) -> None:
    whole = {"type": "int", "default": 4, "minimum": 1, "maximum": 8}
    share = {"type": "float", "default": 0.5, "minimum": 0.0, "maximum": 1.0}
    derived = derive(
        tmp_path,
        {
            "train.optim.lr": LR,
            "dataset.workers": whole,
            "dataset.num_workers": whole,
            "train.seed": whole,
            "train.num_epochs": {**whole, "default": 8},
            "train.validation_interval": whole,
            "dataset.val_dataset.augmentation.flip": share,
            "dataset.augmentation.test_flip": share,
            "dataset.train_dataset.augmentation.flip": share,
            "train.optim.momentum": {**share, "default": 0.9},
            "model.fps": {"type": "int", "minimum": 1, "maximum": 3},
            "model.off": {"type": "float", "default": -1.0, "minimum": 0.0, "maximum": 1.0},
            "model.open": {"type": "float", "default": 0.0, "minimum": 0.0},
            "model.prompt": {"type": "categorical", "default": "x", "enum": ["a", "b"]},
        },
        template={"train.optim.optim": "AdamW"},
    )
    assert set(derived.space.names) == {
        "train.optim.lr", "dataset.train_dataset.augmentation.flip",
    }  # fmt: skip
    assert "has no momentum" in derived.left_out["train.optim.momentum"]
    assert "search.max_epochs" in derived.left_out["train.num_epochs"]
    assert "speed of loading" in derived.left_out["dataset.num_workers"]
    assert "not trained on" in derived.left_out["dataset.augmentation.test_flip"]
    assert {n for n, why in derived.left_out.items() if why.startswith("needs a range")} == {
        "model.fps", "model.off", "model.open", "model.prompt",
    }  # fmt: skip
    assert len(derived.left_out) == 12


def test_momentum_is_searched_where_the_optimizer_has_one(tmp_path: Path) -> None:
    leaves = {"train.optim.lr": LR, "train.optim.momentum": {**LR, "default": 0.9}}
    derived = derive(tmp_path, leaves, template={"train.optim.optim": "sgd"})
    assert derived.space.names == ("train.optim.lr", "train.optim.momentum")


def test_blocks_of_another_task_are_left_out(tmp_path: Path) -> None:
    leaves = {"train.optim.lr": LR, "model.classify.margin": LR, "model.segment.margin": LR}
    derived = derive(tmp_path, leaves, task="segment")
    assert derived.space.names == ("train.optim.lr", "model.segment.margin")
    assert "task classify" in derived.left_out["model.classify.margin"]


def test_lists_are_searched_by_element_steps_ascending(tmp_path: Path) -> None:
    derived = derive(
        tmp_path,
        {
            "train.optim.lr_steps": {"type": "list_2", "default": [8, 14]},
            "train.optim.betas": {"type": "list_2", "default": [0.9, 0.999]},
            "model.bounded": {
                "type": "list_2", "default": [1, 2], "minimum": [1, 1], "maximum": [4, 8],
            },
            "model.free": {"type": "list_2", "default": [1, 2]},
        },
    )  # fmt: skip
    assert interval(derived, "train.optim.betas[1]") == pytest.approx((0.995, 0.9998, False))
    assert interval(derived, "model.bounded[1]") == (1, 8, False)
    assert interval(derived, "train.optim.lr_steps[0]")[1] < 20
    assert "list" in derived.left_out["model.free"]
    rng = np.random.default_rng(0)
    steps = [derived.space.sample(rng) for _ in range(500)]
    assert all(c["train.optim.lr_steps[0]"] < c["train.optim.lr_steps[1]"] <= 20 for c in steps)
    assert derived.space.defaults()["train.optim.lr_steps[1]"] == 14


def test_steps_beyond_the_training_are_warned_of(tmp_path: Path) -> None:
    derived = derive(
        tmp_path, {"train.optim.lr": LR, "train.lr_steps": {"type": "list_2", "default": [40, 70]}}
    )
    assert derived.space.defaults()["train.lr_steps[0]"] == 40
    assert any("beyond the 20 epochs" in w for w in derived.warnings)


def test_only_loader_settings_left_is_warned_of(tmp_path: Path) -> None:
    derived = derive(
        tmp_path,
        {
            "dataset.batch_size": {"type": "int", "default": 8, "minimum": 1},
            "dataset.workers": {"type": "int", "default": 8, "minimum": 1},
        },
    )
    assert derived.space.names == ("dataset.batch_size",)
    assert "only how data is loaded" in derived.warnings[0]


def test_nothing_to_search_is_refused_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"name parameters.*\n.*dataset\.workers: it changes"):
        derive(tmp_path, {"dataset.workers": {"type": "int", "default": 8, "minimum": 1}})


def test_exclude_drops_names_and_knows_them(tmp_path: Path) -> None:
    leaves = {"train.optim.lr": LR, "model.size": {**LR, "default": 0.5}}
    network = network_of(tmp_path, leaves)
    derived = derive_space(network, SearchConfig(exclude=["model.size"]))
    assert derived.space.names == ("train.optim.lr",)
    assert derived.left_out == {"model.size": "search.exclude names it"}
    with pytest.raises(SpecError, match=r"model\.siez\n.* are train\.optim\.lr"):
        derive_space(network, SearchConfig(exclude=["model.siez"]))


# --- rules between parameters -----------------------------------------------------------------

CROP_MIN = {"type": "int", "default": 384, "minimum": 32, "maximum": 1024, "parent_param": "TRUE"}
CROP_MAX = {
    "type": "int", "default": 600, "minimum": 32, "maximum": 1000,
    "math_cond": "> depends_on", "depends_on": "aug.crop_min",
}  # fmt: skip
QUERIES = {"type": "int", "default": 300, "minimum": 1, "parent_param": "TRUE"}
SELECT = {
    "type": "int", "default": 300, "minimum": 1, "maximum": 1000, "depends_on": "model.num_queries",
}  # fmt: skip


def test_crop_and_select_rules_hold_in_every_draw(tmp_path: Path) -> None:
    derived = derive(
        tmp_path,
        {
            "aug.crop_min": CROP_MIN,
            "aug.crop_max": CROP_MAX,
            "model.num_queries": {**QUERIES, "minimum": 10},
            "model.num_select": SELECT,
        },
        template={"dataset.num_classes": 4},
    )
    # The largest minimum still leaves room for a maximum above it.
    assert interval(derived, "aug.crop_min") == (32, 999, False)
    rng = np.random.default_rng(0)
    for config in [derived.space.sample(rng) for _ in range(2000)]:
        assert config["aug.crop_max"] > config["aug.crop_min"]
        assert config["model.num_select"] <= config["model.num_queries"]
    bad = {**derived.space.defaults(), "model.num_queries": 160}
    assert derived.space.snap(bad)["model.num_select"] == 160


def test_one_class_leaves_one_query_less(tmp_path: Path) -> None:
    derived = derive(
        tmp_path,
        {"model.num_queries": QUERIES, "model.num_select": {**SELECT, "default": 100}},
        template={"dataset.num_classes": 1},
    )
    bad = {"model.num_queries": 160, "model.num_select": 300}
    assert derived.space.snap(bad)["model.num_select"] == 159


def test_a_parent_that_is_not_searched_limits_by_its_value_in_the_spec(tmp_path: Path) -> None:
    off = {"automl_enabled": False}
    derived = derive(
        tmp_path,
        {
            "aug.crop_min": {**CROP_MIN, **off},
            "aug.crop_max": CROP_MAX,
            "model.num_queries": {**QUERIES, **off},
            "model.num_select": SELECT,
        },
    )
    assert interval(derived, "aug.crop_max") == (385, 1000, False)
    assert interval(derived, "model.num_select") == (30, 300, True)
    assert "model.num_select <= model.num_queries" in derived.origins["model.num_select"]


def test_a_dependent_that_is_not_searched_limits_its_parent(tmp_path: Path) -> None:
    off = {"automl_enabled": False}
    derived = derive(
        tmp_path,
        {
            "aug.crop_min": CROP_MIN,
            "aug.crop_max": {**CROP_MAX, **off},
            "model.num_queries": QUERIES,
            "model.num_select": {**SELECT, **off, "default": 250},
        },
    )
    assert interval(derived, "aug.crop_min") == (32, 599, False)
    assert interval(derived, "model.num_queries") == (250, 600, True)


def test_half_of_the_epochs_means_of_those_trained(tmp_path: Path) -> None:
    leaves = {
        "train.num_epochs": {"type": "int", "default": 20, "parent_param": "TRUE"},
        "train.warmup": {
            "type": "int", "default": 1, "minimum": 0, "maximum": 40, "math_cond": "/ 2",
            "depends_on": "train.num_epochs",
        },
    }  # fmt: skip
    network = network_of(tmp_path, leaves)
    derived = derive_space(network, SearchConfig(max_epochs=30))
    assert interval(derived, "train.warmup") == (0, 15, False)


def test_a_rule_that_the_start_itself_breaks_is_named_not_enforced(tmp_path: Path) -> None:
    derived = derive(
        tmp_path,
        {"aug.crop_min": CROP_MIN, "aug.crop_max": CROP_MAX},
        template={"aug.crop_max": 300},
    )
    assert derived.space.defaults() == {"aug.crop_min": 384, "aug.crop_max": 300}
    assert any("is not enforced" in w for w in derived.warnings)


def test_batches_are_capped_by_the_data(tmp_path: Path) -> None:
    leaves = {
        "dataset.batch_size": {"type": "int", "default": 8, "minimum": 1},
        "train.optim.lr": LR,
    }
    network = network_of(tmp_path, leaves)
    capped = derive_space(network, SearchConfig(), batch_limit=12)
    assert interval(capped, "dataset.batch_size") == (4, 12, True)
    small = derive_space(network, SearchConfig(), batch_limit=6)
    assert small.space.defaults()["dataset.batch_size"] == 6
    assert any("trial 0 takes 6" in w for w in small.warnings)
    assert "dataset.batch_size" in derive_space(network, SearchConfig(), batch_limit=4).left_out


# --- the user's ranges ------------------------------------------------------------------------


def test_a_users_range_is_taken_as_it_is(tmp_path: Path) -> None:
    derived = derive_user(
        tmp_path,
        {
            "train.optim.lr": LR,
            "model.drop": {**LR, "default": 0.1},
            "model.size": {"type": "int", "default": 8, "minimum": 1, "maximum": 10000},
            "model.crop": {"type": "int", "default": 16, "minimum": 1, "math_cond": "/ 8"},
            "model.rank": {"type": "int", "default": 8, "minimum": 1, "math_cond": "^ 2"},
            "model.plain": LR,
        },
        {
            "train.optim.lr": {"min": 1e-5, "max": 1e-3},
            "model.drop": {"min": 0.0, "max": 0.5, "step": 0.1},
            "model.size": {"min": 4, "max": 1000},
            "model.crop": {"min": 10, "max": 50},
            "model.rank": {"min": 4, "max": 20},
            "model.plain": {"max": 0.5},
        },
    )
    assert interval(derived, "train.optim.lr") == (1e-5, 1e-3, True)
    assert "learning rate" in derived.origins["train.optim.lr"]
    assert derived.space["model.drop"] == Float(
        "model.drop", 0.0, 0.5, step=0.1, open_low=True, default=0.1
    )
    assert interval(derived, "model.size") == (4, 1000, True)
    assert "100x apart" in derived.origins["model.size"]
    assert derived.space["model.crop"] == Integer("model.crop", 16, 48, step=8, default=16)
    assert derived.space["model.rank"] == Ordered("model.rank", (4, 8, 16), default=8)
    assert derived.space["model.plain"].problem(0.0) is not None
    assert derived.warnings == ()


def test_options_keep_their_weights_and_numbers_their_order(tmp_path: Path) -> None:
    derived = derive_user(
        tmp_path,
        {
            "dataset.batch_size": {"type": "int", "default": 8, "minimum": 1},
            "model.channels": {"type": "ordered_int", "default": 3, "enum": [1, 3, 4]},
            "model.arch": {"type": "string", "default": "small"},
            "train.lr_steps": {"type": "list", "default": [40, 70]},
        },
        {
            "dataset.batch_size": {"options": [16, 8, 4], "weights": [1, 2, 0]},
            "model.channels": {"min": 2},
            "model.arch": {"options": ["small", "large"]},
            "train.lr_steps": {"options": [[40, 70], [20, 50]]},
        },
    )
    space = derived.space
    assert space["dataset.batch_size"] == Ordered("dataset.batch_size", (8, 16), (2, 1), 8)
    assert space["model.channels"] == Ordered("model.channels", (3, 4), default=3)
    assert space["model.arch"] == Categorical("model.arch", ("small", "large"))
    assert space.defaults()["train.lr_steps"] == [40, 70]


def test_a_default_outside_the_users_range_moves_the_start_and_says_so(tmp_path: Path) -> None:
    derived = derive_user(
        tmp_path,
        {"train.optim.lr": LR, "model.fps": {"type": "int", "minimum": 1, "maximum": 3}},
        {"train.optim.lr": {"min": 1e-6, "max": 1e-5}, "model.fps": {"min": 1, "max": 3}},
    )
    assert derived.space.defaults() == {"train.optim.lr": 1e-5, "model.fps": 2}
    assert derived.warnings == (
        "train.optim.lr: the default 0.0002 is outside the range, so trial 0 takes 1e-05",
        "model.fps: no default is known, so trial 0 takes 2",
    )


def test_an_element_of_a_list_can_be_searched(tmp_path: Path) -> None:
    derived = derive_user(
        tmp_path,
        {"train.lr_steps": {"type": "list", "default": [8, 14]}},
        {"train.lr_steps[0]": {"min": 2, "max": 16}, "train.lr_steps[1]": {"min": 4, "max": 19}},
    )
    assert derived.space.defaults() == {"train.lr_steps[0]": 8, "train.lr_steps[1]": 14}
    assert derived.space.constraints[0].text == "train.lr_steps[1] > train.lr_steps[0]"


def test_without_a_package_the_users_ranges_are_all_there_is(tmp_path: Path) -> None:
    model = ModelConfig(
        network="mine",
        command="mine train -e {config_path}",
        spec={"lr": 0.01, "depth": 3, "act": "relu", "train": {"num_epochs": 5}},
    )
    objective = ObjectiveConfig(metric="acc", direction="maximize")
    network = resolve_network(model, DataConfig(), objective, tmp_path)
    ranges: Any = {
        "lr": {"min": 1e-4, "max": 1},
        "depth": {"min": 1, "max": 6},
        "act": {"options": ["relu", "gelu"]},
    }
    derived = derive_space(network, SearchConfig(parameters=ranges))
    assert derived.space.defaults() == {"lr": 0.01, "depth": 3, "act": "relu"}
    assert [p.kind for p in derived.space.parameters] == ["float", "integer", "categorical"]
    assert derived.warnings == ()
    with pytest.raises(SpecError, match="name parameters with their ranges"):
        derive_space(network, SearchConfig())


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"train.optim.lr": {"min": 1e-6, "max": 5}},
     r"train\.optim\.lr: max is 5, but the schema takes > 0 and <= 1"),
    ({"train.optim.lr": {"options": [0.1, 2.0]}},
     r"train\.optim\.lr: 2\.0 is not allowed: the schema takes > 0 and <= 1"),
    ({"train.optim.rl": {"min": 1, "max": 2}}, r"train\.optim\.rl: no such spec key"),
    ({"train.optim": {"min": 1, "max": 2}}, r"train\.optim: is a block of the spec"),
    ({"train.frozen": {"min": 0.1, "max": 0.2}}, r"keeps it out.*search\.allow_disabled: true"),
    ({"train.num_epochs": {"min": 1, "max": 9}}, r"length of a training \(set search\.max_epochs"),
    ({"model.arch": {"min": 1, "max": 2}}, r"model\.arch: it is a string.*give options"),
    ({"model.arch": {}}, r"model\.arch: an empty range, and needs a range of your own"),
    ({"model.betas": {"min": 0.1, "max": 0.9}}, r"it is a list.*or ranges for its elements"),
    ({"model.betas": {"options": [0.9]}}, r"0\.9 is not a list"),
    ({"model.kind": {"options": ["a", "c"]}}, r"'c' is not one of the schema's \['a', 'b'\]"),
    ({"model.kind": {"min": 1, "max": 2}}, r"give options, a list out of \['a', 'b'\]"),
    ({"model.size": {"min": 1.5, "max": 3}}, r"whole numbers, not \[1\.5, 3\]"),
    ({"model.size": {"options": [1, 2.5]}}, r"2\.5 is not a whole number"),
    ({"model.flag": {"options": [0, 1]}}, r"0 is not true or false"),
    ({"model.crop": {"min": 9, "max": 15}}, r"fewer than two multiples of 8"),
    ({"model.crop": {"min": 8, "max": 80, "step": 12}}, r"step of 12 leaves the multiples of 8"),
    ({"model.rank": {"min": 9, "max": 15}}, r"no power of 2 is in it"),
    ({"model.fps": {"min": 1}}, r"there is no max, and the schema has none"),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "message"), ERRORS)
def test_a_range_that_cannot_be_searched_is_refused(
    tmp_path: Path, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        derive_user(tmp_path, _LEAVES, parameters)


_LEAVES: dict[str, dict[str, Any]] = {
    "train.optim.lr": LR,
    "train.frozen": {**LR, "automl_enabled": False},
    "model.arch": {"type": "string", "default": "small"},
    "model.betas": {"type": "list_2", "default": [0.9, 0.99]},
    "model.kind": {"type": "categorical", "default": "a", "enum": ["a", "b"]},
    "model.size": {"type": "int", "default": 8, "minimum": 1},
    "model.flag": {"type": "bool", "default": True},
    "model.crop": {"type": "int", "default": 16, "minimum": 1, "math_cond": "/ 8"},
    "model.rank": {"type": "int", "default": 8, "minimum": 1, "math_cond": "^ 2"},
    "model.fps": {"type": "int", "minimum": 1},
}


def test_all_errors_come_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        derive_user(
            tmp_path, _LEAVES, {"train.optim.lr": {"max": 5}, "model.kind": {"options": ["z"]}}
        )
    assert len(caught.value.problems) == 2
    assert caught.value.where == "search.parameters"


def test_a_disabled_parameter_can_be_allowed(tmp_path: Path) -> None:
    derived = derive_user(
        tmp_path, _LEAVES, {"train.frozen": {"min": 0.1, "max": 0.2}}, allow_disabled=True
    )
    assert derived.space.names == ("train.frozen",)


# --- any schema -------------------------------------------------------------------------------

_NAMES = (
    "train.lr", "train.weight_decay", "train.momentum", "model.drop_rate", "train.warmup_epochs",
    "dataset.batch_size", "train.label_smoothing", "model.layer_decay", "train.head_mult", "a.x",
)  # fmt: skip
_CONDITIONS = (None, "> 0.0", ">0", ">= 0", ">= 1", "> 0.0 <= 1.0", "!= 0", "/ 8", "^ 2")
_BOUND = st.none() | st.just(INF) | st.sampled_from([0, 0.0, 1, 1e-6, 0.5, 32, 1e4])


def _rounded(value: float) -> float:
    return round(value, 12)  # no schema has a default of 5e-324


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(_NAMES),
    kind=st.sampled_from(["int", "float"]),
    low=_BOUND | st.sampled_from([-2, -1.0]),
    high=_BOUND,
    condition=st.sampled_from(_CONDITIONS),
    default=st.none()
    | st.integers(-2, 2000)
    | st.floats(-1, 1e4).map(_rounded)
    | st.floats(0, 1).map(_rounded),
    epochs=st.none() | st.integers(1, 300),
    u=st.floats(0, 1),
)
def test_any_leaf_gives_a_sound_range_or_a_reason(
    name: str,
    kind: str,
    low: float | None,
    high: float | None,
    condition: str | None,
    default: Any,
    epochs: int | None,
    u: float,
) -> None:
    assume(low != INF and (kind == "int" or condition not in ("/ 8", "^ 2")))
    leaf = SchemaParameter(
        name, kind, default=default, minimum=low, maximum=high, math_cond=condition
    )
    found = draft_from_schema(leaf, default, epochs)
    if isinstance(found, str):
        assert found
        return
    parameter = found[0].build()
    assert parameter.default == default
    assert found[0].origin
    value = parameter.from_unit(u)
    assert type(value) is (int if kind == "int" else float)
    assert value == default or bounds_of(leaf).allows(value), (parameter, bounds_of(leaf))
    assert parameter.from_unit(parameter.to_unit(value)) == value
