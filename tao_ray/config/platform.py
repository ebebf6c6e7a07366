"""The section `platform`: where trials run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tao_ray.config.base import Count, Finding, LocalPath, Section, Whole, Words, refusal
from tao_ray.config.names import NOT_YET, PLANNED_PLATFORMS, PLATFORMS


def _environment_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


EnvironmentText = Annotated[
    str,
    BeforeValidator(_environment_text),
    WithJsonSchema({"type": ["string", "integer"]}),
]


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
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind in PLANNED_PLATFORMS:
        raise refusal(Finding(("kind",), NOT_YET, f"available: {', '.join(PLATFORMS)}"))
    return value


PlatformConfig = Annotated[
    LocalPlatformConfig,
    BeforeValidator(_known_kind),
    Words(f"a mapping with a kind ({', '.join(PLATFORMS)})"),
]
"""Told apart by `kind`; to add one, make this a union with `Field(discriminator="kind")`."""
