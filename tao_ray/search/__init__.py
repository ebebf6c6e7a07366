"""Search algorithms: a proposer (what to try) and a scheduling rule (what goes on), by name."""

from tao_ray.search.base import (
    Algorithm,
    Decision,
    Exhausted,
    GivesWeights,
    PastTrial,
    Proposal,
    Proposer,
    SchedulingRule,
    SearchSettings,
    SeesTradeOffs,
    TrialStatus,
    Wait,
    WeightsFrom,
)
from tao_ray.search.registry import algorithms, build, options_model, parse_options
from tao_ray.search.tradeoff import pareto_front

__all__ = [
    "Algorithm",
    "Decision",
    "Exhausted",
    "GivesWeights",
    "PastTrial",
    "Proposal",
    "Proposer",
    "SchedulingRule",
    "SearchSettings",
    "SeesTradeOffs",
    "TrialStatus",
    "Wait",
    "WeightsFrom",
    "algorithms",
    "build",
    "options_model",
    "pareto_front",
    "parse_options",
]
