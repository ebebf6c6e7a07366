#!/usr/bin/env python3
"""Kill searches with SIGKILL at random moments, resume them, and check that nothing is lost.

    scripts/crash.py --runs 20 --seed 1

Each run is a real search over the stand-in network, killed up to three times at a random moment
and resumed each time until it is done. A run passes if it completes, every trial's journalled
curve has no gap and no epoch decided twice, every job was started once (each job's own process
writes to its log, and the status stream of each job holds one launch), no job process is left,
and, for a sequential search, the result is that of an undisturbed run with the same seed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import read_events
from tao_ray.trial.state import RunState

CONFIG: dict[str, dict[str, Any]] = {
    "model": {"package": "digits_mlp", "overrides": {"train.seconds_per_epoch": 0.15}},
    "search": {"trials": 6, "max_epochs": 9},
}
KINDS: tuple[dict[str, Any], ...] = (
    {"algorithm": "random", "max_concurrent": 1},
    {"algorithm": "asha", "max_concurrent": 4},
    {"algorithm": "bayesian", "max_concurrent": 1},
    {"algorithm": "asha", "max_concurrent": 1, "options": {"variant": "promotion"}},
    {"algorithm": "hyperband", "max_concurrent": 2, "trials": 14},
    {
        "algorithm": "pbt",
        "max_concurrent": 2,
        "trials": 4,
        "parameters": {"train.optim.lr": {"min": 1e-5, "max": 1e-1, "scale": "log"}},
        "options": {"perturbation_interval": 3},
    },
)
TIMEOUT_S = 300


def main() -> int:
    """Run them all; exit code 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3, help="at most, per run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="directory to keep the runs in")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    failed, kills, resumed = 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="crash-") as scratch:
        root = args.keep or Path(scratch)
        root.mkdir(parents=True, exist_ok=True)
        references: dict[int, list[object]] = {}
        for n in range(args.runs):
            kind = n % len(KINDS)
            if KINDS[kind]["max_concurrent"] == 1 and kind not in references:
                references[kind] = outcome(search(root, f"reference{kind}", kind, rng, 0)[0])
            run_dir, killed = search(root, f"run{n}", kind, rng, rng.randint(1, args.kills))
            problems = check(run_dir, references.get(kind))
            failed += bool(problems)
            kills += killed
            resumed += killed > 0
            verdict = "; ".join(problems) or "complete, nothing lost, nothing run twice"
            print(f"run {n}: {KINDS[kind]['algorithm']}, killed {killed} times: {verdict}")
    print(f"{args.runs - failed} of {args.runs} runs passed, {kills} kills, {resumed} runs resumed")
    return 1 if failed else 0


def search(
    root: Path, name: str, kind: int, rng: random.Random, max_kills: int
) -> tuple[RunDir, int]:
    """One search, killed up to `max_kills` times; its directory and how often it was killed."""
    config = {**CONFIG, "name": name, "results": str(root)}
    config["search"] = {**CONFIG["search"], **KINDS[kind]}
    path = root / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "tao_ray.tune", str(path), "--yes"]
    killed = 0
    while True:
        runs = RunDir.all(root / name)
        again = ["--resume", str(runs[0].path)] if runs else []
        driver = subprocess.Popen(
            [*command, *again], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if killed < max_kills:
            began = time.monotonic()
            # Half of the kills come early: before, during and just after the first jobs start.
            wait = rng.uniform(0.0, 4.0) if rng.random() < 0.5 else rng.uniform(4.0, 12.0)
            if rng.random() < 0.8:
                _await_journal(root / name, began)
            try:
                driver.communicate(timeout=wait)
            except subprocess.TimeoutExpired:
                os.kill(driver.pid, signal.SIGKILL)
                driver.communicate()
                killed += 1
                continue
        out, _ = driver.communicate(timeout=TIMEOUT_S)
        if driver.returncode != 0:
            print(out[-3000:])
        return RunDir.all(root / name)[0], killed


def _await_journal(directory: Path, began: float) -> None:
    """Wait until the driver writes its journal, so that most kills fall into the run itself."""
    before = {r.path: r.journal.stat().st_mtime for r in RunDir.all(directory)}
    while time.monotonic() - began < 60:
        for run in RunDir.all(directory):
            if run.journal.stat().st_mtime != before.get(run.path):
                return
        time.sleep(0.05)


def outcome(run_dir: RunDir) -> list[object]:
    """What a run came to: each trial's configuration, end and objective curve."""
    trials = RunState.fold(read_events(run_dir.journal)).trials.values()
    return [
        (t.id, dict(t.config), t.status, [(e.epoch, e.loss) for e in t.measured()]) for t in trials
    ]


def check(run_dir: RunDir, reference: list[object] | None) -> list[str]:
    """What is wrong with a finished run."""
    problems = []
    result = json.loads(run_dir.result.read_text()) if run_dir.result.exists() else {}
    if result.get("status") != "done":
        problems.append(f"status {result.get('status')!r}")
    events = read_events(run_dir.journal)
    state = RunState.fold(events)
    for trial in state.trials.values():
        if trial.alive:
            problems.append(f"trial {trial.id} never ended")
        first = trial.start.epoch + 1 if trial.start else 1
        if sorted(trial.epochs) != list(range(first, first + len(trial.epochs))):
            problems.append(f"trial {trial.id} lost epochs: {sorted(trial.epochs)}")
    decided = Counter((e.trial, e.data["epoch"]) for e in events if e.kind == "decision")
    problems += [f"decided twice: {key}" for key, n in decided.items() if n > 1]
    launched = Counter(e.data["job"] for e in events if e.kind == "job")
    problems += [f"job {job} intended {n} times" for job, n in launched.items() if n > 1]
    problems += double_launches(run_dir, state)
    if left := jobs_alive(run_dir):
        problems.append(f"processes left: {left}")
    if reference is not None and outcome(run_dir) != reference:
        problems.append("the result differs from that of an undisturbed run")
    return problems


def double_launches(run_dir: RunDir, state: RunState) -> list[str]:
    """Trials whose status stream holds more launches than the trial has jobs."""
    problems = []
    for trial in state.trials.values():
        for status in (run_dir.jobs / trial.id).glob("results/*/status.json"):
            launches = status.read_text(errors="replace").count('"Starting Training Loop."')
            if launches > len(trial.jobs):
                problems.append(f"{trial.id}: {launches} launches of {len(trial.jobs)} jobs")
    return problems


def jobs_alive(run_dir: RunDir) -> list[int]:
    """Processes whose command line names this run's jobs."""
    needle = str(run_dir.jobs).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if needle in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


if __name__ == "__main__":
    sys.exit(main())
