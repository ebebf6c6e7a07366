"""Brings the data to where jobs read it: once per machine, not once per trial.

What is on S3 is fetched and what a network wants unpacked is unpacked, into a folder beside the
runs that later runs find again. What is readable as it is stays where it is. The configuration
that comes out names the staged places, so every job of the run (trials, evaluations) uses them.

Each location has one record, in ``evaluations/data_staging.json``:

======== ========================================================================================
source   as the configuration names it; keys: the keys of `data` it is the value of, or
         "model.checkpoint", "model.teacher"
status   "staged" | "reused" (from an earlier run) | "in place" | "not staged"
path     where jobs read it; bytes, files: what was fetched or unpacked; seconds: how long it took
reason   why, for "not staged"
======== ========================================================================================
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tao_ray.errors import TaoRayError
from tao_ray.experiment.measure import Measure, find_measure
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.files import write_text
from tao_ray.platforms.base import Check, Platform, SharesFiles

if TYPE_CHECKING:
    from tao_ray.config import DataConfig, RunConfig
    from tao_ray.network.network import Network

STAGED_DATA = ".data"
"""Name of the folder beside the runs that holds what was staged for them."""
STAGED, REUSED, IN_PLACE, NOT_STAGED = "staged", "reused", "in place", "not staged"
_NAMED = ("train", "train_wds", "eval", "inference", "calibration")
_ARCHIVE = re.compile(r"\.(tar\.gz|tgz|tar|zip)$")
_SPARE = 1.1  # of the bytes to be staged


def stage_data(
    plan: Plan, platform: Platform, cache: Path, record: Path, say: Callable[[str], None]
) -> tuple[Plan, list[Check]]:
    """Stage the data of a run; the plan that reads it from there, and what could not be staged.

    cache: where staged data is kept for all runs. What an earlier call staged is found again.
    Raises TaoRayError: not enough space, unreadable archive, S3 refuses.
    """
    measure = find_measure(plan)
    networks = [plan.network, *([measure.network] if isinstance(measure, Measure) else [])]
    config, records = stage(plan.config, networks, platform, cache, record, say)
    if config is not plan.config:
        plan = make_plan(config, plan.train_sample_count)
    return plan, [_warning(r, plan.settings.trials) for r in records if r["status"] == NOT_STAGED]


def stage(
    config: RunConfig,
    networks: Sequence[Network],
    platform: Platform,
    cache: Path,
    record: Path,
    say: Callable[[str], None],
) -> tuple[RunConfig, list[dict[str, Any]]]:
    """Stage what `networks` read: the configuration that names it there, a record per location.

    Arguments and errors: see `stage_data`.
    """
    shared = _is_shared(platform)
    records = []
    for source, keys in _locations(config).items():
        began = time.monotonic()
        done = _stage(networks, source, cache, say) if shared else _unstaged(source)
        seconds = round(time.monotonic() - began, 3)
        records.append({"source": source, "keys": keys, **done, "seconds": seconds})
    downloads = [
        {"key": d.key, "source": d.link, "path": d.destination, "status": "fetched by the job"}
        for d in networks[0].downloads
    ]
    record.parent.mkdir(exist_ok=True)
    write_text(record, json.dumps({"data": records, "downloads": downloads}, indent=1))
    moved = {r["source"]: r["path"] for r in records if r["status"] in (STAGED, REUSED)}
    if moved:
        weights = {name: moved.get(uri, uri) for name, uri in _weights(config).items()}
        model = config.model.model_copy(update=weights)
        config = config.model_copy(update={"data": _renamed(config.data, moved), "model": model})
    return config, records


def staging_of(record: Path) -> list[dict[str, Any]]:
    """What `stage_data` has recorded of each location; nothing if it was not called."""
    found: list[dict[str, Any]] = json.loads(record.read_text())["data"] if record.exists() else []
    return found


def original(path: str | None, records: Sequence[Mapping[str, Any]]) -> str | None:
    """Where what is at a staged path came from; any other path as it is."""
    return next((str(r["source"]) for r in records if r["path"] == path), path)


def original_data(data: DataConfig, records: Sequence[Mapping[str, Any]]) -> DataConfig:
    """`data` as the user wrote it: with sources in place of staged paths."""
    return _renamed(data, {r["path"]: r["source"] for r in records})


def unstaged(plan: Plan, platform: Platform) -> list[Check]:
    """What `stage_data` could not stage, without staging anything."""
    if _is_shared(platform):
        return []
    records = [{"source": s, **_unstaged(s)} for s in _locations(plan.config)]
    return [_warning(r, plan.settings.trials) for r in records if r["status"] == NOT_STAGED]


def _is_shared(platform: Platform) -> bool:
    return isinstance(platform, SharesFiles) and platform.shares_files


def _weights(config: RunConfig) -> dict[str, str]:
    """The weights that jobs start from, by their key in `model`."""
    named = {"checkpoint": config.model.checkpoint, "teacher": config.model.teacher}
    return {name: uri for name, uri in named.items() if uri}


def _locations(config: RunConfig) -> dict[str, list[str]]:
    """Every location the configuration names, with the keys of `data` that hold it, and weights
    that are on S3."""
    found: dict[str, list[str]] = {}
    data = config.data
    for key in _NAMED:
        value = getattr(data, key)
        for text in [value] if isinstance(value, str) else value or []:
            found.setdefault(text, []).append(key)
    for key, value in data.spec_keys.items():
        for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            if isinstance(text, str) and text.startswith(("s3://", "/")):
                found.setdefault(text, []).append(key)
    for name, uri in _weights(config).items():
        if uri.startswith("s3://"):
            found.setdefault(uri, []).append(f"model.{name}")
    return found


def _renamed(data: DataConfig, moved: Mapping[str, str]) -> DataConfig:
    def new(value: Any) -> Any:
        if isinstance(value, list):
            return [new(item) for item in value]
        return moved.get(value, value) if isinstance(value, str) else value

    values = {key: new(getattr(data, key)) for key in _NAMED}
    return data.model_copy(update={**values, **{k: new(v) for k, v in data.spec_keys.items()}})


def _unstaged(source: str) -> dict[str, Any]:
    if not source.startswith("s3://"):
        return {"status": IN_PLACE, "path": source, "bytes": 0, "files": 0}
    reason = "this platform's machines do not share a directory with this host"
    return {"status": NOT_STAGED, "path": source, "bytes": None, "files": None, "reason": reason}


def _warning(record: Mapping[str, Any], trials: int) -> Check:
    size = _s3_size(record["source"])
    cost = f"{trials} x {size / 1e9:.2f} GB" if size else f"{trials} times all of it"
    return Check(
        "data staging",
        False,
        f"{record['source']}: every trial reads it from S3, {cost}: {record['reason']}",
        "put the data on the machines and give its path there, or take fewer trials",
        warning=True,
    )


# -- one location ----------------------------------------------------------------------------------


def _stage(
    networks: Sequence[Network], source: str, cache: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    archives = _archives_in(networks, source)
    if source.startswith("s3://"):
        objects = _s3_objects(source)
        signature = [(o["Key"], o["Size"], o["ETag"]) for o in objects]
        size = sum(o["Size"] for o in objects)

        def fill(place: Path) -> None:
            say(f"staging {source} ({size / 1e6:.1f} MB)")
            _fetch(source, objects, place)
            for archive in sorted(archives):
                packed = place / archive
                if packed.is_file():
                    _unpack(packed, packed.parent)
                    packed.unlink()

        return _once(cache, source, signature, size, fill)
    present = {a for a in archives if Path(source, a).is_file()}
    if not present:
        return {"status": IN_PLACE, "path": source, "bytes": 0, "files": 0}
    stats = {a: Path(source, a).stat() for a in sorted(present)}
    signature = [(a, s.st_size, s.st_mtime_ns) for a, s in stats.items()]

    def unpack(place: Path) -> None:
        say(f"unpacking {', '.join(sorted(present))} of {source}")
        _mirror(Path(source), place, present)

    return _once(cache, source, signature, sum(s.st_size for s in stats.values()), unpack)


def _archives_in(networks: Sequence[Network], source: str) -> set[str]:
    """The archives below `source` that a job wants as a folder."""
    base = f"{source.rstrip('/')}/"
    return {
        s.uri.removeprefix(base)
        for network in networks
        for s in network.data_sources
        if s.extract and s.uri.startswith(base)
    }


def _once(
    cache: Path, source: str, signature: Sequence[Any], size: int, fill: Callable[[Path], None]
) -> dict[str, Any]:
    """Fill a place of this source and content, unless it is there; its record."""
    digest = hashlib.sha256(json.dumps([source, *signature]).encode()).hexdigest()[:16]
    cache.mkdir(parents=True, exist_ok=True)
    place, partial = cache / digest, cache / f"{digest}.partial"
    single = len(signature) == 1 and signature[0][0] == urlsplit(source).path.lstrip("/")
    with _lock(cache / f"{digest}.lock"):
        status = REUSED if place.exists() else STAGED
        if status == STAGED:
            free = shutil.disk_usage(cache).free
            if size * _SPARE > free:
                raise TaoRayError(
                    f"{source} needs {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free",
                    where=str(cache),
                    remedy="free space, or set `results` to a larger disk",
                )
            partial.mkdir(exist_ok=True)
            fill(partial)
            partial.rename(place)
    files = [p for p in place.rglob("*") if p.is_file() and not p.is_symlink()]
    path = place / os.path.basename(signature[0][0]) if single else place
    total = sum(p.stat().st_size for p in files)
    return {"status": status, "path": str(path), "bytes": total, "files": len(files)}


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Two runs that want the same data at a time stage it once."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _mirror(source: Path, target: Path, archives: Iterable[str]) -> None:
    """`target` becomes `source`, by links, with the archives in it unpacked."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    wanted = set(archives)
    for entry in sorted(source.iterdir()):
        below = {a.split("/", 1)[1] for a in wanted if a.startswith(f"{entry.name}/")}
        if entry.name in wanted:
            _unpack(entry, target)
        elif below:
            _mirror(entry, target / entry.name, below)
        elif not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)


