"""The spec of one job: the network's base spec, the assignment, and what the run decides."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tomli_w

from tao_ray.network.conventions import TRAINING_ACTIONS
from tao_ray.network.keys import SpecError, is_foreign
from tao_ray.network.network import Network
from tao_ray.network.tree import EMPTY, dump_yaml, flatten, get_path, set_path

__all__ = ["Adjustment", "Spec", "build_spec", "flatten", "get_path", "set_path"]

_DIRECTORY_KEYS = ("results_dir", "output_dir", "save_dir")


@dataclass(frozen=True)
class Adjustment:
    """A value the run changed: `asked` was to be used for `key`, `used` is, because of `reason`."""

    key: str
    asked: Any
    used: Any
    reason: str


@dataclass(frozen=True)
class Spec:
    """A finished spec (nested) and what was adjusted in it.

    data: without secrets, so that it may be recorded. secrets: spec key -> value.
    """

    data: dict[str, Any]
    adjustments: tuple[Adjustment, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def render(self, config_format: str, *, secrets: bool = False) -> str:
        """The text of the spec file; with `secrets` for the job itself, never for records.

        TOML has no null: such keys are left out.
        """
        data = copy.deepcopy(self.data)
        if secrets:
            for key, value in self.secrets.items():
                set_path(data, key, value)
        return tomli_w.dumps(_without_null(data)) if config_format == "toml" else dump_yaml(data)


def build_spec(
    network: Network,
    assignment: Mapping[str, Any],
    *,
    results_dir: str,
    num_epochs: int | None,
    milestones: Sequence[int] = (),
    gpus: int = 0,
    checkpoint_interval: int | None = None,
    resume_from: str | None = None,
    start_from: str | None = None,
    train_sample_count: int | None = None,
    shards: int | None = None,
) -> Spec:
    """The spec for one job of `network`.

    assignment: spec key -> value of the trial. results_dir: where the job writes everything.
    num_epochs: the full budget, for every job of a trial; None keeps the base spec's.
    milestones: epochs (1-based, completed) at which a checkpoint and a validation must exist. The
        last epoch always is one, since TAO saves and validates nothing extra at the end.
    gpus: GPUs of the job; 0 runs on the CPU, which TAO calls one device.
    checkpoint_interval: epochs between checkpoints, if not the base spec's.
    resume_from: checkpoint to resume. start_from: weights to start from, or, for an action that
        does not train, to work on; wins over the network's own `checkpoint`.
    train_sample_count, shards: samples there are, and data-parallel processes that share them
        (default: one per GPU). A batch larger than a share would leave no step.

    Raises:
        SpecError: a key nobody knows; a batch size that cannot be; a checkpoint with no place.
    """
    build = _Build(network)
    build.assign(assignment)
    epochs = build.epochs(num_epochs, resuming=resume_from is not None)
    build.intervals(epochs, milestones, checkpoint_interval)
    build.gpus(gpus)
    build.outputs(results_dir)
    build.checkpoints(resume_from, start_from)
    if train_sample_count is not None:
        build.cap_batches(train_sample_count, shards or max(gpus, 1))
    return Spec(build.spec, tuple(build.adjustments), network.secrets)


class _Build:
    def __init__(self, network: Network):
        self.network = network
        self.conventions = network.conventions
        self.spec = copy.deepcopy(network.base_spec)
        self.adjustments: list[Adjustment] = []

    def assign(self, assignment: Mapping[str, Any]) -> None:
        known = self.network.known
        unknown = [key for key in assignment if key not in known]
        if unknown and not self.network.partial:
            raise SpecError("unknown spec keys:", [known.unknown(key) for key in unknown])
        for key, value in assignment.items():
            if key in known:
                set_path(self.spec, key, copy.deepcopy(value))

    def epochs(self, asked: int | None, *, resuming: bool) -> int | None:
        """Set the epoch budget; returns the one in force, None if the action has none."""
        keys = [k for k in self.conventions.epoch_keys if k in self.network.known]
        if asked is None:
            return next((v for k in keys if isinstance(v := self._effective(k), int)), None)
        if not keys:
            raise SpecError(
                "the number of epochs cannot be set:",
                [f"{k}: no such spec key" for k in self.conventions.epoch_keys]
                or [f"{self.network.action.name} is not counted in epochs"],
            )
        used = asked
        if resuming and self.conventions.resume_extra_epochs:
            used = asked + self.conventions.resume_extra_epochs
            self._note(keys[0], asked, used, "this network counts one epoch more when it resumes")
        for key in keys:
            set_path(self.spec, key, used)
        return asked

    def intervals(
        self, epochs: int | None, milestones: Sequence[int], checkpoint_interval: int | None
    ) -> None:
        if epochs is None:
            return
        unit_key = self.conventions.checkpoint_unit_key
        if unit_key and self._effective(unit_key) == "step":
            self._note(unit_key, "step", "epoch", "trials are saved and resumed by epoch")
            set_path(self.spec, unit_key, "epoch")
        for key, wanted in (
            (self.conventions.validation_interval_key, None),
            (self.conventions.checkpoint_interval_key, checkpoint_interval),
        ):
            if key is None or key not in self.network.known:
                continue
            asked = wanted or self._effective(key)
            if not isinstance(asked, int) or asked < 1:
                continue
            used = _dividing(asked, epochs, milestones)
            if used != asked:
                rungs = ", ".join(str(m) for m in sorted({*milestones, epochs}))
                self._note(key, asked, used, f"it must divide the decision epochs {rungs}")
            if used != self._effective(key):
                set_path(self.spec, key, used)

    def gpus(self, gpus: int) -> None:
        count = max(gpus, 1)
        for key, value in (
            (self.conventions.num_gpus_key, count),
            (self.conventions.gpu_ids_key, list(range(count))),
        ):
            if key and (key in self.network.known or count > 1):
                set_path(self.spec, key, value)

    def outputs(self, results_dir: str) -> None:
        """Everything a job writes goes below its results_dir."""
        wiring = self.network.wiring
        for key, value in flatten(self.spec).items():
            parents, _, last = key.rpartition(".")
            literal = isinstance(value, str) and value not in EMPTY and "${" not in value
            own = parents and not is_foreign(key, self.network.action)
            if own and last in _DIRECTORY_KEYS and literal:
                set_path(self.spec, key, f"{results_dir}/{parents.replace('.', '/')}")
        for key in wiring.output_dirs:
            set_path(self.spec, key, results_dir)
        for key, name in wiring.output_files.items():
            if "${" not in str(get_path(self.spec, key)):
                set_path(self.spec, key, f"{results_dir}/{name}")

    def checkpoints(self, resume_from: str | None, start_from: str | None) -> None:
        wiring, action = self.network.wiring, self.network.action
        start = start_from or self.network.checkpoint
        if resume_from is not None:
            if wiring.resume_key is None:
                raise SpecError(f"{self.network.name} cannot resume:", ["it has no key for it"])
            values: dict[str, Any] = {wiring.resume_key: resume_from}
            values.update(self.conventions.resume_extra)
        elif start is None:
            values = {}
        elif action.name in TRAINING_ACTIONS:
            values = dict(wiring.start_values(start))
        else:
            values = dict(wiring.checkpoint_values(start))
        if start is not None and resume_from is None and not values:
            raise SpecError(
                f"{start} cannot be used:", [f"{action.name} has no spec key that takes weights"]
            )
        for key, value in values.items():
            set_path(self.spec, key, value)
        required = {i.key for i in action.inputs if not i.optional}
        left = [k for k in wiring.checkpoint_keys if k in required and self._is_empty(k)]
        if left:
            raise SpecError(
                "no checkpoint was given:",
                [f"{k}: takes one; set model.checkpoint" for k in left],
            )

    def cap_batches(self, samples: int, shards: int) -> None:
        multiple_key = self.conventions.batch_multiple_key
        multiple = self._effective(multiple_key) if multiple_key else 1
        multiple = multiple if isinstance(multiple, int) and multiple > 0 else 1
        share = samples // shards
        cap = share - share % multiple
        for key in self.conventions.batch_size_keys:
            asked = self._effective(key)
            if not isinstance(asked, int) or asked <= cap:
                continue
            if cap < 1:
                raise SpecError(
                    "no batch size is possible:",
                    [
                        f"{key}: {samples} training samples over {shards} processes leave {share}"
                        f" each, fewer than {multiple}; use fewer GPUs or more data"
                    ],
                )
            reason = f"{samples} training samples over {shards} processes leave {share} each"
            self._note(key, asked, cap, reason)
            set_path(self.spec, key, cap)

    def _is_empty(self, key: str) -> bool:
        return get_path(self.spec, key) in EMPTY

    def _effective(self, key: str) -> Any:
        return self.network.effective(key, self.spec)

    def _note(self, key: str, asked: Any, used: Any, reason: str) -> None:
        self.adjustments.append(Adjustment(key, asked, used, reason))


def _dividing(asked: int, epochs: int, milestones: Sequence[int]) -> int:
    """The largest interval up to `asked` that meets every milestone and the last epoch."""
    common = math.gcd(epochs, *milestones)
    return max(d for d in range(1, min(asked, common) + 1) if common % d == 0)


def _without_null(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {k: _without_null(v) for k, v in node.items() if v is not None}
    return [_without_null(v) for v in node] if isinstance(node, list) else node
