"""A whole run: from the configuration to the result, new or resumed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import yaml
from rich.console import Console

from tao_ray._version import __version__
from tao_ray.config import config_differences, load_config
from tao_ray.errors import TaoRayError
from tao_ray.experiment.before_search import before_search, begun
from tao_ray.experiment.budget import Budget
from tao_ray.experiment.cluster import cluster, prepare_environment
from tao_ray.experiment.collect import Collector
from tao_ray.experiment.conductor import Conductor, Limits
from tao_ray.experiment.consent import Answers, terminal_ask
from tao_ray.experiment.control import Control
from tao_ray.experiment.evaluation import Evaluator, JobStopped
from tao_ray.experiment.finished import finished
from tao_ray.experiment.keeping import Keeper
from tao_ray.experiment.machines import Demand, machines
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.preflight import Preflight, preflight, require
from tao_ray.experiment.publish import publish
from tao_ray.experiment.quiet import quiet
from tao_ray.experiment.result import Result, run_status, search_space, write_result
from tao_ray.experiment.retention import Retention
from tao_ray.experiment.run_dir import RunDir, results_root
from tao_ray.experiment.staging import STAGED_DATA, stage_data
from tao_ray.experiment.trial_evaluations import TrialEvaluations
from tao_ray.experiment.warm_start import keep_warm_start
from tao_ray.experiment.watchdog import Watchdog
from tao_ray.files import write_text
from tao_ray.journal import Event, JournalLocked, is_being_written
from tao_ray.platforms import PlatformError, open_platform
from tao_ray.report import report_line
from tao_ray.tracking.opening import check_tracking, open_trackers
from tao_ray.tracking.tracker import RunInfo, Trackers
from tao_ray.trial.state import RunState
from tao_ray.trial.supervisor import Supervisor

if TYPE_CHECKING:
    from tao_ray.config import RunConfig

_WRITER_WAIT_S = 20.0
_VIEW_EVERY_S = 0.25
_PARALLEL_STOPS = 8


class View(Protocol):
    """What a user sees of a run."""

    def open(self, terminal: TextIO, plan: Plan, run_dir: RunDir) -> None:
        """The run is about to start."""

    def update(self, state: RunState, now: float) -> None:
        """Show the state; called a few times a second."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def close(self, state: RunState, result: Result | None) -> None:
        """The run has ended, or failed if there is no result."""


def start(config: RunConfig, view: View, answers: Answers | None = None) -> Result:
    """Run a search in a fresh run directory: preflight, baseline, review, search, evaluation.

    answers: what the user has said beforehand; by default nothing, and a terminal is asked.
    Raises TaoRayError.
    """
    console = Console(highlight=False)
    found = preflight(config)
    require(found, console)
    run_dir = RunDir.create(results_root(config.results), config.name)
    write_text(run_dir.experiment, yaml.safe_dump(config.dump(), sort_keys=False))
    if past := require(found, console).settings.warm_start:
        keep_warm_start(run_dir.warm_start, past)
    return _begin(found, run_dir, view, answers, console)


def resume(
    run_dir: RunDir, config: RunConfig | None, view: View, answers: Answers | None = None
) -> Result:
    """Go on with a run; one that is finished is only shown.

    Raises TaoRayError, also when `config` is not the run's own.
    """
    saved = load_config(run_dir.experiment)
    if config is not None:
        # A budget may be raised: it bounds the search, and changes nothing in it.
        saved = saved.model_copy(update={"budget": config.budget})
        differences = config_differences(saved.dump(), config.dump())
        if differences:
            listed = "\n".join(f"    {line}" for line in differences)
            raise TaoRayError(
                f"the configuration is not the one this run was started with:\n{listed}",
                where=str(run_dir.path),
                remedy="undo the changes, or start a new run without --resume",
            )
    if (ended := finished(run_dir, saved)) is not None:
        view.say(f"{run_dir.id} is finished, nothing is left to do")
        view.close(RunState(), ended)
        view.say(f"report: {run_dir.report}")
        return ended
    if config is not None:
        write_text(run_dir.experiment, yaml.safe_dump(saved.dump(), sort_keys=False))
    if run_dir.warm_start.exists():  # what was learned from then, whatever became of those runs
        search = saved.search.model_copy(update={"warm_start": [str(run_dir.warm_start)]})
        saved = saved.model_copy(update={"search": search})
    before = begun(run_dir)
    found = preflight(saved, before.counted_samples, count=not before.agreed)
    return _begin(found, run_dir, view, answers, Console(highlight=False))


def _begin(
    found: Preflight, run_dir: RunDir, view: View, answers: Answers | None, console: Console
) -> Result:
    """What comes before the search, then the search."""
    plan = require(found, console)
    platform, gpus = open_platform(plan.config.platform, run_dir.jobs, plan.settings.max_concurrent)
    answers = answers or Answers(ask=terminal_ask())
    plan, unstaged = stage_data(
        plan,
        platform,
        run_dir.root / STAGED_DATA,
        run_dir.evaluation("data_staging"),
        lambda text: console.print(text, markup=False, soft_wrap=True),
    )
    warnings = (*found.warnings, *unstaged)
    before_search(plan, run_dir, platform, gpus, answers, console, warnings, unstaged)
    platform.close()
    return _drive(plan, run_dir, view)


