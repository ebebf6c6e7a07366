"""Starts the driver of `driver.py` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import made_run
import psutil

from tao_ray.journal import read_events
from tao_ray.trial.state import RunState

DRIVER = Path(__file__).with_name("driver.py")
SECRET = "0123456789abcdef0123456789abcdef01234567"
EVENTS = len(made_run.events())


def environment(directory: Path, url: str = "") -> dict[str, str]:
    """Of a user of W&B who has a key and no other settings. url: the server's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    kept |= {"WANDB_API_KEY": SECRET, "HOME": str(directory), "WANDB_ERROR_REPORTING": "false"}
    return {**kept, "WANDB_BASE_URL": url} if url else kept


def drive(
    mode: str, directory: Path, until: int = EVENTS, *moment: str, url: str = ""
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DRIVER), mode, str(directory), str(until), *moment],
        env=environment(directory, url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a process that must succeed; what it said."""
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 0, said
    return said


def state_of(directory: Path) -> RunState:
    return RunState.fold(read_events(directory / "journal.sqlite"))


def helpers_of(pid: int) -> list[str]:
    """W&B's helper processes of a dead driver, once they had time to leave."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
        found = [" ".join(x) for x in lines if "--pid" in x and str(pid) in x]
        if not found:
            return []
        time.sleep(0.5)
    return found
