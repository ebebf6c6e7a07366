"""Algorithms by name. A module is imported when its algorithm is asked for, not before."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AliasChoices, ValidationError
from pydantic.fields import FieldInfo

from tao_ray.config.describe import words
from tao_ray.errors import TaoRayError
from tao_ray.search.base import Algorithm, SearchSettings
from tao_ray.search.options import Options

if TYPE_CHECKING:
    from tao_ray.space import SearchSpace

_MODULES: dict[str, tuple[str, str]] = {
    "random": ("random_search", "RandomOptions"),
    "auto": ("auto", "AutoOptions"),
    "asha": ("asha", "AshaOptions"),
    "bfbo": ("bfbo", "BfboOptions"),
    "bohb": ("bohb", "BohbOptions"),
    "dehb": ("dehb", "DehbOptions"),
    "hyperband": ("hyperband", "HyperbandOptions"),
    "hyperband_es": ("hyperband_es", "HyperbandEsOptions"),
    "pb2": ("pb2", "Pb2Options"),
    "pbt": ("pbt", "PbtOptions"),
    "tpe": ("tpe", "TpeOptions"),
    "bayesian": ("bayesian", "BayesianOptions"),
}
"""Name -> module in this package, its options model. The module has ``build(space, settings,
options) -> Algorithm``."""

_TRADE_OFFS = ("bayesian", "random", "tpe")
"""Algorithms that can weigh several objectives."""


def algorithms() -> list[str]:
    """The names a user can give as ``search.algorithm``."""
    return sorted(_MODULES)


def options_model(name: str) -> type[Options]:
    """The pydantic model of `name`'s options. Raises TaoRayError for an unknown name."""
    module, model = _look_up(name)
    return getattr(importlib.import_module(f"tao_ray.search.{module}"), model)  # type: ignore[no-any-return]


def parse_options(name: str, options: Mapping[str, Any]) -> Options:
    """`options` as `name`'s own model. Raises TaoRayError that names every bad option."""
    model = options_model(name)
    try:
        return model(**options)
    except ValidationError as error:
        problems = [_problem(model, found) for found in error.errors(include_url=False)]
    raise TaoRayError(
        "; ".join(problems),
        where="search.options",
        remedy=f"options of {name}: {', '.join(sorted(model.model_fields)) or 'none'}",
    )


def build(
    name: str, space: SearchSpace, settings: SearchSettings, options: Mapping[str, Any]
) -> Algorithm:
    """Algorithm `name`, ready to run. Raises TaoRayError for an unknown name or option, for a
    budgeted algorithm when ``settings.max_epochs`` is None, and for several objectives where the
    algorithm follows one."""
    parsed = parse_options(name, options)
    if settings.objectives > 1 and name not in _TRADE_OFFS:
        raise TaoRayError(
            f"{name} follows a single objective, and {settings.objectives} are given",
            where="search.algorithm",
            remedy=f"use one of {', '.join(_TRADE_OFFS)}, or give one objective",
        )
    module = importlib.import_module(f"tao_ray.search.{_look_up(name)[0]}")
    return module.build(space, settings, parsed)  # type: ignore[no-any-return]


def _look_up(name: str) -> tuple[str, str]:
    if name in _MODULES:
        return _MODULES[name]
    raise TaoRayError(
        f"unknown algorithm {name!r}{_nearest(name, _MODULES)}",
        where="search.algorithm",
        remedy=f"choose one of {', '.join(algorithms())}",
    )


def _problem(model: type[Options], found: Any) -> str:
    """One of pydantic's findings in the words the rest of a configuration is spoken of in."""
    key = ".".join(map(str, found["loc"]))
    if found["type"] == "extra_forbidden":
        return f"unknown option {key!r}{_nearest(key, model.model_fields)}"
    if found["type"] == "value_error":
        return str(found["ctx"]["error"])
    fields = model.model_fields.items()
    field = next((f for name, f in fields if key in (name, *_aliases(f))), None)
    if field is None:  # within an option
        return f"{key}: {found['msg']}"
    annotation: Any = (field.annotation, *field.metadata)
    wanted = words(Annotated[annotation] if field.metadata else field.annotation)
    return f"{key}: must be {wanted}, not {found['input']!r}"


def _aliases(field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    return tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else ()


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
