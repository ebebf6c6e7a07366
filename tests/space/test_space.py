"""Both images of the cube are exact, all output is valid, equal seeds give equal draws."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tao_ray.space import (
    AtMost,
    Categorical,
    Float,
    GreaterThan,
    Integer,
    Ordered,
    Parameter,
    SearchSpace,
    SpaceError,
)

# --- strategies -------------------------------------------------------------------------------

_NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-12)
_POSITIVE = st.floats(1e-9, 1e6)


@st.composite
def floats(draw: st.DrawFn, name: str) -> Parameter:
    log = draw(st.booleans())
    low, high = sorted(draw(st.tuples(*[_POSITIVE if log else _NUMBERS] * 2)))
    assume(high - low > 1e-6 * max(abs(low), abs(high)))
    share = draw(st.floats(0, 1))
    default = draw(st.none() | st.just(min(max(low + share * (high - low), low), high)))
    step = None if log else draw(st.none() | st.floats(0.001, 0.7))
    return Float(
        name,
        low,
        high,
        log=log,
        default=default,
        step=None if step is None else step * (high - low),
        open_low=draw(st.booleans()),
        open_high=draw(st.booleans()),
    )


@st.composite
def integers(draw: st.DrawFn, name: str) -> Parameter:
    log = draw(st.booleans())
    low = draw(st.integers(1 if log else -1000, 2000))
    high = low + draw(st.integers(1, 5000))
    step = None if log else draw(st.none() | st.integers(1, high - low))
    default = draw(st.none() | st.integers(low, high))
    return Integer(name, low, high, log=log, step=step, default=default)


@st.composite
def choices(draw: st.DrawFn, name: str) -> Parameter:
    kind = draw(st.sampled_from(["bool", "categorical", "ordered", "lists"]))
    options: list[Any]
    if kind == "bool":
        options = [False, True]
    elif kind == "categorical":
        options = draw(st.lists(st.text(max_size=4), min_size=1, max_size=5, unique=True))
    elif kind == "lists":
        options = [[40, 70], [20, 50], [10]]
    else:
        options = sorted(draw(st.sets(st.integers(1, 512), min_size=1, max_size=6)))
    weights = draw(
        st.none()
        | st.lists(st.floats(0.01, 10), min_size=len(options), max_size=len(options)).map(tuple)
    )
    default = draw(st.sampled_from(options))
    if kind == "ordered":
        return Ordered(name, tuple(options), weights, default)
    return Categorical(name, tuple(options), weights, default)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    n = draw(st.integers(1, 5))
    parameters = [
        draw(st.one_of(floats(f"p{i}"), integers(f"p{i}"), choices(f"p{i}"))) for i in range(n)
    ]
    constraints: list[GreaterThan | AtMost] = []
    if draw(st.booleans()):
        parameters += [
            Integer("crop.min", 32, 1024, default=384, step=draw(st.sampled_from([None, 8]))),
            Integer("crop.max", 32, 1333, default=600, log=draw(st.booleans())),
        ]
        constraints.append(GreaterThan("crop.max", "crop.min"))
    if draw(st.booleans()):
        parameters += [
            Integer("select", 1, 1000, default=300),
            Integer("queries", 1, 600, default=300, log=True),
            Float("half", 0, 900, default=10.1, log=False),
        ]
        constraints += [
            AtMost("select", "queries"),
            AtMost("select", "queries", factor=3, offset=-1),
            AtMost("half", "queries", factor=0.5),
        ]
    if draw(st.booleans()):
        parameters.reverse()
    return SearchSpace(parameters, constraints)


def cube(n: int) -> st.SearchStrategy[list[float]]:
    edge = st.sampled_from([0.0, 0.5, 1.0])
    return st.lists(st.floats(0, 1) | edge, min_size=n, max_size=n)


# --- properties -------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_point_of_both_cubes_is_a_valid_config_that_survives_the_way_back(
    data: st.DataObject,
) -> None:
    space = data.draw(spaces())
    configs = [
        space.defaults(),
        space.decode(data.draw(cube(space.dimensions))),
        space.from_unit(data.draw(cube(len(space)))),
    ]
    for config in configs:
        assert space.violations(config) == []
        assert list(config) == list(space.names)
        assert space.snap(config) == config
        for image, back in ((space.encode, space.decode), (space.unit, space.from_unit)):
            point = image(config)
            assert ((point >= 0) & (point <= 1)).all()
            again = back(point)
            assert again == config
            assert [type(v) for v in again.values()] == [type(v) for v in config.values()]
        assert json.loads(json.dumps(config)) == config
        assert space.encode(config).shape == (space.dimensions,)
        assert space.unit(config).shape == (len(space),)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_snap_makes_any_numbers_valid_once_and_for_all(data: st.DataObject) -> None:
    space = data.draw(spaces())
    anything = st.floats(-1e9, 1e9) | st.integers(-(10**6), 10**6) | st.floats(-2, 2)
    config = {
        p.name: data.draw(st.sampled_from(p.options) if isinstance(p, Categorical) else anything)
        for p in space.parameters
    }
    snapped = space.snap(config)
    assert space.violations(snapped) == []
    assert space.snap(snapped) == snapped
    subjects = {c.subject for c in space.constraints}
    for p in space.parameters:
        if p.name not in subjects:  # repairing moves the dependent parameter only
            assert snapped[p.name] == p.snap(config[p.name])


@settings(max_examples=30, deadline=None)
@given(spaces(), st.integers(0, 2**32 - 1))
def test_draws_are_plain_and_repeatable(space: SearchSpace, seed: int) -> None:
    first = space.sample(np.random.default_rng(seed))
    assert first == space.sample(np.random.default_rng(seed))
    assert {type(v) for v in first.values()} <= {int, float, str, bool, list}
    points = space.sobol(5, seed)
    assert len(points) == 5
    assert points[:3] == space.sobol(3, seed)
    assert all(space.violations(c) == [] for c in points)


# --- behaviour --------------------------------------------------------------------------------


def test_a_log_float_is_log_uniform_and_a_linear_one_uniform() -> None:
    space = SearchSpace([Float("lr", 1e-6, 1e-2, log=True), Float("drop", 0.0, 0.5)])
    configs = [space.from_unit([u, u]) for u in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert [c["lr"] for c in configs] == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    assert [c["drop"] for c in configs] == [0.0, 0.125, 0.25, 0.375, 0.5]


def test_every_integer_has_the_same_share_at_the_ends_too() -> None:
    space = SearchSpace([Integer("layers", 1, 4)])
    draws = [space.from_unit([u])["layers"] for u in np.linspace(0.001, 0.999, 1000)]
    assert [draws.count(k) for k in (1, 2, 3, 4)] == [250, 250, 250, 250]


def test_weights_decide_samples_and_sobol_points() -> None:
    space = SearchSpace(
        [
            Categorical("decay", ("linear", "sqrt", "cosine", "none"), (0.1, 0.1, 0.4, 0.4)),
            Ordered("rank", (4, 8, 16), (1, 1, 2)),
        ]
    )
    sobol = space.sobol(1024, seed=3)
    assert [sum(c["decay"] == o for c in sobol) / 1024 for o in ("linear", "cosine")] == (
        pytest.approx([0.1, 0.4], abs=0.005)
    )
    assert sum(c["rank"] == 16 for c in sobol) == pytest.approx(512, abs=4)
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng)["decay"] for _ in range(4000)]
    assert drawn.count("sqrt") / 4000 == pytest.approx(0.1, abs=0.02)


def test_categories_are_one_hot_booleans_one_number_ordered_a_rank() -> None:
    space = SearchSpace(
        [
            Categorical("opt", ("sgd", "adam", "lamb"), default="adam"),
            Categorical("flip", (False, True), default=True),
            Ordered("rank", (2, 4, 256, 512)),
        ]
    )
    assert space.dimensions == 5
    assert space.slices == (slice(0, 3), slice(3, 4), slice(4, 5))
    assert space.encode(space.defaults()).tolist() == [0, 1, 0, 1, 0.125]
    assert space.decode([0.2, 0.3, 0.9, 0.4, 0.6]) == {"opt": "lamb", "flip": False, "rank": 256}
    assert [(p.kind, p.cardinality) for p in space.parameters] == [
        ("categorical", 3), ("categorical", 2), ("ordered", 4),
    ]  # fmt: skip


def test_the_default_is_valid_on_the_grid_or_off_it() -> None:
    space = SearchSpace(
        [
            Integer("size", 8, 64, step=8, default=20),
            Float("lr", 1e-5, 1e-1, log=True, default=0.0123456789),
            Float("step", 0.0, 1.0, step=0.25, default=0.3),
        ]
    )
    default = {"size": 20, "lr": 0.0123456789, "step": 0.3}
    assert space.defaults() == space.snap(default) == space.decode(space.encode(default)) == default
    assert space.snap({"size": 21, "lr": 0.0123456, "step": 0.35}) == {
        "size": 24, "lr": 0.0123456, "step": 0.25,
    }  # fmt: skip


def test_steps_give_clean_numbers() -> None:
    p = Float("x", 0.1, 0.75, step=0.1)
    values = sorted({p.from_unit(u) for u in np.linspace(0, 1, 400)})
    assert values == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert p.cardinality == 7


def test_open_ends_and_exclusions_are_never_proposed() -> None:
    open_float = Float("x", 0.0, 1.0, open_low=True, open_high=True)
    assert 0 < open_float.from_unit(0.0) < 1e-5
    assert 1 - 1e-5 < open_float.from_unit(1.0) < 1
    assert open_float.problem(0.0) is not None
    nonzero = Integer("hw", -2, 3, exclude=(0,), default=-1)
    assert {nonzero.from_unit(u) for u in np.linspace(0, 1, 100)} == {-2, -1, 1, 2, 3}
    assert nonzero.problem(0) is not None


def test_a_constrained_parameter_spreads_between_its_limits() -> None:
    space = SearchSpace(
        [Integer("max", 32, 1333, default=600), Integer("min", 32, 1024, default=384)],
        [GreaterThan("max", "min")],
    )
    rng = np.random.default_rng(1)
    configs = [space.sample(rng) for _ in range(2000)]
    assert all(c["max"] > c["min"] for c in configs)
    # Lifting every broken pair to the limit would put a third of the draws there.
    assert sum(c["max"] == c["min"] + 1 for c in configs) < 20
    assert space.snap({"max": 100, "min": 900}) == {"max": 901, "min": 900}


def test_true_is_not_one() -> None:
    p = Categorical("x", (1, True))
    assert p.decode(p.encode(True)) is True
    assert p.decode(p.encode(1)) == 1
    assert p.decode(p.encode(1)) is not True
    with pytest.raises(SpaceError, match="not a number"):
        Float("x", 0, 1).snap(True)


def test_numpy_numbers_become_plain() -> None:
    space = SearchSpace([Float("a", 0, 1), Integer("b", 0, 10), Ordered("c", (1, 2, 4))])
    snapped = space.snap({"a": np.float64(0.5), "b": np.int64(3), "c": np.float32(2)})
    assert snapped == {"a": 0.5, "b": 3, "c": 2}
    assert [type(v) for v in snapped.values()] == [float, int, int]


def test_snap_fills_defaults_and_names_the_nearest_known_parameter() -> None:
    space = SearchSpace([Float("train.optim.lr", 1e-6, 1e-2, log=True, default=1e-4)])
    assert space.snap({}) == {"train.optim.lr": 1e-4}
    with pytest.raises(SpaceError, match=r"did you mean train\.optim\.lr"):
        space.snap({"train.optim.rl": 1e-3})


def test_violations_say_what_is_wrong() -> None:
    space = SearchSpace(
        [Integer("a", 1, 9), Integer("b", 1, 10, default=9), Categorical("c", ("x", "y"))],
        [GreaterThan("b", "a")],
    )
    assert space.violations({"a": 12, "c": "z", "d": 1}) == [
        "d: not a parameter of this space",
        "b: missing",
        "a: 12 is outside 1 to 9",
        "c: 'z' is not one of ['x', 'y']",
    ]
    assert space.violations({"a": 5, "b": 5, "c": "x"}) == ["b > a does not hold"]
    assert space.violations({"a": 5.6, "b": 7, "c": "x"}) == [
        "a: 5.6 is not a valid value; the nearest is 6"
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float("x", 1, 1), "is not an interval"),
        (lambda: Float("x", 0, float("inf")), "is not an interval"),
        (lambda: Float("x", 0, 1, log=True), "log scale cannot start at 0"),
        (lambda: Integer("x", 1, 5, step=9), "step of 9"),
        (lambda: Float("x", 0, 1, default=2), "default 2 is outside 0 to 1"),
        (lambda: Categorical("x", ()), "no options"),
        (lambda: Categorical("x", ("a", "a")), "given twice"),
        (lambda: Categorical("x", ("a", "b"), (1, 0)), "do not suit"),
        (lambda: Ordered("x", (4, 2)), "do not ascend"),
        (lambda: Ordered("x", ("a", "b")), "are numbers"),
        (lambda: SearchSpace([Float("x", 0, 1), Float("x", 0, 1)]), "x is given twice"),
        (lambda: SearchSpace([Float("x", 0, 1)], [AtMost("x", "y")]), "y is not a parameter"),
        (
            lambda: SearchSpace(
                [Integer("x", 0, 5), Integer("y", 0, 5)], [AtMost("x", "y"), AtMost("y", "x")]
            ),
            "in a circle",
        ),
        (
            lambda: SearchSpace([Integer("x", 1, 5), Integer("y", 1, 5)], [GreaterThan("x", "y")]),
            r"x > y leaves no value for x when y = 5",
        ),
        (
            lambda: SearchSpace(
                [Integer("x", 1, 9, default=2), Integer("y", 1, 5)], [GreaterThan("x", "y")]
            ),
            "the defaults break x > y",
        ),
    ],
)  # fmt: skip
def test_impossible_spaces_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        make()
