"""S3: interrupted uploads, damage, errors, secrets. Against a real HTTP service."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import boto3
import pytest

from tao_ray.storage import StorageError
from tao_ray.storage.s3 import S3Storage


@pytest.fixture
def storage(s3_environment: None, tmp_path: Path) -> S3Storage:
    return S3Storage("bucket", f"s3/{tmp_path.name}")


@pytest.fixture
def client(s3_endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="somebody",
        aws_secret_access_key="something",
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    root.mkdir()
    (root / "a.pth").write_bytes(b"a" * 100)
    (root / "b.pth").write_bytes(b"b" * 100)
    return root


def key_of(storage: S3Storage, name: str) -> str:
    return f"{storage.uri.removeprefix('s3://bucket/')}/{name}"


def test_an_upload_without_its_manifest_is_invisible_and_taken_up(
    storage: S3Storage, source: Path, client: Any
) -> None:
    storage.put_dir(source, "k")
    client.delete_object(Bucket="bucket", Key=key_of(storage, ".k.complete"))
    client.delete_object(Bucket="bucket", Key=key_of(storage, "k/b.pth"))
    sent = client.head_object(Bucket="bucket", Key=key_of(storage, "k/a.pth"))["LastModified"]
    assert not storage.exists("k")
    assert storage.list() == {}
    with pytest.raises(KeyError):
        storage.get_dir("k", source.parent / "back")

    storage.put_dir(source, "k")
    assert storage.list() == {"k/a.pth": 100, "k/b.pth": 100}
    after = client.head_object(Bucket="bucket", Key=key_of(storage, "k/a.pth"))["LastModified"]
    assert after == sent, "what had arrived was not sent again"

    client.delete_object(Bucket="bucket", Key=key_of(storage, ".k.complete"))
    storage.delete_prefix("k")
    assert "Contents" not in client.list_objects_v2(Bucket="bucket", Prefix=key_of(storage, "k"))


def test_a_changed_file_of_equal_size_is_sent_again(
    storage: S3Storage, source: Path, tmp_path: Path
) -> None:
    storage.put_dir(source, "k")
    (source / "a.pth").write_bytes(b"c" * 100)
    storage.put_dir(source, "k")
    storage.get_dir("k", tmp_path / "back")
    assert (tmp_path / "back" / "a.pth").read_bytes() == b"c" * 100


@pytest.mark.parametrize("damage", ["changed", "deleted"])
def test_damage_is_noticed(
    storage: S3Storage, source: Path, client: Any, tmp_path: Path, damage: str
) -> None:
    storage.put_dir(source, "k")
    place = {"Bucket": "bucket", "Key": key_of(storage, "k/a.pth")}
    if damage == "changed":
        client.put_object(**place, Body=b"x" * 100)
    else:
        client.delete_object(**place)
    with pytest.raises(StorageError, match="not those of its manifest"):
        storage.get_dir("k", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_large_files_go_in_parts(storage: S3Storage, tmp_path: Path, client: Any) -> None:
    large = tmp_path / "large.pth"
    large.write_bytes(bytes(range(256)) * (20 << 12))
    assert storage.put_dir(large, "k.pth") == 20 << 20
    parts = client.head_object(Bucket="bucket", Key=key_of(storage, "k.pth"))["ETag"]
    assert "-" in parts, "a multipart upload"
    storage.get_dir("k.pth", tmp_path / "back.pth")
    assert (tmp_path / "back.pth").read_bytes() == large.read_bytes()


def test_what_the_service_refuses_is_said_with_place_and_remedy(
    s3_environment: None, source: Path
) -> None:
    absent = S3Storage("no-such-bucket", "p")
    with pytest.raises(StorageError) as refusal:
        absent.put_dir(source, "k")
    text = str(refusal.value)
    assert text.startswith("s3://no-such-bucket/p: could not ")
    assert "NoSuchBucket" in text
    assert "S3_ENDPOINT_URL" in text
    assert "something" not in text


def test_credentials_are_not_pickled(storage: S3Storage, source: Path) -> None:
    storage.put_dir(source, "k")
    assert b"something" not in pickle.dumps(storage)
