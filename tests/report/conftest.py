"""One finished run that many tests read."""

from __future__ import annotations

import pytest
from made_runs import HOSTILE, MadeRun

from tao_ray.experiment.run_dir import RunDir
from tao_ray.trial.failure import FailureKind


@pytest.fixture(scope="session")
def done_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """An ASHA run of 24 trials that ended, with two failures and a notice."""
    made = MadeRun(tmp_path_factory.mktemp("done"), trials=24, seed=3)
    made.fail("0002", FailureKind.OOM, HOSTILE, "line one", HOSTILE)
    made.fail("0005", FailureKind.NAN, "the loss became NaN")
    made.conductor.say(HOSTILE)
    return made.go().end()
