"""The search itself: Ray Tune's loop, and all that happens beside it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tao_ray._version import __version__
from tao_ray.errors import TaoRayError
from tao_ray.experiment.budget import Budget
from tao_ray.experiment.collect import Collector
from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.control import Control
from tao_ray.experiment.evaluation import Evaluator, JobStopped
from tao_ray.experiment.jobs import Watch
from tao_ray.experiment.keeping import Keeper
from tao_ray.experiment.machines import Demand, machines
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.publish import publish
from tao_ray.experiment.result import Result, run_status, search_space, write_result
from tao_ray.experiment.retention import Retention
from tao_ray.experiment.run_dir import RunDir
from tao_ray.experiment.trial_evaluations import TrialEvaluations
from tao_ray.experiment.view import View
from tao_ray.experiment.watchdog import Watchdog
from tao_ray.journal import Event
from tao_ray.platforms import PlatformError, open_platform
from tao_ray.tracking.tracker import Trackers
from tao_ray.trial.state import RunState
from tao_ray.trial.supervisor import Supervisor

_VIEW_EVERY_S = 0.25
_PARALLEL_STOPS = 8


class SearchLoop:
    """The search itself, between an open journal and the result."""

    def __init__(
        self,
        plan: Plan,
        run_dir: RunDir,
        view: View,
        conductor: Conductor,
        journal: Any,
        trackers: Trackers,
    ):
        self._plan = plan
        self._run_dir = run_dir
        self._view = view
        self._conductor = conductor
        self._journal = journal
        self._trackers = trackers
        self._platform, self._gpus = open_platform(
            plan.config.platform, run_dir.jobs, plan.settings.max_concurrent
        )
        self._setup = plan.setup(self._gpus)
        self._collector = Collector(
            self._platform, run_dir.trials, plan.objective, plan.network.status_path
        )
        self._collector.hide(plan.network.secrets.values())
        self._control = Control(conductor, run_dir.stop_request, view.say)
        self._shown = 0.0
        self._searched = False
        self._watchdog = Watchdog(self._put_away)
        retention = plan.config.retention
        self._retention = Retention(
            plan.network,
            plan.objective,
            self._platform,
            journal,
            mode=retention.mode,
            keep=retention.keep,
        )
        self._keeper = Keeper(
            plan.network,
            plan.objective,
            self._platform,
            plan.config.checkpoint.sync_every,
            retention.keep,
        )
        self._budget = Budget(plan.config.budget, conductor)
        self._demand = Demand(self._platform, plan.settings.trials, plan.settings.max_concurrent)
        self._told = len(conductor.state.notices)
        self._closing = False
        self._evaluations = self._trial_evaluations() if plan.evaluation else None

    def run(self) -> Result:
        """Search, then write the result. Jobs that nobody follows are ended on every way out, and
        rented machines are gone."""
        conductor = self._conductor
        with machines(self._platform, self._journal, self._view.say):
            conductor.mark(
                "resumed" if conductor.state.trials else "started",
                **run_facts(self._plan, self._gpus),
            )
            try:
                self._put_away_jobs(only_done_with=True)
                self._search()
                if not self._is_to_go_on():
                    self._evaluate()
                for problem in self._retention.finish(conductor.state, conductor.donors()):
                    conductor.say(problem)
            finally:
                conductor.catch_up()
                for problem in self._keeper.finish(conductor.state, conductor.donors()):
                    conductor.say(problem)
        conductor.catch_up()
        for problem in self._collector.close(conductor.state.trials.values()):
            conductor.say(problem)
        halt = conductor.halt
        reason, resumable = (halt.reason, halt.resumable) if halt else ("", False)
        interrupted = halt is not None and halt.interrupted
        status = run_status(conductor.state, interrupted, reason)
        conductor.mark("ended", status=status, reason=reason)
        return write_result(
            self._plan, self._run_dir, conductor.state, self._platform, status, reason, resumable
        )

    def publish(self, result: Result) -> str | None:
        """See `tao_ray.experiment.publish`. After `run`, and after the report was written."""
        return publish(self._plan, self._run_dir, result, self._platform, self._journal)

    def _evaluator(self, watch: Watch, **options: Any) -> Evaluator:
        return Evaluator(
            self._plan,
            self._run_dir,
            self._platform,
            self._gpus,
            self._journal,
            watch=watch,
            **options,
        )

    def _trial_evaluations(self) -> TrialEvaluations:
        evaluator = self._evaluator(self._until_closing)
        slots = self._plan.settings.max_concurrent
        return TrialEvaluations(evaluator, self._put_away, slots)

    def _search(self) -> None:
        """Search; afterwards no job runs."""
        conductor = self._conductor
        try:
            with self._control.listening():
                if not conductor.trained():
                    self._tune()
                if self._evaluations:
                    self._evaluations.finish(conductor, self._poll)
        finally:
            self._closing = True
            if self._evaluations:
                self._evaluations.close()
            self._watchdog.close()
            self._searched = True
            self._put_away_jobs(only_done_with=False)
        conductor.catch_up()
        self._collector.collect_ended(conductor.state.trials.values())

    def _evaluate(self) -> None:
        """Evaluate the winner and, where it is the baseline, trial 0."""
        self._demand.look(self._conductor.state, searching=False)
        self._view.update(self._conductor.state, time.time())
        evaluator = self._evaluator(self._watch, say=self._view.say)
        with self._control.listening(), suppress(JobStopped):
            evaluator.after_search(self._conductor.state)
        self._conductor.catch_up()

    def _watch(self, event: object) -> None:
        self._control.poll()
        now = time.time()
        if now - self._shown >= _VIEW_EVERY_S:
            self._shown = now
            self._conductor.catch_up()
            self._keeper.look(self._conductor.state, self._conductor.donors())
            self._budget.look(self._conductor.state, now)
        if self._is_to_go_on():
            raise JobStopped

    def _until_closing(self, event: object) -> None:
        if self._closing or self._is_to_go_on():
            raise JobStopped

    def _is_to_go_on(self) -> bool:
        """What is left of the run is for whoever resumes it."""
        halt = self._conductor.halt
        return halt is not None and halt.resumable

    def _tune(self) -> None:
        from ray import tune

        from tao_ray.experiment.tune_adapters import SchedulerAdapter, SearchAdapter
        from tao_ray.trial.trainable import TrialTrainable

        search = SearchAdapter(self._conductor, self._poll)
        trainable = tune.with_parameters(
            TrialTrainable, setup=self._setup, platform=self._platform, journal=self._journal
        )
        tuner = tune.Tuner(
            # The supervisors sleep on a stream; what a trial really needs is on the platform.
            tune.with_resources(trainable, {"cpu": 0.001}),
            tune_config=tune.TuneConfig(
                search_alg=search,
                scheduler=SchedulerAdapter(self._conductor, search, self._poll),
                num_samples=-1,
                # A supervisor's process takes a second of CPU time to start. Tune does not clean
                # up an actor that it keeps for reuse: the next trial's `reset_config` does, and
                # the watchdog where there is none.
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(self._run_dir.ray),
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=self._conductor.limits.max_retries),
            ),
        )
        try:
            tuner.fit()
        except tune.TuneError as error:
            if isinstance(error.__context__, TaoRayError):  # what our adapters raised in it
                raise error.__context__ from None
            raise

    def _poll(self) -> None:
        self._control.poll()
        if self._evaluations:
            self._evaluations.look(self._conductor)
        now = time.time()
        if now - self._shown >= _VIEW_EVERY_S:
            self._shown = now
            self._conductor.catch_up()
            state = self._conductor.state
            for _, text in state.notices[self._told :]:
                self._view.say(text)
            self._told = len(state.notices)
            self._collector.collect_ended(state.trials.values())
            self._view.update(state, now)
            self._trackers.update(state)
            self._watchdog.look(state, now)
            self._retention.look(state, self._conductor.donors(), now)
            self._keeper.look(state, self._conductor.donors())
            self._demand.look(state)
            self._budget.look(state, now)

    def _put_away_jobs(self, *, only_done_with: bool) -> None:
        """End jobs whose trial is over or paused; or every job that is not known to have ended."""
        trials = [
            t.id
            for t in RunState.fold(self._journal.read()).trials.values()
            if t.last_job
            and t.last_job.ended is None
            and (not only_done_with or not t.trains or t.last_job.retired)
        ]
        with ThreadPoolExecutor(_PARALLEL_STOPS) as pool:
            list(pool.map(self._put_away, trials))

    def _put_away(self, trial_id: str) -> None:
        try:
            Supervisor(trial_id, self._setup, self._platform, self._journal).put_away()
        except PlatformError as error:  # a machine that cannot be reached must not stop the rest
            if not self._searched:
                return  # it is being looked for, and the watchdog comes back to the job
            text = f"it is not known whether the job of trial {trial_id} has ended: {error}"
            self._journal.append(Event("said", data={"text": text}))


def run_facts(plan: Plan, gpus: int) -> dict[str, Any]:
    """What a reader of the journal needs to understand it without the configuration.

    gpus: those of a trial.
    """
    return {
        "version": __version__,
        "network": plan.network.name,
        "action": plan.network.action.name,
        "algorithm": plan.config.search.algorithm,
        "why": plan.algorithm().why,
        "metric": plan.objective.metric,
        "direction": plan.objective.direction,
        "at": plan.objective.at,
        "guide": guide_of(plan),
        "trials": plan.settings.trials,
        "max_epochs": plan.max_epochs,
        "max_concurrent": plan.settings.max_concurrent,
        "seed": plan.settings.seed,
        "gpus": gpus,
        "platform": plan.config.platform.kind if plan.config.platform else "local",
        "search_space": search_space(plan),
        "left_out": dict(plan.derived.left_out),
    }


def guide_of(plan: Plan) -> dict[str, str] | None:
    """What rungs decide by, where it is not the objective."""
    guide = plan.evaluation.guide if plan.evaluation else None
    return {"metric": guide.metric, "direction": guide.direction} if guide else None
