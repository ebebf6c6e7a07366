"""The sections about the winner: its values beside the defaults, and how it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tao_ray.config import load_config
from tao_ray.errors import TaoRayError
from tao_ray.network.bounds import bounds_of
from tao_ray.network.resolve import resolve_network
from tao_ray.network.schema import SchemaParameter
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
from tao_ray.report.handover import changes
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
    blocks += _ends(run, config)
    blocks += _spec(run)
    if run.state.adjustments:
        blocks.append(Text("**Adjustments.** Spec values that were not used as asked:"))
        blocks.append(_adjustments(run))
    left_out = run.facts.get("left_out") or {}
    if left_out:
        blocks.append(Text("**Left out of the search**, though the package offers it:"))
        blocks.append(Bullets([f"{code(name)}: {why}" for name, why in left_out.items()]))
    return Section("Winner", blocks)


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


def _ends(run: RunData, config: Mapping[str, Any]) -> list[Block]:
    """Which values lie at an end of their range, and whether the network allows anything beyond."""
    schema = _schema(run)
    open_, closed = [], []
    for parameter in run.space:
        name, value = parameter["name"], config.get(parameter["name"])
        end = _end(parameter, value)
        if end is None:
            continue
        bound = getattr(bounds_of(schema[name]), end) if name in schema else None
        if bound is not None and parameter[end] == bound:
            least = "least" if end == "low" else "most"
            closed.append(f"{code(name)} ({shown(bound)} is the {least})")
        else:
            open_.append(code(name))
    blocks: list[Block] = []
    if open_:
        text = f"At an end of its range: {listing(open_)}. A wider range may hold something better."
        blocks.append(Text(text))
    if closed:
        text = (
            f"At an end of its range, where the network allows nothing beyond: {listing(closed)}."
        )
        blocks.append(Text(text, small=True))
    return blocks


def _end(parameter: Mapping[str, Any], value: Any) -> str | None:
    """The end of its range, "low" or "high", that a number lies within 2% of (on its own scale)."""
    if "low" not in parameter or value is None:
        return None
    at = unit(parameter, value)
    return "low" if at < 0.02 else "high" if at > 0.98 else None


def _schema(run: RunData) -> Mapping[str, SchemaParameter]:
    """What the network's schema says of its parameters; empty if its package is no longer there."""
    try:
        config = load_config(run.path / "experiment.yaml")
        network = resolve_network(config.model, config.data, config.objective, config.directory)
    except (TaoRayError, OSError):
        return {}
    return network.parameters
