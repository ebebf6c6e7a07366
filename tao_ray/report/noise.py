"""Whether a gain is more than noise, as far as one run can tell.

What would settle it, the spread of the metric over repeated trainings with other seeds, a search
does not measure: it trains each configuration once. What it does have are learning curves. Where
they have flattened, what is left is jitter from epoch to epoch, a lower bound of that spread. The
best of N equally good trials is ahead of the reference by about ``jitter * E[max of N normals]``
by luck alone, and a gain is held against that. Since the larger part of the noise stays unknown, a
gain is called good only where an evaluation on other data finds it, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from tao_ray.report.document import Tone, code
from tao_ray.report.evaluations import selected_by
from tao_ray.report.run_data import REFERENCE, RunData
from tao_ray.report.text import count, shown, signed
from tao_ray.trial.state import EpochState, TrialState

_LEAST_LATE = 5
"""Measured epochs in the second half of a curve, for its jitter to be estimated."""
_CLEAR = 3.0
"""A gain this many times what luck explains is called clear."""
_ERRORS = 2.0
"""Standard errors that a difference must have to be more than the luck of the samples."""


@dataclass(frozen=True)
class Verdict:
    """The answer (`title`) and what it rests on."""

    tone: Tone
    title: str
    reasons: tuple[str, ...]


def verdict(run: RunData) -> Verdict:
    """Is the best trial's gain over trial 0, the network's defaults, more than noise?"""
    if run.best is None:
        return Verdict("bad", "There is no result yet.", ())
    best, reference = run.best[0], run.reference
    if reference is None:
        return Verdict(
            "unclear",
            "The gain is unknown: the defaults (trial 0) have no value to compare with.",
            (),
        )
    if best.id == REFERENCE:
        return Verdict("plain", "No trial is better than the network's defaults (trial 0).", _SEEDS)
    best_value, reference_value = run.value(best), run.value(reference)
    assert best_value is not None
    assert reference_value is not None
    if stopped_short(run, best, reference):
        return _not_alike(run, best, reference)
    gain = run.gain(best_value, reference_value)
    spread = _pooled([s for t in (best, reference) if (s := jitter(t)) is not None])
    if spread is None:
        return Verdict(
            "unclear",
            "It cannot be told whether the gain is noise.",
            (
                f"The best trial is {shown(gain, 3)} better than the defaults, but neither curve "
                f"has {_LEAST_LATE} measured epochs in its second half, so their jitter is "
                "unknown.",
                *_SEEDS,
            ),
        )
    return _against_luck(run, best, reference, gain, spread)


def stopped_short(run: RunData, best: TrialState, reference: TrialState) -> bool:
    """Whether the reference trained less than the best trial had when it was judged, so that the
    difference of their values is not one of their hyperparameters alone."""
    judged = best.judged(run.objective.at)
    return judged is not None and reference.last_epoch < judged.epoch


def _not_alike(run: RunData, best: TrialState, reference: TrialState) -> Verdict:
    epoch = reference.last_epoch
    then = run.epoch_value(best.epochs.get(epoch))
    ours = run.epoch_value(reference.epochs[epoch])
    reasons = [
        f"The best trial is judged by a later epoch than the defaults (trial 0) ever reached: they "
        f"were at epoch {epoch} of {run.max_epochs} when they ended. Most of the difference may be "
        "the longer training."
    ]
    if then is not None and ours is not None:
        reasons.append(
            f"At epoch {epoch} the best trial had {shown(then)} and the defaults {shown(ours)}: "
            f"there the difference was {signed(run.gain(then, ours))}."
        )
    reasons.append("Train the defaults to the end for a fair comparison.")
    title = "Unclear: the defaults were not trained as long as the winner."
    return Verdict("unclear", title, (*reasons, *_SEEDS))


def _against_luck(
    run: RunData, best: TrialState, reference: TrialState, gain: float, spread: float
) -> Verdict:
    n = sum(bool(t.measured()) for t in run.trials)
    luck = spread * expected_maximum(n)
    late = run.objective.value(late_mean(best)) - run.objective.value(late_mean(reference))
    late_gain = late if run.objective.direction == "maximize" else -late
    judged = best.judged(run.objective.at)
    early = judged is not None and judged.epoch < _late(best)[0].epoch
    reasons = [
        f"The best trial is {shown(gain, 3)} better than the defaults (trial 0). From epoch to "
        f"epoch the second halves of these two curves jitter by {shown(spread, 2)} (standard "
        "deviation, trend removed)."
        + (
            f" The winner is judged by an earlier epoch, {judged.epoch}: curves jitter more while "
            "they still rise, so this is too small there."
            if early and judged
            else ""
        ),
        f"If all {count(n, 'measured trial')} were equally good, the luckiest would lead by about "
        f"{shown(luck, 2)}; the gain is {shown(gain / luck, 2)} times that."
        if luck > 0
        else "The metric does not jitter at all, so luck from epoch to epoch explains nothing.",
        "Averaged over the last quarter of both trainings, which does not pick lucky epochs, the "
        f"difference is {signed(late_gain)}.",
        *_sampling(run, best, reference, gain),
        *_SEEDS,
    ]
    if gain <= luck or late_gain <= 0:
        why = "" if gain <= luck else ": it is gone when late epochs are averaged"
        return Verdict("bad", f"The gain is within noise{why}.", tuple(reasons))
    if luck > 0 and gain < _CLEAR * luck:
        title = "Unclear: the gain is larger than luck explains, but not by much."
        return Verdict("unclear", title, tuple(reasons))
    more = "The gain is more than epoch-to-epoch noise"
    confirmed = run.state.evaluations.get("final", {}).get("improvement")
    if selected_by(run) is False and confirmed is not None and confirmed > luck:
        reasons.insert(
            0,
            "The final evaluation, on data that the search did not select by, finds a gain, too: "
            f"{signed(confirmed)}.",
        )
        title = f"{more}, and is there on other data; seed-to-seed noise is unknown."
        return Verdict("good", title, tuple(reasons))
    title = f"{more}; whether it is more than seed-to-seed noise, usually larger, is not known."
    return Verdict("plain", title, tuple(reasons))


def _sampling(
    run: RunData, best: TrialState, reference: TrialState, gain: float
) -> tuple[str, ...]:
    """What the finite validation data may do to a metric that is a share of its samples.

    The standard error of a difference of two shares of n samples is the root of
    ``(p (1 - p) + q (1 - q)) / n``. How many samples there are is not recorded, so this says for
    how many the gain would be within two of it.
    """
    p, q = run.value(best), run.value(reference)
    values = [v for t in run.trials if (v := run.value(t)) is not None]
    uncounted = "That the validation data is finite is not counted here: its size is not recorded."
    if p is None or q is None or not all(0 <= v <= 1 for v in values) or gain <= 0:
        return (uncounted,)
    enough = math.ceil(_ERRORS**2 * (p * (1 - p) + q * (1 - q)) / gain**2)
    rough = round(enough, 2 - len(str(enough)))
    return (
        f"{uncounted} If {code(run.objective.metric)} is a share of samples, as an accuracy is, a "
        f"gain like this needs about {rough} of them "
        "to be twice the standard error of drawing them.",
    )


_SEEDS = (
    "How much the result changes with another seed is not known: every configuration was trained "
    "once, with one seed, and that spread is usually larger than the jitter. Before a decision "
    "rests on it, train the winner and the defaults again with two or three other seeds.",
)


def jitter(trial: TrialState) -> float | None:
    """Standard deviation from epoch to epoch in the second half of a curve; None if too short.

    From second differences, which a straight trend does not touch: for independent noise of
    variance s² their variance is 6 s².
    """
    late = [e.loss for e in _late(trial) if e.loss is not None]
    if len(late) < _LEAST_LATE:
        return None
    bends = [a - 2 * b + c for a, b, c in zip(late, late[1:], late[2:], strict=False)]
    return math.sqrt(fmean(b * b for b in bends) / 6)


def _late(trial: TrialState) -> list[EpochState]:
    """The second half of a curve."""
    measured = trial.measured()
    return measured[len(measured) // 2 :]


def late_mean(trial: TrialState) -> float:
    """Mean loss over the last quarter of a curve, at least three epochs where there are."""
    losses = _losses(trial)
    return fmean(losses[-max(3, len(losses) // 4) :])


def expected_maximum(n: int) -> float:
    """Expectation of the largest of n standard normals (Blom's approximation); 0 for n = 1."""
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0


def _losses(trial: TrialState) -> list[float]:
    return [e.loss for e in trial.measured() if e.loss is not None]


def _pooled(spreads: Sequence[float]) -> float | None:
    return math.sqrt(fmean(s * s for s in spreads)) if spreads else None
