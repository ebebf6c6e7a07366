"""What a configuration comes to: the network, its search space, the algorithm, the bounds.

A plan is made without side effects, so `tao-ray check` is this and nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.config.names import PLATFORMS
from tao_ray.errors import TaoRayError
from tao_ray.experiment.measure import evaluated_objective
from tao_ray.experiment.suitability import check_guided, remarks
from tao_ray.experiment.warm_start import read_warm_start
from tao_ray.network.ranges import derive_space
from tao_ray.network.resolve import resolve_network
from tao_ray.network.spec import build_spec, get_path
from tao_ray.search.base import Algorithm, SearchSettings
from tao_ray.search.patience import Patience
from tao_ray.search.registry import build
from tao_ray.trial.setup import TrialSetup
from tao_ray.trial.sources import Hook, LogPattern, MetricFile, Source
from tao_ray.trial.state import Evaluation, Objective

if TYPE_CHECKING:
    from tao_ray.config import RunConfig, SearchConfig
    from tao_ray.network.network import Network
    from tao_ray.network.ranges import DerivedSpace
    from tao_ray.space import SearchSpace


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first job. Immutable, no machine involved.

    max_epochs: epochs of a full training; 1 for an action without epochs (`single_shot`).
    train_sample_count: what the configuration says, else what preflight has counted, if it could.
    evaluation: how trials are judged if not by what the training reports (`source: evaluate`).
    """

    config: RunConfig
    network: Network
    derived: DerivedSpace
    objective: Objective
    settings: SearchSettings
    max_epochs: int
    single_shot: bool
    train_sample_count: int | None = None
    evaluation: Evaluation | None = None

    @property
    def epochs(self) -> int | None:
        """Epochs of a full training; None for an action without epochs."""
        return None if self.single_shot else self.max_epochs

    def algorithm(self) -> Algorithm:
        """A fresh instance of the algorithm, to be fed this run's journal."""
        search = self.config.search
        built = build(search.algorithm, self.derived.space, self.settings, search.options)
        patience = search.stop.patience_epochs
        return replace(built, rule=Patience(built.rule, patience)) if patience else built

    def setup(self, gpus: int) -> TrialSetup:
        """What every trial of the run shares."""
        failures = self.config.failures
        hours = failures.job_timeout_hours
        milestones = tuple(self.algorithm().rule.milestones())
        guide = self.evaluation.guide if self.evaluation else None
        return TrialSetup(
            network=self.network,
            metric=(guide or self.objective).metric,
            metric_required=self.evaluation is None or bool(milestones),
            max_epochs=self.max_epochs,
            milestones=milestones,
            single_shot=self.single_shot,
            source=_source(self.config, self.network, self.objective),
            gpus=gpus,
            job_timeout_s=hours * 3600 if hours else None,
            train_sample_count=self.train_sample_count,
            checkpoint_interval=self.config.checkpoint.interval,
        )


def make_plan(config: RunConfig, counted_samples: int | None = None) -> Plan:
    """Resolve a configuration. Raises TaoRayError for whatever cannot be done as asked.

    counted_samples: training samples that were counted; what the configuration says has precedence.
    """
    samples = config.data.train_sample_count or counted_samples
    network = resolve_network(config.model, config.data, config.objective, config.directory)
    _check_platform(config, network)
    objective, evaluation = _objective(config, network)
    search = config.search
    derived = derive_space(network, search, batch_limit=samples)
    epochs = _full_epochs(network, search.max_epochs)
    past, notes = read_warm_start(search.warm_start, network.name, objective, derived.space)
    derived = replace(derived, warnings=(*derived.warnings, *notes))
    settings = SearchSettings(
        trials=search.trials,
        max_epochs=epochs,
        max_concurrent=search.max_concurrent,
        seed=search.seed,
        points=_first_points(search, derived.space),
        warm_start=past,
        objectives=1 + len(objective.others),
    )
    plan = Plan(
        config,
        network,
        derived,
        objective,
        settings,
        epochs or 1,
        epochs is None,
        samples,
        evaluation,
    )
    setup = plan.setup(gpus=0)  # builds the algorithm: its options are checked here
    if plan.evaluation is not None:
        check_guided(search.algorithm, plan.evaluation, network, setup.milestones)
    _trial_zero_spec(plan, setup)
    notes = remarks(config, network, derived.space)
    return replace(plan, derived=replace(derived, warnings=(*derived.warnings, *notes)))


