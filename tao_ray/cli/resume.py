"""``tao-ray resume RUN``: go on with a run, with the configuration it was started with."""

from __future__ import annotations

import argparse
from typing import Any

from tao_ray.cli import answers


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "resume",
        description="Go on with a run that was interrupted or killed. No reported epoch is lost, "
        "and a job that still runs is attached to, not started again.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")
    answers.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from tao_ray.experiment.run import resume
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.tracking.terminal import TerminalView

    run_dir = RunDir.find(args.run)
    return resume(run_dir, None, TerminalView(), answers.answers(args)).exit_code
