"""The machines of a run, one by one: made, looked after and deleted by threads of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tao_ray.errors import TaoRayError
from tao_ray.platforms.base import (
    CapacityError,
    ImageAccessError,
    ImageMissingError,
    LinkError,
    MachineLostError,
    PlatformError,
)
from tao_ray.platforms.ledger import GONE, LEAVING, MAKING, WANTED, Ledger
from tao_ray.platforms.machine import Machine, MachineProvider, MachineShape

_log = logging.getLogger(__name__)

_ANY = MachineShape()
_CHECK_EVERY_S = 5.0


@dataclass(frozen=True)
class PoolSettings:
    """Seconds where not said otherwise.

    machines: most at a time. slots: jobs a machine carries at a time. reuse: a machine serves one
    job after the other, else it is deleted after its first. idle_timeout: until a machine without
    jobs is deleted. lost_after: without an answer, a machine is given up. settle_timeout: for
    which a machine is kept for an ended job whose files nobody has copied off. retry: pause after
    no machine was to be had. failures: machines in a row that could not be made until those who
    wait are told that there will be none. fixed: the one machine to use, which is the user's own:
    it is neither made nor deleted.
    """

    machines: int = 1
    slots: int = 1
    shape: MachineShape = _ANY
    reuse: bool = True
    idle_timeout: float = 300.0
    lost_after: float = 600.0
    settle_timeout: float = 600.0
    retry: float = 60.0
    failures: int = 3
    fixed: str | None = None


class Record(Protocol):
    """Journals an event of kind ``machine`` and returns when it is on disk; its time."""

    def __call__(self, data: Mapping[str, Any]) -> float:
        """See the class."""


ProviderFactory = Callable[
    [Callable[[Mapping[str, Any]], None], Callable[[float], None]], MachineProvider
]
"""Makes a provider, given `tell(data)`, which journals a step of making or deleting (see `ledger`)
and may raise, and `sleep(seconds)`, to be used for all of its waiting."""


class Prepare(Protocol):
    """Has on a machine that answers what jobs of this image need; see `Engine.prepare`."""

    def __call__(
        self,
        machine: Machine,
        image: str | None,
        *,
        say: Callable[[str], None],
        sleep: Callable[[float], None],
    ) -> None:
        """See the class."""


class Cancelled(Exception):
    """Raised inside a provider that makes a machine which is not wanted any more."""


@dataclass
class FleetMachine:
    """What only this process knows of a machine; the rest is in the ledger.

    busy: a thread works on it. unwanted: it is to be deleted. adopting: it is an earlier pool's.
    """

    name: str
    busy: bool = False
    unwanted: bool = False
    adopting: bool = False
    idle_since: float | None = None
    trouble_since: float | None = None
    checked: float = 0.0
    note: str = ""


class Fleet:
    """Guarded by `lock`, which threads of machines hold only while they write something down.

    machines: those that are not verified gone, by name. failed: how many in a row could not be
    made, for other reasons than capacity. error: why the last one could not. not_before: when the
    next one may be tried. images: those that jobs have asked for; a machine that answers gets them
    before it counts as ready. See `MachinePool` for what it is made with.
    """

    def __init__(
        self,
        provider: ProviderFactory,
        settings: PoolSettings,
        journal: Record,
        ledger: Ledger,
        say: Callable[[str], None],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        prepare: Prepare | None = None,
    ):
        self.lock = threading.RLock()
        self.ledger = ledger
        self.machines: dict[str, FleetMachine] = {}
        self.failed = 0
        self.error: TaoRayError | None = None
        self.not_before = 0.0
        self.images: set[str] = set()
        self._prepare = prepare
        self._settings = settings
        self._journal = journal
        self._say = say
        self._said: set[str] = set()
        self._clock = clock
        self._sleep = sleep
        self._here = threading.local()
        self._provider = provider(self._told, self._pause)
        self._adopt()

    def state(self, name: str) -> str:
        """A machine's state in the ledger."""
        return self.ledger.machines[name].state

    def states(self) -> list[str]:
        """The states of all machines."""
        return [self.state(name) for name in self.machines]

    def record(self, **data: Any) -> None:
        """Journal an event, then take it in."""
        with self.lock:
            self.ledger.apply(data, self._journal(data))

    def make(self, name: str) -> None:
        """Begin to make a machine."""
        self.record(what="wanted", name=name, slots=self._settings.slots)
        self._start(name, self._make)

    def leave(self, name: str, why: str) -> None:
        """Begin to delete a machine, whatever it is doing."""
        machine = self.machines[name]
        self._unwant(machine, "deleting", why)
        if not machine.busy:
            self._start(name, lambda machine: None)

    def idle(self, name: str) -> None:
        """No job is on the machine any more."""
        machine = self.machines[name]
        if machine.idle_since is None:
            machine.idle_since = self._clock()
            self.record(what="idle", name=name)

    def check(self, name: str) -> None:
        """Look after a machine that did not answer, unless that is being done."""
        machine, now = self.machines[name], self._clock()
        if not machine.busy and now - machine.checked >= _CHECK_EVERY_S:
            machine.checked = now
            self._start(name, self._look_after)

    # -- making ---------------------------------------------------------------------------------

    def _start(self, name: str, work: Callable[[FleetMachine], None]) -> None:
        """Have a thread work on a machine, and delete it afterwards if it is unwanted by then."""
        machine = self.machines.setdefault(name, FleetMachine(name))
        machine.busy = True
        threading.Thread(target=self._work, args=(machine, work), name=name, daemon=True).start()

    def _work(self, machine: FleetMachine, work: Callable[[FleetMachine], None]) -> None:
        try:
            work(machine)
        except Exception as error:
            _log.exception("machine %s", machine.name)
            self._tell_once(f"machine {machine.name}: {error!r} (see the log)")
            self._unwant(machine, "deleting", "something unforeseen happened to it")
        with self.lock:
            machine.busy = machine.unwanted
            if not machine.busy:
                return
        self._delete(machine)

    def _make(self, machine: FleetMachine) -> None:
        self._here.making = machine
        try:
            if self._settings.fixed:
                link = self._find_own(machine)
            else:
                link = self._provider.create(machine.name, self._settings.shape)
            self._furnish(machine, link)
        except Cancelled:
            return
        except TaoRayError as error:
            self._could_not_make(machine, error)
            return
        except Exception as error:
            _log.exception("make %s", machine.name)
            self._could_not_make(machine, PlatformError(f"{error!r}", where=machine.name))
            return
        finally:
            self._here.making = None
        with self.lock:
            if not machine.unwanted:
                self.failed, self.error = 0, None
                machine.adopting = False
                self.record(what="ready", name=machine.name)

    def _furnish(self, machine: FleetMachine, link: Machine) -> None:
        """Have the images on the machine: no job waits for them then while it holds a slot."""

        def say(text: str) -> None:
            machine.note = text
            self.record(what="waiting", name=machine.name, text=text)

        for image in sorted(self.images) if self._prepare is not None else ():
            assert self._prepare is not None
            self._prepare(link, image, say=say, sleep=self._pause)

    def _find_own(self, machine: FleetMachine) -> Machine:
        """Wait for the user's own machine."""
        while True:
            try:
                found = self._provider.find(machine.name)
            except LinkError as error:
                machine.note = error.message
            else:
                if found is None:
                    raise PlatformError(
                        "there is no such instance",
                        where=machine.name,
                        remedy="correct platform.instance: `brev ls` shows what there is",
                    )
                return found
            self._pause(_CHECK_EVERY_S)

    def _could_not_make(self, machine: FleetMachine, error: TaoRayError) -> None:
        with self.lock:
            self.error = error
            if isinstance(error, (ImageAccessError, ImageMissingError)):
                self.failed = self._settings.failures  # it would be the same on the next one
            self.failed += not isinstance(error, CapacityError)
            self.not_before = self._clock() + self._settings.retry
            self.record(what="trouble", name=machine.name, text=str(error))
            self._tell_once(f"machine {machine.name} could not be made: {error}")
            self._unwant(machine, "deleting", "it could not be made")

    def _pause(self, seconds: float) -> None:
        """`sleep` for the provider: making ends early when it has been cancelled."""
        machine: FleetMachine | None = getattr(self._here, "making", None)
        if machine is None:
            self._sleep(seconds)
            return
        end = self._clock() + seconds
        self._check_cancelled(machine)
        while (rest := end - self._clock()) > 0:
            self._sleep(min(rest, 0.2))
            self._check_cancelled(machine)

    def _check_cancelled(self, machine: FleetMachine) -> None:
        if machine.unwanted:
            raise Cancelled

    def _told(self, data: Mapping[str, Any]) -> None:
        """A step of making or deleting; journalled before it is done."""
        making: FleetMachine | None = getattr(self._here, "making", None)
        if making is not None:
            self._check_cancelled(making)
            if making.adopting and data["what"] == "asked":
                self._unwant(
                    making, "lost", "it is gone"
                )  # its jobs would be looked for on another
                raise Cancelled
            making.note = str(data.get("text", ""))
        if data["what"] in ("ready", "deleted"):
            return  # said by the pool itself
        self.record(**data)
        if data["what"] == "trouble":
            self._tell_once(f"machine {data['name']}: {data['text']}")

    # -- losing and deleting --------------------------------------------------------------------

    def _look_after(self, machine: FleetMachine) -> None:
        since = machine.trouble_since
        assert since is not None
        try:
            why = "it vanished" if self._provider.find(machine.name) is None else ""
        except MachineLostError as error:
            why = error.message
        except TaoRayError as error:
            machine.note = error.message
            if self._clock() - since < self._settings.lost_after:
                return
            why = f"no answer for {self._settings.lost_after:g} s: {error.message}"
        with self.lock:
            if not why:
                machine.trouble_since = None
            elif not machine.unwanted:
                self._unwant(machine, "lost", why)
                self._tell_once(
                    f"machine {machine.name} is lost, its trials go on elsewhere: {why}"
                )

    def _unwant(self, machine: FleetMachine, what: str, why: str) -> None:
        with self.lock:
            if not machine.unwanted:
                machine.unwanted = True
                self.record(what=what, name=machine.name, text=why)

    def _delete(self, machine: FleetMachine) -> None:
        """Delete the machine for as long as it takes; then it is not one of ours any more."""
        while not self._settings.fixed:
            try:
                self._provider.delete(machine.name)
                break
            except Exception as error:
                _log.exception("delete %s", machine.name)
                self._tell_once(f"machine {machine.name} is not deleted yet: {error}")
                self._sleep(_CHECK_EVERY_S)
        with self.lock:
            self.record(what="deleted", name=machine.name)
            self.machines.pop(machine.name, None)

    # -- inside ---------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Take over what earlier pools have left, and what exists under our names."""
        with self.lock:
            left = [m for m in self.ledger.machines.values() if m.state != GONE]
            for record in left:
                machine = self.machines[record.name] = FleetMachine(record.name, adopting=True)
                machine.unwanted = record.state in (LEAVING, WANTED)
                if not machine.unwanted:
                    record.state = MAKING  # until it has answered
                self._start(record.name, self._adopt_one)
            own = self._settings.fixed
            if own and own not in self.machines:
                self.record(what="wanted", name=own, slots=self._settings.slots)
                self.ledger.machines[own].state = MAKING
                self._start(own, self._make)

    def _adopt_one(self, machine: FleetMachine) -> None:
        """A machine of an earlier pool: used on if it exists, never made anew under its name."""
        if self._settings.fixed or self._exists(machine):
            self._make(machine)
        else:
            self._unwant(machine, "lost", "it is gone")

    def _exists(self, machine: FleetMachine) -> bool:
        while not machine.unwanted:
            try:
                return machine.name in self._provider.names()
            except TaoRayError as error:
                self._tell_once(f"machine {machine.name}: {error}")
                self._sleep(_CHECK_EVERY_S)
        return False

    def _tell_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)
