#!/usr/bin/env python3
"""Searches on the emulated Brev while everything that can go wrong does.

    scripts/chaos.py --seed 1 --faults 200

Each run is a real search over the stand-in network on real SSH servers - every third one in
containers of real Docker Engines, where one can be started -, disturbed at random moments and
resumed until it is done. It passes if it ends with nothing rented, every trial's curve has no
gap and no epoch decided twice, no job was started twice, and no machine's bill is above the ledger.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests"), str(REPO / "scripts")]

import crash  # noqa: E402
from brev_emulator.docker import IMAGE, docker_missing, docker_tool  # noqa: E402
from brev_emulator.emulator import BrevEmulator  # noqa: E402

from tao_ray.experiment.run_dir import RunDir  # noqa: E402
from tao_ray.journal import read_events  # noqa: E402
from tao_ray.locks import try_lock  # noqa: E402
from tao_ray.platforms.ledger import Ledger  # noqa: E402

GRACE_S = 20.0
RUN_TIMEOUT_S = 900.0
COMMANDS = ("ls", "create", "delete", "refresh")
CONTAINERS = {
    "engine": "docker",
    # The image is empty: what runs in it is this host's.
    "mounts": {"/usr": "/usr:ro"}
    | {path: f"{path}:ro" for path in (sys.prefix, sys.base_prefix, str(REPO))},
    "network": "host",
    "ulimits": {},
    "shm_size": "64m",
}


class Run:
    """One search and what happens to it."""

    def __init__(self, directory: Path, rng: random.Random, docker: bool):
        self.directory = directory
        self.rng = rng
        self.docker = docker
        self.emulator = BrevEmulator(directory / "brev")
        self.emulator.log_in()
        self.emulator.delays(boot=0.5, ssh=0.3, delete=0.3)
        self.driver: subprocess.Popen[str] | None = None
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.done: Counter[str] = Counter()
        python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._config = directory / "c.yaml"
        self._config.write_text(
            yaml.safe_dump(
                {
                    "name": "c",
                    "results": str(directory / "runs"),
                    "model": {
                        "package": "digits_mlp",
                        "overrides": {"train.seconds_per_epoch": 1.0},
                        **({"image": IMAGE} if docker else {}),
                    },
                    "search": {
                        "algorithm": "asha",
                        "trials": 6,
                        "max_epochs": 9,
                        "max_concurrent": 2,
                    },
                    "failures": {"max_retries": 20},
                    "platform": {
                        "kind": "brev",
                        "gpu": "L40S",
                        "engine": "process",
                        "ready_timeout": 60 if docker else 20,
                        "lost_after": 10,
                        "orphan_grace": GRACE_S,
                        "env": {"PATH": python, "PYTHONPATH": str(REPO)},
                        **(CONTAINERS if docker else {}),
                    },
                }
            )
        )
        if docker:
            self.emulator.change(tools=docker_tool(directory))

    def go(self, faults: int) -> list[str]:
        """Disturb it so often, see it to its end; what is wrong then."""
        began = time.monotonic()
        moments = sorted(self.rng.uniform(8.0, 50.0) for _ in range(faults))
        self.start()
        while True:
            now = time.monotonic() - began
            if now > RUN_TIMEOUT_S:
                return [f"no end after {RUN_TIMEOUT_S:.0f} s", *self.end()]
            for due in [x for x in self.later if x[0] <= now]:
                self.later.remove(due)
                due[1]()
            if moments and now >= moments[0]:
                moments.pop(0)
                self.disturb(now)
            if self.driver is not None and (code := self.driver.poll()) is not None:
                self.driver = None
                if code == 0:
                    break
                self.start()
            time.sleep(0.1)
        return self.end()

    def start(self) -> None:
        """Start the driver, or go on with what an earlier one has left."""
        runs = RunDir.all(self.directory / "runs" / "c")
        again = ["--resume", str(runs[0].path)] if runs else []
        log = open(self.directory / "driver.txt", "a")  # noqa: SIM115 - the driver's from here on
        self.driver = subprocess.Popen(
            [sys.executable, "-m", "tao_ray.tune", str(self._config), "--yes", *again],
            env=self.emulator.environment,
            cwd=self.directory,
            stdout=log,
            stderr=log,
            text=True,
        )
        log.close()

    def disturb(self, now: float) -> None:
        """One fault, chosen at random; one of a machine waits until there is one."""
        kinds = [self.kill_driver, self.kill_driver_for_long, self.cli, self.create, self.refuse]
        of_machines = [self.cut_link, self.freeze, self.vanish, self.kill_machine]
        if self.docker:
            of_machines.append(self.kill_docker)
        kind = self.rng.choice([*kinds, *of_machines])
        if kind in kinds:
            self.done[kind.__name__] += 1
            kind(now, "")
        else:
            self.harm(kind, now)

    def harm(self, kind: Callable[[float, str], None], now: float) -> None:
        """A fault of some machine, as soon as there is one."""
        if alive := self.emulator.alive():
            self.done[kind.__name__] += 1
            kind(now, self.rng.choice(alive))
        else:
            self.later.append((now + 0.5, lambda: self.harm(kind, now + 0.5)))

    def kill_driver(self, now: float, name: str) -> None:
        self._kill()
        self.later.append((now + self.rng.uniform(0.0, 8.0), self._restart))

    def kill_driver_for_long(self, now: float, name: str) -> None:
        """Only the reaper is left; it deletes everything."""
        self._kill()
        self.later.append((now + GRACE_S + self.rng.uniform(5.0, 25.0), self._restart))

    def cli(self, now: float, name: str) -> None:
        effect = self.rng.choice(("401", "eof", "garbage", "network", "server", "slow", "empty"))
        command = self.rng.choice((*COMMANDS, "*"))
        if command in ("create", "*") and effect not in ("server",):
            command = "ls"
        self.emulator.fault(command, effect, self.rng.randint(1, 3), value=3.0)

    def create(self, now: float, name: str) -> None:
        effects = ("lost_response", "half_built", "failure", "create_failed", "mute", "duplicate")
        self.emulator.fault("create", self.rng.choice(effects))

    def refuse(self, now: float, name: str) -> None:
        self.emulator.fault("delete", self.rng.choice(("refused", "ignored")), 2)

    def cut_link(self, now: float, name: str) -> None:
        self._on(name, self.emulator.kill_sshd)
        self.later.append(
            (now + self.rng.uniform(1.0, 15.0), lambda: self._on(name, self.emulator.restart))
        )

    def freeze(self, now: float, name: str) -> None:
        self._on(name, self.emulator.freeze)
        self.later.append(
            (now + self.rng.uniform(1.0, 30.0), lambda: self._on(name, self.emulator.thaw))
        )

    def vanish(self, now: float, name: str) -> None:
        self._on(name, self.emulator.vanish)

    def kill_machine(self, now: float, name: str) -> None:
        """Dead, but shown as RUNNING, and billed."""
        self._on(name, self.emulator.kill)

    def kill_docker(self, now: float, name: str) -> None:
        """Its containers end when it is started again. Waits until there is one."""
        with contextlib.suppress(KeyError):
            if self.emulator.kill_docker(name):
                return
        self.done["kill_docker"] -= 1
        self.later.append((now + 0.5, lambda: self.harm(self.kill_docker, now + 0.5)))

    def end(self) -> list[str]:
        """What is wrong at the end."""
        self.emulator.clear_faults()
        problems = []
        deadline = time.monotonic() + GRACE_S + 90.0
        while self.emulator.alive() and time.monotonic() < deadline:
            time.sleep(0.5)
        problems += [f"left: {name}" for name in self.emulator.alive()]
        (run,) = RunDir.all(self.directory / "runs" / "c")
        if not self.reaper_ends(run):
            problems.append("the reaper goes on")
        problems += crash.check(run, None)
        problems += self.started_twice(run)
        ledger = Ledger.fold(read_events(run.journal))
        problems += [f"in the ledger: {m.name}" for m in ledger.existing()]
        billed: dict[str, float] = {}
        for bill in self.emulator.bills():
            billed[bill.name] = billed.get(bill.name, 0.0) + bill.billed_s
        for name, seconds in sorted(billed.items()):
            if name not in ledger.machines:
                problems.append(f"not in the ledger: {name}")
            elif ledger.machines[name].seconds(time.time()) < seconds - 1.0:
                problems.append(f"the ledger has less than the account: {name}")
        self.emulator.stop_all()
        return problems

    def reaper_ends(self, run: RunDir) -> bool:
        """Wait for it: without the run's directory and `brev` it would never know that it may."""
        with open(run.path / "reaper.lock", "a") as lock:
            return try_lock(lock, 20.0)

    def started_twice(self, run: RunDir) -> list[str]:
        """Jobs that were started on more than one machine, those that were lost with it aside:
        an evaluation is run again then, under its name."""
        of_machines = [e.data for e in read_events(run.journal) if e.kind == "machine"]
        lost = {data["name"] for data in of_machines if data["what"] == "lost"}
        started = Counter(
            path.parent.name
            for path in (self.directory / "brev").glob("instances/*/var-tmp/*/*/.jobs/*/started")
        )
        for data in of_machines:
            if data["what"] == "leased" and data["job"].startswith("eval-"):
                started[data["job"]] -= data["name"] in lost
        return [f"job {job} was started on {n} machines" for job, n in started.items() if n > 1]

    def _kill(self) -> None:
        if self.driver is not None:
            os.kill(self.driver.pid, signal.SIGKILL)
            self.driver.wait()
            self.driver = None

    def _restart(self) -> None:
        if self.driver is None:
            self.start()

    def _on(self, name: str, what: Callable[[str], None]) -> None:
        with contextlib.suppress(KeyError):  # it may have been deleted meanwhile
            what(name)


