"""Malformed packages and specs: the whole text a user sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toy_package import COMMAND, Toy

from tao_ray.errors import TaoRayError

INFO_FILE = "{dir}/references/skill_info.yaml"
SCHEMA_FILE = "{dir}/schemas/train.schema.json"
TEMPLATE_FILE = "{dir}/references/spec_template_train.yaml"


def setting(*path: str, value: Any) -> Callable[[Toy], None]:
    def change(toy: Toy) -> None:
        node: Any = toy.info
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return change


def without(*path: str) -> Callable[[Toy], None]:
    def change(toy: Toy) -> None:
        node: Any = toy.info
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]

    return change


def schema(content: Any) -> Callable[[Toy], None]:
    return lambda toy: toy.schemas.update(train=content)


def no_schema(toy: Toy) -> None:
    toy.schemas.clear()


def leaf_with(**entry: Any) -> Callable[[Toy], None]:
    def change(toy: Toy) -> None:
        leaf = toy.schemas["train"]["properties"]["train"]["properties"]["optim"]["properties"][
            "lr"
        ]
        leaf.update(entry)

    return change


def template(content: Any) -> Callable[[Toy], None]:
    return lambda toy: toy.templates.update(train=content)


def clip_without_template(toy: Toy) -> None:
    toy.info["network_arch"] = "clip"
    del toy.templates["train"]


def broken_info(toy: Toy) -> None:
    toy.info = "network_arch: [toy\n"  # type: ignore[assignment]


def no_place_for_weights(toy: Toy) -> None:
    for section in (toy.info["spec_params"]["train"], toy.train["inputs"]):
        del section["train.pretrained_model_path"]
    del toy.templates["train"]["train"]["pretrained_model_path"]


def rule(**entry: Any) -> Callable[[Toy], None]:
    return setting("data_sources", "train", "dataset.train_dir", value=entry)


def backend(toy: Toy) -> None:
    toy.info["backend_contracts"] = {"fast": {"container_image": "x:1"}, "safe": {}}
    toy.info["backend_selection"] = {"defaults": {"train": "safe"}}


CANNOT = "the spec for train of toy-package cannot be built:\n  "

CASES: dict[str, tuple[Callable[[Toy], None] | None, dict[str, Any], str]] = {
    "skill_info is not YAML": (
        broken_info,
        {},
        INFO_FILE + ":2:1: not readable as YAML: did not find expected ',' or ']'\n"
        "  -> fix the file",
    ),
    "network_arch is missing": (
        without("network_arch"),
        {},
        INFO_FILE + ": 'network_arch' is missing\n  -> a package states 'network_arch' as a name",
    ),
    "automl_enabled is no boolean": (
        setting("automl_enabled", value="perhaps"),
        {},
        INFO_FILE + ": 'automl_enabled' is 'perhaps'\n"
        "  -> a package states 'automl_enabled' as true or false",
    ),
    "no actions": (
        setting("actions", value={}),
        {},
        INFO_FILE + ": 'actions' is {}\n"
        "  -> a package states 'actions' as a mapping that is not empty",
    ),
    "an action is no mapping": (
        setting("actions", "train", value="toy train"),
        {},
        INFO_FILE + ": actions.train is 'toy train', not a mapping\n  -> fix the package",
    ),
    "the command has no place for the spec": (
        setting("actions", "train", "command", value="toy train"),
        {},
        INFO_FILE + ": actions.train.command is 'toy train'\n"
        "  -> a command is shell text that contains {config_path}",
    ),
    "the config format is unknown": (
        setting("actions", "train", "config_format", value="ini"),
        {},
        INFO_FILE + ": actions.train.config_format is 'ini'\n"
        "  -> specs are written as yaml or toml",
    ),
    "inputs are no mapping": (
        setting("actions", "train", "inputs", value=["dataset.train_dir"]),
        {},
        INFO_FILE + ": actions.train.inputs is ['dataset.train_dir'], not a mapping\n"
        "  -> fix the package",
    ),
    "automl_enabled is false": (
        setting("automl_enabled", value=False),
        {},
        "{dir}: toy-package is not meant for automatic search: automl_enabled is false\n"
        "  -> describe the network without a package (model.network, command, spec and"
        " search.parameters) to search it all the same",
    ),
    "the action is unknown": (
        None,
        {"action": "tune"},
        "model.action: toy-package has no action 'tune'\n  -> its actions are evaluate, train",
    ),
    "the schema is missing": (
        no_schema,
        {},
        SCHEMA_FILE + ": the schema of action 'train' is missing, so no search space can be"
        " derived\n  -> choose an action with a schema, or describe the network without a package"
        " (model.network, command, spec and search.parameters)",
    ),
    "the schema is cut off": (
        schema('{"properties": {\n  "lr": {"type": '),
        {},
        SCHEMA_FILE + ":2:18: not readable as JSON: Expecting value\n"
        "  -> fix the schema or generate it anew; without it no search space can be derived",
    ),
    "the schema is another document": (
        schema({"openapi": "3.0"}),
        {},
        SCHEMA_FILE + ": not the schema of an action: it has no mapping 'properties'\n"
        "  -> use a schema as TAO generates it",
    ),
    "a condition is not understood": (
        leaf_with(math_cond="about 3"),
        {},
        SCHEMA_FILE + ": train.optim.lr: the condition 'about 3' is not understood\n"
        "  -> a condition is a list of > >= < <= != / ^, each with a number or 'depends_on'",
    ),
    "weights do not match the options": (
        leaf_with(enum=[1, 2], option_weights=[1.0]),
        {},
        SCHEMA_FILE + ": train.optim.lr: option_weights has 1 entries for 2 options\n"
        "  -> give one weight per option of 'enum'",
    ),
    "the template is missing where the network needs one": (
        clip_without_template,
        {},
        TEMPLATE_FILE + ": the spec template of action 'train' is missing, and toy-package cannot"
        " be run from its schema's defaults alone\n"
        "  -> restore the template, or give the base spec as model.spec",
    ),
    "the template is not YAML": (
        template("a: 'b\n"),
        {},
        TEMPLATE_FILE + ":2:1: not readable as YAML: found unexpected end of stream\n"
        "  -> fix the file",
    ),
    "the template is no mapping": (
        template("just text"),
        {},
        TEMPLATE_FILE + ": the spec template is not a mapping\n"
        "  -> a template holds the spec's blocks: model, dataset, train, ...",
    ),
    "required inputs have no value, all at once": (
        None,
        {"data": {}},
        CANNOT + "dataset.train_dir: is required and has no value;"
        " set data.train or data: {dataset.train_dir: ...}\n"
        "  dataset.val_dir: is required and has no value;"
        " set data.eval or data: {dataset.val_dir: ...}",
    ),
    "the template leaves a value open": (
        lambda toy: toy.templates["train"]["model"].update(width="???"),
        {},
        CANNOT + "model.width: is ??? in the template; set data: {model.width: ...}",
    ),
    "an override is a typing error": (
        None,
        {"overrides": {"train.optim.lrr": 1, "learning_rate": 1, "model.depth": {"x": 2}}},
        CANNOT + "model.overrides: train.optim.lrr: no such spec key;"
        " did you mean train.optim.lr?\n"
        "  model.overrides: learning_rate: no such spec key; did you mean train.optim.lr?\n"
        "  model.overrides: model.depth.x: no such spec key; did you mean model.width?",
    ),
    "an override sets a block": (
        None,
        {"overrides": {"train.optim": "adamw"}},
        CANNOT + "model.overrides: train.optim: is a block of the spec, not a value;"
        " set the keys in it",
    ),
    "an exact data key is unknown": (
        None,
        {"data": {"train": "s3://b", "eval": "s3://b", "dataset.train_dri": "s3://c"}},
        CANNOT + "data: dataset.train_dri: no such spec key; did you mean dataset.train_dir?",
    ),
    "an override skips list elements": (
        None,
        {"overrides": {"train.weights[7]": 1.0}},
        "'train.weights[7]' cannot be set: 'train.weights' has 2 elements\n"
        "  -> give the whole list",
    ),
    "two data sets where one is taken": (
        None,
        {"data": {"train": ["s3://a", "s3://b"], "eval": "s3://v"}},
        CANNOT + "dataset.train_dir: takes one data set, but data.train has 2; give one, or set"
        " data: {dataset.train_dir: ...}",
    ),
    "a placeholder is not filled": (
        rule(source="train_datasets", path="{train_dataset_annotation}"),
        {},
        CANNOT + "dataset.train_dir: the package's path is '{train_dataset_annotation}';"
        " set data.annotations: {train_dataset_annotation: ...}",
    ),
    "the data's format has no path": (
        rule(source="train_datasets", path_from_format={"kitti": "a", "voc": "b"}),
        {},
        CANNOT + "dataset.train_dir: the package has no path for data.format 'coco'; it knows"
        " kitti, voc",
    ),
    "a rule names an unknown source": (
        rule(source="moon_dataset", path="x"),
        {"data": {"eval": "s3://v"}},
        CANNOT + "dataset.train_dir: the package takes it from 'moon_dataset', which is no known"
        " source; set data: {dataset.train_dir: ...}",
    ),
    "data the package has no rule for": (
        None,
        {"data": {"train": "s3://a", "eval": "s3://v", "calibration": "s3://c"}},
        CANNOT + "data.calibration: the package has no rule that takes it; leave it out",
    ),
    "weights the action has no key for": (
        setting("spec_params", "train", value={"results_dir": "output_dir"}),
        {"checkpoint": "/w.pth", "teacher": "/t.pth"},
        CANNOT + "model.teacher: train takes no teacher",
    ),
    "weights that the action has no place for": (
        no_place_for_weights,
        {"checkpoint": "/w.pth"},
        CANNOT + "model.checkpoint: train states no single spec key for it; set the key that takes"
        " it in model.overrides",
    ),
    "a backend the package has not": (
        backend,
        {"backend": "slow"},
        "model.backend: toy-package has no backend 'slow'\n  -> its backends: fast, safe",
    ),
    "a backend without a command for the action": (
        backend,
        {"backend": "fast"},
        "model.backend: toy-package states no command for action 'train' on backend 'fast'\n"
        "  -> use its backend 'safe', or describe the network without a package",
    ),
    "no objective is known": (
        setting("actions", "train", value={"command": COMMAND}),
        {},
        "objective.metric: no objective is known for train of toy-package\n"
        "  -> set objective: {metric: ..., direction: minimize or maximize} to a metric that the"
        " action reports",
    ),
    "values of another type than the key's": (
        None,
        {"overrides": {"dataset.batch_size": "16", "train.optim.lr": True, "train.num_epochs": 5}},
        CANNOT + "model.overrides: dataset.batch_size: must be a whole number (int in the schema), "
        "not '16'\n  model.overrides: train.optim.lr: must be a number (float in the schema), "
        "not True",
    ),
    "the base spec does not exist": (
        None,
        {"spec": "/nowhere/spec.yaml"},
        "model.spec: no such file: /nowhere/spec.yaml",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refusal(toy: Toy, name: str) -> None:
    change, options, text = CASES[name]
    if change is not None:
        change(toy)
    with pytest.raises(TaoRayError) as error:
        toy.resolve(**options)
    assert str(error.value) == text.replace("{dir}", str(toy.directory))
    assert error.value.exit_code == 2
