"""The machines of one run: made when jobs wait, used again, and surely deleted.

The pool never blocks its callers: machines are made and deleted by threads of its own, and
`lease` says "not yet" until one is ready. Everything is journalled before it is done, so that a
pool made after a crash knows its machines and their jobs by name.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tao_ray.errors import TaoRayError
from tao_ray.platforms.base import CapacityError, LinkError, MachineLostError, PlatformError
from tao_ray.platforms.ledger import GONE, LEAVING, MAKING, READY, WANTED, Lease, Ledger
from tao_ray.platforms.machine import MachineProvider, MachineShape

_log = logging.getLogger(__name__)

_ANY = MachineShape()

_DEMAND_S = 15.0  # who has not asked again for so long does not wait any more
_UNUSED_LEASE_S = 600.0
_CHECK_EVERY_S = 5.0
_TICK_S = 0.5


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


@dataclass(frozen=True)
class Place:
    """Where a job is. here: its machine can be used; else it is gone, with the job."""

    machine: str
    workspace: str
    here: bool


class Record(Protocol):
    """Journals an event of kind ``machine`` and returns when it is on disk; its time."""

    def __call__(self, data: Mapping[str, Any]) -> float: ...


class Cancelled(Exception):
    """Raised inside a provider that makes a machine which is not wanted any more."""


@dataclass
class _Machine:
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


class MachinePool:
    """See the module. All methods may be called from any thread.

    provider: called with functions `tell(name, data)` (journal a step of making or deleting) and
    `sleep(seconds)`, which the provider must use for its waiting. name_of: the name of the n-th
    machine. clock: seconds since the epoch. ledger: what earlier pools of this run have done.
    say: tells the user what needs attention.
    """

    def __init__(
        self,
        provider: Callable[[Callable[[Mapping[str, Any]], None], Callable[[float], None]], Any],
        name_of: Callable[[int], str],
        settings: PoolSettings,
        record: Record,
        *,
        ledger: Ledger | None = None,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._name_of = name_of
        self._settings = settings
        self._journal = record
        self._ledger = ledger or Ledger()
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.RLock()
        self._here = threading.local()
        self._provider: MachineProvider = provider(self._told, self._pause)
        self._machines: dict[str, _Machine] = {}
        self._waiting: dict[str, float] = {}
        self._expected: int | None = None
        self._closing = False
        self._not_before = 0.0
        self._failed = 0
        self._error: TaoRayError | None = None
        self._said: set[str] = set()
        self._adopt()

    # -- jobs -----------------------------------------------------------------------------------

    def lease(self, job: str, workspace: str) -> str:
        """The name of the machine that this job may use; the same one for the same job.

        Raises CapacityError while there is none, saying what is awaited; PlatformError if there
        will be none.
        """
        with self._lock:
            known = self._ledger.leases.get(job)
            if known is not None and known.returned is None:
                return known.machine
            chosen = self._choose(workspace)
            if chosen is not None:
                self._waiting.pop(job, None)
                self._machines[chosen].idle_since = None
                self._record(what="leased", name=chosen, job=job, workspace=workspace)
                return chosen
            self._refuse_if_hopeless()
            self._waiting[job] = self._clock()
            self._make_for_the_waiting()
            raise self._not_yet(job)

    def where(self, job: str) -> Place | None:
        """Where a job is or was; None: it was never given a machine, or is forgotten.

        Raises LinkError as long as it is not known whether its machine still exists.
        """
        with self._lock:
            lease = self._ledger.leases.get(job)
            if lease is None:
                return None
            state = self._ledger.machines[lease.machine].state
            if state == MAKING:
                raise LinkError("it is being looked for", where=lease.machine)
            return Place(lease.machine, lease.workspace, state == READY)

    def places(self, workspace: str) -> list[str]:
        """Machines in use that have worked on a workspace, the latest first."""
        with self._lock:
            leases = sorted(self._ledger.leases.values(), key=lambda lease: -lease.leased)
            names = [lease.machine for lease in leases if lease.workspace == workspace]
            return [n for n in dict.fromkeys(names) if self._ledger.machines[n].state == READY]

    def jobs(self, workspace: str) -> list[str]:
        """Jobs of a workspace that were given a machine."""
        with self._lock:
            leases = self._ledger.leases.values()
            return [lease.job for lease in leases if lease.workspace == workspace]

    def started(self, job: str) -> None:
        """The job runs on its machine."""
        self._of_lease(job, "started", lambda lease: lease.started is None)

    def give_back(self, job: str) -> None:
        """Nothing of the job runs any more: another may have its slot."""
        with self._lock:
            if self._of_lease(job, "returned", lambda lease: lease.returned is None):
                self._look_for_idle(self._ledger.leases[job].machine)

    def settled(self, job: str) -> None:
        """Nothing on its machine is needed of this job any more."""
        self._of_lease(job, "settled", lambda lease: not lease.settled)

    def release(self, job: str) -> None:
        """Forget the job."""
        with self._lock:
            lease = self._ledger.leases.get(job)
            if self._of_lease(job, "released", lambda lease: True) and lease is not None:
                self._look_for_idle(lease.machine)

    def _of_lease(self, job: str, what: str, due: Callable[[Lease], bool]) -> bool:
        with self._lock:
            lease = self._ledger.leases.get(job)
            if lease is None or not due(lease):
                return False
            self._record(what=what, name=lease.machine, job=job)
            return True

    # -- machines -------------------------------------------------------------------------------

    def expect(self, jobs: int | None) -> None:
        """No more than so many jobs will ever run at a time from now on; None: not known."""
        with self._lock:
            self._expected = jobs

    def trouble(self, name: str) -> None:
        """A machine did not answer somebody: find out what is the matter."""
        with self._lock:
            machine = self._machines.get(name)
            if machine is not None and machine.trouble_since is None:
                machine.trouble_since = self._clock()

    def tick(self) -> None:
        """What is due now. Called about twice a second; does not block."""
        with self._lock:
            now = self._clock()
            for name, machine in list(self._machines.items()):
                state = self._ledger.machines[name].state
                if state == READY and machine.trouble_since is not None:
                    self._check(machine, now)
                if state == READY and not self._closing:
                    self._delete_if_useless(machine, now)
            for lease in list(self._ledger.leases.values()):
                unused = lease.started is None and lease.returned is None
                if unused and now - lease.leased > _UNUSED_LEASE_S:
                    self.release(lease.job)
            self._make_for_the_waiting()

    def close(self) -> None:
        """Lease nothing any more and delete every machine. Returns at once; see `left`."""
        with self._lock:
            self._closing = True
            for name in list(self._machines):
                self._leave(name, "the run needs no machine any more")

    def left(self) -> list[str]:
        """Machines that are not verified gone."""
        with self._lock:
            return sorted(self._machines)

    def run(self, stop: threading.Event) -> None:
        """Call `tick` until `stop` is set: the body of a thread."""
        while not stop.wait(_TICK_S):
            try:
                self.tick()
            except Exception:
                _log.exception("the machine pool")

    # -- choosing -------------------------------------------------------------------------------

    def _choose(self, workspace: str) -> str | None:
        """The machine with a free slot that suits a job best."""
        if self._closing:
            return None
        free = [name for name in self._machines if self._has_room(name)]
        before = [name for name in self.places(workspace) if name in free]
        # A full machine earns its price; an empty one may soon be deleted.
        return next(iter(before), max(free, key=self._load, default=None))

    def _has_room(self, name: str) -> bool:
        record = self._ledger.machines[name]
        if record.state != READY or self._machines[name].trouble_since is not None:
            return False
        if not self._settings.reuse and any(
            lease.machine == name for lease in self._ledger.leases.values()
        ):
            return False
        return self._load(name) < self._settings.slots

    def _load(self, name: str) -> int:
        leases = self._ledger.leases.values()
        return sum(lease.machine == name and lease.returned is None for lease in leases)

    def _refuse_if_hopeless(self) -> None:
        """Raises PlatformError if machines cannot be made, and there is none to wait for."""
        ready = any(self._ledger.machines[name].state == READY for name in self._machines)
        if self._error is not None and self._failed >= self._settings.failures and not ready:
            raise PlatformError(
                f"{self._failed} machines in a row could not be made: {self._error.message}",
                where=self._error.where,
                remedy=self._error.remedy,
            )

    def _not_yet(self, job: str) -> PlatformError:
        making = [
            m
            for m in self._machines.values()
            if self._ledger.machines[m.name].state in (WANTED, MAKING)
        ]
        if self._closing:
            return CapacityError("the machines are being given back", where=job)
        error = self._error
        if making:
            note = "; ".join(f"{m.name}: {m.note or 'asked for'}" for m in making)
            return CapacityError(f"a machine ({note})", where=job)
        if error is not None and not self._machines:
            return CapacityError(f"a machine (the last one: {error.message})", where=job)
        return CapacityError("a free slot", where=job)

    # -- making ---------------------------------------------------------------------------------

    def _make_for_the_waiting(self) -> None:
        now = self._clock()
        self._waiting = {j: at for j, at in self._waiting.items() if now - at < _DEMAND_S}
        if self._closing or self._settings.fixed or now < self._not_before or not self._waiting:
            return
        states = [self._ledger.machines[name].state for name in self._machines]
        coming = states.count(MAKING) + states.count(WANTED)
        missing = math.ceil(len(self._waiting) / self._settings.slots) - coming
        for _ in range(min(missing, self._settings.machines - len(self._machines))):
            name = self._name_of(len(self._ledger.machines) + 1)
            self._record(what="wanted", name=name, slots=self._settings.slots)
            self._start(name, self._make)

    def _start(self, name: str, work: Callable[[_Machine], None]) -> None:
        """Have a thread work on a machine, and delete it afterwards if it is unwanted by then."""
        machine = self._machines.setdefault(name, _Machine(name))
        machine.busy = True
        threading.Thread(target=self._work, args=(machine, work), name=name, daemon=True).start()

    def _work(self, machine: _Machine, work: Callable[[_Machine], None]) -> None:
        try:
            work(machine)
        except Exception as error:
            _log.exception("machine %s", machine.name)
            self._tell_once(f"machine {machine.name}: {error!r} (see the log)")
            self._unwant(machine, "deleting", "something unforeseen happened to it")
        with self._lock:
            machine.busy = machine.unwanted
            if not machine.busy:
                return
        self._delete(machine)

    def _make(self, machine: _Machine) -> None:
        self._here.making = machine
        try:
            if self._settings.fixed:
                self._find_own(machine)
            else:
                self._provider.create(machine.name, self._settings.shape)
        except Cancelled:
            return
        except TaoRayError as error:
            self._could_not_make(machine, error)
            return
        finally:
            self._here.making = None
        with self._lock:
            if not machine.unwanted:
                self._failed, self._error = 0, None
                machine.adopting = False
                self._record(what="ready", name=machine.name)
                self._look_for_idle(machine.name)

    def _find_own(self, machine: _Machine) -> None:
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
                return
            self._pause(_CHECK_EVERY_S)

    def _could_not_make(self, machine: _Machine, error: TaoRayError) -> None:
        with self._lock:
            self._error = error
            self._failed += not isinstance(error, CapacityError)
            self._not_before = self._clock() + self._settings.retry
            self._record(what="trouble", name=machine.name, text=str(error))
            self._tell_once(f"machine {machine.name} could not be made: {error}")
            self._unwant(machine, "deleting", "it could not be made")

    def _pause(self, seconds: float) -> None:
        """`sleep` for the provider: making ends early when it has been cancelled."""
        machine: _Machine | None = getattr(self._here, "making", None)
        if machine is None:
            self._sleep(seconds)
            return
        end = self._clock() + seconds
        self._check_cancelled(machine)
        while (rest := end - self._clock()) > 0:
            self._sleep(min(rest, 0.2))
            self._check_cancelled(machine)

    def _check_cancelled(self, machine: _Machine) -> None:
        if machine.unwanted:
            raise Cancelled

    def _told(self, data: Mapping[str, Any]) -> None:
        """A step of making or deleting; journalled before it is done."""
        making: _Machine | None = getattr(self._here, "making", None)
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
        self._record(**data)
        if data["what"] == "trouble":
            self._tell_once(f"machine {data['name']}: {data['text']}")

    # -- losing and deleting --------------------------------------------------------------------

    def _check(self, machine: _Machine, now: float) -> None:
        """Look after a machine that did not answer, unless that is being done."""
        if not machine.busy and now - machine.checked >= _CHECK_EVERY_S:
            machine.checked = now
            self._start(machine.name, self._look_after)

    def _look_after(self, machine: _Machine) -> None:
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
        with self._lock:
            if not why:
                machine.trouble_since = None
            elif not machine.unwanted:
                self._unwant(machine, "lost", why)
                self._tell_once(
                    f"machine {machine.name} is lost, its trials go on elsewhere: {why}"
                )

    def _look_for_idle(self, name: str) -> None:
        machine = self._machines.get(name)
        if machine is not None and machine.idle_since is None and not self._load(name):
            machine.idle_since = self._clock()
            self._record(what="idle", name=name)

    def _delete_if_useless(self, machine: _Machine, now: float) -> None:
        if self._settings.fixed or machine.idle_since is None or self._load(machine.name):
            return
        leases = [x for x in self._ledger.leases.values() if x.machine == machine.name]
        if any(
            not lease.settled and now - (lease.returned or now) < self._settings.settle_timeout
            for lease in leases
        ):
            return
        if not self._settings.reuse and leases:
            self._leave(machine.name, "used once")
        elif now - machine.idle_since >= self._settings.idle_timeout:
            self._leave(machine.name, f"idle for {self._settings.idle_timeout:g} s")
        elif self._expected is not None:
            needed = math.ceil(self._expected / self._settings.slots)
            states = [self._ledger.machines[name].state for name in self._machines]
            if states.count(READY) + states.count(MAKING) > needed:
                self._leave(machine.name, "no job is left for it")

    def _leave(self, name: str, why: str) -> None:
        """Begin to delete a machine, whatever it is doing."""
        machine = self._machines[name]
        self._unwant(machine, "deleting", why)
        if not machine.busy:
            self._start(name, lambda machine: None)

    def _unwant(self, machine: _Machine, what: str, why: str) -> None:
        with self._lock:
            if not machine.unwanted:
                machine.unwanted = True
                self._record(what=what, name=machine.name, text=why)

    def _delete(self, machine: _Machine) -> None:
        """Delete the machine for as long as it takes; then it is not one of ours any more."""
        while not self._settings.fixed:
            try:
                self._provider.delete(machine.name)
                break
            except Exception as error:
                _log.exception("delete %s", machine.name)
                self._tell_once(f"machine {machine.name} is not deleted yet: {error}")
                self._sleep(_CHECK_EVERY_S)
        with self._lock:
            self._record(what="deleted", name=machine.name)
            self._machines.pop(machine.name, None)

    # -- inside ---------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Take over what earlier pools have left, and what exists under our names."""
        with self._lock:
            left = [m for m in self._ledger.machines.values() if m.state != GONE]
            for record in left:
                machine = self._machines[record.name] = _Machine(record.name, adopting=True)
                machine.unwanted = record.state in (LEAVING, WANTED)
                if not machine.unwanted:
                    record.state = MAKING  # until it has answered
                self._start(record.name, self._adopt_one)
            own = self._settings.fixed
            if own and own not in self._machines:
                self._record(what="wanted", name=own, slots=self._settings.slots)
                self._ledger.machines[own].state = MAKING
                self._start(own, self._make)

    def _adopt_one(self, machine: _Machine) -> None:
        """A machine of an earlier pool: used on if it exists, never made anew under its name."""
        if self._settings.fixed or self._exists(machine):
            self._make(machine)
        else:
            self._unwant(machine, "lost", "it is gone")

    def _exists(self, machine: _Machine) -> bool:
        while not machine.unwanted:
            try:
                return machine.name in self._provider.names()
            except TaoRayError as error:
                self._tell_once(f"machine {machine.name}: {error}")
                self._sleep(_CHECK_EVERY_S)
        return False

    def _record(self, **data: Any) -> None:
        with self._lock:
            self._ledger.apply(data, self._journal(data))

    def _tell_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)