def main() -> int:
    """Run searches until so many faults were done; exit code 1 if any run failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--per-run", type=int, default=4, help="faults in each run, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="directory to keep the runs in")
    args = parser.parse_args()
    if reason := BrevEmulator.missing():
        print(reason)
        return 2
    rng = random.Random(args.seed)
    total: Counter[str] = Counter()
    failed = n = 0
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as scratch:
        root = args.keep or Path(scratch)
        while total.total() < args.faults:
            directory = root / f"run{n}"
            directory.mkdir(parents=True)
            docker = n % 3 == 2 and docker_missing() is None
            run = Run(directory, random.Random(rng.random()), docker)
            try:
                planned = min(args.faults - total.total(), rng.randint(1, 2 * args.per_run - 1))
                problems = run.go(planned)
            finally:
                run.emulator.stop_all()
            total += run.done
            failed += bool(problems)
            shown = ", ".join(f"{k} x{v}" if v > 1 else k for k, v in run.done.items())
            verdict = "; ".join(problems) or "complete, nothing rented, nothing twice"
            where = " in containers" if docker else ""
            print(f"run {n}{where}: {shown or 'nothing'}: {verdict}", flush=True)
            n += 1
    print(f"{n - failed} of {n} runs passed, {total.total()} faults: {dict(total)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
