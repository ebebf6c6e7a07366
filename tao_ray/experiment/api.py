"""The Python entry point, for notebooks and scripts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tao_ray.config import load_config
from tao_ray.experiment.callbacks import Callbacks, CallbackView, OnEpoch, OnResult, OnTrial
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
    on_trial: OnTrial | None = None,
    on_epoch: OnEpoch | None = None,
    on_result: OnResult | None = None,
) -> Result:
    """Run a search and return its result; the same as ``tao-ray tune``.

    config: a configuration or the path of one. resume: a run to go on with (a directory or
    ``name/time``) instead of starting a new one. yes: agree to what it costs; needed only on
    platforms that cost money. accept_long: agree to an estimate beyond `budget` or
    `review.long_run_hours`. accept_unstaged: agree to data that every trial reads from afar.

    on_trial(trial): called when a trial was proposed (``trial["status"] == "proposed"``) and when
    it has ended; trial: as an entry of `trials` in ``result.json``. on_epoch(trial_id, epoch,
    metrics): called for each completed epoch. on_result(result): called at the end. They are called
    in this thread, one at a time, within a fraction of a second; what they raise is shown once and
    does not end the run.

    Raises:
        TaoRayError: the configuration is not valid, or cannot be run as asked.
    """
    loaded = load_config(config) if isinstance(config, str | os.PathLike) else config
    answers = Answers(yes, accept_long, accept_unstaged=accept_unstaged)
    view = CallbackView(TerminalView(), Callbacks(on_trial, on_epoch, on_result))
    if resume is None:
        return start(loaded, view, answers)
    run_dir = RunDir.find(os.fspath(resume), results_root(loaded.results))
    return resume_run(run_dir, loaded, view, answers)
