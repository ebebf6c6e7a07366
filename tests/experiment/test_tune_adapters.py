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
from tao_ray.trial.trainable import TrialTrainable


def adapters(journal: Journal) -> tuple[SearchAdapter, SchedulerAdapter]:
    resumed = conductor(journal, "hyperband", max_concurrent=3)
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
