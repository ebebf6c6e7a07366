"""The sections about the search: curves, rungs, parameters."""

from __future__ import annotations

from functools import partial

from tao_ray.report.curves import (
    best_over_cost,
    best_over_epochs,
    best_over_time,
    learning_curve,
    learning_curves,
    pace,
)
from tao_ray.report.document import Block, Bullets, Figure, Section, Text, code
from tao_ray.report.importance import LEAST_TRIALS, Importance, importance
from tao_ray.report.run_data import RunData
from tao_ray.report.rungs import halving_text, rung_diagram, rungs
from tao_ray.report.space_plots import (
    by_telling,
    importance_bars,
    parallel_coordinates,
    slice_plot,
)
from tao_ray.report.text import shown

_MOST_SLICES = 12
_FEW_TRIALS = 50
_LEGEND = "Orange: the best trial; black, dashed: trial 0, the defaults."


def curves(run: RunData) -> Section | None:
    """How the trials learned, and when the best was found."""
    if run.best is None:
        return None
    blocks: list[Block] = []
    if any(len(learning_curve(run, t)) > 1 for t in run.trials):
        text = f"{_LEGEND} A dot ends a curve; red: failed. Point at a curve for its trial."
        if run.reported is not run.objective:
            text += (
                f" This is what the training reports, {code(run.reported.metric)}; trials are "
                f"judged by {code(run.objective.metric)} of an evaluate job each."
            )
        blocks.append(Figure("Learning curves of all trials", partial(learning_curves, run), text))
    blocks += [
        Figure("Best so far over time", partial(best_over_time, run), half=True),
        Figure("Best so far over compute", partial(best_over_epochs, run), half=True),
    ]
    if run.rented:
        blocks.append(Figure("Best so far over cost", partial(best_over_cost, run), half=True))
    blocks.append(Text(pace(run), small=True))
    return Section("Learning curves", blocks)


def halving(run: RunData) -> Section | None:
    """What an early-stopping search did at its rungs; None if it has none."""
    found = rungs(run)
    if not found:
        return None
    whole = len(run.trials) * run.max_epochs
    return Section(
        "Early stopping",
        [
            Text(
                f"{run.epochs_trained} epochs were trained; training every trial to the end would "
                f"have taken {whole}: **{1 - run.epochs_trained / whole:.0%} were saved**."
            ),
            Figure(
                "Rungs",
                partial(rung_diagram, run, found),
                "Each column is an epoch at which trials are judged. Filled: went on; hollow: "
                "ended there; amber: waiting; orange: the best trial.",
            ),
            Bullets(halving_text(run, found)),
            Text(
                _own_epochs(run)
                + "A trial that learns slowly at first can be stopped wrongly; values of trials "
                "that were stopped are not comparable with those of full trainings.",
                small=True,
            ),
        ],
    )


def _own_epochs(run: RunData) -> str:
    """Why a rung's best may be worse than the best of the run."""
    if run.best is None or run.objective.at != "best" or run.reported is not run.objective:
        return ""
    trial, epoch = run.best
    return (
        "Values here are those of the rung's own epoch. A trial is judged by its best epoch, so "
        f"the best of the run, {shown(run.value(trial))} at epoch {epoch.epoch}, can be better "
        "than all of them. "
    )


def parameters(run: RunData) -> Section | None:
    """Which parameters mattered, and which values were good."""
    if run.best is None or not run.space:
        return None
    found = importance(run)
    order = by_telling(run, found)
    blocks: list[Block] = [*_importance(run, found)]
    ordered = " Rows are in order of importance." if found and not found.tentative else ""
    blocks.append(
        Figure(
            "Parallel coordinates",
            partial(parallel_coordinates, run, order),
            f"A line is a trial, from its value of each parameter down to its result; the bluer, "
            f"the better. {_LEGEND}{ordered}",
        )
    )
    blocks += [
        Figure(code(p["name"]), partial(slice_plot, run, p), half=True)
        for p in order[:_MOST_SLICES]
    ]
    text = "Slices: the result over one parameter at a time. Hollow: not trained to the end."
    if len(order) > _MOST_SLICES:
        text += f" Shown are the first {_MOST_SLICES} of {len(order)} parameters."
    blocks.append(Text(text, small=True))
    return Section("Parameters", blocks)


def _importance(run: RunData, found: Importance | None) -> list[Block]:
    if found is None:
        return [Text(f"Importance needs {LEAST_TRIALS} trials that can be compared.", small=True)]
    rest = max(1 - sum(e.share for e in found.effects), 0.0)
    remarks = [
        f"How the ranking of {found.trials} trials at epoch {found.epoch} depends on each "
        f"parameter alone (functional ANOVA of a random forest); interactions make up {rest:.0%}. "
        "The black line is the range over the forest's trees."
    ]
    lead = ""
    if found.tentative:
        lead = (
            "**A hint at most**: the forest behind this predicts trials it has not seen hardly "
            f"better than chance (R² {found.fit:.2f}), so the order of the bars may be luck."
        )
    else:
        remarks.append(
            f"On trials it has not seen the forest's R² is {found.fit:.2f} (1: perfect)."
        )
    if found.trials < _FEW_TRIALS:
        remarks.append(f"{found.trials} trials are few: only large differences mean something.")
    if found.epoch < run.max_epochs:
        remarks.append("What matters that early need not be what matters at the end.")
    return [
        Figure("Importance", partial(importance_bars, found), " ".join(remarks), lead),
    ]
