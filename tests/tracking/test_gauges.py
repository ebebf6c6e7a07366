"""The run's figures, and that the Grafana dashboard asks for gauges that exist."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import made_run
import pytest

from tao_ray.tracking.gauges import GAUGES, STATES, figures, trials_by_state
from tao_ray.trial.state import RunState

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana-dashboard.json"


def state_after(events: int) -> RunState:
    made = made_run.events()[:events]
    return RunState.fold([replace(e, seq=i, time=1000.0 + i) for i, e in enumerate(made, 1)])


def test_the_figures_of_a_run_that_has_ended(tmp_path: Path) -> None:
    state = state_after(len(made_run.events()))
    shown = figures(state, made_run.info(tmp_path), now=2001.0)
    assert shown["tao_best_metric"] == pytest.approx(1 - 1 / 14)
    assert shown["tao_trials_planned"] == 9
    assert shown["tao_epochs_trained"] == 6 * 6 + 2 + 3
    assert shown["tao_utilisation"] == 0
    assert shown["tao_elapsed_seconds"] == 1000.0
    counts = trials_by_state(state)
    assert counts == {
        "pending": 0,
        "running": 0,
        "paused": 0,
        "evaluating": 0,
        "completed": 6,
        "stopped": 1,
        "failed": 2,
    }
    assert tuple(counts) == STATES


def test_the_figures_on_the_way(tmp_path: Path) -> None:
    events = made_run.events()
    paused = next(i for i, e in enumerate(events) if e.data.get("decision") == "pause") + 1
    state = state_after(paused)
    assert trials_by_state(state)["paused"] == 1
    running = trials_by_state(state)["running"]
    shown = figures(state, made_run.info(tmp_path), now=1000.0)
    assert 0 < shown["tao_utilisation"] == running / 3 < 1
    first = figures(state_after(5), made_run.info(tmp_path), now=1000.0)
    assert "tao_best_metric" not in first
    assert set(shown) | {"tao_trials"} == set(GAUGES)


def test_the_dashboard_shows_exactly_the_gauges() -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    asked = {name.removeprefix("ray_") for name in re.findall(r"ray_tao_\w+", text)}
    assert asked == set(GAUGES)
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
