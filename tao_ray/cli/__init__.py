"""The command line: ``tao-ray COMMAND …``.

A command is a module with ``add_parser(subparsers)`` and ``run(args) -> int`` (the exit code),
and a row in `COMMANDS`. Only the module of the chosen command is imported, so that help is quick;
this module therefore imports nothing that is not needed to print it.

Exit codes: 0 done, 2 configuration or preflight error, 3 no trial succeeded, 4 ended early with a
usable result, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from tao_ray._version import __version__
from tao_ray.errors import TaoRayError

COMMANDS = {
    "tune": ("tao_ray.cli.tune", "run a search, or go on with one"),
    "resume": ("tao_ray.cli.resume", "go on with a run that was interrupted or killed"),
    "review": ("tao_ray.cli.review", "show in full what a run would do, without starting it"),
    "run": ("tao_ray.cli.run", "run one job of the network, without a search"),
    "check": ("tao_ray.cli.check", "validate a configuration without running it"),
    "status": ("tao_ray.cli.status", "show a run, also while it goes on"),
    "logs": ("tao_ray.cli.logs", "print the log of a trial"),
    "why": ("tao_ray.cli.why", "say why a run or a trial failed or stopped"),
    "report": ("tao_ray.cli.report", "write a run's report, also while it goes on"),
    "compare": ("tao_ray.cli.compare", "put runs side by side"),
    "export": ("tao_ray.cli.export", "write the winner out for the next step of a workflow"),
    "stop": ("tao_ray.cli.stop", "ask a running search to stop in order"),
    "machines": ("tao_ray.cli.machines", "list or delete rented machines"),
    "schema": ("tao_ray.cli.schema", "print the JSON Schema of a configuration, for editors"),
}
"""Name -> (module, one line of help), in the order that ``--help`` lists them."""

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = arguments[0] if arguments and arguments[0] in COMMANDS else None
    args = _parser(chosen).parse_args(arguments)
    try:
        code = int(importlib.import_module(COMMANDS[args.command][0]).run(args))
        sys.stdout.flush()
        return code
    except TaoRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left, as `head` does. Without this Python would fail on it
        # once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser in which only `chosen` has its arguments; the others have their help line."""
    parser = argparse.ArgumentParser(
        prog="tao-ray", description="Hyperparameter search for NVIDIA TAO networks on Ray Tune."
    )
    parser.add_argument("--version", action="version", version=f"tao-ray {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, line) in COMMANDS.items():
        if name == chosen:
            importlib.import_module(module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=line)
    return parser


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every command that reads a configuration: ``args.config``, ``.overrides``.

    They go to ``load_config(args.config, args.overrides)``.
    """
    parser.add_argument("config", metavar="CONFIG", help="the configuration, a YAML file")
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="put a value over the file's, such as search.trials=8 (may be given several times)",
    )
