"""``tao-ray run CONFIG --action ACTION``: one job of the network, without a search."""

from __future__ import annotations

import argparse
from typing import Any

from tao_ray.cli import add_config_arguments
from tao_ray.cli.answers import add_arguments, answers


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        description="Run one job of one action (train, evaluate, inference, export, ...) where "
        "the configuration's trials would run, and show what it reports. Exits with 0 if it did "
        "what it should, with 3 if not. Weights to work on are model.checkpoint.",
    )
    add_config_arguments(parser)
    parser.add_argument("--action", help="the action; default: the configuration's")
    parser.add_argument("--logs", action="store_true", help="show the job's own output too")
    add_arguments(parser, long_runs=False)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from tao_ray.config import load_config
    from tao_ray.experiment.single_job import run_single_job

    config = load_config(args.config, args.overrides)
    done = run_single_job(
        config,
        args.action or config.model.action,
        answers(args),
        Console(highlight=False),
        logs=args.logs,
    )
    return done.exit_code
