"""A model package on disk: ``references/skill_info.yaml``, schemas and spec templates.

The package states what a network offers. What it does not state is in `conventions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tao_ray.network.schema import ActionSchema, PackageError, parse_schema
from tao_ray.network.tree import load_yaml

CONFIG_PATH = "{config_path}"
INFO = Path("references", "skill_info.yaml")


@dataclass(frozen=True)
class InputDecl:
    """A declared input: a spec key that takes a path.

    key: dotted, possibly indexed. type: file, folder, local_glob or list.
    container_path, extract_to_parent, selective: how the file is to be staged, as declared.
    """

    key: str
    type: str = "file"
    optional: bool = False
    container_path: str | None = None
    extract_to_parent: bool = False
    selective: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Action:
    """One action of a network.

    command: shell text that contains ``{config_path}``. config_format: yaml or toml.
    image: the action's own container image, if it has one.
    inputs: what it reads. outputs: spec key -> file or folder. data_rules: spec key -> rule of
    ``data_sources``. spec_params: spec key -> function name, constant or ``{link, ...}``.
    metric, metric_direction, metric_file: the objective, where the package states one.
    default_parameters: a default search set stated here instead of in the schema.
    """

    name: str
    command: str
    config_format: str = "yaml"
    image: str | None = None
    inputs: tuple[InputDecl, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    data_rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    spec_params: Mapping[str, Any] = field(default_factory=dict)
    metric: str | None = None
    metric_direction: str | None = None
    metric_file: str | None = None
    default_parameters: tuple[str, ...] = ()
    schema_path: Path | None = None
    template_path: Path | None = None

    @cached_property
    def schema(self) -> ActionSchema | None:
        """The action's schema, or None if the package has none. Read on first use.

        Raises:
            PackageError: it cannot be read.
        """
        if self.schema_path is None or not self.schema_path.is_file():
            return None
        return parse_schema(self.schema_path.read_text("utf-8"), str(self.schema_path))

    @cached_property
    def template(self) -> dict[str, Any] | None:
        """The starting spec, or None if the package has none. Read on first use.

        Raises:
            TaoRayError: it is not YAML, or not a mapping.
        """
        if self.template_path is None or not self.template_path.is_file():
            return None
        template = load_yaml(self.template_path.read_text("utf-8"), str(self.template_path))
        if not isinstance(template, dict):
            raise PackageError(
                "the spec template is not a mapping",
                where=str(self.template_path),
                remedy="a template holds the spec's blocks: model, dataset, train, ...",
            )
        return template

    @property
    def subcommand(self) -> str:
        """What the command asks of the network: ``ocrnet train -e {config_path}`` -> ``train``.

        The action's own name where the command is not of TAO's form.
        """
        match = re.search(r"(\w+)\s+-e\s+\{config_path\}", self.command)
        return match[1] if match else self.name


@dataclass(frozen=True)
class Backend:
    """One of several runtimes a package offers: its image and its own commands per action."""

    name: str
    image: str | None
    commands: Mapping[str, str]


@dataclass(frozen=True)
class ModelPackage:
    """A network as its package describes it.

    name: the directory's name, the only unique key (two packages may share a network_arch).
    shorthand: alias -> dotted key. key_defaults: dotted key -> value.
    backends, default_backends: runtimes by name, and action -> the default one.
    """

    directory: Path
    name: str
    network_arch: str
    aliases: tuple[str, ...]
    automl_enabled: bool
    actions: Mapping[str, Action]
    image: str | None = None
    data_format: str | None = None
    gpu_spec_key: str | None = None
    node_spec_key: str | None = None
    shorthand: Mapping[str, str] = field(default_factory=dict)
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    required_credentials: tuple[str, ...] = ()
    conditional_credentials: Mapping[str, str] = field(default_factory=dict)
    backends: Mapping[str, Backend] = field(default_factory=dict)
    default_backends: Mapping[str, str] = field(default_factory=dict)

    def action(self, name: str) -> Action:
        """The action `name`.

        Raises:
            PackageError: there is none, listing those there are.
        """
        if name not in self.actions:
            raise PackageError(
                f"{self.name} has no action {name!r}",
                where="model.action",
                remedy=f"its actions are {', '.join(self.actions)}",
            )
        return self.actions[name]


def read_package(directory: Path) -> ModelPackage:
    """Read ``references/skill_info.yaml`` below `directory`; schemas are read when asked for.

    Raises:
        PackageError: no such file, not YAML, or a mandatory entry is missing or malformed.
    """
    path = directory / INFO
    if not path.is_file():
        raise PackageError(
            f"not a model package: {INFO} is missing",
            where=str(directory),
            remedy="give the directory of one model of the skill bank, e.g. .../tao-train-dino",
        )
    info = _mapping(load_yaml(path.read_text("utf-8"), str(path)), "the file", path)
    for key, kind in (("network_arch", str), ("automl_enabled", bool), ("actions", dict)):
        if not isinstance(info.get(key), kind) or info[key] == {}:
            raise PackageError(
                f"{key!r} is {info.get(key)!r}" if key in info else f"{key!r} is missing",
                where=str(path),
                remedy=f"a package states {key!r} as {_KIND_TEXT[kind]}",
            )
    selection = info.get("backend_selection") or {}
    return ModelPackage(
        directory=directory,
        name=directory.name,
        network_arch=info["network_arch"],
        aliases=tuple(str(a) for a in info.get("aliases") or ()),
        automl_enabled=info["automl_enabled"],
        actions={n: _action(str(n), a, info, directory) for n, a in info["actions"].items()},
        image=info.get("container_image"),
        data_format=info.get("data_format"),
        gpu_spec_key=info.get("gpu_spec_key"),
        node_spec_key=info.get("node_spec_key"),
        shorthand=info.get("spec_shorthand_keys") or {},
        key_defaults=info.get("key_defaults") or {},
        required_credentials=tuple(info.get("required_credentials") or ()),
        conditional_credentials=info.get("conditional_credentials") or {},
        backends=_backends(info),
        default_backends=selection.get("defaults") or {},
    )


_KIND_TEXT = {str: "a name", bool: "true or false", dict: "a mapping that is not empty"}


def _action(name: str, entry: Any, info: Mapping[str, Any], directory: Path) -> Action:
    path = directory / INFO
    entry = _mapping(entry, f"actions.{name}", path)
    command = entry.get("command")
    if not isinstance(command, str) or CONFIG_PATH not in command:
        raise PackageError(
            f"actions.{name}.command is {command!r}",
            where=str(path),
            remedy=f"a command is shell text that contains {CONFIG_PATH}",
        )
    config_format = entry.get("config_format", "yaml")
    if config_format not in ("yaml", "toml"):
        raise PackageError(
            f"actions.{name}.config_format is {config_format!r}",
            where=str(path),
            remedy="specs are written as yaml or toml",
        )
    inputs = _mapping(entry.get("inputs") or {}, f"actions.{name}.inputs", path)
    outputs = _mapping(entry.get("outputs") or {}, f"actions.{name}.outputs", path)
    return Action(
        name=name,
        command=command,
        config_format=config_format,
        image=entry.get("container_image"),
        inputs=tuple(_input(k, v, f"actions.{name}.inputs.{k}", path) for k, v in inputs.items()),
        outputs={k: (v or {}).get("type", "file") for k, v in outputs.items()},
        data_rules=(info.get("data_sources") or {}).get(name) or {},
        spec_params=(info.get("spec_params") or {}).get(name) or {},
        metric=entry.get("metric"),
        metric_direction=entry.get("metric_direction"),
        metric_file=entry.get("metric_file"),
        default_parameters=tuple(entry.get("automl_default_parameters") or ()),
        schema_path=directory / "schemas" / f"{name}.schema.json",
        template_path=directory / "references" / f"spec_template_{name}.yaml",
    )


def _input(key: str, entry: Any, name: str, path: Path) -> InputDecl:
    entry = _mapping(entry or {}, name, path)
    return InputDecl(
        key=key,
        type=entry.get("type", "file"),
        optional=bool(entry.get("optional")),
        container_path=entry.get("container_path"),
        extract_to_parent=bool(entry.get("extract_to_parent")),
        selective=entry.get("selective"),
    )


def _backends(info: Mapping[str, Any]) -> dict[str, Backend]:
    commands = (info.get("workflow_contract") or {}).get("backend_action_commands") or {}
    return {
        name: Backend(
            name=name,
            image=contract.get("container_image"),
            commands={
                action: text
                for action, text in (commands.get(name) or {}).items()
                if CONFIG_PATH in text
            },
        )
        for name, contract in (info.get("backend_contracts") or {}).items()
    }


def _mapping(value: Any, name: str, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PackageError(
            f"{name} is {value!r}, not a mapping", where=str(path), remedy="fix the package"
        )
    return value
