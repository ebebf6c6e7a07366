"""Where jobs run: the contracts every platform honours.

A *job* is one launch of the network's own command. Jobs are detached and named: a job survives
the loss of its link, of its supervisor and of the driver, and whatever died in between can be
found again by its id. Starting is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tao_ray.errors import TaoRayError

if TYPE_CHECKING:
    from tao_ray.journal import JournalWriter


@dataclass(frozen=True)
class Job:
    """One launch of a network's command.

    id: unique in the run directory and stable over crashes: ``<trial>-<segment>``.
    workspace: name of the directory the job works in. Jobs of one trial share it, so a later job
        finds the earlier one's checkpoints; see `Platform.workspace`.
    command: shell text, run with ``sh`` in the workspace; every path in it is already final.
    files: relative path in the workspace -> content, written before the start (the spec).
    status_path: path of status.json relative to the workspace, or None if the job writes none.
    env: environment added to the platform's. secrets: the same, but never shown, never on argv.
    gpus: GPUs to reserve.
    image: container image, or None for the engine's host.
    needs: files in workspaces (absolute paths, as the job sees them) that it reads at its start.
    """

    id: str
    workspace: str
    command: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    status_path: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    gpus: int = 0
    image: str | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offset:
    """Where a reader stands: bytes of status.json and of the log already consumed.

    Counted from the job's own start: what an earlier job of the same workspace had written to
    the same status.json is not part of this job's stream.
    """

    status: int = 0
    log: int = 0


@dataclass(frozen=True)
class StatusLine:
    """One complete line of status.json (with its newline); `offset` is the position after it.

    `written` is the time.time() at which the platform knows the line was on disk, or None.
    """

    data: bytes
    offset: Offset
    written: float | None = None


@dataclass(frozen=True)
class LogLine:
    """One line of the job's merged stdout and stderr, without its newline."""

    data: bytes
    offset: Offset


@dataclass(frozen=True)
class Exit:
    """The job ended. `code` is its exit status; None if it vanished without one (killed).

    signal: the signal that ended it, where known. oom: the platform says memory ran out.
    stopped: it ended because `stop` was called. detail: what the platform can add for a human.
    """

    code: int | None
    signal: int | None = None
    oom: bool = False
    stopped: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Heartbeat:
    """Nothing new, the link is alive."""


Event = StatusLine | LogLine | Exit | Heartbeat


@dataclass(frozen=True)
class Check:
    """One preflight finding. `remedy` is an exact command or edit when `ok` is False.

    warning: a run may start in spite of it. runnable: `remedy` is a command for this host that
    may be run as it is.
    """

    name: str
    ok: bool
    detail: str = ""
    remedy: str = ""
    warning: bool = False
    runnable: bool = False


class PlatformError(TaoRayError):
    """A platform could not do what was asked."""


class CapacityError(PlatformError):
    """No free machine, GPU or quota now; elsewhere or later it may work."""


class LinkError(PlatformError):
    """The link to a machine is down; the job may well be running."""


class HostKeyChangedError(PlatformError):
    """A machine shows another host key than before: it is another machine, or someone between."""


class MachineLostError(PlatformError):
    """The machine is gone, with the job and its files."""


class ImageAccessError(PlatformError):
    """The registry does not hand out the image: no valid login, or no right to this image."""


class ImageMissingError(PlatformError):
    """There is no such image."""


class JobConflictError(PlatformError):
    """A job of this id exists with another command or other files."""


