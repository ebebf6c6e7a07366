"""What is on record of a run's evaluations: in its journal, and in ``evaluations/<name>.json``.

A record is journalled whole whenever it changes, first when its job is about to be launched.

======== ========================================================================================
name     "baseline" | "final" | the id of a trial that is judged by an evaluate job
status   "pending" | "running" | "measured" | "reused" | "failed" | "not applicable" | "skipped"
reason   why, for every status but "running" and "measured"
kind     what the baseline is: "checkpoint", "train" or "trial 0"
metric, metric_name, direction      what was measured: the value, and of what
metrics  all values that were reported
trial, epoch, checkpoint            the model that was evaluated
trained_s, trained_by               of a baseline that was trained: how long, and the job
note     what a reader must know of it
action, data, gpus, job, attempt, results_dir, seconds, failure   how it was
baseline, delta, improvement        final only: the baseline's metric, the difference to it, and the
                                    difference turned so that more is better
accepted_proxy                      whether the user has accepted a proxy objective
record   path of this record
======== ========================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tao_ray.experiment.run_dir import RunDir
from tao_ray.files import write_text
from tao_ray.journal import Event, JournalWriter
from tao_ray.trial.failure import Failure
from tao_ray.trial.state import RunState

BASELINE, FINAL = "baseline", "final"
PENDING, RUNNING, MEASURED, REUSED = "pending", "running", "measured", "reused"
FAILED, INAPPLICABLE, SKIPPED = "failed", "not applicable", "skipped"
CHECKPOINT, TRAIN, TRIAL_0 = "checkpoint", "train", "trial 0"

Record = Mapping[str, Any]


class Records:
    """The records of one run."""

    def __init__(
        self,
        run_dir: RunDir,
        journal: JournalWriter,
        say: Callable[[str], None],
        *,
        accepted_proxy: bool,
    ):
        """say: tells the user what goes on."""
        self._run_dir = run_dir
        self._journal = journal
        self._say = say
        self._accepted_proxy = accepted_proxy
        state = RunState.fold(journal.read())
        of_trials = {t.id: t.evaluation for t in state.trials.values() if t.evaluation}
        self._records = {**state.evaluations, **of_trials}

    def get(self, name: str) -> Record:
        """The newest record of this name; empty if there is none."""
        return self._records.get(name, {})

    def write(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Make these facts the record of ``facts["name"]``."""
        name = facts["name"]
        path = self._run_dir.evaluation(name)
        record = {**facts, "accepted_proxy": self._accepted_proxy, "record": str(path)}
        if self._records.get(name) != record:
            trial = None if name in (BASELINE, FINAL) else name
            self._journal.append(Event("evaluation", trial, record))
            self._records[name] = record
        path.parent.mkdir(exist_ok=True)
        write_text(path, json.dumps(record, indent=1))
        return record

    def settle(
        self, name: str, status: str, reason: str, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The end of an evaluation. reason: "" if it was measured."""
        if facts.get("metric") is not None:
            self._say(f"{name}: {facts['metric_name']} = {facts['metric']:.6g}")
        return self.write({**facts, "name": name, "status": status, "reason": reason or None})

    def fail(self, record: Mapping[str, Any], failure: Failure) -> dict[str, Any]:
        """The end of an evaluation whose job failed."""
        name = record["name"]
        self._say(f"{name}: failed: {failure.message}")
        reason = f"{failure.kind.cause} - {failure.message}"
        return self.settle(name, FAILED, reason, {**record, "failure": failure.to_json()})
