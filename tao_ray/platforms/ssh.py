"""A machine reached by SSH.

Everything runs through plain exec channels, so the far side needs an SSH server, ``sh`` and the
usual GNU tools; no SFTP, no agent there. A followed file is watched by a small shell loop on the
machine: what is appended arrives without being asked for.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import paramiko

from tao_ray.files import move_tree
from tao_ray.platforms import ssh_scripts as scripts
from tao_ray.platforms.base import LinkError
from tao_ray.platforms.host_keys import HostKeys
from tao_ray.platforms.machine import Chunk, CommandError, CommandResult
from tao_ray.platforms.process_job import script
from tao_ray.platforms.scripted import (
    BLOCK,
    ScriptedMachine,
    follow_script,
    one_line,
    pack,
    parse_followed,
    unpack,
)
from tao_ray.platforms.ssh_config import SshTarget
from tao_ray.platforms.ssh_link import SshLink, SshTimings

_STALL = 60.0  # longest pause within a transfer

_links: dict[tuple[Any, ...], SshLink] = {}
_links_lock = threading.Lock()


class SshMachine(ScriptedMachine):
    """See `tao_ray.platforms.machine.Machine`. Pickles without its connection.

    name: what errors and the file of host keys call it. known_hosts: that file; a key is pinned
    there when the machine is first reached, and another key later raises HostKeyChangedError.

    All objects for one machine in a process share its connections. A call makes them anew if they
    were lost, waiting a little longer after each failure; a call that was under way when the link
    broke raises LinkError, except `follow`, which resumes where it was if the machine can be
    reached again at once.
    """

    def __init__(
        self,
        name: str,
        target: SshTarget,
        known_hosts: Path | str,
        *,
        poll_interval: float = 0.5,
        timings: SshTimings | None = None,
    ):
        self.name = name
        self.target = target
        self.poll_interval = poll_interval
        self._known_hosts = str(known_hosts)
        self._timings = timings or SshTimings()

    @property
    def _link(self) -> SshLink:
        key = (self.name, self.target, self._known_hosts, self._timings)
        with _links_lock:
            if key not in _links:
                keys = HostKeys(self._known_hosts)
                _links[key] = SshLink(self.name, self.target, keys, self._timings)
            return _links[key]

    def run(self, script: str, *, stdin: bytes = b"", timeout: float = 60.0) -> CommandResult:
        with self._link.channel(_command(script), timeout, whole=True) as channel:
            with contextlib.suppress(OSError):  # it may end without reading all
                channel.sendall(stdin)
            channel.shutdown_write()
            return _finish(channel)

    def follow(self, positions: Mapping[str, int]) -> Iterator[Chunk | None]:
        at = dict(positions)
        inodes: dict[str, int] = {}
        while True:
            alive = False
            try:
                for chunk in self._follow(at, inodes):
                    alive = True
                    if chunk is not None:
                        at[chunk.path] = chunk.offset + len(chunk.data)
                        inodes[chunk.path] = chunk.file
                    yield chunk
            except LinkError:
                if not alive:
                    raise

    def get(self, path: str, destination: str) -> None:
        target = Path(destination)
        target.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".get-", dir=target.parent))
        try:
            content = stage / "content"
            with self._link.channel(_command(script(scripts.GET, path=path)), _STALL) as channel:
                channel.settimeout(_STALL)
                with channel.makefile("rb", BLOCK) as stream:
                    is_tree = unpack(cast(BinaryIO, stream), content)
                result = _finish(channel)
            # tar says 1 for a file that grew meanwhile, which is no error.
            if result.code and not (is_tree and result.code == 1):
                raise self._failed(f"fetch {path}", path, result)
            if is_tree:
                move_tree(content, target)
            else:
                content.replace(target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def put(self, source: str, path: str) -> None:
        origin = Path(source)
        kind = "tree" if origin.is_dir() else "file"
        text = script(scripts.PUT, path=path, kind=kind)
        with self._link.channel(_command(text), _STALL) as channel:
            channel.settimeout(_STALL)
            try:
                pack(cast(BinaryIO, _ChannelFile(channel)), origin)
                channel.shutdown_write()
            except OSError:
                if not channel.exit_status_ready():
                    raise
            result = _finish(channel)
        if result.code:
            raise CommandError(f"store {path}", result, where=self.name)

    def close(self) -> None:
        self._link.close()

    def _follow(
        self, positions: Mapping[str, int], inodes: Mapping[str, int]
    ) -> Iterator[Chunk | None]:
        """`follow` over one connection."""
        paths = [*positions]
        text = follow_script(paths, positions, inodes)
        with self._link.channel(_command(text), self._timings.connect * 2) as channel:
            channel.settimeout(1.0)
            buffer, heard = bytearray(), time.monotonic()
            while True:
                try:
                    data = channel.recv(BLOCK)
                except TimeoutError:
                    if time.monotonic() - heard > self._timings.dead_after:
                        raise EOFError("the machine went silent") from None
                    yield None
                    continue
                if not data:
                    raise CommandError("follow files", _finish(channel), where=self.name)
                heard = time.monotonic()
                searched = len(buffer)
                buffer += data
                while (end := buffer.find(b"\n", searched)) >= 0:
                    line = bytes(buffer[:end])
                    del buffer[: end + 1]
                    searched = 0
                    yield parse_followed(line, paths)


def _command(text: str) -> str:
    """A command line that any login shell can read, for a script in ``sh``.

    The outer ``sh`` ends with a status even when a signal ends the inner one: a channel that
    closes without a status is a lost link.
    """
    return f"""exec sh -c 'sh -c "$(echo {one_line(text)} | base64 -d)"; exit $?'"""


def _finish(channel: paramiko.Channel) -> CommandResult:
    """Read what a command says until it ends. EOFError if the link is lost."""
    stdout, stderr = io.BytesIO(), io.BytesIO()
    while data := channel.recv(BLOCK):
        stdout.write(data)
    while data := channel.recv_stderr(BLOCK):
        stderr.write(data)
    code = channel.recv_exit_status()
    if code == -1:
        raise EOFError("lost while a command ran")
    return CommandResult(code, stdout.getvalue(), stderr.getvalue())


class _ChannelFile:
    """A channel as the file that `tarfile` writes to."""

    def __init__(self, channel: paramiko.Channel):
        self._channel = channel

    def write(self, data: bytes) -> int:
        self._channel.sendall(data)
        return len(data)
