"""The section `platform` for `kind: ssh`: hosts of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tao_ray.config.base import Count, Finding, LocalPath, Section, Whole, Words
from tao_ray.config.docker import ContainerPlatformConfig

Directory = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._/-]*[A-Za-z0-9._-]$"), Words("an absolute path")
]


class SshHostConfig(Section):
    """One host. What is not given is as in the SSH configuration file."""

    host: str = Field(
        description="Host name, address, or an alias of the SSH configuration file.", min_length=1
    )
    user: str | None = Field(default=None, description="User there.")
    port: Count | None = Field(default=None, description="Port of the SSH server.")
    identity_file: LocalPath | None = Field(
        default=None, description="Private key without a passphrase; agents are not asked."
    )
    config_file: LocalPath | None = Field(
        default=None,
        description="SSH configuration file that knows the host. Default: `~/.ssh/config`.",
    )
    gpus: Whole | list[Whole] | None = Field(
        default=None,
        description="How many of its GPUs to use, or a list of which. Default: all it shows.",
    )
    slots: Count | None = Field(
        default=None,
        description="Trials at a time. Default: by its GPUs, or 1 without any.",
    )

    @property
    def name(self) -> str:
        """How records and messages call it."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


class SshPlatformConfig(ContainerPlatformConfig):
    """Hosts of your own, reached by SSH. Nothing is created or deleted there but the jobs.

    Each trial stays on the host it began on, where its checkpoints are. Host keys are pinned in
    the run directory when a host is first reached.
    """

    kind: Literal["ssh"] = Field(description="The kind of platform.")
    hosts: list[SshHostConfig] = Field(description="The hosts.", min_length=1)
    engine: Literal["docker", "process"] = Field(
        default="docker",
        description="`docker`: the network's container image. `process`: the command as it is on "
        "the host.",
    )
    directory: Directory = Field(
        default="/var/tmp/tao-ray",
        description="Directory of the jobs, the same on all hosts, on a disk with room for the "
        "checkpoints.",
    )
    activate: str | None = Field(
        default=None,
        description="Script on the hosts to source before the command (`engine: process`).",
    )

    def rules(self) -> Iterator[Finding]:
        yield from super().rules()
        names = [host.name for host in self.hosts]
        for place, name in enumerate(names):
            if name in names[:place]:
                yield Finding(("hosts", place, "host"), "is listed twice")
        if self.activate is not None and self.engine == "docker":
            yield Finding(("activate",), "is for engine: process only")
