"""What a trial of a network is judged by, and where that number comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tao_ray.errors import TaoRayError
from tao_ray.network.conventions import Conventions
from tao_ray.network.package import Action
from tao_ray.network.tree import get_path

if TYPE_CHECKING:
    from tao_ray.config import ObjectiveConfig


@dataclass(frozen=True)
class Metric:
    """A number the action itself reports.

    source: "status" (status.json), "file" (`Action.metric_file`) or "unspecified".
    proxy: it stands in for the recommended metric, `recommended`, which only an evaluate job
        reports.
    """

    name: str
    direction: str
    source: str
    proxy: bool = False
    recommended: str | None = None
    note: str | None = None


def choose_metric(
    objective: ObjectiveConfig,
    action: Action,
    conventions: Conventions,
    spec: Mapping[str, Any],
    network: str,
) -> Metric:
    """The user's metric, else the package's, else the recommended one or its stand-in.

    Raises:
        TaoRayError: none is known, or its direction is not.
    """
    default = default_metric(action, conventions, spec)
    if objective.metric is None:
        if default is None:
            only = (
                conventions.metric and f"{conventions.metric!r} is reported by evaluate jobs only"
            )
            raise TaoRayError(
                f"no objective is known for {action.name} of {network}"
                + (f": its recommended {only}" if only else ""),
                where="objective.metric",
                remedy="set objective: {metric: ..., direction: minimize or maximize} to a metric"
                " that the action reports",
            )
        return replace(default, direction=objective.direction or default.direction)
    directions = _directions(default, conventions)
    direction = objective.direction or directions.get(objective.metric)
    if direction is None:
        raise TaoRayError(
            f"whether {objective.metric!r} is to be minimized or maximized is not known",
            where="objective.direction",
            remedy="set it, if the network reports a metric of this name; known for this network: "
            + (", ".join(directions) or "none"),
        )
    if default is not None and objective.metric == default.name:
        return replace(default, direction=direction)
    elsewhere = conventions.metric_source == "evaluate" and objective.metric == conventions.metric
    return Metric(
        objective.metric,
        direction,
        "file" if action.metric_file else "status",
        note=f"{objective.metric} is documented for evaluate jobs only; trials fail if the training"
        " does not report it"
        if elsewhere
        else None,
    )


def default_metric(
    action: Action, conventions: Conventions, spec: Mapping[str, Any]
) -> Metric | None:
    """The package's metric, else the recommended one or its stand-in, or None."""
    if action.metric is not None and action.metric_direction is not None:
        source = "file" if action.metric_file else "status"
        return Metric(action.metric, action.metric_direction, source)
    for key, value, case_metric, case_direction in conventions.metric_cases:
        if get_path(spec, key) == value:
            return Metric(case_metric, case_direction, "status")
    name, direction = conventions.metric, conventions.direction
    if name is None or direction is None:
        return None
    if conventions.metric_source != "evaluate":
        note = conventions.metric_note
        if conventions.metric_source == "unspecified":
            note = f"that {name} is reported by the training is not documented; see the first trial"
        return Metric(name, direction, str(conventions.metric_source), note=note)
    proxy, proxy_direction = conventions.proxy_metric, conventions.proxy_direction
    if proxy is None or proxy_direction is None:
        return None
    note = f"{proxy} of the training stands in for {name}, which only an evaluate job reports"
    return Metric(proxy, proxy_direction, "status", proxy=True, recommended=name, note=note)


def _directions(default: Metric | None, conventions: Conventions) -> dict[str, str]:
    known = [
        (default.name, default.direction) if default else None,
        (conventions.metric, conventions.direction),
        (conventions.proxy_metric, conventions.proxy_direction),
        (conventions.evaluate_metric, conventions.evaluate_direction),
        *((name, direction) for _, _, name, direction in conventions.metric_cases),
    ]
    return {pair[0]: pair[1] for pair in known if pair and pair[0] and pair[1]}
