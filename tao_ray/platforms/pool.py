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
from collections.abc import Callable
from dataclasses import dataclass

from tao_ray.platforms.base import (
    CapacityError,
    ImageAccessError,
    ImageMissingError,
    LinkError,
    PlatformError,
)
from tao_ray.platforms.fleet import (
    Fleet,
    FleetMachine,
    PoolSettings,
    Prepare,
    ProviderFactory,
    Record,
)
from tao_ray.platforms.ledger import MAKING, READY, WANTED, Lease, Ledger

_log = logging.getLogger(__name__)

_DEMAND_S = 15.0  # who has not asked again for so long does not wait any more
_UNUSED_LEASE_S = 600.0
_TICK_S = 0.5


@dataclass(frozen=True)
class Place:
    """Where a job is. here: its machine can be used; else it is gone, with the job."""

    machine: str
    workspace: str
    here: bool


class MachinePool:
    """See the module. All methods may be called from any thread.

    name_of: the name of the n-th machine. record: the journal. prepare: what a machine gets before
    it is ready. ledger: what earlier pools of this run have done. say: tells the user what needs
    attention. clock: seconds since the epoch.
    """

    def __init__(
        self,
        provider: ProviderFactory,
        name_of: Callable[[int], str],
        settings: PoolSettings,
        record: Record,
        *,
        prepare: Prepare | None = None,
        ledger: Ledger | None = None,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._name_of = name_of
        self._settings = settings
        self._clock = clock
        self._waiting: dict[str, float] = {}
        self._expected: int | None = None
        self._closing = False
        self._ledger = ledger or Ledger()
        self._fleet = Fleet(provider, settings, record, self._ledger, say, clock, sleep, prepare)
        self._lock = self._fleet.lock

    # -- jobs -----------------------------------------------------------------------------------

    def lease(self, job: str, workspace: str, image: str | None = None) -> str:
        """The name of the machine that this job may use; the same one for the same job.

        image: what the job will need there.

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
                self._fleet.machines[chosen].idle_since = None
                self._fleet.record(what="leased", name=chosen, job=job, workspace=workspace)
                return chosen
            self._refuse_if_hopeless()
            self._fleet.images.update([image] if image else [])
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
            self._fleet.record(what=what, name=lease.machine, job=job)
            return True

    # -- machines -------------------------------------------------------------------------------

    def expect(self, jobs: int | None) -> None:
        """No more than so many jobs will ever run at a time from now on; None: not known."""
        with self._lock:
            self._expected = jobs

    def trouble(self, name: str) -> None:
        """A machine did not answer somebody: find out what is the matter."""
        with self._lock:
            machine = self._fleet.machines.get(name)
            if machine is not None and machine.trouble_since is None:
                machine.trouble_since = self._clock()

    def tick(self) -> None:
        """What is due now. Called about twice a second; does not block."""
        with self._lock:
            now = self._clock()
            for name, machine in list(self._fleet.machines.items()):
                if self._fleet.state(name) != READY:
                    continue
                self._look_for_idle(name)
                if machine.trouble_since is not None:
                    self._fleet.check(name)
                if not self._closing and (why := self._useless(machine, now)):
                    self._fleet.leave(name, why)
            for lease in list(self._ledger.leases.values()):
                unused = lease.started is None and lease.returned is None
                if unused and now - lease.leased > _UNUSED_LEASE_S:
                    self.release(lease.job)
            self._make_for_the_waiting()

    def close(self) -> None:
        """Lease nothing any more and delete every machine. Returns at once; see `left`."""
        with self._lock:
            self._closing = True
            for name in list(self._fleet.machines):
                self._fleet.leave(name, "the run needs no machine any more")

    def left(self) -> list[str]:
        """Machines that are not verified gone."""
        with self._lock:
            return sorted(self._fleet.machines)

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
        free = [name for name in self._fleet.machines if self._has_room(name)]
        before = [name for name in self.places(workspace) if name in free]
        # A full machine earns its price; an empty one may soon be deleted.
        return next(iter(before), max(free, key=self._load, default=None))

    def _has_room(self, name: str) -> bool:
        record = self._ledger.machines[name]
        if record.state != READY or self._fleet.machines[name].trouble_since is not None:
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
        error, failed = self._fleet.error, self._fleet.failed
        if error and failed >= self._settings.failures and READY not in self._fleet.states():
            if isinstance(error, (ImageAccessError, ImageMissingError)):
                raise error
            raise PlatformError(
                f"{failed} machines in a row could not be made: {error.message}",
                where=error.where,
                remedy=error.remedy,
            )

    def _not_yet(self, job: str) -> PlatformError:
        made = [
            f"{name}: {machine.note or 'asked for'}"
            for name, machine in self._fleet.machines.items()
            if self._fleet.state(name) in (WANTED, MAKING)
        ]
        if self._closing:
            return CapacityError("the machines are being given back", where=job)
        error = self._fleet.error
        if made:
            return CapacityError(f"a machine ({'; '.join(made)})", where=job)
        if error is not None and not self._fleet.machines:
            return CapacityError(f"a machine (the last one: {error.message})", where=job)
        return CapacityError("a free slot", where=job)

    # -- demand ---------------------------------------------------------------------------------

    def _make_for_the_waiting(self) -> None:
        now = self._clock()
        self._waiting = {j: at for j, at in self._waiting.items() if now - at < _DEMAND_S}
        if self._closing or self._settings.fixed or now < self._fleet.not_before:
            return
        states = self._fleet.states()
        coming = states.count(MAKING) + states.count(WANTED)
        missing = math.ceil(len(self._waiting) / self._settings.slots) - coming
        for _ in range(min(missing, self._settings.machines - len(states))):
            self._fleet.make(self._name_of(len(self._ledger.machines) + 1))

    def _look_for_idle(self, name: str) -> None:
        if name in self._fleet.machines and not self._load(name):
            self._fleet.idle(name)

    def _useless(self, machine: FleetMachine, now: float) -> str:
        """Why a machine is to be deleted; "" if it is not."""
        settings = self._settings
        if settings.fixed or machine.idle_since is None or self._load(machine.name):
            return ""
        leases = [x for x in self._ledger.leases.values() if x.machine == machine.name]
        if any(
            not lease.settled and now - (lease.returned or now) < settings.settle_timeout
            for lease in leases
        ):
            return ""
        if leases and not settings.reuse:
            return "used once"
        if now - machine.idle_since >= settings.idle_timeout:
            return f"idle for {settings.idle_timeout:g} s"
        if self._expected is not None:
            states = self._fleet.states()
            needed = math.ceil(self._expected / settings.slots)
            if states.count(READY) + states.count(MAKING) > needed:
                return "no job is left for it"
        return ""
