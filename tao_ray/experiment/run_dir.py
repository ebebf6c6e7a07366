"""The run directory: every path of a run in one class."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tao_ray import journal
from tao_ray.errors import TaoRayError

DEFAULT_ROOT = Path("runs")


class RunDir:
    """``<root>/<name>/<time>/``."""

    def __init__(self, path: Path):
        self.path = path.absolute()
        self.experiment = self.path / "experiment.yaml"
        self.journal = self.path / journal.FILE_NAME
        self.jobs = self.path / "jobs"
        self.trials = self.path / "trials"
        self.evaluations = self.path / "evaluations"
        self.review = self.path / "review.md"
        self.result = self.path / "result.json"
        self.report = self.path / "report.html"
        self.best_spec = self.path / "best_spec.yaml"
        self.driver_log = self.path / "driver.log"
        self.ray = self.path / "ray"
        self.warm_start = self.path / "warm_start.json"
        self.stop_request = self.path / "stop"

    def result_is_final(self) -> bool:
        """Whether the run came to an end that resuming would not change."""
        try:
            return not json.loads(self.result.read_text())["run"]["resumable"]
        except (OSError, ValueError, KeyError):
            return False

    @property
    def root(self) -> Path:
        """What holds this run and others, of any name."""
        return self.path.parent.parent

    @property
    def id(self) -> str:
        """``<name>/<time>``: how a user names this run."""
        return f"{self.path.parent.name}/{self.path.name}"

    def trial(self, trial_id: str) -> Path:
        """Where a trial's records are collected."""
        return self.trials / trial_id

    def evaluation(self, name: str) -> Path:
        """The record of an evaluation: ``baseline`` or ``final``."""
        return self.evaluations / f"{name}.json"

    @classmethod
    def create(cls, root: Path, name: str, now: Callable[[], float] = time.time) -> RunDir:
        """A new directory; never one that exists."""
        stamp = datetime.fromtimestamp(now()).strftime("%Y%m%d-%H%M%S")
        for suffix in ["", *(f"-{n}" for n in range(2, 100))]:
            path = root / name / f"{stamp}{suffix}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise TaoRayError(
                    f"cannot create the run directory: {error.strerror}",
                    where=str(path),
                    remedy="set `results` to a directory you can write to",
                ) from None
            return cls(path)
        raise TaoRayError(f"a hundred runs of {name} started this second", where=str(root))

    @classmethod
    def all(cls, directory: Path) -> list[RunDir]:
        """The runs in a directory, oldest first."""
        return [cls(p) for p in _subdirectories(directory) if (p / journal.FILE_NAME).is_file()]

    @classmethod
    def find(cls, ref: str, root: Path = DEFAULT_ROOT) -> RunDir:
        """The run that `ref` names: a directory, ``name/time``, or a name that has one run.

        Raises TaoRayError that lists the candidates if there are several, or none.
        """
        for path in (Path(ref).expanduser(), root / ref):
            if (path / journal.FILE_NAME).is_file():
                return cls(path)
        found = [c for path in (Path(ref).expanduser(), root / ref) for c in cls.all(path)]
        if len(found) == 1:
            return found[0]
        if found:
            listed = "\n".join(f"    {run.path}" for run in found)
            raise TaoRayError(
                f"{ref!r} has {len(found)} runs:\n{listed}", remedy="name one of these directories"
            )
        for path in (Path(ref).expanduser(), root / ref):
            if cls(path).experiment.is_file():
                raise TaoRayError(
                    "this run has not begun its search",
                    where=str(path),
                    remedy="it waits for an answer, is still preparing, or was given up; start it "
                    "with `tao-ray tune`",
                )
        known = [run.id for path in _subdirectories(root) for run in cls.all(path)]
        raise TaoRayError(
            f"no run {ref!r}",
            where=str(root),
            remedy=f"known runs: {', '.join(known[-8:])}"
            if known
            else "no run was started from here; give the run's directory",
        )


def results_root(configured: str | None) -> Path:
    """Where run directories are: what `results` says, else ``runs`` in the working directory.

    A run with its results elsewhere (a URI) has its directory here all the same. Absolute: jobs
    have working directories of their own.
    """
    given = configured and not is_uri(configured)
    return (Path(str(configured)).expanduser() if given else DEFAULT_ROOT).absolute()


def is_uri(results: str | None) -> bool:
    """Whether `results` names a storage, such as a bucket, rather than a directory."""
    return results is not None and "://" in results


def _subdirectories(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
