"""What stands in the way of building a spec, as texts for the user, one per spec key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tao_ray.network.conventions import Conventions
from tao_ray.network.data import SOURCES, DataValues
from tao_ray.network.keys import KnownKeys, is_foreign
from tao_ray.network.package import Action, ModelPackage
from tao_ray.network.schema import PackageError, SchemaParameter
from tao_ray.network.tree import EMPTY, MISSING, flatten, get_path
from tao_ray.network.wiring import Wiring, is_teacher

if TYPE_CHECKING:
    from tao_ray.config import DataConfig, ModelConfig


@dataclass(frozen=True)
class Request:
    """What is assembled. trained: the keys of the tuned action, when this is its evaluation."""

    package: ModelPackage | None
    action: Action
    conventions: Conventions
    model: ModelConfig
    data: DataConfig
    trained: KnownKeys | None = None


def check_gates(
    package: ModelPackage, action: Action, conventions: Conventions, has_spec: bool
) -> None:
    """Refuse a package that cannot be searched.

    Raises:
        PackageError: automl_enabled is false, the action's schema is missing or malformed, or its
            template is missing where the network needs one.
    """
    if not package.automl_enabled:
        raise PackageError(
            f"{package.name} is not meant for automatic search: automl_enabled is false",
            where=str(package.directory),
            remedy="describe the network without a package (model.network, command, spec and"
            " search.parameters) to search it all the same",
        )
    if action.schema is None:
        raise PackageError(
            f"the schema of action {action.name!r} is missing, so no search space can be derived",
            where=str(action.schema_path),
            remedy="choose an action with a schema, or describe the network without a package"
            " (model.network, command, spec and search.parameters)",
        )
    if conventions.template_required and action.template is None and not has_spec:
        raise PackageError(
            f"the spec template of action {action.name!r} is missing, and {package.name} cannot"
            " be run from its schema's defaults alone",
            where=str(action.template_path),
            remedy="restore the template, or give the base spec as model.spec",
        )


def unused_checkpoints(
    request: Request, wiring: Wiring, placed: Mapping[str, str]
) -> Iterator[str]:
    """Weights the user gave and the action has no place for. placed: spec key -> weights."""
    model = request.model
    if request.trained is not None:
        return
    if model.checkpoint and not wiring.start_keys and not any(not is_teacher(k) for k in placed):
        yield (
            f"model.checkpoint: {request.action.name} states no single spec key for it; set the"
            " key that takes it in model.overrides"
        )
    if model.teacher and not any(is_teacher(k) for k in placed):
        yield f"model.teacher: {request.action.name} takes no teacher"


def unused_data(request: Request, spec: Mapping[str, Any]) -> Iterator[str]:
    """Named sources that no rule of the package takes."""
    package = request.package
    used = {
        r.get("source")
        for a in (package.actions.values() if package else ())
        for r in a.data_rules.values()
    }
    for source, name in SOURCES.items():
        if getattr(request.data, name) and source not in used:
            wanted = [k for k in _required(request) if get_path(spec, k) in EMPTY]
            remedy = f"give spec keys instead: {', '.join(wanted)}" if wanted else "leave it out"
            yield f"data.{name}: the package has no rule that takes it; {remedy}"


_PLAIN = {
    "int": ("a whole number", (int,)),
    "ordered_int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "bool": ("true or false", (bool,)),
    "string": ("text", (str, int, float)),
    "collection": ("a mapping", (Mapping,)),
}
"""Type in a schema -> its name, and what passes for it."""


def wrong_type(parameter: SchemaParameter, held: Any, value: Any) -> str | None:
    """What is wrong with the type of a value that the user gave, or None.

    held: what the base spec has there: real schemas are wrong at times, and a value of that type
    passes. So do nothing, a placeholder and what the job resolves itself (``${...}``).
    """
    if value is None or value == MISSING or (isinstance(value, str) and "${" in value):
        return None
    if held not in EMPTY and type(value) is type(held):
        return None
    is_list = parameter.type.startswith("list") or parameter.type.endswith("_list")
    wanted, types = ("a list", (list, tuple)) if is_list else _PLAIN.get(parameter.type, ("", ()))
    fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not types or fits:
        return None
    return f"must be {wanted} ({parameter.type} in the schema), not {value!r}"


def missing_values(
    request: Request, spec: Mapping[str, Any], wiring: Wiring, rules: DataValues
) -> Iterator[str]:
    """Required inputs without a value, and every ``???`` the action would meet."""
    later = set(wiring.filled_later)
    if request.trained is not None:
        later |= set(wiring.checkpoint_keys)
    required = _required(request)
    for key in required:
        told = key in later or key in rules.problems
        if not told and get_path(spec, key) in EMPTY:
            yield f"{key}: is required and has no value; {_how(key, wiring, rules)}"
    for key, value in flatten(spec).items():
        if value != MISSING or key in later or key in required or is_foreign(key, request.action):
            continue
        if not _unused_calibration(key, spec):
            yield f"{key}: is {MISSING} in the template; {_how(key, wiring, rules)}"


def _required(request: Request) -> list[str]:
    return [i.key for i in request.action.inputs if not i.optional]


def _unused_calibration(key: str, spec: Mapping[str, Any]) -> bool:
    """TensorRT reads its calibration block for INT8 only."""
    data_type = str(get_path(spec, "gen_trt_engine.tensorrt.data_type", "")).upper()
    return key.startswith("gen_trt_engine.tensorrt.calibration.") and data_type != "INT8"


def _how(key: str, wiring: Wiring, rules: DataValues) -> str:
    if key in wiring.checkpoint_keys:
        return "set model.teacher" if is_teacher(key) else "set model.checkpoint"
    exact = f"data: {{{key}: ...}}"
    return f"set {rules.missing[key]} or {exact}" if key in rules.missing else f"set {exact}"
