"""The sections that answer: what won, is it noise, how is it used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.network.spec import flatten
from tao_ray.network.tree import dump_yaml
from tao_ray.report.document import (
    Block,
    Bullets,
    Callout,
    Card,
    Cards,
    Code,
    Section,
    Table,
    Text,
    code,
)
from tao_ray.report.handover import LONGER, changes, handover
from tao_ray.report.noise import verdict
from tao_ray.report.run_data import REFERENCE, RunData
from tao_ray.report.svg import tick_text
from tao_ray.report.text import count, duration, listing, moment, short_names, shown, signed


def result(run: RunData) -> Section:
    """The headline and whether to believe it."""
    answer = verdict(run)
    blocks: list[Block] = [
        *_phase(run),
        Text(_in_words(run)),
        Cards(_cards(run)),
        Callout(answer.tone, f"Is it noise? {answer.title}", answer.reasons),
    ]
    for name, what in (("baseline", "Baseline"), ("final_evaluation", "Final evaluation")):
        record = (run.result or {}).get(name)
        if record:
            blocks += [Text(f"**{what}**"), _record(record)]
    if not (run.result or {}).get("baseline"):
        blocks.append(
            Text(
                "No baseline evaluation was made, so gains are over trial 0, which trains with the "
                "network's default hyperparameters under the same conditions.",
                small=True,
            )
        )
    if not (run.result or {}).get("final_evaluation"):
        blocks.append(
            Text("The winner's checkpoint was not evaluated again after the search.", small=True)
        )
    return Section("Result", blocks)


def winner(run: RunData) -> Section | None:
    """The winning hyperparameters beside the defaults, and the whole spec."""
    if run.best is None:
        return None
    config = run.best[0].config
    differing = changes(run, config)
    rows, marked = [], set()
    for i, parameter in enumerate(run.space):
        name = parameter["name"]
        if name in differing:
            marked.add(i)
        rows.append(
            [
                code(name),
                shown(parameter["default"]),
                shown(config.get(name), 6),
                _range(parameter),
                parameter.get("origin") or "",
            ]
        )
    blocks: list[Block] = [
        Text(
            f"Trial {run.best[0].id}; {len(differing)} of {count(len(rows), 'searched parameter')} "
            "differ from the network's defaults (marked)."
        ),
        Table(
            ["parameter", "default", "winner", "searched", "where the range came from"],
            rows,
            marked=frozenset(marked),
        ),
    ]
    edge = [p["name"] for p in run.space if _at_edge(p, config.get(p["name"]))]
    if edge:
        blocks.append(
            Text(
                f"At an end of its range: {listing([code(n) for n in edge])}. A wider range may "
                "hold something better."
            )
        )
    blocks += _spec(run)
    if run.state.adjustments:
        blocks.append(Text("**Adjustments.** Spec values that were not used as asked:"))
        blocks.append(_adjustments(run))
    left_out = run.facts.get("left_out") or {}
    if left_out:
        blocks.append(Text("**Left out of the search**, though the package offers it:"))
        blocks.append(Bullets([f"{code(name)}: {why}" for name, why in left_out.items()]))
    return Section("Winner", blocks)


def use(run: RunData) -> Section | None:
    """Where the checkpoint is and the commands that take it further."""
    if run.best is None:
        return None
    if run.result is None or run.result["best"] is None:
        text = "The checkpoint and ready commands are listed here when the run has ended."
        return Section("How to use it", [Text(text)])
    checkpoint = run.result["best"]["checkpoint"]
    blocks: list[Block] = []
    if checkpoint:
        size = f", {checkpoint['bytes'] / 1e6:.1f} MB" if checkpoint["bytes"] else ""
        judged = run.result["best"]["epoch"]
        kept = "" if checkpoint["epoch"] == judged else f"; the best epoch, {judged}, kept none"
        blocks.append(Text(f"Checkpoint of the winner (epoch {checkpoint['epoch']}{size}{kept}):"))
        blocks.append(Code(checkpoint["path"]))
    else:
        blocks.append(Text("No checkpoint of the winner was found; its spec trains it again."))
    try:
        made = handover(run)
    except TaoRayError as error:
        blocks.append(Text(f"Ready commands cannot be shown: {error.message}"))
        return Section("How to use it", blocks)
    steps = [f"tao-ray export {run.path} --to winner", "cd winner"]
    commands = made.data["commands"]
    image = run.result["model"]["image"]
    where = f" in the container {code(image)}" if image else ""
    if "evaluate" in commands:
        steps += [f"# evaluate the checkpoint{where.replace('`', '')}", commands["evaluate"]]
    steps += [f"# train the winning spec again{where.replace('`', '')}", commands["train"]]
    steps += ["# train it longer, supervised as in the search", commands["train_longer"]]
    blocks.append(Text(f"The winner in a directory of its own, then each next step{where}:"))
    blocks.append(Code("\n".join(steps)))
    blocks.append(
        Text(
            f"`handover.json` there is for programs; {code(LONGER)} is an ordinary configuration "
            "whose defaults are the winner. For another seed set the network's seed key in its "
            "`model.overrides`"
            + (
                ", here `train.seed`."
                if "train.seed" in flatten(run.result["best"]["spec"])
                else "."
            )
        )
    )
    return Section("How to use it", blocks)


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
        f"{code(facts['algorithm'])} tried {count(len(run.trials), 'configuration')}{epochs} of "
        f"**{facts['network']}** ({facts['action']}), to {facts['direction']} "
        f"{code(facts['metric'])} (each trial by its {facts['at']} epoch). "
    )
    if run.best is None:
        return text + "None has a result."
    trial, epoch = run.best
    value = run.value(trial)
    text += f"The best is **trial {trial.id}** with **{shown(value, 5)}** at epoch {epoch.epoch}"
    if trial.id == REFERENCE:
        return text + ", which is the network's defaults: nothing better was found."
    short = short_names([p["name"] for p in run.space])
    shorts = [
        f"{code(short[n])} {shown(d)} → {shown(v)}"
        for n, (d, v) in changes(run, trial.config).items()
    ]
    return f"{text}. Changed from the defaults: {listing(shorts, 5)}."


def _cards(run: RunData) -> list[Card]:
    cards = []
    if run.best is not None:
        trial, epoch = run.best
        value = run.value(trial)
        assert value is not None
        detail = f"trial {trial.id}, epoch {epoch.epoch} ({run.objective.direction})"
        cards.append(Card(f"best {run.objective.metric}", shown(value, 5), detail))
        reference = run.value(run.reference) if run.reference else None
        cards.append(_gain(run, value, "defaults (trial 0)", reference))
        baseline = ((run.result or {}).get("baseline") or {}).get("metric")
        if baseline is not None:
            cards.append(_gain(run, value, "baseline", baseline))
        final = ((run.result or {}).get("final_evaluation") or {}).get("metric")
        if final is not None:
            cards.append(Card("final evaluation", shown(final, 5), "of the winner's checkpoint"))
    cards.append(_cost(run))
    working = sum(
        (j.ended or run.now) - j.launched for t in run.trials for j in t.jobs if j.launched
    )
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
    share = f", {gain / abs(reference):+.1%}".replace("-", "−") if reference else ""
    detail = f"{shown(reference, 5)} → {shown(value, 5)}{share}"
    return Card(f"gain over the {over}", signed(gain) if gain else "none", detail)


def _cost(run: RunData) -> Card:
    cost = (run.result or {}).get("cost") or {}
    if cost.get("usd") is not None:
        hours = cost.get("gpu_hours")
        return Card("cost", f"${cost['usd']:.2f}", f"{hours:.2f} GPU hours" if hours else "")
    platform = run.facts.get("platform", "")
    why = f"platform {platform} has no price" if platform else "no price is known"
    return Card("cost", "not metered", f"{why}; time and epochs say what was spent")


def _spec(run: RunData) -> list[Block]:
    best = (run.result or {}).get("best")
    if best:
        title = f"The winner's whole spec ({code(run.path / 'best_spec.yaml')})"
        return [Code(dump_yaml(best["spec"]), title, folded=True)]
    assert run.best is not None
    overrides = dump_yaml(dict(run.best[0].config))
    return [Code(overrides, "The winner's hyperparameters, to copy", folded=True)]


def _adjustments(run: RunData) -> Table:
    return Table(
        ["key", "asked", "used", "why", "trials"],
        [
            [code(a["key"]), shown(a["asked"]), shown(a["used"]), a["reason"], listing(a["trials"])]
            for a in run.state.adjustments
        ],
    )


def _record(record: Mapping[str, Any]) -> Table:
    return Table(["", ""], [[key, shown(value, 6)] for key, value in flatten(record).items()])


def _range(parameter: Mapping[str, Any]) -> str:
    options = parameter.get("values") or parameter.get("options")
    if options is not None:
        return "one of " + ", ".join(shown(o) for o in options)
    scale = " (log)" if parameter.get("log") else ""
    return f"{tick_text(parameter['low'])} … {tick_text(parameter['high'])}{scale}"


def _at_edge(parameter: Mapping[str, Any], value: Any) -> bool:
    """Whether a number lies within 2% of an end of its range (on its own scale)."""
    from tao_ray.report.importance import unit

    if "low" not in parameter or value is None:
        return False
    return not 0.02 <= unit(parameter, value) <= 0.98
