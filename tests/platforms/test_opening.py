"""From a configuration to a platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_ray.config import DockerPlatformConfig, SshPlatformConfig
from tao_ray.platforms import open_platform
from tao_ray.platforms.docker_host import DockerPlatform
from tao_ray.platforms.hosts import HostsPlatform


def test_a_docker_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "hush")
    monkeypatch.delenv("ABSENT", raising=False)
    config = DockerPlatformConfig(
        kind="docker", gpus_per_trial=2, slots=1, pass_env=["A_TOKEN", "ABSENT"]
    )
    platform, gpus = open_platform(config, tmp_path, 4)
    assert isinstance(platform, DockerPlatform)
    assert gpus == 2
    found = {check.name: check for check in platform.preflight()}
    assert found["variable A_TOKEN"].ok
    assert not found["variable ABSENT"].ok
    assert "hush" not in str(found)


def test_an_ssh_platform(tmp_path: Path) -> None:
    hosts = [{"host": "gpu1", "gpus": [2, 3]}, {"host": "gpu1", "port": 2222, "gpus": 0}]
    config = SshPlatformConfig.model_validate({"kind": "ssh", "hosts": hosts})
    platform, gpus = open_platform(config, tmp_path / "run" / "jobs", 4)
    assert isinstance(platform, HostsPlatform)
    assert gpus == 1
    assert platform.workspace("w").startswith("/var/tmp/tao-ray/run-")
    other, _ = open_platform(config, tmp_path / "run2" / "jobs", 4)
    assert other.workspace("w") != platform.workspace("w")


def test_hosts_without_gpus_give_none(tmp_path: Path) -> None:
    config = SshPlatformConfig.model_validate({"kind": "ssh", "hosts": [{"host": "h", "gpus": 0}]})
    assert open_platform(config, tmp_path, 4)[1] == 0
