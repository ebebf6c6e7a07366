"""``tao-ray compare RUN RUN…``: runs side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare", description="Put runs side by side; the first is what the others are held to."
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="a run directory, name/time, or a run's name"
    )
    parser.add_argument("--html", metavar="FILE", help="write it as a page with plots, too")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.files import write_text
    from tao_ray.report import read_run
    from tao_ray.report.compare import comparison, remarks, rows
    from tao_ray.report.html import render_html

    runs = [read_run(RunDir.find(ref)) for ref in args.runs]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ["", *(r.id for r in runs)]:
        table.add_column(Text(header), overflow="fold")
    for row in rows(runs):
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    console.print(table)
    for remark in remarks(runs):
        console.print(f"note: {remark}", markup=False, soft_wrap=True)
    if args.html:
        write_text(Path(args.html), render_html(comparison(runs)))
        console.print(args.html, markup=False, soft_wrap=True)
    return 0
