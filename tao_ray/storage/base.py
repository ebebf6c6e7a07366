"""Where artifacts are kept: the contract every storage honours."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from tao_ray.errors import TaoRayError


class StorageError(TaoRayError):
    """A storage could not do what was asked."""


@runtime_checkable
class Storage(Protocol):
    """A tree of immutable artifacts addressed by keys such as ``trials/0003/epoch_009``.

    A key is a relative POSIX path without empty, ``.`` or ``..`` parts; others raise ValueError.
    So do keys below an artifact: artifacts do not nest. Prefixes end at whole parts: ``a/b`` is
    not a prefix of ``a/bc``. `tao_ray.files` says which files of a directory are carried. Storage
    objects can be pickled; any number of them, in any process, may use one place. What a
    storage's service refuses or does not answer raises StorageError.
    """

    uri: str

    def put_dir(self, source: Path, key: str) -> int:
        """Store a directory (or one file) under `key`, replacing what was there; bytes stored.

        All or nothing: a reader never sees half of it, and a crash in between leaves the old
        content or none.
        """

    def get_dir(self, key: str, destination: Path) -> int:
        """Copy what is under `key` to `destination`; bytes copied. KeyError if absent.

        Other files in an existing `destination` stay.
        """

    def exists(self, key: str) -> bool:
        """Whether `put_dir` of exactly this key was completed and not deleted since."""

    def list(self, prefix: str = "") -> dict[str, int]:
        """Stored files below `prefix`: their keys -> bytes, sorted."""

    def delete_prefix(self, prefix: str) -> int:
        """Delete everything below `prefix` and say how many bytes. Absent: 0."""
