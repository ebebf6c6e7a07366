"""Parameters that are searched only where another has certain values."""

from __future__ import annotations

import numpy as np
import pytest

from tao_ray.space import Categorical, Condition, Float, GreaterThan, SearchSpace, SpaceError

PARAMETERS = (
    Float("momentum", 0.5, 0.99, default=0.9),
    Categorical("optim", ("sgd", "adamw", "lamb"), default="adamw"),
    Categorical("nesterov", (True, False), default=False),
)
CONDITIONS = (Condition("momentum", "optim", ("sgd",)), Condition("nesterov", "optim", ("sgd",)))
SPACE = SearchSpace(PARAMETERS, conditions=CONDITIONS)


def test_inactive_parameters_keep_their_defaults_everywhere() -> None:
    rng = np.random.default_rng(0)
    samples = [SPACE.sample(rng) for _ in range(200)] + SPACE.sobol(64, seed=1)
    samples += [SPACE.decode(rng.random(SPACE.dimensions)) for _ in range(200)]
    for config in samples:
        assert SPACE.violations(config) == []
        if config["optim"] != "sgd":
            assert (config["momentum"], config["nesterov"]) == (0.9, False)
        assert SPACE.decode(SPACE.encode(config)) == config
        assert SPACE.from_unit(SPACE.unit(config)) == config
    assert len({c["momentum"] for c in samples if c["optim"] == "sgd"}) > 50


def test_snapping_moves_only_what_has_no_effect() -> None:
    given = {"optim": "lamb", "momentum": 0.6, "nesterov": True}
    assert SPACE.violations(given) == [
        "momentum: has no effect here and is not its default",
        "nesterov: has no effect here and is not its default",
    ]
    assert SPACE.snap(given) == {"momentum": 0.9, "optim": "lamb", "nesterov": False}
    assert SPACE.snap({**given, "optim": "sgd"}) == {**given, "optim": "sgd"}


def test_conditions_may_follow_one_another() -> None:
    space = SearchSpace(
        PARAMETERS,
        conditions=(CONDITIONS[1], Condition("momentum", "nesterov", (True,))),
    )
    assert space.snap({"optim": "adamw", "nesterov": True, "momentum": 0.6}) == space.defaults()


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ([Condition("momentum", "lr", (1,))], "lr is not a parameter of this space"),
        ([Condition("momentum", "optim", ("SGD",))], "optim is never 'SGD'"),
        (
            [Condition("momentum", "nesterov", (True,)), Condition("nesterov", "momentum", (0.9,))],
            "go in a circle",
        ),
    ],
)
def test_conditions_that_cannot_be(conditions: list[Condition], text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        SearchSpace(PARAMETERS, conditions=conditions)


def test_a_condition_on_a_constrained_parameter_is_refused() -> None:
    parameters = (*PARAMETERS, Float("low", 0.0, 0.4, default=0.1))
    with pytest.raises(SpaceError, match="bound to other parameters by a rule"):
        SearchSpace(parameters, [GreaterThan("momentum", "low")], CONDITIONS)
