"""The section `platform`: where trials run."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tao_ray.config.base import Count, Finding, LocalPath, Section, Whole, Words, refusal
from tao_ray.config.brev import BrevPlatformConfig
from tao_ray.config.docker import DockerPlatformConfig
from tao_ray.config.environment import EnvironmentText
from tao_ray.config.names import NOT_YET, PLANNED_PLATFORMS, PLATFORMS
from tao_ray.config.ssh import SshPlatformConfig


class LocalPlatformConfig(Section):
    """This machine, without a container: the network's command runs as it is."""

    kind: Literal["local"] = Field(description="The kind of platform.")
    slots: Count | None = Field(
        default=None,
        description="Trials that this machine carries at a time. Default: by its GPUs, or, "
        "without any, `search.max_concurrent`.",
    )
    gpus_per_trial: Whole | None = Field(
        default=None,
        description="GPUs for each trial. Default: 1 where the machine has GPUs, else 0.",
    )
    activate: LocalPath | None = Field(
        default=None,
        description="Script to source before the command, such as a virtual environment's "
        "`bin/activate`.",
    )
    env: dict[str, EnvironmentText] = Field(
        default_factory=dict, description="Environment variables for the command."
    )


def _known_kind(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "kind" not in value:
        raise refusal(Finding(("kind",), f"required: one of {', '.join(PLATFORMS)}"))
    kind = value["kind"]
    if kind in PLANNED_PLATFORMS:
        raise refusal(Finding(("kind",), NOT_YET, f"available: {', '.join(PLATFORMS)}"))
    if kind not in PLATFORMS:
        near = get_close_matches(str(kind), PLATFORMS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else ""
        raise refusal(Finding(("kind",), f"must be one of {', '.join(PLATFORMS)}", hint))
    return value


PLATFORM_SECTIONS: dict[str, type[Section]] = {
    "local": LocalPlatformConfig,
    "docker": DockerPlatformConfig,
    "ssh": SshPlatformConfig,
    "brev": BrevPlatformConfig,
}
"""By `kind`."""

PlatformConfig = Annotated[
    Annotated[
        LocalPlatformConfig | DockerPlatformConfig | SshPlatformConfig | BrevPlatformConfig,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_known_kind),
    Words(f"a mapping with a kind ({', '.join(PLATFORMS)})"),
]
"""Told apart by `kind`."""
