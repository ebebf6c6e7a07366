"""The status.json stream of a TAO job, turned into events.

A TAO job appends one JSON object per line. What the lines mean, and what this reader makes of it:

* A job that is started again in the same directory appends after the old lines. A ``STARTED``
  line that opens a launch gives `Started` and a new launch number.
* Within an epoch TAO writes ``Eval metrics generated.`` (validation values, without an epoch
  number), then the epoch's own line (it carries ``epoch``), then ``Train metrics generated.``.
  The validation values therefore belong to the *next* epoch line, the training values to the
  epoch line before them.
* ``kpi`` is sticky: every line repeats the last one until it is replaced. So a metric that has
  a line of its own is taken from nowhere else, and an epoch without validation has no value.
  Only networks that write their values on the epoch line itself have them read from there.
* Numbers may be strings, ``NaN`` and ``Infinity`` stand bare, metric names are any text, and a
  killed job may leave half a line that the next launch's first line is glued to.

The time texts are not padded and are never used for ordering.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_TRAIN_METRICS = "Train metrics generated."
_TRAINING_STARTS = "Starting Training Loop."
_FINISHED = re.compile(r"finished successfully\.?$")
_DURATION = re.compile(r"(?:(\d+) days?, )?(\d+):(\d+):(\d+(?:\.\d+)?)$")


@dataclass(frozen=True)
class Started:
    """A launch of the job began; earlier `finished` and `failure` no longer count."""

    message: str
    launch: int


@dataclass(frozen=True)
class EpochReport:
    """A completed epoch.

    epoch: counted from 1. metrics: name -> value of this very epoch (NaN and infinities kept);
    no validation metric if the epoch was not validated. seconds: time it took, if stated.
    max_epochs: epochs of the whole training, if stated. launch: counted from 1; an epoch that
    a relaunch repeats is reported again with the newer launch.
    """

    epoch: int
    metrics: Mapping[str, float]
    seconds: float | None
    max_epochs: int | None
    launch: int


@dataclass(frozen=True)
class EpochUpdate:
    """Training metrics of an epoch that was reported a moment earlier."""

    epoch: int
    metrics: Mapping[str, float]
    launch: int


@dataclass(frozen=True)
class Failure:
    """The network itself states that this launch failed."""

    message: str
    launch: int


@dataclass(frozen=True)
class Finished:
    """The network itself states that this launch ended well."""

    message: str
    launch: int


StatusEvent = Started | EpochReport | EpochUpdate | Failure | Finished


@dataclass
class StatusReader:
    """Reads one job's status.json from its first byte on, in pieces of any size.

    Feed it the whole stream, also after a crash of the caller: what a line means depends on the
    lines before it, so a reader that starts in the middle would misjudge sticky values.

    An epoch is reported at its own line, because that is when its value is known; training
    metrics follow as an `EpochUpdate`. If `objective` is a training metric the report waits for
    the line that carries it. It never waits for a network that is known to validate the
    objective, nor for one that does not write training metrics right after the epoch line.

    objective: the metric the caller decides by. first_epoch: the number that the network writes
    for the first epoch (Lightning counts from 0).
    """

    objective: str | None = None
    first_epoch: int = 0
    launch: int = field(default=0, init=False)
    finished: bool = field(default=False, init=False)
    failure: str | None = field(default=None, init=False)
    metrics: dict[str, float] = field(default_factory=dict, init=False)
    """Latest value of every metric of this launch: the result of an action without epochs."""
    unreadable_lines: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._tail = b""
        self._names: dict[str, None] = {}
        self._own_line: set[str] = set()  # metrics that come on lines without an epoch
        self._validated: set[str] = set()  # those of them that come before the epoch line
        self._next_epoch: dict[str, float] = {}  # values waiting for their epoch line
        self._awaiting: EpochReport | None = None  # epoch whose training metrics may follow
        self._held = False  # that epoch is not reported yet
        self._training = False  # this launch has come as far as its training loop
        self._writes_train_metrics = True

    @property
    def metric_names_seen(self) -> tuple[str, ...]:
        """Every metric name met so far, in order of appearance."""
        return tuple(self._names)

    def feed(self, data: bytes) -> list[StatusEvent]:
        """Take the next bytes; the events of every line they complete."""
        *lines, self._tail = (self._tail + data).split(b"\n")
        return [event for line in lines for event in self._line(line)]

    def close(self) -> list[StatusEvent]:
        """The stream has ended: the events of an unterminated last line and of a held epoch."""
        tail, self._tail = self._tail, b""
        return [*self._line(tail), *self._release()]

    def _line(self, line: bytes) -> list[StatusEvent]:
        if not line.strip():
            return []
        record = _parse(line.decode("utf-8", errors="replace"))
        if record is None:
            self.unreadable_lines += 1
            return []
        message = str(record.get("message", ""))
        status = record.get("status")
        kpi = _numbers(record.get("kpi"))
        self._names.update(dict.fromkeys(kpi))

        if status == "STARTED":
            return [*self._release(), *self._start(message)]
        self.metrics.update(kpi)
        if status == "FAILURE":
            self.failure = message
            return [*self._release(), Failure(message, self.launch)]
        if _FINISHED.search(message):
            self.finished = True
            return [*self._release(), Finished(message, self.launch)]
        if "epoch" in record:
            return [*self._release(next_epoch=True), *self._epoch(record, kpi)]
        if message == _TRAIN_METRICS:
            self._own_line.update(kpi)
            return self._train_metrics(kpi)
        if message.endswith("metrics generated."):
            self._own_line.update(kpi)
            self._validated.update(kpi)
            self._next_epoch.update(kpi)
            return self._release(next_epoch=True)
        return self._release()

    def _start(self, message: str) -> list[StatusEvent]:
        if message == _TRAINING_STARTS and self.launch > 0 and not self._training:
            self._training = True
            return []
        self.launch += 1
        self.finished, self.failure = False, None
        self._training = message == _TRAINING_STARTS
        self.metrics.clear()
        self._next_epoch.clear()
        return [Started(message, self.launch)]

    def _epoch(self, record: Mapping[str, Any], kpi: Mapping[str, float]) -> list[StatusEvent]:
        number = _number(record["epoch"])
        if number is None or not number.is_integer():
            return []  # progress within an epoch
        self._training = True
        metrics = {k: v for k, v in kpi.items() if k not in self._own_line} | self._next_epoch
        train_metrics_came_first = bool(self._next_epoch.keys() - self._validated)
        self._next_epoch.clear()
        last = _number(record.get("max_epoch"))
        if last is not None and record.get("message") != _TRAIN_METRICS:
            last += 1 - self.first_epoch  # Lightning names the last epoch, other loops count them
        report = EpochReport(
            epoch=int(number) + 1 - self.first_epoch,
            metrics=metrics,
            seconds=_seconds(record.get("time_per_epoch")),
            max_epochs=None if last is None else int(last),
            launch=self.launch,
        )
        self._awaiting = None if train_metrics_came_first else report
        self._held = (
            self._awaiting is not None
            and self.objective is not None
            and self.objective not in metrics
            and self.objective not in self._validated
            and self._writes_train_metrics
        )
        return [] if self._held else [report]

    def _train_metrics(self, kpi: dict[str, float]) -> list[StatusEvent]:
        report, held = self._awaiting, self._held
        self._awaiting, self._held = None, False
        self._writes_train_metrics = True
        if report is None:
            self._next_epoch.update(kpi)
            return []
        if held:
            return [replace(report, metrics={**report.metrics, **kpi})]
        return [EpochUpdate(report.epoch, kpi, report.launch)]

    def _release(self, next_epoch: bool = False) -> list[StatusEvent]:
        """A line other than training metrics: those of the last epoch will not come any more.

        next_epoch: the training went on without them, so this network writes none.
        """
        report, held = self._awaiting, self._held
        self._awaiting, self._held = None, False
        if report is not None and next_epoch:
            self._writes_train_metrics = False
        return [report] if report is not None and held else []


def _parse(text: str) -> dict[str, Any] | None:
    """The JSON object a line holds, or ends with if a torn line was left before it."""
    start = text.find("{")
    while start >= 0:
        try:
            record = json.loads(text[start:])
        except ValueError:
            pass
        else:
            if isinstance(record, dict) and "status" in record:
                return record
        start = text.find('{"', start + 1)
    return None


def _numbers(kpi: object) -> dict[str, float]:
    if not isinstance(kpi, Mapping):
        return {}
    values = ((str(name), _number(value)) for name, value in kpi.items())
    return {name: value for name, value in values if value is not None}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _seconds(text: object) -> float | None:
    """Seconds of a duration as Python prints it: ``1 day, 0:00:02.088989``."""
    match = _DURATION.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
