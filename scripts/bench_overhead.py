#!/usr/bin/env python3
"""What supervision costs: latency, turnover and memory with many trials in flight.

    scripts/bench_overhead.py                  # 4, 16 and 64 trials in flight
    scripts/bench_overhead.py --in-flight 16

For each number of trials in flight it runs a real search over the stand-in network on platform
`local`, whose epochs take unequally long in different trials, as trainings do, and prints

* latency: from the moment an epoch's line is on disk to the scheduler's journalled decision,
* turnover: from the end of a job to the launch of the next one on the same slot,
* memory: PSS of the supervising processes per trial (PSS shares common pages fairly), and of the
  driver with the rest of Ray.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import yaml

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import Event, read_events
from tao_ray.trial.state import RunState


def main() -> int:
    """Run the sizes asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--in-flight", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    header = f"{'in flight':>9} {'epochs':>7} {'latency median':>15} {'p95':>8} {'max':>8}"
    print(
        f"{header} {'turnover median':>16} {'p95':>8} {'MiB/trial':>10} {'MiB rest':>9} {'wall':>7}"
    )
    for n in args.in_flight:
        print(measure(n, args.epochs), flush=True)
    return 0


def measure(n: int, epochs: int) -> str:
    """One line of figures for `n` trials in flight."""
    # Trials must outlast the start of all supervisors, or the first turnovers measure that.
    seconds = 0.25 if n <= 4 else 4.0 if n <= 16 else 20.0
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        config = {
            "name": "bench",
            "results": scratch,
            "model": {
                "package": "digits_mlp",
                "overrides": {"train.seconds_per_epoch": seconds},
            },
            "search": {
                "algorithm": "random",
                "parameters": {
                    "train.optim.lr": {"min": 1e-5, "max": 1e-2, "scale": "log"},
                    "train.seconds_per_epoch": {"min": 0.7 * seconds, "max": 1.3 * seconds},
                },
                "trials": n * 2,
                "max_epochs": epochs,
                "max_concurrent": n,
            },
        }
        path = Path(scratch, "bench.yaml")
        path.write_text(yaml.safe_dump(config))
        began = time.monotonic()
        driver = subprocess.Popen(
            [sys.executable, "-m", "tao_ray.tune", str(path), "--yes"], stdout=subprocess.DEVNULL
        )
        memory = Memory(driver.pid, n)
        driver.wait()
        memory.stop()
        wall = time.monotonic() - began
        if driver.returncode:
            return f"{n:>9} failed with exit code {driver.returncode}"
        events = read_events(RunDir.all(Path(scratch, "bench"))[0].journal)
    latencies = decision_latencies(events)
    gaps = turnovers(events, n)
    return (
        f"{n:>9} {len(latencies):>7} {statistics.median(latencies):>13.3f} s"
        f" {quantile(latencies, 0.95):>6.3f} s {max(latencies):>6.3f} s"
        f" {statistics.median(gaps):>14.2f} s {quantile(gaps, 0.95):>6.2f} s"
        f" {memory.per_trial:>10.0f} {memory.rest:>9.0f} {wall:>5.0f} s"
    )


def decision_latencies(events: list[Event]) -> list[float]:
    """Seconds from each epoch's line on disk to its decision in the journal."""
    seen = {(e.trial, e.data["epoch"]): e.data["seen"] for e in events if e.kind == "epoch"}
    return [
        e.time - start
        for e in events
        if e.kind == "decision" and (start := seen.get((e.trial, e.data["epoch"]))) is not None
    ]


def turnovers(events: list[Event], n: int) -> list[float]:
    """Seconds from a job's end to the launch of the one that takes its slot.

    The first `n` jobs find their slots free; each later one takes the slot that was freed the
    longest ago.
    """
    state = RunState.fold(events)
    jobs = [j for t in state.trials.values() for j in t.jobs if j.launched and j.ended]
    ends = sorted(j.ended for j in jobs if j.ended)
    launches = sorted(j.launched for j in jobs if j.launched)[n:]
    return [launch - end for end, launch in zip(ends, launches, strict=False)]


def quantile(values: list[float], q: float) -> float:
    """The q-quantile."""
    return sorted(values)[min(int(q * len(values)), len(values) - 1)]


class Memory:
    """Samples the memory of a driver's process tree while it runs; keeps the busiest moment."""

    def __init__(self, pid: int, in_flight: int):
        self.per_trial = self.rest = 0.0
        self._most = 0
        self._in_flight = in_flight
        self._driver = psutil.Process(pid)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End sampling."""
        self._stopping.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stopping.wait(5.0 if self._in_flight > 16 else 1.0):
            trials, rest = [], 0.0
            try:
                processes = [self._driver, *self._driver.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in processes:
                try:
                    title = " ".join(process.cmdline())
                    pss = process.memory_full_info().pss / 2**20
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                if "TrialTrainable" in title:
                    trials.append(pss)
                else:
                    rest += pss
            if trials and len(trials) >= self._most:
                self._most = len(trials)
                self.per_trial, self.rest = statistics.mean(trials), rest


if __name__ == "__main__":
    sys.exit(main())
