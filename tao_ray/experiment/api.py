"""The Python entry point, for notebooks and scripts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tao_ray.config import load_config
from tao_ray.experiment.consent import Answers
from tao_ray.experiment.run import resume as resume_run
from tao_ray.experiment.run import start
from tao_ray.experiment.run_dir import RunDir, results_root
from tao_ray.tracking.terminal import TerminalView

if TYPE_CHECKING:
    from tao_ray.config import RunConfig
    from tao_ray.experiment.result import Result


def run(
    config: RunConfig | str | os.PathLike[str],
    *,
    resume: str | os.PathLike[str] | None = None,
    yes: bool = False,
    accept_long: bool = False,
    accept_unstaged: bool = False,
) -> Result:
    """Run a search and return its result; the same as ``tao-ray tune``.

    config: a configuration or the path of one. resume: a run to go on with (a directory or
    ``name/time``) instead of starting a new one. yes: agree to what it costs; needed only on
    platforms that cost money. accept_long: agree to an estimate beyond `budget` or
    `review.long_run_hours`. accept_unstaged: agree to data that every trial reads from afar.

    Raises:
        TaoRayError: the configuration is not valid, or cannot be run as asked.
    """
    loaded = load_config(config) if isinstance(config, str | os.PathLike) else config
    answers = Answers(yes, accept_long, accept_unstaged=accept_unstaged)
    if resume is None:
        return start(loaded, TerminalView(), answers)
    run_dir = RunDir.find(os.fspath(resume), results_root(loaded.results))
    return resume_run(run_dir, loaded, TerminalView(), answers)
