"""``tao-ray tune CONFIG``, which is also ``python -m tao_ray.tune CONFIG``."""

from __future__ import annotations

import argparse
from typing import Any

from tao_ray.cli import add_config_arguments, answers
from tao_ray.errors import TaoRayError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "tune",
        description="Search the hyperparameters of a network, in a fresh run directory. Ctrl-C "
        "once stops in order and leaves the run resumable; twice leaves at once.",
    )
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_config_arguments(parser)
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="go on with this run (a directory, or name/time); without RUN, with the one "
        "unfinished run of this configuration's name",
    )
    answers.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from tao_ray.config import load_config

    config = load_config(args.config, args.overrides)
    from tao_ray.experiment.run import resume, start
    from tao_ray.tracking.terminal import TerminalView

    if args.resume is None:
        return start(config, TerminalView(), answers.answers(args)).exit_code
    run_dir = _run_to_resume(config, args.resume)
    return resume(run_dir, config, TerminalView(), answers.answers(args)).exit_code


def _run_to_resume(config: Any, ref: str) -> Any:
    from tao_ray.experiment.run_dir import RunDir, results_root

    root = results_root(config.results)
    if ref:
        return RunDir.find(ref, root)
    unfinished = [run for run in RunDir.all(root / config.name) if not run.result_is_final()]
    if len(unfinished) == 1:
        return unfinished[0]
    if not unfinished:
        raise TaoRayError(
            f"no unfinished run of {config.name!r}",
            where=str(root / config.name),
            remedy="start a new one without --resume",
        )
    listed = "\n".join(f"    {run.path}" for run in unfinished)
    raise TaoRayError(
        f"{config.name!r} has {len(unfinished)} unfinished runs:\n{listed}",
        remedy="name one of these directories after --resume",
    )
