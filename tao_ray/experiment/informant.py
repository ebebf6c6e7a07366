"""Tells the algorithm what happened: the same calls for what is new and for what is replayed."""

from __future__ import annotations

import math

from tao_ray.experiment.stop_rules import StopRules
from tao_ray.journal import Event
from tao_ray.search.base import Algorithm, Decision, Proposal, SeesTradeOffs, TrialStatus
from tao_ray.trial.state import Evaluation, Objective, RunState, TrialState


class Informant:
    """Turns journalled events into calls of proposer and rule."""

    def __init__(
        self,
        algorithm: Algorithm,
        objective: Objective,
        evaluation: Evaluation | None,
        max_epochs: int,
        stopping: StopRules,
    ):
        """evaluation: None where the training reports the objective itself."""
        self._proposer = algorithm.proposer
        self._rule = algorithm.rule
        self._objective = objective
        self._evaluation = evaluation
        self._max_epochs = max_epochs
        self._stopping = stopping

    def tell(self, event: Event, state: RunState) -> Decision | None:
        """One fact that `state` holds already. The rule's decision, for an epoch."""
        if event.kind == "exhausted":
            self._rule.exhausted()
        if event.trial is None:
            return None
        trial = state.trials[event.trial]
        if event.kind == "proposed":
            proposal = Proposal(trial.config, trial.info, trial.start)
            self._proposer.started(trial.id, proposal)
            self._rule.add(trial.id, trial.info)
        elif event.kind == "resumed":
            self._rule.resumed(trial.id)
        elif event.kind == "epoch":
            return self._of_epoch(trial, event)
        elif event.kind == "evaluating":
            self._rule.gone(trial.id)
        elif event.kind == "ended":
            self._of_end(trial)
        return None

    def _of_epoch(self, trial: TrialState, event: Event) -> Decision | None:
        epoch, loss = event.data["epoch"], event.data["guide" if self._evaluation else "loss"]
        if loss is None or not math.isfinite(loss) or epoch <= trial.decided:
            return None  # not measured, a failure, or an epoch trained again after a restart
        if self._evaluation:
            # The proposer is told what the evaluation says, in the end: two scales never mix.
            guided = trial.guided(self._objective.at)
            assert guided is not None
            standing = guided.guide
        else:
            judged = trial.judged(self._objective.at)
            assert judged is not None
            assert judged.loss is not None
            standing = judged.loss
            self._proposer.tell(trial.id, trial.config, epoch, standing, TrialStatus.RUNNING)
        assert standing is not None
        decision = self._rule.report(trial.id, epoch, standing)
        # After the last epoch the job only has to say that it is done.
        return Decision.CONTINUE if epoch >= self._max_epochs else decision

    def _of_end(self, trial: TrialState) -> None:
        status = TrialStatus(trial.status)
        judged = None if status is TrialStatus.FAILED else trial.judged(self._objective.at)
        losses = self._objective.losses(judged) if judged else None
        if losses is not None and len(losses) > 1 and isinstance(self._proposer, SeesTradeOffs):
            self._proposer.tell_others(trial.id, losses[1:])
        self._proposer.tell(
            trial.id,
            trial.config,
            trial.last_epoch,
            judged.loss if judged else None,
            status if judged else TrialStatus.FAILED,
        )
        if trial.chosen is None:  # else it was gone when its training was over
            self._rule.gone(trial.id)
        self._stopping.ended(trial.failure, judged.loss if judged else None)
