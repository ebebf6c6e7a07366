"""From the configuration's `platform` section to a platform."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.platforms.base import Check, Platform
from tao_ray.platforms.local import LocalPlatform

if TYPE_CHECKING:
    from tao_ray.config import (
        BrevPlatformConfig,
        ContainerPlatformConfig,
        DockerPlatformConfig,
        LocalPlatformConfig,
        PlatformConfig,
        SshHostConfig,
        SshPlatformConfig,
    )


def open_platform(
    config: PlatformConfig | None,
    root: Path,
    max_concurrent: int,
    *,
    hours: float | None = None,
) -> tuple[Platform, int]:
    """The platform (`local` if none was chosen) and the GPUs each trial gets there.

    root: the run's own directory for jobs, for platforms that keep them on this host. hours: the
    longest the run may take, for the preflight of sessions that end.
    """
    if config is None or config.kind == "local":
        return _local(config, root, max_concurrent)
    if config.kind == "docker":
        return _docker(config, root, max_concurrent)
    if config.kind == "ssh":
        return _ssh(config, root)
    return _brev(config, root, max_concurrent, hours)


def _local(
    config: LocalPlatformConfig | None, root: Path, max_concurrent: int
) -> tuple[Platform, int]:
    env = dict(config.env) if config else {}
    activate = config.activate if config else None
    slots = config.slots if config else None
    platform = LocalPlatform(root, slots=slots, env=env, activate=activate)
    gpus = config.gpus_per_trial if config else None
    if gpus is None:
        gpus = 1 if platform.gpus else 0
    if gpus == 0 and slots is None:
        # Without GPUs nothing else bounds how many jobs this host is given at a time.
        platform = LocalPlatform(root, slots=max_concurrent, env=env, activate=activate)
    return platform, gpus


def _docker(config: DockerPlatformConfig, root: Path, max_concurrent: int) -> tuple[Platform, int]:
    from tao_ray.platforms.docker_host import DockerPlatform

    env, findings = _environment(config)
    settings = {**_container_settings(config), "env": env, "findings": findings}
    platform = DockerPlatform(root, slots=config.slots, **settings)
    gpus = config.gpus_per_trial
    if gpus is None:
        gpus = 1 if platform.gpus else 0
    if gpus == 0 and config.slots is None:
        platform = DockerPlatform(root, slots=max_concurrent, **settings)
    return platform, gpus


def _ssh(config: SshPlatformConfig, root: Path) -> tuple[Platform, int]:
    from tao_ray.platforms.docker import DockerEngine
    from tao_ray.platforms.hosts import Host, HostsPlatform
    from tao_ray.platforms.process import ProcessEngine
    from tao_ray.platforms.ssh_config import SshTarget

    env, findings = _environment(config)
    # Runs must not meet each other on the hosts.
    place = hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:8]
    far_root = f"{config.directory}/{root.absolute().parent.name}-{place}"
    engine: Callable[..., ProcessEngine]
    if config.engine == "docker":
        engine = partial(DockerEngine, far_root, env=env, **_container_settings(config))
    else:
        engine = partial(ProcessEngine, far_root, env=env, activate=config.activate)
    hosts = [
        Host(
            h.name,
            SshTarget(h.host, h.user, h.port, h.identity_file, h.config_file),
            _gpus(h),
            h.slots,
        )
        for h in config.hosts
    ]
    platform = HostsPlatform(hosts, engine, root, findings=findings)
    gpus = config.gpus_per_trial
    if gpus is None:
        known = [host.gpus for host in hosts if host.gpus is not None]
        has_gpus = any(known) or (len(known) < len(hosts) and bool(platform.gpus))
        gpus = 1 if has_gpus else 0
    return platform, gpus


def _brev(
    config: BrevPlatformConfig, root: Path, max_concurrent: int, hours: float | None
) -> tuple[Platform, int]:
    from tao_ray.platforms.brev.platform import BrevPlatform
    from tao_ray.platforms.docker import DockerEngine
    from tao_ray.platforms.process import ProcessEngine

    env, findings = _environment(config)

    def engine(far_root: str) -> ProcessEngine:
        if config.engine == "process":
            return ProcessEngine(far_root, env=env, activate=config.activate)
        settings = _container_settings(config)
        if config.link == "exec":
            settings["registry"] = None  # its token would be seen
        return DockerEngine(far_root, env=env, **settings)

    directory = root.absolute().parent
    platform = BrevPlatform(config, engine, directory, max_concurrent, findings, hours)
    return platform, config.gpus


def _gpus(host: SshHostConfig) -> tuple[str, ...] | None:
    if host.gpus is None:
        return None
    chosen = range(host.gpus) if isinstance(host.gpus, int) else host.gpus
    return tuple(str(gpu) for gpu in chosen)


def _container_settings(config: ContainerPlatformConfig) -> dict[str, Any]:
    """Keywords of `DockerEngine`."""
    from tao_ray.platforms.docker_image import Registry

    token = os.environ.get("NGC_KEY") or os.environ.get("NGC_API_KEY")
    return {
        "registry": Registry("nvcr.io", token) if token else None,
        "shm_size": config.shm_size,
        "ulimits": config.ulimits,
        "mounts": config.mounts,
        "network": config.network,
        "pull_timeout": config.pull_timeout,
    }


def _environment(config: ContainerPlatformConfig) -> tuple[dict[str, str], list[Check]]:
    """The jobs' environment, and whether what is to be passed on is there."""
    env, findings = dict(config.env), []
    for name in config.pass_env:
        value = os.environ.get(name)
        there = value is not None
        remedy = "" if there else f"export {name}=..., or remove it from platform.pass_env"
        findings.append(Check(f"variable {name}", there, "platform.pass_env", remedy))
        if value is not None:
            env[name] = value
    return env, findings
