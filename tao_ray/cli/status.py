"""``tao-ray status RUN``: what a run has done so far, read from its journal."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "status", description="Show a run: its trials, the best so far, elapsed time and ETA."
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--watch", action="store_true", help="again every second, until it ends")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from tao_ray.experiment.run_dir import RunDir

    run_dir = RunDir.find(args.run)
    console = Console(highlight=False)
    while True:
        state = _read(run_dir)
        if args.json:
            print(json.dumps(_as_json(run_dir, state)), flush=True)
        else:
            if args.watch and console.is_terminal:
                console.clear()
            _show(run_dir, state, console)
        if not args.watch or _phase(run_dir, state) != "running":
            return 0
        time.sleep(1.0)


def _read(run_dir: Any) -> Any:
    from tao_ray.journal import read_events
    from tao_ray.trial.state import RunState

    return RunState.fold(read_events(run_dir.journal))


def _objective(state: Any) -> Any:
    from tao_ray.trial.state import Objective

    facts = state.facts
    return Objective(facts["metric"], facts["direction"], facts["at"])


def _phase(run_dir: Any, state: Any) -> str:
    """What goes on: "running", "ended", or "interrupted" if its driver is no more."""
    from tao_ray.journal import is_being_written

    if state.status == "ended" or _is_single_job(run_dir, state):
        return "ended"
    return "running" if is_being_written(run_dir.journal) else "interrupted"


def _is_single_job(run_dir: Any, state: Any) -> bool:
    """Whether this is what a `tao-ray run` has left: a result without a search."""
    return not state.facts and run_dir.result.is_file()


def _as_json(run_dir: Any, state: Any) -> Any:
    from tao_ray.tracking.terminal import as_json

    where = {"run": run_dir.id, "directory": str(run_dir.path), "phase": _phase(run_dir, state)}
    if not state.facts:
        return {**where, "trials": []}
    return {**where, **as_json(state, _objective(state), state.facts, time.time())}


def _show(run_dir: Any, state: Any, console: Any) -> None:
    from tao_ray.tracking.terminal import best_lines, evaluation_lines, summary, trial_table

    console.print(f"{run_dir.id}: {_phase(run_dir, state)}", markup=False)
    if _is_single_job(run_dir, state):
        console.print(
            f"a single job, without a search: {run_dir.result}", markup=False, soft_wrap=True
        )
        return
    if not state.facts:
        for line in [*evaluation_lines(state), "no trial has started yet"]:
            console.print(line, markup=False, soft_wrap=True)
        return
    objective, facts = _objective(state), state.facts
    rows = len(state.trials)
    console.print(
        trial_table(state, objective, facts["max_epochs"], rows, console.width, jobs=True)
    )
    now = state.ended or (time.time() if _phase(run_dir, state) == "running" else state.last_time)
    console.print(
        summary(state, objective, facts["trials"], now, facts["max_concurrent"]),
        markup=False,
        soft_wrap=True,
    )
    for line in [*best_lines(state, objective), *evaluation_lines(state)]:
        console.print(line, markup=False, soft_wrap=True)
    if _phase(run_dir, state) == "interrupted":
        console.print(f"go on with: tao-ray resume {run_dir.path}", markup=False, soft_wrap=True)
