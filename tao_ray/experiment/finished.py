"""A run that came to its end: shown again, without a word in its journal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tao_ray.experiment.evaluation_records import FAILED
from tao_ray.experiment.result import Result
from tao_ray.experiment.run_dir import RunDir, is_uri
from tao_ray.journal import read_events
from tao_ray.tracking.wandb_cursor import is_complete
from tao_ray.trial.state import RunState

if TYPE_CHECKING:
    from tao_ray.config import RunConfig


def finished(run_dir: RunDir, config: RunConfig) -> Result | None:
    """The result of a run of which nothing is left to do; else None.

    Left to do may be more than the search: an evaluation that failed, results that could not be
    stored in their bucket, trials that W&B has not been told of.
    """
    if not run_dir.result_is_final():
        return None
    data = json.loads(run_dir.result.read_text())
    events = read_events(run_dir.journal)
    if (data["final_evaluation"] or {}).get("status") == FAILED:
        return None
    if is_uri(config.results) and not any(event.kind == "published" for event in events):
        return None
    trials = RunState.fold(events).trials
    if config.tracking.wandb is not None and not is_complete(run_dir.path, trials):
        return None
    return Result(data["status"], data["run"]["reason"] or "", run_dir.path, data)
