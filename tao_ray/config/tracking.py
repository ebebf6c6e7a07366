"""Where else a run is shown, besides its own directory."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tao_ray.config.base import Flag, Section, Words

# What W&B itself refuses in a project's name.
_ProjectName = Annotated[
    str,
    StringConstraints(pattern=r"^[^/\\#?%:]{1,128}$"),
    Words("a project name: at most 128 characters, none of / \\ # ? % :"),
]


class WandbConfig(Section):
    """Weights & Biases: one run per trial and one that sums up, in one group.

    The API key is read from where W&B looks for it (`WANDB_API_KEY`, `wandb login`).
    """

    project: _ProjectName = Field(description="The project.")
    entity: str | None = Field(
        default=None, description="The user or team. Default: the one the API key belongs to."
    )
    mode: Literal["auto", "online", "offline"] = Field(
        default="auto",
        description="`offline` records in the run directory, for `wandb sync`. `auto` is `online` "
        "if there is an API key, else `offline`.",
    )


class TrackingConfig(Section):
    """Where else a run is shown, besides its own directory."""

    wandb: WandbConfig | None = Field(
        default=None, description="Weights & Biases. Default: not used."
    )
    tensorboard: Flag = Field(
        default=True, description="Write event files to `tensorboard/` in the run directory."
    )
