"""What a user writes: validated models, and loading with errors that say where and what."""

from tao_ray.config.brev import BrevPlatformConfig
from tao_ray.config.differences import config_differences
from tao_ray.config.docker import ContainerPlatformConfig, DockerPlatformConfig
from tao_ray.config.jsonschema import json_schema
from tao_ray.config.lifecycle import (
    BudgetConfig,
    EvaluationConfig,
    RetentionConfig,
    ReviewConfig,
)
from tao_ray.config.load import load_config
from tao_ray.config.model import DataConfig, ModelConfig
from tao_ray.config.names import ALGORITHMS, PLANNED_ALGORITHMS, PLANNED_PLATFORMS, PLATFORMS
from tao_ray.config.platform import PLATFORM_SECTIONS, LocalPlatformConfig, PlatformConfig
from tao_ray.config.problems import ConfigError, Problem
from tao_ray.config.run import CheckpointConfig, FailuresConfig, RayConfig, RunConfig
from tao_ray.config.search import ObjectiveConfig, ParameterRange, SearchConfig
from tao_ray.config.ssh import SshHostConfig, SshPlatformConfig
from tao_ray.config.tracking import TrackingConfig, WandbConfig

__all__ = [
    "ALGORITHMS",
    "PLANNED_ALGORITHMS",
    "PLANNED_PLATFORMS",
    "PLATFORMS",
    "PLATFORM_SECTIONS",
    "BrevPlatformConfig",
    "BudgetConfig",
    "CheckpointConfig",
    "ConfigError",
    "ContainerPlatformConfig",
    "DataConfig",
    "DockerPlatformConfig",
    "EvaluationConfig",
    "FailuresConfig",
    "LocalPlatformConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "ParameterRange",
    "PlatformConfig",
    "Problem",
    "RayConfig",
    "RetentionConfig",
    "ReviewConfig",
    "RunConfig",
    "SearchConfig",
    "SshHostConfig",
    "SshPlatformConfig",
    "TrackingConfig",
    "WandbConfig",
    "config_differences",
    "json_schema",
    "load_config",
]
