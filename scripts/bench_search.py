#!/usr/bin/env python3
"""Every search algorithm on the same problems. The tables of docs/benchmarks.md:

    scripts/bench_search.py hartmann    # functions that resemble trainings, simulated time
    scripts/bench_search.py digits      # the network that comes with tao_ray, really trained
    scripts/bench_search.py tables      # trainings of others (pip install tao_ray[benchmark])
    scripts/bench_search.py ranges      # what derived ranges are worth
    scripts/bench_search.py cost        # CPU seconds of a proposal
    scripts/bench_search.py all --write # everything, into docs/benchmarks.md

    scripts/bench_search.py hartmann --seeds 5 --algorithms auto asha --epochs 234 --workers 1

A search runs until its epochs are used up. Cells are medians and quartiles over the seeds.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from search_benchmarks import POPULATIONS, Case
from threadpoolctl import threadpool_limits

from tao_ray.search import algorithms

DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True)
class Extent:
    """What a benchmark is run with, unless the command line says otherwise."""

    epochs: tuple[int, ...]
    workers: tuple[int, ...]
    seeds: int


COMPARISONS = {
    "hartmann": Extent((234, 729), (1, 8), 25),
    "digits": Extent((320,), (1,), 8),
    "tables": Extent((100,), (1,), 8),
}
RANGES = Extent((234,), (1,), 15)
SECTIONS = (*COMPARISONS, "ranges", "cost")


def compare(name: str, args: argparse.Namespace) -> str:
    """Algorithms against problems, one table per budget and number of workers."""
    columns: dict[str, tuple[str, ...]] = _module(name).COLUMNS
    extent = _extent(COMPARISONS[name], args)
    lines: list[str] = []
    for budget, workers in product(extent.epochs, extent.workers):
        lines += [
            f"\n**{budget} epochs, {workers} at a time, {extent.seeds} seeds**\n",
            f"| algorithm | {' | '.join(columns)} | epochs | simulated time |",
            "|---|" + "---|" * (len(columns) + 2),
        ]
        for algorithm in args.algorithms:
            cases = [
                Case(algorithm, problem, budget, workers, seed)
                for problems in columns.values()
                for problem in problems
                for seed in range(extent.seeds)
            ]
            outcomes = list(_in_parallel(_module(name).run, cases, args.jobs))
            cells = [
                _cell(o.value for o in outcomes if o.case.problem in problems)
                for problems in columns.values()
            ]
            epochs = np.mean([o.epochs for o in outcomes])
            wall = np.mean([o.wall for o in outcomes])
            lines.append(f"| {algorithm} | {' | '.join(cells)} | {epochs:.0f} | {wall:.0f} |")
            print(name, budget, workers, lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def ranges(args: argparse.Namespace) -> str:
    """The derived space against the schema's ranges."""
    extent = _extent(RANGES, args)
    lines = [
        "\n| uniform over the schema's ranges: epochs | validation error, % | `auto`, no defaults "
        "| `auto` |",
        "|---|---|---|---|",
    ]
    for budget in extent.epochs:
        cases = [(seed, budget) for seed in range(extent.seeds)]
        found = list(_in_parallel(_compare_ranges, cases, args.jobs))
        lines.append(
            f"| {budget} | {_cell(f.reached for f in found)} "
            f"| {_cell((f.epochs for f in found), 0)} "
            f"| {_cell((f.epochs_with_defaults for f in found), 0)} |"
        )
    return "\n".join(lines)


def _compare_ranges(case: tuple[int, int]) -> Any:
    return _module("ranges").compare(*case)


def cost(args: argparse.Namespace) -> str:
    """CPU seconds per proposal after n finished trials."""
    module = _module("cost")
    lines = [
        "\n| algorithm | " + " | ".join(f"after {n}" for n in module.SIZES) + " |",
        "|---|" + "---|" * len(module.SIZES),
    ]
    for algorithm in args.algorithms:
        if algorithm not in POPULATIONS:
            seconds = (module.proposal_seconds(algorithm, n) for n in module.SIZES)
            lines.append(f"| {algorithm} | {' | '.join(f'{s:.3f}' for s in seconds)} |")
    return "\n".join(lines)


def _module(name: str) -> Any:
    return importlib.import_module(f"search_benchmarks.{name}")


def _extent(usual: Extent, args: argparse.Namespace) -> Extent:
    return Extent(
        tuple(args.epochs or usual.epochs),
        tuple(args.workers or usual.workers),
        args.seeds or usual.seeds,
    )


def _in_parallel(function: Callable[[_In], _Out], cases: list[_In], jobs: int) -> Iterator[_Out]:
    # One thread each: matrices this small only lose by being shared out.
    with ProcessPoolExecutor(jobs, initializer=threadpool_limits, initargs=(1,)) as pool:
        yield from pool.map(function, cases, chunksize=max(1, len(cases) // (8 * jobs)))


def _cell(values: Iterable[float], digits: int = 2) -> str:
    found = np.array(list(values))
    # Between infinities nothing can be interpolated.
    method = "linear" if np.isfinite(found).all() else "nearest"
    low, median, high = np.percentile(found, [25, 50, 75], method=method)
    return f"**{median:.{digits}f}** ({low:.{digits}f}, {high:.{digits}f})"


def write(section: str, text: str) -> None:
    """Replace what lies between the section's markers in docs/benchmarks.md."""
    page = DOCS.read_text()
    begin, end = f"<!-- {section} -->\n", f"\n<!-- /{section} -->"
    before, rest = page.split(begin)
    DOCS.write_text(before + begin + text + "\n" + end + rest.split(end)[1])


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*SECTIONS, "all"])
    parser.add_argument("--algorithms", nargs="*", default=algorithms(), metavar="NAME")
    parser.add_argument("--epochs", nargs="*", type=int)
    parser.add_argument("--workers", nargs="*", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    args = parser.parse_args()
    for section in SECTIONS if args.what == "all" else (args.what,):
        if section in COMPARISONS:
            text = compare(section, args)
        else:
            text = {"ranges": ranges, "cost": cost}[section](args)
        print(text)
        if args.write:
            write(section, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
