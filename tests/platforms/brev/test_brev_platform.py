"""The platform `brev` on the emulated account, with real SSH servers and real jobs: machines are
made, used, lost, and never left behind, whatever becomes of the driver."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import paramiko
import pytest
from brev_emulator import machines as emulated
from brev_emulator.emulator import BrevEmulator
from rich.console import Console

from tao_ray.config import BrevPlatformConfig
from tao_ray.experiment.before_search import give_back
from tao_ray.experiment.machines import machines
from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import FILE_NAME, Journal, read_events
from tao_ray.platforms import (
    CapacityError,
    Check,
    Exit,
    Heartbeat,
    Job,
    JobHandle,
    LinkError,
    StatusLine,
)
from tao_ray.platforms.brev.names import machine_name
from tao_ray.platforms.brev.platform import BrevPlatform
from tao_ray.platforms.host_keys import HostKeys
from tao_ray.platforms.ledger import Ledger
from tao_ray.platforms.opening import open_platform

WAIT_S = 90.0


@pytest.fixture(autouse=True)
def account(emulator: BrevEmulator, monkeypatch: pytest.MonkeyPatch) -> BrevEmulator:
    """This process meets the emulated Brev."""
    if not emulated.can_be_private():
        pytest.skip("instances cannot have a /var/tmp of their own here: mounts need root")
    for name in ("PATH", "HOME", "BREV_EMULATOR"):
        monkeypatch.setenv(name, emulator.environment[name])
    return emulator


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory."""
    directory = tmp_path / "runs" / "r" / "now"
    directory.mkdir(parents=True)
    return directory


def config(**changes: Any) -> BrevPlatformConfig:
    settings = {
        "kind": "brev",
        "gpu": "L40S",
        "engine": "process",
        "machines": 2,
        "ready_timeout": 40.0,
        "orphan_grace": 2.0,
        "lost_after": 3.0,
        "env": {"PATH": os.environ["PATH"]},
    }
    return BrevPlatformConfig(**{**settings, **changes})


def opened(run: Path, **changes: Any) -> BrevPlatform:
    platform, _ = open_platform(config(**changes), run / "jobs", 2)
    assert isinstance(platform, BrevPlatform)
    return platform


@pytest.fixture
def rented(run: Path) -> Iterator[BrevPlatform]:
    with closing(Journal(run / FILE_NAME)) as journal:
        platform = opened(run)
        platform.rent(journal)
        yield platform
        vacate(platform)


def vacate(platform: BrevPlatform) -> None:
    platform.vacate()
    until(lambda: not platform.left())
    platform.close()


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)
    return found


def launched(platform: BrevPlatform, job: Job) -> JobHandle:
    """As a supervisor does: again while there is no machine, or no link to it."""

    def there() -> JobHandle | None:
        try:
            return platform.launch(job)
        except (CapacityError, LinkError):
            return None

    handle = until(there)
    assert handle is not None
    return handle


def job(job_id: str, command: str = "echo '{}' >> status.json", **more: Any) -> Job:
    workspace = job_id.partition("-")[0]
    return Job(job_id, workspace, command, status_path="status.json", **more)


def ended(handle: JobHandle) -> Exit:
    last = list(handle.events())[-1]
    assert isinstance(last, Exit)
    return last


def ledger(run: Path) -> Ledger:
    return Ledger.fold(read_events(run / FILE_NAME))


def test_a_job_on_a_rented_machine(rented: BrevPlatform, run: Path, emulator: BrevEmulator) -> None:
    handle = launched(rented, job("a-1", "pwd; echo '{}' >> status.json"))
    events = list(handle.events())
    assert events[-1] == Exit(code=0)
    assert sum(isinstance(e, StatusLine) for e in events) == 1
    copy: BrevPlatform = pickle.loads(pickle.dumps(opened(run)))
    again = copy.attach("a-1")  # as `tao-ray logs` does, beside the driver
    assert again is not None
    assert again.poll() == Exit(code=0)
    launched(rented, job("b-1")).stop()
    assert len(emulator.bills()) == 1, "the machine is used again"
    vacate(rented)
    assert emulator.instances() == {}
    (bill,) = emulator.bills()
    (machine,) = ledger(run).machines.values()
    assert machine.rent is not None
    assert machine.rent.price_per_hour == bill.price_per_hour
    assert machine.seconds(time.time()) == pytest.approx(bill.billed_s, abs=2.0)


