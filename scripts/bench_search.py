#!/usr/bin/env python3
"""Every search algorithm on known functions, in simulated time.

    scripts/bench_search.py hartmann                  # the tables of docs/benchmarks.md
    scripts/bench_search.py hartmann --seeds 5 --algorithms auto asha --epochs 234 --workers 1
    scripts/bench_search.py cost                      # CPU seconds of a proposal

`hartmann` runs a search until the epoch budget is used up and looks at the configuration it
would return: the noise-free value it has after a full training. Medians and quartiles over the
seeds. With `--write` the table replaces the one in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hartmann import PRESETS, Hartmann

from tao_ray.search import SearchSettings, TrialStatus, algorithms, build
from tao_ray.search.base import Proposal
from tao_ray.search.simulation import simulate
from tao_ray.space import Categorical, Float, Integer, SearchSpace

R = 27
FULL_TRAININGS = ("random", "bayesian", "bfbo", "tpe")
POPULATIONS = ("pbt", "pb2")
DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Case:
    """One search."""

    algorithm: str
    preset: str
    budget: int
    workers: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What it came to. value: noise-free; wall: in epochs."""

    case: Case
    value: float
    epochs: int
    wall: float


def run(case: Case) -> Outcome:
    """One search on one Hartmann function."""
    dimensions, bias, noise = PRESETS[case.preset]
    function = Hartmann(dimensions, bias, noise, R, case.seed)
    settings = SearchSettings(
        trials=_trials(case),
        max_epochs=R,
        max_concurrent=case.workers,
        seed=case.seed,
    )
    result = simulate(
        build(case.algorithm, function.space, settings, {}),
        function,
        max_epochs=R,
        workers=case.workers,
        epoch_budget=case.budget,
    )
    return Outcome(case, function.true_value(result.best.config), result.epochs, result.wall)


def _trials(case: Case) -> int:
    """Trials the user would ask for: as many as the budget pays for where all train to the end;
    where most are stopped, more than enough."""
    if case.algorithm in FULL_TRAININGS:
        return -(-case.budget // R)
    return max(2, case.budget // R) if case.algorithm in POPULATIONS else 10 * case.budget


def hartmann(args: argparse.Namespace) -> str:
    """The tables."""
    cases = [
        Case(algorithm, preset, budget, workers, seed)
        for budget in args.epochs
        for workers in args.workers
        for algorithm in args.algorithms
        for preset in PRESETS
        for seed in range(args.seeds)
    ]
    outcomes: dict[tuple[int, int, str, str], list[Outcome]] = {}
    for outcome in _outcomes(cases, args.jobs):
        c = outcome.case
        found = outcomes.setdefault((c.budget, c.workers, c.algorithm, c.preset), [])
        found.append(outcome)
        if len(found) == args.seeds:
            print(
                f"{c.budget} {c.workers} {c.algorithm} {c.preset}: {_cell(found)}", file=sys.stderr
            )
    lines = []
    for budget in args.epochs:
        for workers in args.workers:
            lines += [
                f"\n**{budget} epochs, {workers} at a time, {args.seeds} seeds**\n",
                "| algorithm | " + " | ".join(PRESETS) + " | epochs | simulated time |",
                "|---|" + "---|" * (len(PRESETS) + 2),
            ]
            for algorithm in args.algorithms:
                rows = [outcomes[budget, workers, algorithm, preset] for preset in PRESETS]
                everything = [o for row in rows for o in row]
                epochs = np.mean([o.epochs for o in everything])
                wall = np.mean([o.wall for o in everything])
                cells = " | ".join(_cell(row) for row in rows)
                lines.append(f"| {algorithm} | {cells} | {epochs:.0f} | {wall:.0f} |")
    return "\n".join(lines)


def _outcomes(cases: list[Case], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run, cases)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, cases, chunksize=5)


def _cell(outcomes: Iterable[Outcome]) -> str:
    low, median, high = np.percentile([o.value for o in outcomes], [25, 50, 75])
    return f"**{median:.2f}** ({low:.2f}, {high:.2f})"


WIDE = SearchSpace(
    [Float(f"f{i}", 1e-6, 1.0, log=True) for i in range(12)]
    + [Integer(f"i{i}", 1, 64) for i in range(4)]
    + [Categorical(f"c{i}", ("a", "b", "c")) for i in range(2)]
)
"""18 parameters, 22 dimensions."""


def cost(args: argparse.Namespace) -> str:
    """CPU seconds per proposal after n finished trials."""
    sizes = (10, 100, 1000)
    lines = [
        "\n| algorithm | " + " | ".join(f"after {n}" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for algorithm in args.algorithms:
        if algorithm not in POPULATIONS:
            cells = " | ".join(f"{_proposal_seconds(algorithm, n):.3f}" for n in sizes)
            lines.append(f"| {algorithm} | {cells} |")
    return "\n".join(lines)


def _proposal_seconds(name: str, observations: int) -> float:
    """The median of five proposals in 22 dimensions, one thread."""
    settings = SearchSettings(trials=2000, max_epochs=R)
    algorithm = build(name, WIDE, settings, {})
    proposer = algorithm.proposer
    rng = np.random.default_rng(0)
    for i in range(observations):
        config = WIDE.sample(rng)
        loss = float(np.sum(WIDE.encode(config)[:4] ** 2))
        proposer.started(f"t{i}", Proposal(config))
        for epoch in (1, 3, 9, 27):
            proposer.tell(f"t{i}", config, epoch, loss + 1 / epoch, TrialStatus.RUNNING)
        proposer.tell(f"t{i}", config, R, loss, TrialStatus.COMPLETED)
    proposer.ask(0)  # imports
    seconds = []
    for n_running in range(1, 6):
        before = time.process_time()
        proposer.ask(n_running)
        seconds.append(time.process_time() - before)
    return float(np.median(seconds))


def write(section: str, text: str) -> None:
    """Replace what lies between the section's markers in docs/benchmarks.md."""
    page = DOCS.read_text()
    begin, end = f"<!-- {section} -->\n", f"\n<!-- /{section} -->"
    before, rest = page.split(begin)
    DOCS.write_text(before + begin + text + "\n" + end + rest.split(end)[1])


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=["hartmann", "cost"])
    parser.add_argument("--algorithms", nargs="*", default=algorithms(), metavar="NAME")
    parser.add_argument("--epochs", nargs="*", type=int, default=[234, 729])
    parser.add_argument("--workers", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    args = parser.parse_args()
    text = {"hartmann": hartmann, "cost": cost}[args.what](args)
    print(text)
    if args.write:
        write(args.what, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
