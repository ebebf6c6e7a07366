"""Whole searches on the emulated Brev: real SSH servers, real Docker Engines if there are any."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from brev_emulator import machines as emulated
from brev_emulator.docker import IMAGE, docker_missing, docker_tool
from brev_emulator.emulator import BrevEmulator
from test_search import crash_script

from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import read_events
from tao_ray.platforms.ledger import Ledger
from tao_ray.trial.state import RunState

pytestmark = pytest.mark.slow
WAIT_S = 600
REPO = Path(__file__).resolve().parents[2]
SECRET = "a-value-nobody-may-see"


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[BrevEmulator]:
    if reason := BrevEmulator.missing():
        pytest.skip(reason)
    if not emulated.can_be_private():
        pytest.skip("instances cannot have a /var/tmp of their own here: mounts need root")
    with BrevEmulator(tmp_path / "brev") as made:
        made.log_in()
        made.delays(boot=1.0, ssh=0.5, delete=0.5)
        yield made


class Searches:
    """Starts drivers of one configuration, and looks at what they do."""

    def __init__(self, directory: Path, emulator: BrevEmulator):
        self.directory = directory
        self.emulator = emulator

    def write(self, **sections: Any) -> None:
        python = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO)}
        config: dict[str, Any] = {
            "name": "b",
            "results": str(self.directory / "runs"),
            "model": {"package": "digits_mlp", "overrides": {"train.seconds_per_epoch": 0.3}},
            "search": {"algorithm": "asha", "trials": 6, "max_epochs": 9, "max_concurrent": 2},
            "platform": {
                "kind": "brev",
                "gpu": "L40S",
                "engine": "process",
                "ready_timeout": 60,
                "orphan_grace": 60,
                "env": {**python, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            },
        }
        for section, values in sections.items():
            old = config.get(section, {})
            config[section] = {**old, **values} if isinstance(values, dict) else values
        (self.directory / "b.yaml").write_text(yaml.safe_dump(config))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tao_ray.tune", "b.yaml", "--yes", *arguments],
            cwd=self.directory,
            env={**self.emulator.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def run(self) -> RunDir:
        (run,) = RunDir.all(self.directory / "runs" / "b")
        return run

    def state(self) -> RunState:
        found = RunDir.all(self.directory / "runs" / "b")
        return RunState.fold(read_events(found[0].journal)) if found else RunState()

    def epochs(self) -> int:
        return sum(len(trial.epochs) for trial in self.state().trials.values())


@pytest.fixture
def searches(tmp_path: Path, emulator: BrevEmulator) -> Searches:
    return Searches(tmp_path, emulator)


def until(holds: Callable[[], Any], driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert driver.poll() is None, driver.communicate()[0]
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def finished(driver: subprocess.Popen[str], *codes: int) -> str:
    out, _ = driver.communicate(timeout=WAIT_S)
    assert driver.returncode in codes, out
    return out


def agrees_with_the_account(run: RunDir, emulator: BrevEmulator, *vanished: str) -> None:
    """Nothing is left, and every machine's bill is the ledger's, to the second.

    vanished: nobody says when these were gone, so the ledger has them until that was noticed.
    """
    assert emulator.alive() == []
    ledger = Ledger.fold(read_events(run.journal))
    assert ledger.existing() == []
    billed: dict[str, float] = {}
    for bill in emulator.bills():
        billed[bill.name] = billed.get(bill.name, 0.0) + bill.billed_s
    assert set(billed) == {m.name for m in ledger.machines.values() if m.rents}
    now = time.time()
    for name, seconds in billed.items():
        late = 15.0 if name in vanished else 0.0
        off = ledger.machines[name].seconds(now) - seconds
        assert -1.0 < off < 1.0 + late, (name, off)
    if not vanished:
        total = sum(machine.seconds(now) for machine in ledger.machines.values())
        assert total == pytest.approx(sum(billed.values()), abs=1.0)


def test_the_main_job_in_containers_killed_and_resumed(
    searches: Searches, emulator: BrevEmulator, tmp_path: Path
) -> None:
    if reason := docker_missing():
        pytest.skip(reason)
    emulator.change(tools=docker_tool(tmp_path))
    mounts = {"/usr": "/usr:ro"}
    mounts |= {path: f"{path}:ro" for path in (sys.prefix, sys.base_prefix, str(REPO))}
    searches.write(
        model={"image": IMAGE},
        search={"trials": 12, "max_concurrent": 4},
        platform={
            "engine": "docker",
            "machines": 4,
            "mounts": mounts,
            "network": "host",
            "ulimits": {},
            "shm_size": "64m",
            "pass_env": ["A_TOKEN"],
        },
    )
    seen = ArgumentWatch()
    driver = searches.start(A_TOKEN=SECRET)
    until(lambda: searches.epochs() >= 8, driver)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver = searches.start("--resume", A_TOKEN=SECRET)
    out = finished(driver, 0)
    assert seen.close() == [], "the secret was on a command line"
    run = searches.run
    assert crash_script().check(run, None) == [], out
    result = json.loads(run.result.read_text())
    assert [t["id"] for t in result["trials"]] == [f"{n:04d}" for n in range(12)]
    assert Path(result["best"]["checkpoint"]["path"]).is_file()
    assert result["final_evaluation"]["status"] == "measured"
    assert len(result["cost"]["machines"]) >= 4
    assert sum(result["cost"]["by_trial"].values()) < result["cost"]["usd"]
    agrees_with_the_account(run, emulator)
    assert leaks([run.path, *(tmp_path / "brev").rglob("home")]) == []


def test_the_search_goes_on_with_the_machine_of_the_baseline(
    searches: Searches, emulator: BrevEmulator
) -> None:
    searches.write(baseline="train", search={"algorithm": "random", "trials": 2, "max_epochs": 3})
    out = finished(searches.start(), 0)
    ledger = Ledger.fold(read_events(searches.run.journal))
    first = ledger.leases["train-baseline-1"].machine
    assert {ledger.leases[f"{n:04d}-1"].machine for n in range(2)} >= {first}, out
    assert len(emulator.bills()) == 2
    agrees_with_the_account(searches.run, emulator)


def test_a_vanished_machine_costs_no_more_than_the_epochs_since_the_last_copy(
    searches: Searches, emulator: BrevEmulator
) -> None:
    searches.write(
        model={"overrides": {"train.seconds_per_epoch": 1.0}},
        search={"algorithm": "random", "trials": 2},
    )
    driver = searches.start()
    kept = searches.directory / "runs"
    copies = "b/*/kept/*/files/results/train/model_epoch_00[1-9]*"
    until(lambda: list(kept.glob(copies)), driver)
    gone = emulator.alive()[0]
    emulator.vanish(gone)
    out = finished(driver, 0)
    state = searches.state()
    (lost,) = [trial for trial in state.trials.values() if trial.retries]
    assert lost.status == "completed", out
    assert lost.jobs[-1].resume_epoch >= 1
    assert sorted(lost.epochs) == list(range(1, 10))
    agrees_with_the_account(searches.run, emulator, gone)


def test_at_the_cap_the_run_ends_resumable_and_goes_on_with_more(
    searches: Searches, emulator: BrevEmulator
) -> None:
    emulator.price("l40s-1x.north", 600.0)  # ten a minute; two minutes are held back
    searches.write(
        model={"overrides": {"train.seconds_per_epoch": 1.0}},
        search={"algorithm": "random", "trials": 8, "max_concurrent": 1},
        platform={"type": "l40s-1x.north"},
        budget={"cost_usd": 28.0},
    )
    out = finished(searches.start("--accept-long"), 3, 4)
    assert "budget.cost_usd, 28 USD, is used up" in out
    assert "go on with: tao-ray resume" in out
    assert emulator.alive() == []
    assert sum(bill.cost for bill in emulator.bills()) < 28.0
    out = finished(searches.start("--accept-long", "--resume", "--set", "budget.cost_usd=1000"), 0)
    assert crash_script().check(searches.run, None) == [], out
    agrees_with_the_account(searches.run, emulator)


def test_the_baseline_has_a_cap_of_its_own_and_trials_are_evaluated_on_their_machines(
    searches: Searches, emulator: BrevEmulator, tmp_path: Path
) -> None:
    emulator.price("l40s-1x.north", 600.0)  # twenty are held back for winding down
    (tmp_path / "s.yaml").write_text(f"results_dir: {tmp_path}/start\ntrain: {{num_epochs: 1}}")
    train = [sys.executable, "-m", "tao_ray.standin", "train", "-e", str(tmp_path / "s.yaml")]
    subprocess.run(train, check=True, capture_output=True)
    searches.write(
        model={"checkpoint": str(tmp_path / "start" / "train" / "model_epoch_000.pth")},
        search={"trials": 2, "exclude": ["model.hidden_dim"]},
        objective={"source": "evaluate"},
        data={"on_instance": True},
        platform={"type": "l40s-1x.north"},
        budget={"baseline_usd": 20.1},
    )
    out = finished(searches.start(), 3)
    assert "first the baseline, one job at 600.00 USD/h, at most 20.1 USD" in out
    assert "the baseline was stopped: budget.baseline_usd, 20.1 USD, is used up" in out
    assert emulator.alive() == []
    assert searches.state().trials == {}
    out = finished(searches.start("--resume", "--set", "budget.baseline_usd=100"), 0)
    result = json.loads(searches.run.result.read_text())
    assert result["baseline"]["status"] == "measured", out
    assert result["objective"]["metric"] == "test_acc_1"
    state = searches.state()
    for trial in result["trials"]:
        record = state.trials[trial["id"]].evaluation
        assert trial["metric"] == record["metric"]
        assert f"eval-{trial['id']}" in result["cost"]["by_trial"]
    assert result["final_evaluation"]["status"] == "reused"
    agrees_with_the_account(searches.run, emulator)


def test_a_short_chaos(emulator: BrevEmulator) -> None:
    del emulator  # it only says whether there can be one
    script = [sys.executable, str(REPO / "scripts" / "chaos.py")]
    done = subprocess.run(
        [*script, "--seed", "3", "--faults", "3", "--per-run", "3"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class ArgumentWatch:
    """Looks at all command lines of this host for the secret."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    try:
                        line = (process / "cmdline").read_bytes()
                    except OSError:
                        continue
                    if SECRET.encode() in line:
                        self._found.append(line.decode(errors="replace"))

    def close(self) -> list[str]:
        self._over.set()
        self._thread.join()
        return self._found


def leaks(roots: list[Path]) -> list[str]:
    """Files that hold the secret."""
    found = []
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes():
                found.append(str(path))
    return found
