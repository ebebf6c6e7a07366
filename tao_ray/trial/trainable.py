"""One trial as Ray Tune sees it.

`step` returns one epoch, or a heartbeat when nothing comes for a while, so that a stop request is
never stuck behind it. What Tune would call `tune.report(metrics)` in a function trainable is the
return value of `step` here; the whole content travels as one JSON text, because Tune flattens
nested results and TAO's metric names contain slashes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, cast

import ray
from ray import tune
from ray.exceptions import RayTaskError

from tao_ray.errors import TaoRayError
from tao_ray.journal import Event, Journal, JournalWriter
from tao_ray.platforms.base import Platform
from tao_ray.trial.setup import Epoch, Idle, News, Outcome, TrialSetup
from tao_ray.trial.supervisor import Supervisor

NEWS = "news"
"""Key of a result that holds the JSON text of what happened."""

_HEARTBEAT_S = 2.0


@ray.remote(num_cpus=0)
class JournalActor:
    """Holds the journal's writer for the driver and all trials, wherever they run."""

    def __init__(self, path: str, wait_s: float):
        from pathlib import Path

        self._journal = Journal(Path(path), wait_s=wait_s)

    def append(self, events: list[Event]) -> list[Event]:
        """See `JournalWriter.append`."""
        return self._journal.append(*events)

    def read(self, after: int, trial: str | None) -> list[Event]:
        """See `JournalWriter.read`."""
        return self._journal.read(after=after, trial=trial)

    def close(self) -> None:
        """Give the journal free."""
        self._journal.close()


class RemoteJournal:
    """The journal, held by a `JournalActor`. An append returns when it is on disk."""

    def __init__(self, actor: Any):
        self._actor = actor

    def append(self, *events: Event) -> list[Event]:
        """See `JournalWriter.append`."""
        return _result(self._actor.append.remote(list(events)))

    def read(self, *, after: int = 0, trial: str | None = None) -> list[Event]:
        """See `JournalWriter.read`."""
        return _result(self._actor.read.remote(after, trial))


def _result(reference: Any) -> list[Event]:
    """What the actor returned or raised; an error for the user without Ray's wrapping."""
    try:
        return cast(list[Event], ray.get(reference))
    except RayTaskError as error:
        if isinstance(error.cause, TaoRayError):
            raise error.cause from None
        raise


class TrialTrainable(tune.Trainable):
    """Supervises one trial. Parameters besides Tune's config: setup, platform, journal."""

    def setup(
        self,
        config: dict[str, Any],
        setup: TrialSetup | None = None,
        platform: Platform | None = None,
        journal: JournalWriter | None = None,
    ) -> None:
        """Called by Tune in the trial's actor."""
        assert setup is not None
        assert platform is not None
        assert journal is not None
        self._parts = setup, platform, journal
        self._begin(config["trial"])

    def _begin(self, trial_id: str) -> None:
        self._supervisor = Supervisor(trial_id, *self._parts)
        self._epoch = 0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Tune gives this process to another trial, without a `cleanup` of the one before."""
        self._supervisor.stop()
        self._begin(new_config["trial"])
        return True

    def step(self) -> dict[str, Any]:
        """One epoch, or whatever else happened, or a heartbeat."""
        news = self._supervisor.next(_HEARTBEAT_S)
        if isinstance(news, Epoch):
            self._epoch = news.epoch
        return {NEWS: encode(news), "training_iteration": self._epoch}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing: the job's own checkpoints and the journal carry the trial's state."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing, see `save_checkpoint`."""

    def cleanup(self) -> None:
        """Tune stops the trial (pause, stop, interrupt): no job may run on unseen."""
        self._supervisor.stop()


def encode(news: News) -> str:
    """News as JSON text."""
    data = asdict(news)
    if isinstance(news, Outcome) and news.failure:
        data["failure"] = news.failure.to_json()
    return json.dumps({"what": type(news).__name__, **data})


def decode(text: str) -> News:
    """The inverse of `encode`."""
    from tao_ray.trial.failure import Failure

    data = json.loads(text)
    what = data.pop("what")
    if what == "Epoch":
        return Epoch(**data)
    if what == "Outcome":
        failure = data.pop("failure")
        return Outcome(Failure.from_json(failure) if failure else None, **data)
    return Idle(**data)
