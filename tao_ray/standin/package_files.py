"""Writes the schemas and spec templates of the model package: ``python -m …package_files``.

Run it after a change of `config.FIELDS`; a test compares the files with what it would write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tao_ray.standin import PACKAGE
from tao_ray.standin.config import FIELDS, REQUIRED, Field, nested


def files() -> dict[str, str]:
    """Path in the package -> content."""
    content: dict[str, str] = {}
    for action, required in REQUIRED.items():
        schema = json.dumps(_schema(action), indent=2)
        content[f"schemas/{action}.schema.json"] = schema + "\n"
        spec = {name: field.default for name, field in FIELDS.items()}
        if required:
            spec[required] = "???"
        template = yaml.safe_dump(nested(spec), sort_keys=False)
        content[f"references/spec_template_{action}.yaml"] = template
    return content


def _schema(action: str) -> dict[str, Any]:
    tree = nested({name: _node(name, field) for name, field in FIELDS.items()})
    return {
        "type": "object",
        "x_tao_schema": {
            "action": action,
            "network_arch": "digits_mlp",
            "schema_version": 1,
        },
        "automl_default_parameters": [n for n, field in FIELDS.items() if field.enabled],
        "automl_disabled_parameters": [
            *_collections(tree, ""),
            *(n for n, field in FIELDS.items() if field.enabled is False),
        ],
        "popular": nested({n: field.default for n, field in FIELDS.items() if field.popular}),
        "default": nested({n: field.default for n, field in FIELDS.items()}),
        "properties": _properties(tree),
    }


def _node(name: str, field: Field) -> dict[str, Any]:
    node: dict[str, Any] = {
        "type": field.type,
        "title": name.rsplit(".", 1)[-1].replace("_", " "),
        "description": field.description,
        "default": field.default,
    }
    optional = {
        "minimum": field.minimum,
        "maximum": field.maximum,
        "enum": None if field.enum is None else list(field.enum),
        "math_cond": field.math_cond,
        "depends_on": field.depends_on,
        "parent_param": "TRUE" if field.parent else None,
        "automl_enabled": field.enabled,
        "popular": field.popular or None,
    }
    return node | {key: value for key, value in optional.items() if value is not None}


def _is_leaf(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("type"), str)


def _properties(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: node
        if _is_leaf(node)
        else {"type": "collection", "automl_enabled": False, "properties": _properties(node)}
        for key, node in tree.items()
    }


def _collections(tree: Mapping[str, Any], prefix: str) -> list[str]:
    names = []
    for key, node in tree.items():
        if not _is_leaf(node):
            names += [prefix + key, *_collections(node, f"{prefix}{key}.")]
    return names


def write(directory: Path = PACKAGE) -> None:
    """Write the generated files below `directory`."""
    for name, text in files().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    write()
