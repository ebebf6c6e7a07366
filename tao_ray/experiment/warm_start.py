"""What earlier searches of the same objective teach a new one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tao_ray import journal
from tao_ray.errors import TaoRayError
from tao_ray.files import write_text
from tao_ray.search.base import PastTrial
from tao_ray.space import SearchSpace
from tao_ray.trial.state import Objective, RunState

_KEPT = "past_trials"


def read_warm_start(
    sources: Iterable[str], network: str, objective: Objective, space: SearchSpace
) -> tuple[tuple[PastTrial, ...], list[str]]:
    """Earlier trials as this search can use them, and notes on what could not be used.

    sources: run directories, `result.json` files, or a file that `keep_warm_start` wrote. A trial
    that was tried outside this space is left out; a parameter that is not searched any more is
    dropped from it; one that is new takes its default.

    Raises:
        TaoRayError: a source that cannot be read, or one of another network or objective.
    """
    past: list[PastTrial] = []
    dropped: Counter[str] = Counter()
    outside = 0
    for source in sources:
        for config, fidelity, loss in _trials(Path(source).expanduser(), network, objective):
            dropped.update(name for name in config if name not in space.names)
            known = {name: value for name, value in config.items() if name in space.names}
            complete = {**space.defaults(), **known}
            if space.violations(complete):
                outside += 1
            else:
                past.append(PastTrial(complete, fidelity, loss))
    notes = [
        f"warm start: {name} is not searched, dropped from {count} earlier trials"
        for name, count in sorted(dropped.items())
    ]
    if outside:
        notes.append(f"warm start: {outside} earlier trials left out, outside this search space")
    return tuple(past), notes


def keep_warm_start(path: Path, past: Iterable[PastTrial]) -> None:
    """Write what was read, so that a resumed run does not depend on the earlier runs."""
    write_text(path, json.dumps({_KEPT: [asdict(trial) for trial in past]}, indent=1))


def _trials(
    source: Path, network: str, objective: Objective
) -> Iterable[tuple[Mapping[str, Any], int, float]]:
    if (source / journal.FILE_NAME).is_file():
        state = RunState.fold(journal.read_events(source / journal.FILE_NAME))
        facts = state.facts
        _require_same(source, (facts.get("network"), facts.get("metric")), network, objective)
        for trial in state.trials.values():
            judged, measured = trial.judged(objective.at), trial.measured()
            if judged is not None and judged.loss is not None and not trial.failure:
                yield trial.config, measured[-1].epoch, judged.loss
        return
    try:
        data = json.loads(source.read_text())
    except (OSError, ValueError) as error:
        raise TaoRayError(
            "there is no such run directory or result"
            if isinstance(error, FileNotFoundError)
            else f"not a run directory and not a result: {error}",
            where=f"search.warm_start: {source}",
            remedy="name a directory with a journal.sqlite, or a result.json",
        ) from None
    if _KEPT in data:
        for trial in data[_KEPT]:
            yield trial["config"], trial["fidelity"], trial["loss"]
        return
    if "trials" not in data or "objective" not in data:
        raise TaoRayError(
            "this is not the result of a run",
            where=f"search.warm_start: {source}",
            remedy="name a run's result.json, or its directory",
        )
    names = data["model"]["network"], data["objective"]["metric"]
    _require_same(source, names, network, objective)
    for trial in data["trials"]:
        if trial["metric"] is not None and not trial["failure"]:
            epochs = [e["epoch"] for e in trial["curve"]] or [trial["epoch"]]
            yield trial["hyperparameters"], max(epochs), objective.loss(trial["metric"])


def _require_same(source: Path, names: tuple[Any, Any], network: str, objective: Objective) -> None:
    if names != (network, objective.metric):
        raise TaoRayError(
            f"that run is of {names[0]} by {names[1]}, this one of {network} by {objective.metric}",
            where=f"search.warm_start: {source}",
            remedy="name runs of the same network and objective",
        )
