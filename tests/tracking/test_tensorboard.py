"""The event files hold what the journal holds, each point once, after a kill too."""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import made_run
import pytest

from tao_ray.tracking.tensorboard import TensorBoardTracker
from tao_ray.trial.state import RunState

EVENTS = [replace(e, seq=i, time=1000.0 + i) for i, e in enumerate(made_run.events(), 1)]


def read(directory: Path) -> tuple[Counter[tuple[str, int, float]], dict[str, object]]:
    """(how often each point is there, hyperparameters)."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    points: Counter[tuple[str, int, float]] = Counter()
    hyperparameters: dict[str, object] = {}
    for path in directory.glob("events.out.tfevents.*"):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event()
            event.ParseFromString(data[12 : 12 + length])
            data = data[16 + length :]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    points[value.tag, event.step, round(value.simple_value, 5)] += 1
                elif value.tag == "_hparams_/session_start_info":
                    plugin = HParamsPluginData()
                    plugin.ParseFromString(value.metadata.plugin_data.content)
                    for name, held in plugin.session_start_info.hparams.items():
                        hyperparameters[name] = getattr(held, held.WhichOneof("kind"))
    return points, hyperparameters


def check(directory: Path, state: RunState) -> None:
    for trial in state.trials.values():
        points, hyperparameters = read(directory / "tensorboard" / trial.id)
        expected = [
            (name, epoch, round(value, 5))
            for epoch, held in trial.epochs.items()
            for name, value in held.metrics.items()
        ]
        found = {p: n for p, n in points.items() if p[0] not in ("hparam/acc",)}
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        assert set(found.values()) <= {1}
        if not trial.alive:
            assert hyperparameters["train.lr"] == trial.config["train.lr"]
            assert hyperparameters["train.kind"] == trial.config["train.kind"]
            assert hyperparameters["train.flag"] is trial.config["train.flag"]
            (judged,) = [p for p in points if p[0] == "hparam/acc"]
            best = trial.judged("best")
            assert best is None or judged[2] == pytest.approx(-(best.loss or 0), abs=1e-5)
            assert best is not None or math.isnan(judged[2])


def test_an_undisturbed_run(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(made_run.info(tmp_path))
    state = RunState()
    for event in EVENTS:
        state.apply(event)
        tracker.update(state)
    tracker.close(state, None)
    check(tmp_path, state)
    points, _ = read(tmp_path / "tensorboard" / "0002")
    assert ("kpi", 5, 5.0) in points


def test_what_a_killed_driver_left_is_written_anew(tmp_path: Path) -> None:
    half = len(EVENTS) // 2
    first = TensorBoardTracker(made_run.info(tmp_path))
    state = RunState.fold(EVENTS[:half])
    first.update(state)  # and never closed
    ended = tmp_path / "tensorboard" / "0000"
    kept = sorted(path.name for path in ended.iterdir())
    second = TensorBoardTracker(made_run.info(tmp_path))
    second.update(state)
    for event in EVENTS[half:]:
        state.apply(event)
    second.close(state, None)
    check(tmp_path, state)
    assert sorted(path.name for path in ended.iterdir()) == kept
