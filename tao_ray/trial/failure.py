"""Why a trial failed: one kind per cause, with what to do about it and whether to try again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tao_ray.platforms.base import Exit


class FailureKind(str, Enum):
    """Causes of failure. Infrastructure kinds say nothing about the configuration tried."""

    CAPACITY = "capacity"
    PROVISION = "provision"
    LINK = "link"
    MACHINE_LOST = "machine_lost"
    CREDENTIALS = "credentials"
    IMAGE_ACCESS = "image_access"
    IMAGE_MISSING = "image_missing"
    DISK_FULL = "disk_full"
    DATA = "data"
    SPEC = "spec"
    OOM = "oom"
    NAN = "nan"
    METRIC_MISSING = "metric_missing"
    CODE = "code"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    STOPPED_BY_USER = "stopped_by_user"

    @property
    def retried(self) -> bool:
        """Tried again from the last checkpoint, without the search hearing of it."""
        return self in _RETRIED

    @property
    def cause(self) -> str:
        """What it means, in a few words."""
        return _TEXT[self][0]

    @property
    def remedy(self) -> str:
        """What a user can do."""
        return _TEXT[self][1]


_RETRIED = {
    FailureKind.CAPACITY,
    FailureKind.PROVISION,
    FailureKind.LINK,
    FailureKind.MACHINE_LOST,
}

_TEXT: dict[FailureKind, tuple[str, str]] = {
    FailureKind.CAPACITY: (
        "no free machine or GPU",
        "lower search.max_concurrent, or wait until something is free",
    ),
    FailureKind.PROVISION: (
        "a machine could not be made ready",
        "try another machine type or provider",
    ),
    FailureKind.LINK: (
        "the link to the machine broke",
        "check the network, then go on with --resume",
    ),
    FailureKind.MACHINE_LOST: (
        "the job or its machine vanished",
        "look for a reboot or an out-of-memory kill on that host, then go on with --resume",
    ),
    FailureKind.CREDENTIALS: (
        "a login was refused",
        "renew the credential the evidence names",
    ),
    FailureKind.IMAGE_ACCESS: (
        "the container image may not be pulled with these credentials",
        "log in to the registry, or ask for access to that image",
    ),
    FailureKind.IMAGE_MISSING: (
        "the command or container image does not exist there",
        "install the network, set platform.activate to its environment, or check model.image",
    ),
    FailureKind.DISK_FULL: (
        "the disk is full",
        "free space, or keep fewer checkpoints",
    ),
    FailureKind.DATA: (
        "the data is missing or not what the network expects",
        "check the paths under `data` as the job sees them",
    ),
    FailureKind.SPEC: (
        "the network refused its spec",
        "correct the key the evidence names in model.overrides or search.parameters",
    ),
    FailureKind.OOM: (
        "out of memory",
        "lower the batch size or the image size, or use a larger GPU",
    ),
    FailureKind.NAN: (
        "the objective became NaN or infinite",
        "narrow the range of the learning rate",
    ),
    FailureKind.METRIC_MISSING: (
        "the objective never appeared in the status stream",
        "set objective.metric to one of the names that were seen",
    ),
    FailureKind.CODE: (
        "the network's code failed",
        "read the log: `tao-ray logs RUN TRIAL`",
    ),
    FailureKind.TIMEOUT: (
        "the job took longer than allowed",
        "raise failures.job_timeout_hours",
    ),
    FailureKind.BUDGET: (
        "the budget is used up",
        "raise the budget and go on with --resume",
    ),
    FailureKind.STOPPED_BY_USER: (
        "stopped on request",
        "go on with --resume",
    ),
}


@dataclass(frozen=True)
class Failure:
    """What happened to one trial. `evidence`: the lines that show it, at most a dozen."""

    kind: FailureKind
    message: str
    evidence: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "kind": self.kind.value,
            "message": self.message,
            "evidence": list(self.evidence),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Failure:
        """The inverse of `to_json`."""
        return cls(FailureKind(data["kind"]), data["message"], tuple(data["evidence"]))


# The first pattern that matches the log's tail, last line first, names the kind: what TAO and the
# libraries below it print (TAO leaves no FAILURE line for most exceptions).
_PATTERNS: tuple[tuple[FailureKind, str], ...] = (
    (
        FailureKind.OOM,
        r"out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|\bMemoryError\b|Cannot allocate"
        r" memory",
    ),
    (FailureKind.DISK_FULL, r"No space left on device|Disk quota exceeded"),
    (
        FailureKind.DATA,
        r"FileNotFoundError|No such file or directory|num_samples should be a positive|"
        r"Dataset .*(not found|empty|does not exist)|NotADirectoryError|UnidentifiedImageError",
    ),
    (FailureKind.CREDENTIALS, r"401 Unauthorized|403 Forbidden|AccessDenied|InvalidAccessKeyId"),
    (
        FailureKind.SPEC,
        r"(omegaconf|hydra)\S*\.\w*Error|Parameter validation error|ConfigAttributeError|"
        r"ValidationError|Missing mandatory value|MissingMandatoryValue",
    ),
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_EVIDENCE_LINES = 12


def plain_lines(log: bytes) -> list[str]:
    """Log text as a terminal would show it: no ANSI codes, only the last state of a `\\r` bar."""
    lines = []
    for line in log.decode("utf-8", "replace").split("\n"):
        shown = _ANSI.sub("", line).rstrip("\r").rsplit("\r", 1)[-1].rstrip()
        if shown:
            lines.append(shown)
    return lines


def classify(end: Exit, message: str | None, log_tail: Sequence[str]) -> Failure:
    """Why a job that was not asked to stop did not finish.

    message: the text of its FAILURE status line, if it wrote one. log_tail: `plain_lines`.
    """
    evidence = tuple(log_tail[-_EVIDENCE_LINES:])
    if end.oom:
        return Failure(FailureKind.OOM, "the job was killed because memory ran out", evidence)
    if end.code in (_NOT_FOUND, _NOT_EXECUTABLE):
        what = log_tail[-1] if log_tail else f"exit status {end.code}"
        return Failure(FailureKind.IMAGE_MISSING, what, evidence)
    said = [message] if message else []
    for line in [*said, *reversed(log_tail)]:
        for kind, pattern in _PATTERNS:
            if re.search(pattern, line, re.IGNORECASE):
                return Failure(kind, line.strip(), evidence)
    if message:
        return Failure(FailureKind.CODE, message, evidence)
    if end.code is None:
        how = f"killed by signal {end.signal}" if end.signal else end.detail or "the job vanished"
        return Failure(FailureKind.MACHINE_LOST, how, evidence)
    errors = [line for line in log_tail if re.match(r"\S*(Error|Exception)\b", line)]
    how = errors[-1] if errors else f"exit status {end.code}"
    return Failure(FailureKind.CODE, how, evidence)
