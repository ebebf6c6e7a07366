"""Reports of runs: HTML and Markdown, comparisons, and the hand-over of a winner.

All of it is made from a run's journal and result alone, so it can be made at any time, of any run,
also while it goes on.
"""

from tao_ray.report.run_data import RunData, read_run
from tao_ray.report.writing import report_line, write_report

__all__ = ["RunData", "read_run", "report_line", "write_report"]
