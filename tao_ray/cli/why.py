"""``tao-ray why RUN [TRIAL]``: why trials failed or stopped, read from the journal."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tao_ray.errors import TaoRayError

if TYPE_CHECKING:
    from tao_ray.journal import Event
    from tao_ray.trial.failure import Failure
    from tao_ray.trial.state import RunState, TrialState


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "why",
        description="Say why a run or one of its trials failed or stopped: the cause, the lines "
        "that show it, and what to do.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, name/time, or a run's name")
    parser.add_argument("trial", metavar="TRIAL", nargs="?", help="a trial's id, such as 0003 or 3")


def run(args: argparse.Namespace) -> int:
    from tao_ray.experiment.run_dir import RunDir
    from tao_ray.journal import read_events
    from tao_ray.trial.state import RunState

    run_dir = RunDir.find(args.run)
    events = read_events(run_dir.journal)
    state = RunState.fold(events)
    if args.trial is None:
        lines = of_run(run_dir.id, state, events)
    else:
        trial = state.trials.get(args.trial.zfill(4))
        if trial is None:
            raise TaoRayError(
                f"no trial {args.trial!r} in {run_dir.id}",
                remedy=f"trials: {', '.join(state.trials) or 'none yet'}",
            )
        lines = of_trial(run_dir.id, trial, events)
    for line in lines:
        print(line)
    return 0


def of_run(run: str, state: RunState, events: Sequence[Event]) -> Iterator[str]:
    """Why the run ended as it did, and its failures by cause, the most frequent first."""
    from tao_ray.trial.failure import Failure

    ended = [e for e in events if e.kind == "run" and e.data["what"] == "ended"]
    if ended:
        reason = ended[-1].data.get("reason")
        yield f"{run}: {ended[-1].data['status']}{f': {reason}' if reason else ''}"
    elif not state.facts and state.evaluations.get("baseline", {}).get("status") == "failed":
        yield f"{run}: its search was not started, as the baseline failed"
    else:
        yield f"{run}: has not ended in order: it runs, or its driver was killed"
    for name, record in state.evaluations.items():
        if record.get("status") == "failed":
            yield ""
            yield f"{name} evaluation failed: {record['reason']}"
            if record.get("failure"):
                yield from _explained(Failure.from_json(record["failure"]))
    by_kind: dict[Any, list[TrialState]] = {}
    for trial in state.trials.values():
        if trial.failure:
            by_kind.setdefault(trial.failure.kind, []).append(trial)
    for kind, trials in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        failure = trials[0].failure
        assert failure is not None
        yield ""
        names = ", ".join(t.id for t in trials)
        yield f"{len(trials)} of {len(state.trials)} trials: {kind.cause} ({names})"
        yield from _explained(failure)
    if not by_kind and state.trials:
        yield "no trial has failed"


def of_trial(run: str, trial: TrialState, events: Sequence[Event]) -> Iterator[str]:
    """How one trial ended and why, and what it had to be started again for."""
    from tao_ray.trial.failure import Failure

    own = [e for e in events if e.trial == trial.id]
    if trial.failure:
        yield f"trial {trial.id} failed: {trial.failure.kind.cause}"
        yield from _explained(trial.failure)
        yield f"    whole log: tao-ray logs {run} {trial.id}"
    else:
        yield f"trial {trial.id} {_fate(trial, own)}"
    for event in own:
        if event.kind == "retry":
            failure = Failure.from_json(event.data["failure"])
            yield f"    it was continued in another job after: {failure.kind.cause}"
            yield f"      {failure.message}"
    for adjustment in trial.adjustments:
        key, asked, used = (adjustment[k] for k in ("key", "asked", "used"))
        yield f"    {key}: {asked} was asked, {used} was used: {adjustment['reason']}"
    yield "    its hyperparameters:"
    for key, value in trial.config.items():
        yield f"      {key}: {value}"


def _fate(trial: TrialState, own: Sequence[Event]) -> str:
    """What became of a trial that did not fail."""
    decisions = [e for e in own if e.kind == "decision"]
    last = decisions[-1].data if decisions else None
    if trial.alive:
        return f"is {trial.status}"
    if trial.status == "stopped" and last and last["decision"] == "stop":
        return f"was stopped by the algorithm after epoch {last['epoch']}: others did better there"
    if trial.status == "stopped":
        return f"was never promoted from where it paused, epoch {trial.last_epoch}"
    return f"{trial.status} after epoch {trial.last_epoch}"


def _explained(failure: Failure) -> Iterator[str]:
    yield f"    {failure.message}"
    for line in failure.evidence:
        yield f"    | {line}"
    yield f"    what to do: {failure.kind.remedy}"
