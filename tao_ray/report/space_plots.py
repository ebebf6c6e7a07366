"""Plots over the search space: importance, parallel coordinates, slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tao_ray.report.curves import note_cut, trial_title, value_range
from tao_ray.report.importance import Importance, unit
from tao_ray.report.run_data import REFERENCE, RunData
from tao_ray.report.svg import BEST, CHAR, INK, MUTED, Plot, Scale, Svg, tick_text
from tao_ray.report.svg import REFERENCE as REFERENCE_INK
from tao_ray.report.text import short_names, shown

_BAD, _GOOD = (0xD6, 0xDB, 0xE3), (0x1D, 0x4E, 0xD8)
_FIRM, _TENTATIVE = "#2563eb", "#dbe6fb"
_BAR = 26
_ROW = 46


def importance_bars(found: Importance, width: int) -> str:
    """The share each parameter explains alone, with its 10 to 90 percent range over trees.

    Where the forest cannot be relied on, bars are pale and say their range instead of a value.
    """
    effects, color = found.effects, _TENTATIVE if found.tentative else _FIRM
    names = short_names([e.name for e in effects])
    left = min(max(len(n) for n in names.values()) * CHAR + 12, width * 0.45)
    drawing = Svg(width, len(effects) * _BAR + 24, "importance of every parameter")
    x = Scale(
        0.0, max(e.high for e in effects) or 1.0, left, width - (76.0 if found.tentative else 46.0)
    )
    for i, effect in enumerate(effects):
        y = i * _BAR + 4.0
        title = (
            f"{effect.name}: {effect.share:.0%} (10 to 90% of trees: {effect.low:.0%} to "
            f"{effect.high:.0%})"
        )
        drawing.fitted(left - 8, y + 13, names[effect.name], left - 10, anchor="end", color=INK)
        drawing.rect(left, y + 2, x(effect.share) - left, 14, color, title=title)
        drawing.line(x(effect.low), y + 9, x(effect.high), y + 9, INK, 1.5)
        text = f"{effect.share:.0%}"
        if found.tentative:
            text = f"{100 * effect.low:.0f}–{effect.high:.0%}?"
        drawing.text(x(max(effect.high, effect.share)) + 6, y + 13, text)
    bottom = len(effects) * _BAR + 18
    drawing.text(width - 4, bottom, "share of the variance explained alone", anchor="end")
    return str(drawing)


def parallel_coordinates(run: RunData, order: Sequence[Mapping[str, Any]], width: int) -> str:
    """Each trial a line down the rows, one row per parameter and the objective last.

    Rows instead of columns, so that names of any length and number fit any screen.
    """
    trials = [t for t in reversed(run.ranked) if t.measured()]
    names = short_names([p["name"] for p in order])
    drawing = Svg(width, (len(order) + 1) * _ROW + 8, "parallel coordinates of all trials")
    across = Scale(0.0, 1.0, 14.0, width - 14.0)
    axis, cut = value_range(run.objective, [v for t in trials if (v := run.value(t)) is not None])
    bottom = len(order) * _ROW + 30.0
    objective = Scale(*axis, across.start, across.end)
    for i, trial in enumerate(trials):
        points = [
            (across(unit(p, trial.config[p["name"]])), row * _ROW + 30.0)
            for row, p in enumerate(order)
        ]
        points.append((objective(run.value(trial) or 0.0), bottom))
        color, size, dash = _shade((i / max(len(trials) - 1, 1)) ** 2), 1.2, ""
        if run.best and trial.id == run.best[0].id:
            color, size = BEST, 3.0
        elif trial.id == REFERENCE:
            color, size, dash = REFERENCE_INK, 2.0, "6 4"
        drawing.path(points, color, size, title=trial_title(run, trial), dash=dash)
    for row, parameter in enumerate(order):
        y = row * _ROW + 30.0
        low, high = _ends(parameter)
        drawing.line(across.start, y, across.end, y, MUTED)
        name = names[parameter["name"]]
        drawing.text(across.start, y - 8, name, color=INK, bold=True, halo=True)
        drawing.text(across.end, y - 8, f"{low} … {high}", anchor="end", halo=True)
        for place in _places(parameter):
            drawing.line(across(place), y - 3, across(place), y + 3, MUTED)
    drawing.line(across.start, bottom, across.end, bottom, INK, 2)
    drawing.text(across.start, bottom - 8, run.objective.metric, color=INK, bold=True, halo=True)
    if cut:
        text = f"{cut} worse at the edge"
        drawing.text(across.end, bottom - 8, text, anchor="end", halo=True)
    for tick in objective.ticks(width // 90):
        drawing.line(objective(tick), bottom - 3, objective(tick), bottom + 3, INK)
        drawing.text(objective(tick), bottom + 17, tick_text(tick), anchor="middle")
    return str(drawing)


def slice_plot(run: RunData, parameter: Mapping[str, Any], width: int) -> str:
    """The objective over one parameter; hollow: the trial was not trained to the end."""
    trials = [t for t in reversed(run.ranked) if t.measured()]
    values = [v for t in trials if (v := run.value(t)) is not None]
    axis, cut = value_range(run.objective, values)
    plot = Plot(
        width,
        210,
        (-0.03, 1.03),
        axis,
        label=f"{run.objective.metric} over {parameter['name']}",
        y_label=run.objective.metric,
        x_ticks=_unit_ticks(parameter, width),
    )
    best = run.best[0].id if run.best else ""
    for i, trial in enumerate(trials):
        at = plot.x(unit(parameter, trial.config[parameter["name"]]))
        y = plot.y(run.value(trial) or 0.0)
        title = trial_title(run, trial)
        hollow = trial.last_epoch < run.max_epochs
        if trial.id == best:
            plot.dot(at, y, 6, BEST, title=title)
        elif trial.id == REFERENCE:
            plot.dot(at, y, 4.5, REFERENCE_INK, title=title, hollow=hollow)
        else:
            plot.dot(at, y, 4, _shade(i / max(len(trials) - 1, 1)), title=title, hollow=hollow)
    note_cut(plot, cut)
    return str(plot)


def by_telling(run: RunData, found: Importance | None) -> list[Mapping[str, Any]]:
    """The searched parameters, most important first; as they come where that is not known."""
    effects = () if found is None or found.tentative else found.effects
    rank = {e.name: i for i, e in enumerate(effects)}
    return sorted(run.space, key=lambda p: rank.get(p["name"], len(rank)))


def _shade(share: float) -> str:
    mixed = (round(b + (g - b) * share) for b, g in zip(_BAD, _GOOD, strict=True))
    return "#" + "".join(f"{c:02x}" for c in mixed)


def _options(parameter: Mapping[str, Any]) -> Sequence[Any] | None:
    options: Sequence[Any] | None = parameter.get("values") or parameter.get("options")
    return options


def _ends(parameter: Mapping[str, Any]) -> tuple[str, str]:
    options = _options(parameter)
    if options is not None:
        return shown(options[0]), shown(options[-1])
    return tick_text(parameter["low"]), tick_text(parameter["high"])


def _places(parameter: Mapping[str, Any]) -> list[float]:
    options = _options(parameter)
    return [(i + 0.5) / len(options) for i in range(len(options))] if options else [0.0, 1.0]


def _unit_ticks(parameter: Mapping[str, Any], width: int) -> list[tuple[float, str]]:
    options = _options(parameter)
    if options is None:
        scale = Scale(parameter["low"], parameter["high"], 0.0, 1.0, bool(parameter.get("log")))
        return [(scale(t), tick_text(t)) for t in scale.ticks(width // 80)]
    room = (width - 50) / len(options) / CHAR
    places = _places(parameter)
    texts = [shown(o) for o in options]
    return [
        (place, text if len(text) <= room else text[: max(int(room) - 1, 1)] + "…")
        for place, text in zip(places, texts, strict=True)
    ]
