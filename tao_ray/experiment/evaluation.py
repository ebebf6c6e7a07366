"""The evaluate jobs of a run: of the model it starts from (the baseline) and of the winner.

What is known of them is in `evaluation_records`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tao_ray.errors import TaoRayError
from tao_ray.experiment.evaluation_records import (
    BASELINE,
    CHECKPOINT,
    FAILED,
    FINAL,
    INAPPLICABLE,
    MEASURED,
    PENDING,
    REUSED,
    RUNNING,
    SKIPPED,
    TRAIN,
    TRIAL_0,
    Record,
    Records,
)
from tao_ray.experiment.jobs import Ended, JobPlan, JobStopped, Watch, run_job
from tao_ray.experiment.measure import Measure, Unmeasurable, find_measure
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.run_dir import RunDir
from tao_ray.journal import JournalWriter
from tao_ray.network.conventions import TRAINING_ACTIONS
from tao_ray.platforms.base import LinkError, Platform
from tao_ray.search.base import TrialStatus
from tao_ray.trial.classify import kind_of_error
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.job import RESULTS_DIR, read_result, result_files
from tao_ray.trial.sources import Hook, HookError, Report
from tao_ray.trial.state import EpochState, RunState, TrialState

T = TypeVar("T")
_WATCH_S = 0.2
_LINK_AGAIN_S = 2.0
_MEASUREMENT = "metric metric_name direction metrics action data gpus job results_dir seconds"


def baseline_kind(plan: Plan) -> str:
    """What this run's winner is compared with: CHECKPOINT, TRAIN, TRIAL_0 or SKIPPED."""
    config = plan.config
    if config.baseline == "skip":
        return SKIPPED
    if config.baseline == "train":
        return TRAIN
    return CHECKPOINT if config.model.checkpoint else TRIAL_0


def baseline_comes_first(plan: Plan) -> bool:
    """Whether the baseline is a job of its own, before the search."""
    kind = baseline_kind(plan)
    return kind == TRAIN or (kind == CHECKPOINT and isinstance(find_measure(plan), Measure))


