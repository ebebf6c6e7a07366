"""The rungs of an early-stopping search: what it did at each, drawn and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tao_ray.report.curves import note_cut, trial_title, value_range
from tao_ray.report.run_data import RunData
from tao_ray.report.svg import BEST, OTHER, STATUS, Plot
from tao_ray.report.text import count, shown
from tao_ray.search.base import Decision

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
    axis, cut = value_range(run.reported, values)
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
    note_cut(plot, cut)
    return str(plot)


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
            f"best value at that epoch {shown(best)}"
        )
    return lines
