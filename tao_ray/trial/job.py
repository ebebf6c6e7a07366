"""The jobs of one trial: their specs, and the checkpoints they leave to one another."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tao_ray.journal import JournalWriter
from tao_ray.network.spec import Spec, build_spec, get_path
from tao_ray.platforms.base import Job, JobHandle, MachineLostError, Platform
from tao_ray.trial.setup import TrialSetup
from tao_ray.trial.state import JobState, RunState, TrialState

RESULTS_DIR = "results"


class TrialJobs:
    """Builds the jobs of one trial. `trial` is always what the journal says of it now."""

    def __init__(
        self, trial: TrialState, setup: TrialSetup, platform: Platform, journal: JournalWriter
    ):
        self.trial = trial
        self._setup = setup
        self._platform = platform
        self._journal = journal

    def clear_results(self, last: JobState) -> None:
        """Empty the results directory that `last` and the next job share."""
        handle = self._platform.attach(last.id)
        if handle is not None:
            handle.remove(RESULTS_DIR)

    def _results(self, jobs: Sequence[JobState]) -> dict[str, int]:
        """Files below the results directory: path -> bytes. jobs: those of the trial in question.

        The last job that the platform knows shows them: one that was never launched has no place.
        """
        for job in reversed(jobs):
            handle = self._platform.attach(job.id)
            if handle is not None:
                return result_files(handle)
        return {}

    def last_checkpoint(self) -> int | None:
        """The newest epoch that was reported and whose checkpoint is there."""
        files = self._results(self.trial.jobs)
        first = self.offset() + 1
        for epoch in range(self.trial.last_epoch, first - 1, -1):
            if self.checkpoint(epoch, files):
                return epoch
        return None

    def checkpoint(self, epoch: int, files: Mapping[str, int]) -> str | None:
        """The file of a completed epoch among those of the results directory, or None."""
        return self._setup.network.checkpoint_name(epoch - self.offset(), files)

    def offset(self) -> int:
        """Epochs the donor had trained: the trial's own epochs come after them."""
        return self.trial.start.epoch if self.trial.start else 0

    def build(self, job: JobState) -> tuple[Job, list[dict[str, Any]]]:
        """The job to launch, and in what its spec differs from what was asked."""
        network = self._setup.network
        workspace = self._platform.workspace(self.trial.id)
        results = f"{workspace}/{RESULTS_DIR}"
        resume_from, start_from = self._resume_from(job, results), self._start_from(job)
        spec = self._spec(results, resume_from, start_from)
        name = f"spec_{job.segment}.{network.config_format}"
        built = Job(
            id=job.id,
            workspace=self.trial.id,
            command=network.command(f"{workspace}/{name}"),
            files={name: spec.render(network.config_format, secrets=True).encode()},
            status_path=f"{RESULTS_DIR}/{network.status_path}" if network.status_path else None,
            env={**network.conventions.resume_env, **self._setup.env},
            secrets=self._setup.secrets,
            gpus=self._setup.gpus,
            image=network.image,
            needs=tuple(path for path in (resume_from, start_from) if path),
        )
        return built, [asdict(a) for a in spec.adjustments]

    def _spec(self, results_dir: str, resume_from: str | None, start_from: str | None) -> Spec:
        setup, offset = self._setup, self.offset()
        return build_spec(
            setup.network,
            self.trial.config,
            results_dir=results_dir,
            num_epochs=None if setup.single_shot else setup.max_epochs - offset,
            milestones=[m - offset for m in setup.milestones if m > offset],
            gpus=setup.gpus,
            checkpoint_interval=setup.checkpoint_interval,
            resume_from=resume_from,
            start_from=start_from,
            train_sample_count=setup.train_sample_count,
        )

    def keeps(self, epoch: int) -> bool:
        """Whether the network writes a checkpoint after this epoch."""
        key = self._setup.network.conventions.checkpoint_interval_key
        spec = self._spec(RESULTS_DIR, None, None).data
        interval = get_path(spec, key, None) if key else None
        own = epoch - self.offset()
        return own > 0 and own % (interval if isinstance(interval, int) else 1) == 0

    def _resume_from(self, job: JobState, results: str) -> str | None:
        if not job.resume_epoch:
            return None
        before = [j for j in self.trial.jobs if j.segment < job.segment]
        name = self.checkpoint(job.resume_epoch, self._results(before))
        return f"{results}/{name}" if name else None

    def _start_from(self, job: JobState) -> str | None:
        start = self.trial.start
        if start is None or job.resume_epoch:
            return None
        donor = RunState.fold(self._journal.read(trial=start.trial_id)).trials[start.trial_id]
        files = self._results(donor.jobs)
        own_epoch = start.epoch - (donor.start.epoch if donor.start else 0)
        name = self._setup.network.checkpoint_name(own_epoch, files)
        if name is None:
            raise MachineLostError(
                f"the checkpoint of epoch {start.epoch} of trial {start.trial_id} is gone",
                where=f"trial {self.trial.id}",
            )
        return f"{self._platform.workspace(start.trial_id)}/{RESULTS_DIR}/{name}"


def result_files(handle: JobHandle | None) -> dict[str, int]:
    """Files below the results directory: path -> bytes."""
    files = handle.list(RESULTS_DIR) if handle else {}
    return {path.removeprefix(f"{RESULTS_DIR}/"): size for path, size in files.items()}


def read_result(handle: JobHandle | None, path: str) -> bytes:
    """A file below the results directory. FileNotFoundError if there is none."""
    if handle is None:
        raise FileNotFoundError(path)
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch, "file")
        handle.fetch(f"{RESULTS_DIR}/{path}", str(target))
        return target.read_bytes()
