"""What is about to be run, in full, before it starts: for a reader who will pay for it.

The first trials and their specs are not examples: proposals are deterministic, so the run's first
proposals are these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao_ray.experiment.estimate import Estimate, estimate
from tao_ray.experiment.plan import Plan
from tao_ray.network.spec import Adjustment, Spec, build_spec
from tao_ray.platforms.base import Check, Platform
from tao_ray.search.base import Proposal
from tao_ray.trial.job import RESULTS_DIR


@dataclass(frozen=True)
class FirstTrial:
    """A trial of the first batch, as it will be run."""

    id: str
    config: Mapping[str, Any]
    spec: str
    adjustments: tuple[Adjustment, ...]


@dataclass(frozen=True)
class Review:
    """A plan in words. where: the run's directory, or None if it does not exist yet."""

    plan: Plan
    platform: Platform
    gpus: int
    first: tuple[FirstTrial, ...]
    estimate: Estimate
    warnings: tuple[Check, ...] = ()
    baseline: Mapping[str, Any] | None = None
    where: Path | None = None
    results_root: Path | None = None


def make_review(
    plan: Plan,
    platform: Platform,
    gpus: int,
    results_root: Path,
    *,
    warnings: tuple[Check, ...] = (),
    baseline: Mapping[str, Any] | None = None,
    where: Path | None = None,
) -> Review:
    """Review a plan. Launches nothing. gpus: those of a trial."""
    return Review(
        plan,
        platform,
        gpus,
        tuple(first_batch(plan, platform, gpus)),
        estimate(plan, platform, results_root, baseline),
        warnings,
        baseline,
        where,
        results_root,
    )


def first_batch(plan: Plan, platform: Platform, gpus: int) -> Iterator[FirstTrial]:
    """The trials that start before anything is known of any trial, with their specs."""
    algorithm, setup = plan.algorithm(), plan.setup(gpus)
    for number in range(min(plan.settings.max_concurrent, plan.settings.trials)):
        proposal = algorithm.proposer.ask(number)
        if not isinstance(proposal, Proposal):
            return
        trial_id = f"{number:04d}"
        algorithm.proposer.started(trial_id, proposal)
        algorithm.rule.add(trial_id, proposal.info)
        spec: Spec = build_spec(
            plan.network,
            proposal.config,
            results_dir=f"{platform.workspace(trial_id)}/{RESULTS_DIR}",
            num_epochs=plan.epochs,
            milestones=setup.milestones,
            gpus=gpus,
            checkpoint_interval=setup.checkpoint_interval,
            train_sample_count=setup.train_sample_count,
        )
        text = spec.render(plan.network.config_format)
        yield FirstTrial(trial_id, proposal.config, text, spec.adjustments)
