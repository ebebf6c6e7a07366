"""Runs without Ray: real plans, journals and conductors; only the trainings are made up."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tao_ray.config import load_config
from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.experiment.result import run_status, write_result
from tao_ray.experiment.run_dir import RunDir
from tao_ray.experiment.search_loop import run_facts
from tao_ray.experiment.stop_rules import Limits
from tao_ray.files import write_text
from tao_ray.journal import Event, Journal, read_events
from tao_ray.platforms import open_platform
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.state import RunState

HOSTILE = "<script>alert('x')</script> & `tick` | pipe"
SECONDS_PER_EVENT = 0.7

Training = Callable[[str, Mapping[str, Any], int], float]
"""(trial, config, epoch) -> accuracy."""


def accuracy(trial: str, config: Mapping[str, Any], epoch: int) -> float:
    """Best at a learning rate of 3e-3; saturating; with a little jitter."""
    distance = math.log10(config["train.optim.lr"] / 3e-3)
    noise = np.random.default_rng([int(trial), epoch]).normal(0, 0.002)
    ceiling = 0.97 - 0.06 * distance**2 - 0.1 * config["model.dropout"] ** 2
    return float(max(ceiling * (1 - math.exp(-epoch / 3)) + noise, 0.01))


class MadeRun:
    """A run in the making."""

    def __init__(
        self,
        root: Path,
        training: Training = accuracy,
        *,
        overrides: Any = None,
        objective: Any = None,
        rented: bool = False,
        **search: Any,
    ):
        """rented: its jobs are on machines that cost money, one for each that runs at a time."""
        config = {
            "name": "made",
            "model": {"package": "digits_mlp", "overrides": overrides or {}},
            "objective": objective or {},
            "search": {"algorithm": "asha", "trials": 12, "max_concurrent": 3, "max_epochs": 18}
            | search,
        }
        source = root / "made.yaml"
        write_text(source, yaml.safe_dump(config))
        self.config = load_config(source)
        self.plan: Plan = make_plan(self.config)
        self.dir = RunDir.create(root / "runs", self.config.name)
        write_text(self.dir.experiment, yaml.safe_dump(self.config.dump(), sort_keys=False))
        self.journal = Journal(self.dir.journal)
        self._training = training
        self._failures: dict[str, Failure] = {}
        self._on: dict[str, str] = {}
        limits = Limits(self.plan.max_epochs, self.plan.settings.max_concurrent)
        plan = self.plan
        self.conductor = Conductor(
            plan.algorithm(), plan.objective, self.journal, limits, plan.evaluation
        )
        self._machines = ["m-a", "m-b", "m-c"] if rented else []
        for name in self._machines:
            self.machine(name, "wanted", slots=1)
            self.machine(name, "asked", type="l40s", price=3600.0, text="")
        self.conductor.replay([])
        facts = {**run_facts(self.plan, 0), "version": "0", "platform": "local"}
        self.conductor.mark("started", **facts)

    def evaluation(self, name: str, job: str, **facts: Any) -> None:
        """Journal an evaluate job that ran, on the first machine if there is one."""
        record = {"name": name, "job": job, "metric_name": "test_acc_1", "data": {}}
        machine = next(iter(self._machines), "")
        self.machine(machine, "leased", job=job, workspace=f"eval-{name}")
        self.journal.append(Event("evaluation", None, {**record, "status": "running"}))
        self.machine(machine, "returned", job=job)
        self.journal.append(Event("evaluation", None, {**record, "status": "measured", **facts}))

    def fail(self, trial: str, kind: FailureKind, message: str, *evidence: str) -> MadeRun:
        """Have a trial fail after its first epoch."""
        self._failures[trial] = Failure(kind, message, evidence)
        return self

    def go(self, epochs: int | None = None) -> MadeRun:
        """Train, one epoch of each running trial at a time, to the end or for so many epochs."""
        search, done = self.conductor, 0
        while not search.finished() and not search.halt:
            search.settle_losers()
            while (trial := search.next_resumed() or search.next_proposed()) is not None:
                self._launch(trial.id, len(trial.jobs) + 1, trial.last_epoch)
            search.catch_up()
            for trial in list(search.state.trials.values()):
                if trial.status == "evaluating":
                    value = self._training(trial.id, trial.config, trial.last_epoch)
                    search.on_evaluated(trial.id, {self.plan.objective.metric: value})
            for trial in search.unfinished():
                if done == epochs:
                    return self
                job = trial.jobs[-1].id
                if trial.id in self._failures and trial.last_epoch:
                    search.on_failure(trial.id, self._failures[trial.id])
                elif trial.last_epoch == self.plan.max_epochs:
                    search.on_completed(trial.id)
                else:
                    epoch = trial.last_epoch + 1
                    value = self._training(trial.id, trial.config, epoch)
                    judge = self.plan.objective
                    if self.plan.evaluation and self.plan.evaluation.guide:
                        judge = self.plan.evaluation.guide
                    metrics = {judge.metric: value, "val_loss": 1 - value}
                    search.on_epoch(trial.id, epoch, metrics, job=job)
                    done += 1
                if not trial.alive or trial.status == "paused":
                    self.journal.append(Event("job_end", trial.id, {"job": job, "code": 0}))
                    self.machine(self._on.pop(job, ""), "returned", job=job)
                    search.catch_up()
        return self

    def end(self, *, interrupted: bool = False) -> RunDir:
        """End the run as the driver does, and let time have passed."""
        for name in self._machines:
            self.machine(name, "accepted")
            self.machine(name, "deleted")
        self.conductor.catch_up()
        status = run_status(self.conductor.state, interrupted, "")
        self.conductor.mark("ended", status=status, reason="")
        self.close()
        state = RunState.fold(read_events(self.dir.journal))
        platform, _ = open_platform(self.config.platform, self.dir.jobs, 1)
        write_result(self.plan, self.dir, state, platform, status, "")
        return self.dir

    def close(self) -> RunDir:
        """Let go of the journal, as a driver that was killed. Events get times far apart."""
        self.journal.close()
        with sqlite3.connect(self.dir.journal) as db:
            db.execute("UPDATE events SET time = 1.8e9 + seq * ?", (SECONDS_PER_EVENT,))
        return self.dir

    def _launch(self, trial: str, segment: int, resume_epoch: int) -> None:
        job = {"job": f"{trial}-{segment}", "segment": segment, "resume_epoch": resume_epoch}
        self.journal.append(Event("job", trial, job))
        free = [name for name in self._machines if name not in self._on.values()]
        if free:
            self._on[str(job["job"])] = free[0]
            self.machine(free[0], "leased", job=job["job"], workspace=trial)
            self.machine(free[0], "started", job=job["job"])
        self.journal.append(Event("launched", trial, {"job": job["job"]}))

    def machine(self, name: str, what: str, **facts: Any) -> None:
        """Journal what a rented machine does."""
        if name:
            self.journal.append(Event("machine", data={"what": what, "name": name, **facts}))


def many_trials(root: Path, trials: int, epochs: int) -> RunDir:
    """A finished run of many full trainings, written in one transaction; without a result."""
    made = MadeRun(root, algorithm="random", trials=trials, max_epochs=epochs)
    metric = made.plan.objective.metric
    events = []
    for number, config in enumerate(made.plan.derived.space.sobol(trials, 1)):
        trial, job = f"{number:04d}", f"{number:04d}-1"
        events += [
            Event("proposed", trial, {"config": config}),
            Event("job", trial, {"job": job, "segment": 1, "resume_epoch": 0}),
            Event("launched", trial, {"job": job}),
        ]
        for epoch in range(1, epochs + 1):
            value = accuracy(trial, config, epoch)
            facts = {"job": job, "epoch": epoch, "metrics": {metric: value}, "loss": -value}
            events.append(Event("epoch", trial, facts))
        events.append(Event("job_end", trial, {"job": job, "code": 0}))
        events.append(Event("ended", trial, {"status": "completed"}))
    events.append(Event("run", None, {"what": "ended", "status": "done", "reason": ""}))
    made.journal.append(*events)
    return made.close()
