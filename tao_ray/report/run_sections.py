"""The sections about the run itself: time, failures, all trials, reproduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tao_ray.network.spec import flatten
from tao_ray.report.document import Block, Bullets, Code, Figure, Section, Table, Text, code
from tao_ray.report.run_data import RunData
from tao_ray.report.run_plots import machine_labels, timeline, timeline_bars, utilisation
from tao_ray.report.text import (
    count,
    dollars,
    duration,
    listing,
    megabytes,
    moment,
    short_names,
    shown,
)
from tao_ray.trial.failure import FailureKind
from tao_ray.trial.state import TrialState


def time_and_cost(run: RunData) -> Section:
    """Who ran when, how busy the slots were, what it cost."""
    bars = timeline_bars(run)
    blocks: list[Block] = []
    if bars:
        waits = sorted(b.start - b.asked for b in bars)
        busy = utilisation(run, bars)
        blocks += [
            Figure(
                "Timeline",
                partial(timeline, run, bars),
                "A bar is a job, numbered by its trial. Blue: completed; grey: stopped early; "
                "red: failed; amber: paused; green: running; outlined: the best trial. "
                + (_RENTED_LANES if run.rented else _LANES),
            ),
            Text(
                f"Jobs ran in {busy:.0%} of the time of "
                f"{count(int(run.facts['max_concurrent']), 'slot')}; starting a job took "
                f"{duration(waits[len(waits) // 2])} (median). The rest is start-up, waiting for "
                "decisions, and the end of the search, when slots run dry."
            ),
        ]
    retries = sum(t.retries for t in run.trials)
    if retries:
        blocks.append(Text(f"{count(retries, 'job')} went on elsewhere after a machine failed."))
    if run.rented:
        blocks += _cost(run)
    else:
        blocks.append(
            Text("Cost: not metered, since no price of these machines is known.", small=True)
        )
    retention = (run.result or {}).get("retention")
    if retention:
        blocks += _retention(retention)
    return Section("Time and cost", blocks)


_LANES = (
    "White is idle. Which slot a job had is not recorded: jobs are put in the first that was free."
)
_RENTED_LANES = (
    "A row is a slot of a machine, m1, m2, ...; pale: the machine is paid for, and no job runs."
)


def _cost(run: RunData) -> list[Block]:
    """What was paid for which machine, and how much of it jobs have used."""
    ledger, now = run.state.ledger, run.now
    used = ledger.utilisation(now)
    text = f"Cost: **{dollars(ledger.cost(now))}**"
    if used is not None:
        text += f". Jobs held {used:.0%} of the machine time that was paid for"
    rows = []
    for label, machine in zip(machine_labels(run).values(), ledger.machines.values(), strict=True):
        rent, fate = machine.rent, machine.lost or ("deleted" if machine.deleted else machine.state)
        rows.append(
            [
                label,
                code(machine.name),
                rent.type if rent else "–",
                f"{rent.price_per_hour:.2f}" if rent else "–",
                duration(machine.seconds(now)),
                dollars(machine.cost(now)),
                fate,
            ]
        )
    head = ["", "machine", "type", "USD per hour", "paid for", "cost", "now"]
    return [Text(f"{text}."), Table(head, rows, numeric=frozenset({3, 4, 5}))]


def _retention(retention: Mapping[str, Any]) -> list[Block]:
    """What became of the checkpoints."""
    per_trial = retention["peak_bytes_per_trial"].values()
    text = (
        f"Checkpoints (`retention.mode: {retention['mode']}`): {len(retention['kept'])} kept, "
        f"{megabytes(retention['kept_bytes'])}; {retention['deleted_checkpoints']} deleted, "
        f"{megabytes(retention['deleted_bytes'])}. At most {megabytes(retention['peak_bytes'])} "
        f"at a time, {megabytes(max(per_trial, default=0))} of one trial."
    )
    rows = [
        [
            entry["trial"],
            "–" if entry["epoch"] is None else str(entry["epoch"]),
            megabytes(entry["bytes"]),
            entry["why"],
            code(entry["path"]),
        ]
        for entry in retention["kept"]
    ]
    blocks: list[Block] = [Text(text)]
    if rows:
        head = ["trial", "epoch", "size", "why it was kept", "checkpoint"]
        blocks.append(Table(head, rows, numeric=frozenset({1, 2})))
    return blocks


def failures(run: RunData) -> Section:
    """What failed, why, and what to do about it."""
    by_kind: dict[FailureKind, list[TrialState]] = {}
    for trial in run.trials:
        if trial.failure:
            by_kind.setdefault(trial.failure.kind, []).append(trial)
    if not by_kind:
        return Section("Failures", [Text("No trial failed.")])
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
    return Section("Failures", blocks)


def trials(run: RunData) -> Section:
    """Every trial, best first."""
    names = list(run.trials[0].config) if run.trials else []
    short = short_names(names)
    head = ["trial", "status", run.objective.metric, "at epoch", "epochs", "time"]
    facts = len(head) + run.rented
    head += ["USD", *short.values()] if run.rented else short.values()
    ranked = run.ranked
    rows = [_trial_row(run, t, names) for t in ranked]
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
    sources = {k: v for k, v in (data or {}).items() if v not in ({}, [], None)}
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


def _trial_row(run: RunData, trial: TrialState, names: Sequence[str]) -> list[str]:
    judged = trial.judged(run.objective.at)
    seconds = sum((j.ended or run.now) - j.launched for j in trial.jobs if j.launched)
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
