"""What a run's rented machines did and cost: a fold of the journal's events of kind ``machine``.

The pool, the reaper, the budget, the report and ``tao-ray machines`` all see the machines through
this one fold.

======== =========================================================================================
what     further fields (all have `name`, the machine's)
======== =========================================================================================
wanted   slots: the name is taken; nothing exists yet
asked    type, price, text: an instance of this type is about to be asked for
made     the request was taken: it is billed from here on, else since it was asked for
adopted  type, price, text: it existed already
skipped  type, text: this type was not to be had; nothing was made
abandoned, waiting, trouble   text: of passing interest
ready    it answers
leased   job, workspace: the job may use it from here on
started  job: the job runs there
returned job: nothing of the job runs there any more
settled  job: what is still needed of the job is kept elsewhere
released job: the job is forgotten
idle     no job is on it
deleting text: it is to be deleted, and why
accepted the request for its deletion was accepted: it is not billed any more
lost     text: it is gone, or given up, with what ran there
deleted  it is verified gone
======== =========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tao_ray.journal import Event

KIND = "machine"
WANTED, MAKING, READY, LEAVING, GONE = "wanted", "making", "ready", "leaving", "gone"


@dataclass
class Rent:
    """One instance that a machine's name stood for: of one type, billed from `begin` to `end`.

    taken: the request for it is known to have been taken.
    """

    type: str
    price_per_hour: float
    begin: float
    end: float | None = None
    taken: bool = False

    def seconds(self, now: float) -> float:
        """Billed until then, which may be any time."""
        return max((now if self.end is None else min(now, self.end)) - self.begin, 0.0)

    def cost(self, now: float) -> float:
        """US dollars so far."""
        return self.seconds(now) / 3600.0 * self.price_per_hour


@dataclass
class MachineRecord:
    """A machine by its name. Times are ``time.time()``; None: not yet. note: how far it is, while
    it is being made."""

    name: str
    slots: int = 1
    state: str = WANTED
    wanted: float = 0.0
    rents: list[Rent] = field(default_factory=list)
    ready: float | None = None
    first_job: float | None = None
    deleted: float | None = None
    note: str = ""
    lost: str | None = None
    lost_at: float | None = None

    @property
    def exists(self) -> bool:
        """It may exist, so it may cost money."""
        return self.state not in (WANTED, GONE)

    @property
    def rent(self) -> Rent | None:
        """The instance it stands for now, or stood for last."""
        return self.rents[-1] if self.rents else None

    def cost(self, now: float) -> float:
        """US dollars so far."""
        return sum(rent.cost(now) for rent in self.rents)

    def seconds(self, now: float) -> float:
        """Billed so far."""
        return sum(rent.seconds(now) for rent in self.rents)


@dataclass
class Lease:
    """A job's use of a machine. started, returned: times, None: not yet."""

    job: str
    workspace: str
    machine: str
    leased: float
    started: float | None = None
    returned: float | None = None
    settled: bool = False

    def seconds(self, now: float) -> float:
        """For which it held a slot."""
        return (now if self.returned is None else self.returned) - self.leased


