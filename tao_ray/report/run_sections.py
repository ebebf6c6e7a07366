"""The sections about the run itself: failures, all trials, reproduction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tao_ray.network.spec import flatten
from tao_ray.report.document import Block, Bullets, Code, Section, Table, Text, code
from tao_ray.report.machines import machine_troubles, rent_note
from tao_ray.report.run_data import RunData
from tao_ray.report.text import (
    count,
    dollars,
    duration,
    listing,
    moment,
    short_names,
    shown,
)
from tao_ray.trial.failure import FailureKind
from tao_ray.trial.state import TrialState


def failures(run: RunData) -> Section:
    """What failed, why, and what to do about it."""
    troubles = machine_troubles(run)
    machines: list[Block] = []
    if run.rented or troubles:
        said = [Bullets(troubles)] if troubles else [Text("No machine was lost or given up.")]
        machines = [Text("**Machines**"), *said]
    by_kind: dict[FailureKind, list[TrialState]] = {}
    for trial in run.trials:
        if trial.failure:
            by_kind.setdefault(trial.failure.kind, []).append(trial)
    if not by_kind:
        return Section("Failures", [Text("No trial failed."), *machines])
    blocks: list[Block] = []
    for kind, trials in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        example = trials[0].failure
        assert example is not None
        blocks.append(
            Text(
                f"**{kind.cause}** ({code(kind.value)}): {count(len(trials), 'trial')} "
                f"({listing([t.id for t in trials])})"
            )
        )
        blocks.append(
            Bullets(
                [
                    f"What it said, in trial {trials[0].id}: {code(example.message)}",
                    f"What to do: {kind.remedy}",
                    f"The log: {code(f'tao-ray logs {run.path} {trials[0].id}')}",
                ]
            )
        )
        if example.evidence:
            title = f"Last lines of trial {trials[0].id}"
            blocks.append(Code("\n".join(example.evidence), title, folded=True))
    blocks.append(
        Text("The search was told of these as failures, never as values of the metric.", small=True)
    )
    return Section("Failures", [*blocks, *machines])


def trials(run: RunData) -> Section:
    """Every trial, best first."""
    names = list(run.trials[0].config) if run.trials else []
    short = short_names(names)
    head = ["trial", "status", run.objective.metric, "at epoch", "epochs", "time"]
    facts = len(head) + run.rented
    head += ["USD", *short.values()] if run.rented else short.values()
    ranked = run.ranked
    seconds: dict[str, float] = defaultdict(float)
    for job in run.jobs:
        seconds[job.owner] += job.seconds
    rows = [_trial_row(run, t, seconds[t.id], names) for t in ranked]
    best = run.best[0].id if run.best else ""
    marked = frozenset(i for i, t in enumerate(ranked) if t.id == best)
    numeric = frozenset(
        {*range(2, facts), *(i for i in range(facts, len(head)) if _is_numeric(rows, i))}
    )
    text = "Best first; a click on a column's head sorts by it. Time is that of the trial's jobs."
    table = Table(head, rows, numeric, marked, sortable=True)
    return Section("All trials", [Text(text, small=True), table])


def reproduce(run: RunData) -> Section:
    """The recorded configuration and the commands for it."""
    facts = run.facts
    what: list[str] = [f"tao_ray {facts['version']}"]
    if run.result and run.result["model"]["image"]:
        what.append(f"container image {code(run.result['model']['image'])}")
    started = moment(run.state.started) if run.state.started else "–"
    what += [
        f"started {started}, seed {facts.get('seed', '–')}",
        f"run directory {code(run.path)}",
    ]
    blocks: list[Block] = [
        Bullets(what),
        *_costs_again(run),
        Code(f"tao-ray tune {run.path / 'experiment.yaml'}"),
        Text(
            "The same seed gives the same first proposals. Later ones depend on the order in which "
            "trials that run side by side report; with `search.max_concurrent: 1` and a network "
            "that trains deterministically they are the same too.",
            small=True,
        ),
        Code(run.config_text, f"The configuration ({code('experiment.yaml')})", folded=True),
    ]
    data = (run.result or {}).get("data")
    sources = {k: v for k, v in (data or {}).items() if v not in ({}, [], None, False)}
    if sources:
        blocks.append(
            Table(["data", ""], [[code(k), code(shown(v))] for k, v in flatten(sources).items()])
        )
    if run.state.notices:
        blocks.append(Text("**Notices during the run**"))
        blocks.append(Bullets([f"{moment(t)}: {text}" for t, text in run.state.notices]))
    blocks.append(
        Text(f"This report: {code(f'tao-ray report {run.path}')}, {moment(run.now)}.", small=True)
    )
    return Section("Reproduce", blocks)


def _costs_again(run: RunData) -> list[Block]:
    """What a repetition would take, where that is money."""
    rents = rent_note(run)
    if not rents:
        return []
    spent = dollars(run.state.ledger.cost(run.now))
    return [Text(f"Repeating the search {rents}; this run cost {spent}.")]


def _trial_row(run: RunData, trial: TrialState, seconds: float, names: Sequence[str]) -> list[str]:
    judged = trial.judged(run.objective.at)
    status = f"{trial.status}: {trial.failure.kind.value}" if trial.failure else trial.status
    return [
        trial.id,
        status,
        shown(run.value(trial), 6),
        str(judged.epoch) if judged else "–",
        str(len(trial.epochs)),
        f"{seconds:.0f} s" if seconds < 600 else duration(seconds),
        *([f"{run.state.trial_cost(trial.id):.2g}"] if run.rented else []),
        *(_cell(trial.config, n) for n in names),
    ]


def _cell(config: Mapping[str, Any], name: str) -> str:
    return shown(config[name]) if name in config else "–"


def _is_numeric(rows: Sequence[Sequence[str]], column: int) -> bool:
    return all(row[column].replace("–", "0").lstrip("-")[:1].isdigit() for row in rows)
