"""The whole configuration of a run, and its smaller sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, PrivateAttr, StringConstraints, model_validator

from tao_ray.config.base import (
    Count,
    Finding,
    Flag,
    Location,
    Positive,
    Section,
    Whole,
    Words,
    absolute,
)
from tao_ray.config.lifecycle import (
    BudgetConfig,
    EvaluationConfig,
    RetentionConfig,
    ReviewConfig,
)
from tao_ray.config.model import DataConfig, ModelConfig
from tao_ray.config.platform import PlatformConfig
from tao_ray.config.problems import KeyPath
from tao_ray.config.search import ObjectiveConfig, SearchConfig
from tao_ray.config.tracking import TrackingConfig

_SECRET_NAME = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{env:(\w+)")

RunName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$"),
    Words("a directory name: at most 64 letters, digits, '.', '_', '-', no '.' or '-' first"),
]


class FailuresConfig(Section):
    """What is done about failures."""

    max_failures_in_a_row: Count = Field(
        default=3,
        description="Trials that may fail for the same reason, one after the other, before the "
        "run stops with that reason.",
    )
    max_retries: Whole = Field(
        default=2,
        description="How often a trial is continued elsewhere when the machine, not the network, "
        "failed.",
    )
    job_timeout_hours: Positive | None = Field(
        default=None, description="Longest time one job may take. Default: no limit."
    )


class CheckpointConfig(Section):
    """When the network writes checkpoints."""

    interval: Count | None = Field(
        default=None,
        description="Epochs between checkpoints. Default: what the algorithm's rungs need.",
    )
    sync_every: Count = Field(
        default=1,
        description="Epochs between two copies of a running trial's newest checkpoint to this "
        "host, on platforms whose machines are rented; fewer if copying would take more than a "
        "tenth of the time.",
    )


class RayConfig(Section):
    """The Ray cluster that supervises the trials. It needs no GPU: jobs run on the platform."""

    address: str | None = Field(
        default=None,
        description="Address of a running cluster. Default: one of our own, on this machine.",
    )
    num_cpus: Count | None = Field(
        default=None, description="CPUs our own cluster may use. Default: all of this machine."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="Least severe of Ray's own messages in `driver.log`."
    )
    dashboard: Literal["auto"] | Flag = Field(
        default="auto",
        description="Whether our own cluster has Ray's dashboard. `auto`: if the extra "
        "`tao_ray[dashboard]` is installed.",
    )
    dashboard_port: Count | None = Field(
        default=None, description="Port of the dashboard. Default: the first free one from 8265 on."
    )
    metrics_port: Count | None = Field(
        default=None,
        description="Port at which Prometheus reads the run's gauges. Default: any free one.",
    )


class RunConfig(Section):
    """One run: everything a user decides."""

    name: RunName = Field(description="Name of the run; its directory is `<name>/<time>`.")
    model: ModelConfig = Field(description="The network.")
    data: DataConfig = Field(default_factory=DataConfig, description="The data.")
    objective: ObjectiveConfig = Field(
        default_factory=ObjectiveConfig, description="What a trial is judged by."
    )
    search: SearchConfig = Field(
        default_factory=SearchConfig, description="What is searched, and how."
    )
    platform: PlatformConfig | None = Field(
        default=None,
        description="Where trials run. Default: `{kind: local}` for a package without a container "
        "image; required for one with an image.",
    )
    results: Location | None = Field(
        default=None,
        description="Where run directories are made. Default: `runs` in the working directory. "
        "With `s3://bucket/prefix` they are made there too, and records and the winner's "
        "checkpoint are stored in the bucket at the run's end.",
    )
    baseline: Literal["auto", "train", "skip"] = Field(
        default="auto",
        description="What the winner is compared with. `auto`: `model.checkpoint`, evaluated "
        "before the search; without one, trial 0 (the network's defaults). `train`: a training "
        "with the defaults before the search, outside its budget. `skip`: nothing.",
    )
    evaluation: EvaluationConfig = Field(
        default_factory=EvaluationConfig, description="How models are evaluated."
    )
    review: ReviewConfig = Field(
        default_factory=ReviewConfig, description="What is asked before a run starts."
    )
    budget: BudgetConfig = Field(default_factory=BudgetConfig, description="What the run may take.")
    failures: FailuresConfig = Field(
        default_factory=FailuresConfig, description="What is done about failures."
    )
    checkpoint: CheckpointConfig = Field(
        default_factory=CheckpointConfig, description="When checkpoints are written."
    )
    retention: RetentionConfig = Field(
        default_factory=RetentionConfig, description="Which checkpoints stay."
    )
    ray: RayConfig = Field(default_factory=RayConfig, description="The Ray cluster.")
    tracking: TrackingConfig = Field(
        default_factory=TrackingConfig, description="Where else the run is shown."
    )

    _directory: Path = PrivateAttr(default_factory=Path.cwd)
    _references: Mapping[KeyPath, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _empty_section_is_default(cls, data: Any) -> Any:
        """A section whose keys are all commented out reads as null."""
        if not isinstance(data, dict):
            return data
        data = {key: value for key, value in data.items() if value is not None}
        objectives = data.get("objective")
        if isinstance(objectives, list) and objectives and isinstance(objectives[0], dict):
            data["objective"] = {**objectives[0], "others": objectives[1:]}
        return data

    def rules(self) -> Iterator[Finding]:
        if self.model.package is None and self.search.parameters == "default":
            yield Finding(
                ("search", "parameters"),
                "must be a mapping of spec keys to ranges for a model without a package",
            )

    def written_in(self, directory: Path, references: Mapping[KeyPath, str]) -> RunConfig:
        """This configuration, knowing where its file is and which values are from ``${env:…}``."""
        config = self.model_copy()
        config._directory = directory
        config._references = dict(references)
        return config

    @property
    def directory(self) -> Path:
        """Directory of the file: what a relative `model.package` is relative to."""
        return self._directory

    def dump(self) -> dict[str, Any]:
        """The resolved configuration as plain data without secrets; `load_config` reads it back.

        Keys that are unset are left out. Secrets (`model.key`, whatever has a secret's name in
        `platform.env`, references to variables with such a name) appear only as ``${env:NAME}``,
        and a `model.key` that was written out not at all.
        """
        data = self.model_dump(exclude_none=True)
        package = self.model.package
        if package is not None and Path(absolute(package, self.directory)).is_dir():
            data["model"]["package"] = absolute(package, self.directory)
        for name in self.platform.env if self.platform else ():
            if _SECRET_NAME.search(name):
                data["platform"]["env"][name] = f"${{env:{name}}}"
        for path, text in self._references.items():
            if path == ("model", "key") or any(map(_SECRET_NAME.search, _VARIABLE.findall(text))):
                holder: Any = reduce(getitem, path[:-1], cast(Any, data))
                holder[path[-1]] = text
        return data
