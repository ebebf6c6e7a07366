"""Platforms made of machines: *provider x engine*, with a `Machine` as the link between them.

A `MachineProvider` makes and deletes machines, an `Engine` runs jobs on a machine it can reach
(as processes, as containers). An engine knows a machine through this contract alone, so each
engine runs over each kind of link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tao_ray.platforms.base import Check, Job, JobHandle, PlatformError


@dataclass(frozen=True)
class CommandResult:
    """How a command on a machine ended. `code` is negative or above 128 if a signal ended it."""

    code: int
    stdout: bytes
    stderr: bytes


class CommandError(PlatformError):
    """A command on a machine failed. `result` holds what it said."""

    def __init__(self, what: str, result: CommandResult, *, where: str):
        self.result = result
        said = (result.stderr or result.stdout).decode(errors="replace").strip()[-2000:]
        super().__init__(f"could not {what} (exit code {result.code}): {said}", where=where)


@dataclass(frozen=True)
class Chunk:
    """Bytes of a followed file. `offset` is the place of its first byte in the file.

    file: inode number, so that a replaced file is told from a grown one.
    modified: time of the file's last write on this host's clock, None if clocks may differ.
    """

    path: str
    offset: int
    data: bytes
    file: int
    modified: float | None = None


class Machine(Protocol):
    """A reachable Linux host with a POSIX shell. All paths are absolute paths on the machine.

    Every method ends within its deadline and raises LinkError if the link is down (then what was
    asked may or may not have happened) and MachineLostError if the machine is gone for good.
    """

    name: str
    poll_interval: float
    """Seconds between two looks at a state that this link can well afford."""

    def run(self, script: str, *, stdin: bytes = b"", timeout: float = 60.0) -> CommandResult:
        """Run shell text with ``sh``. A failing command is a result, not an exception.

        The command's session is its own: no terminal's Ctrl-C reaches it. `script` may be
        visible to other users of the machine; `stdin` is not.
        """

    def read(self, path: str, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """At most `limit` bytes of a file from `offset`; empty at its end. FileNotFoundError."""

    def follow(self, positions: Mapping[str, int]) -> Iterator[Chunk | None]:
        """What files hold from the given positions on, and what is appended, without end.

        Files may appear later. Files are read in the order given, at most 1 MiB of each at a
        time. A file that became shorter than its position, or is another file than before, is
        read from its beginning. None: nothing new; comes at least once a second.
        """

    def get(self, path: str, destination: str) -> None:
        """Copy a file or directory to a local path (`tao_ray.files` says what a tree carries).

        Files appear whole. FileNotFoundError if there is none.
        """

    def put(self, source: str, path: str) -> None:
        """Copy a local file or directory to the machine; like `get`."""

    def list(self, path: str) -> dict[str, int]:
        """Regular files below a directory: path relative to it -> bytes. No links. May be {}."""

    def remove(self, path: str) -> None:
        """Delete a file or a whole directory. Absent: nothing happens."""

    def close(self) -> None:
        """Close the link. What runs on the machine goes on."""


class Engine(Protocol):
    """Runs jobs on a machine. It keeps all state on the machine, none in itself.

    The methods are those of `platforms.base.Platform`, with the machine as first argument.
    """

    def preflight(self, machine: Machine) -> list[Check]:
        """What must hold on the machine before the first job."""

    def prepare(
        self,
        machine: Machine,
        image: str | None,
        *,
        say: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Have on the machine what must be there before a job of this image starts.

        say: told in words how far it is. sleep: used for all waiting, and may raise to end it.
        """

    def workspace(self, machine: Machine, name: str) -> str:
        """Absolute path of a workspace as the job's own process sees it."""

    def launch(self, machine: Machine, job: Job) -> JobHandle:
        """Start the job or attach to it."""

    def attach(self, machine: Machine, job_id: str) -> JobHandle | None:
        """The job if it was ever started and not released, else None."""

    def release(self, machine: Machine, job_id: str) -> None:
        """End the job if it runs and remove its own records."""

    def discard(self, machine: Machine, workspace: str) -> None:
        """Remove a workspace and release every job in it."""


@dataclass(frozen=True)
class MachineShape:
    """The machine wanted: `gpus` GPUs of type `gpu` (None: any)."""

    gpu: str | None = None
    gpus: int = 0


class MachineProvider(Protocol):
    """Makes and deletes machines. A machine's name is chosen, and written down, by the caller
    before `create`, so that whatever dies in between can be found again."""

    def create(self, name: str, shape: MachineShape) -> Machine:
        """The machine of this name, made if there is none; it answers when this returns.

        Raises CapacityError if none of this shape is to be had now, else PlatformError.
        """

    def find(self, name: str) -> Machine | None:
        """The machine of this name, or None if there is none (which is a certainty)."""

    def names(self) -> list[str]:
        """Names of all machines that exist now and may be this provider's doing."""

    def delete(self, name: str) -> None:
        """Delete the machine; returns when it is verified gone. Absent: nothing happens."""
