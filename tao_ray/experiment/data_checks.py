"""The data a run needs: is it there, does it have the fields the network reads, how much is it.

What is read is cheap: annotation files of moderate size (COCO, JSON, JSON lines) and the listing
of a directory with one folder per class. Everything else is only looked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tao_ray.config.brev import BrevPlatformConfig
from tao_ray.network.network import Network
from tao_ray.network.spec import get_path
from tao_ray.platforms.base import Check, Platform, RentsMachines, SharesFiles

if TYPE_CHECKING:
    from tao_ray.config import RunConfig

_S3_NAMES = (("ACCESS_KEY", "SECRET_KEY"), ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
_LARGEST_ANNOTATION = 256 << 20
_LARGEST_DOWNLOAD = 32 << 20
_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")

# data_format of a package -> fields of the whole, and of its first entry of one of them.
_COCO = (("images", "annotations", "categories"), "annotations", ("image_id", "category_id"))
_FIELDS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "coco": _COCO,
    "coco_raw": _COCO,
}
_ENTRY_FIELDS = {"llava": ("conversations",)}


@dataclass(frozen=True)
class Source:
    """Something a job reads. key: its spec key, or the configuration's own (``model.checkpoint``).

    setting: what the user edits to change it. trains: it is training data.
    """

    key: str
    uri: str
    setting: str
    trains: bool = False


@dataclass(frozen=True)
class Contents:
    """What a data file or directory holds. samples: None if that was not to be seen cheaply."""

    samples: int | None = None
    problem: str = ""


def sources(config: RunConfig, network: Network) -> list[Source]:
    """Everything the jobs of one action read."""
    found = [
        Source(s.key, s.uri, _setting(config, s.uri), trains=_is_training(config, s.key, s.uri))
        for s in network.data_sources
    ]
    for key, value in config.data.spec_keys.items():
        for name, text in _texts(key, value):
            if _is_path(text):
                found.append(
                    Source(name, text, f"data: {{{key}: ...}}", _is_training(config, name))
                )
    known = {source.key for source in found}
    for needed in network.action.inputs:  # from the template, model.spec or model.overrides
        value = get_path(network.base_spec, needed.key, None)
        if needed.optional or needed.key in known or needed.key in network.wiring.checkpoint_keys:
            continue
        for name, text in _texts(needed.key, value):
            if _is_path(text):
                training = _is_training(config, needed.key)
                found.append(Source(name, text, f"data: {{{needed.key}: ...}}", training))
    for name in ("checkpoint", "teacher"):
        uri = getattr(config.model, name)
        if uri:
            found.append(Source(f"model.{name}", uri, f"model.{name}"))
    return found


def _setting(config: RunConfig, uri: str) -> str:
    for name in ("train", "train_wds", "eval", "inference", "calibration"):
        value = getattr(config.data, name)
        for root in [value] if isinstance(value, str) else value or ():
            if uri.startswith(root):
                return f"data.{name}"
    return "data"


def _remedy(source: Source, config: RunConfig) -> str:
    """What to do about a source that is not there."""
    given = getattr(config.data, source.setting.removeprefix("data."), None)
    if given is None or source.uri in ([given] if isinstance(given, str) else given):
        return f"correct {source.setting}"
    return (
        f"put it there, or correct {source.setting}, in which the package looks for it; or name "
        f"another path as data: {{{source.key}: ...}}"
    )


def _is_training(config: RunConfig, key: str, uri: str = "") -> bool:
    if uri and _setting(config, uri) in ("data.train", "data.train_wds"):
        return True
    _, *parts = key.split(".")  # the first is the block: train.* are settings of the training
    return any(part.startswith("train") for part in parts)


def _is_path(text: str) -> bool:
    return text.startswith("/") or "://" in text


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(f"{key}.{name}", inner)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _texts(f"{key}[{i}]", inner)


def data_checks(
    config: RunConfig, network: Network, platform: Platform | None
) -> tuple[list[Check], int | None]:
    """One check per place, and the number of training samples if it could be counted."""
    here = isinstance(platform, SharesFiles)
    checks: list[Check] = []
    counts: dict[str, tuple[bool, int]] = {}
    package = network.package
    data_format = config.data.format or (package.data_format if package else None)
    s3 = _S3()
    places: dict[str, list[Source]] = {}
    for source in sources(config, network):
        places.setdefault(source.uri, []).append(source)
    for source, *others in places.values():
        name = f"data {source.key}" + "".join(f", {other.key}" for other in others)
        scheme = urlsplit(source.uri).scheme
        if scheme == "s3":
            missing, contents = s3.look(source.uri, data_format)
        elif scheme in ("", "file") and here:
            path = Path(source.uri.removeprefix("file://"))
            missing, contents = _look(path, data_format)
        else:
            checks.append(_elsewhere(name, source.uri, scheme, config, platform))
            continue
        if missing:
            remedy = _remedy(source, config)
            if scheme == "s3" and not s3.has_credentials():
                remedy = "export ACCESS_KEY=... SECRET_KEY=... (and S3_ENDPOINT_URL)"
            checks.append(Check(name, False, f"{source.uri}: {missing}", remedy))
            continue
        seen = "" if contents.samples is None else f", {contents.samples} samples"
        problem = f": {contents.problem}" if contents.problem else ""
        remedy = f"correct the file, or data.format (now {data_format})" if problem else ""
        checks.append(Check(name, not problem, f"{source.uri}{seen}{problem}", remedy))
        if contents.samples is not None:
            annotated = source.uri.endswith((".json", ".jsonl"))
            trained = [s.key for s in (source, *others) if s.trains]
            counts |= dict.fromkeys(trained, (annotated, contents.samples))
    checks += _credentials_of_jobs(config, network)
    return checks, _total(counts)


def _credentials_of_jobs(config: RunConfig, network: Network) -> Iterator[Check]:
    """Whether jobs on rented machines are given what they read S3 with."""
    platform = config.platform
    if not isinstance(platform, BrevPlatformConfig) or platform.instance is not None:
        return
    given = {*platform.env, *platform.pass_env}
    reads = any(source.uri.startswith("s3://") for source in sources(config, network))
    if reads and not any({*pair} <= given for pair in _S3_NAMES):
        yield Check(
            "data credentials",
            False,
            "jobs read from S3, and platform.pass_env hands them no credentials",
            "platform.pass_env: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY], unless the data is "
            "public",
            warning=True,
        )


def _elsewhere(
    name: str, uri: str, scheme: str, config: RunConfig, platform: Platform | None
) -> Check:
    """Of data that is not looked for: on other machines, or by a scheme unknown here."""
    local = scheme in ("", "file")
    if local and config.data.on_instance:
        return Check(name, True, f"{uri}: on the machines, as data.on_instance says")
    if local and isinstance(platform, RentsMachines):
        return Check(
            name,
            False,
            f"{uri}: a path of this host means nothing on a rented machine",
            "put the data on S3 and name its s3:// URI; or, if the machines have it at that very "
            "path, --set data.on_instance=true",
        )
    where = " on the machines of this platform" if local else ""
    remedy = "make sure that jobs find it there"
    return Check(name, False, f"{uri}: not looked for{where}", remedy, warning=True)


def _total(counts: Mapping[str, tuple[bool, int]]) -> int | None:
    """Samples of all training sets: by their annotations if there are any, else by their images.

    Sources whose keys differ in the last part only are of one set.
    """
    annotated = any(is_annotation for is_annotation, _ in counts.values())
    sets: dict[str, int] = {}
    for key, (is_annotation, samples) in counts.items():
        if is_annotation == annotated:
            name = key.rpartition(".")[0]
            sets[name] = max(samples, sets.get(name, 0))
    return sum(sets.values()) or None


def _look(path: Path, data_format: str | None) -> tuple[str, Contents]:
    """(what is wrong with the path, what is there)."""
    if not path.exists():
        return "there is no such file or directory", Contents()
    if not os.access(path, os.R_OK):
        return "may not be read by you", Contents()
    if path.is_dir():
        return "", Contents(_images_by_class(path))
    if path.suffix in (".json", ".jsonl") and path.stat().st_size <= _LARGEST_ANNOTATION:
        return "", read_annotations(path.read_bytes(), path.suffix, data_format)
    return "", Contents()


def _images_by_class(directory: Path) -> int | None:
    """Images in a directory of one folder per class; None for any other directory."""
    classes = [entry for entry in os.scandir(directory) if entry.is_dir()]
    if not classes:
        return None
    images = sum(
        entry.name.lower().endswith(_IMAGES) for folder in classes for entry in os.scandir(folder)
    )
    return images or None


def read_annotations(data: bytes, suffix: str, data_format: str | None) -> Contents:
    """What an annotation file holds. suffix: ``.json`` or ``.jsonl``."""
    if suffix == ".jsonl":
        return Contents(sum(1 for line in data.splitlines() if line.strip()))
    try:
        content = json.loads(data)
    except ValueError as error:
        return Contents(problem=f"is not JSON ({error})")
    if isinstance(content, list):
        first = content[0] if content else {}
        missing = [f for f in _ENTRY_FIELDS.get(data_format or "", ()) if f not in first]
        text = f"its entries lack {', '.join(missing)}" if missing else ""
        return Contents(len(content), text)
    if not isinstance(content, dict) or "images" not in content:
        # Some annotations that a package names are no COCO file, such as a label map.
        return Contents()
    images = content["images"]
    samples = len(images) if isinstance(images, list) else None
    whole, key, entry = _FIELDS.get(data_format or "", ((), "", ()))
    missing = [f for f in whole if f not in content]
    if not missing and content.get(key):
        missing = [f"{key}[0].{f}" for f in entry if f not in content[key][0]]
    return Contents(samples, f"lacks {', '.join(missing)}" if missing else "")


class _S3:
    """Looks into S3; the client is made when it is first needed."""

    def __init__(self) -> None:
        self._client: Any = None

    def look(self, uri: str, data_format: str | None) -> tuple[str, Contents]:
        """(what is wrong with the URI, what is there)."""
        from botocore.exceptions import BotoCoreError, ClientError

        from tao_ray.storage.s3 import s3_client

        parts = urlsplit(uri)
        bucket, key = parts.netloc, parts.path.strip("/")
        try:
            self._client = self._client or s3_client()
            return self._look(bucket, key, data_format)
        except (BotoCoreError, ClientError) as error:
            return str(error), Contents()

    def _look(self, bucket: str, key: str, data_format: str | None) -> tuple[str, Contents]:
        listed = self._client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=100)
        found = {o["Key"]: o["Size"] for o in listed.get("Contents", ())}
        folder = f"{key}/" if key else ""
        if key not in found and not any(name.startswith(folder) for name in found):
            return "there is no such object or prefix", Contents()
        one = key if key in found else next(n for n in found if n.startswith(folder))
        self._client.head_object(Bucket=bucket, Key=one)  # listing may be allowed, reading not
        suffix = Path(key).suffix
        if suffix in (".json", ".jsonl") and found.get(key, _LARGEST_DOWNLOAD) < _LARGEST_DOWNLOAD:
            body = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
            return "", read_annotations(body, suffix, data_format)
        return "", Contents()

    def has_credentials(self) -> bool:
        """Whether any were found."""
        import boto3

        named = os.environ.get("ACCESS_KEY") and os.environ.get("SECRET_KEY")
        return bool(named) or boto3.session.Session().get_credentials() is not None
