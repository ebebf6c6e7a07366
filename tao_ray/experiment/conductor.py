"""The search loop without Ray: proposer, scheduling rule and journal, held together.

The conductor is told what happens to trials and says what happens next. It writes each fact to
the journal first and informs the algorithm after, in one and the same way whether the fact is new
or replayed from the journal of a killed driver; so a resumed search continues as if nothing had
happened. Ray's adapters (`tune_adapters`) only carry messages to and from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.experiment.informant import Informant
from tao_ray.experiment.stop_rules import Halt, Limits, StopRules
from tao_ray.journal import Event, JournalWriter
from tao_ray.search.base import (
    Algorithm,
    Decision,
    Exhausted,
    GivesWeights,
    Proposal,
    TrialStatus,
    Wait,
    WeightsFrom,
)
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.state import PAUSED, Evaluation, Objective, RunState, TrialState

Late = Mapping[int, Mapping[str, float]]


class ReplayMismatch(TaoRayError):
    """The journal's decisions are not those this version makes: the run cannot be continued."""


class Conductor:
    """Decides about trials; owns the run's state."""

    def __init__(
        self,
        algorithm: Algorithm,
        objective: Objective,
        journal: JournalWriter,
        limits: Limits,
        evaluation: Evaluation | None = None,
    ):
        """evaluation: None where the training reports the objective itself."""
        self.objective = objective
        self._evaluation = evaluation
        self.limits = limits
        self.state = RunState()
        self.halt: Halt | None = None
        self._proposer = algorithm.proposer
        self._rule = algorithm.rule
        self._journal = journal
        self._stopping = StopRules(limits, objective)
        self._informant = Informant(
            algorithm, objective, evaluation, limits.max_epochs, self._stopping
        )

    # -- what happened ------------------------------------------------------------------------

    def replay(self, events: Sequence[Event]) -> None:
        """Take in the journal of an earlier driver. Raises ReplayMismatch."""
        undecided: tuple[Event, Decision] | None = None
        for event in events:
            self.state.apply(event)
            decision = self._inform(event)
            if decision is not None:
                undecided = event, decision
            elif event.kind == "decision":
                self._check_replayed(event, undecided)
                undecided = None
        if undecided:
            self._settle(*undecided)

    def on_epoch(
        self, trial_id: str, epoch: int, metrics: Mapping[str, float], **facts: Any
    ) -> Decision:
        """A trial completed an epoch; what it does now. `facts` are journalled with the epoch."""
        trial = self.state.trials[trial_id]
        if not trial.trains:
            return Decision.STOP
        judge = self._evaluation.guide if self._evaluation else self.objective
        value = metrics.get(judge.metric) if judge else None
        loss = None if judge is None or value is None else judge.loss(float(value))
        known = {"loss": None, "guide": loss} if self._evaluation else {"loss": loss}
        data = {"epoch": epoch, "metrics": dict(metrics), **known, **facts}
        if judge is not None and loss is not None and not math.isfinite(loss):
            shown = f"{judge.metric} = {value} at epoch {epoch}"
            failure = Failure(FailureKind.NAN, shown)
            self._end(trial, TrialStatus.FAILED, failure, after=Event("epoch", trial_id, data))
            return Decision.STOP
        event = self._record("epoch", trial_id, **data)
        decision = self._inform(event)
        return Decision.CONTINUE if decision is None else self._settle(event, decision)

    def on_completed(self, trial_id: str, late: Late | None = None) -> None:
        """The trial's job finished as it should. late: metrics of epochs already reported."""
        trial = self.state.trials[trial_id]
        if trial.trains and self._evaluation:
            self._apply(self._evaluating(trial, TrialStatus.COMPLETED, late))
        elif trial.trains:
            self._end(trial, TrialStatus.COMPLETED, late=late)

    def on_failure(self, trial_id: str, failure: Failure, late: Late | None = None) -> bool:
        """The trial's job failed. Returns whether the trial goes on in a new job."""
        trial = self.state.trials[trial_id]
        if not trial.trains:
            return False
        if failure.kind.retried and trial.retries < self.limits.max_retries:
            self._record("retry", trial_id, failure=failure.to_json())
            return True
        self._end(trial, TrialStatus.FAILED, failure, late=late)
        return False

    def on_evaluated(self, trial_id: str, outcome: Mapping[str, float] | Failure) -> None:
        """The trial's checkpoint was evaluated: what the evaluate job reported, or why not."""
        trial = self.state.trials[trial_id]
        metric = self.objective.metric
        if isinstance(outcome, Failure):
            self._end(trial, TrialStatus.FAILED, outcome)
            return
        value = outcome.get(metric)
        if value is None:
            seen = ", ".join(sorted(outcome)) or "no metric at all"
            text = f"{metric} never appeared in the evaluation; seen: {seen}"
            self._end(trial, TrialStatus.FAILED, Failure(FailureKind.METRIC_MISSING, text))
            return
        loss = self.objective.loss(float(value))
        if not math.isfinite(loss):
            text = f"{metric} = {value} by the evaluation"
            self._end(trial, TrialStatus.FAILED, Failure(FailureKind.NAN, text))
            return
        data = {"epoch": trial.chosen, "loss": loss, "metrics": dict(outcome)}
        self._end(trial, TrialStatus(trial.trained), after=Event("evaluated", trial_id, data))
        self._stop_if_enough(loss)

    # -- what to do next ----------------------------------------------------------------------

    def settle_losers(self) -> list[str]:
        """End the paused trials that will never go on; their ids."""
        losers = self._rule.losers()
        for trial_id in losers:
            trial = self.state.trials[trial_id]
            if self._evaluation:
                self._apply(self._evaluating(trial, TrialStatus.STOPPED))
            else:
                self._end(trial, TrialStatus.STOPPED)
        return losers

    def next_resumed(self) -> TrialState | None:
        """The paused trial to run now, if a slot is free. It counts as running from here on."""
        if self.halt or self._free_slots() < 1:
            return None
        for trial_id in self._rule.runnable():
            self._inform(self._record("resumed", trial_id))
            return self.state.trials[trial_id]
        return None

    def next_proposed(self) -> TrialState | None:
        """A new trial, if a slot is free and the algorithm has one.

        Paused trials that may go on have precedence: then there is none.
        """
        if self.halt or self.state.exhausted or self._free_slots() < 1 or self._rule.runnable():
            return None
        answer = self._proposer.ask(len(self._active()))
        if isinstance(answer, Exhausted):
            self._inform(self._record("exhausted"))
            return None
        if isinstance(answer, Wait):
            if not self._active() and not self._rule.runnable():
                raise RuntimeError("the search waits for results while nothing runs")
            return None
        return self._propose(answer)

    def finished(self) -> bool:
        """Nothing runs, waits or will be proposed."""
        return self.state.exhausted and not any(t.alive for t in self.state.trials.values())

    def trained(self) -> bool:
        """Nothing trains, waits or will be proposed; trials may still have to be evaluated."""
        return self.state.exhausted and not any(t.trains for t in self.state.trials.values())

    def check_progress(self) -> None:
        """Raises RuntimeError if trials stay paused for good: a defect of the rule."""
        waiting = [t.id for t in self.state.trials.values() if t.alive]
        stuck = waiting and self.state.exhausted and not self._active()
        if stuck and not self._rule.runnable() and not self._rule.losers():
            raise RuntimeError(f"paused trials that neither go on nor end: {', '.join(waiting)}")

    def unfinished(self) -> list[TrialState]:
        """Trials that a resumed driver has to train again at once: neither paused nor trained."""
        return [t for t in self._active() if t.trains]

    def paused(self) -> list[TrialState]:
        """Trials that wait for the rule to name them."""
        return [t for t in self.state.trials.values() if t.status == PAUSED]

    def donors(self) -> list[WeightsFrom]:
        """The checkpoints that trials still to be proposed may start from."""
        return self._proposer.donors() if isinstance(self._proposer, GivesWeights) else []

    def stop(self, halt: Halt) -> None:
        """End the search early; the first reason counts."""
        if self.halt is None:
            self.halt = halt
            self.say(halt.reason)

    def catch_up(self, before: int | None = None) -> None:
        """Take in what trials have journalled about their jobs."""
        for event in self._journal.read(after=self.state.last_seq):
            if before is None or event.seq < before:
                self.state.apply(event)

    def end_all(self) -> None:
        """The search is over for good: trials that were still going end as they are."""
        for trial in self.state.trials.values():
            if trial.alive:
                self._end(trial, TrialStatus.STOPPED)

    def say(self, text: str) -> None:
        """A notice to the user, kept in the journal."""
        self._record("said", text=text)

    def mark(self, what: str, **facts: Any) -> None:
        """The run itself started, resumed, is stopping, ended."""
        self._record("run", what=what, **facts)

    # -- inside -------------------------------------------------------------------------------

    def _active(self) -> list[TrialState]:
        return [t for t in self.state.trials.values() if t.alive and t.status != PAUSED]

    def _free_slots(self) -> int:
        return self.limits.max_concurrent - len(self._active())

    def _record(self, kind: str, trial_id: str | None = None, **data: Any) -> Event:
        (event,) = self._append(Event(kind, trial_id, data))
        self.state.apply(event)
        return event

    def _append(self, *events: Event) -> list[Event]:
        """Write events; what others have written before them is taken in first, in order."""
        written = self._journal.append(*events)
        if written[0].seq > self.state.last_seq + 1:
            self.catch_up(before=written[0].seq)
        return written

    def _propose(self, proposal: Proposal) -> TrialState:
        trial_id = f"{len(self.state.trials):04d}"
        start = proposal.start
        self._inform(
            self._record(
                "proposed",
                trial_id,
                config=dict(proposal.config),
                info=dict(proposal.info),
                start={"trial_id": start.trial_id, "epoch": start.epoch} if start else None,
            )
        )
        return self.state.trials[trial_id]

    def _settle(self, event: Event, decision: Decision) -> Decision:
        """Record and apply the rule's decision about an epoch."""
        assert event.trial is not None
        decided = Event(
            "decision",
            event.trial,
            {"epoch": event.data["epoch"], "decision": decision.value, "loss": event.data["loss"]},
        )
        trial = self.state.trials[event.trial]
        if decision is not Decision.STOP:
            self._apply(decided)
        elif self._evaluation:
            self._apply(decided, self._evaluating(trial, TrialStatus.STOPPED))
        else:
            ended = {"status": TrialStatus.STOPPED.value, "failure": None}
            self._apply(decided, Event("ended", trial.id, ended))
        self._stop_if_enough(event.data["loss"])
        return decision

    def _end(
        self,
        trial: TrialState,
        status: TrialStatus,
        failure: Failure | None = None,
        *,
        late: Late | None = None,
        after: Event | None = None,
    ) -> None:
        """End a trial, in one transaction with the event it ends `after`."""
        data = {
            "status": status.value,
            "failure": failure.to_json() if failure else None,
            "late": late or {},
        }
        self._apply(*([after] if after else []), Event("ended", trial.id, data))
        if failure and (halt := self._stopping.after_failure(failure)):
            self.stop(halt)
        self._stop_if_enough(None)

    def _stop_if_enough(self, loss: float | None) -> None:
        if halt := self._stopping.after(loss):
            self.stop(halt)

    def _evaluating(
        self, trial: TrialState, status: TrialStatus, late: Late | None = None
    ) -> Event:
        """The trial's training is over; a checkpoint of it is evaluated next."""
        chosen = trial.guided(self.objective.at)
        epoch = chosen.epoch if chosen else trial.last_epoch
        data = {"epoch": epoch, "status": status.value, "late": late or {}}
        return Event("evaluating", trial.id, data)

    def _apply(self, *events: Event) -> None:
        for event in self._append(*events):
            self.state.apply(event)
            self._inform(event)

    def _inform(self, event: Event) -> Decision | None:
        return self._informant.tell(event, self.state)

    def _check_replayed(self, event: Event, undecided: tuple[Event, Decision] | None) -> None:
        was = event.data["decision"]
        now = undecided[1].value if undecided and undecided[0].trial == event.trial else None
        if was != now:
            raise ReplayMismatch(
                f"trial {event.trial}, epoch {event.data['epoch']}: the journal says {was}, "
                f"replaying it says {now}",
                where=f"journal event {event.seq}",
                remedy="go on with the version of tao_ray that started this run",
            )
