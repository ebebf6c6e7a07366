"""A tracker may be slow or broken; the run is neither held up nor harmed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import made_run
import pytest

from tao_ray.config import WandbConfig
from tao_ray.errors import TaoRayError
from tao_ray.tracking.tracker import Background, Say, Trackers, snapshot
from tao_ray.tracking.wandb import has_key, is_online
from tao_ray.trial.state import RunState

if TYPE_CHECKING:
    from tao_ray.experiment.result import Result

EVENTS = [replace(e, seq=i, time=1000.0 + i) for i, e in enumerate(made_run.events(), 1)]


class Recorder:
    """Remembers what it was shown; `work` is what it does with it."""

    def __init__(self, work: Callable[[], object] = lambda: None):
        self.seen: list[int] = []
        self.closed = False
        self._work = work

    def update(self, state: RunState) -> None:
        self.seen.append(state.last_seq)
        self._work()

    def close(self, state: RunState, result: Result | None) -> None:
        self.seen.append(state.last_seq)
        self.closed = True


def fail() -> None:
    raise ValueError("broken\nto pieces")


def test_a_broken_tracker_is_dropped_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    good = Recorder()
    trackers = Trackers([("Bad", Recorder(fail)), ("Good", good)], said.append)
    with caplog.at_level(logging.WARNING):
        trackers.update(RunState.fold(EVENTS[:3]))
        trackers.update(RunState.fold(EVENTS[:4]))
    trackers.close(RunState.fold(EVENTS), None)
    assert len(said) == 1
    assert said[0].startswith("Bad is off from here on: broken")
    assert "driver.log" in said[0]
    assert "ValueError" in caplog.text
    assert good.seen == [3, 4, len(EVENTS)]


def test_a_tracker_that_breaks_in_the_background() -> None:
    said: list[str] = []
    background = Background(lambda say: Recorder(fail), said.append, 10.0)
    trackers = Trackers([("Bad", background)], said.append)
    state = RunState.fold(EVENTS)
    deadline = time.monotonic() + 20
    while not said and time.monotonic() < deadline:
        trackers.update(state)
        time.sleep(0.05)
    trackers.close(state, None)
    assert len(said) == 1


def test_a_slow_tracker_holds_nothing_up_and_sees_the_last_state() -> None:
    release = threading.Event()
    recorder = Recorder(release.wait)
    background = Background(lambda say: recorder, print, 20.0)
    state = RunState()
    begin = time.monotonic()
    for event in EVENTS:
        state.apply(event)
        background.update(state)
    assert time.monotonic() - begin < 2.0
    release.set()
    background.close(state, None)
    assert recorder.closed
    assert recorder.seen[-1] == len(EVENTS)
    assert len(recorder.seen) < len(EVENTS) / 2


def test_a_tracker_that_hangs_is_left_behind() -> None:
    hang = threading.Event()
    background = Background(lambda say: Recorder(hang.wait), print, 0.2)
    background.update(RunState.fold(EVENTS[:3]))
    time.sleep(1.5)
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="did not finish"):
        background.close(RunState.fold(EVENTS), None)
    assert time.monotonic() - begin < 2.0
    hang.set()


def test_what_a_tracker_says_is_said_in_the_callers_thread() -> None:
    threads: list[str] = []

    def make(say: Say) -> Recorder:
        say("hello")
        return Recorder()

    background = Background(make, lambda text: threads.append(threading.current_thread().name), 10)
    background.close(RunState(), None)
    assert threads == [threading.current_thread().name]


def test_a_snapshot_stays_as_it_was() -> None:
    half = len(EVENTS) // 2
    state = RunState.fold(EVENTS[:half])
    kept = snapshot(state)
    for event in EVENTS[half:]:
        state.apply(event)
    assert kept == RunState.fold(EVENTS[:half])
    assert kept != state


@pytest.fixture
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("API_KEY", "MODE", "BASE_URL", "IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_key_is_found_where_wandb_finds_it(no_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_key()
    (no_key / ".netrc").write_text("machine elsewhere.ai login user password 1234\n")
    assert not has_key()
    (no_key / ".netrc").write_text("machine api.wandb.ai login user password 1234\n")
    assert has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.com")
    assert not has_key()
    monkeypatch.setenv("WANDB_API_KEY", "1234")
    assert has_key()


def test_online_or_offline(no_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    auto = WandbConfig(project="p")
    assert not is_online(auto)
    with pytest.raises(TaoRayError, match="no API key") as caught:
        is_online(WandbConfig(project="p", mode="online"))
    assert "WANDB_API_KEY" in str(caught.value.remedy)
    monkeypatch.setenv("WANDB_API_KEY", "1234")
    assert is_online(auto)
    assert not is_online(WandbConfig(project="p", mode="offline"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert not is_online(auto)
