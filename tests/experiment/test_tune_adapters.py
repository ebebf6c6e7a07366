"""What Tune is told of a run that goes on: real adapters and Tune's own trials, no cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.tune.experiment import Trial
from ray.tune.registry import register_trainable
from test_conductor import conductor, launch

from tao_ray.experiment.tune_adapters import SchedulerAdapter, SearchAdapter
from tao_ray.journal import Journal
from tao_ray.search.base import Decision
from tao_ray.trial.setup import Idle
from tao_ray.trial.trainable import NEWS, TrialTrainable, encode


def adapters(
    journal: Journal, name: str = "hyperband", max_concurrent: int = 3
) -> tuple[SearchAdapter, SchedulerAdapter]:
    resumed = conductor(journal, name, max_concurrent=max_concurrent)
    search = SearchAdapter(resumed, lambda: None)
    register_trainable("trial", TrialTrainable)
    search.add_configurations([SimpleNamespace(spec={"run": "trial"})])
    return search, SchedulerAdapter(resumed, search, lambda: None)


def test_tune_knows_the_trials_that_an_earlier_driver_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would see nothing alive once the running ones end, and wait ten minutes, or stop."""
    monkeypatch.setattr(Trial, "init_local_path", lambda self: None)  # needs a whole experiment
    journal = Journal(tmp_path / "journal.sqlite")
    before = conductor(journal, "hyperband", max_concurrent=3)
    for number in range(3):
        trial = before.next_proposed()
        assert trial is not None
        launch(journal, trial.id)
        if number < 2:
            decision = before.on_epoch(trial.id, 1, {"acc": 0.5}, job=f"{trial.id}-1")
            assert decision is Decision.PAUSE

    search, scheduler = adapters(journal)
    given = []
    for _ in range(3):
        added = search.next_trial()
        assert added is not None
        scheduler.on_trial_add(None, added)
        given.append((added.trial_id, added.status))
    assert given == [("0000", Trial.PAUSED), ("0001", Trial.PAUSED), ("0002", Trial.PENDING)]
    assert not search.is_finished()


def test_as_many_supervisors_start_at_a_time_as_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they would starve the trials that run. One that is free costs nothing."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    search, scheduler = adapters(Journal(tmp_path / "journal.sqlite"), "random", max_concurrent=5)
    first, second = search.next_trial(), search.next_trial()
    assert first is not None
    assert second is not None
    assert search.next_trial() is None

    speak(search, scheduler, first, pid=1)
    third = search.next_trial()
    assert third is not None
    assert search.next_trial() is None, "the second and the third are being started"

    first.set_status(Trial.TERMINATED)
    assert search.next_trial() is not None, "one of the three takes the first's process over"
    assert search.next_trial() is None


def speak(search: SearchAdapter, scheduler: SchedulerAdapter, trial: Trial, pid: int) -> None:
    """The trial's process has started and tells its first result."""
    trial.set_status(Trial.RUNNING)
    result = {NEWS: encode(Idle()), "pid": pid, "node_ip": "127.0.0.1"}
    scheduler.on_trial_result(None, trial, result)
