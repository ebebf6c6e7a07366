"""Results in a bucket: what is left of a run is stored there when it has ended.

The run directory is always on this host: its journal is a file that is written all the time.
With ``results: s3://bucket/prefix`` the records and the winner's checkpoint go to
``s3://bucket/prefix/<name>/<time>/`` at the end, and are verified there.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.errors import TaoRayError
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.result import Result
from tao_ray.experiment.run_dir import RunDir, is_uri
from tao_ray.files import write_text
from tao_ray.journal import Event, JournalWriter
from tao_ray.platforms.base import Check, Platform
from tao_ray.report import report_line
from tao_ray.storage import Storage, StorageError, open_storage
from tao_ray.trial.job import RESULTS_DIR

if TYPE_CHECKING:
    from tao_ray.config import RunConfig

CHECKPOINT = "checkpoint"
_RECORDS = (
    "best_spec.yaml",
    "evaluations",
    "experiment.yaml",
    "report.html",
    "report.md",
    "result.json",
    "review.md",
)


def bucket_checks(config: RunConfig) -> list[Check]:
    """Whether results can be stored where `results` says, if that is a URI, and deleted again.

    A bucket that nothing can be deleted from cannot be cleaned: it is refused unless
    `retention.mode` is "manual".
    """
    if not is_uri(config.results):
        return []
    uri, key = str(config.results), f".tao-ray-probe-{uuid.uuid4().hex}"
    name, done = "results bucket", "stored"
    try:
        storage = open_storage(uri)
        if config.retention.mode == "manual":  # a probe that may not be deleted would stay
            storage.exists(key)
            return [Check(name, True, f"{uri} answers")]
        with tempfile.NamedTemporaryFile() as probe:
            storage.put_dir(Path(probe.name), key)
        done = "deleted again"
        storage.delete_prefix(key)
    except TaoRayError as error:
        remedy = error.remedy or "check the URI"
        if done != "stored":
            clean = "or clean by hand: --set retention.mode=manual"
            remedy = f"allow s3:DeleteObject there, {clean}"
        text = f"{uri}: a probe cannot be {done}: {error.message}"
        return [Check(name, False, text, remedy)]
    return [Check(name, True, f"{uri}: a probe was stored and deleted again")]


def publish(
    plan: Plan, run_dir: RunDir, result: Result, platform: Platform, journal: JournalWriter
) -> str | None:
    """Store what is left of an ended run where `results` says, if that is a URI.

    Journalled, kind ``published``. Returns a line for the user; None if `results` is no URI.
    A run is not lost over a bucket: what went wrong is in the line. What is there already, from
    an earlier end of the same run, is replaced.
    """
    place = plan.config.results
    if not is_uri(place):
        return None
    try:
        storage = open_storage(str(place))
        stored = _store_checkpoint(storage, run_dir, result, platform)
        write_text(run_dir.result, json.dumps(result.data, indent=1))
        report_line(run_dir)  # again: now it names where the checkpoint is stored
        for name in _RECORDS:
            if (run_dir.path / name).exists():
                stored += _store(storage, run_dir.path / name, f"{run_dir.id}/{name}")
    except (TaoRayError, OSError) as error:
        text = error.message if isinstance(error, TaoRayError) else str(error)
        return f"not stored in {place}: {text}; try again with: tao-ray resume {run_dir.path}"
    uri = f"{storage.uri}/{run_dir.id}"
    journal.append(Event("published", data={"uri": uri, "bytes": stored}))
    return f"stored: {uri} ({stored / 1e6:.1f} MB)"


def publish_job(place: str, run_dir: RunDir, results: Path) -> str:
    """Store the records of a single job, and what it wrote, at the URI `place`; a line for the
    user. As with a run, a job is not lost over a bucket."""
    try:
        storage = open_storage(place)
        stored = 0
        for path in sorted(run_dir.path.iterdir()):
            if path.is_file() and path.suffix in (".json", ".txt", ".yaml", ".toml"):
                stored += _store(storage, path, f"{run_dir.id}/{path.name}")
        if results.is_dir():
            stored += _store(storage, results, f"{run_dir.id}/{RESULTS_DIR}")
    except (TaoRayError, OSError) as error:
        text = error.message if isinstance(error, TaoRayError) else str(error)
        return f"not stored in {place}: {text}; it is in {run_dir.path}"
    return f"stored: {storage.uri}/{run_dir.id} ({stored / 1e6:.1f} MB)"


def _store_checkpoint(storage: Storage, run_dir: RunDir, result: Result, platform: Platform) -> int:
    """Store the winner's checkpoint, and say in the result where. Bytes stored."""
    best: dict[str, Any] = result.best or {}
    checkpoint = best.get("checkpoint")
    handle = platform.attach(best["job"]) if checkpoint else None
    if checkpoint is None or handle is None:
        return 0
    with tempfile.TemporaryDirectory(dir=run_dir.path, prefix=".publish-") as work:
        local = Path(work, Path(checkpoint["file"]).name)
        handle.fetch(f"{RESULTS_DIR}/{checkpoint['file']}", str(local))
        key = f"{run_dir.id}/{CHECKPOINT}/{local.name}"
        stored = _store(storage, local, key)
    checkpoint["uri"] = f"{storage.uri}/{key}"
    return stored


def _store(storage: Storage, source: Path, key: str) -> int:
    """Store a file or directory and see that it is there in full. Raises StorageError."""
    size = storage.put_dir(source, key)
    found = storage.list(key)
    if not storage.exists(key) or sum(found.values()) != size:
        raise StorageError(f"{key} is not there in full after it was stored", where=storage.uri)
    return size
