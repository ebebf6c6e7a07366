"""Deletes checkpoints that nothing can need any more, beside the running search.

What may still be needed is decided from the run's state alone, in the driver: a trial that is
alive may have to resume, the best trial's checkpoint is the result, another trial's weights may
be what the algorithm starts a new one from. Each of these only ever ceases to hold, so a decision
that is carried out late is still right. Listing and deleting happen in threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.experiment.evaluation_records import BASELINE, MEASURED, PENDING, TRIAL_0
from tao_ray.journal import Event, JournalWriter
from tao_ray.network.checkpoints import CheckpointFile, find_checkpoints
from tao_ray.network.network import Network
from tao_ray.platforms.base import Platform
from tao_ray.search.base import TrialStatus, WeightsFrom
from tao_ray.search.tradeoff import pareto_front
from tao_ray.trial.job import RESULTS_DIR, result_files
from tao_ray.trial.state import PAUSED, EpochState, Objective, RunState, TrialState

AUTO, MANUAL = "auto", "manual"

BEST = "the best trial"
FRONT = "no other trial is better in every objective"
MAY_WIN = "the best epoch of a trial that may still win"
TO_EVALUATE = "it is evaluated, to judge the trial"
RESUME = "the trial may go on from it"
DONOR = "a later trial may start from its weights"
REFERENCE = "trial 0, what the winner is compared with"
UNREPORTED = "its epoch was not reported yet"
UNNEEDED = "nothing needs it"

_PARALLEL = 2
_RUNNING_EVERY_S = 1.0
_REST = 9.0
"""Times as long as the last cleaning of a running trial took, it is left alone after it."""
_RETRY_S = 30.0


@dataclass(frozen=True)
class Needs:
    """What has to stay of one trial. Epochs count as the trial's own reports do.

    job: through which its files are reached. offset: epochs its donor had trained. pinned: epochs
    whose checkpoints are needed. chosen: epochs whose checkpoint, or else the last one kept
    before it, is needed. Both say why.
    """

    job: str
    offset: int
    last_epoch: int
    alive: bool
    paused: bool
    pinned: tuple[tuple[int, str], ...] = ()
    chosen: tuple[tuple[int, str], ...] = ()

    def keep(self, checkpoints: Sequence[CheckpointFile]) -> dict[str, str]:
        """The checkpoints to keep: path -> why."""
        epochs = sorted({c.epoch + self.offset for c in checkpoints if c.epoch is not None})
        why: dict[int, str] = {}
        if self.alive:
            reported = [e for e in epochs if e <= self.last_epoch]
            why |= dict.fromkeys((e for e in epochs if e > self.last_epoch), UNREPORTED)
            # The newest may be half written while a job runs; at a rung its writing was awaited.
            at_rung = self.paused and reported[-1:] == [self.last_epoch]
            why |= dict.fromkeys(reported[-1 if at_rung else -2 :], RESUME)
        for wanted, reason in self.chosen:
            why |= dict.fromkeys([e for e in epochs if e <= wanted][-1:], reason)
        why |= {e: reason for e, reason in self.pinned if e in epochs}
        own = self.chosen[0][1] if self.chosen else (RESUME if self.alive else "")
        kept = {}
        for checkpoint in checkpoints:
            # The best one that the network keeps by itself goes with the trial.
            of_epoch = None if checkpoint.epoch is None else checkpoint.epoch + self.offset
            reason = own if of_epoch is None else why.get(of_epoch, "")
            if reason:
                kept[checkpoint.path] = reason
        return kept


def needs_of(
    state: RunState, objective: Objective, donors: Iterable[WeightsFrom], keep: int = 1
) -> dict[str, Needs]:
    """What has to stay of each trial that has had a job.

    donors: checkpoints the algorithm may still name. keep: trials whose checkpoint is a result.
    """
    trials = state.trials
    pinned: dict[str, dict[int, str]] = {trial: {} for trial in trials}
    heirs = [t.start for t in trials.values() if t.alive and t.start]
    for start in [*donors, *heirs]:
        pinned[start.trial_id][start.epoch] = DONOR
    best = _best_ended(state, objective, keep)
    final = len(best) == keep and _good(best[-1][0]) and not objective.others
    bar = _rank(best[-1]) if final else None
    chosen: dict[str, list[tuple[int, str]]] = {t.id: [(e.epoch, BEST)] for t, e in best}
    for front, at in _front(state, objective):
        chosen.setdefault(front.id, [(at.epoch, FRONT)])
    for trial in trials.values():
        judged = trial.judged(objective.at)
        guided = trial.guided(objective.at)
        if trial.alive and trial.chosen is not None:
            chosen[trial.id] = [(trial.chosen, TO_EVALUATE)]
        elif trial.alive and guided:
            chosen[trial.id] = [(guided.epoch, MAY_WIN)]
        elif trial.alive and judged and (bar is None or _rank((trial, judged)) < bar):
            chosen[trial.id] = [(judged.epoch, MAY_WIN)]
        elif trial.id == "0000" and judged and _is_reference(state):
            chosen.setdefault(trial.id, []).append((judged.epoch, REFERENCE))
    return {
        t.id: Needs(
            next((j.id for j in reversed(t.jobs) if j.launched), t.jobs[-1].id),
            t.start.epoch if t.start else 0,
            t.last_epoch,
            t.alive,
            t.status == PAUSED,
            tuple(sorted(pinned[t.id].items())),
            tuple(chosen.get(t.id, ())),
        )
        for t in trials.values()
        if t.jobs
    }


def _front(state: RunState, objective: Objective) -> list[tuple[TrialState, EpochState]]:
    """The ended trials that no other one dominates; none for a single objective."""
    if not objective.others:
        return []
    ended = [t for t in state.trials.values() if not t.alive and _good(t)]
    judged = [(t, e) for t in ended if (e := t.judged(objective.at)) is not None]
    known = [(pair, losses) for pair in judged if (losses := objective.losses(pair[1])) is not None]
    return [known[i][0] for i in pareto_front([losses for _, losses in known])]


def _best_ended(
    state: RunState, objective: Objective, keep: int
) -> list[tuple[TrialState, EpochState]]:
    """The best of those trials whose outcome is final, best first; failed ones only if all did."""
    ended = [t for t in state.trials.values() if not t.alive]
    judged = [(t, e) for t in ended if (e := t.judged(objective.at)) is not None]
    good = [pair for pair in judged if _good(pair[0])]
    return sorted(good or judged, key=_rank)[:keep]


def _good(trial: TrialState) -> bool:
    return trial.status != TrialStatus.FAILED.value


def _rank(pair: tuple[TrialState, EpochState]) -> tuple[float, str]:
    """The order of `RunState.best`."""
    trial, judged = pair
    assert judged.loss is not None
    return judged.loss, trial.id


def _is_reference(state: RunState) -> bool:
    """Trial 0 is the baseline and was not evaluated yet."""
    baseline = state.evaluations.get(BASELINE, {})
    return baseline.get("kind") == TRIAL_0 and baseline.get("status") == PENDING


class Retention:
    """Keeps a run's checkpoints few. What it deletes is journalled, kind ``deleted``."""

    def __init__(
        self,
        network: Network,
        objective: Objective,
        platform: Platform,
        journal: JournalWriter,
        *,
        mode: str = AUTO,
        keep: int = 1,
    ):
        """mode: "auto", or "manual" to delete nothing. keep: see `needs_of`."""
        self._network = network
        self._objective = objective
        self._platform = platform
        self._journal = journal
        self._mode = mode
        self._keep = keep
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="retention")
        self._at_work: dict[str, Future[None]] = {}
        self._done: dict[str, Needs] = {}
        self._next: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._held: dict[str, int] = {}
        self._unverified: dict[str, dict[str, CheckpointFile]] = {}

    def look(self, state: RunState, donors: Iterable[WeightsFrom], now: float) -> None:
        """Start to clean the trials of which less is needed than before. Returns at once.

        donors: `Conductor.donors()` of this very state.
        """
        if self._mode != AUTO:
            return
        if BASELINE not in self._at_work and _is_done_with(state):
            self._at_work[BASELINE] = self._pool.submit(self._clean_baseline, state)
        for trial_id, needs in needs_of(state, self._objective, donors, self._keep).items():
            running = self._at_work.get(trial_id)
            if running is not None and not running.done():
                continue
            settled = needs.alive or all(job.ended for job in state.trials[trial_id].jobs)
            if self._done.get(trial_id) == needs or not settled:
                continue
            due = self._next.get(trial_id, 0.0) + _REST * self._took.get(trial_id, 0.0)
            if now >= due or not needs.alive:
                failed = running is not None and running.exception() is not None
                self._next[trial_id] = now + (_RETRY_S if failed else _RUNNING_EVERY_S)
                self._at_work[trial_id] = self._pool.submit(self.clean, trial_id, needs)

    def clean(self, trial_id: str, needs: Needs) -> None:
        """Delete what is not needed of a trial, verify and journal it. Raises PlatformError."""
        began = time.monotonic()
        checkpoints = self._checkpoints(needs.job)
        self._held[trial_id] = sum(c.bytes for c in checkpoints)
        kept = needs.keep(checkpoints)
        unneeded = [c for c in checkpoints if c.path not in kept]
        if unneeded or trial_id in self._unverified:
            before = dict(self._held)
            gone, after = self._delete(trial_id, needs.job, unneeded)
            self._held[trial_id] = sum(c.bytes for c in after)
            held = {"held": before[trial_id], "held_by_all": sum(before.values())}
            self._journal.append(Event("deleted", trial_id, {**_record(gone), **held}))
            _refuse_left(unneeded, after, f"trial {trial_id}")
        self._took[trial_id] = time.monotonic() - began
        self._done[trial_id] = needs

    def finish(self, state: RunState, donors: Iterable[WeightsFrom]) -> list[str]:
        """Clean every trial a last time and journal what was kept and why (kind ``kept``).

        Call it when no job runs and the final evaluation is done. Returns what could not be
        done, one text each.
        """
        self._pool.shutdown(wait=True)
        problems, kept = [], []
        if self._mode == AUTO and _is_done_with(state):
            try:
                self._clean_baseline(state)
            except TaoRayError as error:
                problems.append(f"retention: {error}")
        for trial_id, needs in needs_of(state, self._objective, donors, self._keep).items():
            try:
                if self._mode == AUTO:
                    self.clean(trial_id, needs)
                kept += self._kept(trial_id, needs)
            except TaoRayError as error:
                problems.append(f"retention: {error}")
        data = {"mode": self._mode, "kept": kept, "held_by_all": sum(self._held.values())}
        self._journal.append(Event("kept", data=data))
        return problems

    def _clean_baseline(self, state: RunState) -> None:
        """Delete the checkpoints of a baseline that was trained and measured."""
        job = state.evaluations[BASELINE]["trained_by"]
        checkpoints = self._checkpoints(job)
        if checkpoints or BASELINE in self._unverified:
            gone, after = self._delete(BASELINE, job, checkpoints)
            self._journal.append(Event("deleted", data={**_record(gone), "job": job}))
            _refuse_left(checkpoints, after, f"job {job}")

    def _delete(
        self, whose: str, job: str, unneeded: Sequence[CheckpointFile]
    ) -> tuple[list[CheckpointFile], list[CheckpointFile]]:
        """Delete checkpoints and list again. Returns those that are gone, with those of an
        earlier attempt that lost contact before it could verify them, and those that are left."""
        asked = self._unverified.setdefault(whose, {})
        asked |= {c.path: c for c in unneeded}
        if unneeded:
            handle = self._platform.attach(job)
            assert handle is not None  # it has just listed its files
            for checkpoint in unneeded:
                handle.remove(f"{RESULTS_DIR}/{checkpoint.path}")
        after = self._checkpoints(job)
        del self._unverified[whose]
        left = {c.path for c in after}
        return [c for c in asked.values() if c.path not in left], after

    def _kept(self, trial_id: str, needs: Needs) -> list[dict[str, Any]]:
        checkpoints = self._checkpoints(needs.job)
        self._held[trial_id] = sum(c.bytes for c in checkpoints)
        why = needs.keep(checkpoints)
        results = f"{self._platform.workspace(trial_id)}/{RESULTS_DIR}"
        return [
            {
                "trial": trial_id,
                "path": f"{results}/{c.path}",
                "epoch": None if c.epoch is None else c.epoch + needs.offset,
                "bytes": c.bytes,
                "why": why.get(c.path, UNNEEDED),
            }
            for c in checkpoints
        ]

    def _checkpoints(self, job: str) -> list[CheckpointFile]:
        files = result_files(self._platform.attach(job))
        return find_checkpoints(self._network.conventions, files)