def test_a_trial_goes_on_from_its_copy_when_its_machine_is_lost(
    rented: BrevPlatform, run: Path, emulator: BrevEmulator, tmp_path: Path
) -> None:
    save = "mkdir -p results; echo one > results/one.pth; echo '{}' >> status.json; sleep 60"
    handle = launched(rented, job("a-1", save))
    until(lambda: "results/one.pth" in handle.list())
    rented.keep("a-1", ["results/one.pth"], last=False)
    name = ledger(run).leases["a-1"].machine
    emulator.vanish(name)

    def lost() -> Exit | None:
        try:
            found = rented.attach("a-1")
            assert found is not None
            return found.poll()
        except LinkError:
            return None

    assert until(lost).code is None
    found = rented.attach("a-1")
    assert found is not None
    assert found.list("results") == {"results/one.pth": 4}
    path = f"{rented.workspace('a')}/results/one.pth"
    second = launched(rented, job("a-2", f"cat {path}", needs=(path,)))
    assert ended(second).code == 0
    assert ledger(run).leases["a-2"].machine != name
    second.fetch("results/one.pth", str(tmp_path / "one"))
    assert (tmp_path / "one").read_text() == "one\n"


def test_a_file_on_another_machine_is_brought(rented: BrevPlatform, run: Path) -> None:
    donor = launched(rented, job("a-1", "echo 42 > weights; sleep 60"))
    until(lambda: "weights" in donor.list())
    path = f"{rented.workspace('a')}/weights"
    heir = launched(rented, job("b-1", f"grep 42 {path}", needs=(path,)))
    assert ended(heir) == Exit(code=0)
    leases = ledger(run).leases
    assert leases["a-1"].machine != leases["b-1"].machine
    donor.stop(grace_s=1.0)


def test_what_is_kept_outlives_the_machine(rented: BrevPlatform, run: Path) -> None:
    handle = launched(rented, job("a-1", "echo '{}' >> status.json; echo said; echo 1 > best.pth"))
    ended(handle)
    rented.keep("a-1", ["best.pth"], last=True)
    vacate(rented)
    later = opened(run).attach("a-1")
    assert later is not None
    events = list(later.events())
    assert [type(e).__name__ for e in events] == ["StatusLine", "LogLine", "Exit"]
    assert events[-1] == Exit(code=0)
    assert Path(opened(run).kept("a")["best.pth"]).read_text() == "1\n"


def test_a_machine_that_never_answers_is_deleted_and_the_next_type_tried(
    rented: BrevPlatform, run: Path, emulator: BrevEmulator
) -> None:
    emulator.fault("create", "failure")
    launched(rented, job("a-1"))
    bills = emulator.bills()
    assert len(bills) == 2, [dict(e.data) for e in read_events(run / FILE_NAME)]
    first, second = bills
    assert not first.alive
    assert second.alive
    assert first.type != second.type


def test_another_instance_of_a_name_may_have_another_host_key(
    rented: BrevPlatform, run: Path
) -> None:
    name = machine_name("r/now", 1)
    HostKeys(run / "known_hosts").check(name, paramiko.RSAKey.generate(2048))
    assert ended(launched(rented, job("a-1"))).code == 0
    assert ledger(run).leases["a-1"].machine == name


@pytest.mark.slow
def test_a_job_where_only_the_cli_reaches_the_machines(run: Path, emulator: BrevEmulator) -> None:
    with closing(Journal(run / FILE_NAME)) as journal:
        platform = opened(run, link="exec")
        platform.rent(journal)
        handle = launched(platform, job("a-1", "echo '{}' >> status.json; echo 1 > best.pth"))
        events = list(handle.events())
        assert [type(e).__name__ for e in events if not isinstance(e, Heartbeat)] == [
            "StatusLine",
            "Exit",
        ]
        platform.keep("a-1", ["best.pth"], last=True)
        vacate(platform)
    assert Path(opened(run).kept("a")["best.pth"]).read_text() == "1\n"
    assert emulator.instances() == {}


@pytest.mark.slow
def test_machines_that_are_left_for_a_search_and_given_back(
    run: Path, emulator: BrevEmulator
) -> None:
    platform = opened(run)
    with (
        closing(Journal(run / FILE_NAME)) as journal,
        machines(platform, journal, print, keep=True),
    ):
        launched(platform, job("a-1"))
    platform.close()
    assert len(emulator.alive()) == 1
    give_back(RunDir(run), opened(run), Console())
    assert emulator.instances() == {}
    assert len(emulator.bills()) == 1
    assert ledger(run).existing() == []


DRIVER = """
import sys, time
from pathlib import Path
from tao_ray.config import BrevPlatformConfig
from tao_ray.journal import Journal
from tao_ray.platforms import CapacityError, Job, LinkError
from tao_ray.platforms.opening import open_platform
run = Path(sys.argv[1])
config = BrevPlatformConfig.model_validate_json(sys.argv[2])
platform, _ = open_platform(config, run / "jobs", 2)
platform.rent(Journal(run / "journal.sqlite", wait_s=60.0))
while True:
    for job in ("a-1", "b-1"):
        try:
            platform.launch(Job(job, job[0], "sleep 100"))
        except (CapacityError, LinkError):
            pass
    time.sleep(0.1)
"""


