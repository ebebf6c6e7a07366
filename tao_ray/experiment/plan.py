"""What a configuration comes to: the network, its search space, the algorithm, the bounds.

A plan is made without side effects, so `tao-ray check` is this and nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.network.ranges import derive_space

from tao_ray.config.names import PLATFORMS
from tao_ray.errors import TaoRayError
from tao_ray.network import build_spec, resolve_network
from tao_ray.search.base import Algorithm, SearchSettings
from tao_ray.search.registry import build
from tao_ray.trial.state import Objective
from tao_ray.trial.supervisor import TrialSetup

if TYPE_CHECKING:
    from tao_ray.network.ranges import DerivedSpace

    from tao_ray.config import RunConfig
    from tao_ray.network import Network

_LOCAL: Mapping[str, Any] = {"kind": "local"}


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first job. Immutable, no machine involved.

    max_epochs: epochs of a full training; 1 for an action without epochs (`single_shot`).
    """

    config: RunConfig
    network: Network
    derived: DerivedSpace
    objective: Objective
    settings: SearchSettings
    max_epochs: int
    single_shot: bool

    def algorithm(self) -> Algorithm:
        """A fresh instance of the algorithm, to be fed this run's journal."""
        search = self.config.search
        return build(search.algorithm, self.derived.space, self.settings, search.options)

    def setup(self, gpus: int) -> TrialSetup:
        """What every trial of the run shares."""
        failures = self.config.failures
        hours = failures.job_timeout_hours
        return TrialSetup(
            network=self.network,
            metric=self.objective.metric,
            max_epochs=self.max_epochs,
            milestones=tuple(self.algorithm().rule.milestones()),
            single_shot=self.single_shot,
            gpus=gpus,
            job_timeout_s=hours * 3600 if hours else None,
            train_sample_count=self.config.data.train_sample_count,
        )


def make_plan(config: RunConfig) -> Plan:
    """Resolve a configuration. Raises TaoRayError for whatever cannot be done as asked."""
    network = resolve_network(config.model, config.data, config.objective, config.directory)
    _check_platform(config, network)
    if network.metric is None or network.direction is None:
        raise TaoRayError(
            f"{network.name} has no known objective for {network.action.name}",
            where="objective",
            remedy="set objective.metric and objective.direction",
        )
    search = config.search
    derived = derive_space(network, search)
    epochs = search.max_epochs or network.epochs
    settings = SearchSettings(
        trials=search.trials,
        max_epochs=epochs,
        max_concurrent=search.max_concurrent,
        seed=search.seed,
        points=(derived.space.defaults(),),
    )
    objective = Objective(network.metric, network.direction, config.objective.at)
    plan = Plan(config, network, derived, objective, settings, epochs or 1, epochs is None)
    setup = plan.setup(gpus=0)  # builds the algorithm: its options are checked here
    _trial_zero_spec(plan, setup)
    return plan


def _check_platform(config: RunConfig, network: Network) -> None:
    if config.platform is None and network.image:
        raise TaoRayError(
            f"{network.name} runs in a container ({network.image}) and no platform was chosen",
            where="platform",
            remedy=f"set platform.kind to one of: {', '.join(PLATFORMS)}; "
            "`local` runs the network's command on this machine without the container",
        )


def _trial_zero_spec(plan: Plan, setup: TrialSetup) -> None:
    """Build the first spec: a key without a value is better found now than by the first job."""
    build_spec(
        plan.network,
        plan.derived.space.defaults(),
        results_dir=str(Path("/results")),
        num_epochs=None if plan.single_shot else plan.max_epochs,
        milestones=setup.milestones,
        gpus=0,
        train_sample_count=setup.train_sample_count,
    )
