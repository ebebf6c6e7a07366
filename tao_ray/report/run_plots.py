"""Plots of what the run did: rungs, and who used which slot when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tao_ray.report.curves import time_unit, trial_title, value_range
from tao_ray.report.run_data import RunData
from tao_ray.report.svg import BEST, CHAR, GRID, INK, MUTED, OTHER, STATUS, Plot, Scale, Svg
from tao_ray.report.text import count, duration, shown
from tao_ray.search.base import Decision
from tao_ray.trial.state import JobState, TrialState

_LANE = 24
_PALE = "#e5e9f0"


@dataclass(frozen=True)
class Rung:
    """An epoch at which trials were stopped or paused: what became of each that reached it.

    went_on includes trials that were paused here and resumed later.
    """

    epoch: int
    values: dict[str, float]
    went_on: frozenset[str]
    waiting: frozenset[str]

    @property
    def ended(self) -> set[str]:
        return set(self.values) - self.went_on - self.waiting


def rungs(run: RunData) -> list[Rung]:
    """The rungs, from the journalled decisions; the full training is the last one. Empty for a
    search that trains every trial to the end."""
    halting = {Decision.STOP.value, Decision.PAUSE.value}
    decided = [e for e in run.events if e.kind == "decision" and e.data["decision"] in halting]
    epochs = sorted({e.data["epoch"] for e in decided} - {run.max_epochs})
    if not epochs:
        return []
    found = []
    for epoch in [*epochs, run.max_epochs]:
        at = {
            t.id: v
            for t in run.trials
            if (v := run.reported_value(t.epochs.get(epoch))) is not None
        }
        trials = run.state.trials
        went_on = {i for i in at if trials[i].last_epoch > epoch}
        if epoch == run.max_epochs:
            went_on = {i for i in at if trials[i].status == "completed"}
        waiting = {i for i in at if i not in went_on and trials[i].alive}
        found.append(Rung(epoch, at, frozenset(went_on), frozenset(waiting)))
    return found


def rung_diagram(run: RunData, found: Sequence[Rung], width: int) -> str:
    """Per rung every trial's value when it got there, and how many went on."""
    values = [v for r in found for v in r.values.values()]
    axis, _ = value_range(run.reported, values)
    ticks = [(float(i), f"epoch {r.epoch}") for i, r in enumerate(found)]
    if width < 90 * len(found):
        ticks = [(float(i), str(r.epoch)) for i, r in enumerate(found)]
    plot = Plot(
        width,
        300,
        (-0.5, len(found) - 0.5),
        axis,
        label="what became of the trials at each rung",
        x_label="epoch" if width < 90 * len(found) else " ",
        y_label=f"{run.reported.metric} on arrival",
        x_ticks=ticks,
    )
    trials = run.state.trials
    best = run.best[0].id if run.best else ""
    for i, (here, there) in enumerate(pairwise(found)):
        for trial in here.values.keys() & there.values.keys():
            points = [
                (plot.x(i), plot.y(here.values[trial])),
                (plot.x(i + 1), plot.y(there.values[trial])),
            ]
            on_top = trial == best
            plot.path(points, BEST if on_top else "#bfdbfe", 2.4 if on_top else 1.2)
    for i, rung in enumerate(found):
        for trial, value in rung.values.items():
            title = trial_title(run, trials[trial])
            x, y = plot.x(i), plot.y(value)
            if trial in rung.went_on:
                color = BEST if trial == best else STATUS["completed"]
                plot.dot(x, y, 5 if trial == best else 4, color, title=title)
            elif trial in rung.waiting:
                plot.dot(x, y, 4, STATUS["paused"], title=title)
            else:
                plot.dot(x, y, 4, OTHER, title=title, hollow=True)
    return str(plot)


@dataclass(frozen=True)
class Bar:
    """One job on the timeline. Times are seconds since the run's start.

    machine: the rented machine it was on, else "". lane: of that machine, or of the run.
    """

    trial: TrialState
    job: JobState
    asked: float
    start: float
    end: float
    lane: int
    open: bool
    machine: str = ""


def timeline_bars(run: RunData) -> list[Bar]:
    """Every launched job, on its machine in the first lane that was free when it started.

    The journal does not say which slot a job had, so the lanes are as few as would do.
    """
    begun = run.state.started or 0.0
    lanes: dict[str, list[float]] = {}
    bars = []
    jobs = [(j, t) for t in run.trials for j in t.jobs if j.launched is not None]
    for job, trial in sorted(jobs, key=lambda pair: pair[0].launched or 0.0):
        start = (job.launched or 0.0) - begun
        end = (job.ended or run.now) - begun
        machine = run.machine_of.get(job.id, "")
        free = lanes.setdefault(machine, [])
        lane = next((i for i, until in enumerate(free) if until <= start), len(free))
        if lane == len(free):
            free.append(0.0)
        free[lane] = end
        asked = max(job.started - begun, 0.0)
        running = job.ended is None
        bars.append(Bar(trial, job, asked, start, max(end, start), lane, running, machine))
    return bars


