"""The handle of a job of the engine ``process``."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from tao_ray.platforms import process_scripts as scripts
from tao_ray.platforms.base import (
    Event,
    Exit,
    Heartbeat,
    LogLine,
    Offset,
    PlatformError,
    StatusLine,
)
from tao_ray.platforms.machine import Chunk, CommandError, Machine
from tao_ray.platforms.streams import LineStream

# How long a process may take to die of SIGKILL (it does not while the kernel waits on a disk).
_KILL_DEADLINE = 60.0
_LONGEST_LOG_LINE = 1 << 16
_BEGINNING = Offset()


def script(*texts: str, **given: object) -> str:
    """Shell text with its variables set first. None is the empty value."""
    assignments = (
        f"{name}={shlex.quote('' if value is None else str(value))}\n"
        for name, value in given.items()
    )
    return "".join(assignments) + "".join(texts)


@dataclass(frozen=True)
class _Started:
    """What the runner wrote down when it started the job."""

    pid: int
    ticks: int
    boot: str
    status_size: int
    status_inode: int
    gpus: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> _Started:
        pid, ticks, boot, size, inode, gpus = text.split()
        held = () if gpus == "-" else tuple(gpus.split(","))
        return cls(int(pid), int(ticks), boot, int(size), int(inode), held)


class ProcessJob:
    """See `tao_ray.platforms.base.JobHandle`. FileNotFoundError if the job was never started."""

    _end_file = "exit"  # in the job's directory, appears when it ends
    _stop_script = scripts.LIBRARY + scripts.STOP
    _kill_script = scripts.LIBRARY + scripts.KILL
    _settle_script = scripts.LIBRARY + scripts.SETTLE

    def __init__(self, machine: Machine, root: str, job_id: str):
        self.job_id = job_id
        self._machine = machine
        self._directory = f"{root}/.jobs/{job_id}"
        self._started = _Started.parse(machine.read(f"{self._directory}/started").decode())
        record = json.loads(machine.read(f"{self._directory}/job.json"))
        self._workspace: str = f"{root}/{record['workspace']}"
        status = record["status_path"]
        self._status: str | None = f"{self._workspace}/{status}" if status else None

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs this job was given, as in its ``CUDA_VISIBLE_DEVICES``."""
        return self._started.gpus

    def events(self, offset: Offset = _BEGINNING, *, logs: bool = True) -> Iterator[Event]:
        base = self._started.status_size
        status = log = None
        if self._status is not None:
            status = LineStream(self._status, base + offset.status)
        if logs:
            log = LineStream(f"{self._directory}/log", offset.log, longest=_LONGEST_LOG_LINE)
        end = f"{self._directory}/{self._end_file}"
        streams = [stream for stream in (status, log) if stream is not None]
        follower = self._machine.follow({**{s.path: s.position for s in streams}, end: 0})
        fresh = offset.status == 0
        last_event, last_look = time.monotonic(), float("-inf")
        exit_: Exit | None = None
        while exit_ is None:
            chunk = next(follower)
            if chunk is None:
                if time.monotonic() - last_look >= 10 * self._machine.poll_interval:
                    # A killed runner leaves no exit record.
                    last_look = time.monotonic()
                    exit_ = self.poll()
            elif chunk.path == end:
                exit_ = self.poll()
            elif status is not None and chunk.path == status.path:
                if fresh and chunk.offset == base:
                    chunk = self._whole_if_replaced(chunk)
                fresh = False
                for data, position in status.feed(chunk):
                    offset = Offset(position - base, offset.log)
                    yield StatusLine(data, offset, chunk.modified)
                    last_event = time.monotonic()
            elif log is not None:
                for data, position in log.feed(chunk):
                    offset = Offset(offset.status, position)
                    yield LogLine(data.removesuffix(b"\n"), offset)
                    last_event = time.monotonic()
            if time.monotonic() - last_event >= 1.0:
                yield Heartbeat()
                last_event = time.monotonic()
        # All writers are gone: what is on disk now is all there is.
        if status is not None:
            for data, position in status.rest(self._machine):
                offset = Offset(position - base, offset.log)
                yield StatusLine(data, offset)
        if log is not None:
            for data, position in log.rest(self._machine):
                offset = Offset(offset.status, position)
                yield LogLine(data.removesuffix(b"\n"), offset)
        yield exit_

    def _whole_if_replaced(self, chunk: Chunk) -> Chunk:
        """The first chunk, from the beginning of the file if it is not the one that was there
        when the job started: then all of it is this job's."""
        if chunk.offset == 0 or chunk.file == self._started.status_inode:
            return chunk
        before = self._machine.read(chunk.path, 0, chunk.offset)
        return replace(chunk, offset=0, data=before + chunk.data)

    def poll(self) -> Exit | None:
        ended = self._read_exit()
        if ended is not None or self._alive():
            return ended
        self._do("look after", self._settle_script)
        ended = self._read_exit()
        if ended is None:
            raise PlatformError("the job was released", where=f"job {self.job_id}")
        return ended

    def stop(self, grace_s: float = 30.0) -> Exit:
        ended = self.poll()
        if ended is not None:
            return ended
        self._do("stop", self._stop_script, grace=round(grace_s))
        ended = self._wait(grace_s)
        if ended is None:
            self._do("stop", self._kill_script)
            ended = self._wait(_KILL_DEADLINE)
        if ended is None:
            raise PlatformError(
                f"processes of the job do not die of SIGKILL within {_KILL_DEADLINE:g} s",
                where=f"job {self.job_id} on {self._machine.name}",
                remedy="look for hanging disks or GPU drivers on that machine (dmesg)",
            )
        return ended

    def fetch(self, path: str, destination: str) -> None:
        self._machine.get(self._inside(path), destination)

    def put(self, source: str, path: str) -> None:
        self._machine.put(source, self._inside(path))

    def list(self, path: str = "") -> dict[str, int]:
        if not path:
            return self._machine.list(self._workspace)
        found = self._machine.list(self._inside(path))
        return {f"{path.rstrip('/')}/{name}": size for name, size in found.items()}

    def remove(self, path: str) -> None:
        self._machine.remove(self._inside(path))

    def _inside(self, path: str) -> str:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise ValueError(f"not a relative path below the workspace: {path!r}")
        return f"{self._workspace}/{path}"

    def _read_exit(self) -> Exit | None:
        try:
            record = json.loads(self._machine.read(f"{self._directory}/exit"))
        except FileNotFoundError:
            return None
        code = record["code"]
        signal = code - 128 if code is not None and 128 < code < 193 else None
        return Exit(
            code=code,
            signal=signal,
            oom=record.get("oom", False),
            stopped=record["stopped"],
            detail=record.get("detail", f"ended by signal {signal}" if signal else ""),
        )

    def _alive(self) -> bool:
        """Whether the runner lives: its process, not a later one of the same number."""
        started = self._started
        try:
            stat = self._machine.read(f"/proc/{started.pid}/stat").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return False
        fields = stat.rpartition(")")[2].split()
        if fields[0] in "ZX" or int(fields[19]) != started.ticks:
            return False
        return self._boot() == started.boot

    def _boot(self) -> str:
        return self._machine.read("/proc/sys/kernel/random/boot_id").decode().strip()

    def _do(self, what: str, text: str, **given: object) -> None:
        result = self._machine.run(script(text, job=self._directory, **given))
        if result.code:
            raise CommandError(f"{what} job {self.job_id}", result, where=self._machine.name)

    def _wait(self, seconds: float) -> Exit | None:
        deadline = time.monotonic() + seconds
        pause = 0.05  # most jobs end soon, and a slot waits for it
        while (ended := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2.0 * pause, self._machine.poll_interval)
        return ended
