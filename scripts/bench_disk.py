#!/usr/bin/env python3
"""What retention saves: peak and final bytes of a search's checkpoints, with and without it.

    scripts/bench_disk.py                       # 24 trials, 50 MB per checkpoint
    scripts/bench_disk.py --checkpoint-mb 5

Runs a real ASHA search over the stand-in network on platform `local`, once per retention mode,
with its results in a bucket (`file://`), and looks at both places several times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import yaml

_LOOK_EVERY_S = 0.2
_MB = 1e6


def main() -> int:
    """Run both modes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--concurrent", type=int, default=4)
    parser.add_argument("--checkpoint-mb", type=float, default=50.0)
    parser.add_argument("--seconds-per-epoch", type=float, default=1.0)
    args = parser.parse_args()
    columns = (
        "retention",
        "written MB",
        "peak MB",
        "final MB",
        "peak of a trial MB",
        "bucket's peak MB",
        "bucket's final MB",
        "best",
    )
    print("  ".join(columns), flush=True)
    for mode in ("manual", "auto"):
        with tempfile.TemporaryDirectory(prefix="bench-disk-") as scratch:
            print(measure(mode, args, Path(scratch)), flush=True)
    return 0


def measure(mode: str, args: argparse.Namespace, scratch: Path) -> str:
    """One line of figures."""
    config = {
        "name": "bench",
        "results": f"file://{scratch}/bucket",
        "model": {
            "package": "digits_mlp",
            "overrides": {
                "train.seconds_per_epoch": args.seconds_per_epoch,
                "train.checkpoint_mb": args.checkpoint_mb,
            },
        },
        "search": {
            "algorithm": "asha",
            "trials": args.trials,
            "max_epochs": args.epochs,
            "max_concurrent": args.concurrent,
            "seed": 1,
        },
        "retention": {"mode": mode},
    }
    path = scratch / "bench.yaml"
    path.write_text(yaml.safe_dump(config))
    places = scratch / "runs", scratch / "bucket"
    peaks = [0, 0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK_EVERY_S):
            peaks[:] = [max(peak, size(place)) for peak, place in zip(peaks, places, strict=True)]

    watcher = threading.Thread(target=watch)
    watcher.start()
    command = [sys.executable, "-m", "tao_ray.tune", str(path), "--yes"]
    run = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    done.set()
    watcher.join()
    if run.returncode:
        sys.exit(f"the search failed:\n{run.stdout}\n{run.stderr}")
    (result_path,) = scratch.glob("runs/bench/*/result.json")
    result = json.loads(result_path.read_text())
    retention = result["retention"]
    figures = (
        retention["deleted_bytes"] + retention["kept_bytes"],
        peaks[0],
        size(places[0]),
        max(retention["peak_bytes_per_trial"].values()),
        peaks[1],
        size(places[1]),
    )
    shown = "  ".join(f"{figure / _MB:.0f}" for figure in figures)
    return f"{mode}  {shown}  trial {result['best']['trial']} {result['best']['metric']:.4f}"


def size(place: Path) -> int:
    """Bytes of the checkpoints there now."""
    total = 0
    for directory, _, names in os.walk(place):
        for name in names:
            if name.endswith(".pth"):
                try:
                    status = os.lstat(os.path.join(directory, name))
                except FileNotFoundError:
                    continue
                total += status.st_size
    return total


if __name__ == "__main__":
    sys.exit(main())
