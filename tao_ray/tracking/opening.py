"""Which trackers a run has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tao_ray.tracking.gauges import GaugeTracker
from tao_ray.tracking.tensorboard import TensorBoardTracker
from tao_ray.tracking.tracker import Background, RunInfo, Say, Tracker, Trackers
from tao_ray.tracking.wandb import PATIENCE_S, WandbTracker, is_online

if TYPE_CHECKING:
    from tao_ray.config import TrackingConfig

_DISK_PATIENCE_S = 30.0


def check_tracking(config: TrackingConfig) -> None:
    """Raises TaoRayError if W&B is asked for in a way that cannot work."""
    if config.wandb is not None:
        is_online(config.wandb)


def open_trackers(config: TrackingConfig, info: RunInfo, say: Say) -> Trackers:
    """The trackers that the configuration asks for, and the gauges. Needs a running Ray.

    say: tells the user a line; called in the caller's thread, from within the trackers' methods.
    """
    trackers: list[tuple[str, Tracker]] = [("the gauges", GaugeTracker(info))]
    if config.tensorboard:
        board = Background(lambda _: TensorBoardTracker(info), say, _DISK_PATIENCE_S)
        trackers.append(("TensorBoard", board))
    if (wandb := config.wandb) is not None:
        online = is_online(wandb)
        tracker = Background(lambda tell: WandbTracker(wandb, info, online, tell), say, PATIENCE_S)
        trackers.append(("W&B", tracker))
    return Trackers(trackers, say)
