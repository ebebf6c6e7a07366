"""``--set a.b=value``: values given on the command line, put over those of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tao_ray.config.model import DataConfig
from tao_ray.config.problems import KeyPath, Problem
from tao_ray.config.search import ParameterRange
from tao_ray.config.source import Place, Reader, Source

_SECRET: KeyPath = ("model", "key")


def apply_overrides(
    source: Source, overrides: Iterable[str], environment: Mapping[str, str]
) -> None:
    """Put each ``key=value`` over the values of `source`, in order. The value is YAML."""
    reader = Reader(source, environment)
    for text in overrides:
        key, equals, value_text = text.partition("=")
        key = key.strip()
        place = Place(f"--set {key}", None)
        if not equals or not all(key.split(".")):
            problem = Problem(f"--set {text}", None, "", "", "must have the form a.b=value")
            source.problems.append(((), problem))
            continue
        # Read once aside to learn whether it is a mapping, which decides how the key is split.
        shape = Reader(Source(place), environment).read(value_text)
        path = split_key(key, shape)
        source.forget(path)
        source.places[path] = place
        if path == _SECRET and not value_text.strip().startswith("${env:"):
            source.problem(
                path,
                "a secret on the command line can be read by everybody on this host",
                "put it into a variable and write ${env:NAME}",
                "",
            )
            continue
        _put(source, path, reader.read(value_text, path, place))


def split_key(key: str, value: Any = None) -> KeyPath:
    """The key path that a dotted key means.

    Spec keys contain dots themselves: what follows ``model.overrides``, ``data`` and
    ``search.parameters`` is one key (in the last, a field of the range may follow, unless `value`
    is itself a range).
    """
    parts = tuple(key.split("."))
    if parts[:2] == ("model", "overrides") and len(parts) > 2:
        return (*parts[:2], ".".join(parts[2:]))
    if parts[:2] == ("search", "parameters") and len(parts) > 2:
        name = parts[2:]
        if (
            len(name) > 1
            and name[-1] in ParameterRange.model_fields
            and not isinstance(value, dict)
        ):
            return (*parts[:2], ".".join(name[:-1]), name[-1])
        return (*parts[:2], ".".join(name))
    if parts[0] == "data" and len(parts) > 2 and parts[1] not in DataConfig.model_fields:
        return ("data", ".".join(parts[1:]))
    return parts


def _put(source: Source, path: KeyPath, value: Any) -> None:
    mapping: dict[Any, Any] = source.data
    for depth, part in enumerate(path[:-1], start=1):
        inner = mapping.get(part)
        if inner is None:
            inner = mapping[part] = {}
        if not isinstance(inner, dict):
            above = ".".join(str(step) for step in path[:depth])
            source.problem(path, f"cannot be set, because {above} is not a mapping")
            return
        mapping = inner
    mapping.pop(path[-1], None)  # so that it comes last: later spec overrides win
    mapping[path[-1]] = value
