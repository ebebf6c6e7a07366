"""The section `platform` for `kind: docker`, and what every platform with containers takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tao_ray.config.base import Count, Finding, Positive, Section, Whole, Words
from tao_ray.config.environment import EnvironmentText

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOUNT = re.compile(r"/[^:]*(:(ro|rw))?")

Size = Annotated[
    str, StringConstraints(pattern=r"^[1-9][0-9]*[bkmgBKMG]?$"), Words("a size such as 16g")
]


class ContainerPlatformConfig(Section):
    """What every platform with containers takes."""

    kind: str = Field(description="The kind of platform.")
    gpus_per_trial: Whole | None = Field(
        default=None, description="GPUs for each trial. Default: 1 where there are GPUs, else 0."
    )
    shm_size: Size = Field(
        default="16g", description="Size of `/dev/shm` in the container, which data loaders fill."
    )
    mounts: dict[str, str] = Field(
        default_factory=dict,
        description="Directories that the container sees besides the job's own: path on the host "
        "to path in the container, with `:ro` behind it if it may not write. The paths under "
        "`data` are those in the container.",
    )
    ulimits: dict[str, EnvironmentText] = Field(
        default_factory=lambda: {"memlock": "-1", "stack": "67108864"},
        description="Docker's `--ulimit`s. The default is what NVIDIA recommends; a Docker Engine "
        "without privileges refuses it, then `{}`.",
    )
    network: str | None = Field(
        default=None, description="Docker's `--network`. Default: Docker's own."
    )
    pull_timeout: Positive = Field(
        default=3600.0, description="Seconds the container image may take to be pulled."
    )
    env: dict[str, EnvironmentText] = Field(
        default_factory=dict, description="Environment variables for the command."
    )
    pass_env: list[str] = Field(
        default_factory=list,
        description="Names of variables of this environment that the command gets too; their "
        "values are never shown.",
    )

    def rules(self) -> Iterator[Finding]:
        for place, name in enumerate(self.pass_env):
            if not _VARIABLE.fullmatch(name):
                yield Finding(("pass_env", place), "must be the name of an environment variable")
        for source, target in self.mounts.items():
            if not source.startswith("/") or ":" in source or not _MOUNT.fullmatch(target):
                yield Finding(
                    ("mounts", source), "must lead from an absolute path to an absolute path"
                )


class DockerPlatformConfig(ContainerPlatformConfig):
    """Containers on this machine's Docker Engine.

    The image is the package's, or `model.image`. For images of `nvcr.io`, `NGC_KEY` in the
    environment is the login; it stays on the machine only while the image is pulled.
    """

    kind: Literal["docker"] = Field(description="The kind of platform.")
    slots: Count | None = Field(
        default=None,
        description="Trials that this machine carries at a time. Default: by its GPUs, or, "
        "without any, `search.max_concurrent`.",
    )
