"""From a plan to a run that may start: baseline, review, consent. Needs no Ray.

What was done already, by a driver that was killed, is not done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tao_ray.errors import TaoRayError
from tao_ray.experiment.consent import Answers, consent, too_long
from tao_ray.experiment.control import EXIT_INTERRUPTED
from tao_ray.experiment.evaluation import BASELINE, Evaluator, JobStopped, baseline_comes_first
from tao_ray.experiment.machines import machines
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.review import make_review
from tao_ray.experiment.run_dir import RunDir
from tao_ray.files import write_text
from tao_ray.journal import Event, Journal, read_events
from tao_ray.platforms.base import Check, HasPrices, Platform
from tao_ray.trial.state import RunState

_WRITER_WAIT_S = 5.0


class Stopped(TaoRayError):
    """The user has asked the run to stop before its search began."""

    exit_code = EXIT_INTERRUPTED


@dataclass(frozen=True)
class Begun:
    """What an earlier driver of a run has settled. agreed: its search may start or has started.

    counted_samples: the size of the training set its plan was made with, if it was counted.
    """

    agreed: bool = False
    counted_samples: int | None = None


def begun(run_dir: RunDir) -> Begun:
    """How far a run has come before its search."""
    events = _events(run_dir)
    for event in events:
        if event.kind == "consent":
            return Begun(True, event.data["counted_samples"])
    return Begun(agreed=any(event.kind == "proposed" for event in events))


def before_search(
    plan: Plan,
    run_dir: RunDir,
    platform: Platform,
    gpus: int,
    answers: Answers,
    console: Console,
    warnings: Sequence[Check] = (),
    unstaged: Sequence[Check] = (),
) -> None:
    """Do what comes before the search. Returns if it may start.

    gpus: those of a trial. unstaged: data that could not be staged, which is in the warnings too.
    Raises NoConsent, TaoRayError if the baseline failed, Stopped.
    """
    if begun(run_dir).agreed:
        return
    state = RunState.fold(_events(run_dir))
    run_dir.stop_request.unlink(missing_ok=True)
    afar = [check.detail for check in unstaged]
    if baseline_comes_first(plan):
        if isinstance(platform, HasPrices) and BASELINE not in state.evaluations:
            price = platform.price_per_hour(1)
            shown = "at a price that is not known" if price is None else f"at {price:.2f} USD/h"
            what = f"the baseline, one job {shown}, before the review"
            consent(platform, answers, [], what, afar)
            afar = []  # agreed to
        # A machine is not left waiting for a user who reads.
        keep = answers.yes or answers.ask is None
        _evaluate_baseline(plan, run_dir, platform, gpus, console, keep)
        state = RunState.fold(_events(run_dir))
    try:
        _review_and_consent(plan, run_dir, platform, gpus, answers, console, warnings, afar, state)
    except BaseException:
        if state.ledger.existing():
            with (
                closing(Journal(run_dir.journal, wait_s=_WRITER_WAIT_S)) as journal,
                machines(platform, journal, console.print),
            ):
                pass  # the baseline's are gone after this
        raise


def _review_and_consent(
    plan: Plan,
    run_dir: RunDir,
    platform: Platform,
    gpus: int,
    answers: Answers,
    console: Console,
    warnings: Sequence[Check],
    afar: Sequence[str],
    state: RunState,
) -> None:
    review = make_review(
        plan,
        platform,
        gpus,
        run_dir.root,
        warnings=tuple(warnings),
        baseline=state.evaluations.get(BASELINE),
        where=run_dir.path,
    )
    write_text(run_dir.review, review.markdown())
    asked = answers.ask is not None and not answers.yes
    for line in [review.markdown()] if asked else review.summary():
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"review: {run_dir.review}", markup=False, soft_wrap=True)
    by = consent(platform, answers, too_long(plan, review.estimate), "the search", afar)
    with closing(Journal(run_dir.journal, wait_s=_WRITER_WAIT_S)) as journal:
        counted = None if plan.config.data.train_sample_count else plan.train_sample_count
        journal.append(Event("consent", data={"by": by, "counted_samples": counted}))
        Evaluator(plan, run_dir, platform, gpus, journal).before_search()


def _evaluate_baseline(
    plan: Plan, run_dir: RunDir, platform: Platform, gpus: int, console: Console, keep: bool
) -> None:
    """keep: its machines are left for the search."""
    with closing(Journal(run_dir.journal, wait_s=_WRITER_WAIT_S)) as journal:
        evaluator = Evaluator(
            plan,
            run_dir,
            platform,
            gpus,
            journal,
            watch=_until(run_dir.stop_request),
            say=lambda text: console.print(text, markup=False, soft_wrap=True),
        )
        try:
            with machines(platform, journal, console.print, keep=keep):
                evaluator.before_search()
        except JobStopped:
            raise Stopped(
                "stopped on request", remedy=f"go on with: tao-ray resume {run_dir.path}"
            ) from None


def _until(stop_request: Path) -> Callable[[object], None]:
    def watch(event: object) -> None:
        if stop_request.exists():
            raise JobStopped

    return watch


def _events(run_dir: RunDir) -> list[Event]:
    return read_events(run_dir.journal) if run_dir.journal.is_file() else []
