"""Who has agreed to a run: asked on a terminal, or said beforehand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tao_ray.errors import TaoRayError
from tao_ray.experiment.estimate import Estimate
from tao_ray.experiment.plan import Plan
from tao_ray.platforms.base import HasPrices, Platform

Ask = Callable[[str], bool]

KNOBS = (
    "search.trials, search.max_epochs, the amount of data, the validation interval "
    "(model.overrides.train.validation_interval), or fewer search.parameters with fewer trials"
)


@dataclass(frozen=True)
class Answers:
    """What was said beforehand. ask: how to ask for the rest; None if nobody can be asked."""

    yes: bool = False
    accept_long: bool = False
    ask: Ask | None = None
    accept_unstaged: bool = False


class NoConsent(TaoRayError):
    """The run was not agreed to; nothing was started."""


def terminal_ask() -> Ask | None:
    """Asks on this process's terminal; None if it has none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None

    def ask(question: str) -> bool:
        try:
            return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    return ask


def too_long(plan: Plan, estimate: Estimate) -> list[str]:
    """What the estimate exceeds, one text each."""
    config = plan.config
    limits = (
        (estimate.hours, config.budget.hours, "budget.hours", "h"),
        (estimate.hours, config.review.long_run_hours, "review.long_run_hours", "h"),
        (estimate.usd, config.budget.cost_usd, "budget.cost_usd", "USD"),
    )
    return [
        f"the estimate, {value:.3g} {unit}, exceeds {name}, which is {limit:g}"
        for value, limit, name, unit in limits
        if value is not None and limit is not None and value > limit
    ]


def consent(
    platform: Platform,
    answers: Answers,
    exceeded: Sequence[str],
    what: str,
    unstaged: Sequence[str] = (),
) -> str:
    """Have the run agreed to. Returns by whom: "--yes", "terminal" or "free platform".

    exceeded: see `too_long`. what: what is about to start, for the question. unstaged: data that
    every trial reads from afar; it needs an answer of its own where that costs money.
    Raises NoConsent.
    """
    if unstaged and isinstance(platform, HasPrices) and not answers.accept_unstaged:
        text = "; ".join(unstaged)
        if answers.ask is None or answers.yes:
            raise NoConsent(text, remedy="say --accept-unstaged, or put the data on the machines")
        if not answers.ask(f"{text}. Go on all the same?"):
            raise NoConsent("not started", remedy="put the data on the machines")
    if exceeded and not answers.accept_long:
        text = "; ".join(exceeded)
        if answers.ask is None or answers.yes:
            raise NoConsent(text, remedy=f"say --accept-long, or lower {KNOBS}")
        if not answers.ask(f"{text}. It could be shortened by {KNOBS}. Go on all the same?"):
            raise NoConsent("not started", remedy=f"lower {KNOBS}")
    if answers.yes:
        return "--yes"
    if answers.ask is not None:
        if answers.ask(f"Start {what}?"):
            return "terminal"
        raise NoConsent("not started: the answer was no")
    if isinstance(platform, HasPrices):
        raise NoConsent(
            "this platform costs money, and there is no terminal to ask on",
            remedy="look at `tao-ray review CONFIG`, then say --yes",
        )
    return "free platform"
