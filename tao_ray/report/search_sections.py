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

_MOST_SLICES = 12
_FEW_TRIALS = 50
_USELESS_FIT = 0.2
"""Out-of-bag R² that a forest reaches on pure noise now and then."""
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
                "A trial that learns slowly at first can be stopped wrongly; values of trials that "
                "were stopped are not comparable with those of full trainings.",
                small=True,
            ),
        ],
    )


def parameters(run: RunData) -> Section | None:
    """Which parameters mattered, and which values were good."""
    if run.best is None or not run.space:
        return None
    found = importance(run)
    effects = found.effects if found else ()
    order = by_telling(run, effects)
    blocks: list[Block] = [*_importance(run, found)]
    blocks.append(
        Figure(
            "Parallel coordinates",
            partial(parallel_coordinates, run, order),
            f"A line is a trial, from its value of each parameter down to its result; the bluer, "
            f"the better. {_LEGEND}" + (" Rows are in order of importance." if effects else ""),
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
    if found.fit < _USELESS_FIT:
        remarks.append(
            f"**The forest predicts trials it has not seen hardly better than chance** (R² "
            f"{found.fit:.2f}): take this as a hint at most."
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
        Figure("Importance", partial(importance_bars, found.effects), " ".join(remarks)),
    ]
