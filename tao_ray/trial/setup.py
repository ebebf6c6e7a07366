"""What a trial is supervised with, and what its supervisor says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tao_ray.network.network import Network
from tao_ray.trial.failure import Failure
from tao_ray.trial.sources import Source


@dataclass(frozen=True)
class TrialSetup:
    """What every trial of a run shares. Pickled to wherever trials are supervised.

    milestones: the rule's rungs, which validation and checkpoint intervals must divide.
    single_shot: the action has no epochs; its one result counts as epoch 1.
    source: where the objective's value is, if not in status.json. metric_required: a job that
    never reports the metric is a failure; False where its checkpoint is evaluated all the same.
    """

    network: Network
    metric: str
    max_epochs: int
    milestones: tuple[int, ...] = ()
    single_shot: bool = False
    source: Source | None = None
    metric_required: bool = True
    gpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    job_timeout_s: float | None = None
    grace_s: float = 30.0
    train_sample_count: int | None = None
    checkpoint_interval: int | None = None


@dataclass(frozen=True)
class Epoch:
    """A completed epoch.

    seen: time.time() at which its line was known to be on disk. late: metrics of earlier epochs
    that came after those had been reported (TAO writes training losses last).
    """

    epoch: int
    metrics: Mapping[str, float]
    seconds: float | None
    job: str
    seen: float | None
    late: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The trial's job has ended by itself; `failure` is None if it finished as it should."""

    failure: Failure | None = None
    late: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Idle:
    """Nothing new. `note`: what the trial waits for, if it does not run yet."""

    note: str = ""


News = Epoch | Outcome | Idle
