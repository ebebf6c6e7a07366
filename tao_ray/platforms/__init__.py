"""Where jobs run."""

from tao_ray.platforms.base import (
    CapacityError,
    Check,
    Event,
    Exit,
    Heartbeat,
    Job,
    JobConflictError,
    JobHandle,
    KeepsFilesBetweenJobs,
    LinkError,
    LogLine,
    MachineLostError,
    Offset,
    Platform,
    PlatformError,
    StatusLine,
)
from tao_ray.platforms.opening import open_platform

__all__ = [
    "CapacityError",
    "Check",
    "Event",
    "Exit",
    "Heartbeat",
    "Job",
    "JobConflictError",
    "JobHandle",
    "KeepsFilesBetweenJobs",
    "LinkError",
    "LogLine",
    "MachineLostError",
    "Offset",
    "Platform",
    "PlatformError",
    "StatusLine",
    "open_platform",
]
