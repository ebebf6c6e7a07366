"""``tao-ray resume RUN``: go on with a run, with the configuration it was started with."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "resume",
        description="Go on with a run that was interrupted or killed. No reported epoch is lost, "
        "and a job that still runs is attached to, not started again.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")
    parser.add_argument("--yes", action="store_true", help="do not ask anything")


def run(args: argparse.Namespace) -> int:
    from tao_ray.experiment.run import resume
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.tracking.terminal import TerminalView

    return resume(RunDir.find(args.run), None, TerminalView()).exit_code