def _drive(plan: Plan, run_dir: RunDir, view: View) -> Result:
    limits = Limits(
        max_epochs=plan.max_epochs,
        max_concurrent=plan.settings.max_concurrent,
        max_retries=plan.config.failures.max_retries,
        max_failures_in_a_row=plan.config.failures.max_failures_in_a_row,
        target=plan.config.search.stop.target,
        patience_trials=plan.config.search.stop.patience_trials,
    )
    prepare_environment(limits.max_concurrent)
    with ExitStack() as stack:
        terminal = stack.enter_context(quiet(run_dir.driver_log))
        view.open(terminal, plan, run_dir)
        state = RunState()
        result = None
        trackers = Trackers()
        try:
            check_tracking(plan.config.tracking)
            for line in stack.enter_context(cluster(plan.config.ray, limits.max_concurrent)):
                view.say(line)
            journal = _open_journal(run_dir)
            info = RunInfo(
                run_dir.id,
                run_dir.path,
                plan.objective,
                plan.settings.trials,
                limits.max_concurrent,
            )
            trackers = open_trackers(plan.config.tracking, info, view.say)
            conductor = Conductor(
                plan.algorithm(), plan.objective, journal, limits, plan.evaluation
            )
            state = conductor.state
            conductor.replay(journal.read())
            search = _Search(plan, run_dir, view, conductor, journal, trackers)
            result = search.run()
        finally:
            trackers.close(state, result)
            view.close(state, result)
        view.say(report_line(run_dir))
        if stored := search.publish(result):
            view.say(stored)
        return result


def _open_journal(run_dir: RunDir) -> Any:
    """Start the process that writes the journal, on this host."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from tao_ray.trial.trainable import JournalActor, RemoteJournal

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = JournalActor.options(scheduling_strategy=here).remote(  # type: ignore[attr-defined]
        str(run_dir.journal), _WRITER_WAIT_S
    )
    journal = RemoteJournal(actor)
    try:
        journal.read(after=2**62)
    except ray.exceptions.RayActorError:
        if is_being_written(run_dir.journal):
            raise JournalLocked(
                "another process is running this experiment",
                where=str(run_dir.path),
                remedy="wait for it, or end it with `tao-ray stop`",
            ) from None
        raise
    return journal


class _Search:
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
            conductor.mark("resumed" if conductor.state.trials else "started", **self._facts())
            try:
                self._put_away_jobs(only_done_with=True)
                self._search()
                if not self._interrupted():
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
        interrupted = resumable and not (halt and halt.budget)
        status = run_status(conductor.state, interrupted, reason)
        conductor.mark("ended", status=status, reason=reason)
        return write_result(
            self._plan, self._run_dir, conductor.state, self._platform, status, reason, resumable
        )

    def publish(self, result: Result) -> str | None:
        """See `tao_ray.experiment.publish`. After `run`, and after the report was written."""
        return publish(self._plan, self._run_dir, result, self._platform, self._journal)

    def _trial_evaluations(self) -> TrialEvaluations:
        evaluator = Evaluator(
            self._plan,
            self._run_dir,
            self._platform,
            self._gpus,
            self._journal,
            watch=self._until_closing,
        )
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
        evaluator = Evaluator(
            self._plan,
            self._run_dir,
            self._platform,
            self._gpus,
            self._journal,
            watch=self._watch,
            say=self._view.say,
        )
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
        if self._interrupted():
            raise JobStopped

    def _until_closing(self, event: object) -> None:
        if self._closing or self._interrupted():
            raise JobStopped

    def _interrupted(self) -> bool:
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

    def _facts(self) -> dict[str, Any]:
        """What a reader of the journal needs to understand it without the configuration."""
        plan = self._plan
        return {
            "version": __version__,
            "network": plan.network.name,
            "action": plan.network.action.name,
            "algorithm": plan.config.search.algorithm,
            "metric": plan.objective.metric,
            "direction": plan.objective.direction,
            "at": plan.objective.at,
            "guide": _guide(plan),
            "trials": plan.settings.trials,
            "max_epochs": plan.max_epochs,
            "max_concurrent": plan.settings.max_concurrent,
            "seed": plan.settings.seed,
            "platform": plan.config.platform.kind if plan.config.platform else "local",
            "search_space": search_space(plan),
            "left_out": dict(plan.derived.left_out),
        }


def _guide(plan: Plan) -> dict[str, str] | None:
    """What rungs decide by, where it is not the objective."""
    guide = plan.evaluation.guide if plan.evaluation else None
    return {"metric": guide.metric, "direction": guide.direction} if guide else None