def _is_done_with(state: RunState) -> bool:
    """The baseline is a training of its own, and was measured."""
    baseline = state.evaluations.get(BASELINE, {})
    return bool(baseline.get("trained_by")) and baseline.get("status") == MEASURED


def _record(gone: Sequence[CheckpointFile]) -> dict[str, Any]:
    return {"paths": [c.path for c in gone], "bytes": sum(c.bytes for c in gone)}


def _refuse_left(
    unneeded: Sequence[CheckpointFile], after: Sequence[CheckpointFile], where: str
) -> None:
    left = {c.path for c in after}
    paths = [c.path for c in unneeded if c.path in left]
    if paths:
        raise TaoRayError(
            f"checkpoints are still there after they were deleted: {', '.join(paths)}",
            where=where,
            remedy="delete them by hand",
        )


def retention_summary(state: RunState) -> Mapping[str, Any] | None:
    """What `result.json` says of retention; None for a run that has not ended with one.

    Peaks are of checkpoints alone, as seen when something was about to be deleted.
    """
    if state.kept is None:
        return None
    kept = state.kept["kept"]
    last: dict[str, int] = {}
    for entry in kept:
        last[entry["trial"]] = last.get(entry["trial"], 0) + entry["bytes"]
    peaks = {
        t.id: max(t.peak_bytes, last.get(t.id, 0))
        for t in state.trials.values()
        if t.peak_bytes or t.id in last
    }
    return {
        "mode": state.kept["mode"],
        "kept": kept,
        "kept_bytes": sum(entry["bytes"] for entry in kept),
        "deleted_checkpoints": state.deleted + sum(t.deleted for t in state.trials.values()),
        "deleted_bytes": state.deleted_bytes + sum(t.deleted_bytes for t in state.trials.values()),
        "peak_bytes": max(state.peak_bytes, state.kept["held_by_all"]),
        "peak_bytes_per_trial": peaks,
    }
