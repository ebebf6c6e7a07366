"""What a script hears of its run: a real small run, driven without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import EPOCHS, SmallRun, configure

from tao_ray.experiment.callbacks import Callbacks, CallbackView
from tao_ray.experiment.result import Result, write_result
from tao_ray.trial.state import RunState


class Silent:
    """The view below: keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.said: list[str] = []

    def open(self, terminal: Any, plan: Any, run_dir: Any) -> None:
        self.calls.append("open")

    def update(self, state: RunState, now: float) -> None:
        self.calls.append("update")

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self, state: RunState, result: Result | None) -> None:
        self.calls.append("close")


def replayed(run: SmallRun, view: CallbackView, result: Result, opened: int = 0) -> None:
    """Show a view the run's states, one event after the other."""
    events = run.journal.read()
    view._clock = lambda: events[opened].time
    view.open(None, run.plan, run.run_dir)  # type: ignore[arg-type]
    state = RunState()
    for number, event in enumerate(events):
        state.apply(event)
        if number >= opened:
            view.update(state, event.time)
    view.close(state, result)


@pytest.fixture
def ended(tmp_path: Path) -> tuple[SmallRun, Result]:
    run = SmallRun(configure(tmp_path))
    state = run.search()
    return run, write_result(run.plan, run.run_dir, state, run.platform, "done", "")


def test_everything_is_told_once_and_in_order(ended: tuple[SmallRun, Result]) -> None:
    run, result = ended
    heard: list[Any] = []
    callbacks = Callbacks(
        on_trial=lambda trial: heard.append((trial["id"], trial["status"], trial["metric"])),
        on_epoch=lambda trial, epoch, metrics: heard.append((trial, epoch, metrics["val_acc_1"])),
        on_result=lambda result: heard.append(result),
    )
    inner = Silent()
    replayed(run, CallbackView(inner, callbacks), result)
    expected: list[Any] = []
    for trial in result.data["trials"]:
        curve = [(e["epoch"], e["metrics"]["val_acc_1"]) for e in trial["curve"]]
        expected.append((trial["id"], "proposed", None))
        expected += [(trial["id"], epoch, value) for epoch, value in curve]
        expected.append((trial["id"], "completed", trial["metric"]))
    assert heard == [*expected, result]
    assert len(expected) == 2 * (2 + EPOCHS)
    assert inner.calls[0] == "open"
    assert inner.calls[-1] == "close"


def test_a_resumed_run_tells_what_is_new(ended: tuple[SmallRun, Result]) -> None:
    run, result = ended
    events = run.journal.read()
    second = next(i for i, e in enumerate(events) if e.kind == "proposed" and e.trial == "0001")
    heard: list[str] = []
    callbacks = Callbacks(on_trial=lambda t: heard.append(t["id"]))
    replayed(run, CallbackView(Silent(), callbacks), result, opened=second)
    assert heard == ["0001", "0001"]


def test_an_exception_is_shown_once_and_ends_nothing(
    ended: tuple[SmallRun, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    run, result = ended
    calls: list[int] = []

    def fails(trial: str, epoch: int, metrics: Any) -> None:
        calls.append(epoch)
        raise ValueError("no such plot")

    inner = Silent()
    results: list[Result] = []
    view = CallbackView(inner, Callbacks(on_epoch=fails, on_result=results.append))
    replayed(run, view, result)
    assert calls == [1, 2, 1, 2]
    assert inner.said == ["on_epoch raised ValueError: no such plot; the run goes on"]
    assert "no such plot" in capsys.readouterr().err
    assert results == [result]
