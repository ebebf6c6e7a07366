"""Every key of a digits_mlp spec, declared once.

The schemas and spec templates of the model package are written from this table
(`package_files`), and a job's spec is read against it. As in TAO, all actions share one spec,
types are enforced, bounds only guide the search.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import yaml

Spec = dict[str, Any]
"""Dotted key -> value; every key of `FIELDS` is present."""


class SpecError(Exception):
    """A spec that cannot be read: unknown key, wrong type, unreadable file."""


@dataclass(frozen=True)
class Field:
    """One key. `type` is TAO's word; `enabled` None leaves the search flag out of the schema."""

    type: str
    default: Any
    description: str
    minimum: float | None = None
    maximum: float | None = None
    enum: tuple[Any, ...] | None = None
    math_cond: str | None = None
    depends_on: str | None = None
    parent: bool = False
    enabled: bool | None = None
    popular: bool = False


def _results_dir(action: str) -> Field:
    return Field("string", "", f"Where {action} writes; default: results_dir/{action}.")


FIELDS: dict[str, Field] = {
    "model_name": Field("string", "", "Free text."),
    "encryption_key": Field("string", "", "Accepted and ignored; shown as stars."),
    "results_dir": Field("string", "", "Every action writes below this directory."),
    "model.hidden_dim": Field(
        "int", 96, "Width of each hidden layer.", 16, 256, math_cond="/ 8", enabled=True
    ),
    "model.num_layers": Field("ordered_int", 2, "Number of hidden layers.", enum=(1, 2, 3)),
    "model.dropout": Field("float", 0.0, "Dropout on the hidden layers.", 0.0, 0.8, enabled=True),
    "dataset.train_dataset.images_dir": Field(
        "string", "", "Directory with digits.csv(.gz); empty: the bundled training split."
    ),
    "dataset.val_dataset.images_dir": Field("string", "", "The same for validation."),
    "dataset.test_dataset.images_dir": Field("string", "", "The same for evaluate."),
    "dataset.train_sample_count": Field(
        "int", 0, "Train on the first so many samples; 0: all.", 0, inf
    ),
    "dataset.label_noise": Field(
        "float", 0.1, "Share of training labels replaced by random ones.", 0.0, 1.0
    ),
    "dataset.batch_size": Field(
        "int", 8, "Samples per step.", 1, inf, math_cond="> 0", enabled=True, popular=True
    ),
    "dataset.workers": Field("int", 0, "Accepted and ignored.", 0, inf, enabled=True),
    "dataset.augmentation.random_shift.enable": Field(
        "bool", False, "Shift images by up to one pixel.", enabled=True
    ),
    "dataset.augmentation.random_shift.shift_probability": Field(
        "float", 0.5, "Share of the images that are shifted.", 0.0, 1.0, enabled=True
    ),
    "dataset.augmentation.random_erase_min": Field(
        "int", 0, "Fewest pixels erased from an image.", 0, 16, parent=True, enabled=True
    ),
    "dataset.augmentation.random_erase_max": Field(
        "int",
        2,
        "Most pixels erased from an image. Must be > random_erase_min.",
        1,
        32,
        math_cond="> depends_on",
        depends_on="dataset.augmentation.random_erase_min",
        enabled=True,
    ),
    "dataset.augmentation.noise_std": Field(
        "float", 0.0, "Standard deviation of the noise added to pixels in [0, 1].", 0.0, 1.0
    ),
    "train.num_gpus": Field("int", 1, "Accepted; the network uses no GPU.", 1, popular=True),
    "train.gpu_ids": Field("list", [0], "As many as num_gpus.", enabled=False, popular=True),
    "train.num_nodes": Field("int", 1, "Only 1 can be trained.", 1, popular=True),
    "train.seed": Field("int", 1234, "Seed of weights and batches; < 0: a new one.", -1, inf),
    "train.num_epochs": Field("int", 20, "Epochs of the training.", 1, inf, popular=True),
    "train.checkpoint_interval": Field("int", 1, "Epochs per checkpoint.", 1, popular=True),
    "train.validation_interval": Field("int", 1, "Epochs per validation.", 1, popular=True),
    "train.resume_training_checkpoint_path": Field(
        "string", "", "Checkpoint to go on from; default: the latest in the results directory."
    ),
    "train.pretrained_model_path": Field("string", "", "Checkpoint whose weights to start from."),
    "train.results_dir": _results_dir("train"),
    "train.label_smoothing": Field("float", 0.0, "Label smoothing of the loss.", 0.0, 0.5),
    "train.seconds_per_epoch": Field("float", 0.0, "Least duration of an epoch.", 0.0, inf),
    "train.checkpoint_mb": Field("float", 0.0, "Padding of each checkpoint, in MB.", 0.0, inf),
    "train.optim.optim": Field("categorical", "adamw", "Optimizer.", enum=("adamw", "sgd")),
    "train.optim.lr": Field(
        "float", 2e-4, "Base learning rate.", 0.0, 1.0, math_cond="> 0.0", enabled=True
    ),
    "train.optim.policy": Field(
        "categorical",
        "linear",
        "Learning rate schedule over num_epochs.",
        enum=("linear", "step", "cosine"),
        enabled=True,
    ),
    "train.optim.gamma": Field("float", 0.1, "Factor of each drop of policy step.", 0.0, 1.0),
    "train.optim.warmup_epochs": Field("int", 0, "Epochs of linear warm-up.", 0, inf),
    "train.optim.momentum": Field(
        "float",
        0.9,
        "Momentum of sgd.",
        0.0,
        0.99,
        math_cond="> 0.0",
        enabled=True,
    ),
    "train.optim.weight_decay": Field(
        "float", 0.01, "Weight decay.", 0.0, 1.0, math_cond="> 0.0", enabled=True
    ),
    "distill.pretrained_teacher_model_path": Field("string", "", "Checkpoint of the teacher."),
    "distill.loss_lambda": Field(
        "float", 0.5, "Share of the teacher in the loss.", 0.0, 1.0, enabled=True
    ),
    "distill.temperature": Field(
        "float", 2.0, "Softening of both outputs.", 1.0, 20.0, enabled=True
    ),
    "distill.results_dir": _results_dir("distill"),
    "evaluate.checkpoint": Field("string", "", "Checkpoint to evaluate."),
    "evaluate.results_dir": _results_dir("evaluate"),
    "prune.checkpoint": Field("string", "", "Checkpoint to prune."),
    "prune.threshold": Field(
        "float", 0.1, "Smallest magnitude kept, relative to the layer's largest.", 0.0, 1.0
    ),
    "prune.granularity": Field(
        "categorical", "weight", "What is removed as a whole.", enum=("weight", "unit")
    ),
    "prune.output_layer_factor": Field(
        "float", 1.0, "Factor on the threshold in the output layer (weights only).", 0.0, 2.0
    ),
    "prune.size_weight": Field(
        "float", 0.1, "score = val_acc_1 - size_weight * share of the size kept.", 0.0, 1.0
    ),
    "prune.results_dir": _results_dir("prune"),
    "quantize.model_path": Field("string", "", "Checkpoint to quantize."),
    "quantize.bits": Field("ordered_int", 8, "Bits per weight.", enum=(2, 3, 4, 5, 6, 8)),
    "quantize.algorithm": Field(
        "categorical", "minmax", "How a range is found.", enum=("minmax", "percentile", "mse")
    ),
    "quantize.percentile": Field(
        "float", 99.9, "Magnitudes inside the range, for algorithm percentile.", 90.0, 100.0
    ),
    "quantize.per_channel": Field("bool", False, "One range per output instead of per layer."),
    "quantize.size_weight": Field(
        "float", 0.1, "score = val_acc_1 - size_weight * share of the size kept.", 0.0, 1.0
    ),
    "quantize.results_dir": _results_dir("quantize"),
}

