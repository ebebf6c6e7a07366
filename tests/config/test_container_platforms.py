"""The sections of the platforms `docker` and `ssh`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tao_ray.config import DockerPlatformConfig, RunConfig, SshPlatformConfig


def test_a_docker_section(minimal: Callable[..., RunConfig]) -> None:
    section = "{kind: docker, shm_size: 8g, mounts: {/data: '/data:ro'}, ulimits: {memlock: -1}}"
    platform = minimal(f"platform: {section}\n").platform
    assert isinstance(platform, DockerPlatformConfig)
    assert platform.mounts == {"/data": "/data:ro"}
    assert platform.ulimits == {"memlock": "-1"}


def test_an_ssh_section(minimal: Callable[..., RunConfig]) -> None:
    hosts = "[{host: gpu1, user: me, gpus: 4}, {host: gpu1, port: 2222, gpus: [0, 2], slots: 1}]"
    platform = minimal(f"platform: {{kind: ssh, hosts: {hosts}}}\n").platform
    assert isinstance(platform, SshPlatformConfig)
    assert [host.name for host in platform.hosts] == ["gpu1", "gpu1:2222"]
    assert [host.gpus for host in platform.hosts] == [4, [0, 2]]
    assert platform.engine == "docker"


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("{kind: docker, mounts: {data: /data}}", "platform.mounts.data: must lead from an abs"),
        ("{kind: docker, mounts: {/data: '/d:x'}}", "must lead from an absolute path"),
        ("{kind: docker, shm_size: lots}", "platform.shm_size: must be a size such as 16g"),
        ("{kind: docker, pass_env: [A B]}", "must be the name of an environment variable"),
        ("{kind: docker, image: x}", "platform.image: unknown key"),
        ("{kind: docker, num_nodes: 2}", "platform.num_nodes: unknown key"),
        ("{kind: ssh}", "platform.hosts: required: a list"),
        ("{kind: ssh, hosts: [{user: me}]}", "platform.hosts[0].host: required: text"),
        ("{kind: ssh, hosts: [{host: a}, {host: a}]}", "platform.hosts[1].host: is listed twice"),
        ("{kind: ssh, hosts: [{host: a, gpu: 1}]}", "did you mean 'gpus'?"),
        ("{kind: ssh, hosts: [{host: a}], directory: x}", "must be an absolute path"),
        ("{kind: ssh, hosts: [{host: a}], activate: /x}", "is for engine: process only"),
    ],
)
def test_what_is_refused(refused: Callable[..., str], section: str, text: str) -> None:
    assert text in refused(f"platform: {section}\n")
