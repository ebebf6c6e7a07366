"""The search space of a network: which parameters, within which ranges, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tao_ray.config.search import SearchConfig
from tao_ray.errors import TaoRayError
from tao_ray.network.bounds import rules_of
from tao_ray.network.conventions import COMPRESSING_ACTIONS, TRAINING_ACTIONS
from tao_ray.network.draft import Draft, align, draft_from_schema
from tao_ray.network.keys import SpecError, is_own
from tao_ray.network.network import SEARCHABLE, Network
from tao_ray.network.range_rules import (
    counts_epochs,
    is_batch_size,
    is_learning_rate,
    reason_to_leave_out,
)
from tao_ray.network.schema import SchemaParameter
from tao_ray.network.tree import get_path
from tao_ray.network.user_ranges import RangeError, draft_from_user
from tao_ray.space import AtMost, Condition, Constraint, GreaterThan, SearchSpace

_ABSENT = object()


@dataclass(frozen=True)
class DerivedSpace:
    """A space and the reasons for it.

    space: its defaults are the base spec's values where it has them, else the schema's: trial 0.
    origins: parameter -> where its range came from, one sentence part.
    left_out: parameter the package offers -> why it is not searched.
    warnings: what a user should know before the search starts.
    """

    space: SearchSpace
    origins: dict[str, str]
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def derive_space(
    network: Network, search: SearchConfig, *, batch_limit: int | None = None
) -> DerivedSpace:
    """The search space that `search` asks for.

    With ``parameters: default`` it holds what the package offers, within ranges narrowed around
    the defaults (see `range_rules`), less what has no effect on what is learned. Otherwise it
    holds exactly the user's parameters. A parameter without any default starts at the middle of
    its range, or at the first of its options.

    batch_limit: the largest batch size the data allows.

    Raises:
        SpecError: unknown, forbidden or impossible parameters, all of them at once; or nothing
            is left to search.
    """
    return _Derivation(network, search).run(batch_limit)


class _Derivation:
    def __init__(self, network: Network, search: SearchConfig):
        self.network = network
        self.search = search
        self.drafts: dict[str, Draft] = {}
        self.left_out: dict[str, str] = {}
        self.warnings: list[str] = []
        self.constraints: list[Constraint] = []
        self.by_user = search.parameters != "default"
        self.epochs = search.max_epochs
        if self.epochs is None and network.conventions.epoch_keys:
            held = get_path(network.base_spec, network.conventions.epoch_keys[0])
            self.epochs = held if isinstance(held, int) else None

    def run(self, batch_limit: int | None) -> DerivedSpace:
        if isinstance(self.search.parameters, dict):
            self._take_users()
        else:
            self._take_defaults()
        if not self.drafts:
            self._refuse_empty()
        self._limit_batch(batch_limit)
        self._relate()
        parameters = [draft.build() for draft in self.drafts.values()]
        for parameter in parameters:
            self._compare_start(parameter.name, parameter.default)
        if self.network.action.schema is not None:
            self._warn_of_thin_space()
        return DerivedSpace(
            space=SearchSpace(parameters, self.constraints, self._conditions()),
            origins={name: draft.origin for name, draft in self.drafts.items()},
            left_out=self.left_out,
            warnings=tuple(self.warnings),
        )

    # --- which parameters ---------------------------------------------------------------------

    def _take_defaults(self) -> None:
        offered, action = self.network.default_search_names(), self.network.action
        compresses = action.name in COMPRESSING_ACTIONS
        unknown = [n for n in self.search.exclude if n not in offered]
        if unknown:
            raise SpecError(
                "these are not among the network's default search parameters:",
                [*unknown, f"the default search parameters are {', '.join(offered)}"],
                where="search.exclude",
            )
        task = self.network.parameters.get("task")
        tasks = (task.enum if task else None) or ()
        for name in offered:
            found: list[Draft] | str
            if name in self.search.exclude:
                found = "search.exclude names it"
            elif compresses and not is_own(name, action):
                found = f"it acts on the training, and {action.name} takes a trained model"
            else:
                found = reason_to_leave_out(
                    name, self.network.conventions, self.network.base_spec, tasks
                ) or draft_from_schema(
                    self.network.parameters[name], self._default(name), self.epochs
                )
            if isinstance(found, str):
                self.left_out[name] = found
            else:
                self._add(found)

    def _take_users(self) -> None:
        problems = []
        wanted = self.search.parameters
        assert isinstance(wanted, dict)
        for name, range_ in wanted.items():
            try:
                self._check_searchable(name)
                parameter, element = self._schema_of(name)
                self._add(
                    draft_from_user(
                        name, range_, parameter, element, self._default(name), self.epochs
                    )
                )
            except TaoRayError as error:
                where = "" if error.message.startswith(name) else f"{name}: "
                remedy = f" ({error.remedy})" if error.remedy else ""
                problems.append(f"{where}{error.message}{remedy}")
        if problems:
            raise SpecError(
                f"{len(problems)} of the search parameters cannot be searched:",
                problems,
                where="search.parameters",
            )

    def _check_searchable(self, name: str) -> None:
        conventions = self.network.conventions
        if name not in self.network.known:
            raise RangeError(name, self.network.known.unknown(name), "")
        if name in conventions.epoch_keys:
            raise RangeError(name, "it is the length of a training", "set search.max_epochs")
        if name in (conventions.num_gpus_key, conventions.gpu_ids_key):
            raise RangeError(name, "it follows the machine", "set platform.gpus_per_trial")
        if self.network.is_disabled(name) and not self.search.allow_disabled:
            raise RangeError(
                name,
                "the package keeps it out of automatic search",
                "set search.allow_disabled: true if you know why, or drop it",
            )

    def _add(self, drafts: Iterable[Draft]) -> None:
        self.drafts.update((draft.name, draft) for draft in drafts)

    def _refuse_empty(self) -> None:
        network = self.network
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(name)
        reasons = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        own = [
            name
            for name, parameter in network.parameters.items()
            if is_own(name, network.action)
            and parameter.type in SEARCHABLE
            and not network.is_disabled(name)
        ]
        if network.action.name in COMPRESSING_ACTIONS and own:
            reasons.append(f"parameters of {network.action.name} itself: {', '.join(own)}")
        raise SpecError(
            "the package offers nothing to search by default; name parameters with their ranges"
            + (":" if reasons else ""),
            reasons,
            where="search.parameters",
        )

    # --- what is known of one -----------------------------------------------------------------

    def _schema_of(self, name: str) -> tuple[SchemaParameter | None, int | None]:
        """The schema's leaf of `name`; with an index if `name` is an element of a list leaf."""
        parameters = self.network.parameters
        match = re.fullmatch(r"(.*)\[(\d+)\]", name)
        if name in parameters or match is None:
            return parameters.get(name), None
        return parameters.get(match[1]), int(match[2])

    def _default(self, name: str) -> Any:
        """The value of trial 0: the base spec's, else the schema's, else None."""
        value = get_path(self.network.base_spec, name, _ABSENT)
        if value is not _ABSENT:
            return value
        parameter, element = self._schema_of(name)
        value = parameter.default if parameter is not None else None
        if element is None:
            return value
        return value[element] if isinstance(value, list) and element < len(value) else None

    # --- rules between parameters -------------------------------------------------------------

    def _relate(self) -> None:
        """Apply the schema's rules: as constraints if both ends are searched, else to ranges."""
        schema = self.network.action.schema
        rules = [] if schema is None else list(rules_of(schema, self.network.base_spec))
        for rule in [*rules, *self._ascending_steps()]:
            names = (rule.subject, *rule.parents)
            values = {n: self._start(n) for n in names}
            if not any(n in self.drafts for n in names):
                continue
            if not all(isinstance(v, int | float) for v in values.values()):
                continue  # a value the spec does not have limits nothing
            if not rule.holds(values):
                stated = " and ".join(f"{n} = {v}" for n, v in values.items())
                self.warnings.append(f"{rule.text} is not enforced: the start has {stated}")
            elif rule.subject not in self.drafts:
                self._limit_parent(rule, values[rule.subject], f"{rule.subject} is fixed")
            elif not all(p in self.drafts for p in rule.parents):
                low, high = rule.limits(values)
                self._narrow(rule.subject, low, high, rule.text)
            else:
                self.constraints.append(rule)
                extreme = self.drafts[rule.subject].build()
                end = extreme.from_unit(1.0 if isinstance(rule, GreaterThan) else 0.0)
                self._limit_parent(rule, end, rule.text)

    def _ascending_steps(self) -> Iterator[Constraint]:
        """Learning rate steps follow one another: each is later than the one before."""
        for first in list(self.drafts):
            match = re.fullmatch(r"(.*)\[(\d+)\]", first)
            second = f"{match[1]}[{int(match[2]) + 1}]" if match else ""
            if counts_epochs(first) and second in self.drafts:
                yield GreaterThan(second, first)

    def _limit_parent(self, rule: Constraint, subject_value: float, why: str) -> None:
        """Keep the parent where `rule` leaves the subject at least this value."""
        (parent,) = rule.parents
        if isinstance(rule, GreaterThan):
            whole = self.drafts[parent].whole
            below = math.ceil(subject_value) - 1 if whole else math.nextafter(subject_value, -1e308)
            self._narrow(parent, -math.inf, below, f"{rule.text}; {why}")
        elif isinstance(rule, AtMost):
            self._narrow(
                parent,
                (subject_value - rule.offset) / rule.factor,
                math.inf,
                f"{rule.text}; {why}",
            )

    def _narrow(self, name: str, low: float, high: float, why: str) -> None:
        draft = self.drafts[name]
        ends = (draft.low, draft.high, draft.options)
        if not draft.narrow(low, high):
            fixed = f"{why} leaves it no choice"
            if self.by_user:
                raise SpecError(
                    "the range cannot be searched:", [f"{name}: {fixed}"], where="search.parameters"
                )
            del self.drafts[name]
            self.left_out[name] = fixed
        elif (draft.low, draft.high, draft.options) != ends:
            draft.origin += f"; narrowed by {why}"
            if self.by_user:
                self.warnings.append(f"{name}: your range was narrowed by {why}")

    def _start(self, name: str) -> Any:
        if name in self.drafts:
            return self.drafts[name].build().default
        if name in self.network.conventions.epoch_keys and self.epochs is not None:
            return self.epochs
        return self._default(name)

    def _limit_batch(self, limit: int | None) -> None:
        conventions = self.network.conventions
        multiple = conventions.batch_multiple_key and get_path(
            self.network.base_spec, conventions.batch_multiple_key
        )
        for name in conventions.batch_size_keys:
            draft = self.drafts.get(name)
            if draft is None:
                continue
            if isinstance(multiple, int) and multiple > 1 and draft.options is None:
                align(draft, multiple)
                draft.origin += f"; multiples of {conventions.batch_multiple_key}"
            if limit is not None:
                self._narrow(name, -math.inf, limit, f"the {limit} samples that a batch can have")

    def _conditions(self) -> list[Condition]:
        """What `search.when` says, both ends of which must be searched."""
        unknown = [
            f"{name}: it is not searched"
            for name in dict.fromkeys(n for s, ps in self.search.when.items() for n in (s, *ps))
            if name not in self.drafts
        ]
        if unknown:
            raise SpecError("conditions on what is not searched:", unknown, where="search.when")
        return [
            Condition(subject, parent, tuple(values))
            for subject, parents in self.search.when.items()
            for parent, values in parents.items()
        ]

    # --- what the user should know ------------------------------------------------------------

    def _compare_start(self, name: str, start: Any) -> None:
        default = self.drafts[name].default
        if default is None:
            self.warnings.append(f"{name}: no default is known, so trial 0 takes {start!r}")
        elif default != start:
            self.warnings.append(
                f"{name}: the default {default!r} is outside the range, so trial 0 takes {start!r}"
            )

    def _warn_of_thin_space(self) -> None:
        names = list(self.drafts)
        if all(is_batch_size(name) for name in names):
            self.warnings.append(
                f"only how data is loaded is searched ({', '.join(names)}); name parameters of "
                "the training in search.parameters, such as its learning rate"
            )
        elif (
            not self.by_user
            and self.network.action.name in TRAINING_ACTIONS
            and not any(is_learning_rate(name) for name in names)
        ):
            rates = sorted(
                n
                for n in self.network.parameters
                if is_learning_rate(n) and isinstance(get_path(self.network.base_spec, n), float)
            )
            if rates:
                self.warnings.append(
                    f"no learning rate is searched; {', '.join(rates)} can be named in "
                    "search.parameters"
                )
        for name, draft in self.drafts.items():
            late = counts_epochs(name) and draft.default is not None and draft.options is None
            if late and self.epochs is not None and draft.default > self.epochs:
                self.warnings.append(
                    f"{name}: its default {draft.default:g} is beyond the {self.epochs} epochs of "
                    "a training, so it has no effect there; see search.max_epochs"
                )
