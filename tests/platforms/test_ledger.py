"""What the ledger makes of a machine whose name stood for several instances."""

from __future__ import annotations

from typing import Any

import pytest

from tao_ray.journal import Event
from tao_ray.platforms.ledger import Ledger

CHEAP = {"type": "a", "price": 1.0, "text": ""}
DEAR = {"type": "b", "price": 2.0, "text": ""}


def fold(*moments: tuple[float, str, dict[str, Any]]) -> Ledger:
    return Ledger.fold(
        Event("machine", data={"name": "m", "what": what, **data}, time=time)
        for time, what, data in moments
    )


@pytest.mark.parametrize(
    ("first", "seconds", "dollars"),
    [
        ([(1.0, "made", {})], 9.0 + 60.0, 9.0 + 120.0),  # it was made, and vanished
        ([(1.0, "skipped", {"text": "no capacity"})], 60.0, 120.0),
        ([], 60.0, 120.0),  # the request was lost
    ],
)
def test_each_instance_that_was_made_is_billed(
    first: list[tuple[float, str, dict[str, Any]]], seconds: float, dollars: float
) -> None:
    ledger = fold(
        (0.0, "asked", CHEAP),
        *first,
        (10.0, "asked", DEAR),
        (11.0, "made", {}),
        (71.0, "accepted", {}),
        (80.0, "deleted", {}),
    )
    assert ledger.machines["m"].seconds(1000.0) == pytest.approx(seconds)
    assert ledger.cost(1000.0) == pytest.approx(dollars / 3600.0)
