"""`tpe`: the tree-structured Parzen estimator of hyperopt, with running trials as liars.

Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011. A trial in
flight has no loss yet; it counts among the bad ones, so the next proposal keeps away from it.
Ordered parameters are searched in the space's uniform image, categories as categories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from tao_ray.search.base import Algorithm, Config, Exhausted, Proposal, SearchSettings
from tao_ray.search.categories import index_of, probabilities
from tao_ray.search.fifo import RunToEnd
from tao_ray.search.options import Options
from tao_ray.search.proposer import BaseProposer
from tao_ray.space import Categorical

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

_ATTEMPTS = 20


class TpeOptions(Options):
    """Knobs of the Parzen estimator."""

    initial: int | None = Field(
        default=None,
        ge=1,
        description="Trials before the estimator is used, the first points included "
        "(default: a quarter of the trials, at least 4 and at most 8).",
    )
    gamma: float = Field(
        default=0.25, gt=0, description="The best gamma * sqrt(n) of n trials count as good."
    )
    candidates: int = Field(
        default=64, ge=1, description="Draws from the good density per proposal."
    )


class TpeProposer(BaseProposer):
    """Sobol points, then hyperopt's suggestion."""

    def __init__(self, space: SearchSpace, settings: SearchSettings, options: TpeOptions) -> None:
        super().__init__(space, settings)
        self.options = options
        self.initial = options.initial or min(8, max(4, settings.trials // 4))
        self._sobol = space.sobol(self.initial, settings.seed)
        self._domain: Any = None

    def propose(self, number: int, rng: np.random.Generator) -> Proposal | Exhausted:
        if number < self.initial or not self.evidence():
            candidates = self._sobol[number - len(self.settings.points) :]
        else:
            candidates = self._suggestions(number, rng)
        config = self.first_new(candidates)
        return self.new_sample(rng) if config is None else Proposal(config)

    def _suggestions(self, number: int, rng: np.random.Generator) -> Any:
        from hyperopt import tpe

        trials = self._documents(rng)
        new_id = len(trials.trials)
        for _ in range(_ATTEMPTS):
            [document] = tpe.suggest(
                [new_id],
                self._hyperopt_domain(),
                trials,
                int(rng.integers(2**31)),
                n_startup_jobs=1,
                n_EI_candidates=self.options.candidates,
                gamma=self.options.gamma,
                verbose=False,
            )
            yield self._config(document["misc"]["vals"])

    def _hyperopt_domain(self) -> Any:
        if self._domain is None:
            from hyperopt import hp
            from hyperopt.base import Domain

            expression = {}
            for parameter in self.space.parameters:
                if isinstance(parameter, Categorical):
                    options = [(p, i) for i, p in enumerate(probabilities(parameter))]
                    expression[parameter.name] = hp.pchoice(parameter.name, options)
                else:
                    expression[parameter.name] = hp.uniform(parameter.name, 0.0, 1.0)
            self._domain = Domain(lambda config: 0.0, expression)
        return self._domain

    def _documents(self, rng: np.random.Generator) -> Any:
        """Everything known, as hyperopt keeps it. The loss of a running or failed trial is
        absent, which ranks it last."""
        from hyperopt import JOB_STATE_DONE, STATUS_OK, Trials

        trials = Trials()
        evidence = self.evidence()
        losses = {
            t.trial_id: float(loss)
            for t, loss in zip(evidence, self.losses(evidence, rng), strict=True)
        }
        records = [*self.history.past, *self.history]
        for i, record in enumerate(records):
            values = self._values(record.config)
            misc = {
                "tid": i,
                "cmd": self._hyperopt_domain().cmd,
                "workdir": None,
                "idxs": {n: [i] if n in values else [] for n in self.space.names},
                "vals": {n: [values[n]] if n in values else [] for n in self.space.names},
            }
            result = {"status": STATUS_OK, "loss": losses.get(record.trial_id)}
            [document] = trials.new_trial_docs([i], [None], [result], [misc])
            document["state"] = JOB_STATE_DONE
            trials._dynamic_trials.append(document)
        trials.refresh()
        return trials

    def _values(self, config: Config) -> dict[str, Any]:
        """A configuration as hyperopt's own numbers: a place in [0, 1], or a category's index.
        Parameters without effect are absent, so a density learns only from trials they had."""
        units = dict(zip(self.space.names, self.space.unit(config), strict=True))
        return {
            p.name: index_of(p, config[p.name]) if isinstance(p, Categorical) else units[p.name]
            for p in self.space.parameters
            if self.space.is_active(p.name, config)
        }

    def _config(self, values: dict[str, list[Any]]) -> Config:
        units = []
        for parameter in self.space.parameters:
            value = values[parameter.name][0]
            if isinstance(parameter, Categorical):
                value = parameter.to_unit(parameter.options[value])
            units.append(value)
        return self.space.from_unit(units)


def proposer(
    space: SearchSpace, settings: SearchSettings, options: TpeOptions | None = None
) -> BaseProposer:
    """The proposer alone, for algorithms that bring their own rule."""
    return TpeProposer(space, settings, options or TpeOptions())


def build(space: SearchSpace, settings: SearchSettings, options: TpeOptions) -> Algorithm:
    """TPE; every trial runs to its end."""
    tpe = TpeProposer(space, settings, options)
    return Algorithm(
        "tpe",
        tpe,
        RunToEnd(),
        why=f"{tpe.initial} trials cover the space, then a tree-structured Parzen estimator",
    )
