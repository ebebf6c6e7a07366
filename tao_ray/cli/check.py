"""``tao-ray check CONFIG``: everything that can be validated without running anything."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tao_ray.cli import add_config_arguments
from tao_ray.config import load_config

if TYPE_CHECKING:
    from tao_ray.experiment.plan import Plan


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "check",
        description="Validate a configuration without running it. Exits with 2 and every problem "
        "found if it is not valid.",
    )
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    config = load_config(args.config, args.overrides)
    from tao_ray.experiment.plan import make_plan  # after the errors that need no heavy import

    plan = make_plan(config)
    print(f"{args.config} is valid")
    print(_summary(plan))
    return 0


def _summary(plan: Plan) -> str:
    """What the configuration comes to, for a reader who wants to see it before running it."""
    objective, search = plan.objective, plan.config.search
    epochs = "" if plan.single_shot else f" of up to {plan.max_epochs} epochs"
    lines = [
        f"network    {plan.network.name}, {plan.network.action.name}",
        f"objective  {objective.direction} {objective.metric} ({objective.at} epoch)",
        f"search     {search.algorithm}, {search.trials} trials{epochs}",
    ]
    lines += [f"  {name}: {origin}" for name, origin in plan.derived.origins.items()]
    lines += [f"  left out: {name}: {why}" for name, why in plan.derived.left_out.items()]
    lines += [f"warning: {warning}" for warning in plan.derived.warnings]
    return "\n".join(lines)
