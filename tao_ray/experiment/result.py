"""`result.json` and what else a finished run leaves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from tao_ray._version import __version__
from tao_ray.experiment.collect import trial_record
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.retention import retention_summary
from tao_ray.experiment.run_dir import RunDir
from tao_ray.experiment.staging import original, original_data, staging_of
from tao_ray.files import write_text
from tao_ray.network.spec import build_spec
from tao_ray.platforms.base import KeepsCopies, Platform
from tao_ray.search.base import TrialStatus
from tao_ray.space import Parameter
from tao_ray.trial.failure import FailureKind
from tao_ray.trial.job import RESULTS_DIR, result_files
from tao_ray.trial.state import Objective, RunState, TrialState

SCHEMA_VERSION = 1
DONE, EARLY, NO_SUCCESS, INTERRUPTED = "done", "ended early", "no success", "interrupted"
_EXIT_CODES = {DONE: 0, NO_SUCCESS: 3, EARLY: 4, INTERRUPTED: 130}


@dataclass(frozen=True)
class Result:
    """How a run ended. `data` is the content of `result.json`.

    status: "done", "ended early" (with a usable result), "no success" or "interrupted"
    (resumable). reason: why it ended before it was done, or "".
    """

    status: str
    reason: str
    run_dir: Path
    data: dict[str, Any]

    @property
    def exit_code(self) -> int:
        """0 done, 3 not one trial succeeded, 4 ended early, 130 interrupted."""
        return _EXIT_CODES[self.status]

    @property
    def best(self) -> dict[str, Any] | None:
        """The best trial, or None."""
        best: dict[str, Any] | None = self.data["best"]
        return best


def run_status(state: RunState, interrupted: bool, reason: str) -> str:
    """What to call the end of a run."""
    if interrupted:
        return INTERRUPTED
    good = {TrialStatus.COMPLETED.value, TrialStatus.STOPPED.value}
    if not any(t.status in good and t.measured() for t in state.trials.values()):
        return NO_SUCCESS
    return EARLY if reason else DONE


def write_result(
    plan: Plan,
    run_dir: RunDir,
    state: RunState,
    platform: Platform,
    status: str,
    reason: str,
    resumable: bool = False,
) -> Result:
    """Write `result.json` and `best_spec.yaml`. resumable: going on would change the result."""
    data = _result_data(plan, run_dir, state, platform, status, reason, resumable)
    write_text(run_dir.result, json.dumps(data, indent=1))
    if data["best"]:
        write_text(run_dir.best_spec, yaml.safe_dump(data["best"]["spec"], sort_keys=False))
    return Result(status, reason, run_dir.path, data)


def _result_data(
    plan: Plan,
    run_dir: RunDir,
    state: RunState,
    platform: Platform,
    status: str,
    reason: str,
    resumable: bool,
) -> dict[str, Any]:
    config, network, objective = plan.config, plan.network, plan.objective
    staging = staging_of(run_dir.evaluation("data_staging"))
    trials = [trial_record(t, objective) for t in state.trials.values()]
    return {
        "schema_version": SCHEMA_VERSION,
        "run": {
            "id": run_dir.id,
            "directory": str(run_dir.path),
            "tao_ray": __version__,
            "reason": reason or None,
            "resumable": resumable or status == INTERRUPTED,
        },
        "status": status,
        "model": {
            "network": network.name,
            "action": network.action.name,
            "image": network.image,
            "base_checkpoint": original(config.model.checkpoint, staging),
        },
        "platform": {"kind": config.platform.kind if config.platform else "local"},
        "data": original_data(config.data, staging).model_dump(mode="json", exclude_none=True),
        "data_staging": staging,
        "best": _best(plan, state, platform),
        "baseline": state.evaluations.get("baseline"),
        "final_evaluation": state.evaluations.get("final"),
        "trials": trials,
        "search_space": search_space(plan),
        "left_out": dict(plan.derived.left_out),
        "algorithm": {
            "name": config.search.algorithm,
            "options": dict(config.search.options),
            "seed": config.search.seed,
        },
        "objective": {
            "metric": objective.metric,
            "direction": objective.direction,
            "at": objective.at,
            "others": [{"metric": m, "direction": d} for m, d in objective.others],
        },
        "pareto_front": _pareto_front(state, objective),
        "budget": {
            "trials": config.search.trials,
            "max_epochs": plan.max_epochs,
            "max_concurrent": config.search.max_concurrent,
            "epochs_spent": sum(t["epochs_trained"] for t in trials),
        },
        "cost": _cost(state),
        "failures": _failures(state),
        "adjustments": [*state.adjustments, *_impossible_batches(plan, state)],
        "retention": _retention(state, platform),
        "timing": {
            "started": state.started,
            "ended": state.ended or state.last_time,
            "elapsed_s": state.elapsed(state.last_time),
            "job_s": (working := _working(state)),
            "gpu_hours": working / 3600 * state.facts.get("gpus", 0),
        },
    }


def _working(state: RunState) -> float:
    """Seconds of all trials' jobs."""
    jobs = (job for trial in state.trials.values() for job in trial.jobs)
    return sum((j.ended or state.last_time) - j.launched for j in jobs if j.launched)


def search_space(plan: Plan) -> list[dict[str, Any]]:
    """The searched parameters as plain data, with where each range came from."""
    return [
        {**_described(parameter), "origin": plan.derived.origins.get(parameter.name)}
        for parameter in plan.derived.space.parameters
    ]


def _described(parameter: Parameter) -> dict[str, Any]:
    """A parameter's range or options as plain data."""
    shown = [f.name for f in fields(parameter) if f.init]  # type: ignore[arg-type]
    return {"kind": parameter.kind, **{name: getattr(parameter, name) for name in shown}}


