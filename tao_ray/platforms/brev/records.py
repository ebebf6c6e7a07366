"""What the CLI prints, as records: instances and instance types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tao_ray.platforms.brev.errors import BrevOutputError


@dataclass(frozen=True)
class Instance:
    """A row of ``brev ls --json``. Texts are upper-case; "" where the CLI says nothing.

    status: RUNNING, UNHEALTHY (running, but its health check fails), STARTING, DEPLOYING,
        STOPPING, STOPPED, DELETING, FAILURE, or what a later version adds.
    build_status: "", PENDING, BUILDING, COMPLETED, CREATE_FAILED (which a healthy instance may
        show as well).
    type: instance type, "" if the CLI could not tell.
    """

    name: str
    id: str = ""
    status: str = ""
    build_status: str = ""
    health_status: str = ""
    type: str = ""
    gpu: str = ""

    @property
    def running(self) -> bool:
        """The virtual machine runs. Only a command over SSH proves that it is ready."""
        return self.status in ("RUNNING", "UNHEALTHY")


@dataclass(frozen=True)
class InstanceType:
    """A row of ``brev search --json``: a type, its GPUs, and its price in USD per hour.

    Memory and disk are in GB. It stands in the public catalogue; whether one can be had now,
    only creating it tells.
    """

    type: str
    price_per_hour: float
    gpu_name: str = ""
    gpu_count: int = 0
    vram_per_gpu_gb: float = 0.0
    provider: str = ""
    cloud: str = ""
    disk_min_gb: float = 0.0
    disk_max_gb: float = 0.0
    boot_time_seconds: float = 0.0


@dataclass(frozen=True)
class Organization:
    """A row of ``brev ls orgs --json``."""

    name: str
    id: str
    active: bool


def find_json(text: str, command: str) -> Any:
    """The JSON document in a command's output, which other lines may precede or follow.

    Raises BrevOutputError if there is none: no output is not "no instances".
    """
    decoder = json.JSONDecoder()
    for match in re.finditer(r"^[ \t]*(?=[\[{]|null\b)", text, re.MULTILINE):
        try:
            document, end = decoder.raw_decode(text, match.end())
        except json.JSONDecodeError:
            continue
        if not text[end:].split("\n", 1)[0].strip():
            return document
    raise _unreadable(command, text)


def instances(text: str) -> list[Instance]:
    """Instances from any of the shapes: ``{"workspaces": [...]}``, a bare array, null."""
    document = find_json(text, "ls --json")
    if isinstance(document, dict):
        if "workspaces" not in document:
            raise _unreadable("ls --json", text)
        document = document["workspaces"]
    return [
        Instance(
            name=_text(row, "name"),
            id=_text(row, "id"),
            status=_text(row, "status").upper(),
            build_status=_text(row, "build_status").upper(),
            health_status=_text(row, "health_status").upper(),
            type=_text(row, "instance_type").removeprefix("-"),
            gpu=_text(row, "gpu").removeprefix("-"),
        )
        for row in _rows(document, "name", "ls --json", text)
    ]


def instance_types(text: str) -> list[InstanceType]:
    """Types that have a price, in the catalogue's order."""
    document = find_json(text, "search --json")
    return [
        InstanceType(
            type=_text(row, "type"),
            price_per_hour=_number(row, "price_per_hour"),
            gpu_name=_text(row, "gpu_name").removeprefix("-"),
            gpu_count=int(_number(row, "gpu_count")),
            vram_per_gpu_gb=_number(row, "vram_per_gpu_gb"),
            provider=_text(row, "provider"),
            cloud=_text(row, "cloud"),
            disk_min_gb=_number(row, "disk_min_gb"),
            disk_max_gb=_number(row, "disk_max_gb"),
            boot_time_seconds=_number(row, "boot_time_seconds"),
        )
        for row in _rows(document, "type", "search --json", text)
        if _number(row, "price_per_hour") > 0
    ]


def organizations(text: str) -> list[Organization]:
    document = find_json(text, "ls orgs --json")
    return [
        Organization(_text(row, "name"), _text(row, "id"), row.get("is_active") is True)
        for row in _rows(document, "name", "ls orgs --json", text)
    ]


def _rows(document: Any, key: str, command: str, text: str) -> list[Mapping[str, Any]]:
    rows = [] if document is None else document
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get(key), str) for row in rows
    ):
        raise _unreadable(command, text)
    return rows


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _number(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _unreadable(command: str, text: str) -> BrevOutputError:
    said = text.strip()[-300:] or "nothing"
    return BrevOutputError(
        f"its output is not the JSON it should be; it printed: {said}",
        where=f"brev {command}",
        remedy=f"run `brev {command}` by hand; if it goes on, install a current brev CLI",
    )
