"""The sections about the winner: its values beside the defaults, and how it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.network.spec import flatten
from tao_ray.network.tree import dump_yaml
from tao_ray.report.document import (
    Block,
    Bullets,
    Code,
    Section,
    Table,
    Text,
    code,
)
from tao_ray.report.handover import LONGER, changes, handover
from tao_ray.report.importance import unit
from tao_ray.report.run_data import RunData
from tao_ray.report.svg import tick_text
from tao_ray.report.text import count, listing, shown


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
        places = [checkpoint["path"], *([checkpoint["uri"]] if checkpoint.get("uri") else [])]
        blocks.append(Code("\n".join(places)))
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


def _range(parameter: Mapping[str, Any]) -> str:
    options = parameter.get("values") or parameter.get("options")
    if options is not None:
        return "one of " + ", ".join(shown(o) for o in options)
    scale = " (log)" if parameter.get("log") else ""
    return f"{tick_text(parameter['low'])} … {tick_text(parameter['high'])}{scale}"


def _at_edge(parameter: Mapping[str, Any], value: Any) -> bool:
    """Whether a number lies within 2% of an end of its range (on its own scale)."""
    if "low" not in parameter or value is None:
        return False
    return not 0.02 <= unit(parameter, value) <= 0.98
