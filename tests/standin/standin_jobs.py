"""Runs of digits_mlp as a user's job would start it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

COMMAND = [sys.executable, "-m", "tao_ray.standin"]


@dataclass
class Job:
    """One results directory and the jobs run in it."""

    directory: Path

    @property
    def results(self) -> Path:
        return self.directory / "results"

    def spec(self, values: dict[str, Any], name: str = "spec.yaml") -> Path:
        """Write a spec with dotted keys; three epochs unless said otherwise."""
        tree: dict[str, Any] = {}
        defaults = {"results_dir": str(self.results), "train.num_epochs": 3}
        for key, value in {**defaults, **values}.items():
            *parents, leaf = key.split(".")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[leaf] = value
        path = self.directory / name
        path.write_text(yaml.safe_dump(tree))
        return path

    def run(
        self, action: str = "train", values: dict[str, Any] | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; `values` are spec keys."""
        return subprocess.run(
            [*COMMAND, action, "-e", str(self.spec(values or {}))],
            capture_output=True,
            text=True,
            env={**os.environ, **env},
            cwd=self.directory,
            timeout=120,
        )

    def start(self, values: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start a training in a process group of its own."""
        log = (self.directory / "log.txt").open("wb")
        with log:
            return subprocess.Popen(
                [*COMMAND, "train", "-e", str(self.spec(values))],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def lines(self, action: str = "train") -> list[dict[str, Any]]:
        path = self.results / action / "status.json"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def messages(self, action: str = "train") -> list[str]:
        return [line["message"].split("\n")[0] for line in self.lines(action)]

    def epochs(self) -> list[int]:
        return [line["epoch"] for line in self.lines() if "epoch" in line]

    def values(self) -> list[dict[str, float]]:
        """kpi of every validation, in order."""
        return [x["kpi"] for x in self.lines() if x["message"] == "Eval metrics generated."]

    def checkpoint(self, epoch: int) -> Path:
        return self.results / "train" / f"model_epoch_{epoch:03d}.pth"

    def wait_for_epoch(self, epoch: int) -> None:
        """Until the line of that epoch (0-based) is on disk."""
        deadline = time.monotonic() + 60
        status = self.results / "train" / "status.json"
        while not (status.exists() and epoch in self.epochs()):
            assert time.monotonic() < deadline, f"epoch {epoch} never came"
            time.sleep(0.02)


def learning_rates(log: str) -> dict[int, float]:
    """Epoch (0-based) -> learning rate, as the job's log states them."""
    found = re.findall(r"Epoch (\d+): learning rate (\S+)", log)
    return {int(epoch): float(rate) for epoch, rate in found}
