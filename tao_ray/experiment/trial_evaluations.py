"""Measures the objective of each trial by an evaluate job, where the training does not report it.

A trial whose training is over is "evaluating" until that is done, and keeps its place among the
trials that run at a time. The jobs are named ``eval-<trial>-<attempt>``; each is journalled before
it is launched and attached to by a driver that takes over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from tao_ray.errors import TaoRayError
from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.evaluation import Evaluator, JobStopped
from tao_ray.experiment.evaluation_records import MEASURED, REUSED
from tao_ray.trial.classify import kind_of_error
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.state import EVALUATING, TrialState

Outcome = Mapping[str, float] | Failure

_LOOK_S = 0.2


class TrialEvaluations:
    """Starts and takes in the evaluations of one run. One thread for each trial that is due."""

    def __init__(self, evaluator: Evaluator, put_away: Callable[[str], None], slots: int):
        """put_away: ends the training job of the trial of that id, if it still runs.

        slots: trials that may run at a time.
        """
        self._evaluator = evaluator
        self._put_away = put_away
        self._pool = ThreadPoolExecutor(max(slots, 1), thread_name_prefix="evaluate")
        self._at_work: dict[str, Future[Outcome]] = {}

    def look(self, conductor: Conductor) -> None:
        """Take in what is done and start what is due. Returns at once."""
        for trial in list(conductor.state.trials.values()):
            if trial.status != EVALUATING:
                continue
            future = self._at_work.get(trial.id)
            if future is None:
                self._at_work[trial.id] = self._pool.submit(self._evaluate, trial)
            elif future.done() and not isinstance(future.exception(), JobStopped):
                conductor.on_evaluated(trial.id, future.result())

    def finish(self, conductor: Conductor, poll: Callable[[], None]) -> None:
        """Go on until none is left to evaluate, or the jobs were stopped. poll: called often."""
        while any(t.status == EVALUATING for t in conductor.state.trials.values()):
            if any(isinstance(f.exception(), JobStopped) for f in self._ended()):
                return
            poll()
            self.look(conductor)
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """Wait for what is at work: the evaluator's `watch` has to raise if that is to be soon."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _ended(self) -> list[Future[Outcome]]:
        return [f for f in self._at_work.values() if f.done()]

    def _evaluate(self, trial: TrialState) -> Outcome:
        self._evaluator.pause(0)  # the run may have been stopped before this trial's turn
        self._put_away(trial.id)
        try:
            record = self._evaluator.evaluate_trial(trial)
        except TaoRayError as error:
            return Failure(kind_of_error(error), str(error))
        if record["status"] in (MEASURED, REUSED):
            metrics: Mapping[str, float] = record["metrics"]
            return metrics
        failure = record.get("failure")
        if failure:
            return Failure.from_json(failure)
        return Failure(FailureKind.METRIC_MISSING, f"not evaluated: {record['reason']}")