def _first_points(search: SearchConfig, space: SearchSpace) -> tuple[dict[str, Any], ...]:
    """The configurations to try first. Raises TaoRayError for a point outside the space."""
    points, problems = [space.defaults()] if search.start_with_defaults else [], []
    for number, given in enumerate(search.points):
        point = {**space.defaults(), **given}
        found = space.violations(point)
        problems += [f"\n    search.points[{number}]: {problem}" for problem in found]
        if point not in points:
            points.append(point)
    if problems:
        raise TaoRayError(
            f"points that are not in the search space:{''.join(problems)}",
            where="search.points",
            remedy="`tao-ray check` without them shows the parameters and their ranges",
        )
    return tuple(points)


def _full_epochs(network: Network, asked: int | None) -> int | None:
    """Epochs of a full training: as asked, else the base spec's; None without an epoch budget."""
    keys = [k for k in network.conventions.epoch_keys if k in network.known]
    if not keys:
        if asked is not None:
            raise TaoRayError(
                f"{network.action.name} of {network.name} is not counted in epochs",
                where="search.max_epochs",
                remedy="leave it out",
            )
        return None
    if asked is not None:
        return asked
    for key in keys:
        parameter = network.parameters.get(key)
        epochs = get_path(network.base_spec, key, parameter.default if parameter else None)
        if isinstance(epochs, int) and epochs > 0:
            return epochs
    raise TaoRayError(
        f"the spec does not say how many epochs a full training has ({keys[0]})",
        where="search.max_epochs",
        remedy="set it",
    )


def _objective(config: RunConfig, network: Network) -> tuple[Objective, Evaluation | None]:
    """What trials are judged by, and how, if not by what the training reports."""
    metric, at = network.objective, config.objective.at
    evaluation = None
    if config.objective.source == "evaluate":
        own = Objective(metric.name, metric.direction, at) if metric else None
        name, direction = evaluated_objective(config, network)
        evaluation = Evaluation(own)
    elif metric is None:
        raise TaoRayError(
            f"{network.name} has no known objective for {network.action.name}",
            where="objective",
            remedy="set objective.metric and objective.direction",
        )
    else:
        name, direction = metric.name, metric.direction
    others = tuple((other.metric, other.direction) for other in config.objective.others)
    return Objective(name, direction, at, others), evaluation


def _source(config: RunConfig, network: Network, objective: Objective) -> Source | None:
    """Where the objective's value is; None for status.json. Raises TaoRayError."""
    asked, metric = config.objective.source, network.objective
    if asked == "status":
        return None
    if asked is None or isinstance(asked, str):
        if metric is None or metric.source != "file" or network.metric_file is None:
            return None
        return MetricFile(network.metric_file, metric.name)
    if asked.log_regex is not None:
        return LogPattern(asked.log_regex)
    if asked.file is not None:
        return MetricFile(asked.file, objective.metric, asked.json_path)
    assert asked.python is not None
    hook = Hook(asked.python, str(config.directory))
    hook.load()
    return hook


def _check_platform(config: RunConfig, network: Network) -> None:
    if config.platform is None and network.image:
        raise TaoRayError(
            f"{network.name} runs in a container ({network.image}) and no platform was chosen",
            where="platform",
            remedy=f"set platform.kind to one of: {', '.join(PLATFORMS)}; "
            "`local` runs the network's command on this machine without the container",
        )
    block = (network.conventions.num_gpus_key or "train.").rpartition(".")[0]
    own = network.package.node_spec_key if network.package else None
    key = own or f"{block}.num_nodes"
    nodes = get_path(network.base_spec, key, None)
    if isinstance(nodes, int) and nodes > 1:
        raise TaoRayError(
            f"{key} is {nodes}: a job runs on one machine, with as many of its GPUs as "
            "platform.gpus_per_trial says",
            where="model",
            remedy=f"set it to 1: --set model.overrides.{key}=1",
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
