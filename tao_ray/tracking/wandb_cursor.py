"""What of a run W&B already has, kept across kills."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tao_ray.files import fsync, walk_files, write_text

FILE_NAME = "wandb_cursor.json"
_STAGING = ".staging-"


@dataclass(frozen=True)
class Mark:
    """Of one W&B run: the last step it was given, and whether it needs nothing more.

    online: the server has been told of it. How much of it then only the server knows.
    """

    step: int = 0
    done: bool = False
    online: bool = False


def is_complete(run_directory: Path, trials: Iterable[str]) -> bool:
    """Whether W&B has, or has folders of, all that is to be told of these trials."""
    file = run_directory / FILE_NAME
    marks = json.loads(file.read_text())["marks"] if file.exists() else {}
    return all(marks.get(trial, {}).get("done") for trial in trials)


class Cursor:
    """A durable mark per W&B run, and the folders that are for `wandb sync`.

    An offline folder and the mark that says what is in it come into being together: W&B writes the
    folder in a staging directory, then the mark is saved with the folder's name, then the folder
    is moved to where users look. Of a driver that was killed, a folder that has its mark is moved
    by the next one; any other is deleted and what was in it is written again, from the journal.
    """

    def __init__(self, run_directory: Path):
        """Read what the last driver left, and put it in order."""
        self._file = run_directory / FILE_NAME
        self.folder = run_directory / "wandb"
        saved = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._marks = {name: Mark(**mark) for name, mark in saved.get("marks", {}).items()}
        self._publish: str | None = saved.get("publish")
        for old in self.folder.glob(f"{_STAGING}*"):
            for path in (old / "wandb").glob("offline-run-*"):
                if path.name == self._publish:
                    self._move(path)
            shutil.rmtree(old, ignore_errors=True)
        self.staging = self.folder / f"{_STAGING}{uuid.uuid4().hex[:8]}"

    def __getitem__(self, name: str) -> Mark:
        return self._marks.get(name, Mark())

    def commit(self, name: str, mark: Mark) -> None:
        """Save a mark; on disk when this returns."""
        self._marks[name] = mark
        marks = {name: asdict(mark) for name, mark in self._marks.items()}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._file, json.dumps({"marks": marks, "publish": self._publish}, indent=1))
        fsync(self._file)
        fsync(self._file.parent)

    def publish(self, name: str, mark: Mark, folder: Path) -> None:
        """Save a mark together with the finished offline folder that it is about."""
        for _, path in walk_files(folder):
            fsync(path)
        self._publish = folder.name
        self.commit(name, mark)
        self._move(folder)

    def close(self) -> None:
        """Remove what was only needed while writing."""
        shutil.rmtree(self.staging, ignore_errors=True)

    def to_sync(self) -> set[str]:
        """The W&B runs of which there are folders that W&B's server has not been sent yet."""
        return {
            folder.name.rsplit("-", 1)[1]
            for folder in self.folder.glob("offline-run-*")
            if not any(folder.glob("*.synced"))  # which `wandb sync` leaves
        }

    def _move(self, folder: Path) -> None:
        folder.replace(self.folder / folder.name)
