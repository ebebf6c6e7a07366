"""The budget of a run: at a cap it ends early, in order, and can be resumed with a larger one."""

from __future__ import annotations

from tao_ray.config import BudgetConfig
from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.stop_rules import Halt
from tao_ray.platforms.ledger import Ledger
from tao_ray.trial.state import RunState

WIND_DOWN_S = 120.0
"""What it takes from the decision to stop until the machines are deleted: jobs end with grace, and
what is needed of them is copied off."""


def over_cap(
    name: str, usd: float | None, ledger: Ledger, now: float, wind_down_s: float = WIND_DOWN_S
) -> str:
    """That a cap on the cost would be passed, in words; "" if it would not."""
    if usd is None:
        return ""
    spent = ledger.cost(now)
    rest = ledger.price_per_hour() * wind_down_s / 3600.0
    if not spent or spent + rest < usd:
        return ""
    return (
        f"{name}, {usd:g} USD, is used up: {spent:.2f} USD are spent, {rest:.2f} USD go until the "
        "machines are deleted"
    )


class Budget:
    """Stops the search before a cap would be passed. wind_down_s: see `WIND_DOWN_S`."""

    def __init__(
        self, config: BudgetConfig, conductor: Conductor, wind_down_s: float = WIND_DOWN_S
    ):
        self._config = config
        self._conductor = conductor
        self._wind_down_s = wind_down_s

    def look(self, state: RunState, now: float) -> None:
        """Called often. What running machines will cost until they are deleted counts."""
        reason = self._cost(state, now) or self._hours(state, now)
        if reason:
            self._conductor.stop(Halt(reason, resumable=True))

    def _cost(self, state: RunState, now: float) -> str:
        cap = self._config.cost_usd
        return over_cap("budget.cost_usd", cap, state.ledger, now, self._wind_down_s)

    def _hours(self, state: RunState, now: float) -> str:
        cap = self._config.hours
        if cap is None:
            return ""
        rest = self._wind_down_s if state.ledger.existing() else 0.0
        elapsed = state.elapsed(now)
        if elapsed + rest < cap * 3600.0:
            return ""
        return f"budget.hours, {cap:g} h, is used up: {elapsed / 3600.0:.2f} h have passed"
