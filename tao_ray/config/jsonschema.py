"""The JSON Schema of a configuration, for editors."""

from __future__ import annotations

from typing import Any

from tao_ray.config.run import RunConfig

_REFERENCE = {"type": "string", "pattern": r"\$\{env:"}


def json_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12. What it accepts may still break a rule between keys."""
    schema = _with_references(RunConfig.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "tao_ray configuration",
    }


def _with_references(node: Any) -> Any:
    """`node`, where every restricted scalar may also be a reference to the environment."""
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    scalar = node.get("type") in ("integer", "number", "boolean")
    if not scalar and not (node.get("type") == "string" and {"enum", "pattern"} & node.keys()):
        return {key: _with_references(value) for key, value in node.items()}
    notes = {key: node[key] for key in ("title", "description", "default") if key in node}
    restriction = {key: value for key, value in node.items() if key not in notes}
    return {**notes, "anyOf": [restriction, _REFERENCE]}