class JobHandle(Protocol):
    """A running or ended job. Any number of handles, in any process, may watch one job."""

    job_id: str

    def events(self, offset: Offset = Offset(), *, logs: bool = True) -> Iterator[Event]:
        """What happened since `offset`, then what happens, until and including one `Exit`.

        Status lines come in order and complete; those written before the end all come before
        `Exit`. At least one event (a `Heartbeat` if nothing else) comes every second.
        logs=False leaves out log lines. Raises LinkError or MachineLostError.
        """

    def stop(self, grace_s: float = 30.0) -> Exit:
        """Ask the job to end (SIGTERM to all of it), kill it after `grace_s` seconds.

        Returns when nothing of it runs any more. Stopping an ended job returns its exit.
        """

    def poll(self) -> Exit | None:
        """The exit if the job has ended, else None. Does not wait."""

    def fetch(self, path: str, destination: str) -> None:
        """Copy a file or directory of the workspace (relative path) to a local path.

        Raises FileNotFoundError if there is none.
        """

    def put(self, source: str, path: str) -> None:
        """Copy a local file or directory into the workspace (relative path)."""

    def list(self, path: str = "") -> dict[str, int]:
        """Files below a directory of the workspace: path in the workspace -> bytes.

        Symlinks are left out. An absent directory holds nothing.
        """

    def remove(self, path: str) -> None:
        """Delete a file or directory of the workspace. Absent: nothing happens."""


@runtime_checkable
class Platform(Protocol):
    """Where jobs run. Can be pickled: supervisors in other processes work with a copy."""

    def preflight(self) -> list[Check]:
        """Everything that must hold before the first job. Never raises for a failed check."""

    def workspace(self, name: str) -> str:
        """Absolute path of a workspace as the job's own process sees it."""

    def launch(self, job: Job) -> JobHandle:
        """Start the job, or attach to it if a job of this id was ever started. Idempotent.

        Two concurrent calls start one process. Raises CapacityError, LinkError,
        JobConflictError.
        """

    def attach(self, job_id: str) -> JobHandle | None:
        """The job if it was ever started and not released, else None. Works from any process."""

    def release(self, job_id: str) -> None:
        """End the job if it runs and remove its own records; its workspace stays. Idempotent."""

    def discard(self, workspace: str) -> None:
        """Remove a workspace with all its files, and release every job in it. Idempotent."""

    def close(self) -> None:
        """Give back what this object holds. Running jobs go on."""


@runtime_checkable
class KeepsFilesBetweenJobs(Protocol):
    """A workspace outlives its jobs: a paused trial resumes without a copy in storage."""

    keeps_files_between_jobs: bool


@runtime_checkable
class SharesFiles(Protocol):
    """Jobs see this host's files under the same paths."""

    shares_files: bool


@runtime_checkable
class HasPrices(Protocol):
    """Its machines cost money, so nothing starts there without consent."""

    def price_per_hour(self, jobs: int) -> float | None:
        """US dollars per hour for the machines that carry `jobs` jobs at a time; None: unknown."""


@runtime_checkable
class RentsMachines(Protocol):
    """Its machines exist only while a run uses it, and must be gone after it.

    `launch` raises PlatformError before `rent`. Copies in other processes follow the original.
    """

    def rent(self, journal: JournalWriter) -> None:
        """Take over what the journal says is left of the run's machines; from here on, make those
        that jobs ask for. Whatever is made or deleted is journalled first."""

    def expect(self, jobs: int | None) -> None:
        """No more than so many jobs will ever run at a time from now on; None: not known."""

    def vacate(self) -> None:
        """Begin to delete all machines; returns at once."""

    def left(self) -> list[str]:
        """Names of the machines that are not verified gone, after `vacate`."""


@runtime_checkable
class KeepsCopies(Protocol):
    """A job's machine may go before the run does, so what is needed later is copied off it."""

    def keep(self, job_id: str, paths: Sequence[str], *, last: bool) -> None:
        """Have copies of these files of the job's workspace, and of no others.

        last: the job has ended, and is then not needed on its machine any more. Of a job whose
        machine is gone nothing changes. Raises PlatformError, FileNotFoundError, StorageError.
        """

    def kept(self, workspace: str) -> dict[str, str]:
        """The copies of a workspace's files: path in it -> address of the copy."""
