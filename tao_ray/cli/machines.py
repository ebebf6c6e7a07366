"""``tao-ray machines [ls|delete]``: rented machines, whatever run on whatever host left them."""

from __future__ import annotations

import argparse
from typing import Any

from tao_ray.errors import TaoRayError

_DELETE_TIMEOUT_S = 600.0


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "machines",
        description="List the Brev machines that runs have made (their names begin with tao-), or "
        "delete them. Machines of runs that go on are deleted only with --running.",
    )
    parser.add_argument("what", nargs="?", choices=("ls", "delete"), default="ls")
    parser.add_argument("names", nargs="*", metavar="NAME", help="machines; default: all of ours")
    parser.add_argument("--org", help="Brev organisation; default: the active one")
    parser.add_argument(
        "--runs", metavar="DIRECTORY", default="runs", help="where run directories are"
    )
    parser.add_argument(
        "--running", action="store_true", help="delete also what a running search uses"
    )


def run(args: argparse.Namespace) -> int:
    from tao_ray.platforms.brev import BrevCli, is_ours
    from tao_ray.platforms.brev.reaping import cleaner

    instances = [i for i in BrevCli().ls(args.org) if is_ours(i.name)]
    owners = _owners(args.runs)
    if args.what == "ls":
        for instance in instances:
            where, goes_on = owners.get(instance.name, ("of no run here", False))
            shown = f"{where}, running" if goes_on else where
            print(f"{instance.name}  {instance.status}  {instance.type or '-'}  {shown}")
        if not instances:
            print("no machine of ours exists")
        return 0
    known = {instance.name for instance in instances}
    chosen = args.names or sorted(known)
    if unknown := [name for name in chosen if name not in known]:
        raise TaoRayError(
            f"no machine of ours: {', '.join(unknown)}",
            remedy="`tao-ray machines` lists them; others are yours alone: `brev delete NAME`",
        )
    in_use = [name for name in chosen if owners.get(name, ("", False))[1]]
    if in_use and not args.running:
        raise TaoRayError(
            f"used by a running search: {', '.join(in_use)}",
            remedy="stop it with `tao-ray stop RUN`, or add --running",
        )
    provider = cleaner(args.org)
    for name in chosen:
        provider.delete(name, _DELETE_TIMEOUT_S)
        print(f"{name} is gone")
    return 0


def _owners(root: str) -> dict[str, tuple[str, bool]]:
    """Machine -> its run and whether that goes on, for the runs in a directory."""
    from pathlib import Path

    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.journal import is_being_written, read_events
    from tao_ray.platforms.ledger import Ledger

    owners: dict[str, tuple[str, bool]] = {}
    for directory in sorted(p for p in Path(root).glob("*") if p.is_dir()):
        for run_dir in RunDir.all(directory):
            ledger = Ledger.fold(read_events(run_dir.journal))
            run = str(run_dir.path), is_being_written(run_dir.journal)
            owners |= dict.fromkeys(ledger.machines, run)
    return owners
