"""``tao-ray stop RUN``: what Ctrl-C in the run's own terminal would do."""

from __future__ import annotations

import argparse
import time
from typing import Any

from tao_ray.errors import TaoRayError

_POLL_S = 0.2


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "stop",
        description="Ask a running search to stop in order: its jobs end, the run stays "
        "resumable. Waits until it has stopped.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")
    parser.add_argument("--no-wait", action="store_true", help="ask and return at once")


def run(args: argparse.Namespace) -> int:
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.journal import is_being_written

    run_dir = RunDir.find(args.run)
    if not is_being_written(run_dir.journal):
        raise TaoRayError(
            f"{run_dir.id} is not running",
            where=str(run_dir.path),
            remedy="`tao-ray status` shows what it has done",
        )
    run_dir.stop_request.touch()
    while not args.no_wait and is_being_written(run_dir.journal):
        time.sleep(_POLL_S)
    print(f"{run_dir.id} {'has been asked to stop' if args.no_wait else 'has stopped'}")
    if not args.no_wait:
        print(f"go on with: tao-ray resume {run_dir.path}")
    return 0