@dataclass
class Ledger:
    """All machines and all leases of a run, by name and by job."""

    machines: dict[str, MachineRecord] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)

    @classmethod
    def fold(cls, events: Iterable[Event]) -> Ledger:
        """The state after these events; those of other kinds are passed over."""
        ledger = cls()
        for event in events:
            if event.kind == KIND:
                ledger.apply(event.data, event.time)
        return ledger

    def apply(self, data: Mapping[str, Any], time: float) -> None:
        """Take in one event."""
        what, job = data["what"], data.get("job")
        machine = self.machines.setdefault(data["name"], MachineRecord(data["name"], wanted=time))
        if what == "leased":
            self.leases[data["job"]] = Lease(data["job"], data["workspace"], machine.name, time)
        elif job is not None:
            self._apply_to_lease(what, job, time)
            if what == "started":
                machine.first_job = machine.first_job or time
        else:
            _apply_to_machine(machine, what, data, time)
            if what in ("lost", "deleted"):
                for lease in self.leases.values():
                    if lease.machine == machine.name and lease.returned is None:
                        lease.returned = time

    def _apply_to_lease(self, what: str, job: str, time: float) -> None:
        lease = self.leases.get(job)
        if lease is None:
            return
        if what == "started":
            lease.started = lease.started or time
        elif what == "returned":
            lease.returned = lease.returned or time
        elif what == "settled":
            lease.settled = True
        elif what == "released":
            del self.leases[job]

    def existing(self) -> list[MachineRecord]:
        """Machines that may exist now."""
        return [m for m in self.machines.values() if m.exists]

    def cost(self, now: float) -> float:
        """US dollars so far, of all machines."""
        return sum(m.cost(now) for m in self.machines.values())

    def price_per_hour(self) -> float:
        """US dollars per hour that accrue now."""
        rents = [m.rent for m in self.machines.values() if m.rent is not None]
        return sum(rent.price_per_hour for rent in rents if rent.end is None)

    def lease_cost(self, lease: Lease, now: float) -> float:
        """A job's share of its machine's price for the time it held a slot."""
        machine = self.machines[lease.machine]
        price = machine.rent.price_per_hour if machine.rent else 0.0
        return lease.seconds(now) / 3600.0 * price / machine.slots

    def workspace_costs(self, now: float) -> dict[str, float]:
        """Workspace (trial) -> US dollars of its jobs; idle time belongs to none."""
        costs: dict[str, float] = {}
        for lease in self.leases.values():
            costs[lease.workspace] = costs.get(lease.workspace, 0.0) + self.lease_cost(lease, now)
        return costs

    def shown(self, now: float) -> str:
        """In a line: how many there are, how far those are that are being made, and the cost."""
        states = [m.state for m in self.machines.values()]
        parts = [f"{states.count(READY)} ready"]
        coming = [m for m in self.machines.values() if m.state in (WANTED, MAKING)]
        if coming:
            notes = dict.fromkeys(m.note or "asked for" for m in coming)
            parts.append(f"{len(coming)} coming ({'; '.join(notes)})")
        if states.count(LEAVING):
            parts.append(f"{states.count(LEAVING)} being deleted")
        return f"machines: {', '.join(parts)}, {self.cost(now):.2f} USD"

    def utilisation(self, now: float) -> float | None:
        """Slot seconds held by jobs over slot seconds billed; None before anything is billed."""
        billed = sum(m.seconds(now) * m.slots for m in self.machines.values())
        held = sum(lease.seconds(now) for lease in self.leases.values())
        return held / billed if billed else None


def _apply_to_machine(
    machine: MachineRecord, what: str, data: Mapping[str, Any], time: float
) -> None:
    if what in ("asked", "made", "adopted", "skipped", "waiting", "trouble"):
        machine.note = str(data.get("text", "")).split("\n", 1)[0]
    if what == "wanted":
        machine.slots = data["slots"]
    elif what == "asked":
        machine.state = MAKING
        if machine.rent is not None and machine.rent.end is None:
            if machine.rent.taken:
                machine.rent.end = time  # it was made, and vanished
            else:
                machine.rents.pop()  # had that request made one, it were adopted
        machine.rents.append(Rent(data["type"], data["price"], time))
    elif what == "made":
        if machine.rent is not None and machine.rent.end is None:
            machine.rent.begin, machine.rent.taken = time, True
    elif what == "adopted":
        machine.state = MAKING
        if machine.rent is None or machine.rent.end is not None:
            machine.rents.append(Rent(data["type"] or "", data["price"] or 0.0, time))
        if machine.rent is not None:
            machine.rent.taken = True
    elif what == "skipped":
        if machine.rent is not None and machine.rent.end is None:
            machine.rents.pop()
    elif what == "ready":
        machine.state = READY
        machine.ready = machine.ready or time
    elif what == "deleting":
        machine.state = LEAVING
    elif what == "accepted":
        if machine.rent is not None:
            machine.rent.end = time
    elif what == "lost":
        machine.state, machine.lost, machine.lost_at = LEAVING, data["text"], time
    elif what == "deleted":
        machine.state, machine.deleted = GONE, time
        if machine.rent is not None and machine.rent.end is None:
            # Nobody could ask for the deletion of what was gone when it was lost.
            machine.rent.end = machine.lost_at or time
