"""Supervises the jobs of one trial: launches or attaches, follows the stream, stops. No Ray.

A trial may take several jobs (*segments*): one more after each pause, interruption or loss. The
journal says where the trial stands, the platform says what became of its job; nothing is kept
here, so a new supervisor goes on where a killed one was.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.journal import Event, JournalWriter
from tao_ray.network.network import Network
from tao_ray.network.status import EpochReport, EpochUpdate, StatusEvent, StatusReader
from tao_ray.platforms.base import (
    CapacityError,
    Exit,
    JobHandle,
    LinkError,
    LogLine,
    MachineLostError,
    Offset,
    Platform,
    StatusLine,
)
from tao_ray.platforms.base import Event as PlatformEvent
from tao_ray.trial.classify import classify, kind_of_error, plain_lines
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.job import TrialJobs, read_result, result_files
from tao_ray.trial.setup import Epoch, Idle, News, Outcome, TrialSetup
from tao_ray.trial.sources import LogPattern, Report
from tao_ray.trial.state import PAUSED, JobState, RunState

_LOG_TAIL_BYTES = 64 * 1024
_CHECKPOINT_WAIT_S = 15.0
_CHECKPOINT_POLL_S = 0.1
_SLOT_POLL_S = 0.25


class Supervisor:
    """Runs one trial. Not thread-safe."""

    def __init__(
        self,
        trial_id: str,
        setup: TrialSetup,
        platform: Platform,
        journal: JournalWriter,
        clock: Callable[[], float] = time.time,
    ):
        self.trial_id = trial_id
        self._setup = setup
        self._platform = platform
        self._journal = journal
        self._clock = clock
        self._trial = RunState.fold(journal.read(trial=trial_id)).trials[trial_id]
        self._jobs = TrialJobs(self._trial, setup, platform, journal)
        self._job: JobState | None = None
        self._handle: JobHandle | None = None
        self._events: Iterator[PlatformEvent] = iter(())
        self._reader = self._status_reader()
        self._news: deque[News] = deque()
        self._log_tail = bytearray()
        self._late: dict[int, Mapping[str, float]] = {}
        self._reported = self._trial.last_epoch
        self._found: list[float] = []
        """The objective's values this job's source gave, in order."""
        self._read: set[str] = set()
        self._awaited = ""

    def next(self, timeout_s: float) -> News:
        """What comes next, or `Idle` when that takes longer than `timeout_s` seconds.

        After an `Outcome`, calling again starts another job from the last checkpoint.
        """
        deadline = time.monotonic() + timeout_s
        try:
            if self._handle is None and not self._news:
                self.refresh()
                if not self._trial.trains or self._trial.status == PAUSED:
                    # Its supervising process was started again after the decision.
                    self.put_away()
                    return Idle()
                if not self._start():
                    time.sleep(min(timeout_s, _SLOT_POLL_S))
                    return Idle(self._awaited)
            while self._handle and not self._news and time.monotonic() < deadline:
                self._take(next(self._events))
        except MachineLostError as error:
            if self._handle is not None:
                self._ended(Exit(None, detail=str(error)))
            self._news.append(Outcome(Failure(FailureKind.MACHINE_LOST, str(error))))
        except LinkError as error:
            self._handle = None  # the job may be well: attach again
            return Idle(f"the link: {error.message}")
        except TaoRayError as error:
            self._news.append(Outcome(Failure(kind_of_error(error), str(error))))
        return self._news.popleft() if self._news else Idle()

    def stop(self) -> None:
        """Stop the job if it runs, once the checkpoint of the last reported epoch is there."""
        if self._handle is not None and self._job is not None:
            self._finish(self._handle, self._job)
            self._handle = None

    # -- starting -----------------------------------------------------------------------------

    def _start(self) -> bool:
        """Attach to the trial's job or launch the next one. False if there is no room now."""
        job = self._trial.last_job
        if job is not None and job.ended is None and not job.retired:
            handle = self._platform.attach(job.id)
            if handle is not None and not _was_stopped(handle):
                return self._follow(handle, job)
        if job is not None and job.ended is None:
            self._put_away(job)
        if job is not None and not job.retired and self._take_unread(job):
            return True
        if job is None or job.ended is not None or job.retired:
            job = self._intend(job)
        built, adjustments = self._jobs.build(job)
        try:
            handle = self._platform.launch(built)
        except CapacityError as error:
            self._awaited = error.message
            return False
        if job.launched is None:
            self._record("launched", job=job.id, adjustments=adjustments)
        return self._follow(handle, self._last(job))

    def _follow(self, handle: JobHandle, job: JobState) -> bool:
        self._handle, self._job = handle, job
        self._reader = self._status_reader()
        self._log_tail.clear()
        self._found.clear()
        # status.json is small: reading it from the start leaves no half-known state to journal.
        self._events = handle.events(Offset())
        return True

    def _take_unread(self, job: JobState) -> bool:
        """Report what an ended job wrote after it was last listened to; whether that was anything.

        A job that was stopped, or that ended while no driver lived, may have completed epochs
        that nobody has heard of.
        """
        handle = self._platform.attach(job.id)
        if handle is None or job.id in self._read:
            return False
        self._read.add(job.id)
        self._job, self._reader = job, self._status_reader()
        self._found.clear()
        for event in handle.events(Offset(), logs=isinstance(self._setup.source, LogPattern)):
            if isinstance(event, StatusLine):
                self._report(self._reader.feed(event.data), event.written)
            elif isinstance(event, LogLine):
                self._report_line(event.data)
        self._report(self._reader.close(), None)
        return bool(self._news)

    def put_away(self) -> None:
        """End the trial's last job, wherever it runs, if nobody has recorded its end."""
        job = self._trial.last_job
        if job is not None and job.ended is None:
            self._put_away(job)

    def _put_away(self, job: JobState) -> None:
        handle = self._platform.attach(job.id)
        if handle is not None:
            self._finish(handle, job)
        elif job.retired or not self._trial.trains:
            self._record("job_end", job=job.id, code=None, signal=None, stopped=False)

    def _intend(self, last: JobState | None) -> JobState:
        """Journal the next job before anything of it exists."""
        segment = last.segment + 1 if last else 1
        job_id = f"{self.trial_id}-{segment}"
        resume_epoch = self._jobs.last_checkpoint() or 0
        if last is not None and not resume_epoch:
            # TAO resumes by itself from whatever checkpoint lies there: of an epoch that was
            # never reported, for instance.
            self._jobs.clear_results(last)
        self._record("job", job=job_id, segment=segment, resume_epoch=resume_epoch)
        assert self._trial.last_job is not None
        return self._trial.last_job

    def _last(self, job: JobState) -> JobState:
        return next(j for j in self._trial.jobs if j.id == job.id)

    # -- following ----------------------------------------------------------------------------

    def _take(self, event: PlatformEvent) -> None:
        if isinstance(event, StatusLine):
            self._report(self._reader.feed(event.data), event.written)
        elif isinstance(event, LogLine):
            self._log_tail += event.data + b"\n"
            del self._log_tail[:-_LOG_TAIL_BYTES]
            self._report_line(event.data)
        elif isinstance(event, Exit) and event.stopped:
            self._ended(event)  # not by itself: the trial can go on in another job
        elif isinstance(event, Exit):
            self._report(self._reader.close(), None)
            if event.code == 0 or self._setup.source is None:
                self._report_end()
            self._news.append(Outcome(self._failure(event), self._take_late()))
            self._ended(event)
        elif self._timed_out():
            assert self._handle is not None
            self._ended(self._handle.stop(self._setup.grace_s))
            text = f"no end after {self._setup.job_timeout_s:.0f} s"
            self._news.append(Outcome(Failure(FailureKind.TIMEOUT, text)))

    def _report(self, events: list[StatusEvent], seen: float | None) -> None:
        for event in events:
            if isinstance(event, EpochReport):
                epoch = event.epoch + self._jobs.offset()
                if epoch > self._reported and not isinstance(self._setup.source, LogPattern):
                    metrics = self._with_objective(epoch, event.metrics)
                    self._say_epoch(epoch, metrics, event.seconds, seen)
            elif isinstance(event, EpochUpdate):
                self._late[event.epoch + self._jobs.offset()] = event.metrics

    def _report_line(self, line: bytes) -> None:
        """Take the objective from a line of output, where that is its source."""
        source = self._setup.source
        if not isinstance(source, LogPattern):
            return
        for text in plain_lines(line):
            if (match := source.match(text)) is None:
                continue
            own, value = match
            self._found.append(value)
            assert self._job is not None
            before = self._job.resume_epoch or self._jobs.offset()
            epoch = before + len(self._found) if own is None else self._jobs.offset() + own
            if epoch > self._reported and not self._setup.single_shot:
                metrics = {**self._reader.metrics, self._setup.metric: value}
                self._say_epoch(epoch, metrics, None, None)

    def _report_end(self) -> None:
        """The one result of an action without epochs, or of a network that reports none."""
        setup = self._setup
        by_file = setup.source is not None and not isinstance(setup.source, LogPattern)
        if setup.single_shot:
            metrics = self._with_objective(1, self._reader.metrics)
            if metrics:
                self._say_epoch(1, metrics, None, None)
        elif by_file and not setup.network.conventions.writes_status:
            metrics = self._with_objective(setup.max_epochs, {})
            if metrics:
                self._say_epoch(setup.max_epochs, metrics, None, None)

    def _with_objective(self, epoch: int, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """The metrics, and the objective if its source has a value for it now."""
        source = self._setup.source
        if source is None:
            return metrics
        if isinstance(source, LogPattern):
            value = self._found[-1] if self._found else None
        else:
            value = source.value(self._facts(epoch, metrics))
            self._found += [] if value is None else [value]
        return metrics if value is None else {**metrics, self._setup.metric: value}

    def _facts(self, epoch: int, metrics: Mapping[str, float]) -> Report:
        return Report(epoch, dict(metrics), plain_lines(bytes(self._log_tail)), self._read_result)

    def _read_result(self, path: str) -> bytes:
        """A file below the results directory. FileNotFoundError if there is none."""
        assert self._job is not None
        return read_result(self._platform.attach(self._job.id), path)

    def _status_reader(self) -> StatusReader:
        return StatusReader(objective=None if self._setup.source else self._setup.metric)

    def _say_epoch(
        self, epoch: int, metrics: Mapping[str, float], seconds: float | None, seen: float | None
    ) -> None:
        assert self._job is not None
        self._reported = epoch
        late = self._take_late()
        self._news.append(Epoch(epoch, dict(metrics), seconds, self._job.id, seen, late))

    def _take_late(self) -> dict[int, Mapping[str, float]]:
        late, self._late = self._late, {}
        return late

    def _timed_out(self) -> bool:
        assert self._job is not None
        limit = self._setup.job_timeout_s
        return limit is not None and self._clock() - (self._job.launched or self._clock()) > limit

    def _failure(self, end: Exit) -> Failure | None:
        """Why the job that ended is not a success; None if it is one."""
        setup, reader = self._setup, self._reader
        log = plain_lines(bytes(self._log_tail))
        if end.code == 0:
            if not reader.finished and _says_when_finished(setup.network):
                return Failure(
                    FailureKind.MACHINE_LOST,
                    "the job ended without finishing, as if something had asked it to stop",
                    tuple(log[-6:]),
                )
            if setup.source is not None and not self._measured():
                facts = self._facts(max(self._reported, 1), reader.metrics)
                why = setup.source.missing(facts)
                return Failure(
                    FailureKind.METRIC_MISSING, f"{setup.metric}: {why}", tuple(log[-6:])
                )
            if self._reported <= self._jobs.offset():
                return Failure(
                    FailureKind.DATA, "the job finished without one epoch", tuple(log[-6:])
                )
            if not self._measured():
                return Failure(
                    FailureKind.METRIC_MISSING,
                    f"{setup.metric} never appeared; seen: {_names(reader)}",
                )
            return None
        return classify(end, reader.failure, log)

    def _measured(self) -> bool:
        """Whether the objective was measured, by this job or an earlier one."""
        setup = self._setup
        own = setup.metric in self._reader.metric_names_seen or bool(self._found)
        return (
            own
            or not setup.metric_required
            or bool(self._trial.measured() or self._trial.guided("last"))
        )

    # -- ending -------------------------------------------------------------------------------

    def _finish(self, handle: JobHandle, job: JobState) -> None:
        self._await_checkpoint(handle)
        self._record_end(job, handle.stop(self._setup.grace_s))

    def _await_checkpoint(self, handle: JobHandle) -> None:
        """Wait until the checkpoint of the last reported epoch is written in full.

        The network writes it moments after the epoch's line, and a paused trial goes on from it.
        Two looks, as a rule: the slot is wanted, and each look is a journey to the machine.
        """
        if self._setup.single_shot or not self._jobs.keeps(self._reported):
            return
        deadline = time.monotonic() + _CHECKPOINT_WAIT_S
        size = None
        while time.monotonic() < deadline:
            files = result_files(handle)
            name = self._jobs.checkpoint(self._reported, files)
            if name is not None and files[name] == size:
                return
            if name is None and handle.poll() is not None:
                return
            size = files[name] if name is not None else None
            time.sleep(_CHECKPOINT_POLL_S)

    def _ended(self, end: Exit) -> None:
        assert self._job is not None
        self._record_end(self._job, end)
        self._handle = None

    def _record_end(self, job: JobState, end: Exit) -> None:
        if job.ended is None:
            self._record(
                "job_end", job=job.id, code=end.code, signal=end.signal, stopped=end.stopped
            )

    def _record(self, kind: str, **data: Any) -> None:
        """Journal a fact of this trial, then take in whatever else was journalled about it."""
        self._journal.append(Event(kind, self.trial_id, data))
        self.refresh()

    def refresh(self) -> None:
        """Take in what the driver has journalled about this trial."""
        state = RunState.fold(self._journal.read(trial=self.trial_id))
        self._trial = self._jobs.trial = state.trials[self.trial_id]
        if self._job is not None:
            self._job = self._last(self._job)


def _was_stopped(handle: JobHandle) -> bool:
    """The job was asked to stop by a driver that did not live to record it."""
    end = handle.poll()
    return end is not None and end.stopped


def _says_when_finished(network: Network) -> bool:
    """Every TAO network ends with a message; of a command without a package nothing is known."""
    return network.package is not None and network.conventions.writes_status


def _names(reader: StatusReader) -> str:
    return ", ".join(sorted(reader.metric_names_seen)) or "no metric at all"
