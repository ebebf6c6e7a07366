"""Storage in an S3 bucket, or in what speaks the same protocol: ``s3://bucket/prefix``.

Credentials: ``ACCESS_KEY`` and ``SECRET_KEY``, else what boto3 finds (the ``AWS_*`` variables,
profiles, instance roles). Endpoint: ``S3_ENDPOINT_URL``, else boto3's. They are read where the
storage is used and never pickled with it.

An artifact's marker is its manifest: each file's size and SHA-256, which `get_dir` verifies.
Files that an interrupted upload had finished are not sent again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tao_ray.files import move_tree, walk_files
from tao_ray.storage.base import StorageError
from tao_ray.storage.layout import (
    below,
    check_key,
    check_prefix,
    complete_files,
    covering,
    is_marker,
    marker,
    refuse_nesting,
)

_ATTEMPTS = 3
_DELETE_BATCH = 1000  # the protocol's limit


class S3Storage:
    """See `tao_ray.storage.base.Storage`. The bucket must exist."""

    def __init__(self, bucket: str, prefix: str = ""):
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self._client_: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client_": None}

    def put_dir(self, source: Path, key: str) -> int:
        check_key(key)
        if not source.exists():
            raise FileNotFoundError(source)
        refuse_nesting(self, key)
        files = {f"{key}/{name}": path for name, path in walk_files(source)}
        if not source.is_dir():
            files = {key: source}
        with self._errors(f"store {key}"):
            if self._manifest(key) is not None:
                self._delete([marker(key)])
            there = self._list(key)
            manifest = {
                name: {"size": path.stat().st_size, "sha256": self._upload(path, name, there)}
                for name, path in files.items()
            }
            self._delete([name for name in there if name not in files])
            body = json.dumps({"key": key, "files": manifest}, indent=1).encode()
            self._client.put_object(Bucket=self._bucket, Key=self._at(marker(key)), Body=body)
        return sum(path.stat().st_size for path in files.values())

    def get_dir(self, key: str, destination: Path) -> int:
        check_key(key)
        destination.parent.mkdir(parents=True, exist_ok=True)
        with self._errors(f"fetch {key}"):
            for _ in range(_ATTEMPTS):
                files = self._manifest(key)
                if files is None:
                    raise KeyError(key)
                with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".get-") as work:
                    partial = Path(work, "artifact")
                    if self._download(key, files, partial):
                        move_tree(partial, destination)
                        return sum(entry["size"] for entry in files.values())
        raise StorageError(
            f"the files of {key} are not those of its manifest",
            where=self.uri,
            remedy="something else writes to this place, or an object is damaged: store it again",
        )

    def exists(self, key: str) -> bool:
        check_key(key)
        with self._errors(f"look for {key}"):
            return self._manifest(key) is not None

    def list(self, prefix: str = "") -> dict[str, int]:
        check_prefix(prefix)
        with self._errors("list"):
            return complete_files(self._list(prefix), covering(self, prefix))

    def delete_prefix(self, prefix: str) -> int:
        check_prefix(prefix)
        with self._errors(f"delete {prefix or 'everything'}"):
            names = self._list(prefix)
            if prefix:
                self._delete([marker(prefix)])
            self._delete([name for name in names if is_marker(name)])
            self._delete([name for name in names if not is_marker(name)])
        return sum(size for name, size in names.items() if not is_marker(name))

    def _upload(self, path: Path, name: str, there: Mapping[str, int]) -> str:
        """Send a file unless the very same is there already; its SHA-256."""
        digest = _sha256(path)
        if there.get(name) == path.stat().st_size:
            head = self._client.head_object(Bucket=self._bucket, Key=self._at(name))
            if head["Metadata"].get("sha256") == digest:
                return digest
        self._client.upload_file(
            str(path), self._bucket, self._at(name), ExtraArgs={"Metadata": {"sha256": digest}}
        )
        return digest

    def _download(self, key: str, files: Mapping[str, Any], destination: Path) -> bool:
        """Whether all files came as the manifest says: they may be replaced meanwhile."""
        if key not in files:
            destination.mkdir()
        for name, entry in files.items():
            path = destination / name[len(key) + 1 :] if name != key else destination
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._client.download_file(self._bucket, self._at(name), str(path))
            except self._client.exceptions.ClientError as error:
                if _is_absence(error):
                    return False
                raise
            if _sha256(path) != entry["sha256"]:
                return False
        return True

    def _manifest(self, key: str) -> dict[str, Any] | None:
        """The files of a complete artifact: key -> size and sha256. None if there is none."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._at(marker(key)))
        except self._client.exceptions.NoSuchKey:
            return None
        files: dict[str, Any] = json.loads(answer["Body"].read())["files"]
        return files

    def _list(self, prefix: str) -> dict[str, int]:
        """Everything at or below a prefix, complete or not: key -> bytes."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._at(prefix)
        )
        found = {}
        for page in pages:
            for entry in page.get("Contents", ()):
                name = entry["Key"][len(self._prefix) :]
                if below(prefix, name):
                    found[name] = entry["Size"]
        return found

    def _delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETE_BATCH):
            batch = [{"Key": self._at(name)} for name in names[start : start + _DELETE_BATCH]]
            answer = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True}
            )
            for failed in answer.get("Errors", ()):
                raise StorageError(f"{failed['Key']}: {failed['Message']}", where=self.uri)

    def _at(self, name: str) -> str:
        return self._prefix + name

    @property
    def _client(self) -> Any:
        if self._client_ is None:
            self._client_ = s3_client()
        return self._client_

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise StorageError(
                f"could not {what}: {error}",
                where=self.uri,
                remedy="check the bucket's name, ACCESS_KEY and SECRET_KEY (or the AWS names) and "
                "S3_ENDPOINT_URL",
            ) from error


def s3_client() -> Any:
    """A client from the environment. boto3 is imported here, where it is first needed."""
    import boto3
    from botocore.config import Config

    environment = os.environ
    endpoint = environment.get("S3_ENDPOINT_URL") or None
    settings: dict[str, Any] = {
        "retries": {"mode": "standard", "max_attempts": 5},
        "connect_timeout": 10,
        "read_timeout": 60,
    }
    if endpoint:  # not every store knows buckets as host names, or checksums in trailers
        settings["s3"] = {"addressing_style": "path"}
        settings["request_checksum_calculation"] = "when_required"
        settings["response_checksum_validation"] = "when_required"
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    credentials = {}
    if environment.get("ACCESS_KEY") and environment.get("SECRET_KEY"):
        credentials = {
            "aws_access_key_id": environment["ACCESS_KEY"],
            "aws_secret_access_key": environment["SECRET_KEY"],
        }
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=region or ("us-east-1" if endpoint else None),
        config=Config(**settings),
        **credentials,
    )


def _is_absence(error: Any) -> bool:
    return error.response["Error"]["Code"] in ("404", "NoSuchKey", "NotFound")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
