"""The two objects through which Ray Tune drives the conductor: one pair for every algorithm.

Tune asks the search algorithm for trials and tells the scheduler results. Nothing of Tune's own
experiment state is ever read back: on resume a new Tuner is given the unfinished trials again.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.experiment.config_parser import _create_trial_from_spec, _make_parser
from ray.tune.result import NODE_IP, PID
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import SearchAlgorithm

from tao_ray.experiment.conductor import Conductor
from tao_ray.search.base import Decision
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.setup import Epoch, Outcome
from tao_ray.trial.state import PAUSED, TrialState
from tao_ray.trial.trainable import NEWS, decode


class _NotInSnapshots:
    """Tune pickles what it drives into its own snapshots, which are never read back."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class SearchAdapter(_NotInSnapshots, SearchAlgorithm):
    """Gives Tune the conductor's trials, under their own ids; unfinished ones first."""

    def __init__(self, conductor: Conductor, poll: Callable[[], None]):
        """poll: called whenever Tune asks for a trial: without one it asks nothing else."""
        self._conductor = conductor
        self._poll = poll
        # Paused ones first: they take no slot, and Tune must know of them before it finds that
        # nothing runs; it would wait ten minutes for a new trial then, or end the search.
        self._again = deque([*conductor.paused(), *conductor.unfinished()])
        self._spec: dict[str, Any] = {}
        self._parser = _make_parser()
        self.processes: set[tuple[str, int]] = set()
        """Supervising processes that have spoken so far: node and pid."""
        self.tune_trials: dict[str, Trial] = {}

    def add_configurations(self, experiments: Any) -> None:
        """Called by Tune once, with the experiment."""
        self._spec = experiments[0].spec

    def next_trial(self) -> Trial | None:
        """The next trial to queue, or None when there is no room or nothing to try now."""
        self._poll()
        self._conductor.check_progress()
        if self._conductor.halt or self._is_warming_up():
            return None
        if self._again:
            return self._create(self._again.popleft())
        trial = self._conductor.next_proposed()
        return self._create(trial) if trial else None

    def _is_warming_up(self) -> bool:
        """Whether as many supervising processes are being started as this host can start at a time.

        Each takes a second of CPU time: all at once they starve the driver and the trials that
        already run. Trials that can take a process over from another are not counted.
        """
        states = Counter(trial.status for trial in self.tune_trials.values())
        free = max(0, len(self.processes) - states[Trial.RUNNING])
        return states[Trial.PENDING] - free >= (os.cpu_count() or 1)

    def is_finished(self) -> bool:
        """Whether no trial will be added any more."""
        if self._conductor.halt:
            return True
        return self._conductor.state.exhausted and not self._again

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """The last word on a trial whose supervising process failed for good."""
        if error:
            text = "its supervising process died repeatedly; see driver.log"
            self._conductor.on_failure(trial_id, Failure(FailureKind.CODE, text))

    def _create(self, trial: TrialState) -> Trial:
        created: Trial = _create_trial_from_spec(
            {**self._spec, "config": {**self._spec.get("config", {}), "trial": trial.id}},
            self._parser,
            evaluated_params={},
            experiment_tag=trial.id,
            trial_id=trial.id,
        )
        self.tune_trials[trial.id] = created
        return created


class SchedulerAdapter(_NotInSnapshots, TrialScheduler):
    """Hands each result to the conductor and applies its decision."""

    _supports_buffered_results = False

    def __init__(self, conductor: Conductor, search: SearchAdapter, poll: Callable[[], None]):
        """poll: called in every step of Tune's loop (stop requests, live view)."""
        super().__init__()
        self._conductor = conductor
        self._search = search
        self._poll = poll

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial that an earlier driver has paused stays so: Tune files it by its status."""
        if self._conductor.state.trials[trial.trial_id].status == PAUSED:
            trial.init_local_path()
            trial.set_status(Trial.PAUSED)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Take in one result and say what the trial does now."""
        self._search.processes.add((result[NODE_IP], result[PID]))
        news = decode(result[NEWS])
        if isinstance(news, Epoch):
            return self._on_epoch(tune_controller, trial, news)
        if isinstance(news, Outcome):
            if news.failure and self._conductor.on_failure(trial.trial_id, news.failure, news.late):
                return str(TrialScheduler.CONTINUE)
            if not news.failure:
                self._conductor.on_completed(trial.trial_id, news.late)
            return str(TrialScheduler.STOP)
        trains = self._conductor.state.trials[trial.trial_id].trains
        return str(TrialScheduler.CONTINUE if trains else TrialScheduler.STOP)

    def _on_epoch(self, tune_controller: Any, trial: Trial, news: Epoch) -> str:
        decision = self._conductor.on_epoch(
            trial.trial_id,
            news.epoch,
            news.metrics,
            job=news.job,
            seconds=news.seconds,
            seen=news.seen,
            late=news.late,
        )
        if decision is Decision.PAUSE:
            # The job's own checkpoint and the journal carry the state; Tune's is not needed.
            tune_controller.pause_trial(trial, should_checkpoint=False)
            return str(TrialScheduler.NOOP)
        if decision is Decision.STOP:
            return str(TrialScheduler.STOP)
        return str(TrialScheduler.CONTINUE)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """A paused trial that may go on. Pending trials Tune starts by itself."""
        self._poll()
        if self._conductor.halt:
            tune_controller.request_stop_experiment()
            return None
        for trial_id in self._conductor.settle_losers():
            tune_controller.stop_trial(self._search.tune_trials[trial_id])
        resumed = self._conductor.next_resumed()
        return self._search.tune_trials[resumed.id] if resumed else None

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Any) -> None:
        """The conductor has ended the trial already."""

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """The conductor has ended the trial already."""

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Comes before a retry too: the search adapter hears the last word."""

    def debug_string(self) -> str:
        """Asked for by Tune's own reporter, which is switched off."""
        return type(self).__name__