REQUIRED = {
    "train": None,
    "distill": "distill.pretrained_teacher_model_path",
    "evaluate": "evaluate.checkpoint",
    "prune": "prune.checkpoint",
    "quantize": "quantize.model_path",
}
"""Action -> the key it cannot do without."""


def load_spec(path: Path, overrides: Sequence[str] = ()) -> Spec:
    """The defaults, overlaid by the file and then by ``key=value`` texts.

    Raises:
        SpecError: the file is unreadable, a key unknown or a value of the wrong type.
    """
    try:
        given = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise SpecError(f"Cannot read {path}: {error}") from None
    spec = {name: copy.copy(field.default) for name, field in FIELDS.items()}
    for name, value in _leaves(given, ""):
        spec[name] = _convert(name, value)
    for text in overrides:
        name, _, value = text.partition("=")
        if name not in FIELDS:
            raise SpecError(f"Could not override '{name}'. Key '{name}' is not in struct")
        spec[name] = _convert(name, yaml.safe_load(value))
    return spec


def check_options(spec: Spec) -> None:
    """Raise ValueError for a value outside its enumeration."""
    for name, field in FIELDS.items():
        if field.enum is not None and spec[name] not in field.enum:
            raise ValueError(f"{name} should be one of {list(field.enum)}, but got {spec[name]}")


def nested(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings."""
    tree: dict[str, Any] = {}
    for name, value in spec.items():
        *parents, leaf = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def _leaves(node: object, prefix: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, Mapping):
        raise SpecError(f"Value '{node}' of '{prefix}' is not a mapping")
    for key, value in node.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if name in FIELDS:
            yield name, value
        elif any(known.startswith(f"{name}.") for known in FIELDS):
            yield from _leaves(value, name)
        else:
            raise SpecError(f"Key '{key}' not in '{prefix or 'spec'}'\n    full_key: {name}")


def _convert(name: str, value: Any) -> Any:
    kind = FIELDS[name].type
    try:
        if kind in ("int", "ordered_int") and not isinstance(value, bool):
            if int(value) == float(value):
                return int(value)
        elif kind == "float" and not isinstance(value, bool):
            return float(value)
        elif isinstance(value, {"bool": bool, "list": list}.get(kind, ())):
            return value
        elif kind in ("string", "categorical"):
            return "" if value is None else str(value)
    except (TypeError, ValueError):
        pass
    raise SpecError(
        f"Value '{value}' of type '{type(value).__name__}' could not be converted to {kind}\n"
        f"    full_key: {name}"
    )
