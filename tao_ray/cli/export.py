"""``tao-ray export RUN``: the winner for the next step of a workflow."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "export",
        description="Write the winner of a run into a directory: handover.json, its spec and "
        "overrides, an evaluation spec, and a configuration that trains it longer.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")
    parser.add_argument("--to", metavar="DIR", help="default: `winner` in the run's directory")
    parser.add_argument(
        "--epochs", type=_positive, metavar="N", help="of the longer training; default: twice"
    )


def run(args: argparse.Namespace) -> int:
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.report import read_run
    from tao_ray.report.handover import export

    run_dir = RunDir.find(args.run)
    target = Path(args.to) if args.to else run_dir.path / "winner"
    made = export(read_run(run_dir), target, args.epochs)
    data = made.data
    print(f"trial {data['trial']}: {data['objective']['metric']} {data['metric']:.6g}")
    print(f"checkpoint: {data['checkpoint']['uri'] if data['checkpoint'] else 'none'}")
    print(f"{target}: handover.json {' '.join(data['files'])}")
    print(f"there, {'in ' + data['model']['image'] if data['model']['image'] else 'run'}:")
    for name, command in data["commands"].items():
        print(f"  {name.replace('_', ' ')}: {command}")
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1 (got {text!r})")
    return int(text)
