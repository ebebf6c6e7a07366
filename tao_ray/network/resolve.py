"""From the configuration's `model` and `data` to one `Network`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_ray.network.bank import load_package
from tao_ray.network.checks import (
    Request,
    check_gates,
    missing_values,
    unused_checkpoints,
    unused_data,
    wrong_type,
)
from tao_ray.network.conventions import TRAINING_ACTIONS, Conventions, conventions_for
from tao_ray.network.data import apply_rules
from tao_ray.network.images import resolve_image
from tao_ray.network.keys import KnownKeys, SpecError, known_keys
from tao_ray.network.network import Network
from tao_ray.network.objective import choose_metric, default_metric
from tao_ray.network.package import Action, ModelPackage
from tao_ray.network.schema import PackageError, SchemaParameter
from tao_ray.network.tree import EMPTY, get_path, load_yaml, set_path
from tao_ray.network.wiring import Wiring, is_teacher, wire

if TYPE_CHECKING:
    from tao_ray.config import DataConfig, ModelConfig, ObjectiveConfig


def resolve_network(
    model: ModelConfig, data: DataConfig, objective: ObjectiveConfig, base: Path
) -> Network:
    """The network and action that `model` describes, ready to be tuned.

    Spec values come, the later over the earlier, from: the template (or ``model.spec``; without
    either the schema's default), the package's constants and rules for named data sources,
    ``model.overrides``, the exact spec keys in ``data``.

    Raises:
        PackageError: the package is missing or malformed, or a gate is closed (automl_enabled,
            schema, template).
        SpecError: keys nobody knows, or values that are missing, all at once. A ``???`` counts
            unless it lies in another action's block (`is_foreign`), or is filled in per job.
        TaoRayError: no objective.
    """
    if model.package is None:
        return _bare(model, data, objective)
    package = load_package(model.package, base)
    action = package.action(model.action)
    conventions = _conventions(package, action)
    check_gates(package, action, conventions, has_spec=model.spec is not None)
    network = _assemble(Request(package, action, conventions, model, data))
    if objective.source == "evaluate":  # the objective is the evaluation's: see `Plan`
        metric, remark = default_metric(action, conventions, network.base_spec), None
    else:
        metric = choose_metric(objective, action, conventions, network.base_spec, package.name)
        remark = metric.note
    notes = [*network.notes, remark]
    if conventions.dataset_convert_required:
        notes.append(f"{package.name} needs its action dataset_convert run on the data before")
    notes += [
        f"{key} counts steps and may end a training before its last epoch"
        for key in conventions.step_cap_keys
        if key in network.known
    ]
    return replace(network, objective=metric, notes=tuple(n for n in notes if n))


def resolve_evaluation(network: Network, model: ModelConfig, data: DataConfig) -> Network | None:
    """The action that evaluates what `network` trains; None if its package has none.

    The checkpoint is given per job (`build_spec`'s `start_from`). Overrides and data of the
    training that the evaluation does not know are left out.

    Raises: as `resolve_network`, except for what only a search needs.
    """
    name = network.evaluate_action
    if network.package is None or name is None:
        return None
    action = network.package.action(name)
    conventions = _conventions(network.package, action)
    evaluation = _assemble(
        Request(network.package, action, conventions, model, data, trained=network.known)
    )
    metric = default_metric(action, conventions, evaluation.base_spec)
    return replace(evaluation, objective=metric)


def resolve_action(model: ModelConfig, data: DataConfig, base: Path, name: str) -> Network:
    """Any action of a network, for a job that stands alone: no search, so no gates.

    If it is not `model.action`, overrides and data that only that one knows are left out, and
    weights to work on are given per job (`build_spec`'s `start_from`).

    Raises: as `resolve_network`, except for what only a search needs.
    """
    if model.package is None:
        if name != model.action:
            raise PackageError(
                f"without a package only the action {model.action!r} is known",
                where="model.action",
                remedy="set model.action and model.command to the action you want",
            )
        return _assemble(_bare_request(model, data))
    package = load_package(model.package, base)
    action = package.action(name)
    conventions = _conventions(package, action)
    trained = None
    if name != model.action:
        configured = package.action(model.action)
        trained = known_keys(configured, configured.template or {}, package.shorthand)
    network = _assemble(Request(package, action, conventions, model, data, trained=trained))
    return replace(network, objective=default_metric(action, conventions, network.base_spec))


def _conventions(package: ModelPackage, action: Action) -> Conventions:
    conventions = conventions_for(package.network_arch, action.name, package.name)
    if package.gpu_spec_key and action.name in TRAINING_ACTIONS:
        return replace(conventions, num_gpus_key=package.gpu_spec_key)
    return conventions


def _bare(model: ModelConfig, data: DataConfig, objective: ObjectiveConfig) -> Network:
    """A network the user describes: {network, action, command, spec}."""
    request = _bare_request(model, data)
    network = _assemble(request)
    metric = choose_metric(
        objective, request.action, request.conventions, network.base_spec, network.name
    )
    notes = tuple(n for n in (*network.notes, metric.note) if n)
    return replace(network, objective=metric, notes=notes)


def _bare_request(model: ModelConfig, data: DataConfig) -> Request:
    assert model.network is not None  # the configuration requires both
    assert model.command is not None
    action = Action(model.action, model.command, model.config_format or "yaml")
    return Request(None, action, conventions_for(model.network, model.action), model, data)


def _assemble(request: Request) -> Network:
    package, action, model = request.package, request.action, request.model
    spec = _base(request)
    known = known_keys(action, spec, package.shorthand if package else {})
    wiring = wire(action, request.conventions, known)
    overrides, exact, problems = _user_values(request, known, spec)
    given = frozenset(overrides) | frozenset(exact)
    data_format = request.data.format or (package.data_format if package else None)
    rules = apply_rules(action, request.data, data_format, given)
    downloads = tuple(d for d in wiring.downloads if d.key not in given)
    destinations = {d.key: d.destination for d in downloads}
    for values in (wiring.constants, destinations, rules.values, overrides, exact):
        for key, value in values.items():
            set_path(spec, key, copy.deepcopy(value))
    for key, value in (package.key_defaults if package else {}).items():
        if key in known and get_path(spec, key) in EMPTY:
            set_path(spec, key, value)
    placed = _checkpoints(request, wiring)
    for key, value in placed.items():
        set_path(spec, key, value)
    problems += unused_checkpoints(request, wiring, placed)
    problems += [f"{key}: {text}" for key, text in rules.problems.items()]
    problems += unused_data(request, spec)
    problems += missing_values(request, spec, wiring, rules)
    if problems:
        owner = package.name if package else model.network
        raise SpecError(f"the spec for {action.name} of {owner} cannot be built:", problems)
    image, backend, command = _runtime(request)
    secret = model.key.get_secret_value() if model.key else None
    return Network(
        name=package.network_arch if package else str(model.network),
        package=package,
        action=action,
        conventions=request.conventions,
        command_text=command,
        config_format=action.config_format,
        known=known,
        wiring=wiring,
        base_spec=spec,
        image=image,
        backend=backend,
        checkpoint=model.checkpoint if wiring.start_keys and not placed else None,
        data_sources=tuple(rules.sources),
        downloads=downloads,
        secrets=dict.fromkeys(wiring.secret_keys, secret) if secret else {},
        notes=tuple(rules.notes),
        partial=request.trained is not None,
    )


def _base(request: Request) -> dict[str, Any]:
    spec = None if request.trained is not None else request.model.spec
    if isinstance(spec, str | Path):
        path = Path(spec)
        if not path.is_file():
            raise SpecError(f"no such file: {path}", [], where="model.spec")
        spec = load_yaml(path.read_text("utf-8"), str(path))
        if not isinstance(spec, dict):
            raise SpecError("the base spec is not a mapping", [], where=str(path))
    if spec is None:
        spec = request.action.template
    if spec is None and request.action.schema is not None:
        spec = request.action.schema.default
    return copy.deepcopy(dict(spec or {}))


def _user_values(
    request: Request, known: KnownKeys, spec: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The overrides and exact data keys that this action takes, and the errors in them.

    Data and overrides may also serve the evaluation of what is trained here, so a key that only
    the package's other actions declare is no error.
    """
    problems: list[str] = []
    chosen = []
    schema = request.action.schema
    parameters: Mapping[str, SchemaParameter] = schema.parameters if schema else {}
    for section, values in (
        ("model.overrides", request.model.overrides),
        ("data", request.data.spec_keys),
    ):
        taken = {}
        for key, value in _dotted(values, known):
            if key in known:
                taken[key] = value
                if key in parameters:
                    wrong = wrong_type(parameters[key], get_path(spec, key), value)
                    problems += [f"{section}: {key}: {wrong}"] if wrong else []
            elif not _known_elsewhere(request, key):
                problems.append(f"{section}: {known.unknown(key)}")
        chosen.append(taken)
    return chosen[0], chosen[1], problems


def _dotted(values: Mapping[str, Any], known: KnownKeys) -> Iterator[tuple[str, Any]]:
    """Nested mappings as dotted keys, down to the leaves the network knows."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value and key not in known:
            yield from _dotted({f"{key}.{k}": v for k, v in value.items()}, known)
        else:
            yield key, value


def _known_elsewhere(request: Request, key: str) -> bool:
    if request.trained is not None:
        return key in request.trained
    if request.package is None:
        return False
    actions = request.package.actions.values()
    return any(
        key in known_keys(a, a.template or {}, {})
        for a in actions
        if a.name != request.action.name and (a.name.endswith("evaluate"))
    )


def _checkpoints(request: Request, wiring: Wiring) -> dict[str, str]:
    """The user's weights for keys that are the same in every job; see `Network.checkpoint`."""
    model = request.model
    if request.trained is not None:
        return {}
    values = wiring.checkpoint_values(model.checkpoint) if model.checkpoint else {}
    values = {k: v for k, v in values.items() if not is_teacher(k)}
    if model.teacher:
        values |= {k: model.teacher for k in wiring.checkpoint_keys if is_teacher(k)}
    return values


def _runtime(request: Request) -> tuple[str | None, str | None, str]:
    """Image, backend and command: the user's choice, else the backend's, action's, package's."""
    package, action, model = request.package, request.action, request.model
    image = resolve_image(model.image, package.directory if package else None)
    if package is None:
        return image, None, action.command
    default = package.default_backends.get(action.name)
    name = model.backend or default
    if name is not None and name not in package.backends:
        offered = ", ".join(package.backends) or "none"
        raise PackageError(
            f"{package.name} has no backend {name!r}",
            where="model.backend",
            remedy=f"its backends: {offered}",
        )
    if name is None:
        return image or action.image or package.image, None, action.command
    backend = package.backends[name]
    command = action.command if name == default else backend.commands.get(action.name)
    if command is None:
        raise PackageError(
            f"{package.name} states no command for action {action.name!r} on backend {name!r}",
            where="model.backend",
            remedy=f"use its backend {default!r}, or describe the network without a package",
        )
    return image or backend.image or action.image or package.image, name, command
