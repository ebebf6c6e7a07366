"""Every train schema of the real packages at hand gives a space that a user would accept.

Packages are those under the shared data and those of a bank named by TAO_SKILL_BANK_PATH. The
check of a sample against its schema is written anew here, from the schema's JSON, on purpose.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tao_ray.config import SearchConfig
from tao_ray.network.conventions import conventions_for
from tao_ray.network.keys import SpecError, known_keys
from tao_ray.network.network import Network
from tao_ray.network.package import read_package
from tao_ray.network.ranges import DerivedSpace, derive_space
from tao_ray.network.tree import get_path
from tao_ray.network.wiring import Wiring

SAMPLES = 10_000
REPO = Path(__file__).resolve().parents[2]


def _banks() -> list[Path]:
    shared = Path(os.environ.get("TAO_RAY_SHARED", REPO.parent / "shared"))
    named = os.environ.get("TAO_SKILL_BANK_PATH")
    return [shared / "tao-bank", *([Path(named)] if named else [])]


def _train_schemas() -> list[Path]:
    found = {
        path.resolve()
        for bank in _banks()
        for path in bank.glob("**/schemas/*train.schema.json")
        if (path.parent.parent / "references" / "skill_info.yaml").is_file()
    }
    return sorted(found)


SCHEMAS = _train_schemas()


@pytest.fixture(params=SCHEMAS, ids=lambda p: f"{p.parent.parent.name}/{p.name.split('.')[0]}")
def schema_path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_there_are_packages_to_check(shared_dir: Path) -> None:
    assert SCHEMAS, f"no train schema below {shared_dir}"


def test_samples_are_valid_and_near_the_defaults(schema_path: Path) -> None:
    network = _network(schema_path)
    derived = _derived(network)
    space, leaves = derived.space, _leaves(json.loads(schema_path.read_text()))
    defaults = space.defaults()
    for name, value in defaults.items():
        in_spec = get_path(network.base_spec, name)
        assert value == (in_spec if in_spec is not None else leaves[name]["default"])
    assert space.snap(defaults) == defaults
    assert space.decode(space.encode(defaults)) == defaults

    checks = {name: _check(name, leaves, network.base_spec) for name in space.names}
    near = {name: 0 for name in space.names if _is_learning_rate(name)}
    rng = np.random.default_rng(20)
    for config in [space.sample(rng) for _ in range(SAMPLES)]:
        assert space.violations(config) == []
        for name, value in config.items():
            assert checks[name](config) or value == defaults[name], f"{name} of {config}"
        for name in near:
            near[name] += 0.01 <= config[name] / defaults[name] <= 100
    assert all(count >= 0.8 * SAMPLES for count in near.values()), near


def test_every_offered_parameter_is_searched_or_has_a_reason(schema_path: Path) -> None:
    network = _network(schema_path)
    derived = _derived(network)
    searched = {re.sub(r"(?<=\D)\[\d\]$", "", name) for name in derived.space.names}
    searched |= set(derived.space.names)
    for name in network.default_search_names():
        assert (name in searched) != (name in derived.left_out), name
    assert set(derived.origins) == set(derived.space.names)
    assert all(derived.left_out.values())
    assert not any("num_epochs" in name or "workers" in name for name in derived.space.names)


def _network(schema_path: Path) -> Network:
    """The train action on its template alone: no user's data or overrides are needed for ranges."""
    package = read_package(schema_path.parent.parent)
    name = schema_path.name.split(".")[0]
    if name not in package.actions or not package.automl_enabled:
        pytest.skip("the package offers no search for this action")
    action = package.actions[name]
    assert action.schema is not None
    base_spec = action.template or action.schema.default
    return Network(
        name=package.network_arch,
        package=package,
        action=action,
        conventions=conventions_for(package.network_arch, name, package.name),
        command_text=action.command,
        config_format=action.config_format,
        known=known_keys(action, base_spec, package.shorthand),
        wiring=Wiring(),
        base_spec=base_spec,
    )


def _derived(network: Network) -> DerivedSpace:
    try:
        return derive_space(network, SearchConfig())
    except SpecError as error:
        if len(error.problems) != len(network.default_search_names()):
            raise  # nothing to search is an answer only with a reason per parameter offered
        pytest.skip(f"nothing to search: {error.message}")


# --- an independent reading of the schema -----------------------------------------------------


def _leaves(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    def walk(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for key, child in (node.get("properties") or {}).items():
            if isinstance(child, dict):
                name = f"{prefix}{key}"
                if child.get("properties"):
                    yield from walk(child, f"{name}.")
                else:
                    yield name, child

    return dict(walk(schema, ""))


def _is_learning_rate(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return bool(re.fullmatch(r"(\w+_)?lr|lr_(backbone|head|encoder|decoder)|learning_rate", last))


def _check(
    name: str, leaves: Mapping[str, Mapping[str, Any]], base_spec: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a configuration's value of `name` is what the schema allows."""
    element = re.fullmatch(r"(.*)\[(\d+)\]", name)
    leaf = leaves[name] if name in leaves or element is None else leaves[element[1]]
    if "enum" in leaf:
        return lambda config: config[name] in leaf["enum"]
    if leaf.get("type") == "bool":
        return lambda config: isinstance(config[name], bool)
    low, high = leaf.get("minimum", -math.inf), leaf.get("maximum", math.inf)
    if element and isinstance(low, list):
        low, high = low[int(element[2])], high[int(element[2])]
    kind = int if leaf.get("type") == "int" else (int, float)
    rule = RULES[re.sub(r"\s+", "", str(leaf.get("math_cond") or ""))]
    above = str(leaf.get("depends_on"))
    fixed = get_path(base_spec, above)
    classes = get_path(base_spec, "dataset.num_classes") or 2
    selects = above.endswith("num_queries")

    def check(config: Mapping[str, Any]) -> bool:
        value, parent = config[name], config.get(above, fixed)
        allowed = isinstance(value, kind) and low <= value <= high and rule(value, parent)
        return allowed and (not selects or value <= min(parent, parent * classes - 1))

    return check


RULES: dict[str, Callable[[Any, Any], bool]] = {
    "": lambda value, parent: True,
    ">0": lambda value, parent: value > 0,
    ">0.0": lambda value, parent: value > 0,
    ">0.0<=1.0": lambda value, parent: 0 < value <= 1,
    ">=0": lambda value, parent: value >= 0,
    ">=0.0": lambda value, parent: value >= 0,
    ">=1": lambda value, parent: value >= 1,
    "!=0": lambda value, parent: value != 0,
    "/8": lambda value, parent: value % 8 == 0,
    "/2": lambda value, parent: value <= parent / 2,
    "^2": lambda value, parent: value >= 2 and value & (value - 1) == 0,
    ">depends_on": lambda value, parent: value > parent,
}
"""Conditions without their spaces."""
