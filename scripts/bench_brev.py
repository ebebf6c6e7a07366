#!/usr/bin/env python3
"""How much of the rented time trains, and how fast an epoch is decided, on the emulated Brev.

    scripts/bench_brev.py --trials 40 --machines 8

One second here stands for 30: a boot of 20 s for 10 min, an image pull of 10 s for 5 min, an epoch
of 1 s for one of 30 s, and a full training of 360 epochs for three hours (a trial that is stopped
at the first rung trains 40 epochs, 20 minutes). What this host's own processes need, such as the
start of a job, is not scaled: it weighs 30 times as much as it would.

Prints training seconds over billed seconds, with warm machines and with one machine for each job,
where the other billed seconds went, and the time from an epoch's line on the machine to the
scheduler's decision. On a host with a load above its cores the figures are that host's: decisions
come late, and machines train on meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests"))

from brev_emulator.emulator import Bill, BrevEmulator  # noqa: E402

from tao_ray.experiment.run_dir import RunDir  # noqa: E402
from tao_ray.journal import Event, read_events  # noqa: E402
from tao_ray.network.status import EpochReport, StatusReader  # noqa: E402
from tao_ray.platforms.ledger import Ledger  # noqa: E402
from tao_ray.trial.state import RunState  # noqa: E402

BOOT_S, PULL_S, EPOCH_S = 20.0, 10.0, 1.0
_LOOK_S = 0.05


def main() -> int:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=360)
    parser.add_argument("--only", choices=("reuse", "ephemeral"))
    parser.add_argument("--keep", type=Path, help="directory to keep the runs in")
    args = parser.parse_args()
    if reason := BrevEmulator.missing():
        print(reason)
        return 2
    for name, reuse in (("reuse", True), ("ephemeral", False)):
        if args.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
                directory = args.keep / name if args.keep else Path(scratch)
                measure(directory, name, reuse, args)
    return 0


def measure(directory: Path, name: str, reuse: bool, args: argparse.Namespace) -> None:
    """One search, and its figures."""
    with BrevEmulator(directory / "brev") as emulator:
        emulator.log_in()
        # The machine is ready once its image is there, so the pull is a part of the boot.
        emulator.delays(boot=BOOT_S, ssh=PULL_S, delete=1.0)
        python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        epoch = {"train.seconds_per_epoch": EPOCH_S, "dataset.batch_size": 32}
        config = {
            "name": "bench",
            "results": str(directory / "runs"),
            "baseline": "skip",
            "model": {"package": "digits_mlp", "overrides": epoch},
            "search": {
                "algorithm": "asha",
                # Nothing that would make an epoch take longer than its second on this host.
                "parameters": {
                    "train.optim.lr": {},
                    "train.optim.momentum": {},
                    "train.optim.weight_decay": {},
                },
                "trials": args.trials,
                "max_epochs": args.epochs,
                "max_concurrent": args.machines,
            },
            "platform": {
                "kind": "brev",
                "gpu": "L40S",
                "engine": "process",
                "reuse": reuse,
                "env": {"PATH": python, "PYTHONPATH": str(REPO)},
            },
        }
        path = directory / "bench.yaml"
        path.write_text(yaml.safe_dump(config))
        watch = Watch(emulator.directory / "instances")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tao_ray.tune", str(path), "--yes"],
            env=emulator.environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        took = time.monotonic() - began
        watch.close()
        (run,) = RunDir.all(directory / "runs" / "bench")
        events = read_events(run.journal)
        state = RunState.fold(events)
        epochs = [e for trial in state.trials.values() for e in trial.epochs.values()]
        trained = sum(e.seconds or EPOCH_S for e in epochs)
        billed = sum(bill.billed_s for bill in emulator.bills())
        late = latencies(events, watch.written)
        print(
            f"{name}: exit {done.returncode}, {len(state.trials)} trials, {len(epochs)} epochs on "
            f"{len(emulator.bills())} machines in {took:.0f} s; training / billed = "
            f"{trained / billed:.3f} ({len(epochs) * EPOCH_S / billed:.3f} if epochs were exact); "
            "epoch to decision: median "
            f"{statistics.median(late):.2f} s, p95 {late[int(len(late) * 0.95)]:.2f} s; "
            f"left: {emulator.alive() or 'nothing'}; load of this host {os.getloadavg()[1]:.0f} on "
            f"{os.cpu_count()} cores",
            flush=True,
        )
        for what, seconds in breakdown(events, emulator.bills(), watch.written).items():
            print(f"    {seconds:7.1f} s, {100 * seconds / billed:4.1f} %: {what}", flush=True)


class Watch:
    """Notes when each epoch's line appears on an instance, whose clock is this host's."""

    def __init__(self, instances: Path):
        self.written: dict[tuple[str, int], float] = {}
        self._instances = instances
        self._readers: dict[Path, tuple[StatusReader, int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        rounds = 0
        while not self._over.wait(_LOOK_S):
            if rounds % 20 == 0:
                for path in self._instances.glob("*/var-tmp/*/*/*/results/train/status.json"):
                    self._readers.setdefault(path, (StatusReader(objective=None), 0))
            rounds += 1
            for path, (reader, at) in self._readers.items():
                with open(path, "rb") as file:
                    file.seek(at)
                    data = file.read()
                self._readers[path] = reader, at + len(data)
                for event in reader.feed(data):
                    if isinstance(event, EpochReport):
                        key = (path.parents[2].name, event.epoch)
                        self.written.setdefault(key, time.time() - _LOOK_S / 2)


def breakdown(
    events: list[Event], bills: Sequence[Bill], written: Mapping[tuple[str, int], float]
) -> dict[str, float]:
    """Where the billed seconds went."""
    ledger = Ledger.fold(events)
    total = dict.fromkeys(
        (
            "boot and pull",
            "between two jobs, or before the first",
            "after the last job",
            "a job's launch",
            "its first epoch's delay",
            "its epochs, beyond their own seconds",
            "from its last epoch to its end",
            "training",
        ),
        0.0,
    )
    boot, between, after, launch, first, slow, ending, training = total
    lines: dict[str, list[float]] = {}
    for (workspace, _), at in written.items():
        lines.setdefault(workspace, []).append(at)
    for bill in bills:
        machine = ledger.machines[bill.name]
        at = machine.ready or bill.deleted or bill.created
        total[boot] += at - bill.created
        leases = [x for x in ledger.leases.values() if x.machine == bill.name]
        for lease in sorted(leases, key=lambda lease: lease.leased):
            over, started = lease.returned or at, lease.started or lease.leased
            total[between] += lease.leased - at
            total[launch] += started - lease.leased
            own = sorted(t for t in lines.get(lease.workspace, []) if started <= t <= over)
            if own:
                total[first] += own[0] - started - EPOCH_S
                total[slow] += own[-1] - own[0] - (len(own) - 1) * EPOCH_S
                total[training] += len(own) * EPOCH_S
                total[ending] += over - own[-1]
            else:
                total[ending] += over - started
            at = over
        total[after] += bill.created + bill.billed_s - at
    return total


def latencies(events: list[Event], written: Mapping[tuple[str, int], float]) -> list[float]:
    """Seconds from an epoch's line to its decision."""
    decided = {(e.trial, e.data["epoch"]): e.time for e in events if e.kind == "decision"}
    return sorted(decided[key] - at for key, at in written.items() if key in decided) or [0.0]


if __name__ == "__main__":
    sys.exit(main())
