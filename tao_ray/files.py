"""Trees of files: which files one carries, and copying them so that no reader sees half a file.

What a tree carries: regular files, and links to files *outside* the tree (as the file they lead
to). Left out are links to something inside it (TAO's ``*_latest.pth``: the file itself is carried
anyway), links to directories, dangling links, and empty directories.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path


def walk_files(root: Path) -> Iterator[tuple[str, Path]]:
    """The files a tree carries, as (path relative to `root` with ``/``, path), in order."""
    inside = os.path.realpath(root) + os.sep
    for directory, subdirectories, names in os.walk(root):
        subdirectories.sort()
        for name in sorted(names):
            path = Path(directory, name)
            if path.is_symlink() and os.path.realpath(path).startswith(inside):
                continue
            if path.is_file():
                yield path.relative_to(root).as_posix(), path


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: a reader never sees half of it. Ends with one newline."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    part.replace(path)


def copy_file(source: Path, destination: Path, *, durable: bool = False) -> int:
    """Copy one file, making directories as needed; it appears whole or not at all. Bytes."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_name(f".{destination.name[:200]}.{uuid.uuid4().hex[:12]}.partial")
    try:
        shutil.copyfile(source, partial)
        if durable:
            fsync(partial)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
    return destination.stat().st_size


def copy_tree(source: Path, destination: Path, *, durable: bool = False) -> int:
    """Copy one file, or the files a directory carries into `destination`; bytes copied."""
    if not source.is_dir():
        return copy_file(source, destination, durable=durable)
    destination.mkdir(parents=True, exist_ok=True)
    copied = 0
    for relative, path in walk_files(source):
        copied += copy_file(path, destination / relative, durable=durable)
    return copied


def move_tree(source: Path, destination: Path) -> None:
    """Move a file or directory of the same file system; into `destination` if that is there."""
    if not destination.is_dir():
        source.replace(destination)
        return
    for relative, path in list(walk_files(source)):
        target = destination / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)


def fsync(path: Path) -> None:
    """Have a file's or directory's content on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
