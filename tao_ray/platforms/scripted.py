"""What all machines share that are reached by commands alone: files through small shell texts."""

from __future__ import annotations

import base64
import io
import os
import posixpath
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from tao_ray.files import walk_files
from tao_ray.platforms import ssh_scripts as scripts
from tao_ray.platforms.machine import Chunk, CommandError, CommandResult
from tao_ray.platforms.process_job import script

CHUNK = 1 << 20
BLOCK = 1 << 17
_LOOK_EVERY = 0.2  # seconds between two looks at a followed file, on the machine


class ScriptedMachine:
    """The part of `tao_ray.platforms.machine.Machine` that `run` is enough for."""

    name: str

    def run(self, script: str, *, stdin: bytes = b"", timeout: float = 60.0) -> CommandResult:
        """See `Machine.run`."""
        raise NotImplementedError

    def read(self, path: str, offset: int = 0, limit: int = CHUNK) -> bytes:
        text = script(scripts.READ, path=path, offset=offset, limit=limit)
        return self._run(f"read {path}", text).stdout

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

    def _run(
        self, what: str, text: str, *, stdin: bytes = b"", timeout: float = 60.0
    ) -> CommandResult:
        result = self.run(text, stdin=stdin, timeout=timeout)
        if result.code:
            raise self._failed(what, what.partition(" ")[2], result)
        return result

    def _failed(self, what: str, path: str, result: CommandResult) -> Exception:
        if result.code == scripts.ABSENT:
            return FileNotFoundError(f"no {path} on {self.name}")
        return CommandError(what, result, where=self.name)


def one_line(text: str) -> str:
    """The text in base64, which needs no quoting anywhere."""
    return base64.b64encode(text.encode(errors="surrogateescape")).decode()


def follow_script(
    paths: Sequence[str],
    positions: Mapping[str, int],
    inodes: Mapping[str, int],
    *,
    once: bool = False,
) -> str:
    """Shell text that prints what the files hold from there on, for `parse_followed`."""
    given: dict[str, object] = {"interval": _LOOK_EVERY, "limit": CHUNK}
    given["ticks"] = round(0.8 / _LOOK_EVERY)
    given["once"] = "yes" if once else None
    for number, path in enumerate(paths, 1):
        given[f"path_{number}"] = path
        given[f"at_{number}"] = positions[path]
        given[f"inode_{number}"] = inodes.get(path)
    arguments = " ".join(f'"$path_{number}"' for number in range(1, len(paths) + 1))
    return script(f"set -- {arguments}\n", scripts.FOLLOW, **given)


def parse_followed(line: bytes, paths: Sequence[str]) -> Chunk | None:
    """One whole line of what `follow_script` prints; None: nothing new."""
    if line == b".":
        return None
    which, offset, inode, encoded = line.split(b" ")
    content = base64.b64decode(encoded)
    return Chunk(paths[int(which) - 1], int(offset), content, int(inode)) if content else None


def pack(target: BinaryIO, source: Path) -> None:
    """Write a file or tree as `ssh_scripts.PUT` expects it."""
    named = [("content", source)]
    if source.is_dir():
        named = [(f"content/{relative}", path) for relative, path in walk_files(source)]
    with tarfile.open(fileobj=target, mode="w|", bufsize=BLOCK) as archive:
        for name, path in named:
            with open(path, "rb") as file:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(file.fileno()).st_size
                archive.addfile(member, file)
        archive.addfile(tarfile.TarInfo("end"))


def unpack(stream: BinaryIO, content: Path) -> bool:
    """Read what `ssh_scripts.GET` prints into a file or directory. Whether it is a directory."""
    kind = stream.readline()
    if kind == b"file\n":
        with open(content, "wb") as file:
            shutil.copyfileobj(stream, file, BLOCK)
    elif kind == b"tree\n":
        content.mkdir()
        _unpack_tree(stream, content)
    return kind == b"tree\n"


def _unpack_tree(stream: BinaryIO, directory: Path) -> None:
    with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            file = archive.extractfile(member)
            if file is None or name.startswith(("/", "../")):
                continue
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with file, open(path, "wb") as target:
                shutil.copyfileobj(file, target, BLOCK)


def packed(source: Path) -> bytes:
    """What `pack` writes, for a small file or tree."""
    buffer = io.BytesIO()
    pack(cast(BinaryIO, buffer), source)
    return buffer.getvalue()
