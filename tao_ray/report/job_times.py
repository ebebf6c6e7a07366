"""When which job had a slot, trainings and evaluations alike.

All that a report says of job time comes from here, so that its figures agree: the timeline, how
busy the machines were, the time of a trial. On a rented machine a job has its slot from when the
machine is given to it until nothing of it runs there any more, its start included; elsewhere from
when it is launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tao_ray.experiment.evaluation_records import RUNNING
from tao_ray.journal import Event
from tao_ray.platforms.ledger import KIND as MACHINE
from tao_ray.trial.state import RunState


@dataclass(frozen=True)
class JobTime:
    """A job's use of one slot. Times are ``time.time()``.

    owner: its trial, or "baseline" or "final". evaluates: it is an evaluate job, or a baseline's.
    asked: it was wanted. launched: the job itself began, None: it had not. machine: the rented one
    it was on, else "". running: it had not ended yet, `end` is now.
    """

    id: str
    owner: str
    evaluates: bool
    asked: float
    begin: float
    end: float
    launched: float | None
    machine: str = ""
    running: bool = False

    @property
    def seconds(self) -> float:
        """For which it had the slot."""
        return max(self.end - self.begin, 0.0)


def job_times(state: RunState, events: Sequence[Event], now: float) -> list[JobTime]:
    """Every job that had a slot, by when it got it; one for each machine that a job was on."""
    leases = _leases(events, now)
    found: list[JobTime] = []
    for job in [*_trainings(state, now), *_evaluations(events, now)]:
        if job.id in leases:
            found += [
                replace(job, begin=begin, end=end, machine=machine, running=running)
                for machine, begin, end, running in leases[job.id]
            ]
        elif job.launched is not None:
            found.append(job)
    return sorted(found, key=lambda job: job.begin)


def _trainings(state: RunState, now: float) -> list[JobTime]:
    return [
        JobTime(
            id=job.id,
            owner=trial.id,
            evaluates=False,
            asked=job.started,
            begin=job.started if job.launched is None else job.launched,
            end=now if job.ended is None else job.ended,
            launched=job.launched,
            running=job.ended is None,
        )
        for trial in state.trials.values()
        for job in trial.jobs
    ]


def _evaluations(events: Sequence[Event], now: float) -> list[JobTime]:
    """From the records: the first that says a job is running, and the next that says it is not."""
    found: dict[str, JobTime] = {}
    for event in events:
        job = str(event.data.get("job") or "") if event.kind == "evaluation" else ""
        if not job:
            continue
        time, going = event.time, event.data.get("status") == RUNNING
        if going and job not in found:
            owner = event.data["name"]
            found[job] = JobTime(job, owner, True, time, time, now, time, running=True)
        elif not going and job in found and found[job].running:
            found[job] = replace(found[job], end=time, running=False)
    return list(found.values())


def _leases(events: Sequence[Event], now: float) -> dict[str, list[tuple[str, float, float, bool]]]:
    """Job -> (machine, begin, end, whether it still runs) of each of its leases.

    Not from the ledger, which forgets a lease when nothing more is to be done about it.
    """
    found: dict[str, list[tuple[str, float, float, bool]]] = {}
    for event in events:
        if event.kind != MACHINE:
            continue
        what, name, job = event.data["what"], event.data["name"], event.data.get("job")
        if what == "leased":
            found.setdefault(event.data["job"], []).append((name, event.time, now, True))
            continue
        if what == "returned":
            ended = [str(job)]
        else:
            ended = list(found) if what in ("lost", "deleted") else []
        for known in ended:
            leases = found.get(known, [])
            if leases and leases[-1][0] == name and leases[-1][3]:
                leases[-1] = (name, leases[-1][1], event.time, False)
    return found
