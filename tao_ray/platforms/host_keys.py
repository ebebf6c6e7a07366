"""Host keys: pinned when a machine is first reached, compared ever after."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import paramiko

from tao_ray.platforms.base import HostKeyChangedError

__all__ = ["HostKeyChangedError", "HostKeys"]


class HostKeys:
    """A file in the format of ``known_hosts``, whose host names are our machines' names.

    Names, not addresses, because rented addresses come back with other machines. Usable from
    several processes.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)

    def pinned(self, name: str) -> paramiko.PKey | None:
        """The key of the machine, if it was reached before."""
        if not self.path.exists():
            return None
        for line in self.path.read_text().splitlines():
            if line.split(" ", 1)[0] == name:
                entry = paramiko.hostkeys.HostKeyEntry.from_line(line)
                return entry.key if entry else None
        return None

    def check(self, name: str, key: paramiko.PKey) -> None:
        """Pin the key if the machine has none yet. Raises HostKeyChangedError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = self.pinned(name)
            if known is None:
                file.write(f"{name} {key.get_name()} {key.get_base64()}\n")
                file.flush()
                os.fsync(file.fileno())
            elif known != key:
                raise self.changed(name)

    def forget(self, name: str) -> None:
        """Let the next machine of this name show another key: the one that had it is gone."""
        if not self.path.exists():
            return
        with open(self.path, "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = [line for line in file if line.split(" ", 1)[0] != name]
            file.seek(0)
            file.truncate()
            file.writelines(lines)

    def changed(self, name: str) -> HostKeyChangedError:
        """The error for a key that is not the pinned one."""
        return HostKeyChangedError(
            f"the SSH host key of {name} is not the one it had before; not connecting",
            where=str(self.path),
            remedy="if you know why it changed (the machine was reinstalled), delete the line that "
            f"begins with {name!r} from that file; else someone may be between you and it",
        )
