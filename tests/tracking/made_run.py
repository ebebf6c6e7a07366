"""A run in which everything happens that a tracker must show, as the events of its journal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tao_ray.journal import Event
from tao_ray.tracking.tracker import RunInfo
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.state import Objective

OBJECTIVE = Objective("acc", "maximize", "best")
TRIALS = 9
EPOCHS = 6


def info(directory: Path) -> RunInfo:
    return RunInfo("made/20260102-030405", directory, OBJECTIVE, TRIALS, 3)


def events() -> list[Event]:
    """Nine trials, three at a time: done, stopped, paused and resumed, retried, failed, NaN."""
    facts = {"network": "toy", "action": "train", "algorithm": "asha", "metric": "acc"}
    made = [
        Event("run", None, {"what": "started", **facts}),
        Event("evaluation", None, {"name": "baseline", "status": "measured", "value": 0.25}),
    ]
    for first in range(0, TRIALS, 3):
        group = [f"{number:04}" for number in range(first, first + 3)]
        for trial in group:
            made += _start(trial)
        for epoch in range(1, EPOCHS + 1):
            for trial in group:
                made += _epoch(trial, epoch)
    final = {"name": "final", "status": "measured", "value": 0.75}
    return [*made, Event("evaluation", None, final)]


def _start(trial: str) -> list[Event]:
    number = int(trial)
    config = {
        "train.lr": 10.0**-number,
        "train.batch": 2**number,
        "train.kind": ["sgd", "adam"][number % 2],
        "train.flag": number % 3 == 0,
        "train.mixed": None if number == 4 else number,
    }
    proposed = Event("proposed", trial, {"config": config, "info": {"bracket": number % 2}})
    if number == 4:  # it never starts
        failure = Failure(FailureKind.SPEC, "no such key").to_json()
        return [proposed, Event("ended", trial, {"status": "failed", "failure": failure})]
    return [proposed, *_job(trial, 1, 0)]


def _job(trial: str, segment: int, epoch: int) -> list[Event]:
    job = f"{trial}-{segment}"
    data = {"job": job, "segment": segment, "resume_epoch": epoch}
    return [Event("job", trial, data), Event("launched", trial, {"job": job})]


def _epoch(trial: str, epoch: int) -> list[Event]:
    number = int(trial)
    if number == 4 or (number == 1 and epoch > 2) or (number == 5 and epoch > 3):
        return []
    accuracy = math.nan if number == 5 and epoch == 3 else 1 - 1 / (number + epoch)
    data: dict[str, Any] = {
        "job": f"{trial}-1",
        "epoch": epoch,
        "metrics": {"acc": accuracy, "loss": 1 / epoch},
        "loss": -accuracy,
        "seconds": 0.5,
    }
    if number == 2 and epoch > 1:
        data["late"] = {str(epoch - 1): {"kpi": epoch - 1.0}}
    made = [Event("epoch", trial, data)]
    if number == 1 and epoch == 2:
        made += [_decision(trial, epoch, "stop"), Event("ended", trial, {"status": "stopped"})]
    elif number == 3 and epoch == 3:
        made += [_decision(trial, epoch, "pause"), Event("resumed", trial)]
        made += _job(trial, 2, 3)
    elif number == 6 and epoch == 4:
        lost = Failure(FailureKind.MACHINE_LOST, "gone").to_json()
        made += [Event("retry", trial, {"failure": lost}), *_job(trial, 2, 4)]
    elif number == 5 and epoch == 3:
        failure = Failure(FailureKind.NAN, "acc is nan").to_json()
        made += [Event("ended", trial, {"status": "failed", "failure": failure})]
    elif epoch == EPOCHS:
        made += [Event("ended", trial, {"status": "completed"})]
    return made


def _decision(trial: str, epoch: int, decision: str) -> Event:
    return Event("decision", trial, {"epoch": epoch, "decision": decision})
