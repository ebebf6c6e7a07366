"""Copies off rented machines: what of a trial is still needed when its machine goes.

While a trial runs, its newest checkpoint is copied every few epochs, if that takes no more than a
tenth of the time; when a job has ended, whatever
`retention` says is needed of its trial, and its records. A machine is kept until that is done, and
a driver that takes over goes on with what it finds undone in the journal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from tao_ray.experiment.retention import RESUME, UNREPORTED, Needs, needs_of
from tao_ray.network.checkpoints import find_checkpoints
from tao_ray.network.network import Network
from tao_ray.platforms.base import KeepsCopies, LinkError, Platform
from tao_ray.platforms.kept import is_below
from tao_ray.platforms.ledger import Lease
from tao_ray.search.base import WeightsFrom
from tao_ray.trial.job import RESULTS_DIR, result_files
from tao_ray.trial.state import PAUSED, Objective, RunState

_PARALLEL = 3
_RETRY_S = 10.0
_PATIENCE_S = 60.0
_AGAIN_S = 2.0
_REST = 9.0
"""Times as long as the last copy of a running trial took, nothing more of it is copied."""


class Keeper:
    """Does nothing on platforms whose files stay.

    sync_every: epochs between two copies of a running trial. keep: see `needs_of`.
    """

    def __init__(
        self, network: Network, objective: Objective, platform: Platform, sync_every: int, keep: int
    ):
        self._network = network
        self._objective = objective
        self._platform = platform
        self._keeper = platform if isinstance(platform, KeepsCopies) else None
        self._sync_every = sync_every
        self._keep = keep
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="keep")
        self._at_work: dict[str, Future[None]] = {}
        self._synced: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._rested: dict[str, float] = {}

    def look(self, state: RunState, donors: Iterable[WeightsFrom]) -> None:
        """Start the copies that are due. Returns at once. donors: as for `needs_of`."""
        if self._keeper is None:
            return
        donors = list(donors)
        for lease in state.ledger.leases.values():
            if self._is_busy(lease.workspace) or self._failed_lately(lease.workspace):
                continue
            if lease.returned is None:
                trial = state.trials.get(lease.workspace)
                done = self._synced.get(lease.job, 0)
                if trial is None or trial.last_epoch < max(done, 1) + self._sync_every:
                    continue
                if time.monotonic() < self._rested.get(lease.job, 0.0):
                    continue
                self._synced[lease.job] = trial.last_epoch - 1
            elif lease.settled or not _is_over(state, lease):
                continue
            self._begin(state, lease, donors)

    def finish(self, state: RunState, donors: Iterable[WeightsFrom]) -> list[str]:
        """Copy what is not copied yet, when no job runs any more; what failed, one text each.

        A machine to which there is no link gets time to come back: it is deleted after this.
        """
        donors = list(donors)
        failed: dict[str, BaseException] = {}
        if self._keeper is not None:
            for future in list(self._at_work.values()):
                future.exception()
            undone = [x for x in state.ledger.leases.values() if not x.settled]
            give_up = time.monotonic() + _PATIENCE_S
            while undone:
                for lease in undone:
                    failed.pop(lease.job, None)
                failed |= self._copy_all(state, undone, donors)
                undone = [x for x in undone if isinstance(failed.get(x.job), LinkError)]
                if not undone or time.monotonic() > give_up:
                    break
                time.sleep(_AGAIN_S)
        self._pool.shutdown(wait=True)
        return [f"job {j} was not copied off its machine: {error}" for j, error in failed.items()]

    def _copy_all(
        self, state: RunState, leases: list[Lease], donors: list[WeightsFrom]
    ) -> dict[str, BaseException]:
        """Copy what these jobs left; what failed, by job."""
        for lease in leases:
            self._begin(state, lease, donors)
        failed = {}
        for lease in leases:
            copy = self._at_work.get(lease.workspace)
            error = copy.exception() if copy is not None else None
            if error is not None:
                failed[lease.job] = error
        return failed

    def _is_busy(self, workspace: str) -> bool:
        at_work = self._at_work.get(workspace)
        return at_work is not None and not at_work.done()

    def _failed_lately(self, workspace: str) -> bool:
        """The last copy failed, and it is too early for another attempt."""
        copy = self._at_work.get(workspace)
        if copy is None or copy.exception() is None:
            self._not_before.pop(workspace, None)
            return False
        due = self._not_before.setdefault(workspace, time.monotonic() + _RETRY_S)
        if time.monotonic() < due:
            return True
        del self._not_before[workspace]
        return False

    def _begin(self, state: RunState, lease: Lease, donors: list[WeightsFrom]) -> None:
        if not state.ledger.machines[lease.machine].exists:
            return
        needs = needs_of(state, self._objective, donors, self._keep).get(lease.workspace)
        before = self._at_work.get(lease.workspace)
        running = lease.returned is None
        self._at_work[lease.workspace] = self._pool.submit(
            self._copy, lease.job, needs, running, before
        )

    def _copy(
        self, job_id: str, needs: Needs | None, running: bool, before: Future[None] | None
    ) -> None:
        assert self._keeper is not None
        if before is not None:
            before.exception()  # one at a time for each trial
        began = time.monotonic()
        files = result_files(self._platform.attach(job_id))
        wanted = self._wanted(files, needs, running) if needs else ()
        paths = [file for file in files for path in wanted if is_below(file, path)]
        kept = [f"{RESULTS_DIR}/{path}" for path in paths]
        self._keeper.keep(job_id, kept, last=not running)
        if running:
            now = time.monotonic()
            self._rested[job_id] = now + _REST * (now - began)

    def _wanted(self, files: Mapping[str, int], needs: Needs, running: bool) -> set[str]:
        """Paths of the checkpoints to copy."""
        checkpoints = find_checkpoints(self._network.conventions, files)
        why = needs.keep(checkpoints)
        complete = [
            c
            for c in checkpoints
            if why.get(c.path, UNREPORTED) != UNREPORTED
            and not (running and (c.epoch is None or c.epoch + needs.offset >= needs.last_epoch))
        ]
        newest = max((c.epoch for c in complete if c.epoch is not None), default=None)
        return {c.path for c in complete if why[c.path] != RESUME or c.epoch == newest}


def _is_over(state: RunState, lease: Lease) -> bool:
    """Nothing more will be reported of the lease's job, and its end is on record."""
    trial = state.trials.get(lease.workspace)
    if trial is None:
        return True  # an evaluation's
    job = next((j for j in trial.jobs if j.id == lease.job), None)
    if job is None or job.ended is None:
        return False
    return not trial.trains or trial.status == PAUSED or job.retired or job is not trial.last_job
