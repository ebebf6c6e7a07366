"""Plots over training and over the run: learning curves, and the best value so far."""

from __future__ import annotations

import math

from tao_ray.report.run_data import REFERENCE, RunData
from tao_ray.report.svg import BEST, OTHER, STATUS, Plot, padded
from tao_ray.report.svg import REFERENCE as REFERENCE_INK
from tao_ray.report.text import dollars, duration, listing, shown
from tao_ray.search.base import TrialStatus
from tao_ray.trial.state import EpochState, Objective, TrialState

_HEIGHT = 320
_BETTER_SHARE, _ROOM = 0.4, 1.5
_LEAST_TO_CUT = 8


def trial_title(run: RunData, trial: TrialState) -> str:
    """What a tooltip says of a trial."""
    value = run.value(trial)
    lines = [
        f"trial {trial.id}, {trial.status}: {run.objective.metric} {shown(value)} "
        f"({len(trial.epochs)} epochs)"
    ]
    return "\n".join(lines + [f"{name}: {shown(v)}" for name, v in trial.config.items()])


def value_range(
    objective: Objective, values: list[float], told_apart: list[float] | None = None
) -> tuple[tuple[float, float], int]:
    """An objective's axis, on which good values can be told apart; how many values are beyond it.

    It spans the better two fifths of the values and one and a half times as much of the worse, so
    that evenly spread values nearly all fit, while those that are far worse do not press the good
    ones together. They are drawn at its edge.

    told_apart: the values this goes by, if not all of `values`.
    """
    losses = sorted(map(objective.loss, told_apart or values))
    limit = losses[-1]
    if len(losses) >= _LEAST_TO_CUT:
        better = losses[: 1 + int(_BETTER_SHARE * (len(losses) - 1))]
        span = better[-1] - better[0]
        limit = better[-1] + _ROOM * span if span > 0 else limit
    kept = [v for v in values if objective.loss(v) <= limit]
    cut = len(values) - len(kept)
    return padded([*kept, objective.value(limit)] if cut else kept), cut


def note_cut(plot: Plot, cut: int) -> None:
    """Say in a plot's corner that worse values are drawn at the edge of its axis."""
    if cut:
        plot.text(plot.x.end, 13, f"{cut} worse at the edge", anchor="end")


def learning_curves(run: RunData, width: int) -> str:
    """What trainings reported over their epochs; the best and the reference stand out."""
    metric = run.reported.metric
    curves = {t.id: curve for t in run.trials if (curve := learning_curve(run, t))}
    # By what the trials came to, not by all epochs: each curve starts low.
    reached = [min((v for _, v in curve), key=run.reported.loss) for curve in curves.values()]
    drawn_values = [v for curve in curves.values() for _, v in curve]
    axis, cut = value_range(run.reported, drawn_values, reached)
    plot = Plot(
        width,
        _HEIGHT,
        (min(epoch for curve in curves.values() for epoch, _ in curve), run.max_epochs),
        axis,
        label=f"{metric} of every trial over its epochs",
        x_label="epoch",
        y_label=metric,
        x_whole=True,
    )
    best = run.best[0].id if run.best else ""
    # Drawn last is drawn on top.
    drawn = [t for t in run.ranked if t.id in curves]
    for trial in sorted(drawn, key=lambda t: (t.id == best, t.id == REFERENCE)):
        color, size = OTHER, 1.2
        if trial.id == best:
            color, size = BEST, 2.8
        elif trial.id == REFERENCE:
            color, size = REFERENCE_INK, 2.0
        elif trial.status == TrialStatus.FAILED.value:
            color = STATUS["failed"]
        dash = "6 4" if trial.id == REFERENCE and trial.id != best else ""
        points = [(plot.x(epoch), plot.y(value)) for epoch, value in curves[trial.id]]
        title = trial_title(run, trial)
        plot.path(points, color, size, title=title, dash=dash)
        if trial.status == TrialStatus.FAILED.value:
            plot.cross(*points[-1], 4, color, title=title)
        elif trial.id != best:
            plot.dot(*points[-1], 2.5, color, title=title)
        value = run.reported_value(run.best[1]) if trial.id == best and run.best else None
        if run.best and value is not None:
            plot.dot(plot.x(run.best[1].epoch), plot.y(value), 5, color, title=title)
    note_cut(plot, cut)
    return str(plot)


def learning_curve(run: RunData, trial: TrialState) -> list[tuple[int, float]]:
    """(epoch, value) of what a trial's training reported, without what is not finite."""
    found = [(e, run.reported_value(trial.epochs[e])) for e in sorted(trial.epochs)]
    return [(epoch, v) for epoch, v in found if v is not None and math.isfinite(v)]


