"""YAML text -> plain values that remember where each of them was written.

The YAML read here is that of TAO's own specs with the surprises taken out: ``1e-6`` is a number,
``yes/no/on/off`` are booleans as in YAML 1.1, but dates, ``1:30`` and ``0123`` stay text, and a
key given twice is an error. Text may refer to the environment: ``${env:NAME}``,
``${env:NAME:-default}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tao_ray.config.problems import KeyPath, Problem, key_text

_MERGE = "tag:yaml.org,2002:merge"
_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}
_REFERENCE = re.compile(r"\$\{env:(?:([A-Za-z_]\w*)(?::-([^}]*))?\})?")


class _Loader(yaml.SafeLoader):
    """PyYAML with our own rules for plain scalars."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - replaces the class's own


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (
        "bool",
        r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        list("yYnNtTfFoO"),
    ),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.?[0-9]+[eE][-+]?[0-9]+|\.[0-9]+"
        r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})$"), _first
    )


class EnvText(str):
    """Text that came from the environment: the place it is used in decides its type."""


def typed(value: Any) -> Any:
    """`value` with every `EnvText` in it read as YAML reads plain text (``20`` -> 20)."""
    if isinstance(value, EnvText):
        loader = _Loader("")
        tag = loader.resolve(yaml.ScalarNode, str(value), (True, False))
        if tag not in _SCALARS:
            return str(value)
        return loader.construct_object(yaml.ScalarNode(tag, str(value)))
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return value


@dataclass(frozen=True)
class Place:
    """Where a value was written: a file and a line, or a ``--set`` argument."""

    file: str
    line: int | None


@dataclass
class Source:
    """Values as written, where each was written, and what was wrong in reading them.

    references: the paths whose text refers to the environment -> that text.
    problems: (path, problem); the value at such a path means nothing.
    """

    root: Place
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, Place] = field(default_factory=dict)
    references: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[tuple[KeyPath, Problem]] = field(default_factory=list)

    def place(self, path: KeyPath) -> Place:
        """Where `path`, or else the nearest key around it, was written."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.root

    def problem(self, path: KeyPath, message: str, hint: str = "", value: str = "") -> None:
        """Record what is wrong at `path`."""
        place = self.place(path)
        self.problems.append(
            (path, Problem(place.file, place.line, key_text(path), value, message, hint))
        )

    def forget(self, path: KeyPath) -> None:
        """Drop everything known about `path` and below, because another value replaces it."""
        end = len(path)
        self.places = {key: at for key, at in self.places.items() if key[:end] != path}
        self.references = {key: text for key, text in self.references.items() if key[:end] != path}
        self.problems = [item for item in self.problems if item[0][:end] != path]


class Reader:
    """Reads YAML text into a `Source`, at any path of it."""

    def __init__(self, source: Source, environment: Mapping[str, str]):
        self._source = source
        self._environment = environment
        self._place: Place | None = None
        self._open: list[yaml.Node] = []

    def read(self, text: str, path: KeyPath = (), place: Place | None = None) -> Any:
        """The value of `text`. `place` overrides where its parts are said to be written.

        A syntax error is recorded as a problem and gives None.
        """
        self._place = place
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.YAMLError as error:
            self._syntax_error(path, error)
            return None
        return None if node is None else self._value(node, path)

    def _syntax_error(self, path: KeyPath, error: yaml.YAMLError) -> None:
        source = self._source
        what, hint, line = str(error).splitlines()[0], "", None
        if isinstance(error, yaml.MarkedYAMLError):
            what = ", ".join(part for part in (error.context, error.problem) if part)
            line = error.problem_mark.line + 1 if error.problem_mark else None
        if "\\t" in what:
            hint = "indent with spaces"
        elif "a flow " in what:
            hint = "inside {…} and […], quote text that holds any of { } [ ] , : #"
        elif "a block " in what:
            hint = "see whether the lines before it are indented alike"
        place = self._place or Place(source.root.file, line)
        problem = Problem(
            place.file, place.line, key_text(path), "", f"not valid YAML: {what}", hint
        )
        source.problems.append((path, problem))

    def _mark(self, path: KeyPath, node: yaml.Node) -> None:
        line = node.start_mark.line + 1
        self._source.places[path] = self._place or Place(self._source.root.file, line)

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if any(node is parent for parent in self._open):
            self._source.problem(path, "an anchor refers to itself")
            return None
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return self._sequence(node, path)
        finally:
            self._open.pop()

    def _sequence(self, node: yaml.Node, path: KeyPath) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            self._mark((*path, index), item)
            values.append(self._value(item, (*path, index)))
        return values

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        result = self._merged(node, path)
        first_line: dict[Any, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self._key(key_node, path)
            below = (*path, key)
            self._mark(below, key_node)
            if key in first_line:
                self._source.problem(
                    below, f"given twice, first on line {first_line[key]}", "keep one of the two"
                )
            first_line.setdefault(key, key_node.start_mark.line + 1)
            result[key] = self._value(value_node, below)
        return result

    def _merged(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        """The entries brought by ``<<: *anchor``; the mapping's own entries replace them."""
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag != _MERGE:
                continue
            several = isinstance(value_node, yaml.SequenceNode)
            for item in value_node.value if several else [value_node]:
                if isinstance(item, yaml.MappingNode):
                    result = {**self._value(item, path), **result}
                else:
                    self._source.problem(path, "'<<' merges a mapping, or a list of mappings")
        return result

    def _key(self, node: yaml.Node, path: KeyPath) -> Any:
        """A key is the text as written (``on`` is "on"), except that whole numbers stay such."""
        if not isinstance(node, yaml.ScalarNode):
            self._source.problem(path, "a key must be text, not a list or a mapping")
            return ""
        if node.tag == "tag:yaml.org,2002:int":
            return self._scalar(node, path)
        return node.value

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        if "${env:" in node.value:
            self._source.references[path] = node.value
            return EnvText(_REFERENCE.sub(lambda match: self._expand(match, path), node.value))
        if node.tag not in _SCALARS:
            self._source.problem(path, f"the YAML tag {node.tag} is not supported")
            return None
        try:
            return _Loader("").construct_object(node)
        except (ValueError, KeyError, IndexError):
            self._source.problem(path, f"the text does not fit the YAML tag {node.tag}")
            return None

    def _expand(self, match: re.Match[str], path: KeyPath) -> str:
        name, default = match.groups()
        if name is None:
            self._source.problem(
                path,
                "a reference to the environment is malformed",
                "write ${env:NAME} or ${env:NAME:-default}",
                value=repr(match.string),
            )
            return ""
        value = self._environment.get(name)
        if default is not None:
            return value or default
        if value is None:
            self._source.problem(
                path,
                f"the environment variable {name} is not set",
                f"export {name}=…, or give a default: ${{env:{name}:-default}}",
            )
            return ""
        return value
