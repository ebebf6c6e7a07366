"""The section `platform` for `kind: brev`: GPU machines rented from Brev."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tao_ray.config.base import Count, Finding, Flag, Positive, Whole, Words
from tao_ray.config.docker import ContainerPlatformConfig

Directory = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._/-]*[A-Za-z0-9._-]$"), Words("an absolute path")
]


class BrevPlatformConfig(ContainerPlatformConfig):
    """GPU machines rented from Brev while the run needs them, and surely deleted after it."""

    kind: Literal["brev"] = Field(description="The kind of platform.")
    gpu: str | None = Field(
        default=None, description="Name of the GPU, such as `L40S`. Default: any GPU."
    )
    type: str | list[str] | None = Field(
        default=None,
        description="Instance types to try, in this order, instead of the cheapest that match.",
    )
    provider: str | None = Field(default=None, description="Cloud provider. Default: any.")
    min_vram_gb: Positive | None = Field(default=None, description="Least memory of each GPU.")
    disk_gb: Positive | None = Field(default=None, description="Least disk of a machine.")
    max_price_per_hour: Positive | None = Field(
        default=None,
        description="US dollars per hour of one machine that are not exceeded. Without it, and "
        "without `type`, the reviewed prices are the limit.",
    )
    instance: str | None = Field(
        default=None,
        description="Name of an instance of your own to use instead; it is never deleted.",
    )
    machines: Count | None = Field(
        default=None,
        description="Machines at a time, at most. Default: what `search.max_concurrent` needs.",
    )
    gpus_per_trial: Whole | None = Field(
        default=None, description="GPUs for each trial. Default: 1."
    )
    slots_per_machine: Count | None = Field(
        default=None,
        description="Trials that a machine carries at a time; it gets GPUs for all of them. "
        "Default: 1.",
    )
    reuse: Flag = Field(
        default=True,
        description="Whether a machine serves one trial after the other. `false`: each job gets "
        "a machine of its own.",
    )
    idle_timeout: Positive = Field(
        default=300.0, description="Seconds after which a machine without a trial is deleted."
    )
    ready_timeout: Positive = Field(
        default=600.0,
        description="Seconds a machine may take to answer; then it is deleted and the next type "
        "is tried.",
    )
    lost_after: Positive = Field(
        default=600.0,
        description="Seconds without an answer after which a machine is given up and its trials "
        "go on elsewhere.",
    )
    orphan_grace: Positive = Field(
        default=900.0,
        description="Seconds after the driver's death until the machines are deleted, unless the "
        "run is resumed.",
    )
    org: str | None = Field(default=None, description="Brev organisation. Default: the active one.")
    cloud_cred_id: str | None = Field(
        default=None, description="`brev create --cloud-cred-id`, where the CLI has it."
    )
    workspace_group_id: str | None = Field(
        default=None, description="`brev create --workspace-group-id`, where the CLI has it."
    )
    engine: Literal["docker", "process"] = Field(
        default="docker",
        description="`docker`: the network's container image. `process`: the command as it is on "
        "the machine, such as for a rehearsal.",
    )
    link: Literal["ssh", "exec"] = Field(
        default="ssh",
        description="`ssh`: a connection of our own. `exec`: by `brev exec`, where SSH is "
        "impossible from this host; slower, without secrets: docs/brev.md.",
    )
    directory: Directory = Field(
        default="/var/tmp/tao-ray", description="Directory of the jobs on the machines."
    )
    activate: str | None = Field(
        default=None,
        description="Script on the machine to source before the command (`engine: process`).",
    )

    def rules(self) -> Iterator[Finding]:
        yield from super().rules()
        if self.instance is not None and self.type is not None:
            yield Finding(("instance",), "cannot be combined with type: it exists already")
        if self.link == "exec" and self.pass_env:
            yield Finding(
                ("pass_env",),
                "cannot be combined with link: exec, which shows what it sends in process lists",
                "have the instance hold what the jobs need, or use link: ssh",
            )

    @property
    def gpus(self) -> int:
        """GPUs for each trial."""
        return 1 if self.gpus_per_trial is None else self.gpus_per_trial

    @property
    def slots(self) -> int:
        """Trials that one machine carries at a time."""
        return self.slots_per_machine or 1
