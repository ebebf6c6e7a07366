"""The timeline: which job had which slot when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tao_ray.report.curves import time_unit
from tao_ray.report.job_times import JobTime
from tao_ray.report.run_data import RunData
from tao_ray.report.svg import BEST, CHAR, GRID, INK, MUTED, OTHER, STATUS, Scale, Svg
from tao_ray.report.text import duration

_LANE = 24
_PALE = "#e5e9f0"
_EVALUATION = "#7c3aed"


@dataclass(frozen=True)
class Bar:
    """One job on the timeline. start, end: seconds since the run's start, negative before it.

    lane: of its machine, or of the run.
    """

    job: JobTime
    start: float
    end: float
    lane: int


def timeline_bars(run: RunData) -> list[Bar]:
    """Every job, on its machine in the first lane that was free when it started.

    The journal does not say which slot a job had, so the lanes are as few as would do.
    """
    begun = run.state.started or 0.0
    lanes: dict[str, list[float]] = {}
    bars = []
    for job in run.jobs:
        free = lanes.setdefault(job.machine, [])
        lane = next((i for i, until in enumerate(free) if until <= job.begin), len(free))
        if lane == len(free):
            free.append(0.0)
        free[lane] = job.end
        bars.append(Bar(job, job.begin - begun, max(job.end, job.begin) - begun, lane))
    return bars


def slots_used(run: RunData, bars: Sequence[Bar]) -> tuple[float, int]:
    """(share of the slots' time over the whole run in which a job had one, slots)."""
    slots = max(int(run.facts["max_concurrent"]), 1 + max(b.lane for b in bars))
    busy = sum(b.end - max(b.start, 0.0) for b in bars if b.end > 0.0)
    return busy / max(slots * (run.now - (run.state.started or 0.0)), 1e-9), slots


def timeline(run: RunData, bars: Sequence[Bar], width: int) -> str:
    """When which job ran, on which machine if it was a rented one."""
    labels = machine_labels(run)
    order = list(labels)
    rows = sorted(
        {(b.job.machine, b.lane) for b in bars},
        key=lambda row: (order.index(row[0]) if row[0] in labels else -1, row[1]),
    )
    total = max(run.now - (run.state.started or 0.0), 1e-9)
    per, unit = time_unit(total)
    bottom = len(rows) * _LANE + 12.0
    height = bottom + 44
    drawing = Svg(width, int(height), "which job ran when")
    x = Scale(min(0.0, *(b.start for b in bars)) / per, total / per, 30.0, width - 10.0)
    for tick in x.ticks(width // 90):
        drawing.line(x(tick), 8, x(tick), bottom + 4, GRID)
        drawing.text(x(tick), bottom + 18, f"{tick:g}", anchor="middle")
    for i, (machine, lane) in enumerate(rows):
        drawing.text(24, i * _LANE + 26, labels.get(machine, str(lane + 1)), anchor="end")
        for left, right in _rented(run, machine, per):
            span = max(x(right) - x(left), 1.0)
            drawing.rect(x(left), i * _LANE + 12.0, span, _LANE - 6, _PALE, title=machine)
    for bar in bars:
        _draw(drawing, x, per, run, bar, rows.index((bar.job.machine, bar.lane)) * _LANE + 12.0)
    drawing.line(x.start, bottom, x.end, bottom, MUTED)
    drawing.text(x.end, height - 6, f"time since the start ({unit})", anchor="end", color=INK)
    drawing.text(0, height - 6, "machine" if labels else "slot", color=INK)
    return str(drawing)


def _draw(drawing: Svg, x: Scale, per: float, run: RunData, bar: Bar, y: float) -> None:
    job, trial = bar.job, run.state.trials.get(bar.job.owner)
    status = "running" if job.running else trial.status if trial else ""
    color = _EVALUATION if job.evaluates else STATUS.get(status, OTHER)
    left, right = x(bar.start / per), x(bar.end / per)
    whose = f"trial {trial.id} {trial.status}" if trial else f"the {job.owner} evaluation"
    title = (
        f"job {job.id}: {duration(job.seconds)}, from {duration(bar.start)} to "
        f"{duration(bar.end)}; {whose}"
    )
    marked = run.best is not None and job.owner == run.best[0].id
    stroke = BEST if marked else ""
    drawing.rect(left, y, right - left, _LANE - 6, color, title=title, stroke=stroke)
    label = job.owner.lstrip("0") or "0"
    if right - left > len(label) * CHAR + 4:
        ink = INK if status in ("stopped", "pending") and not job.evaluates else "#fff"
        drawing.text((left + right) / 2, y + 13, label, anchor="middle", color=ink)


def machine_labels(run: RunData) -> dict[str, str]:
    """Short names of the rented machines, in the order in which they were wanted."""
    return {name: f"m{i}" for i, name in enumerate(run.state.ledger.machines, 1)}


def _rented(run: RunData, machine: str, per: float) -> list[tuple[float, float]]:
    """When a machine was paid for, since the run's start."""
    record, begun = run.state.ledger.machines.get(machine), run.state.started or 0.0
    rents = record.rents if record else []
    return [((r.begin - begun) / per, ((r.end or run.now) - begun) / per) for r in rents]
