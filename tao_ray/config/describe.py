"""What the models say about a key: its type in words, its neighbours, its accepted names.

Errors and the generated documentation both speak through this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr

from tao_ray.config.base import Section, Words
from tao_ray.config.problems import KeyPath
from tao_ray.config.run import RunConfig

_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_NAMES |= {SecretStr: "text", Any: "any value"}


def words(annotation: Any) -> str:
    """What a key of this type accepts: "a whole number of at least 1"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for item in annotation.__metadata__:
            if isinstance(item, Words):
                return item.text
        return words(arguments[0]) + _bounds(annotation.__metadata__)
    if origin in (Union, UnionType):
        return " or ".join(words(item) for item in arguments if item is not type(None))
    if origin is Literal:
        texts = [str(item) for item in arguments]
        return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"
    if origin is list:
        return "a list"
    if origin is dict:
        return "a mapping"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return f"a mapping (keys: {', '.join(annotation.model_fields)})"
    return _NAMES[annotation]


def _bounds(metadata: tuple[Any, ...]) -> str:
    texts = []
    for item in metadata:
        if isinstance(item, Ge):
            texts.append(f"of at least {item.ge}")
        elif isinstance(item, Gt):
            texts.append(f"above {item.gt}")
        elif isinstance(item, Le):
            texts.append(f"at most {item.le}")
        elif isinstance(item, Lt):
            texts.append(f"below {item.lt}")
    return f" {' and '.join(texts)}" if texts else ""


def choices(annotation: Any) -> tuple[str, ...]:
    """The names a key of this type accepts, if it accepts only certain names."""
    found: list[str] = []
    for item in _alternatives(annotation):
        if isinstance(item, Words):
            found += item.choices
        elif get_origin(item) is Literal:
            found += get_args(item)
    return tuple(found)


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types a union may be, and the `Words` met on the way."""
    if get_origin(annotation) is Annotated:
        yield from (item for item in annotation.__metadata__ if isinstance(item, Words))
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for item in get_args(annotation):
            yield from _alternatives(item)
    else:
        yield annotation


@cache
def hints(section: type[BaseModel]) -> dict[str, Any]:
    """Key -> its type with all that is annotated to it."""
    known = get_type_hints(section, include_extras=True)
    return {key: known[key] for key in section.model_fields}


def sections_of(annotation: Any) -> list[type[Section]]:
    """The sections that a key of this type may hold."""
    # On Python 3.10 list[str] passes for a type, but it has an origin.
    return [
        item
        for item in _alternatives(annotation)
        if get_origin(item) is None and isinstance(item, type) and issubclass(item, Section)
    ]


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a key of this type holds, if it holds one; the first if it may hold one of
    several."""
    return next(iter(sections_of(annotation)), None)


def annotation_at(path: KeyPath) -> Any:
    """The type of the key at `path`; None where anything goes or nothing is known."""
    annotation: Any = RunConfig
    for part in path:
        annotation = _step(annotation, part)
    return annotation


def _step(annotation: Any, part: str | int) -> Any:
    sections = sections_of(annotation)
    if sections:
        found = (hints(section).get(str(part)) for section in sections)
        return next((known for known in found if known is not None), None)
    for item in _alternatives(annotation):
        if get_origin(item) is dict:
            return get_args(item)[1]
        if get_origin(item) is list and isinstance(part, int):
            return get_args(item)[0]
    return None


def known_keys(path: KeyPath = (), kind: Any = None) -> tuple[str, ...]:
    """The keys of the section at `path`. kind: the section's own `kind`, if it says one."""
    sections = sections_of(annotation_at(path))
    chosen = [
        s for s in sections if "kind" in s.model_fields and choices(hints(s)["kind"]) == (kind,)
    ]
    return tuple(dict.fromkeys(key for s in chosen or sections for key in s.model_fields))


def homes_of(key: str) -> list[str]:
    """The dotted keys, in any section, whose last part is `key`."""
    return [f"{name}.{key}" for name in known_keys() if key in known_keys((name,))]
