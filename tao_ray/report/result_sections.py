"""The section that answers: what won, by how much, is it noise, what did it cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tao_ray.report.document import (
    Block,
    Callout,
    Card,
    Cards,
    Section,
    Text,
    code,
)
from tao_ray.report.evaluations import evaluation_cards, evaluations
from tao_ray.report.handover import changes
from tao_ray.report.machines import uses
from tao_ray.report.noise import stopped_short, verdict
from tao_ray.report.run_data import REFERENCE, RunData
from tao_ray.report.text import (
    count,
    dollars,
    duration,
    listing,
    moment,
    short_names,
    shown,
    signed,
)


def result(run: RunData) -> Section:
    """The headline and whether to believe it."""
    answer = verdict(run)
    blocks: list[Block] = [
        *_phase(run),
        Text(_in_words(run)),
        Cards(_cards(run)),
        Callout(answer.tone, f"Is it noise? {answer.title}", answer.reasons),
    ]
    blocks += evaluations(run)
    return Section("Result", blocks)


def _phase(run: RunData) -> list[Block]:
    if run.phase == "running":
        title = f"The run is going on. This is its state at {moment(run.now)}."
        return [Callout("unclear", title, ["Everything below can still change."])]
    if run.phase == "interrupted":
        items = [f"Go on with {code(f'tao-ray resume {run.path}')}"]
        return [Callout("unclear", f"The run was interrupted ({run.outcome}).", items)]
    if run.outcome != "done":
        return [Callout("bad", f"The run did not go as planned: {run.outcome}.", [])]
    return []


def _in_words(run: RunData) -> str:
    facts = run.facts
    epochs = f" of up to {count(run.max_epochs, 'epoch')}" if run.max_epochs > 1 else ""
    text = (
        f"{code(facts['algorithm'])} {_chosen(run)}tried "
        f"{count(len(run.trials), 'configuration')}{epochs} of "
        f"**{facts['network']}** ({facts['action']}), to {facts['direction']} "
        f"{code(facts['metric'])} (each trial by its {facts['at']} epoch). "
    )
    if run.best is None:
        return text + "None has a result."
    trial, epoch = run.best
    value = run.value(trial)
    text += f"The best is **trial {trial.id}** with **{shown(value, 5)}** at epoch {epoch.epoch}"
    tied = f" {_tied(run)}" if run.tied else ""
    if trial.id == REFERENCE:
        return f"{text}, which is the network's defaults: nothing better was found.{tied}"
    short = short_names([p["name"] for p in run.space])
    shorts = [
        f"{code(short[n])} {shown(d)} → {shown(v)}"
        for n, (d, v) in changes(run, trial.config).items()
    ]
    return f"{text}. Changed from the defaults: {listing(shorts, 5)}.{tied}"


def _tied(run: RunData) -> str:
    """Who else reached the best value, which is common where a metric is a share of few samples."""
    trials = []
    for trial in run.tied:
        judged = trial.judged(run.objective.at)
        trials.append(f"{trial.id} (epoch {judged.epoch if judged else '–'})")
    plural = len(trials) > 1
    return (
        f"**Tie**: {'trials' if plural else 'trial'} {listing(trials)} reached exactly the same "
        "value. Of equal trials the one with the lowest number is called the best, which says "
        f"nothing of their quality: {'any of them' if plural else 'the other'} may be as good."
    )


def _chosen(run: RunData) -> str:
    """What the algorithm was made of, in its own words: `auto` alone says nothing."""
    why = run.facts.get("why")
    return f"({why}) " if why else ""


def _cards(run: RunData) -> list[Card]:
    cards = []
    if run.best is not None:
        trial, epoch = run.best
        value = run.value(trial)
        assert value is not None
        detail = f"trial {trial.id}, epoch {epoch.epoch} ({run.objective.direction})"
        if run.tied:
            detail += f"; a tie with {listing([t.id for t in run.tied], 3)}"
        cards.append(Card(f"best {run.objective.metric}", shown(value, 5), detail))
        reference = run.value(run.reference) if run.reference else None
        gain = _gain(run, value, "defaults (trial 0)", reference)
        if run.reference and stopped_short(run, trial, run.reference):
            last = run.reference.last_epoch
            gain = replace(gain, detail=f"{gain.detail}; but trial 0 ended at epoch {last}")
        cards.append(gain)
    cards += evaluation_cards(run)
    cards.append(_cost(run))
    working = sum(job.seconds for job in run.jobs)
    detail = f"{duration(working)} of jobs, {count(run.epochs_trained, 'epoch')} trained"
    cards.append(Card("time", duration(run.elapsed), detail))
    statuses = Counter(t.status for t in run.trials)
    listed = ", ".join(
        f"{n} {'stopped early' if s == 'stopped' else s}" for s, n in statuses.items()
    )
    cards.append(Card("trials", f"{len(run.trials)} of {run.facts['trials']}", listed))
    return cards


def _gain(run: RunData, value: float, over: str, reference: float | None) -> Card:
    if reference is None:
        return Card(f"gain over the {over}", "unknown", "it has no value")
    gain = run.gain(value, reference)
    share = f", {gain / abs(reference):+.1%} relative".replace("-", "−") if reference else ""
    detail = f"{shown(reference, 5)} → {shown(value, 5)}{share}; by the search's own values"
    return Card(f"gain over the {over}", signed(gain) if gain else "none", detail)


def _cost(run: RunData) -> Card:
    if run.rented:
        found = uses(run)
        idle = sum(use.idle_cost for use in found)
        paid = duration(sum(use.paid for use in found))
        detail = f"{paid} of {count(len(found), 'machine')}; {dollars(idle)} of it idle"
        return Card("cost", dollars(sum(use.cost for use in found)), detail)
    platform = run.facts.get("platform", "")
    why = f"platform {platform} has no price" if platform else "no price is known"
    return Card("cost", "not metered", f"{why}; time and epochs say what was spent")
