"""TensorBoard: a directory of event files per trial."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.tracking.tracker import RunInfo
from tao_ray.trial.state import PAUSED, Objective, RunState, TrialState

if TYPE_CHECKING:
    from tao_ray.experiment.result import Result

DIRECTORY = "tensorboard"
_COMPLETE = "complete"


class TensorBoardTracker:
    """Writes ``tensorboard/<trial>``: a curve per metric, and the hyperparameters at the end.

    What a killed driver left of a trial is written anew: event files have no end that one could
    trust. Implements `tracker.Tracker`.
    """

    def __init__(self, info: RunInfo):
        self._root = info.directory / DIRECTORY
        self._objective = info.objective
        self._trials: dict[str, _TrialWriter] = {}
        self._complete = {marker.parent.name for marker in self._root.glob(f"*/{_COMPLETE}")}

    def update(self, state: RunState) -> None:
        """See `Tracker`."""
        for trial in state.trials.values():
            if trial.id not in self._complete:
                self._follow(trial)

    def close(self, state: RunState, result: Result | None) -> None:
        """See `Tracker`."""
        self.update(state)
        for writer in self._trials.values():
            writer.pause()

    def _follow(self, trial: TrialState) -> None:
        if trial.id not in self._trials:
            self._trials[trial.id] = _TrialWriter(self._root / trial.id)
        writer = self._trials[trial.id]
        writer.write(trial)
        if not trial.alive:
            writer.write_hyperparameters(trial, self._objective)
        if not trial.alive or trial.status == PAUSED:
            writer.pause()
        if not trial.alive:
            (self._root / trial.id / _COMPLETE).touch()
            self._complete.add(trial.id)
            del self._trials[trial.id]


class _TrialWriter:
    """The event files of one trial, open while there is something to write."""

    def __init__(self, directory: Path):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._directory = directory
        self._writer: Any = None
        self._opened = 0
        self._written: dict[int, int] = {}

    def write(self, trial: TrialState) -> None:
        """Write the metrics that are new, those that became known late too."""
        for epoch, state in sorted(trial.epochs.items()):
            if self._written.get(epoch) == len(state.metrics):
                continue
            known = list(state.metrics.items())[self._written.get(epoch, 0) :]
            for name, value in known:
                self._open().add_scalar(name, value, epoch, walltime=state.time)
            self._written[epoch] = len(state.metrics)

    def write_hyperparameters(self, trial: TrialState, objective: Objective) -> None:
        """Write what TensorBoard's hparams page shows of an ended trial."""
        from tensorboardX.summary import hparams

        judged = trial.judged(objective.at)
        loss = math.nan if judged is None or judged.loss is None else judged.loss
        name = f"hparam/{objective.metric}"
        value = objective.value(loss)
        writer = self._open()
        for summary in hparams(_plain(trial.config), {name: value}):
            writer.file_writer.add_summary(summary)
        writer.add_scalar(name, value, trial.last_epoch, walltime=trial.ended)

    def pause(self) -> None:
        """Have everything on disk, and nothing open."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> Any:
        if self._writer is None:
            from tensorboardX import SummaryWriter

            self._opened += 1  # a file's name has only the second it was made in
            suffix = f".{self._opened}"
            self._writer = SummaryWriter(
                str(self._directory), flush_secs=10, filename_suffix=suffix
            )
        return self._writer


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """What TensorBoard takes as hyperparameters."""
    return {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in config.items()}
