"""From what a job or a platform left behind to the kind of failure it was."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tao_ray.errors import TaoRayError
from tao_ray.network.keys import SpecError
from tao_ray.platforms.base import (
    CapacityError,
    Exit,
    HostKeyChangedError,
    ImageAccessError,
    ImageMissingError,
    LinkError,
    MachineLostError,
)
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.sources import HookError

# What TAO, the libraries below it, container engines and stores print; TAO leaves no FAILURE line
# for most exceptions. Of one line, the first pattern that matches names the kind.
_PATTERNS: tuple[tuple[FailureKind, str], ...] = (
    (
        FailureKind.OOM,
        r"out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|\bMemoryError\b|"
        r"Cannot allocate memory|out of shared memory|insufficient shared memory|"
        r"DataLoader worker .* killed by signal: (Killed|Bus error)",
    ),
    (
        FailureKind.DISK_FULL,
        r"No space left on device|Disk quota exceeded|PytorchStreamWriter failed writing file",
    ),
    (
        FailureKind.IMAGE_MISSING,
        r"manifest (for \S+ not found|unknown)|No such image|"
        r"repository does not exist",
    ),
    (
        FailureKind.IMAGE_ACCESS,
        r"pull access denied|no basic auth credentials|authentication required|"
        r"unauthorized: |denied: (requested access|access forbidden)|ErrImagePull|ImagePullBackOff",
    ),
    (
        FailureKind.CREDENTIALS,
        r"\b401\b.*Unauthorized|\b403\b.*Forbidden|401 Client Error|403 Client Error|AccessDenied|"
        r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|NoCredentialsError|"
        r"Unable to locate credentials|GatedRepoError|gated repo|Permission denied \(publickey",
    ),
    (
        FailureKind.MACHINE_LOST,
        r"uncorrectable ECC error|fallen off the bus|GPU is lost|ncclRemoteError|"
        r"NCCL .*(remote process|unhandled system error)",
    ),
    (
        FailureKind.PROVISION,
        r"Found no NVIDIA driver|CUDA driver version is insufficient|"
        r"no kernel image is available|could not select device driver|"
        r"nvidia-container-cli: .*error",
    ),
    (
        FailureKind.BATCH,
        r"batch.?size\S* .*(leaves no step|larger than|exceeds|greater than) .*"
        r"(sample|data|image)|Total length of .?(CombinedLoader|DataLoader).* zero|"
        r"drop_last.*(no|zero|empty) batch",
    ),
    (
        FailureKind.NAN,
        r"\bloss(es)? (is|are|became) (nan|inf)|(nan|non-finite|infinite) loss|"
        r"Input contains NaN|Detected nan",
    ),
    (
        FailureKind.DATA,
        r"FileNotFoundError|No such file or directory|num_samples should be a positive|"
        r"Dataset .*(not found|empty|does not exist)|NotADirectoryError|UnidentifiedImageError|"
        r"is not a valid annotation|NoSuchBucket|NoSuchKey",
    ),
    (
        FailureKind.SPEC,
        r"(omegaconf|hydra)\S*\.\w*Error|Parameter validation error|ConfigAttributeError|"
        r"ConfigKeyError|ValidationError|Missing mandatory value|MissingMandatoryValue|"
        r"InterpolationKeyError|Error\(s\) in loading state_dict",
    ),
)
_PLATFORM_KINDS = {
    FailureKind.DISK_FULL,
    FailureKind.IMAGE_MISSING,
    FailureKind.IMAGE_ACCESS,
    FailureKind.CREDENTIALS,
}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NOT_FOUND, _NOT_EXECUTABLE, _SIGNALLED = 127, 126, 128
_EVIDENCE_LINES = 12
_CONTEXT_LINES = 3


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

    message: the text of its FAILURE status line, if it wrote one. log_tail: `plain_lines`. What
    the platform knows (out of memory, no such command) comes before what the texts say, and of
    those the last line that names a cause.
    """
    last = tuple(log_tail[-_EVIDENCE_LINES:])
    if end.oom:
        return Failure(FailureKind.OOM, "the job was killed because memory ran out", last)
    if end.code in (_NOT_FOUND, _NOT_EXECUTABLE):
        what = log_tail[-1] if log_tail else f"exit status {end.code}"
        return Failure(FailureKind.IMAGE_MISSING, what, last)
    if message and (kind := kind_of_text(message)):
        return Failure(kind, message.strip(), last)
    for index in range(len(log_tail) - 1, -1, -1):
        if kind := kind_of_text(log_tail[index]):
            return Failure(kind, log_tail[index].strip(), _around(log_tail, index))
    if message:
        return Failure(FailureKind.CODE, message, last)
    signal = end.signal
    if end.code is not None and end.code > _SIGNALLED:  # what a shell says of a killed child
        signal = end.code - _SIGNALLED
    if end.code is None or signal == 9:
        how = f"killed by signal {signal}" if signal else end.detail or "the job vanished"
        return Failure(FailureKind.MACHINE_LOST, how, last)
    errors = [line for line in log_tail if re.match(r"\S*(Error|Exception)\b", line)]
    how = errors[-1] if errors else f"exit status {end.code}"
    return Failure(FailureKind.CODE, how, last)


def kind_of_text(text: str) -> FailureKind | None:
    """The kind a line of output names, or None."""
    for kind, pattern in _PATTERNS:
        if re.search(pattern, text, re.IGNORECASE):
            return kind
    return None


def kind_of_error(error: TaoRayError) -> FailureKind:
    """The kind of an error that came before or instead of a job's end."""
    if isinstance(error, SpecError):
        no_batch = "no batch size is possible" in error.message
        return FailureKind.BATCH if no_batch else FailureKind.SPEC
    if isinstance(error, HookError):
        return FailureKind.CODE
    if isinstance(error, CapacityError):
        return FailureKind.CAPACITY
    if isinstance(error, MachineLostError):
        return FailureKind.MACHINE_LOST
    if isinstance(error, LinkError):
        return FailureKind.LINK
    if isinstance(error, HostKeyChangedError):
        return FailureKind.HOST_KEY
    if isinstance(error, ImageAccessError):
        return FailureKind.IMAGE_ACCESS
    if isinstance(error, ImageMissingError):
        return FailureKind.IMAGE_MISSING
    named = kind_of_text(str(error))
    return named if named in _PLATFORM_KINDS else FailureKind.PROVISION


def _around(lines: Sequence[str], index: int) -> tuple[str, ...]:
    """The line that names the cause, with what surrounds it."""
    start = max(0, min(index - _CONTEXT_LINES, len(lines) - _EVIDENCE_LINES))
    return tuple(lines[start : start + _EVIDENCE_LINES])
