"""A search space: parameters, the constraints between them, and two images in the unit cube."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tao_ray.space._parameter import Parameter, SpaceError
from tao_ray.space.constraints import Condition, Constraint

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]


class SearchSpace:
    """What may be proposed. Immutable; equal inputs give equal outputs in every process.

    Two images of a configuration, see `Parameter`:

    * `unit` / `from_unit`: one number per parameter, in the order of `parameters`. The prior is
      uniform on this cube: a constrained parameter's number says where it lies between the limits
      that its parents leave, so constraints cause no pile-up at the limits.
    * `encode` / `decode`: `dimensions` numbers, categories one-hot, each parameter on its own
      range whatever the others are; `slices` says which numbers belong to which parameter.

    Every point of either cube is a valid configuration, and both round trips are exact.

    Raises:
        SpaceError: a name twice, a constraint on an unknown name, constraints in a circle,
            defaults that break a constraint, or a constraint that some parents' values leave
            no valid value for.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        constraints: Sequence[Constraint] = (),
        conditions: Sequence[Condition] = (),
    ):
        self.parameters = tuple(parameters)
        self.constraints = tuple(constraints)
        self.conditions = tuple(conditions)
        self.names = tuple(p.name for p in self.parameters)
        self._by_name = {p.name: p for p in self.parameters}
        if len(self._by_name) < len(self.parameters):
            twice = next(n for n in self.names if self.names.count(n) > 1)
            raise SpaceError(f"the parameter {twice} is given twice")
        ends = list(itertools.accumulate((p.width for p in self.parameters), initial=0))
        self.dimensions = ends[-1]
        self.slices = tuple(slice(a, b) for a, b in itertools.pairwise(ends))
        self._limiting = self._by_subject()
        self._conditions = self._conditions_by_subject()
        self._order = self._parents_first()
        self._check_feasible()

    def __len__(self) -> int:
        return len(self.parameters)

    def __getitem__(self, name: str) -> Parameter:
        return self._by_name[name]

    def __repr__(self) -> str:
        return f"SearchSpace({list(self.parameters)}, {list(self.constraints)})"

    def defaults(self) -> dict[str, Any]:
        """Every parameter's default."""
        return {p.name: p.default for p in self.parameters}

    def snap(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The valid configuration nearest to `config`; a missing parameter takes its default.

        Where a constraint is broken only its subject moves. Idempotent.

        Raises:
            SpaceError: an unknown name, or a value without a nearest valid one.
        """
        for name in config:
            self._require_known(name)
        snapped = {p.name: p.snap(config.get(p.name, p.default)) for p in self.parameters}
        return self._repaired(snapped)

    def violations(self, config: Mapping[str, Any]) -> list[str]:
        """Everything that is wrong with `config`, in words; empty if it is valid."""
        found = [f"{n}: not a parameter of this space" for n in config if n not in self._by_name]
        found += [f"{n}: missing" for n in self.names if n not in config]
        for p in self.parameters:
            problem = p.problem(config[p.name]) if p.name in config else None
            if problem:
                found.append(f"{p.name}: {problem}")
        if not found:
            found = [c.text + " does not hold" for c in self.constraints if not c.holds(config)]
            found += [
                f"{p.name}: has no effect here and is not its default"
                for p in self.parameters
                if not self.is_active(p.name, config) and config[p.name] != p.default
            ]
        return found

    def is_active(self, name: str, config: Mapping[str, Any]) -> bool:
        """Whether `name` is searched in `config`: all its conditions, and its parents', hold."""
        return all(
            c.holds(config) and self.is_active(c.parent, config)
            for c in self._conditions.get(name, ())
        )

    def encode(self, config: Mapping[str, Any]) -> Vector:
        """A valid configuration as `dimensions` numbers in [0, 1]."""
        return np.array([x for p in self.parameters for x in p.encode(config[p.name])])

    def decode(self, u: ArrayLike) -> dict[str, Any]:
        """The valid configuration nearest to a point of the encoding's cube."""
        numbers = self._numbers(u, self.dimensions)
        return self._repaired(
            {
                p.name: p.decode(numbers[s])
                for p, s in zip(self.parameters, self.slices, strict=True)
            }
        )

    def unit(self, config: Mapping[str, Any]) -> Vector:
        """A valid configuration as one number in [0, 1] per parameter."""
        return np.array([self._to_unit(p, config) for p in self.parameters])

    def from_unit(self, u: ArrayLike) -> dict[str, Any]:
        """The configuration at a point of the unit cube, one number per parameter."""
        numbers = dict(zip(self.names, self._numbers(u, len(self.parameters)), strict=True))
        config: dict[str, Any] = {}
        for name in self._order:
            parameter, x = self._by_name[name], numbers[name]
            if not self.is_active(name, config):
                config[name] = parameter.default
            elif name in self._limiting:
                low, high = self._limits(name, config)
                a, b = self._unit_interval(parameter, low, high)
                value = parameter.from_unit(a + x * (b - a))
                config[name] = parameter.nearest(value, low, high)
            else:
                config[name] = parameter.from_unit(x)
        return {name: config[name] for name in self.names}

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        """One configuration drawn from the prior."""
        return self.from_unit(rng.random(len(self.parameters)))

    def sobol(self, n: int, seed: int) -> list[dict[str, Any]]:
        """The first `n` points of a scrambled Sobol sequence over the unit cube.

        A longer sequence of the same seed begins with the shorter one.
        """
        if n <= 0 or not self.parameters:
            return [self.from_unit([]) for _ in range(n)]
        from scipy.stats import qmc  # loads slowly, and not every search needs it

        sequence = qmc.Sobol(len(self.parameters), scramble=True, seed=np.random.default_rng(seed))
        # Whole powers of two are what the sequence is balanced for; the rest is cut off.
        points = sequence.random_base2(math.ceil(math.log2(n)))
        return [self.from_unit(point) for point in points[:n]]

    def _numbers(self, u: ArrayLike, expected: int) -> list[float]:
        array = np.asarray(u, dtype=float)
        if array.shape != (expected,):
            raise SpaceError(f"expected {expected} numbers, got an array of shape {array.shape}")
        return [float(x) for x in array.tolist()]

    def _to_unit(self, parameter: Parameter, config: Mapping[str, Any]) -> float:
        u = parameter.to_unit(config[parameter.name])
        if parameter.name not in self._limiting:
            return u
        a, b = self._unit_interval(parameter, *self._limits(parameter.name, config))
        return min(max((u - a) / (b - a), 0.0), 1.0) if b > a else 0.5

    @staticmethod
    def _unit_interval(parameter: Parameter, low: float, high: float) -> tuple[float, float]:
        """Where the lowest and the highest valid value within the limits lie."""
        ends = (parameter.nearest(end, low, high) for end in (low, high))
        a, b = (parameter.to_unit(end) for end in ends)
        return a, b

    def _repaired(self, config: dict[str, Any]) -> dict[str, Any]:
        for name in self._order:
            if not self.is_active(name, config):
                config[name] = self._by_name[name].default
            elif name in self._limiting:
                low, high = self._limits(name, config)
                if not low <= config[name] <= high:
                    config[name] = self._by_name[name].nearest(config[name], low, high)
        return config

    def _limits(self, name: str, config: Mapping[str, Any]) -> tuple[float, float]:
        lows, highs = zip(*(c.limits(config) for c in self._limiting[name]), strict=True)
        return max(lows), min(highs)

    def _require_known(self, name: str) -> None:
        if name in self._by_name:
            return
        near = difflib.get_close_matches(name, self.names, n=1)
        raise SpaceError(
            f"{name} is not a parameter of this space",
            remedy=f"did you mean {near[0]}?" if near else f"it has {', '.join(self.names)}",
        )

    def _by_subject(self) -> dict[str, list[Constraint]]:
        found: dict[str, list[Constraint]] = {}
        for constraint in self.constraints:
            for name in (constraint.subject, *constraint.parents):
                self._require_known(name)
                if self._by_name[name].kind == "categorical":
                    raise SpaceError(f"{constraint.text}: {name} is not a number")
            found.setdefault(constraint.subject, []).append(constraint)
        return found

    def _conditions_by_subject(self) -> dict[str, list[Condition]]:
        found: dict[str, list[Condition]] = {}
        for condition in self.conditions:
            for name in (condition.subject, condition.parent):
                self._require_known(name)
            if any(condition.subject in (c.subject, *c.parents) for c in self.constraints):
                raise SpaceError(f"{condition.text}: it is bound to other parameters by a rule")
            parent = self._by_name[condition.parent]
            wrong = [v for v in condition.values if parent.problem(v)]
            if wrong:
                raise SpaceError(f"{condition.text}: {parent.name} is never {wrong[0]!r}")
            found.setdefault(condition.subject, []).append(condition)
        return found

    def _parents_first(self) -> tuple[str, ...]:
        """The names, every constraint's parents before its subject."""
        order: list[str] = []
        waiting = list(self.names)
        while waiting:
            ready = [n for n in waiting if all(p in order for p in self._parents_of(n))]
            if not ready:
                raise SpaceError(f"the rules on {', '.join(waiting)} go in a circle")
            order += ready
            waiting = [n for n in waiting if n not in ready]
        return tuple(order)

    def _parents_of(self, name: str) -> Iterable[str]:
        yield from (p for c in self._limiting.get(name, ()) for p in c.parents)
        yield from (c.parent for c in self._conditions.get(name, ()))

    def _check_feasible(self) -> None:
        """Every constraint is monotone in its parents: the corners of their ranges decide."""
        defaults = self.defaults()
        for subject, constraints in self._limiting.items():
            parents = sorted({p for c in constraints for p in c.parents})
            ends = [
                (self._by_name[p].from_unit(0.0), self._by_name[p].from_unit(1.0)) for p in parents
            ]
            rules = " and ".join(c.text for c in constraints)
            for corner in itertools.product(*ends):
                low, high = self._limits(subject, dict(zip(parents, corner, strict=True)))
                if self._by_name[subject].nearest(defaults[subject], low, high) is None:
                    values = ", ".join(f"{p} = {v!r}" for p, v in zip(parents, corner, strict=True))
                    raise SpaceError(
                        f"{rules} leaves no value for {subject} when {values}",
                        remedy="narrow the parent's range or widen that of the dependent one",
                    )
            broken = [c.text for c in constraints if not c.holds(defaults)]
            if broken:
                raise SpaceError(f"the defaults break {broken[0]}")
