"""The hand-over: the winner in a form that the next step of a workflow can take.

`handover` only reads; `export` writes a directory of it: ``handover.json`` (described by
``docs/handover.schema.json``), the winner's spec, its overrides, an evaluation spec where the
network has an evaluate action, and a configuration that trains the winner longer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray._version import __version__
from tao_ray.config import load_config
from tao_ray.errors import TaoRayError
from tao_ray.files import write_text
from tao_ray.network.resolve import resolve_evaluation, resolve_network
from tao_ray.network.spec import Spec, build_spec, flatten, set_path
from tao_ray.network.tree import dump_yaml
from tao_ray.report.run_data import RunData

if TYPE_CHECKING:
    from tao_ray.config import RunConfig
    from tao_ray.network.network import Network

SCHEMA_VERSION = 1
HANDOVER, OVERRIDES, LONGER = "handover.json", "overrides.yaml", "train_longer.yaml"
RESULTS = "./results"
_LONGER_FACTOR = 2


@dataclass(frozen=True)
class HandOver:
    """What `export` writes: `data` is ``handover.json``; `files` are all others, by name.

    epochs: length of the longer training.
    """

    data: dict[str, Any]
    files: Mapping[str, str]
    epochs: int


def handover(run: RunData, epochs: int | None = None) -> HandOver:
    """The winner of an ended run.

    epochs: length of the longer training, default twice the search's.

    Raises:
        TaoRayError: no result yet, no successful trial, or the network cannot be resolved again
            (its package or an environment variable is gone).
    """
    if run.result is None:
        raise TaoRayError(
            "the run has no result yet",
            where=str(run.path),
            remedy="wait for its end, or go on with `tao-ray resume`",
        )
    best = run.result["best"]
    if best is None:
        raise TaoRayError(
            "no trial has a result to hand over",
            where=str(run.path),
            remedy="`tao-ray report` lists what failed",
        )
    config = load_config(run.path / "experiment.yaml")
    network = resolve_network(config.model, config.data, config.objective, config.directory)
    suffix = network.config_format
    epochs = epochs or _LONGER_FACTOR * run.max_epochs
    files = {
        f"spec.{suffix}": _movable(best).render(suffix),
        OVERRIDES: dump_yaml(best["hyperparameters"]),
        LONGER: _longer(config, best, epochs, run),
    }
    commands = {"train": network.command(f"./spec.{suffix}")}
    evaluation = _evaluation(network, config, best)
    if evaluation is not None:
        evaluate, spec = evaluation
        name = f"evaluate.{evaluate.config_format}"
        files[name] = spec.render(evaluate.config_format)
        commands["evaluate"] = evaluate.command(f"./{name}")
    commands["train_longer"] = f"tao-ray tune {LONGER} --yes"
    return HandOver(_data(run, network, best, commands, sorted(files)), files, epochs)


def export(run: RunData, target: Path, epochs: int | None = None) -> HandOver:
    """Write the hand-over into the directory `target`, which is made. Raises as `handover`."""
    made = handover(run, epochs)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in made.files.items():
        write_text(target / name, text)
    write_text(target / HANDOVER, json.dumps(made.data, indent=1))
    return made


def _movable(best: Mapping[str, Any]) -> Spec:
    """The winner's spec, writing its results below the working directory: training it again must
    not overwrite the winner."""
    spec = copy.deepcopy(best["spec"])
    for key, value in flatten(spec).items():
        if isinstance(value, str) and value.startswith(best["results_dir"]):
            set_path(spec, key, RESULTS + value[len(best["results_dir"]) :])
    return Spec(spec)


def changes(run: RunData, hyperparameters: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The searched parameters that differ from the network's defaults: name -> (default, ours)."""
    defaults = {p["name"]: p["default"] for p in run.space}
    return {
        name: (defaults.get(name), value)
        for name, value in hyperparameters.items()
        if defaults.get(name) != value
    }


def _data(
    run: RunData,
    network: Network,
    best: Mapping[str, Any],
    commands: Mapping[str, str],
    files: list[str],
) -> dict[str, Any]:
    assert run.result is not None
    checkpoint = best["checkpoint"]
    wiring = network.wiring
    return {
        "schema_version": SCHEMA_VERSION,
        "tao_ray": __version__,
        "run": {"id": run.id, "directory": str(run.path), "status": run.result["status"]},
        "model": {**run.result["model"], "config_format": network.config_format},
        "objective": dict(run.result["objective"]),
        "trial": best["trial"],
        "metric": best["metric"],
        "reference_metric": best["trial_0_metric"],
        "improvement": best["improvement"],
        "epochs": run.max_epochs,
        "hyperparameters": dict(best["hyperparameters"]),
        "overrides": {k: ours for k, (_, ours) in changes(run, best["hyperparameters"]).items()},
        "checkpoint": None
        if checkpoint is None
        else {
            "uri": checkpoint.get("uri") or _uri(checkpoint["path"]),
            "path": checkpoint["path"],
            "epoch": checkpoint["epoch"],
            "bytes": checkpoint["bytes"],
            "machine": best["machine"],
        },
        "checkpoint_keys": {"resume": wiring.resume_key, "start": list(wiring.start_keys)},
        "commands": dict(commands),
        "files": files,
    }


def _longer(config: RunConfig, best: Mapping[str, Any], epochs: int, run: RunData) -> str:
    """A search of one trial, whose trial 0, the network's defaults, is the winner."""
    data = config.dump()
    own = flatten(data["model"]["overrides"]) if data["model"]["overrides"] else {}
    data["name"] = f"{config.name[:57]}-longer"
    data["model"]["overrides"] = {**own, **best["hyperparameters"]}
    search = data["search"]
    search.update(algorithm="random", trials=1, max_concurrent=1, options={})
    if "max_epochs" in search or run.max_epochs > 1:
        search["max_epochs"] = epochs
    lines = [
        f"# The winner of {run.id} (trial {best['trial']}), trained for {epochs} epochs.",
        f"#   tao-ray tune {LONGER} --yes",
    ]
    if best["checkpoint"]:
        lines.append("# It starts as the trials did. To start from the winner's weights instead,")
        lines.append(f"# add to `model`:  checkpoint: {best['checkpoint']['path']}")
    return "\n".join(lines) + "\n" + dump_yaml(data)


def _evaluation(
    network: Network, config: RunConfig, best: Mapping[str, Any]
) -> tuple[Network, Spec] | None:
    if best["checkpoint"] is None:
        return None
    evaluation = resolve_evaluation(network, config.model, config.data)
    if evaluation is None:
        return None
    spec = build_spec(
        evaluation,
        best["hyperparameters"],
        results_dir=RESULTS,
        num_epochs=None,
        start_from=best["checkpoint"]["path"],
    )
    return evaluation, spec


def _uri(path: str) -> str:
    return f"file://{path}" if path.startswith("/") else path
