#!/usr/bin/env python3
"""Provoke each kind of failure in a whole run, and show what its user sees.

    scripts/show_failures.py            # all of them, some minutes
    scripts/show_failures.py oom data   # these

Every case is a real search over the stand-in network on platform `local`; where the network
itself would not fail in that way, a shell function of its name stands in for it. The kinds of
broken links and missing machines are provoked by the tests of the platforms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import read_events
from tao_ray.trial.failure import FailureKind

_WAIT_S = 900.0


@dataclass(frozen=True)
class Case:
    """kind: what must come of it. shell: the body of a function that replaces the network.

    config: sections that are merged into the configuration. stop: ask the run to stop.
    """

    kind: FailureKind
    shell: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    stop: bool = False


def _says(text: str) -> str:
    return f"echo {text!r}; return 1"


CASES = [
    Case(FailureKind.OOM, "ulimit -v 400000; python -c 'bytes(10**10)'"),
    Case(FailureKind.NAN, _says("Loss is nan, stopping training")),
    Case(
        FailureKind.METRIC_MISSING,
        config={"objective": {"metric": "val_map", "direction": "maximize"}},
    ),
    Case(
        FailureKind.DATA, config={"data": {"dataset.train_dataset.images_dir": "{scratch}/empty"}}
    ),
    Case(FailureKind.SPEC, config={"model": {"overrides": {"train.optim.policy": "exponential"}}}),
    Case(
        FailureKind.BATCH,
        config={"model": {"overrides": {"dataset.train_sample_count": 3}}},
    ),
    Case(FailureKind.CODE, "python -c 'raise KeyError(\"neck\")'"),
    Case(FailureKind.DISK_FULL, 'python -c \'open("/dev/full", "w").write("x" * 99999)\''),
    Case(FailureKind.IMAGE_MISSING, "digits_of_nobody"),
    Case(FailureKind.IMAGE_ACCESS, _says("docker: pull access denied for nvcr.io/nvidia/tao")),
    Case(
        FailureKind.CREDENTIALS, _says("ClientError: (InvalidAccessKeyId) when calling GetObject")
    ),
    Case(FailureKind.PROVISION, _says("RuntimeError: Found no NVIDIA driver on your system.")),
    Case(FailureKind.MACHINE_LOST, "kill -9 $$"),
    Case(
        FailureKind.TIMEOUT,
        config={
            "failures": {"job_timeout_hours": 0.001},
            "model": {"overrides": {"train.seconds_per_epoch": 5.0}},
        },
    ),
    Case(
        FailureKind.BUDGET,
        config={
            "budget": {"hours": 0.004},
            "model": {"overrides": {"train.seconds_per_epoch": 5.0}},
        },
    ),
    Case(
        FailureKind.STOPPED_BY_USER,
        config={"model": {"overrides": {"train.seconds_per_epoch": 2.0}}},
        stop=True,
    ),
]


def main() -> int:
    """Run the cases; exit code 1 if one ended in another way than it should."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    names = [case.kind.value for case in CASES]
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(names)}")
    args = parser.parse_args()
    wrong = []
    for case in CASES:
        if args.kinds and case.kind.value not in args.kinds:
            continue
        with tempfile.TemporaryDirectory(prefix="failure-") as scratch:
            code, shown, seen = provoke(case, Path(scratch))
        print(f"=== {case.kind.value}: exit code {code}", flush=True)
        print(shown.rstrip(), flush=True)
        if seen != {case.kind.value}:
            wrong.append(f"{case.kind.value} ended as {', '.join(seen) or 'no failure'}")
    print("\n".join(wrong) if wrong else "every kind was provoked")
    return 1 if wrong else 0


def provoke(case: Case, scratch: Path) -> tuple[int, str, set[str]]:
    """Exit code, what the user sees from the first trouble on, and the kinds that were recorded."""
    (scratch / "empty").mkdir()
    (scratch / "activate").write_text(
        f"digits_mlp() {{ {case.shell}; }}\n" if case.shell else ":\n"
    )
    config: dict[str, Any] = {
        "name": "failing",
        "results": str(scratch / "runs"),
        "model": {"package": "digits_mlp"},
        "platform": {"kind": "local", "activate": str(scratch / "activate")},
        "search": {"algorithm": "random", "trials": 4, "max_epochs": 3},
    }
    for section, values in case.config.items():
        config[section] = {**config.get(section, {}), **values}
    text = yaml.safe_dump(config).replace("{scratch}", str(scratch))
    path = scratch / "failing.yaml"
    path.write_text(text)
    command = [sys.executable, "-m", "tao_ray.tune", str(path), "--yes"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if case.stop:
        _stop_after_an_epoch(scratch / "runs" / "failing", driver)
    out, _ = driver.communicate(timeout=_WAIT_S)
    _, blank, ending = out.partition("\n\n")
    runs = RunDir.all(scratch / "runs" / "failing")
    result = json.loads(runs[0].result.read_text()) if runs and runs[0].result.exists() else {}
    seen = {failure["kind"] for failure in result.get("failures", ())}
    if not seen and "budget." in (result.get("run", {}).get("reason") or ""):
        seen = {FailureKind.BUDGET.value}
    if not seen and result.get("status") == "interrupted":
        seen = {FailureKind.STOPPED_BY_USER.value}
    return driver.returncode, ending if blank else out, seen


def _stop_after_an_epoch(directory: Path, driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline and driver.poll() is None:
        for run in RunDir.all(directory):
            if any(event.kind == "epoch" for event in read_events(run.journal)):
                stop = [sys.executable, "-m", "tao_ray.cli", "stop", str(run.path)]
                subprocess.run(stop, check=False, capture_output=True)
                return
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
