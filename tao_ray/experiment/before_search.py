"""From a plan to a run that may start: baseline, review, consent. Needs no Ray.

What was done already, by a driver that was killed, is not done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from tao_ray.config import BudgetConfig
from tao_ray.errors import TaoRayError
from tao_ray.experiment.budget import over_cap
from tao_ray.experiment.consent import Answers, consent, too_long
from tao_ray.experiment.control import EXIT_INTERRUPTED
from tao_ray.experiment.evaluation import BASELINE, Evaluator, JobStopped, baseline_comes_first
from tao_ray.experiment.machines import machines
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.review import make_review
from tao_ray.experiment.review_terminal import show_review
from tao_ray.experiment.review_text import markdown, summary
from tao_ray.experiment.run_dir import RunDir
from tao_ray.files import write_text
from tao_ray.journal import Event, Journal, read_events
from tao_ray.platforms.base import Check, HasPrices, Platform
from tao_ray.platforms.ledger import Ledger
from tao_ray.trial.state import RunState

_WRITER_WAIT_S = 5.0
_LOOK_EVERY_S = 2.0


class Stopped(TaoRayError):
    """The user has asked the run to stop before its search began."""

    exit_code = EXIT_INTERRUPTED


class CapReached(TaoRayError):
    """The baseline would have cost more than it may."""

    exit_code = 3


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
            what = _priced_baseline(plan, platform)
            review = make_review(plan, platform, gpus, run_dir.root, warnings=tuple(warnings))
            for line in [*summary(review), f"first {what}"]:
                console.print(line, markup=False, soft_wrap=True)
            consent(platform, answers, [], what, afar)
            afar = []  # agreed to
        # A machine is not left waiting for a user who reads.
        keep = answers.yes or answers.ask is None
        _evaluate_baseline(plan, run_dir, platform, gpus, console, keep)
        state = RunState.fold(_events(run_dir))
    try:
        _review_and_consent(plan, run_dir, platform, gpus, answers, console, warnings, afar, state)
    except BaseException:
        give_back(run_dir, platform, console)
        raise


def give_back(run_dir: RunDir, platform: Platform, console: Console) -> None:
    """Delete the machines that were left for a search which does not come about.

    Raises JournalLocked if another process runs the experiment: then it has them.
    """
    if RunState.fold(_events(run_dir)).ledger.existing():
        with (
            closing(Journal(run_dir.journal, wait_s=_WRITER_WAIT_S)) as journal,
            machines(platform, journal, _teller(console)),
        ):
            pass  # they are gone after this


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
    write_text(run_dir.review, markdown(review))
    if answers.ask is not None and not answers.yes:
        show_review(review, console)
    else:
        for line in summary(review):
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
        watch = _Watch(plan.config.budget, run_dir.stop_request, journal)
        say = _teller(console)
        evaluator = Evaluator(plan, run_dir, platform, gpus, journal, watch=watch, say=say)
        try:
            with machines(platform, journal, say, keep=keep):
                evaluator.before_search()
        except JobStopped:
            if watch.over:
                raise CapReached(
                    f"the baseline was stopped: {watch.over}",
                    where=str(run_dir.path),
                    remedy="go on with: tao-ray tune CONFIG --resume --set budget.baseline_usd=...",
                ) from None
            raise Stopped(
                "stopped on request", remedy=f"go on with: tao-ray resume {run_dir.path}"
            ) from None


def _teller(console: Console) -> Callable[[str], None]:
    """Says a line, however long, as one line."""
    return partial(console.print, markup=False, soft_wrap=True)


def _priced_baseline(plan: Plan, platform: HasPrices) -> str:
    """What the baseline is and may cost."""
    price, cap = platform.price_per_hour(1), _cap(plan.config.budget)
    shown = "at a price that is not known" if price is None else f"at {price:.2f} USD/h"
    most = f", at most {cap[1]:g} USD ({cap[0]})" if cap else ", with no cap (budget.baseline_usd)"
    return f"the baseline, one job {shown}{most}, before the review"


def _cap(budget: BudgetConfig) -> tuple[str, float] | None:
    """What the baseline may cost, and which setting says so."""
    if budget.baseline_usd is not None:
        return "budget.baseline_usd", budget.baseline_usd
    return None if budget.cost_usd is None else ("budget.cost_usd", budget.cost_usd)


class _Watch:
    """Stops the baseline on request and at its cap. over: the latter, in words."""

    def __init__(self, budget: BudgetConfig, stop_request: Path, journal: Journal):
        self.over = ""
        self._cap = _cap(budget)
        self._stop_request = stop_request
        self._journal = journal
        self._looked = 0.0

    def __call__(self, event: object) -> None:
        now = time.time()
        if self._cap and now - self._looked > _LOOK_EVERY_S:
            self._looked = now
            self.over = over_cap(*self._cap, Ledger.fold(self._journal.read()), now)
        if self.over or self._stop_request.exists():
            raise JobStopped


def _events(run_dir: RunDir) -> list[Event]:
    return read_events(run_dir.journal) if run_dir.journal.is_file() else []