class Evaluator:
    """Runs and records the evaluations of one run. What is on record already is not run again."""

    def __init__(
        self,
        plan: Plan,
        run_dir: RunDir,
        platform: Platform,
        gpus: int,
        journal: JournalWriter,
        *,
        watch: Watch = lambda event: None,
        say: Callable[[str], None] = lambda text: None,
    ):
        """gpus: those of a trial. watch: see `run_job`. say: tells the user what goes on."""
        self._plan = plan
        self._platform = platform
        self._trial_gpus = gpus
        own = plan.config.evaluation.gpus
        self._gpus = gpus if own is None else own
        self._watch = watch
        self._say = say
        self._measure = find_measure(plan)
        accepted = plan.config.objective.accept_proxy
        self._records = Records(run_dir, journal, say, accepted_proxy=accepted)

    # -- before the search ----------------------------------------------------------------------

    def before_search(self) -> Record:
        """Measure the baseline, or record why not (or not yet).

        Raises TaoRayError if it failed: the run must not go on.
        """
        kind = baseline_kind(self._plan)
        known = self._records.get(BASELINE)
        if known and known["status"] not in (RUNNING, FAILED):
            return known
        if kind == SKIPPED:
            return self._records.settle(BASELINE, SKIPPED, "baseline: skip was said", {})
        if kind == TRIAL_0:
            reason = "the training starts from scratch: trial 0, the network's defaults, is the "
            return self._records.settle(BASELINE, PENDING, f"{reason}reference", {"kind": kind})
        if kind == TRAIN:
            return self._checked(self._train_baseline())
        if isinstance(self._measure, Unmeasurable):
            return self._records.settle(
                BASELINE, INAPPLICABLE, self._measure.reason, {"kind": kind}
            )
        checkpoint = self._plan.config.model.checkpoint
        assert checkpoint is not None
        return self._checked(self._evaluate(BASELINE, checkpoint, {}, {"kind": kind}))

    def _checked(self, record: Record) -> Record:
        if record["status"] != FAILED:
            return record
        failure = record.get("failure") or {}
        evidence = "".join(f"\n    {line}" for line in failure.get("evidence", ()))
        raise TaoRayError(
            f"the baseline failed, so the search was not started: {record['reason']}{evidence}",
            where=str(record["record"]),
            remedy=f"{_remedy(failure)}; or go on without one: --set baseline=skip",
        )

    def _train_baseline(self) -> Record:
        """A training with the defaults outside the search, then its evaluation."""
        plan, setup = self._plan, self._plan.setup(self._trial_gpus)
        defaults = plan.derived.space.defaults()
        known = self._records.get(BASELINE)
        if (
            "trained_s" in known and "checkpoint" in known
        ):  # only its evaluation is still to be done
            kept = ("kind", "epoch", "trained_s", "trained_by", "note")
            done = {key: known.get(key) for key in kept}
            return self._evaluate(BASELINE, known["checkpoint"], defaults, done)
        job = JobPlan(
            plan.network,
            id="",
            workspace="baseline",
            gpus=self._trial_gpus,
            assignment=defaults,
            num_epochs=plan.epochs,
            checkpoint_interval=setup.checkpoint_interval,
            train_sample_count=plan.train_sample_count,
        )
        judge = plan.objective
        if plan.evaluation is not None and plan.evaluation.guide is not None:
            judge = plan.evaluation.guide
        facts: dict[str, Any] = {"kind": TRAIN, "metric_name": judge.metric}
        trained = self._run(BASELINE, job, "train-baseline", facts)
        if isinstance(trained, dict):
            return trained
        ended, record = trained
        name = judge.metric
        epochs = {e: m[name] for e, m in ended.epochs.items() if _has(name, m)}
        if not epochs:
            epochs = {1: ended.metrics[name]} if _has(name, ended.metrics) else {}
        if not epochs and plan.evaluation is None:
            return self._records.fail(record, _missing(name, ended.metrics))
        chosen = max(epochs or ended.epochs, default=1)
        if epochs and judge.at == "best":
            chosen = min(epochs, key=lambda e: (judge.loss(epochs[e]), e))
        facts |= {"epoch": chosen, "trained_s": ended.seconds, "trained_by": record["job"]}
        found = self._checkpoint("baseline", record["job"], chosen)
        if found is None and plan.evaluation is not None:
            reason = f"there is no checkpoint of epoch {chosen} or before to evaluate"
            return self._records.settle(BASELINE, FAILED, reason, {**record, **facts})
        if isinstance(self._measure, Unmeasurable) or found is None:
            return self._records.settle(
                BASELINE,
                MEASURED,
                "",
                {
                    **record,
                    **facts,
                    "direction": plan.objective.direction,
                    "metric": epochs[chosen],
                    "note": "measured by the training itself, as it is not evaluated",
                },
            )
        return self._evaluate(BASELINE, found[0], defaults, {**facts, "note": found[1]})

    # -- after the search -----------------------------------------------------------------------

    def after_search(self, state: RunState) -> Record:
        """Evaluate the winner's checkpoint and, where it is the baseline, that of trial 0."""
        if self._records.get(BASELINE).get("kind") == TRIAL_0:
            self._trial_0(state)
        good = [
            pair
            for pair in [state.best(self._plan.objective)]
            if pair is not None and pair[0].status != TrialStatus.FAILED.value
        ]
        if not good:
            return self._records.settle(FINAL, INAPPLICABLE, "no trial succeeded", {})
        return self._with_delta(self._trial(FINAL, *good[0]))

    def evaluate_trial(self, trial: TrialState) -> Record:
        """Evaluate the checkpoint that was chosen of a trial whose training is over."""
        assert trial.chosen is not None
        return self._trial(trial.id, trial, trial.epochs[trial.chosen])

    def pause(self, seconds: float) -> None:
        """Wait, unless the run is stopped before or meanwhile: then raises what `watch` raises."""
        self._watch(None)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(_WATCH_S)
            self._watch(None)

    def _patiently(self, look: Callable[[], T]) -> T:
        """What `look` returns, once there is a link to the machine it looks at."""
        while True:
            try:
                return look()
            except LinkError:
                self.pause(_LINK_AGAIN_S)

    def _trial_0(self, state: RunState) -> Record:
        trial = state.trials.get("0000")
        judged = trial.judged(self._plan.objective.at) if trial else None
        if trial is None or judged is None:
            why = f": {trial.failure.message}" if trial and trial.failure else ""
            return self._records.settle(
                BASELINE, INAPPLICABLE, f"trial 0 was not measured{why}", {"kind": TRIAL_0}
            )
        return self._trial(BASELINE, trial, judged, kind=TRIAL_0)

    def _trial(self, name: str, trial: TrialState, judged: EpochState, **facts: Any) -> Record:
        facts |= {"trial": trial.id, "epoch": judged.epoch}
        if isinstance(self._measure, Unmeasurable):
            return self._records.settle(name, INAPPLICABLE, self._measure.reason, facts)
        own_epoch = judged.epoch - (trial.start.epoch if trial.start else 0)
        job = trial.last_job.id if trial.last_job else ""
        found = self._checkpoint(trial.id, job, own_epoch)
        if found is None:
            trains = self._plan.network.action.name in TRAINING_ACTIONS
            reason = f"there is no checkpoint of trial {trial.id}, epoch {judged.epoch} or before"
            return self._records.settle(name, FAILED if trains else INAPPLICABLE, reason, facts)
        checkpoint, facts["note"] = found
        for other_name in (BASELINE, FINAL, trial.id):
            other = self._records.get(other_name) if other_name != name else {}
            if other.get("checkpoint") == checkpoint and other.get("status") == MEASURED:
                whose = "trial" if other_name == trial.id else other_name
                reason = f"the same checkpoint as the {whose}'s"
                facts |= {key: other.get(key) for key in _MEASUREMENT.split()}
                facts["checkpoint"] = checkpoint
                return self._records.settle(name, REUSED, reason, facts)
        return self._evaluate(name, checkpoint, trial.config, facts)

    def _checkpoint(self, workspace: str, job: str, epoch: int) -> tuple[str, str | None] | None:
        """The checkpoint of this epoch or, if that was not kept, of the last one kept before it.

        Its path as jobs see it, and a note if it is of an earlier epoch; None if there is none.
        """
        files = self._patiently(lambda: result_files(self._platform.attach(job))) if job else {}
        results = f"{self._platform.workspace(workspace)}/{RESULTS_DIR}"
        for candidate in range(epoch, 0, -1):
            name = self._plan.network.checkpoint_name(candidate, files, weights=True)
            if name:
                note = (
                    None
                    if candidate == epoch
                    else f"no checkpoint was written after epoch {epoch}: this is epoch {candidate}"
                )
                return f"{results}/{name}", note
        return None

    def _with_delta(self, record: Record) -> Record:
        baseline = self._records.get(BASELINE)
        before, value = baseline.get("metric"), record.get("metric")
        comparable = baseline.get("metric_name") == record.get("metric_name")
        if before is None or value is None or not comparable or "delta" in record:
            return record
        assert isinstance(self._measure, Measure)
        loss = self._measure.objective.loss
        return self._records.write(
            {
                **record,
                "baseline": before,
                "delta": value - before,
                "improvement": loss(before) - loss(value),
            }
        )

    # -- one evaluation -------------------------------------------------------------------------

    def _evaluate(
        self, name: str, checkpoint: str, assignment: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Record:
        measure = self._measure
        assert isinstance(measure, Measure)
        known = self._records.get(name)
        if known.get("status") == MEASURED and known.get("checkpoint") == checkpoint:
            return known
        objective = measure.objective
        job = JobPlan(
            measure.network,
            id="",
            workspace=f"eval-{name}",
            gpus=self._gpus,
            assignment=assignment,
            start_from=checkpoint,
        )
        facts = {
            **facts,
            "metric_name": objective.metric,
            "direction": objective.direction,
            "checkpoint": checkpoint,
            "data": measure.data,
        }
        done = self._run(name, job, f"eval-{name}", facts)
        if isinstance(done, dict):
            return done
        ended, record = done
        metrics = dict(ended.metrics)
        if measure.hook is not None:
            try:
                metrics |= self._by_hook(measure.hook, objective.metric, ended, record)
            except HookError as error:
                return self._records.fail(record, Failure(kind_of_error(error), str(error)))
        value = metrics.get(objective.metric)
        if value is None:
            return self._records.fail(record, _missing(objective.metric, metrics))
        if not math.isfinite(value):
            return self._records.fail(
                record, Failure(FailureKind.NAN, f"{objective.metric} = {value}")
            )
        facts = {**record, "metric": value, "metrics": metrics}
        return self._records.settle(name, MEASURED, "", facts)

    def _by_hook(
        self, hook: Hook, metric: str, ended: Ended, record: Mapping[str, Any]
    ) -> dict[str, float]:
        """What the user's function says of an evaluate job. Raises HookError."""
        handle = self._patiently(lambda: self._platform.attach(record["job"]))
        report = Report(
            record.get("epoch") or 1,
            dict(ended.metrics),
            ended.log,
            lambda path: read_result(handle, path),
        )
        value = hook.value(report)
        return {} if value is None else {metric: value}

    def _run(
        self, name: str, job: JobPlan, prefix: str, facts: Mapping[str, Any]
    ) -> tuple[Ended, dict[str, Any]] | dict[str, Any]:
        """Run the job, again where the machine failed; how it ended, or the record of a failure.

        A job that an earlier driver had launched for the same model is attached to.
        """
        config = self._plan.config.failures
        hours = config.job_timeout_hours
        known = self._records.get(name)
        attempt = known["attempt"] if str(known.get("job", "")).startswith(prefix) else 0
        same = known.get("checkpoint") == facts.get("checkpoint")
        if not (attempt and same and known["status"] == RUNNING):
            attempt += 1
        for retries_left in reversed(range(config.max_retries + 1)):
            job = JobPlan(**{**vars(job), "id": f"{prefix}-{attempt}"})
            record = {
                **facts,
                "name": name,
                "action": job.network.action.name,
                "gpus": job.gpus,
                "job": job.id,
                "attempt": attempt,
                "results_dir": job.results_dir(self._platform),
            }
            self._records.write({**record, "status": RUNNING})
            self._say(f"{name}: {job.network.action.name} {facts.get('checkpoint') or ''}".rstrip())
            ended = run_job(
                self._platform,
                job,
                watch=self._watch,
                metric=facts["metric_name"],
                timeout_s=hours * 3600 if hours else None,
            )
            record["seconds"] = ended.seconds
            if ended.failure is None:
                return ended, record
            stopped = ended.failure.kind is FailureKind.STOPPED_BY_USER
            if not (retries_left and (stopped or ended.failure.kind.retried)):
                break
            attempt += 1
        assert ended.failure is not None
        return self._records.fail(record, ended.failure)


def _has(metric: str, metrics: Mapping[str, float]) -> bool:
    value = metrics.get(metric)
    return value is not None and math.isfinite(value)


def _missing(metric: str, seen: Mapping[str, float]) -> Failure:
    names = ", ".join(sorted(seen)) or "no metric at all"
    return Failure(FailureKind.METRIC_MISSING, f"{metric} never appeared; seen: {names}")


def _remedy(failure: Mapping[str, Any]) -> str:
    kind = failure.get("kind")
    if kind == FailureKind.METRIC_MISSING.value:
        return "set evaluation.metric to one of the names that were seen"
    return FailureKind(kind).remedy if kind else "see its record"


__all__ = [
    "BASELINE",
    "CHECKPOINT",
    "FINAL",
    "PENDING",
    "SKIPPED",
    "TRAIN",
    "TRIAL_0",
    "Evaluator",
    "JobStopped",
    "baseline_comes_first",
    "baseline_kind",
]