def _pareto_front(state: RunState, objective: Objective) -> list[dict[str, Any]] | None:
    """The best trade-offs, by trial; None for a single objective."""
    if not objective.others:
        return None
    shown = []
    for trial_id in state.pareto_front(objective):
        judged = state.trials[trial_id].judged(objective.at)
        assert judged is not None
        names = (objective.metric, *(metric for metric, _ in objective.others))
        values = {name: judged.metrics[name] for name in names}
        shown.append({"trial": trial_id, "epoch": judged.epoch, "metrics": values})
    return shown


def _best(plan: Plan, state: RunState, platform: Platform) -> dict[str, Any] | None:
    found = state.best(plan.objective)
    if found is None:
        return None
    trial, judged = found
    assert judged.loss is not None
    value = plan.objective.value(judged.loss)
    reference = state.trials["0000"].judged(plan.objective.at)
    default = (
        None
        if reference is None or reference.loss is None
        else plan.objective.value(reference.loss)
    )
    results = f"{platform.workspace(trial.id)}/{RESULTS_DIR}"
    return {
        "trial": trial.id,
        "status": trial.status,
        "metric": value,
        "epoch": judged.epoch,
        "trial_0_metric": default,
        "improvement": None
        if reference is None or reference.loss is None
        else reference.loss - judged.loss,
        "hyperparameters": dict(trial.config),
        "job": judged.job,
        "machine": lease.machine if (lease := state.ledger.leases.get(judged.job)) else None,
        "results_dir": results,
        "checkpoint": _checkpoint(plan, trial, judged.epoch, platform, results),
        "spec": _spec(plan, trial, results),
    }


def _checkpoint(
    plan: Plan, trial: TrialState, epoch: int, platform: Platform, results: str
) -> dict[str, Any] | None:
    """The file of the judged epoch, or of the last one kept before it; None if there is none."""
    handle = platform.attach(trial.jobs[-1].id) if trial.jobs else None
    files = result_files(handle)
    first = trial.start.epoch if trial.start else 0
    for candidate in range(epoch, first, -1):
        name = plan.network.checkpoint_name(candidate - first, files)
        if name:
            path = f"{results}/{name}"
            if isinstance(platform, KeepsCopies):
                path = platform.kept(trial.id).get(f"{RESULTS_DIR}/{name}", path)
            return {"path": path, "file": name, "epoch": candidate, "bytes": files.get(name)}
    return None


def _retention(state: RunState, platform: Platform) -> Mapping[str, Any] | None:
    """What was deleted and kept; of what was copied off its machine, where the copy is."""
    summary = retention_summary(state)
    if summary is None or not isinstance(platform, KeepsCopies):
        return summary
    kept = []
    for entry in summary["kept"]:
        inside = entry["path"].removeprefix(f"{platform.workspace(entry['trial'])}/")
        copy = platform.kept(entry["trial"]).get(inside, entry["path"])
        kept.append({**entry, "path": copy})
    return {**summary, "kept": kept}


def _cost(state: RunState) -> dict[str, Any] | None:
    """What rented machines have cost; None where there were none."""
    ledger, now = state.ledger, state.last_time
    if not ledger.machines:
        return None
    return {
        "usd": ledger.cost(now),
        "machine_hours": sum(m.seconds(now) for m in ledger.machines.values()) / 3600.0,
        "utilisation": ledger.utilisation(now),
        "by_trial": ledger.workspace_costs(now),
        "machines": [
            {
                "name": m.name,
                "type": m.rent.type if m.rent else None,
                "price_per_hour": m.rent.price_per_hour if m.rent else None,
                "asked": m.rents[0].begin if m.rents else None,
                "ready": m.ready,
                "first_job": m.first_job,
                "deleted": m.deleted,
                "billed_s": m.seconds(now),
                "usd": m.cost(now),
                "lost": m.lost,
            }
            for m in ledger.machines.values()
        ],
    }


def _spec(plan: Plan, trial: TrialState, results: str) -> dict[str, Any]:
    setup = plan.setup(gpus=0)
    spec = build_spec(
        plan.network,
        trial.config,
        results_dir=results,
        num_epochs=None if plan.single_shot else plan.max_epochs,
        milestones=setup.milestones,
        gpus=setup.gpus,
        train_sample_count=setup.train_sample_count,
    )
    return spec.data


def _impossible_batches(plan: Plan, state: RunState) -> list[dict[str, Any]]:
    """Batch sizes that could not be used at all, in the form of an adjustment without a value."""
    return [
        {
            "key": key,
            "asked": trial.config.get(key, plan.network.effective(key)),
            "used": None,
            "reason": f"an invalid configuration: {trial.failure.message}",
            "trials": [trial.id],
        }
        for trial in state.trials.values()
        if trial.failure and trial.failure.kind is FailureKind.BATCH
        for key in plan.network.conventions.batch_size_keys
        if key in plan.network.known
    ]


def _failures(state: RunState) -> list[dict[str, Any]]:
    """Failure kinds, how often, and an example of each."""
    failed = [t for t in state.trials.values() if t.failure]
    counts: Counter[FailureKind] = Counter(t.failure.kind for t in failed if t.failure)
    listed = []
    for kind, count in counts.most_common():
        trials = [t for t in failed if t.failure and t.failure.kind is kind]
        example = trials[0].failure
        assert example is not None
        listed.append(
            {
                "kind": kind.value,
                "cause": kind.cause,
                "remedy": kind.remedy,
                "count": count,
                "trials": [t.id for t in trials],
                "message": example.message,
                "evidence": list(example.evidence),
            }
        )
    return listed