def best_over_time(run: RunData, width: int) -> str:
    """The best value so far over hours, minutes or seconds since the start."""
    per, unit = time_unit(run.now - (run.state.started or 0.0))
    points = [(seconds / per, value) for seconds, value in measured_over_time(run)]
    end = (run.now - (run.state.started or 0.0)) / per
    return _best_so_far(run, width, points, end, f"time since the start ({unit})")


def best_over_epochs(run: RunData, width: int) -> str:
    """The best value so far over the epochs trained by all trials together: over compute."""
    points = measured_over_epochs(run)
    return _best_so_far(run, width, points, run.epochs_trained, "epochs trained, all trials")


def best_over_cost(run: RunData, width: int) -> str:
    """The best value so far over what the machines had cost by then."""
    points = measured_over_cost(run)
    return _best_so_far(run, width, points, run.state.ledger.cost(run.now), "cost (USD)")


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit a span is shown in, as (seconds in it, name)."""
    for per, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * per:
            return per, unit
    return 1.0, "s"


def measured_over_time(run: RunData) -> list[tuple[float, float]]:
    """(seconds since the run's start, value) of every measured epoch, in order of time."""
    start = run.state.started or 0.0
    return [(e.time - start, v) for e in _by_time(run) if (v := run.epoch_value(e)) is not None]


def measured_over_epochs(run: RunData) -> list[tuple[float, float]]:
    """(epochs trained so far by all trials together, value) of every measured epoch."""
    numbered = enumerate(_by_time(run), 1)
    return [(float(i), v) for i, e in numbered if (v := run.epoch_value(e)) is not None]


def measured_over_cost(run: RunData) -> list[tuple[float, float]]:
    """(US dollars that the machines had cost by then, value) of every measured epoch."""
    cost = run.state.ledger.cost
    return [(cost(e.time), v) for e in _by_time(run) if (v := run.epoch_value(e)) is not None]


def steps(run: RunData, points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those of `points` whose value is better than all before."""
    found: list[tuple[float, float]] = []
    for x, value in points:
        if math.isfinite(value) and (not found or run.gain(value, found[-1][1]) > 0):
            found.append((x, value))
    return found


def step_line(
    plot: Plot, found: list[tuple[float, float]], end: float
) -> list[tuple[float, float]]:
    """`steps` as the corners of a staircase that goes on until `end`, in pixels."""
    line = [(plot.x(found[0][0]), plot.y(found[0][1]))]
    for x, value in found[1:]:
        line += [(plot.x(x), line[-1][1]), (plot.x(x), plot.y(value))]
    return [*line, (plot.x(end), line[-1][1])]


def _by_time(run: RunData) -> list[EpochState]:
    return sorted((e for t in run.trials for e in t.epochs.values()), key=lambda e: e.time)


def _best_so_far(
    run: RunData, width: int, points: list[tuple[float, float]], end: float, x_label: str
) -> str:
    found = steps(run, points)
    axis, cut = value_range(run.objective, [v for _, v in found])
    plot = Plot(
        width,
        240,
        (0.0, end),
        axis,
        label=f"best {run.objective.metric} so far over {x_label}",
        x_label=x_label,
        y_label=f"best {run.objective.metric} so far",
    )
    plot.path(step_line(plot, found, end), BEST, 2.2)
    for x, value in found:
        plot.dot(plot.x(x), plot.y(value), 3, BEST, title=f"{shown(value)} at {shown(x)}")
    reference = run.value(run.reference) if run.reference else None
    if reference is not None and axis[0] <= reference <= axis[1]:
        y = plot.y(reference)
        plot.path([(plot.x.start, y), (plot.x.end, y)], REFERENCE_INK, 1.5, dash="6 4")
        plot.text(plot.x.end, y + 15, f"trial 0: {shown(reference)}", anchor="end", halo=True)
    note_cut(plot, cut)
    return str(plot)


def pace(run: RunData) -> str:
    """When the best value was found, for a caption."""
    if run.best is None or run.state.started is None:
        return ""
    epoch = run.best[1]
    before = sum(e.time <= epoch.time for t in run.trials for e in t.epochs.values())
    parts = [
        f"after {duration(epoch.time - run.state.started)}",
        f"{before} of {run.epochs_trained} epochs trained",
    ]
    if run.rented:
        cost = run.state.ledger.cost
        parts.append(f"{dollars(cost(epoch.time))} of {dollars(cost(run.now))}")
    return f"The best value was reached {listing(parts)}."
