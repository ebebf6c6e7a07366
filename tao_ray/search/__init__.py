"""Search algorithms: a proposer (what to try) and a scheduling rule (what goes on), by name."""

from tao_ray.search.base import (
    Algorithm,
    Decision,
    Exhausted,
    PastTrial,
    Proposal,
    Proposer,
    SchedulingRule,
    SearchSettings,
    TrialStatus,
    Wait,
    WeightsFrom,
)
from tao_ray.search.registry import algorithms, build, options_model, parse_options

__all__ = [
    "Algorithm",
    "Decision",
    "Exhausted",
    "PastTrial",
    "Proposal",
    "Proposer",
    "SchedulingRule",
    "SearchSettings",
    "TrialStatus",
    "Wait",
    "WeightsFrom",
    "algorithms",
    "build",
    "options_model",
    "parse_options",
]
