"""The reaper with an injected clock, over real journals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tao_ray.journal import FILE_NAME, Event, Journal, is_being_written, read_events
from tao_ray.platforms.base import PlatformError
from tao_ray.platforms.ledger import KIND, Ledger
from tao_ray.platforms.reaper import Reaper, ReaperSpec

GRACE = 900.0


class Account:
    def __init__(self, *names: str):
        self.alive = set(names)
        self.refusals = 0
        self.looks = 0

    def names(self, run: str | None = None) -> list[str]:
        assert run == "r"
        self.looks += 1
        return sorted(self.alive)

    def delete(self, name: str, timeout: float | None = None) -> None:
        assert timeout is not None, "the journal must not be held for ever"
        if self.refusals:
            self.refusals -= 1
            raise PlatformError("refused")
        self.alive.discard(name)


class Night:
    """Time passes when the reaper sleeps; `plans` are what happens at which moment."""

    def __init__(self, directory: Path, account: Account):
        self.directory = directory
        self.account = account
        self.now = 0.0
        self.plans: list[tuple[float, Callable[[], None]]] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for plan in [p for p in self.plans if p[0] <= self.now]:
            self.plans.remove(plan)
            plan[1]()
        assert self.now < 1e5, "it never ends"

    def reap(self) -> None:
        spec = ReaperSpec(str(self.directory), "r", GRACE)

        def provider(tell: Callable[[Mapping[str, Any]], None]) -> Account:
            del tell
            return self.account

        Reaper(spec, provider, clock=lambda: self.now, sleep=self.sleep).run()

    @property
    def journal(self) -> Path:
        return self.directory / FILE_NAME


def machine(what: str, name: str = "tao-r-1", **data: Any) -> Event:
    return Event(KIND, data={"what": what, "name": name, **data})


@pytest.fixture
def night(tmp_path: Path) -> Night:
    """A run whose driver was killed while it had a machine."""
    made = Night(tmp_path, Account("tao-r-1"))
    with closing(Journal(made.journal)) as journal:
        journal.append(
            Event("run", data={"what": "started"}),
            machine("wanted", slots=1),
            machine("asked", type="t", price=1.0, text=""),
            machine("ready"),
        )
    return made


def test_machines_of_a_dead_driver_are_deleted_after_the_grace(night: Night) -> None:
    night.plans = [(GRACE - 20.0, lambda: _assert(night.account.alive == {"tao-r-1"}))]
    night.reap()
    assert night.account.alive == set()
    assert GRACE <= night.now < GRACE + 30.0
    assert Ledger.fold(read_events(night.journal)).existing() == []


def test_it_waits_as_long_as_the_driver_lives(night: Night) -> None:
    driver = Journal(night.journal)
    night.plans = [(10 * GRACE, driver.close)]
    night.reap()
    assert 11 * GRACE <= night.now < 11 * GRACE + 30.0


def test_a_resumed_run_keeps_its_machines(night: Night) -> None:
    drivers: list[Journal] = []

    def end() -> None:
        _assert(night.account.alive == {"tao-r-1"})
        drivers[0].append(machine("deleted"), Event("run", data={"what": "ended"}))
        night.account.alive.clear()
        drivers[0].close()

    night.plans = [
        (GRACE / 2, lambda: drivers.append(Journal(night.journal))),
        (5 * GRACE, end),
    ]
    night.reap()
    assert night.now < 5 * GRACE + 30.0, "a run that has ended leaves nothing to wait for"


def test_what_the_journal_does_not_know_is_found_by_its_name(night: Night) -> None:
    night.account.alive.add("tao-r-2")
    night.reap()
    assert night.account.alive == set()


def test_it_does_its_work_when_the_run_directory_is_deleted(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    night = Night(directory, Account("tao-r-1"))
    directory.rmdir()
    night.reap()
    assert night.account.alive == set()


def test_it_tries_as_long_as_it_takes(night: Night) -> None:
    night.account.refusals = 50
    night.reap()
    assert night.account.alive == set()


def test_while_it_deletes_nobody_resumes_and_in_between_somebody_can(night: Night) -> None:
    night.account.refusals = 1
    held: list[bool] = []
    delete = night.account.delete

    def watched(name: str, timeout: float | None = None) -> None:
        held.append(is_being_written(night.journal))
        delete(name, timeout)

    night.account.delete = watched  # type: ignore[method-assign]
    night.plans = [(GRACE + 1.0, lambda: _assert(not is_being_written(night.journal)))]
    night.reap()
    assert held == [True, True]


def _assert(holds: bool) -> None:
    assert holds
