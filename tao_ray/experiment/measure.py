"""By what a run's models are compared: the network's own evaluate action, if it can be run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tao_ray.errors import TaoRayError
from tao_ray.network.network import Network
from tao_ray.network.resolve import resolve_evaluation
from tao_ray.platforms.base import Check
from tao_ray.trial.sources import Hook
from tao_ray.trial.state import Objective

if TYPE_CHECKING:
    from tao_ray.config import RunConfig
    from tao_ray.experiment.plan import Plan


@dataclass(frozen=True)
class Measure:
    """How a model is evaluated: the network's evaluate action and the metric it reports.

    hook: the user's function that says the metric; None: status.json does.
    """

    network: Network
    objective: Objective
    hook: Hook | None = None

    @property
    def data(self) -> dict[str, str]:
        """Spec key -> the data it is evaluated on; empty where the network brings its own."""
        return {s.key: s.uri for s in self.network.data_sources}


@dataclass(frozen=True)
class Unmeasurable:
    """Why no model of this run can be evaluated, and what would change that."""

    reason: str
    remedy: str


def find_measure(plan: Plan) -> Measure | Unmeasurable:
    """How this run's models are evaluated.

    Raises TaoRayError if `evaluation` names a metric of unknown direction, HookError.
    """
    found = _evaluation(plan.config, plan.network)
    if isinstance(found, Unmeasurable):
        return found
    asked = plan.config.evaluation.python
    hook = Hook(asked, str(plan.config.directory), "evaluation.python") if asked else None
    if hook is not None:
        hook.load()
    return Measure(found, _objective(plan, found), hook)


def evaluated_objective(config: RunConfig, network: Network) -> tuple[str, str]:
    """Metric and direction by which evaluate jobs judge trials (`objective.source: evaluate`).

    Raises TaoRayError if the network cannot be evaluated, or no metric of it is known.
    """
    found = _evaluation(config, network)
    if isinstance(found, Unmeasurable):
        raise TaoRayError(found.reason, where="objective.source", remedy=found.remedy)
    asked = config.objective
    metric = asked.metric or config.evaluation.metric or found.metric
    known = {config.evaluation.metric: config.evaluation.direction, found.metric: found.direction}
    direction = asked.direction or known.get(metric)
    if metric is None or direction is None:
        what = (
            "no metric of its evaluate action is known"
            if metric is None
            else (f"whether {metric!r} is to be minimized or maximized is not known")
        )
        raise TaoRayError(
            what,
            where="objective",
            remedy="set objective.metric and objective.direction to what evaluate reports",
        )
    return metric, direction


def _evaluation(config: RunConfig, network: Network) -> Network | Unmeasurable:
    """The network's evaluate action, or why it cannot be run."""
    if network.package is None:
        return Unmeasurable(
            "a network without a package has no evaluate action that is known",
            "describe it by a model package",
        )
    try:
        evaluation = resolve_evaluation(network, config.model, config.data)
    except TaoRayError as error:
        return Unmeasurable(
            f"the evaluate action cannot be run: {error}", "give the data it needs under `data`"
        )
    if evaluation is None:
        return Unmeasurable(
            f"{network.package.name} has no action that evaluates what {network.action.name} makes",
            "choose a network that has one",
        )
    if not evaluation.conventions.writes_status and config.evaluation.python is None:
        return Unmeasurable(
            f"{evaluation.action.name} of {network.package.name} reports no metrics in status.json",
            "set evaluation.python to a function that finds the metric in what it writes",
        )
    return evaluation


def _objective(plan: Plan, evaluation: Network) -> Objective:
    known = {plan.objective.metric: plan.objective.direction}
    if evaluation.objective is not None:
        known[evaluation.objective.name] = evaluation.objective.direction
    asked = plan.config.evaluation
    judged = plan.objective.metric
    own = judged if plan.evaluation else evaluation.metric
    metric = asked.metric or own or judged
    direction = asked.direction or known.get(metric)
    if direction is None:
        raise TaoRayError(
            f"whether {metric!r} is to be minimized or maximized is not known",
            where="evaluation.direction",
            remedy="set it",
        )
    return Objective(metric, direction)


def objective_checks(plan: Plan) -> list[Check]:
    """Whether what is optimised can be trusted to be what is wanted.

    Both findings only warn after the user has said `objective.accept_proxy`.
    """
    accepted = plan.config.objective.accept_proxy
    metric = plan.network.objective
    remedy = "or accept it: --set objective.accept_proxy=true"
    checks = []
    if plan.evaluation is None and metric is not None and metric.proxy:
        checks.append(
            Check(
                "objective",
                False,
                f"{metric.name} of the training stands in for {metric.recommended}, which only an "
                "evaluate job reports",
                "" if accepted else f"choose another objective.metric, {remedy}",
                warning=accepted,
            )
        )
    measure = find_measure(plan)
    if isinstance(measure, Measure):
        compared = f"{measure.network.action.name}: {measure.objective.metric}"
        checks.append(Check("evaluation", True, compared))
    else:
        # Of a bare command nothing is known, so its user has judged this already.
        bare = plan.network.package is None
        checks.append(
            Check(
                "evaluation",
                False,
                f"the winner will not be evaluated: {measure.reason}",
                "" if accepted or bare else f"{measure.remedy}, {remedy}",
                warning=accepted or bare,
            )
        )
    return checks
