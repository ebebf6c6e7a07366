"""What differs between versions of the CLI, and the catalogue of types with their prices."""

from __future__ import annotations

from typing import Any

CURRENT = "0.6.327"

_CREATE = [
    *("name", "type", "count", "parallel", "detached", "timeout", "startup-script", "dry-run"),
    *("mode", "jupyter", "container-image", "compose-file", "launchable", "gpu-name", "provider"),
    *("min-vram", "min-total-vram", "min-capability", "min-disk", "max-boot-time", "stoppable"),
    *("rebootable", "flex-ports", "desc", "sort"),
]

_BASE: dict[str, Any] = {
    "version": CURRENT,
    "ls_json": True,
    "json_shape": "object",  # or "array": zero instances print null either way
    "create_flags": _CREATE,
    "create_stdin": "always",  # or "flag": only with --stdin
    "exec_replay": True,
    "exec_agent_line": False,
    "match": "off",  # "on": Match blocks before Host blocks; "required": Match blocks alone
    "route": "direct",  # or "proxy": through cloudflared
    "api_key_login": True,
    "session_form": "known",  # or "other": a session file of a form nobody has seen yet
    "not_stoppable": [],
}

PROFILES: dict[str, dict[str, Any]] = {
    "0.6.316": {
        **_BASE,
        "version": "0.6.316",
        "ls_json": False,
        "create_flags": ["gpu", "cpu", "detached"],
        "exec_replay": False,
        "api_key_login": False,
    },
    "0.6.317": {
        **_BASE,
        "version": "0.6.317",
        "json_shape": "array",
        "exec_replay": False,
        "exec_agent_line": True,
        "api_key_login": False,
    },
    "0.6.322": {**_BASE, "version": "0.6.322", "json_shape": "array", "api_key_login": False},
    CURRENT: _BASE,
    "later": {
        **_BASE,
        "version": "0.6.340",
        "create_flags": [*_CREATE, "stdin"],
        "create_stdin": "flag",
        "exec_replay": False,
        "match": "on",
    },
}


def _row(type: str, gpu: str, count: int, vram: int, provider: str, price: float) -> dict[str, Any]:
    return {
        "type": type,
        "cloud": provider,
        "provider": provider,
        "gpu_name": gpu,
        "gpu_count": count,
        "vram_per_gpu_gb": vram,
        "total_vram_gb": vram * count,
        "capability": 8.9 if count else 0,
        "vcpus": 8 * max(count, 1),
        "memory": "64GiB",
        "ram_gb": 64,
        "arch": "x86_64",
        "disk_min_gb": 10,
        "disk_max_gb": 2000,
        "boot_time_seconds": 0,
        "stoppable": False,
        "rebootable": True,
        "flex_ports": False,
        "price_per_hour": price,
    }


CATALOGUE = [
    _row("n2d-standard-4", "-", 0, 0, "gcp", 0.17),
    _row("g5.xlarge", "A10G", 1, 24, "aws", 1.21),
    _row("l40s-1x.north", "L40S", 1, 48, "northcloud", 1.03),
    _row("g6e.xlarge", "L40S", 1, 48, "aws", 1.86),
    _row("l40s-1x.south", "L40S", 1, 48, "southcloud", 1.24),
    _row("l40-1x.south", "L40", 1, 48, "southcloud", 0.99),
    _row("a100-80-1x", "A100 80GB", 1, 80, "northcloud", 1.95),
    _row("mixed-1x", "A100 80GB", 1, 80, "southcloud", 2.10),
    _row("mixed-1x", "H100", 1, 80, "southcloud", 2.80),
    {**_row("l40s-8x.north", "L40S", 8, 48, "northcloud", 8.10), "disk_min_gb": 1000},
]
