"""``tao-ray check CONFIG``: everything that can be validated without running anything."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tao_ray.cli import add_config_arguments
from tao_ray.config import load_config

if TYPE_CHECKING:
    from tao_ray.config import RunConfig
    from tao_ray.experiment.plan import Plan


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "check",
        description="Validate a configuration without running it. Exits with 2 and every problem "
        "found if it is not valid.",
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--preflight",
        action="store_true",
        help="check also what is needed to run: platform, image, data, credentials, disk, "
        "evaluation",
    )
    parser.add_argument(
        "--install-missing",
        action="store_true",
        help="with --preflight: run the remedies that are commands, after a question (or --yes), "
        "and check again",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before running remedies")


def run(args: argparse.Namespace) -> int:
    config = load_config(args.config, args.overrides)
    if args.preflight or args.install_missing:
        return _preflight(config, args)
    from tao_ray.experiment.plan import make_plan  # after the errors that need no heavy import

    plan = make_plan(config)
    print(f"{args.config} is valid")
    print(_summary(plan))
    return 0


def _preflight(config: RunConfig, args: argparse.Namespace) -> int:
    from rich.console import Console

    from tao_ray.experiment.consent import terminal_ask
    from tao_ray.experiment.preflight import install_missing, preflight, show

    console = Console(highlight=False)
    found = preflight(config)
    show(found.checks, console)
    if found.problems and args.install_missing:
        ask = (lambda question: True) if args.yes else terminal_ask() or (lambda question: False)
        if install_missing(found, console, ask):
            found = preflight(config)
            show(found.checks, console)
    if found.problems:
        console.print(f"{len(found.problems)} of {len(found.checks)} checks failed")
        return 2
    console.print(f"{len(found.checks)} checks: a run may start")
    return 0


def _summary(plan: Plan) -> str:
    """What the configuration comes to, for a reader who wants to see it before running it."""
    from tao_ray.experiment.result import search_space
    from tao_ray.experiment.review_text import range_text

    objective, search = plan.objective, plan.config.search
    epochs = "" if plan.single_shot else f" of up to {plan.max_epochs} epochs"
    lines = [
        f"network    {plan.network.name}, {plan.network.action.name}",
        f"objective  {objective.direction} {objective.metric} ({objective.at} epoch)",
        f"search     {search.algorithm}, {search.trials} trials{epochs}",
    ]
    lines += [f"  {p['name']}: {range_text(p)} ({p['origin']})" for p in search_space(plan)]
    lines += [f"  left out: {name}: {why}" for name, why in plan.derived.left_out.items()]
    lines += [f"warning: {warning}" for warning in plan.derived.warnings]
    return "\n".join(lines)
