"""One action's schema in TAO's dialect, as flat parameters.

The dialect is close to JSON Schema but not it: bare ``Infinity`` as a bound, type names of its
own, lists among the members of ``properties``, conditions as short strings (``math_cond``),
dependencies by name (``depends_on``). Loading is lenient where real packages are irregular and
strict where a guess would be needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tao_ray.errors import TaoRayError

_TAO_NAME = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "collection",
}

DEPENDS_ON = "depends_on"
_CLAUSE = re.compile(r"\s*(>=|<=|!=|>|<|/|\^)\s*(depends_on|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*")


class PackageError(TaoRayError):
    """A model package that cannot be used as it is."""


@dataclass(frozen=True)
class SchemaParameter:
    """One leaf of an action's schema.

    name: dotted path in the spec; ``[i]`` indexes a list (``train.classify.cls_weight[1]``).
    type: TAO's word: int, float, bool, string, categorical, ordered_int, list, list_2, list_3,
        list_1_backbone, subset_list, optional_list, collection (an open mapping) or any
        (the schema states none).
    minimum, maximum: a number (``inf`` is a stated absence of a bound), a tuple with one bound
        per element for list types, or None when absent.
    math_cond: the condition as written; see `parse_math_cond`.
    depends_on: the parent's name, or two as ``"a,b"``; see `parents`.
    parent_param: dependants refer to this value.
    automl_enabled: the package offers it for search. automl_disabled: the package forbids it
        explicitly. A leaf that says neither may be searched on request.
    """

    name: str
    type: str
    default: Any = None
    minimum: Any = None
    maximum: Any = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    enum: tuple[Any, ...] | None = None
    option_weights: tuple[float, ...] | None = None
    math_cond: str | None = None
    depends_on: str | None = None
    parent_param: bool = False
    automl_enabled: bool = False
    automl_disabled: bool = False
    popular: bool = False
    title: str = ""
    description: str = ""

    @property
    def parents(self) -> tuple[str, ...]:
        """The names in `depends_on`, in order."""
        return tuple(p.strip() for p in (self.depends_on or "").split(",") if p.strip())


@dataclass(frozen=True)
class ActionSchema:
    """All leaves of one action, in the schema's order, and what its root states.

    default: the schema's own complete default spec (nested); {} when it has none.
    default_parameters, disabled_parameters: the root lists ``automl_default_parameters`` and
        ``automl_disabled_parameters``. The second mixes containers and leaves; a leaf's own flag
        takes precedence, see `is_disabled`.
    """

    parameters: Mapping[str, SchemaParameter]
    default: dict[str, Any]
    default_parameters: tuple[str, ...] = ()
    disabled_parameters: tuple[str, ...] = ()

    def is_disabled(self, name: str) -> bool:
        """Whether the package forbids searching the leaf `name`."""
        parameter = self.parameters.get(name)
        if parameter is not None and parameter.automl_enabled:
            return False
        flagged = parameter is not None and parameter.automl_disabled
        return flagged or name in self.disabled_parameters


def parse_schema(text: str, where: str) -> ActionSchema:
    """Read one ``<action>.schema.json``.

    where: what errors call the text, usually its path.

    Raises:
        PackageError: not JSON (with line and column), or not an action's schema.
    """
    try:
        root = json.loads(text)  # accepts bare Infinity and NaN
    except json.JSONDecodeError as error:
        raise PackageError(
            f"not readable as JSON: {error.msg}",
            where=f"{where}:{error.lineno}:{error.colno}",
            remedy="fix the schema or generate it anew; without it no search space can be derived",
        ) from None
    if not isinstance(root, dict) or not isinstance(root.get("properties"), dict):
        raise PackageError(
            "not the schema of an action: it has no mapping 'properties'",
            where=where,
            remedy="use a schema as TAO generates it",
        )
    default = root.get("default")
    return ActionSchema(
        parameters={p.name: p for p in _leaves(root["properties"], "", where)},
        default=default if isinstance(default, dict) else {},
        default_parameters=tuple(root.get("automl_default_parameters") or ()),
        disabled_parameters=tuple(root.get("automl_disabled_parameters") or ()),
    )


def parse_math_cond(text: str) -> list[tuple[str, float | str]]:
    """Split a condition into (operator, operand) pairs that must all hold.

    Operators: ``> >= < <=`` bounds, ``!=`` exclusion, ``/`` multiple of (or, with a parent, a
    fraction of it), ``^`` power of. The operand is a number or the word ``depends_on``, the
    parent's value. Spaces are optional: ``">0"``, ``"> 0.0 <= 1.0"``, ``"> depends_on"``.

    Raises:
        PackageError: anything else.
    """
    clauses: list[tuple[str, float | str]] = []
    position = 0
    while position < len(text):
        match = _CLAUSE.match(text, position)
        if match is None:
            break
        operator, operand = match.groups()
        clauses.append((operator, DEPENDS_ON if operand == DEPENDS_ON else _number(operand)))
        position = match.end()
    if not clauses or position < len(text):
        raise PackageError(
            f"the condition {text!r} is not understood",
            remedy="a condition is a list of > >= < <= != / ^, each with a number or 'depends_on'",
        )
    return clauses


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and "." not in text else value


def _leaves(properties: Mapping[str, Any], prefix: str, where: str) -> Iterator[SchemaParameter]:
    for key, node in properties.items():
        if not isinstance(node, dict):
            continue  # real schemas keep lists such as automl_disabled_parameters in here
        name = f"{prefix}.{key}" if prefix else key
        members = node.get("properties")
        if isinstance(members, dict) and members:
            yield from _leaves(members, name, where)
        else:
            yield _leaf(name, node, where)


def _leaf(name: str, node: Mapping[str, Any], where: str) -> SchemaParameter:
    node = {**_first_branch(node), **node}
    condition = node.get("math_cond")
    if condition is not None:
        try:
            parse_math_cond(str(condition))
        except PackageError as error:
            raise PackageError(
                f"{name}: {error.message}", where=where, remedy=error.remedy
            ) from None
    enum, weights = node.get("enum"), node.get("option_weights")
    if weights is not None and (enum is None or len(weights) != len(enum)):
        raise PackageError(
            f"{name}: option_weights has {len(weights)} entries for {len(enum or ())} options",
            where=where,
            remedy="give one weight per option of 'enum'",
        )
    enabled = node.get("automl_enabled")
    type_name = str(node.get("type") or "any").lower()
    return SchemaParameter(
        name=name,
        type=_TAO_NAME.get(type_name, type_name),
        default=node.get("default"),
        minimum=_bound(node.get("minimum")),
        maximum=_bound(node.get("maximum")),
        exclusive_minimum=node.get("exclusiveMinimum"),
        exclusive_maximum=node.get("exclusiveMaximum"),
        enum=None if enum is None else tuple(enum),
        option_weights=None if weights is None else tuple(weights),
        math_cond=None if condition is None else str(condition),
        depends_on=node.get("depends_on"),
        parent_param=str(node.get("parent_param", "")).lower() == "true",
        automl_enabled=enabled is True,
        automl_disabled=enabled is False,
        popular=bool(node.get("popular")),
        title=node.get("title") or "",
        description=node.get("description") or "",
    )


def _first_branch(node: Mapping[str, Any]) -> Mapping[str, Any]:
    branches = [b for b in node.get("anyOf") or () if isinstance(b, dict)]
    return next((b for b in branches if b.get("type") != "null"), {})


def _bound(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
