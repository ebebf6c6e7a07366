"""Every implementation of a contract, as a parametrised fixture. New ones are added here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tao_ray.platforms import Platform
from tao_ray.platforms.local import LocalPlatform
from tao_ray.storage import Storage, open_storage


def _local(directory: Path, _: pytest.FixtureRequest) -> Platform:
    return LocalPlatform(directory / "with space")


PLATFORMS: dict[str, Callable[[Path, pytest.FixtureRequest], Platform]] = {"local": _local}


@pytest.fixture(params=PLATFORMS)
def platform(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Platform]:
    # What a Ray worker or a torch launcher leaves in its environment.
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "RAY_JOB_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "" if name == "CUDA_VISIBLE_DEVICES" else "7")
    made = PLATFORMS[request.param](tmp_path, request)
    yield made
    made.discard("w")
    made.discard("other")
    made.close()


def _file(directory: Path, _: pytest.FixtureRequest) -> Storage:
    return open_storage(str(directory / "storage"))


def _s3(directory: Path, request: pytest.FixtureRequest) -> Storage:
    request.getfixturevalue("s3_environment")
    return open_storage(f"s3://bucket/{directory.name}")


STORAGES: dict[str, Callable[[Path, pytest.FixtureRequest], Storage]] = {"file": _file, "s3": _s3}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return STORAGES[request.param](tmp_path, request)
