"""``evaluate``, ``prune`` and ``quantize``: one pass over a checkpoint, one set of metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tao_ray.standin import checkpoint, data
from tao_ray.standin.checkpoint import Checkpoint
from tao_ray.standin.config import Spec
from tao_ray.standin.mlp import Array, Network
from tao_ray.standin.status_log import StatusLog
from tao_ray.standin.train import metrics

_FULL_BITS = 32


def evaluate(spec: Spec, directory: Path, log: StatusLog) -> None:
    """Metrics ``test_loss`` and ``test_acc_1`` of a checkpoint on samples no training saw."""
    network = checkpoint.load(spec["evaluate.checkpoint"]).network
    log.kpi = metrics(network, data.load(spec, "test"), "test")
    log.write("Test metrics generated.")


def prune(spec: Spec, directory: Path, log: StatusLog) -> None:
    """Remove small weights, or whole hidden units, and write ``model_pruned.pth``."""
    network = checkpoint.load(spec["prune.checkpoint"]).network
    threshold = spec["prune.threshold"]
    if spec["prune.granularity"] == "unit":
        _prune_units(network, threshold)
    else:
        _prune_weights(network, threshold, spec["prune.output_layer_factor"])
    kept = float(np.count_nonzero(network.vector) / network.vector.size)
    log.kpi = {
        **_metrics(network, spec, kept, spec["prune.size_weight"]),
        "sparsity": 1 - kept,
    }
    log.write("Eval metrics generated.")
    checkpoint.save(Checkpoint(network, info={"kept": kept}), directory / "model_pruned.pth")


def quantize(spec: Spec, directory: Path, log: StatusLog) -> None:
    """Round the weights to few bits and write ``quantized_model.pth``."""
    network = checkpoint.load(spec["quantize.model_path"]).network
    bits = spec["quantize.bits"]
    for weight, _ in network.layers:
        columns = weight if spec["quantize.per_channel"] else weight.reshape(-1, 1)
        for column in columns.T:  # views: rounding in place changes the network
            bound = _bound(column, bits, spec["quantize.algorithm"], spec["quantize.percentile"])
            column[:] = _rounded(column, bits, bound)
    log.kpi = _metrics(network, spec, bits / _FULL_BITS, spec["quantize.size_weight"])
    log.write("Eval metrics generated.")
    checkpoint.save(Checkpoint(network, info={"bits": bits}), directory / "quantized_model.pth")


def _metrics(network: Network, spec: Spec, kept: float, size_weight: float) -> dict[str, float]:
    """Validation, what is left of the size, and one score of both; `kept` is a share."""
    validation = metrics(network, data.load(spec, "val"), "val")
    return {
        **validation,
        "size_kb": network.vector.nbytes * kept / 1000,
        "score": validation["val_acc_1"] - size_weight * kept,
    }


def _prune_weights(network: Network, threshold: float, output_layer_factor: float) -> None:
    for i, (weight, _) in enumerate(network.layers):
        factor = output_layer_factor if i == len(network.layers) - 1 else 1.0
        weight[np.abs(weight) < threshold * factor * np.abs(weight).max()] = 0


def _prune_units(network: Network, threshold: float) -> None:
    for (weight, bias), (following, _) in zip(network.layers, network.layers[1:], strict=False):
        norm = np.linalg.norm(weight, axis=0) * np.linalg.norm(following, axis=1)
        weak = norm < threshold * norm.max()
        weight[:, weak] = 0
        bias[weak] = 0
        following[weak] = 0


def _bound(values: Array, bits: int, algorithm: str, percentile: float) -> float:
    """Largest magnitude that is told apart; larger ones are clipped to it."""
    magnitudes = np.abs(values)
    if algorithm == "percentile":
        return float(np.percentile(magnitudes, percentile))
    largest = float(magnitudes.max())
    if algorithm == "minmax":
        return largest
    candidates = [largest * float(share) for share in np.linspace(0.3, 1.0, 29)]
    errors = [np.square(values - _rounded(values, bits, bound)).sum() for bound in candidates]
    return candidates[int(np.argmin(errors))]


def _rounded(values: Array, bits: int, bound: float) -> Array:
    """Symmetric uniform quantization with 2^bits - 1 levels in [-bound, bound]."""
    levels = 2 ** (bits - 1) - 1
    if bound == 0:
        return np.zeros_like(values)
    rounded: Array = np.clip(np.round(values / bound * levels), -levels, levels)
    rounded *= np.float32(bound / levels)
    return rounded
