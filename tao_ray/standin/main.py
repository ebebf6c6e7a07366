"""The command ``digits_mlp ACTION -e DIR/spec.yaml [key=value …]``, with TAO's manners.

Exit code 0 says little: a job that is told to stop also ends with 0 and ``PASS``; only the line
``… finished successfully.`` in status.json tells that it completed. Every error is exit code 1;
those that TAO's wrapper knows leave a FAILURE line, others leave none.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType

# Tiny matrices gain nothing from threads, and many jobs share the machine.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

ACTIONS = ("train", "distill", "evaluate", "prune", "quantize")


class _Stopped(BaseException):
    """SIGTERM or SIGINT."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action; the exit code."""
    parser = argparse.ArgumentParser(prog="digits_mlp")
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("-e", "--experiment_spec", required=True, help="path with a directory")
    parser.add_argument("overrides", nargs="*", help="key=value")
    arguments = parser.parse_intermixed_args(argv)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        code = _run(arguments.action, arguments.experiment_spec, arguments.overrides)
    except _Stopped:
        code = 0
    except Exception:
        traceback.print_exc()
        code = 1
    _say(f"Execution status: {'FAIL' if code else 'PASS'}")
    return code


def _run(action: str, spec_file: str, overrides: Sequence[str]) -> int:
    import yaml

    from tao_ray.standin.config import REQUIRED, SpecError, check_options, load_spec, nested

    if not os.path.dirname(spec_file):
        print(f"Primary config directory not found: '{spec_file}' has no directory part")
        return 1
    try:
        # The wrapper joins and splits the arguments once more, which loses their quotes.
        spec = load_spec(Path(spec_file), shlex.split(" ".join(overrides)))
    except SpecError as error:
        print(f"Error merging '{spec_file}': {error}", file=sys.stderr)
        return 1
    if "WORLD_SIZE" in os.environ:
        spec["train.num_nodes"] = int(os.environ["WORLD_SIZE"])
        Path(spec_file).write_text(yaml.safe_dump(nested(spec), sort_keys=False))
        assert spec["train.num_nodes"] == 1, (
            f"WORLD_SIZE asks for {spec['train.num_nodes']} nodes; the others did not join"
        )

    from tao_ray.standin import single_shot, train
    from tao_ray.standin.status_log import StatusLog

    directory = Path(spec[f"{action}.results_dir"] or Path(spec["results_dir"]) / action)
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{action.capitalize()} results will be saved at: {directory}", flush=True)
    dump = yaml.safe_dump(
        nested({**spec, "encryption_key": "*" * len(spec["encryption_key"])}), sort_keys=False
    )
    (directory / "experiment.yaml").write_text(dump)
    _say(f"Experiment configuration:\n{dump}")

    log = StatusLog(directory / "status.json")
    log.write(f"Starting Digits MLP {action}.", "STARTED")
    log.write(f"Experiment configuration:\n{dump}")
    run = {
        "train": train.train,
        "distill": train.distill,
        "evaluate": single_shot.evaluate,
        "prune": single_shot.prune,
        "quantize": single_shot.quantize,
    }[action]
    try:
        required = REQUIRED[action]
        if required and spec[required] in ("", "???"):
            raise ValueError(f"Missing mandatory value: {required}")
        check_options(spec)
        import numpy

        with numpy.errstate(all="ignore"):  # a diverging training is a result, not a warning
            run(spec, directory, log)
    except (ValueError, TypeError) as error:
        log.write(f"Parameter validation error: {error}", "FAILURE")
        raise
    except OSError as error:
        log.write(f"File system error: {error}", "FAILURE")
        raise
    log.write(f"{action.capitalize()} finished successfully.")
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)  # a group often hears it twice
    raise _Stopped


def _say(message: str) -> None:
    now = f"{datetime.now():%Y-%m-%d %H:%M:%S,%f}"[:-3]
    print(f"\x1b[38;20m{now} - [TAO Toolkit] - INFO - {message}\x1b[0m", flush=True)
