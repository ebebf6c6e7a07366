"""Every implementation of a contract, as a parametrised fixture. New ones are added here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from brev_emulator import machines as emulated
from brev_emulator.emulator import BrevEmulator
from real_services.dockerd import IMAGE, MOUNTS, Dockerd, running_dockerd
from real_services.sshd import Sshd, running_sshd

from tao_ray.config import BrevPlatformConfig
from tao_ray.journal import FILE_NAME, Journal
from tao_ray.platforms import CapacityError, Job, Platform, open_platform
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


def _brev(directory: Path, request: pytest.FixtureRequest) -> Platform:
    del directory
    made, environment = request.getfixturevalue("rented")
    for name, value in environment.items():
        request.getfixturevalue("monkeypatch").setenv(name, value)
    platform: Platform = made
    return platform


@pytest.fixture(scope="session")
def rented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Platform, dict[str, str]]]:
    """A run's platform with a rented machine that is ready, and the environment it is met in."""
    if reason := BrevEmulator.missing():
        pytest.skip(reason)
    if not emulated.can_be_private():
        pytest.skip("instances cannot have a /var/tmp of their own here: mounts need root")
    run = tmp_path_factory.mktemp("brev") / "r" / "now"
    run.mkdir(parents=True)
    settings: dict[str, Any] = {"gpu": "L40S", "engine": "process", "gpus_per_trial": 0}
    settings |= {"machines": 1, "slots_per_machine": 100, "idle_timeout": 3600.0}
    settings["orphan_grace"] = 2.0  # the reaper ends so long after the journal was closed
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    config = BrevPlatformConfig(kind="brev", env={"PATH": path}, **settings)
    names = ("PATH", "HOME", "BREV_EMULATOR")
    with BrevEmulator(run.parent / "account") as emulator:
        emulator.log_in()
        environment = {name: emulator.environment[name] for name in names}
        with closing(Journal(run / FILE_NAME)) as journal:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                made, _ = open_platform(config, run / "jobs", 100)
                made.rent(journal)  # type: ignore[attr-defined]
                _first_job(made)
            yield made, environment
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                made.vacate()  # type: ignore[attr-defined]
                while made.left():  # type: ignore[attr-defined]
                    time.sleep(0.1)
        assert emulator.alive() == []
        deadline = time.monotonic() + 60.0
        while "nothing is left" not in (run / "reaper.log").read_text():
            assert time.monotonic() < deadline, "the reaper goes on"
            time.sleep(0.2)


def _first_job(platform: Platform) -> None:
    """Until it has been launched there is no machine."""
    deadline = time.monotonic() + 120.0
    while True:
        try:
            platform.launch(Job("first-1", "first", "true"))
            break
        except CapacityError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    platform.discard("first")


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
    "brev": _brev,
}


@pytest.fixture(
    params=[pytest.param(p, marks=pytest.mark.slow if p == "brev" else ()) for p in PLATFORMS]
)
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
    if request.param != "brev":  # the next test has it, too
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
