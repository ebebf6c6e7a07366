"""``tao-ray report RUN``: write a run's report, at any time of its life."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "report",
        description="Write report.html and report.md into the run's directory, from its journal "
        "and result: also while it goes on, and after it was interrupted.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")


def run(args: argparse.Namespace) -> int:
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.report import write_report

    print(write_report(RunDir.find(args.run)))
    return 0
