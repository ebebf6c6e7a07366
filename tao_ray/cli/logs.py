"""``tao-ray logs RUN TRIAL``: the log of a trial's jobs, wherever they run."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tao_ray.errors import TaoRayError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "logs", description="Print what the jobs of a trial wrote to stdout and stderr."
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")
    parser.add_argument("trial", metavar="TRIAL", help="a trial's id, such as 0003 or 3")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")


def run(args: argparse.Namespace) -> int:
    from tao_ray.config import load_config
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.journal import read_events
    from tao_ray.platforms import open_platform
    from tao_ray.trial.state import RunState

    run_dir = RunDir.find(args.run)
    config = load_config(run_dir.experiment)
    trials = RunState.fold(read_events(run_dir.journal)).trials
    trial = trials.get(args.trial.zfill(4))
    if trial is None:
        raise TaoRayError(
            f"no trial {args.trial!r} in {run_dir.id}",
            remedy=f"trials: {', '.join(trials) or 'none yet'}",
        )
    platform, _ = open_platform(config.platform, run_dir.jobs, config.search.max_concurrent)
    for job in trial.jobs:
        handle = platform.attach(job.id)
        if handle is not None:
            _print(handle, args.follow and job is trial.jobs[-1])
    return 0


def _print(handle: Any, follow: bool) -> None:
    from tao_ray.platforms.base import Heartbeat, LogLine, Offset

    for event in handle.events(Offset()):
        if isinstance(event, LogLine):
            sys.stdout.buffer.write(event.data + b"\n")
        elif isinstance(event, Heartbeat):
            sys.stdout.flush()
            if not follow:
                return
    sys.stdout.flush()
