"""Runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle

from tao_ray.report.curves import (
    measured_over_epochs,
    measured_over_time,
    step_line,
    steps,
    time_unit,
)
from tao_ray.report.document import Block, Bullets, Document, Figure, Section, Table, Text, code
from tao_ray.report.noise import verdict
from tao_ray.report.run_data import RunData
from tao_ray.report.svg import Plot, padded
from tao_ray.report.text import dollars, duration, shown, signed
from tao_ray.search.base import TrialStatus

_COLORS = {
    "orange": "#c2410c",
    "blue": "#2563eb",
    "green": "#059669",
    "violet": "#7c3aed",
    "pink": "#db2777",
    "grey": "#4b5563",
}


def comparison(runs: Sequence[RunData]) -> Document:
    """A document that puts runs side by side; the first is what the others are measured by."""
    blocks: list[Block] = [Bullets(remarks(runs))] if remarks(runs) else []
    blocks.append(Table(["", *(code(r.id) for r in runs)], rows(runs)))
    if same_objective(runs) and any(r.best for r in runs):
        metric = runs[0].objective.metric
        blocks += [
            Figure(f"Best {metric} so far over time", partial(_overlay, runs, True), half=True),
            Figure(f"Best {metric} so far over compute", partial(_overlay, runs, False), half=True),
            Text(
                ", ".join(
                    f"{color}: {r.id}" for color, r in zip(cycle(_COLORS), runs, strict=False)
                )
            ),
        ]
    return Document("Comparison", ", ".join(r.id for r in runs), [Section("Side by side", blocks)])


def remarks(runs: Sequence[RunData]) -> list[str]:
    """What keeps these runs from being compared without a thought."""
    found = []
    if not same_objective(runs):
        listed = ", ".join(
            f"{r.id}: {r.objective.direction} {r.objective.metric} ({r.objective.at})" for r in runs
        )
        found.append(f"The objectives differ, so the values cannot be compared: {listed}")
    for fact, what in (("network", "networks"), ("max_epochs", "epochs of a full training")):
        if len({r.facts[fact] for r in runs}) > 1:
            values = ", ".join(f"{r.id}: {r.facts[fact]}" for r in runs)
            found.append(f"The {what} differ: {values}")
    if len({repr(sorted(p["name"] for p in r.space)) for r in runs}) > 1:
        found.append("The searched parameters differ.")
    found += [f"{r.id} has not ended: {r.phase}" for r in runs if r.phase != "ended"]
    return found


def same_objective(runs: Sequence[RunData]) -> bool:
    """Whether all runs optimise the same thing."""
    return len({r.objective for r in runs}) == 1


def rows(runs: Sequence[RunData]) -> list[list[str]]:
    """The table: a name, then one text per run."""
    table = [
        ["status", *(r.outcome or r.phase for r in runs)],
        ["network", *(f"{r.facts['network']} {r.facts['action']}" for r in runs)],
        ["algorithm", *(f"{r.facts['algorithm']}, seed {r.facts.get('seed', '–')}" for r in runs)],
        ["trials", *(_trials(r) for r in runs)],
        ["epochs trained", *(str(r.epochs_trained) for r in runs)],
        ["time", *(duration(r.elapsed) for r in runs)],
        ["cost", *(dollars(r.state.ledger.cost(r.now)) if r.rented else "–" for r in runs)],
        ["objective", *(f"{r.objective.direction} {r.objective.metric}" for r in runs)],
        ["best", *(_best(r) for r in runs)],
        ["defaults (trial 0)", *(shown(r.reference and r.value(r.reference), 5) for r in runs)],
        ["gain over the defaults", *(_own_gain(r) for r in runs)],
        ["baseline", *(_evaluated(r, "baseline") for r in runs)],
        ["final evaluation", *(_evaluated(r, "final") for r in runs)],
        ["is it noise?", *(verdict(r).title for r in runs)],
    ]
    if same_objective(runs):
        table.append([f"better than {runs[0].id} by", "–", *(_over(r, runs[0]) for r in runs[1:])])
    names = list(dict.fromkeys(n for r in runs if r.best for n in r.best[0].config))
    table += [
        [name, *(shown(r.best[0].config.get(name)) if r.best else "–" for r in runs)]
        for name in names
    ]
    return table


def _trials(run: RunData) -> str:
    failed = sum(t.status == TrialStatus.FAILED.value for t in run.trials)
    return f"{len(run.trials)} of {run.facts['trials']}" + (f", {failed} failed" if failed else "")


def _best(run: RunData) -> str:
    if run.best is None:
        return "–"
    trial, epoch = run.best
    return f"{shown(run.value(trial), 5)} (trial {trial.id}, epoch {epoch.epoch})"


def _evaluated(run: RunData, name: str) -> str:
    record = run.state.evaluations.get(name, {})
    value = record.get("metric")
    return "–" if value is None else f"{record['metric_name']} {shown(value, 5)}"


def _own_gain(run: RunData) -> str:
    reference = run.value(run.reference) if run.reference else None
    best = run.value(run.best[0]) if run.best else None
    return "–" if best is None or reference is None else signed(run.gain(best, reference))


def _over(run: RunData, other: RunData) -> str:
    ours = run.value(run.best[0]) if run.best else None
    theirs = other.value(other.best[0]) if other.best else None
    return "–" if ours is None or theirs is None else signed(run.gain(ours, theirs))


def _overlay(runs: Sequence[RunData], over_time: bool, width: int) -> str:
    lines = []
    per, unit = time_unit(max(r.now - (r.state.started or 0.0) for r in runs))
    for run in runs:
        if over_time:
            points = [(seconds / per, v) for seconds, v in measured_over_time(run)]
            end = (run.now - (run.state.started or 0.0)) / per
        else:
            points, end = measured_over_epochs(run), float(run.epochs_trained)
        lines.append((steps(run, points), end))
    values = [v for line, _ in lines for _, v in line]
    plot = Plot(
        width,
        280,
        (0.0, max(end for _, end in lines) or 1.0),
        padded(values),
        label="best value so far of every run",
        x_label=f"time since the start ({unit})"
        if over_time
        else "epochs trained, all trials together",
        y_label=runs[0].objective.metric,
    )
    for run, color, (line, end) in zip(runs, cycle(_COLORS.values()), lines, strict=False):
        if not line:
            continue
        plot.path(step_line(plot, line, end), color, 2.2, title=run.id)
    return str(plot)
