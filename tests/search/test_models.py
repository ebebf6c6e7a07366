"""The models behind the proposals, and what a proposal costs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from search_cases import loss_at, make_space, settings

from tao_ray.search import PastTrial, TrialStatus, build
from tao_ray.search.base import Config, Proposal
from tao_ray.search.curve_model import CurveModelProposer
from tao_ray.search.curves import probability_above
from tao_ray.search.gaussian_process import GaussianProcess, decay, tame
from tao_ray.search.history import TrialRecord
from tao_ray.search.kde import MixedDensity, as_point, from_point
from tao_ray.search.rungs import hyperband_brackets
from tao_ray.search.simulation import simulate
from tao_ray.space import Categorical, Condition, Float, Integer, SearchSpace


def test_the_process_interpolates_and_is_unsure_elsewhere() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((20, 2))
    gp = GaussianProcess(2).fit(x, np.sin(3 * x[:, 0]) + x[:, 1])
    mean, deviation = gp.predict(x, return_std=True)
    assert mean == pytest.approx(np.sin(3 * x[:, 0]) + x[:, 1], abs=0.02)
    queries = rng.random((50, 2))
    assert gp.predict(queries) == pytest.approx(np.sin(3 * queries[:, 0]) + queries[:, 1], abs=0.25)
    assert deviation.max() < gp.predict(np.array([[5.0, 5.0]]), return_std=True)[1][0]


def test_its_gradient_is_exact() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.random((15, 3)), rng.choice([0.0, 0.3, 1.0], 15)
    gp = GaussianProcess(3).fit(x, x.sum(1) + w, w)
    squares = ((x[:, None] - x[None]) ** 2).reshape(-1, 3)
    theta = gp._center + 0.3 * rng.normal(size=8)
    exact = gp._loss(theta, squares)[1]
    numeric = approx_fprime(theta, lambda t: gp._loss(t, squares)[0], 1e-6)
    assert exact == pytest.approx(numeric, abs=1e-4)


def test_unfinished_trainings_inform_the_final_loss() -> None:
    """Half-way losses lie 2 above the final ones; the process learns that from few full ones."""
    rng = np.random.default_rng(2)
    x = rng.random((30, 1))
    epochs = np.where(np.arange(30) < 6, 27.0, 5.0)
    w = decay(epochs, 27)
    final = (x[:, 0] - 0.3) ** 2
    gp = GaussianProcess(1).fit(x, final + 4 * w, w)
    queries = np.linspace(0, 1, 21)[:, None]
    assert gp.predict(queries) == pytest.approx((queries[:, 0] - 0.3) ** 2, abs=0.05)


def test_believing_changes_certainty_not_the_mean() -> None:
    x = np.array([[0.1], [0.5], [0.9]])
    gp = GaussianProcess(1).fit(x, np.array([1.0, 0.0, 1.0]))
    at = np.array([[0.7]])
    before = gp.predict(at, return_std=True)
    after = gp.believe(at).predict(at, return_std=True)
    assert after[0] == pytest.approx(before[0], abs=1e-3)
    assert after[1][0] < 0.1 * before[1][0]


def test_one_explosion_does_not_flatten_the_rest() -> None:
    assert tame(np.array([1.0, 2.0, 3.0, 1e9])).tolist() == [1.0, 2.0, 3.0, 7.0]
    assert tame(np.array([1.0, 1.0])).tolist() == [1.0, 1.0]


def test_decay_falls_from_one_to_zero() -> None:
    assert decay(np.array([1.0, 3.0, 27.0]), 27) == pytest.approx([1.0, 2 / 3, 0.0])
    assert decay(np.array([1.0]), 1).tolist() == [0.0]


KINDS = SearchSpace([Float("x", 0.0, 1.0), Integer("n", 1, 5), Categorical("c", ("a", "b", "z"))])


def density(min_bandwidth: float = 1e-3) -> MixedDensity:
    configs = [{"x": 0.1 * i, "n": 1 + i % 5, "c": "ab"[i % 2]} for i in range(8)]
    points = np.array([as_point(KINDS, c) for c in configs])
    return MixedDensity(KINDS, points, min_bandwidth)


def test_the_density_sums_to_one_over_all_kinds() -> None:
    kde = density()
    units = [KINDS["n"].to_unit(n) for n in range(1, 6)]

    def at(x: float) -> float:
        queries = np.array([[x, n, c] for n in units for c in range(3)])
        return float(np.exp(kde.log_density(queries)).sum())

    assert quad(at, 0, 1, limit=200)[0] == pytest.approx(1.0, abs=0.05)


def test_draws_are_valid_and_near_the_points() -> None:
    draws = density().sample(200, 1.0, np.random.default_rng(0))
    configs = [from_point(KINDS, d) for d in draws]
    assert all(KINDS.violations(c) == [] for c in configs)
    assert np.mean([c["c"] == "z" for c in configs]) < 0.3
    assert np.mean([c["x"] for c in configs]) == pytest.approx(0.35, abs=0.1)


def test_extrapolation_is_as_sure_as_it_says() -> None:
    """Of noisy power-law curves that end below the cut, few are called hopeless at 95 %."""
    rng = np.random.default_rng(3)
    wrong = hopeless = 0
    for _ in range(300):
        a, b, c = rng.uniform(0, 1), rng.uniform(0.2, 2), rng.uniform(0.3, 1.5)
        curve = {e: a + b * e**-c + 0.01 * rng.normal() for e in range(1, 9)}
        final = a + b * 27.0**-c
        if probability_above(curve, 27, final + rng.uniform(0.0, 0.02)) >= 0.95:
            wrong += 1
        if probability_above(curve, 27, final - 0.3) >= 0.95:
            hopeless += 1
    assert wrong <= 0.1 * 300
    assert hopeless >= 0.7 * 300


def test_hopeless_trainings_are_stopped_between_rungs() -> None:
    def objective(config: Any, epoch: int) -> float:
        return float(config["x"] + 0.5 * epoch**-0.7)

    line = SearchSpace([Float("x", 0.0, 1.0)])
    spent = {}
    for name in ("hyperband", "hyperband_es"):
        s = settings(points=(), trials=49, max_epochs=27)
        result = simulate(build(name, line, s, {}), objective, max_epochs=27)
        spent[name] = result.epochs, result.best.config["x"]
    assert spent["hyperband_es"][1] == spent["hyperband"][1]
    assert spent["hyperband_es"][0] < 0.9 * spent["hyperband"][0]


@pytest.mark.parametrize("name", ["bayesian", "bfbo", "tpe", "auto", "bohb"])
def test_a_warm_start_replaces_the_search_for_the_valley(name: str) -> None:
    space = make_space()
    rng = np.random.default_rng(5)
    past = []
    for _ in range(60):
        config = space.sample(rng)
        past.append(PastTrial(config, 9, loss_at(config, 9)))
    algorithm = build(
        name, space, settings(points=(), trials=8, warm_start=tuple(past)), {**_immediately(name)}
    )
    result = simulate(algorithm, loss_at, max_epochs=9)
    cold = build(name, space, settings(points=(), trials=8), {})
    unaware = simulate(cold, loss_at, max_epochs=9)
    assert np.median([t.best for t in result.trials]) < np.median([t.best for t in unaware.trials])


def _immediately(name: str) -> dict[str, Any]:
    return {"random_fraction": 0.0} if name == "bohb" else {"initial": 1}


CONDITIONAL = SearchSpace(
    [
        Categorical("optim", ("sgd", "adam"), default="adam"),
        Float("momentum", 0.0, 0.99, default=0.9),
        Float("lr", 1e-5, 1e-1, log=True, default=1e-3),
    ],
    conditions=[Condition("momentum", "optim", ("sgd",))],
)


@pytest.mark.parametrize(
    "name", ["random", "bayesian", "bfbo", "tpe", "auto", "bohb", "dehb", "pbt", "pb2"]
)
def test_a_parameter_without_effect_keeps_its_default(name: str) -> None:
    def objective(config: Any, epoch: int) -> float:
        slow = abs(config["momentum"] - 0.5) if config["optim"] == "sgd" else 0.3
        return float(slow + abs(np.log10(config["lr"]) + 3) + 1 / epoch)

    s = settings(points=(CONDITIONAL.defaults(),), trials=30, max_concurrent=4)
    result = simulate(build(name, CONDITIONAL, s, {}), objective, max_epochs=9, workers=4)
    assert {t.config["optim"] for t in result.trials} == {"sgd", "adam"}
    assert all(CONDITIONAL.violations(t.config) == [] for t in result.trials)


def test_auto_reads_curves_between_the_rungs_until_a_training_has_ended() -> None:
    """Readings at 3, 5, 7, 9, 15 and 21 epochs, or at the first measured one after each."""
    line = SearchSpace([Float("x", 0.0, 1.0)])
    proposer = build("auto", line, settings(points=(), trials=30, max_epochs=27), {}).proposer
    assert isinstance(proposer, CurveModelProposer)

    def trained(x: float, epochs: Iterable[int]) -> TrialRecord:
        curve = {e: x + 1 / e for e in epochs}
        return TrialRecord(f"t{x}", {"x": x}, TrialStatus.STOPPED, curve)

    def read(*records: TrialRecord) -> list[float]:
        return proposer.model(records)._w.tolist()

    def expected(*epochs: float) -> list[float]:
        return decay(np.array(epochs), 27).tolist()

    young, sparse = trained(0.1, range(1, 11)), trained(0.2, range(4, 25, 4))
    assert read(young) == expected(3, 5, 7, 9, 10)
    assert read(sparse) == expected(4, 8, 12, 16, 24)
    assert read(young, trained(0.3, range(1, 28))) == expected(9, 10, 9, 27)
    assert read(sparse, trained(0.3, range(1, 28))) == expected(12, 24, 9, 27)


def test_bohb_models_the_largest_fidelity_with_enough_results() -> None:
    """With results at 9 epochs that contradict those at 27, it follows those at 27."""
    line = SearchSpace([Float("x", 0.0, 1.0)])
    past = [PastTrial({"x": i / 40}, 9, i / 40) for i in range(40)]
    past += [PastTrial({"x": i / 20}, 27, 1 - i / 20) for i in range(20)]
    s = settings(points=(), trials=20, max_epochs=27, warm_start=tuple(past))
    proposer = build("bohb", line, s, {"random_fraction": 0.0}).proposer
    drawn = []
    for i in range(8):
        proposal = proposer.ask(i)
        assert isinstance(proposal, Proposal)
        proposer.started(f"t{i}", proposal)
        drawn.append(proposal.config["x"])
    assert np.mean(drawn) > 0.7


def test_bohb_without_a_model_is_hyperband_over_sobol_points() -> None:
    space = SearchSpace([Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)])
    s = settings(points=(), trials=12, max_epochs=9, seed=4)
    algorithms = [build("bohb", space, s, {}), build("hyperband", space, s, {"sampler": "sobol"})]
    found = [
        [t.config for t in simulate(algorithm, _bowl, max_epochs=9).trials[:9]]
        for algorithm in algorithms
    ]
    assert found[0] == found[1]


def _bowl(config: Config, epoch: int) -> float:
    return float((config["x"] - 0.3) ** 2 + config["y"] + 1 / epoch)


def test_dehb_children_take_their_targets_seat_only_if_not_worse() -> None:
    line = SearchSpace([Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)])
    brackets = hyperband_brackets(9, 3)
    s = settings(points=(), trials=2 * sum(b.size for b in brackets), max_epochs=9)
    algorithm = build("dehb", line, s, {})
    result = simulate(algorithm, lambda c, e: c["x"] + 1 / e, max_epochs=9)
    populations: Any = algorithm.proposer.populations  # type: ignore[attr-defined]
    first_bracket = [t for i, t in enumerate(result.trials) if i % 17 < 9]  # 9 + 5 + 3 trials
    assert min(m.loss for m in populations[1]) == min(t.losses[0] for t in first_bracket)
    assert min(m.loss for m in populations[9]) == min(
        t.losses[8] for t in result.trials if t.epoch == 9
    )
    early = np.mean([t.config["x"] for t in result.trials[:9]])
    late = np.mean([t.config["x"] for t in result.trials[-9:]])
    assert late < early


WIDE = SearchSpace(
    [Float(f"f{i}", 1e-6, 1.0, log=True) for i in range(12)]
    + [Integer(f"i{i}", 1, 64) for i in range(4)]
    + [Categorical(f"c{i}", ("a", "b", "c")) for i in range(2)]
)


@pytest.mark.slow
@pytest.mark.parametrize(("observations", "limit"), [(100, 0.2), (1000, 1.0)])
@pytest.mark.parametrize("name", ["bayesian", "bfbo", "tpe", "auto", "bohb", "dehb"])
def test_a_proposal_in_22_dimensions_is_cheap(name: str, observations: int, limit: float) -> None:
    """CPU seconds of one thread, the best of three."""
    assert WIDE.dimensions == 22
    s = settings(points=(), trials=2000, max_epochs=27)
    algorithm = build(name, WIDE, s, {})
    rng = np.random.default_rng(0)
    for i in range(observations):
        config = WIDE.sample(rng)
        proposal = Proposal(config)
        loss = float(np.sum(WIDE.encode(config)[:4] ** 2))
        algorithm.proposer.started(f"t{i}", proposal)
        algorithm.rule.add(f"t{i}", proposal.info)
        for epoch in (1, 3, 9, 27):
            algorithm.proposer.tell(f"t{i}", config, epoch, loss + 1 / epoch, TrialStatus.RUNNING)
        algorithm.proposer.tell(f"t{i}", config, 27, loss, TrialStatus.COMPLETED)
    algorithm.proposer.ask(0)  # imports
    costs = []
    for running in (1, 2, 3):
        before = time.process_time()
        algorithm.proposer.ask(running)
        costs.append(time.process_time() - before)
    assert min(costs) < limit
