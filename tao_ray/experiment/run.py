"""A whole run: from the configuration to the result, new or resumed."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from tao_ray.config import config_differences, load_config
from tao_ray.errors import TaoRayError
from tao_ray.experiment.before_search import before_search, begun, give_back
from tao_ray.experiment.cluster import cluster, prepare_environment
from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.consent import Answers, terminal_ask
from tao_ray.experiment.finished import finished
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.preflight import Preflight, preflight, require
from tao_ray.experiment.quiet import quiet
from tao_ray.experiment.result import Result
from tao_ray.experiment.run_dir import RunDir, results_root
from tao_ray.experiment.search_loop import SearchLoop
from tao_ray.experiment.staging import STAGED_DATA, stage_data
from tao_ray.experiment.stop_rules import Limits
from tao_ray.experiment.view import View
from tao_ray.experiment.warm_start import keep_warm_start
from tao_ray.files import write_text
from tao_ray.journal import JournalLocked, is_being_written
from tao_ray.platforms import open_platform
from tao_ray.report import report_line
from tao_ray.tracking.opening import check_tracking, open_trackers
from tao_ray.tracking.tracker import RunInfo, Trackers
from tao_ray.trial.state import RunState

if TYPE_CHECKING:
    from tao_ray.config import RunConfig

_WRITER_WAIT_S = 20.0


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
    found = preflight(saved, before.counted_samples, count=not before.agreed, root=run_dir.root)
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
    fresh = not begun(run_dir).agreed
    before_search(plan, run_dir, platform, gpus, answers, console, warnings, unstaged)
    platform.close()
    try:
        return _drive(plan, run_dir, view)
    except Exception:
        if fresh:  # else its trials may be on them: whoever resumes it, or the reaper, comes later
            with suppress(JournalLocked):
                give_back(run_dir, platform, console)
        raise


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
            search = SearchLoop(plan, run_dir, view, conductor, journal, trackers)
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