@pytest.mark.parametrize("moment", ["wanted", "asked", "created", "ready", "leased", "started"])
def test_a_killed_driver_leaves_nothing(run: Path, emulator: BrevEmulator, moment: str) -> None:
    emulator.delays(call=0.3, boot=1.5, ssh=0.3)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(run), config().model_dump_json()],
        start_new_session=True,
    )
    try:
        if moment == "created":
            until(emulator.instances)
        else:
            until(lambda: (run / FILE_NAME).exists() and moment in whats(run))
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # the reaper is in a session of its own
        driver.wait()
    until(lambda: "nothing is left" in (run / "reaper.log").read_text())
    assert emulator.alive() == []
    assert emulator.instances() == {}
    assert ledger(run).existing() == []
    assert emulator.bills() or moment in ("wanted", "asked")


def test_the_reaper_lets_a_resumed_run_keep_its_machines(run: Path, emulator: BrevEmulator) -> None:
    command = [sys.executable, "-c", DRIVER, str(run), config(orphan_grace=8.0).model_dump_json()]
    driver = subprocess.Popen(command, start_new_session=True)
    until(lambda: (run / FILE_NAME).exists() and whats(run).count("started") == 2)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    with closing(Journal(run / FILE_NAME)) as journal:
        platform = opened(run, orphan_grace=8.0)
        platform.rent(journal)
        handle = until(lambda: attached(platform, "a-1"))
        assert handle.poll() is None, "its job runs on"
        time.sleep(9.0)
        assert len(emulator.alive()) == 2
        assert len(emulator.bills()) == 2
        handle.stop(grace_s=1.0)
        vacate(platform)
    until(lambda: "nothing is left" in (run / "reaper.log").read_text())
    assert emulator.instances() == {}


def attached(platform: BrevPlatform, job_id: str) -> JobHandle | None:
    try:
        return platform.attach(job_id)
    except LinkError:
        return None


def whats(run: Path) -> list[str]:
    events = read_events(run / FILE_NAME)
    return [e.data["what"] for e in events if e.kind == "machine"]


def test_preflight_finds_nothing_wrong(run: Path) -> None:
    checks = {check.name: check for check in opened(run).preflight()}
    assert [c for c in checks.values() if not c.ok and not c.warning] == []
    assert "l40s-1x.north" in checks["brev types"].detail
    assert checks["brev ssh"].detail.endswith(".brev/brev.pem")
    assert not checks["platform.ready_timeout"].ok


def test_preflight_says_what_is_wrong(run: Path, emulator: BrevEmulator) -> None:
    emulator.revoke()
    checks = {c.name: c for c in opened(run, gpu="B9000").preflight()}
    assert not checks["brev login"].ok
    assert not checks["brev types"].ok
    assert "B9000" in checks["brev types"].detail
    checks = {c.name: c for c in opened(run, cloud_cred_id="x").preflight()}
    assert not checks["brev create"].ok
    assert "--cloud-cred-id" in checks["brev create"].detail


def test_preflight_warns_of_sessions_that_end(
    run: Path, emulator: BrevEmulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BREV_API_TOKEN", emulator.token(seconds=3600.0))

    def checks(hours: float) -> dict[str, Check]:
        platform, _ = open_platform(config(), run / "jobs", 2, hours=hours)
        return {check.name: check for check in platform.preflight()}

    assert checks(0.5)["brev session"].ok
    ending = checks(2.0)
    assert not ending["brev session"].ok
    assert "budget.hours allows 2 h" in ending["brev session"].detail
    assert "BREV_API_TOKEN_FILE" in ending["brev session"].remedy
    assert "brev in a pod" not in ending
    (tmp_path / "token").write_text("t")
    monkeypatch.setattr("tao_ray.platforms.brev.platform.POD_TOKEN", tmp_path / "token")
    assert "automountServiceAccountToken" in checks(0.5)["brev in a pod"].remedy


def test_the_reviewed_price_is_the_limit_also_after_a_resumption(
    run: Path, emulator: BrevEmulator
) -> None:
    with closing(Journal(run / FILE_NAME)) as journal:
        platform = opened(run)
        assert platform.price_per_hour(2) == pytest.approx(2 * 1.03)
        platform.rent(journal)
        vacate(platform)
    for bill in ("l40s-1x.north", "l40s-1x.south"):
        emulator.price(bill, 99.0)
    assert opened(run).price_per_hour(1) == pytest.approx(1.03)
