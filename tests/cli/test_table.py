"""The table of trials shows as many parameters as fit, and cuts no value."""

from __future__ import annotations

import pytest
from rich.console import Console

from tao_ray.tracking.terminal import trial_table
from tao_ray.trial.state import Objective, RunState, TrialState


@pytest.mark.parametrize(("width", "shown"), [(60, False), (130, True)])
def test_parameters_that_do_not_fit_are_left_out(width: int, shown: bool) -> None:
    config = {"train.optim.lr": 2.262e-05, "aug.shift_probability": 0.5}
    state = RunState()
    state.trials["0000"] = TrialState("0000", config, {}, None, 0.0)
    console = Console(width=width, record=True)
    with console.capture() as captured:
        table = trial_table(state, Objective("val_accuracy", "maximize"), 20, 5, width)
        console.print(table)
    text = captured.get()
    assert "\u2026" not in text
    assert "2.262e-05" in text
    assert ("shift_probability" in text) is shown
