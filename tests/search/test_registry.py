"""Algorithms by name, their options, and what a user reads when one is wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest
from search_cases import settings

from tao_ray.errors import TaoRayError
from tao_ray.search import algorithms, build, options_model, parse_options
from tao_ray.space import SearchSpace


def test_every_name_has_an_options_model_with_described_knobs() -> None:
    assert "random" in algorithms()
    for name in algorithms():
        for field in options_model(name).model_fields.values():
            assert field.description


def test_every_algorithm_says_what_it_does(space: SearchSpace) -> None:
    for name in algorithms():
        algorithm = build(name, space, settings(), {})
        assert algorithm.name == name
        assert algorithm.why


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(TaoRayError) as error:
        options_model("hyperbands")
    assert "unknown algorithm 'hyperbands' (did you mean 'hyperband'?)" in str(error.value)
    assert "choose one of asha, " in str(error.value)


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(TaoRayError) as error:
        parse_options("asha", {"reduction_facto": 3, "brackets": 0})
    text = str(error.value)
    assert "unknown option 'reduction_facto' (did you mean 'reduction_factor'?)" in text
    assert "brackets: must be a whole number of at least 1, not 0" in text


def test_two_names_for_one_knob_are_refused() -> None:
    with pytest.raises(TaoRayError, match="the same knob"):
        parse_options("asha", {"grace_period": 2, "min_epochs": 3})
    with pytest.raises(TaoRayError, match="say the same"):
        parse_options("pbt", {"generations": 2, "perturbation_interval": 3})
    assert parse_options("asha", {"grace_period": 2}).model_dump()["min_epochs"] == 2


@pytest.mark.parametrize(
    "name", ["asha", "bohb", "dehb", "hyperband", "hyperband_es", "pb2", "pbt"]
)
def test_budgeted_algorithms_refuse_an_action_without_epochs(name: str, space: SearchSpace) -> None:
    with pytest.raises(TaoRayError, match=f"{name} divides an epoch budget") as error:
        build(name, space, settings(max_epochs=None), {})
    assert "use random, bayesian, bfbo or tpe" in str(error.value)


def test_importing_the_registry_loads_nothing_heavy() -> None:
    code = (
        "import sys, tao_ray.search; "
        "print([m for m in ('ray','scipy','sklearn','hyperopt','bayes_opt') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
