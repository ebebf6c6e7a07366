"""The network that comes with tao_ray, trained for real in this process.

The search is what a user's `algorithm` on the package gives: its derived space, its defaults
first. An epoch is an epoch of the network's own training code; the loss is its validation error
in percent, and so is the value of an outcome: the best seen.
"""

from __future__ import annotations

import contextlib
import copy
import io
from dataclasses import replace
from typing import Any

from search_benchmarks import POPULATIONS, Case, Outcome, trials
from tao_ray.config import RunConfig
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.search.simulation import SimulatedTrial, simulate
from tao_ray.standin.checkpoint import Checkpoint
from tao_ray.standin.config import FIELDS
from tao_ray.standin.train import Training

FULL = 20
COLUMNS = {"validation error, %": ("digits",)}


def run(case: Case) -> Outcome:
    """One search."""
    search = {
        "algorithm": case.algorithm,
        "trials": trials(case, FULL),
        "max_concurrent": case.workers,
        "seed": case.seed,
    }
    digits = Digits(keep_weights=case.algorithm in POPULATIONS)
    result = simulate(
        plan(search).algorithm(),
        digits,
        max_epochs=FULL,
        workers=case.workers,
        epoch_budget=case.budget,
    )
    return Outcome(case, min(digits.losses), result.epochs, result.wall)


def plan(search: dict[str, Any]) -> Plan:
    """The plan of a search over the package, with what a user would add for its algorithm."""
    search = {"max_epochs": FULL, **search}
    if search["algorithm"] in POPULATIONS:
        search["exclude"] = ["model.hidden_dim"]  # weights must fit those of another trial
    return make_plan(RunConfig(name="bench", model={"package": "digits_mlp"}, search=search))


class Digits:
    """Trains trials. losses: every loss in the order of the epochs trained."""

    def __init__(self, keep_weights: bool = False) -> None:
        self.losses: list[float] = []
        self.keep_weights = keep_weights
        self._trainings: dict[str, Training] = {}
        self._weights: dict[tuple[str, int], Checkpoint] = {}

    def train(self, trial: SimulatedTrial) -> float:
        """See `simulation.Trainer`."""
        if trial.trial_id not in self._trainings:
            self._trainings[trial.trial_id] = self._begin(trial)
        training = self._trainings[trial.trial_id]
        with contextlib.redirect_stdout(io.StringIO()):
            training.train_epoch()
        if self.keep_weights:
            self._weights[trial.trial_id, trial.epoch] = copy.deepcopy(training.state)
        elif trial.epoch == FULL:
            del self._trainings[trial.trial_id]
        self.losses.append(100 * (1 - training.validate()["val_acc_1"]))
        return self.losses[-1]

    def _begin(self, trial: SimulatedTrial) -> Training:
        spec = {name: copy.copy(field.default) for name, field in FIELDS.items()}
        spec |= {"train.num_epochs": FULL, **trial.config}
        training = Training(spec, spec["train.seed"])
        if trial.start is not None:
            donor = self._weights[trial.start.trial_id, trial.start.epoch]
            lent = copy.deepcopy(donor.network)
            training.state = replace(training.with_weights(lent), epoch=donor.epoch)
        return training
