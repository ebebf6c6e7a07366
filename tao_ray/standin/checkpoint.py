"""Checkpoints: weights, optimiser state and the position in the training, in one file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tao_ray.standin.mlp import Network, Optimizer

LATEST = "digits_mlp_model_latest.pth"


@dataclass
class Checkpoint:
    """`epoch` is the last completed one, 0-based; -1 for a network that was not trained here."""

    network: Network
    epoch: int = -1
    optimizer: Optimizer | None = None
    info: dict[str, Any] = field(default_factory=dict)


def save(checkpoint: Checkpoint, path: Path, padding_mb: float = 0.0) -> None:
    """Write the file; it appears complete or not at all."""
    optimizer = checkpoint.optimizer
    header: dict[str, Any] = {
        "sizes": checkpoint.network.sizes,
        "epoch": checkpoint.epoch,
        "info": checkpoint.info,
    }
    arrays: dict[str, Any] = {"network": checkpoint.network.vector}
    if optimizer is not None:
        header["optimizer"] = {
            "kind": optimizer.kind,
            "lr": optimizer.lr,
            "momentum": optimizer.momentum,
            "weight_decay": optimizer.weight_decay,
            "steps": optimizer.steps,
        }
        arrays |= {f"moment{i}": moment for i, moment in enumerate(optimizer.moments)}
    if padding_mb > 0:
        arrays["padding"] = np.frombuffer(os.urandom(int(padding_mb * 1e6)), "u1")
    arrays["header"] = np.array(json.dumps(header))
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, **arrays)
    partial.replace(path)


def load(path: str | Path) -> Checkpoint:
    """Read a file that `save` wrote.

    Raises:
        OSError: there is none. RuntimeError: it is something else.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            network = Network(header["sizes"], arrays["network"])
            optimizer = None
            if "optimizer" in header:
                moments = [arrays[f"moment{i}"] for i in range(2)]
                optimizer = Optimizer(**header["optimizer"], moments=moments)
    except OSError:
        raise
    except Exception as error:
        raise RuntimeError(f"{path} is not a checkpoint of digits_mlp: {error}") from error
    return Checkpoint(network, header["epoch"], optimizer, header["info"])


def point_latest_at(path: Path) -> None:
    """Make the ``*_latest.pth`` link beside a checkpoint name it."""
    link = path.with_name(LATEST)
    fresh = link.with_suffix(".link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path.name)
    fresh.replace(link)
