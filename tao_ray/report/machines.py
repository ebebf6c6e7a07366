"""The rented machines: what each cost, how much of that was idle, and what went wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tao_ray.platforms.ledger import KIND as MACHINE
from tao_ray.platforms.ledger import MachineRecord, Rent
from tao_ray.report.document import Block, Table, Text, code
from tao_ray.report.run_data import RunData
from tao_ray.report.text import dollars, duration, listing
from tao_ray.report.timeline import machine_labels
from tao_ray.trial.failure import Failure

_LEFT, _MISSED, _LOST = "abandoned", "skipped", "lost"


@dataclass(frozen=True)
class Use:
    """One instance that was paid for. paid: seconds; held: those of its slots that jobs had."""

    label: str
    machine: MachineRecord
    rent: Rent
    paid: float
    held: float
    cost: float

    @property
    def idle_cost(self) -> float:
        """What its unused slots cost."""
        slot_seconds = self.paid * self.machine.slots
        return self.cost * (1 - self.held / slot_seconds) if slot_seconds else 0.0


def uses(run: RunData) -> list[Use]:
    """Every instance, one for each time that a machine's name was rented."""
    found = []
    for label, machine in zip(
        machine_labels(run).values(), run.state.ledger.machines.values(), strict=True
    ):
        for rent in machine.rents:
            end = run.now if rent.end is None else rent.end
            held = sum(
                max(min(job.end, end) - max(job.begin, rent.begin), 0.0)
                for job in run.jobs
                if job.machine == machine.name
            )
            paid, cost = rent.seconds(run.now), rent.cost(run.now)
            found.append(Use(label, machine, rent, paid, held, cost))
    return found


def machine_costs(run: RunData) -> list[Block]:
    """What was paid for which machine, and how much of it jobs have used."""
    found = uses(run)
    paid = sum(use.paid * use.machine.slots for use in found)
    held, cost = sum(use.held for use in found), sum(use.cost for use in found)
    text = f"Cost: **{dollars(cost)}**"
    if paid:
        idle = sum(use.idle_cost for use in found)
        text += (
            f". Jobs, the baseline's and the final evaluation's among them, held {duration(held)} "
            f"of the {duration(paid)} that were paid for: {held / paid:.0%}. The rest, "
            f"**{dollars(idle)}, was idle**: machines that start or never do, results being "
            "copied, decisions, and the end of the search, when slots run dry"
        )
    rows = [
        [
            use.label,
            use.rent.type,
            f"{use.rent.price_per_hour:.2f}",
            duration(use.paid),
            duration(use.held),
            dollars(use.idle_cost),
            dollars(use.cost),
            _fate(run, use),
            code(use.machine.name),
        ]
        for use in found
    ]
    head = ["", "type", "USD/h", "paid for", "jobs", "idle", "cost", "now", "name"]
    return [Text(f"{text}."), Table(head, rows, numeric=frozenset({2, 3, 4, 5, 6}))]


def _fate(run: RunData, use: Use) -> str:
    if use.rent is not use.machine.rent:
        return "given up" if use.rent.end is None else "given up, gone"
    return use.machine.lost or ("deleted" if use.machine.deleted else use.machine.state)


def machine_troubles(run: RunData) -> list[str]:
    """What went wrong with machines and what was done about it, one line each."""
    labels = machine_labels(run)
    lines = []
    for name, label in labels.items():
        events = [
            (e.time, e.data) for e in run.events if e.kind == MACHINE and e.data["name"] == name
        ]
        missed = [data for _, data in events if data["what"] == _MISSED]
        if missed:
            types = listing(list(dict.fromkeys(code(data["type"]) for data in missed)))
            lines.append(f"{label}: not to be had was {types} ({_reason(missed[-1])}).")
        for i, (time, data) in enumerate(events):
            if data["what"] in (_LEFT, _LOST):
                lines.append(f"{label}: {_given_up(run, name, time, data, events[i + 1 :])}")
    return lines + _retries(run, labels)


def _given_up(
    run: RunData,
    name: str,
    time: float,
    data: Mapping[str, Any],
    after: Sequence[tuple[float, Mapping[str, Any]]],
) -> str:
    rents = [r for r in run.state.ledger.machines[name].rents if r.begin <= time]
    rent = rents[-1] if rents else None
    since = f" after {duration(time - rent.begin)}" if rent else ""
    verb = "lost" if data["what"] == _LOST else "given up"
    parts = [f"{code(rent.type) if rent else 'it'} was {verb}{since}: {_reason(data)}"]
    asked = next((d for _, d in after if d["what"] == "asked"), None)
    ready = next((t for t, d in after if d["what"] == "ready"), None)
    if asked is not None:
        answered = f", which was ready {duration(ready - time)} later" if ready else ""
        parts.append(f"{code(asked['type'])} was rented in its place{answered}")
    elif data["what"] == _LOST:
        jobs = [j.id for j in run.jobs if j.machine == name and j.begin <= time <= j.end]
        parts.append(f"it had {listing(jobs)}" if jobs else "no job was on it")
    if rent is not None:
        seconds, cost = duration(rent.seconds(run.now)), dollars(rent.cost(run.now))
        parts.append(f"counted as paid for the first: {seconds}, {cost}")
    return "; ".join(parts) + "."


def _retries(run: RunData, labels: Mapping[str, str]) -> list[str]:
    """Trials that went on in another job, because their machine or the link to it failed."""
    places = {job.id: f" on {m}" for job in run.jobs if (m := labels.get(job.machine))}
    lines = []
    for trial in run.trials:
        own = [e for e in run.events if e.trial == trial.id and e.kind in ("job", "retry")]
        for before, event, after in zip(own, own[1:], [*own[2:], None], strict=False):
            if event.kind != "retry":
                continue
            failure, job = Failure.from_json(event.data["failure"]), before.data["job"]
            went_on = "; it waits to go on"
            if after is not None:
                again, epoch = after.data["job"], after.data["resume_epoch"]
                since = f"after epoch {epoch}" if epoch else "from the beginning"
                went_on = f"; it went on {since} as {again}{places.get(again, '')}"
            lines.append(
                f"trial {trial.id}: job {job}{places.get(job, '')} broke off "
                f"({failure.message}){went_on}."
            )
    return lines


def _reason(data: Mapping[str, Any]) -> str:
    """The first line of what was said of a machine, without the name that its label stands for."""
    return str(data.get("text", "")).split("\n", 1)[0].removeprefix(f"{data['name']}: ")


def rent_note(run: RunData) -> str:
    """What starting something anew on the platform of this run means for the purse, or ""."""
    prices = sorted(use.rent.price_per_hour for use in uses(run))
    if not prices:
        return ""
    span = f"${prices[0]:.2f}"
    if prices[-1] != prices[0]:
        span += f" to ${prices[-1]:.2f}"
    return f"rents machines on {run.facts.get('platform', 'the platform')}, {span} per hour each"
