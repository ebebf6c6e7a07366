"""Helpers of the Brev tests: a link over real SSH, and a clock that only sleeping moves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brev_emulator.emulator import BrevEmulator

from tao_ray.platforms.base import LinkError
from tao_ray.platforms.brev import BrevCli, InstanceType, Progress
from tao_ray.platforms.machine import CommandResult


def cli_for(emulator: BrevEmulator, timeout: float = 20.0, **environment: str) -> BrevCli:
    return BrevCli(
        environment={**emulator.environment, **environment}, timeout=timeout, lock_timeout=60.0
    )


class SshLink:
    """The least of a `Machine`: commands through OpenSSH's own client."""

    poll_interval = 1.0

    def __init__(self, name: str, config: Path):
        self.name = name
        self._config = config

    def run(self, script: str, *, stdin: bytes = b"", timeout: float = 60.0) -> CommandResult:
        options = ["-o", "RequestTTY=no", "-o", "ControlPath=none", "-o", "ConnectTimeout=5"]
        line = ["ssh", "-F", str(self._config), *options, "-o", "LogLevel=ERROR"]
        done = subprocess.run(
            [*line, self.name, script], input=stdin, capture_output=True, timeout=timeout
        )
        if done.returncode == 255:
            raise LinkError(done.stderr.decode().strip(), where=self.name)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def close(self) -> None:
        pass


class Clock:
    """Time that passes when somebody sleeps, a hundred times faster than it seems.

    The emulator's processes live in real time, so a little of it has to pass.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)
        time.sleep(min(seconds / 100.0, 0.1))


def steps(progress: list[Progress], *kinds: str) -> list[tuple[str, str | None]]:
    """(step, type) of the progress, of some kinds only."""
    return [(item.step, item.type) for item in progress if not kinds or item.step in kinds]


def type_row(name: str, price: float, **values: Any) -> InstanceType:
    defaults: Mapping[str, Any] = {
        "gpu_name": "L40S",
        "gpu_count": 1,
        "vram_per_gpu_gb": 48.0,
        "provider": "north",
        "disk_min_gb": 10.0,
        "disk_max_gb": 2000.0,
    }
    return InstanceType(name, price, **{**defaults, **values})
