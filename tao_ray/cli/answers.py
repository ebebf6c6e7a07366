"""The arguments with which a user agrees to a run beforehand."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tao_ray.experiment.consent import Answers


def add_arguments(parser: argparse.ArgumentParser, *, long_runs: bool = True) -> None:
    """``--yes``, ``--accept-long`` and ``--accept-unstaged``."""
    parser.add_argument(
        "--yes", action="store_true", help="do not ask: start, also where it costs money"
    )
    if long_runs:
        parser.add_argument(
            "--accept-long",
            action="store_true",
            help="start although the estimate exceeds `budget` or review.long_run_hours",
        )
        parser.add_argument(
            "--accept-unstaged",
            action="store_true",
            help="start although every trial reads data from afar that could not be staged",
        )


def answers(args: argparse.Namespace) -> Answers:
    """What the arguments say, and the terminal for the rest."""
    from tao_ray.experiment.consent import Answers, terminal_ask

    return Answers(
        args.yes,
        getattr(args, "accept_long", False),
        terminal_ask(),
        getattr(args, "accept_unstaged", False),
    )
