"""One job from its launch to its end, outside a search: an evaluation, or whatever a user asks for.

A search's trials have supervisors of their own (`tao_ray.trial.supervisor`), which follow many
jobs of one trial; here is the short form for a job that stands alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tao_ray.network.network import Network
from tao_ray.network.spec import Spec, build_spec
from tao_ray.network.status import EpochReport, EpochUpdate, StatusEvent, StatusReader
from tao_ray.platforms.base import (
    CapacityError,
    Exit,
    Job,
    JobHandle,
    LinkError,
    LogLine,
    MachineLostError,
    Offset,
    Platform,
    StatusLine,
)
from tao_ray.trial.classify import classify, plain_lines
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.job import RESULTS_DIR

_LOG_TAIL_BYTES = 64 * 1024
_WAIT_S = 0.25
_GRACE_S = 30.0

Watch = Callable[[StatusEvent | LogLine | None], None]
"""Called with each thing that happens, and with None at least once a second. If it raises, the job
is stopped and the exception goes on."""


class JobStopped(Exception):
    """Raised by a `Watch` that wants the job to end: the user has asked the run to stop."""


@dataclass(frozen=True)
class Ended:
    """How a job ended. `failure` is None if it did what it should.

    metrics: latest value of each metric. epochs: what it reported, by epoch (empty for an action
    without epochs). seconds: from its start, as far as it was seen, to its end. log: the last lines
    of its output.
    """

    failure: Failure | None
    metrics: Mapping[str, float]
    epochs: Mapping[int, Mapping[str, float]]
    seconds: float
    log: Sequence[str] = ()


@dataclass(frozen=True)
class JobPlan:
    """What a job is built from; see `build_spec` for what is not explained here.

    workspace: its directory on the platform; jobs that share one see each other's files.
    """

    network: Network
    id: str
    workspace: str
    gpus: int
    assignment: Mapping[str, Any] = field(default_factory=dict)
    num_epochs: int | None = None
    start_from: str | None = None
    checkpoint_interval: int | None = None
    train_sample_count: int | None = None

    def results_dir(self, platform: Platform) -> str:
        """Where the job writes, as it sees it."""
        return f"{platform.workspace(self.workspace)}/{RESULTS_DIR}"

    def spec(self, platform: Platform) -> Spec:
        """The job's spec. Raises SpecError."""
        return build_spec(
            self.network,
            self.assignment,
            results_dir=self.results_dir(platform),
            num_epochs=self.num_epochs,
            gpus=self.gpus,
            start_from=self.start_from,
            checkpoint_interval=self.checkpoint_interval,
            train_sample_count=self.train_sample_count,
        )

    def job(self, platform: Platform) -> Job:
        """The job. Raises SpecError."""
        network, spec = self.network, self.spec(platform)
        name = f"{self.id}.{network.config_format}"
        return Job(
            id=self.id,
            workspace=self.workspace,
            command=network.command(f"{platform.workspace(self.workspace)}/{name}"),
            files={name: spec.render(network.config_format, secrets=True).encode()},
            status_path=f"{RESULTS_DIR}/{network.status_path}" if network.status_path else None,
            env=network.conventions.resume_env,
            gpus=self.gpus,
            image=network.image,
            needs=(self.start_from,) if self.start_from else (),
        )


def run_job(
    platform: Platform,
    plan: JobPlan,
    *,
    watch: Watch,
    metric: str | None = None,
    timeout_s: float | None = None,
) -> Ended:
    """Launch the job, or attach to it if it was launched before, and follow it to its end.

    metric: what the caller decides by. Waits as long as the platform has no room.
    Raises SpecError, PlatformError, and whatever `watch` raises.
    """
    job = plan.job(platform)
    follower = _Follower(plan.network, metric, watch, timeout_s)
    while True:
        try:
            handle = platform.launch(job)
            return follower.follow(handle)
        except MachineLostError as error:
            return follower.lost(Failure(FailureKind.MACHINE_LOST, str(error)))
        except (CapacityError, LinkError):  # the job, if it runs, may be well
            watch(None)
            time.sleep(_WAIT_S)


class _Follower:
    def __init__(self, network: Network, metric: str | None, watch: Watch, timeout_s: float | None):
        self._network = network
        self._metric = metric
        self._watch = watch
        self._timeout_s = timeout_s
        self._begun = time.monotonic()
        self._reader = StatusReader(objective=metric)
        self._epochs: dict[int, dict[str, float]] = {}

    def follow(self, handle: JobHandle) -> Ended:
        self._reader = StatusReader(objective=self._metric)
        self._epochs = {}
        log = bytearray()
        try:
            for event in handle.events(Offset()):
                if isinstance(event, StatusLine):
                    self._take(self._reader.feed(event.data))
                elif isinstance(event, LogLine):
                    log += event.data + b"\n"
                    del log[:-_LOG_TAIL_BYTES]
                    self._watch(event)
                elif isinstance(event, Exit):
                    self._take(self._reader.close())
                    lines = plain_lines(bytes(log))
                    return replace(self._ended(self._failure(event, lines)), log=lines)
                elif self._timed_out():
                    handle.stop(_GRACE_S)
                    text = f"no end after {self._timeout_s:.0f} s"
                    return self._ended(Failure(FailureKind.TIMEOUT, text))
                self._watch(None)
        except (LinkError, MachineLostError):
            raise
        except BaseException:
            handle.stop(_GRACE_S)  # nobody follows it any more
            raise
        raise AssertionError("a job's events end with its exit")

    def lost(self, failure: Failure) -> Ended:
        return self._ended(failure)

    def _ended(self, failure: Failure | None) -> Ended:
        seconds = time.monotonic() - self._begun
        return Ended(failure, dict(self._reader.metrics), self._epochs, seconds)

    def _take(self, events: list[StatusEvent]) -> None:
        for event in events:
            if isinstance(event, EpochReport):
                self._epochs[event.epoch] = dict(event.metrics)
            elif isinstance(event, EpochUpdate):
                self._epochs.setdefault(event.epoch, {}).update(event.metrics)
            self._watch(event)

    def _timed_out(self) -> bool:
        limit = self._timeout_s
        return limit is not None and time.monotonic() - self._begun > limit

    def _failure(self, end: Exit, log: list[str]) -> Failure | None:
        if end.stopped:
            return Failure(FailureKind.STOPPED_BY_USER, "the job was stopped", tuple(log[-6:]))
        if end.code != 0:
            return classify(end, self._reader.failure, log)
        network = self._network
        says_when_finished = network.package is not None and network.conventions.writes_status
        if says_when_finished and not self._reader.finished:
            return Failure(
                FailureKind.MACHINE_LOST,
                "the job ended without finishing, as if something had asked it to stop",
                tuple(log[-6:]),
            )
        return None
