"""``tao-ray review CONFIG``: what a run would do, in full, without starting it."""

from __future__ import annotations

import argparse
from typing import Any

from tao_ray.cli import add_config_arguments


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "review",
        description="Check everything, then print what a run would do: data, search space with "
        "the origin of each range, the specs of the first trials, time, cost, evaluation. Starts "
        "nothing. The first trials of a run are exactly these.",
    )
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from tao_ray.config import load_config
    from tao_ray.experiment.consent import KNOBS, too_long
    from tao_ray.experiment.preflight import preflight, require
    from tao_ray.experiment.review import make_review
    from tao_ray.experiment.review_terminal import show_review
    from tao_ray.experiment.run_dir import results_root
    from tao_ray.experiment.staging import unstaged
    from tao_ray.platforms import open_platform
    from tao_ray.platforms.base import HasPrices

    config = load_config(args.config, args.overrides)
    found = preflight(config)
    console = Console(highlight=False)
    plan = require(found, console)
    root = results_root(config.results)
    jobs = root / config.name / "<time>" / "jobs"
    platform, gpus = open_platform(config.platform, jobs, plan.settings.max_concurrent)
    afar = unstaged(plan, platform)
    review = make_review(plan, platform, gpus, root, warnings=(*found.warnings, *afar))
    show_review(review, console)
    for text in too_long(plan, review.estimate):
        print(f"\n{text}: it needs --accept-long, or lower {KNOBS}")
    if afar and isinstance(platform, HasPrices):
        print("\nthe data that is not staged needs --accept-unstaged")
    platform.close()
    return 0
