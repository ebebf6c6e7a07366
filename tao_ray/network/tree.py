"""Nested specs addressed by dotted names, and the YAML both sides agree on.

A name is keys joined by dots; ``key[i]`` is element i of a list: ``train.classify.cls_weight[1]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tao_ray.errors import TaoRayError

Step = str | int

MISSING = "???"
"""OmegaConf's mark for a value that must be given."""

EMPTY: tuple[Any, ...] = (None, "", MISSING, [])
"""What templates hold where no value was given."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    pass


class _Dumper(yaml.SafeDumper):
    pass


# YAML 1.1 reads 1e-5 as text, while TAO's own reader (YAML 1.2 rules) reads a number.
for _yaml_class in (_Loader, _Dumper):
    _yaml_class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
    )


def load_yaml(text: str, where: str) -> Any:
    """Parse YAML; numbers such as ``1e-5`` are numbers.

    Raises:
        TaoRayError: not YAML, with line and column.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        problem = getattr(error, "problem", None) or str(error)
        raise TaoRayError(
            f"not readable as YAML: {problem}", where=place, remedy="fix the file"
        ) from None


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Block style, keys in their order."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def split_path(name: str) -> list[Step]:
    """``"a.b[1].c"`` -> ``["a", "b", 1, "c"]``.

    Raises:
        TaoRayError: an empty key or an index that is not a number.
    """
    steps: list[Step] = []
    for part in name.split("."):
        match = re.fullmatch(r"([^\[\]]+)((?:\[\d+\])*)", part)
        if match is None:
            raise TaoRayError(
                f"{name!r} is not a spec key", remedy="write keys as a.b.c, list elements as a.b[0]"
            )
        steps.append(match[1])
        steps.extend(int(i) for i in re.findall(r"\d+", match[2]))
    return steps


def join_path(steps: list[Step]) -> str:
    """The inverse of `split_path`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def get_path(tree: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value at `name`, or `default` where the path ends early."""
    node: Any = tree
    for step in split_path(name):
        if isinstance(step, int):
            if not isinstance(node, list) or step >= len(node):
                return default
            node = node[step]
        elif isinstance(node, Mapping) and step in node:
            node = node[step]
        else:
            return default
    return node


def set_path(tree: dict[str, Any], name: str, value: Any) -> None:
    """Set `name` in place, creating missing parents; a list grows by at most one element.

    Raises:
        TaoRayError: the path leads through a value that is neither mapping nor list, or skips
            list elements.
    """
    steps = split_path(name)
    node: Any = tree
    for position, step in enumerate(steps):
        last = position == len(steps) - 1
        fresh: Any = value if last else [] if isinstance(steps[position + 1], int) else {}
        if isinstance(step, int):
            if not isinstance(node, list) or step > len(node):
                held = len(node) if isinstance(node, list) else 0
                raise TaoRayError(
                    f"{name!r} cannot be set: {join_path(steps[:position])!r} has {held} elements",
                    remedy="give the whole list",
                )
            if step == len(node):
                node.append(fresh)
            elif last or node[step] is None:
                node[step] = fresh
        else:
            if not isinstance(node, dict):
                raise TaoRayError(
                    f"{name!r} cannot be set: {join_path(steps[:position])!r} is {node!r}, not a"
                    " block",
                    remedy="check the key against the network's template",
                )
            if last or node.get(step) in (None, ""):
                node[step] = fresh
        node = node[step]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name -> leaf. Lists of mappings are entered; other lists and ``{}`` are leaves."""
    return dict(_leaves(tree, prefix))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A new mapping: `over` on top of `base`, mappings merged, everything else replaced."""
    merged = dict(base)
    for key, value in over.items():
        held = merged.get(key)
        if isinstance(held, Mapping) and isinstance(value, Mapping):
            value = merge(held, value)
        merged[key] = value
    return merged


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(node, list) and node and all(isinstance(e, Mapping) for e in node):
        for index, value in enumerate(node):
            yield from _leaves(value, f"{name}[{index}]")
    else:
        yield name, node
