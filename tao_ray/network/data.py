"""The package's rules for where data goes: named sources -> spec keys.

A rule names a source (``train_datasets``, ``eval_dataset``, ...) and a path below it. The path is
plain (empty: the source itself), chosen by the data's format (``path_from_format``), or one per
member of a mapping (``mapping``). Placeholders in a path (``{train_dataset_annotation}``) are
filled from ``data.annotations``. A member or rule marked optional is wired only where its file is
seen to exist, since a spec must not name a file that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.network.package import Action

if TYPE_CHECKING:
    from tao_ray.config import DataConfig

SOURCES = {
    "train_datasets": "train",
    "train_wds_dataset": "train_wds",
    "eval_dataset": "eval",
    "inference_dataset": "inference",
    "calibration_dataset": "calibration",
}
"""Source name of a package -> key of the configuration's `data`."""

_ARCHIVE = re.compile(r"\.(tar\.gz|tgz|tar|zip)$")


@dataclass(frozen=True)
class DataSource:
    """One path or URI that a spec names and a job must find.

    key: its spec key. extract: it is an archive and the job wants the folder in it.
    """

    key: str
    uri: str
    extract: bool = False


@dataclass
class DataValues:
    """What the rules come to: spec key -> value, the sources in them, remarks.

    problems: spec key -> why its rule cannot be applied.
    missing: spec key -> the `data` key that would have given it a value.
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: list[DataSource] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def apply_rules(
    action: Action, data: DataConfig, data_format: str | None, given: frozenset[str]
) -> DataValues:
    """Resolve all rules of `action`, but for the spec keys in `given`, which the user set."""
    return _Rules(action, data, data_format).resolve(given)


class _Rules:
    def __init__(self, action: Action, data: DataConfig, data_format: str | None):
        self.action = action
        self.data = data
        self.data_format = data_format
        self.found = DataValues()

    def resolve(self, given: frozenset[str]) -> DataValues:
        for key, rule in self.action.data_rules.items():
            if any(g == key or g.startswith((f"{key}[", f"{key}.")) for g in given):
                continue
            name = SOURCES.get(rule.get("source", ""))
            if name is None:
                self.found.problems[key] = (
                    f"the package takes it from {rule.get('source')!r}, which is no known source;"
                    f" set data: {{{key}: ...}}"
                )
                continue
            self._apply(key, rule, name)
        return self.found

    def _apply(self, key: str, rule: Mapping[str, Any], name: str) -> None:
        uris = getattr(self.data, name)
        if not uris:
            self.found.missing[key] = f"data.{name}"
            return
        uris = [uris] if isinstance(uris, str) else list(uris)
        many = bool(rule.get("multiple_sources") or rule.get("list"))
        if len(uris) > 1 and not many:
            self.found.problems[key] = (
                f"takes one data set, but data.{name} has {len(uris)}; give one, or set data:"
                f" {{{key}: ...}}"
            )
            return
        values = [
            v
            for i, u in enumerate(uris)
            if (v := self._value(f"{key}[{i}]" if many else key, rule, u)) is not None
        ]
        if values:
            self.found.values[key] = values if many else values[0]

    def _value(self, key: str, rule: Mapping[str, Any], uri: str) -> Any:
        if "mapping" in rule:
            members = {m: self._value(f"{key}.{m}", r, uri) for m, r in rule["mapping"].items()}
            return {m: v for m, v in members.items() if v is not None} or None
        paths = self._paths(key, rule)
        if paths is None:
            return None
        seen = [f for p in paths if (f := _existing(uri, p)) is not None]
        if rule.get("optional") and not seen:
            return None
        if len(paths) > 1 and not seen:
            self.found.notes.append(
                f"{key}: the package allows {' or '.join(paths)}; taken is {paths[0]}"
            )
        value = seen[0] if seen else _join(uri, paths[0])
        wants_folder = rule.get("runtime") == "extracted_folder" or any(
            i.key == key and i.type == "folder" for i in self.action.inputs
        )
        extract = wants_folder and _ARCHIVE.search(value) is not None
        self.found.sources.append(DataSource(key, value, extract))
        return value

    def _paths(self, key: str, rule: Mapping[str, Any]) -> list[str] | None:
        """The rule's path, or its alternatives; None if it has none that can be used."""
        if "path_from_format" in rule:
            formats = rule["path_from_format"]
            path = formats.get(self.data_format, formats.get("*"))
            if path is None:
                self.found.problems[key] = (
                    f"the package has no path for data.format {self.data_format!r}; it knows"
                    f" {', '.join(formats)}"
                )
                return None
        else:
            path = rule.get("path")
        if path is None:
            return None
        filled = [self._fill(key, p) for p in ([path] if isinstance(path, str) else path)]
        return [p for p in filled if p is not None] or None

    def _fill(self, key: str, path: str) -> str | None:
        names = re.findall(r"\{(\w+)\}", path)
        unset = [n for n in names if n not in self.data.annotations]
        if unset:
            self.found.problems[key] = (
                f"the package's path is {path!r}; set data.annotations:"
                f" {{{', '.join(f'{n}: ...' for n in unset)}}}"
            )
            return None
        return re.sub(r"\{(\w+)\}", lambda m: self.data.annotations[m[1]], path)


def _join(uri: str, path: str) -> str:
    return f"{uri.rstrip('/')}/{path}" if path else uri


def _existing(uri: str, path: str) -> str | None:
    """The local file, or the folder an archive was already extracted to; None if neither is."""
    if "://" in uri:
        return None
    joined = _join(uri, path)
    folder = _ARCHIVE.sub("", joined)
    return next((p for p in (joined, folder) if Path(p).exists()), None)