def _unpack(archive: Path, parent: Path) -> None:
    """Make the folder that has the archive's name, whether or not the archive holds it itself."""
    folder = _ARCHIVE.sub("", archive.name)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(_root(packed.namelist(), folder, parent))
        else:
            with tarfile.open(archive) as tar:
                _extract(tar, _root(tar.getnames(), folder, parent))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise TaoRayError(
            f"the archive cannot be unpacked: {error}", where=str(archive), remedy="pack it anew"
        ) from error


def _extract(tar: tarfile.TarFile, target: Path) -> None:
    """Nothing may land outside `target`. Raises tarfile.TarError."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(target, filter="data")
        return
    for member in tar.getmembers():  # Python before 3.10.12 and 3.11.4, such as Debian 12's own
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise tarfile.TarError(f"{member.name} would be outside its folder")
        if not (member.isfile() or member.isdir()):
            text = f"{member.name} is a link or a device, for which this Python is too old"
            raise tarfile.TarError(text)
    tar.extractall(target)


def _root(names: Iterable[str], folder: str, parent: Path) -> Path:
    tops = {name.removeprefix("./").split("/")[0] for name in names} - {"", "."}
    return parent if tops == {folder} else parent / folder


# -- S3 --------------------------------------------------------------------------------------------


def _s3_objects(uri: str) -> list[Mapping[str, Any]]:
    """The objects at or below a URI. Raises TaoRayError if there is none."""
    from botocore.exceptions import BotoCoreError, ClientError

    from tao_ray.storage.s3 import s3_client

    bucket, prefix = urlsplit(uri).netloc, urlsplit(uri).path.strip("/")
    remedy = "check the URI, ACCESS_KEY and SECRET_KEY (or the AWS names) and S3_ENDPOINT_URL"
    try:
        pages = s3_client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        found = [entry for page in pages for entry in page.get("Contents", ())]
    except (BotoCoreError, ClientError) as error:
        raise TaoRayError(f"cannot list it: {error}", where=uri, remedy=remedy) from error
    inside = f"{prefix}/" if prefix else ""
    found = [
        o
        for o in found
        if (o["Key"] == prefix or o["Key"].startswith(inside)) and not o["Key"].endswith("/")
    ]
    if not found:
        raise TaoRayError("nothing is there", where=uri, remedy=remedy)
    return found


def _s3_size(uri: str) -> int | None:
    try:
        return sum(int(o["Size"]) for o in _s3_objects(uri))
    except TaoRayError:
        return None


def _fetch(uri: str, objects: Sequence[Mapping[str, Any]], place: Path) -> None:
    """Fetch what is not there yet; an interrupted fetch is gone on with."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    from tao_ray.storage.s3 import s3_client

    client, bucket = s3_client(), urlsplit(uri).netloc
    prefix = urlsplit(uri).path.strip("/")
    for entry in objects:
        key = entry["Key"]
        name = os.path.basename(key) if key == prefix else key.removeprefix(f"{prefix}/")
        target = place / name
        if target.is_file() and target.stat().st_size == entry["Size"]:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            client.download_file(bucket, key, str(target))  # by a temporary name, then renamed
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise TaoRayError(f"cannot fetch {key}: {error}", where=uri) from error
