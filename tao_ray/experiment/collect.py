"""Brings the records of ended trials from the platform into the run directory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tao_ray.files import write_text
from tao_ray.platforms.base import JobHandle, LogLine, Offset, Platform
from tao_ray.trial.job import RESULTS_DIR
from tao_ray.trial.state import Objective, TrialState

_HIDDEN = "***"


class Collector:
    """Fetches spec, status stream and log of each trial once, beside the running search."""

    def __init__(
        self, platform: Platform, trials: Path, objective: Objective, status_path: str | None
    ):
        self._platform = platform
        self._trials = trials
        self._objective = objective
        self._status_path = f"{RESULTS_DIR}/{status_path}" if status_path else None
        self._secrets: tuple[str, ...] = ()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="collect")
        self._done: dict[str, Future[None]] = {}

    def hide(self, secrets: Iterable[str]) -> None:
        """Texts that must not be written into the run directory."""
        self._secrets = tuple(s for s in secrets if s)

    def collect_ended(self, trials: Iterable[TrialState]) -> None:
        """Start collecting every ended trial that was not collected yet."""
        for trial in trials:
            if not trial.alive and trial.id not in self._done:
                # All jobs of an ended trial must have ended too, or the log is incomplete.
                if any(job.ended is None for job in trial.jobs):
                    continue
                self._done[trial.id] = self._pool.submit(self._collect, trial)

    def close(self, trials: Iterable[TrialState]) -> list[str]:
        """Wait for what was started, and try again what failed: a machine may not have answered.

        Returns what could not be collected, one text each.
        """
        failed = [name for name, future in self._done.items() if future.exception()]
        for name in failed:
            del self._done[name]
        self.collect_ended(trials)
        self._pool.shutdown(wait=True)
        errors = [(name, future.exception()) for name, future in self._done.items()]
        return [f"trial {name}: records not collected: {e}" for name, e in errors if e]

    def _collect(self, trial: TrialState) -> None:
        target = self._trials / trial.id
        target.mkdir(parents=True, exist_ok=True)
        write_text(
            target / "result.json", json.dumps(trial_record(trial, self._objective), indent=1)
        )
        with open(target / "log.txt", "wb") as log:
            for job in trial.jobs:
                handle = self._platform.attach(job.id)
                if handle is None:
                    continue
                for event in handle.events(Offset()):
                    if isinstance(event, LogLine):
                        log.write(self._hidden(event.data) + b"\n")
                self._fetch(handle, job.segment, target)

    def _fetch(self, handle: JobHandle, segment: int, target: Path) -> None:
        """Spec and status of one job; those of the newest stay."""
        files = handle.list()
        specs = [f for f in files if f.startswith(f"spec_{segment}.")]
        statuses = [f for f in files if f == self._status_path]
        for path in [*specs, *statuses]:
            part = target / f".{os.path.basename(path)}"
            handle.fetch(path, str(part))
            data = self._hidden(part.read_bytes())
            part.unlink()
            name = f"spec.{path.rsplit('.', 1)[1]}" if path in specs else "status.json"
            (target / name).write_bytes(data)

    def _hidden(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret.encode(), _HIDDEN.encode())
        return data


def trial_record(trial: TrialState, objective: Objective) -> dict[str, Any]:
    """A trial as `result.json` shows it. Metrics are in the objective's own direction."""
    judged = trial.judged(objective.at)
    failure = trial.failure
    return {
        "id": trial.id,
        "status": trial.status,
        "hyperparameters": dict(trial.config),
        "metric": None if judged is None or judged.loss is None else objective.value(judged.loss),
        "epoch": judged.epoch if judged else None,
        "epochs_trained": len(trial.epochs),
        "curve": [
            {
                "epoch": e.epoch,
                # JSON has no NaN: a metric that was not finite is null.
                "metrics": {k: v if math.isfinite(v) else None for k, v in e.metrics.items()},
                "seconds": e.seconds,
            }
            for _, e in sorted(trial.epochs.items())
        ],
        "jobs": [
            {
                "id": j.id,
                "resumed_from_epoch": j.resume_epoch,
                "started": j.launched,
                "ended": j.ended,
                "exit_code": j.code,
            }
            for j in trial.jobs
        ],
        "info": dict(trial.info),
        "started": trial.proposed,
        "ended": trial.ended,
        "failure": None
        if failure is None
        else {**failure.to_json(), "cause": failure.kind.cause, "remedy": failure.kind.remedy},
    }
