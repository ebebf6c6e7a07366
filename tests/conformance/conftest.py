"""Every implementation of a contract, as a parametrised fixture. New ones are added here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from real_services.dockerd import IMAGE, MOUNTS, Dockerd, running_dockerd
from real_services.sshd import Sshd, running_sshd

from tao_ray.platforms import Platform
from tao_ray.platforms.docker_host import DockerPlatform
from tao_ray.platforms.hosts import Host, HostsPlatform
from tao_ray.platforms.local import LocalPlatform
from tao_ray.platforms.process import ProcessEngine
from tao_ray.storage import Storage, open_storage


def _local(directory: Path, _: pytest.FixtureRequest) -> Platform:
    return LocalPlatform(directory / "with space")


def _ssh(directory: Path, request: pytest.FixtureRequest) -> Platform:
    server: Sshd = request.getfixturevalue("sshd")
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    engine = partial(ProcessEngine, str(directory / "far side"), env={"PATH": path})
    return HostsPlatform([Host("box", server.target, slots=100)], engine, directory / "run")


def _docker(directory: Path, request: pytest.FixtureRequest) -> Platform:
    engine: Dockerd = request.getfixturevalue("dockerd")
    request.getfixturevalue("monkeypatch").setenv("DOCKER_HOST", engine.environment["DOCKER_HOST"])
    root = directory / "with space"
    return DockerPlatform(root, image=IMAGE, mounts=MOUNTS, network="none", ulimits={})


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    yield from running_sshd(tmp_path_factory.mktemp("sshd") / "server")


@pytest.fixture(scope="session")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    yield from running_dockerd(tmp_path_factory.mktemp("dockerd"))


PLATFORMS: dict[str, Callable[[Path, pytest.FixtureRequest], Platform]] = {
    "local": _local,
    "ssh": _ssh,
    "docker": _docker,
}


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
