"""A machine reached by SSH.

Everything runs through plain exec channels, so the far side needs an SSH server, ``sh`` and the
usual GNU tools; no SFTP, no agent there. A followed file is watched by a small shell loop on the
machine: what is appended arrives without being asked for.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import posixpath
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import paramiko

from tao_ray.files import move_tree, walk_files
from tao_ray.platforms import ssh_scripts as scripts
from tao_ray.platforms.base import LinkError
from tao_ray.platforms.host_keys import HostKeys
from tao_ray.platforms.machine import Chunk, CommandError, CommandResult
from tao_ray.platforms.process_job import script
from tao_ray.platforms.ssh_config import SshTarget
from tao_ray.platforms.ssh_link import SshLink, SshTimings

_CHUNK = 1 << 20
_BLOCK = 1 << 17
_LOOK_EVERY = 0.1  # seconds between two looks at a followed file, on the machine
_STALL = 60.0  # longest pause within a transfer

_links: dict[tuple[Any, ...], SshLink] = {}
_links_lock = threading.Lock()


class SshMachine:
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

    def read(self, path: str, offset: int = 0, limit: int = _CHUNK) -> bytes:
        text = script(scripts.READ, path=path, offset=offset, limit=limit)
        return self._run(f"read {path}", text).stdout

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
                with channel.makefile("rb", _BLOCK) as stream:
                    kind = stream.readline()
                    if kind == b"file\n":
                        with open(content, "wb") as file:
                            shutil.copyfileobj(stream, file, _BLOCK)
                    elif kind == b"tree\n":
                        content.mkdir()
                        _unpack(cast(BinaryIO, stream), content)
                result = _finish(channel)
            # tar says 1 for a file that grew meanwhile, which is no error.
            if result.code and (kind, result.code) != (b"tree\n", 1):
                raise self._failed(f"fetch {path}", path, result)
            if kind == b"file\n":
                content.replace(target)
            else:
                move_tree(content, target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def put(self, source: str, path: str) -> None:
        origin = Path(source)
        kind = "tree" if origin.is_dir() else "file"
        text = script(scripts.PUT, path=path, kind=kind)
        with self._link.channel(_command(text), _STALL) as channel:
            channel.settimeout(_STALL)
            try:
                _pack(channel, origin)
                channel.shutdown_write()
            except OSError:
                if not channel.exit_status_ready():
                    raise
            result = _finish(channel)
        if result.code:
            raise CommandError(f"store {path}", result, where=self.name)

    def list(self, path: str) -> dict[str, int]:
        text = script(scripts.LIST, path=path)
        found: dict[str, int] = {}
        for entry in self._run(f"list {path}", text).stdout.split(b"\0"):
            size, _, name = entry.partition(b" ")
            if name:
                found[os.fsdecode(name)] = int(size)
        return dict(sorted(found.items()))

    def remove(self, path: str) -> None:
        self._run(f"remove {path}", script(scripts.REMOVE, path=path), timeout=600.0)

    def close(self) -> None:
        self._link.close()

    def _follow(
        self, positions: Mapping[str, int], inodes: Mapping[str, int]
    ) -> Iterator[Chunk | None]:
        """`follow` over one connection."""
        paths = list(positions)
        given: dict[str, object] = {"interval": _LOOK_EVERY, "limit": _CHUNK}
        given["ticks"] = round(0.8 / _LOOK_EVERY)
        for number, path in enumerate(paths, 1):
            given[f"path_{number}"] = path
            given[f"at_{number}"] = positions[path]
            given[f"inode_{number}"] = inodes.get(path)
        arguments = " ".join(f'"$path_{number}"' for number in range(1, len(paths) + 1))
        text = script(f"set -- {arguments}\n", scripts.FOLLOW, **given)
        with self._link.channel(_command(text), self._timings.connect * 2) as channel:
            channel.settimeout(1.0)
            buffer, heard = bytearray(), time.monotonic()
            while True:
                try:
                    data = channel.recv(_BLOCK)
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
                    if line == b".":
                        yield None
                        continue
                    which, offset, inode, encoded = line.split(b" ")
                    content = base64.b64decode(encoded)
                    if content:
                        yield Chunk(paths[int(which) - 1], int(offset), content, int(inode))

    def _run(self, what: str, text: str, timeout: float = 60.0) -> CommandResult:
        result = self.run(text, timeout=timeout)
        if result.code:
            raise self._failed(what, what.partition(" ")[2], result)
        return result

    def _failed(self, what: str, path: str, result: CommandResult) -> Exception:
        if result.code == scripts.ABSENT:
            return FileNotFoundError(f"no {path} on {self.name}")
        return CommandError(what, result, where=self.name)


def _command(text: str) -> str:
    """A command line that any login shell can read, for a script in ``sh``.

    The outer ``sh`` ends with a status even when a signal ends the inner one: a channel that
    closes without a status is a lost link.
    """
    encoded = base64.b64encode(text.encode(errors="surrogateescape")).decode()
    return f"""exec sh -c 'sh -c "$(echo {encoded} | base64 -d)"; exit $?'"""


def _finish(channel: paramiko.Channel) -> CommandResult:
    """Read what a command says until it ends. EOFError if the link is lost."""
    stdout, stderr = io.BytesIO(), io.BytesIO()
    while data := channel.recv(_BLOCK):
        stdout.write(data)
    while data := channel.recv_stderr(_BLOCK):
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


def _pack(channel: paramiko.Channel, source: Path) -> None:
    """Send a file or tree as `ssh_scripts.PUT` expects it."""
    named = [("content", source)]
    if source.is_dir():
        named = [(f"content/{relative}", path) for relative, path in walk_files(source)]
    to_channel = cast(BinaryIO, _ChannelFile(channel))
    with tarfile.open(fileobj=to_channel, mode="w|", bufsize=_BLOCK) as archive:
        for name, path in named:
            with open(path, "rb") as file:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(file.fileno()).st_size
                archive.addfile(member, file)
        archive.addfile(tarfile.TarInfo("end"))


def _unpack(stream: BinaryIO, directory: Path) -> None:
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            file = archive.extractfile(member)
            if file is None or name.startswith(("/", "../")):
                continue
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with file, open(path, "wb") as target:
                shutil.copyfileobj(file, target, _BLOCK)
