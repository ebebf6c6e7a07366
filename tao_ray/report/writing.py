"""Writing the report of a run into its directory."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tao_ray.errors import TaoRayError
from tao_ray.files import write_text
from tao_ray.report import (
    cost_sections,
    result_sections,
    run_sections,
    search_sections,
    use_section,
    winner_sections,
)
from tao_ray.report.document import Document
from tao_ray.report.html import render_html
from tao_ray.report.markdown import render_markdown
from tao_ray.report.run_data import RunData, read_run

if TYPE_CHECKING:
    from tao_ray.experiment.run_dir import RunDir

HTML, MARKDOWN = "report.html", "report.md"


def document(run: RunData) -> Document:
    """The report of a run."""
    sections = [
        result_sections.result(run),
        winner_sections.winner(run),
        use_section.use(run),
        search_sections.curves(run),
        search_sections.halving(run),
        search_sections.parameters(run),
        cost_sections.time_and_cost(run),
        run_sections.failures(run),
        run_sections.trials(run),
        run_sections.reproduce(run),
    ]
    facts = run.facts
    subtitle = (
        f"{facts['network']} {facts['action']}, {facts['algorithm']}: {run.outcome or run.phase}"
    )
    return Document(run.id, subtitle, [s for s in sections if s is not None])


def write_report(run_dir: RunDir) -> Path:
    """Write ``report.html`` and ``report.md``; the path of the former.

    From the journal and, where the run has ended, its result, so at any time of a run's life.

    Raises:
        TaoRayError: the run has not started yet.
        OSError: the directory cannot be written to.
    """
    made = document(read_run(run_dir))
    write_text(run_dir.path / MARKDOWN, render_markdown(made))
    path = run_dir.path / HTML
    write_text(path, render_html(made))
    return path


def report_line(run_dir: RunDir) -> str:
    """Write the report at the end of a run; one line for the user. Never raises.

    A result must not be lost over its report: what went wrong goes to stderr (the driver's log)
    and into the line.
    """
    try:
        return f"report: {write_report(run_dir)}"
    except Exception as error:
        traceback.print_exc()
        what = error.message if isinstance(error, TaoRayError) else repr(error)
        return f"the report could not be written ({what}); try `tao-ray report {run_dir.path}`"
