"""CPU seconds of a proposal, in 22 dimensions."""

from __future__ import annotations

import time

import numpy as np

from tao_ray.search import SearchSettings, TrialStatus, build
from tao_ray.search.base import Proposal
from tao_ray.space import Categorical, Float, Integer, SearchSpace

SIZES = (10, 100, 1000)

WIDE = SearchSpace(
    [Float(f"f{i}", 1e-6, 1.0, log=True) for i in range(12)]
    + [Integer(f"i{i}", 1, 64) for i in range(4)]
    + [Categorical(f"c{i}", ("a", "b", "c")) for i in range(2)]
)
"""18 parameters, 22 dimensions."""


def proposal_seconds(name: str, observations: int) -> float:
    """The median of five proposals after so many full trainings, one thread."""
    algorithm = build(name, WIDE, SearchSettings(trials=2000, max_epochs=27), {})
    proposer = algorithm.proposer
    rng = np.random.default_rng(0)
    for i in range(observations):
        config = WIDE.sample(rng)
        loss = float(np.sum(WIDE.encode(config)[:4] ** 2))
        proposer.started(f"t{i}", Proposal(config))
        for epoch in range(1, 28):
            proposer.tell(f"t{i}", config, epoch, loss + 1 / epoch, TrialStatus.RUNNING)
        proposer.tell(f"t{i}", config, 27, loss, TrialStatus.COMPLETED)
    proposer.ask(0)  # imports
    seconds = []
    for n_running in range(1, 6):
        before = time.process_time()
        proposer.ask(n_running)
        seconds.append(time.process_time() - before)
    return float(np.median(seconds))
