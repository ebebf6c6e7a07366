"""This host as a machine: files are read directly, so watching a job costs a few `stat` calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tao_ray.files import copy_tree
from tao_ray.platforms.base import LinkError
from tao_ray.platforms.machine import Chunk, CommandResult, MachineShape

_CHUNK = 1 << 20


class LocalMachine:
    """See `tao_ray.platforms.machine.Machine`. `environment` is what commands start from."""

    name = "localhost"

    def __init__(self, environment: Mapping[str, str], *, poll_interval: float = 0.1):
        self._environment = dict(environment)
        self.poll_interval = poll_interval

    def run(self, script: str, *, stdin: bytes = b"", timeout: float = 60.0) -> CommandResult:
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", script],
                input=stdin,
                capture_output=True,
                timeout=timeout,
                env=self._environment,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            message = f"a command did not end within {timeout:g} s"
            raise LinkError(message, where=self.name) from None
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def read(self, path: str, offset: int = 0, limit: int = _CHUNK) -> bytes:
        with open(path, "rb", buffering=0) as file:
            if offset:
                file.seek(offset)
            return file.read(limit)

    def follow(self, positions: Mapping[str, int]) -> Iterator[Chunk | None]:
        at = dict(positions)
        inodes: dict[str, int] = {}
        while True:
            idle = True
            for path, position in at.items():
                try:
                    stat = os.stat(path)
                except FileNotFoundError:
                    continue
                if stat.st_size < position or stat.st_ino != inodes.get(path, stat.st_ino):
                    position = at[path] = 0
                inodes[path] = stat.st_ino
                if stat.st_size > position:
                    data = self.read(path, position)
                    at[path] = position + len(data)
                    yield Chunk(path, position, data, stat.st_ino, stat.st_mtime)
                    idle = False
            if idle:
                yield None
                time.sleep(self.poll_interval)

    def get(self, path: str, destination: str) -> None:
        copy_tree(Path(path), Path(destination))

    def put(self, source: str, path: str) -> None:
        copy_tree(Path(source), Path(path))

    def list(self, path: str) -> dict[str, int]:
        found: dict[str, int] = {}
        directories = [""]
        while directories:
            parent = directories.pop()
            try:
                entries = list(os.scandir(os.path.join(path, parent)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                name = os.path.join(parent, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    directories.append(name)
                elif entry.is_file(follow_symlinks=False):
                    try:
                        found[name] = entry.stat(follow_symlinks=False).st_size
                    except FileNotFoundError:  # deleted meanwhile by the job
                        continue
        return dict(sorted(found.items()))

    def remove(self, path: str) -> None:
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            pass

    def close(self) -> None:
        pass


class LocalHost:
    """The provider of the one machine there always is: nothing to make, nothing to delete."""

    def __init__(self, machine: LocalMachine):
        self._machine = machine

    def create(self, name: str, shape: MachineShape) -> LocalMachine:
        del name, shape
        return self._machine

    def find(self, name: str) -> LocalMachine | None:
        return self._machine if name == self._machine.name else None

    def names(self) -> list[str]:
        return [self._machine.name]

    def delete(self, name: str) -> None:
        del name
