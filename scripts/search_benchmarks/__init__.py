"""What the benchmarks of `bench_search.py` share: a case, its outcome, how many trials to ask for.

A benchmark is a module with ``COLUMNS`` (column of its table -> problems), ``FULL`` (epochs of a
full training) and ``run(case)``.
"""

from __future__ import annotations

from dataclasses import dataclass

FULL_TRAININGS = ("random", "bayesian", "bfbo", "tpe")
POPULATIONS = ("pbt", "pb2")


@dataclass(frozen=True)
class Case:
    """One search: `budget` is in epochs."""

    algorithm: str
    problem: str
    budget: int
    workers: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What it came to. value: lower is better; wall: in epochs of one trial."""

    case: Case
    value: float
    epochs: int
    wall: float


def trials(case: Case, full: int) -> int:
    """Trials the user would ask for, `full` epochs being a full training.

    As many as the budget pays for: where all train to the end, and with `auto`, which stops most
    of them after a third and so spends about 5/9 of a full training on each. More than enough
    where most are stopped sooner.
    """
    if case.algorithm in FULL_TRAININGS:
        return _ceil(case.budget, full)
    if case.algorithm == "auto":
        return _ceil(9 * case.budget, 5 * full)
    return max(2, case.budget // full) if case.algorithm in POPULATIONS else 10 * case.budget


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