def utilisation(run: RunData, bars: Sequence[Bar]) -> float:
    """Share of the slots' time, over the whole run, in which a job ran."""
    slots = int(run.facts["max_concurrent"])
    if not run.rented:
        slots = max(slots, 1 + max(b.lane for b in bars))
    busy = sum(b.end - b.start for b in bars)
    return busy / max(slots * (run.now - (run.state.started or 0.0)), 1e-9)


def timeline(run: RunData, bars: Sequence[Bar], width: int) -> str:
    """When which trial's job ran, on which machine if it was a rented one."""
    labels = machine_labels(run)
    order = list(labels)
    rows = sorted(
        {(b.machine, b.lane) for b in bars},
        key=lambda row: (order.index(row[0]) if row[0] in labels else -1, row[1]),
    )
    lanes = len(rows)
    total = max(run.now - (run.state.started or 0.0), 1e-9)
    per, unit = time_unit(total)
    height = lanes * _LANE + 56
    drawing = Svg(width, height, "which trial ran when")
    x = Scale(0.0, total / per, 30.0, width - 10.0)
    bottom = lanes * _LANE + 12.0
    for tick in x.ticks(width // 90):
        drawing.line(x(tick), 8, x(tick), bottom + 4, GRID)
        drawing.text(x(tick), bottom + 18, f"{tick:g}", anchor="middle")
    best = run.best[0].id if run.best else ""
    for i, (machine, lane) in enumerate(rows):
        drawing.text(24, i * _LANE + 26, labels.get(machine, str(lane + 1)), anchor="end")
        for left, right in _rented(run, machine, per):
            width_ = max(x(right) - x(left), 1.0)
            drawing.rect(x(left), i * _LANE + 12.0, width_, _LANE - 6, _PALE, title=machine)
    for bar in bars:
        y = rows.index((bar.machine, bar.lane)) * _LANE + 12.0
        left, right = x(bar.start / per), x(bar.end / per)
        color = STATUS.get("running" if bar.open else bar.trial.status, OTHER)
        title = (
            f"job {bar.job.id}: {duration(bar.end - bar.start)}, from {duration(bar.start)} to "
            f"{duration(bar.end)}; trial {bar.trial.id} {bar.trial.status}"
        )
        marked = BEST if bar.trial.id == best else ""
        drawing.rect(left, y, right - left, _LANE - 6, color, title=title, stroke=marked)
        label = bar.trial.id.lstrip("0") or "0"
        if right - left > len(label) * CHAR + 4:
            ink = INK if bar.trial.status in ("stopped", "pending") and not bar.open else "#fff"
            drawing.text((left + right) / 2, y + 13, label, anchor="middle", color=ink)
    drawing.line(x.start, bottom, x.end, bottom, MUTED)
    drawing.text(x.end, height - 6, f"time since the start ({unit})", anchor="end", color=INK)
    drawing.text(0, height - 6, "machine" if labels else "slot", color=INK)
    return str(drawing)


def machine_labels(run: RunData) -> dict[str, str]:
    """Short names of the rented machines, in the order in which they were wanted."""
    return {name: f"m{i}" for i, name in enumerate(run.state.ledger.machines, 1)}


def _rented(run: RunData, machine: str, per: float) -> list[tuple[float, float]]:
    """When a machine was paid for, since the run's start; what was before is cut off."""
    record, begun = run.state.ledger.machines.get(machine), run.state.started or 0.0
    rents = record.rents if record else []
    spans = [(r.begin - begun, (r.end or run.now) - begun) for r in rents]
    return [(max(a, 0.0) / per, b / per) for a, b in spans if b > 0.0]


def halving_text(run: RunData, found: Sequence[Rung]) -> list[str]:
    """What each rung did, one line each."""
    lines = []
    for rung in found:
        on = f"{len(rung.went_on)} went on"
        if rung.epoch == run.max_epochs:
            on = f"{len(rung.went_on)} completed"
        parts = [on]
        if rung.waiting:
            parts.append(f"{len(rung.waiting)} not decided yet")
        if rung.ended:
            parts.append(f"{len(rung.ended)} ended here")
        best = min(rung.values.values(), key=run.reported.loss, default=None)
        lines.append(
            f"epoch {rung.epoch}: {count(len(rung.values), 'trial')} arrived, {', '.join(parts)}; "
            f"best {shown(best)}"
        )
    return lines
