"""Reads what W&B recorded offline: LevelDB's log format, holding W&B's own records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEADER = 7
_BLOCK = 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@dataclass
class RecordedRun:
    """One W&B run, joined from its folders in the order they were made."""

    id: str
    group: str = ""
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    points: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.points]

    def table(self, key: str) -> dict[str, Any]:
        """The last table that was logged as `key`."""
        files = sorted(self.folders[-1].glob(f"files/media/table/{key}_*.table.json"))
        table: dict[str, Any] = json.loads(files[-1].read_text())
        return table


def recorded_runs(directory: Path) -> dict[str, RecordedRun]:
    """By the part of the id after the last dash: a trial's id, or ``summary``."""
    runs: dict[str, RecordedRun] = {}
    for folder in sorted(directory.glob("offline-run-*"), key=lambda path: path.stat().st_mtime):
        (path,) = folder.glob("*.wandb")
        name = path.stem.rsplit("-", 1)[1]
        run = runs.setdefault(name, RecordedRun(path.stem.removeprefix("run-")))
        run.folders.append(folder)
        _read_into(run, path)
    return runs


def _read_into(run: RecordedRun, path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    record_type: Any = wandb_internal_pb2.Record  # type: ignore[attr-defined]
    for data in _records(path.read_bytes()):
        record = record_type()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.group, run.name = record.run.run_group, record.run.display_name
            run.config |= _items(record.run.config.update)
        elif kind == "history":
            values = _items(record.history.item)
            step = record.history.step.num
            run.points.append((step, {k: v for k, v in values.items() if k[0] != "_"}))
        elif kind == "summary":
            run.summary |= _items(record.summary.update)
        elif kind == "exit":
            run.exit_codes.append(record.exit.exit_code)


def _items(items: Any) -> dict[str, Any]:
    named = [(item.key or ".".join(item.nested_key), item) for item in items]
    return {name: json.loads(item.value_json) for name, item in named}


def _records(data: bytes) -> Iterator[bytes]:
    assert data[:4] == b":W&B"
    position, parts = _HEADER, b""
    while position + _HEADER <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + _HEADER])
        if kind == 0:
            break
        body = data[position + _HEADER : position + _HEADER + length]
        position += _HEADER + length
        parts = body if kind in (_FULL, _FIRST) else parts + body
        if kind in (_FULL, _LAST):
            yield parts
