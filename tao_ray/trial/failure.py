"""Why a trial failed: one kind per cause, with what to do about it and whether to try again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class FailureKind(str, Enum):
    """Causes of failure. Infrastructure kinds say nothing about the configuration tried."""

    CAPACITY = "capacity"
    PROVISION = "provision"
    LINK = "link"
    HOST_KEY = "host_key"
    MACHINE_LOST = "machine_lost"
    CREDENTIALS = "credentials"
    IMAGE_ACCESS = "image_access"
    IMAGE_MISSING = "image_missing"
    DISK_FULL = "disk_full"
    DATA = "data"
    SPEC = "spec"
    BATCH = "batch"
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
    FailureKind.HOST_KEY: (
        "a machine shows another SSH host key than before",
        "find out why: the evidence names the file with the key; then go on with --resume",
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
        "free space where the evidence says, or raise checkpoint.interval; retention.mode: auto "
        "deletes what nothing needs",
    ),
    FailureKind.DATA: (
        "the data is missing or not what the network expects",
        "check the paths under `data` as the job sees them",
    ),
    FailureKind.SPEC: (
        "the network refused its spec",
        "correct the key the evidence names in model.overrides or search.parameters",
    ),
    FailureKind.BATCH: (
        "the batch is larger than the training data",
        "set data.train_sample_count, so that batches are limited to it, or search smaller batches",
    ),
    FailureKind.OOM: (
        "out of memory",
        "lower the batch size, the image size or the number of loader workers, or use a larger GPU",
    ),
    FailureKind.NAN: (
        "the objective became NaN or infinite",
        "narrow the range of the learning rate",
    ),
    FailureKind.METRIC_MISSING: (
        "the objective never appeared",
        "set objective.metric to one of the names that were seen, or objective.source to where it "
        "is written",
    ),
    FailureKind.CODE: (
        "the network's code failed",
        "read the whole log: `tao-ray logs RUN TRIAL`, or log.txt of a single job",
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
