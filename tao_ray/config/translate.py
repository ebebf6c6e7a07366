"""Pydantic's validation errors -> problems in the words of a configuration's author."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from tao_ray.config.base import Finding
from tao_ray.config.describe import annotation_at, choices, homes_of, known_keys, words
from tao_ray.config.problems import KeyPath
from tao_ray.config.source import Source

_ABSENT = object()


def add_problems(source: Source, error: ValidationError) -> None:
    """Record in `source` what `error` found, except where reading already found a problem."""
    spoilt = {path for path, _ in source.problems}
    for item in error.errors(include_url=False):
        for path, finding in _findings(source, item):
            if path in spoilt:
                continue
            if finding is None:
                _wrong_value(source, path)
                spoilt.add(path)  # a union finds the value wrong once per branch
            elif finding.unknown:
                _unknown_key(source, path)
            else:
                value = _shown(source, path, containers=False)
                source.problem(path, finding.message, finding.hint, value)


def _findings(source: Source, item: Any) -> Iterator[tuple[KeyPath, Finding | None]]:
    """(path, what was found there); None: the value does not fit the key's type."""
    refused = item["type"] == "refused"
    # What is refused is there; what is missing is the last part of its place.
    path = _path(source.data, item["loc"], last_may_be_absent=not refused)
    if refused:
        for finding in item["ctx"]["findings"]:
            yield (*path, *finding.path), finding
    elif item["type"] == "extra_forbidden":
        yield path, Finding((), unknown=True)
    elif item["type"] == "invalid_key" or item["loc"][-1] == "[key]":
        yield path, Finding((), "a key must be text", "quote it")
    elif item["type"] == "missing":
        yield path, Finding((), f"required: {words(annotation_at(path))}")
    else:
        yield path, None


def _path(data: Any, location: tuple[str | int, ...], *, last_may_be_absent: bool) -> KeyPath:
    """`location` without the parts that name a branch of a union instead of a key."""
    path: list[str | int] = []
    for index, part in enumerate(location):
        last = last_may_be_absent and index == len(location) - 1
        tag = isinstance(part, str) and part.startswith("<")
        if isinstance(data, dict) and (part in data or (last and not tag)):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            continue
        path.append(part)
    return tuple(path)


def _wrong_value(source: Source, path: KeyPath) -> None:
    annotation = annotation_at(path)
    value = _value(source.data, path)
    near = get_close_matches(str(value), choices(annotation), n=1) if value is not _ABSENT else []
    hint = f"did you mean {near[0]!r}?" if near else ""
    message = f"must be {words(annotation)}"
    if message == "must be text" and isinstance(value, int | float):
        hint = "quote it"
    source.problem(path, message, hint, _shown(source, path))


def _unknown_key(source: Source, path: KeyPath) -> None:
    parent, key = path[:-1], str(path[-1])
    known = known_keys(parent, _value(source.data, (*parent, "kind")))
    near = get_close_matches(key, known, n=1)
    meant = near or homes_of(key) or get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {meant[0]!r}? " if meant else ""
    hint += f"known here: {', '.join(known)}"
    if parent == ("data",):
        hint += ", or an exact spec key such as dataset.train_dataset.images_dir"
    source.problem(path, "unknown key", hint)


def _value(data: Any, path: KeyPath) -> Any:
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return data


def _shown(source: Source, path: KeyPath, containers: bool = True) -> str:
    """The value at `path` as it may be shown: what came from the environment is not."""
    if path in source.references:
        return source.references[path]
    value = _value(source.data, path)
    if value is _ABSENT:
        return ""
    if path == ("model", "key"):
        return "a value that is not shown"
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        article = "a" if value else "an empty"
        return f"{article} {kind}" if containers else ""
    if value is None:
        return "nothing" if containers else ""
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
