"""``train`` and ``distill``."""

from __future__ import annotations

import secrets
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np

from tao_ray.standin import checkpoint, data
from tao_ray.standin.checkpoint import Checkpoint
from tao_ray.standin.config import Spec
from tao_ray.standin.mlp import (
    Array,
    Loss,
    Network,
    Optimizer,
    cross_entropy,
    log_softmax,
    schedule,
)
from tao_ray.standin.status_log import StatusLog

_PROGRESS_LINES = 4


def train(spec: Spec, directory: Path, log: StatusLog, teacher: Network | None = None) -> None:
    """Train up to ``train.num_epochs``, from scratch or from where this directory stands.

    Every epoch draws its randomness from (seed, epoch) alone, so a resumed training gives the
    very numbers of an undisturbed one.
    """
    num_epochs = spec["train.num_epochs"]
    for interval in ("checkpoint_interval", "validation_interval"):
        assert spec[f"train.{interval}"] <= num_epochs, (
            f"{interval} ({spec[f'train.{interval}']}) must not exceed num_epochs ({num_epochs})"
        )
    assert len(spec["train.gpu_ids"]) == spec["train.num_gpus"], (
        "The number of GPUs in train.gpu_ids must equal train.num_gpus"
    )
    seed = spec["train.seed"] if spec["train.seed"] >= 0 else secrets.randbits(31)
    training = Training(spec, seed, teacher)
    _restore(training, directory, log)
    state = training.state
    if state.epoch + 1 > num_epochs:
        raise RuntimeError(
            f"You restored a checkpoint with current_epoch={state.epoch + 1}, but you have set "
            f"max_epochs={num_epochs}."
        )
    if state.epoch + 1 == num_epochs:
        return

    log.write("Starting Training Loop.", "STARTED")
    while state.epoch + 1 < num_epochs:
        began = time.monotonic()
        train_loss = training.train_epoch()
        epoch = state.epoch
        time.sleep(max(0.0, began + spec["train.seconds_per_epoch"] - time.monotonic()))
        if (epoch + 1) % spec["train.validation_interval"] == 0:
            log.kpi = training.validate()
            log.write("Eval metrics generated.")
        if (epoch + 1) % spec["train.checkpoint_interval"] == 0:
            path = directory / f"model_epoch_{epoch:03d}.pth"
            checkpoint.save(state, path, spec["train.checkpoint_mb"])
            checkpoint.point_latest_at(path)
        seconds = time.monotonic() - began
        log.write(
            "Training loop in progress",
            data={
                "epoch": epoch,
                "step": (epoch + 1) * training.steps,
                "max_epoch": num_epochs - 1,
                "max_step": num_epochs * training.steps,
                "time_per_epoch": str(timedelta(seconds=seconds)),
                "time_per_step": str(timedelta(seconds=seconds / training.steps)),
                "eta": str(timedelta(seconds=seconds * (num_epochs - 1 - epoch))),
            },
        )
        log.kpi = {"train_loss": train_loss}
        log.write("Train metrics generated.")
    log.write("Training loop complete.")


def distill(spec: Spec, directory: Path, log: StatusLog) -> None:
    """`train` with a loss that also follows a teacher's softened outputs."""
    teacher = checkpoint.load(spec["distill.pretrained_teacher_model_path"]).network
    train(spec, directory, log, teacher)


def metrics(network: Network, samples: data.Dataset, split: str) -> dict[str, float]:
    """``<split>_loss`` and ``<split>_acc_1`` (share of the samples classified right)."""
    logits = network.forward(samples.images)
    right = logits.argmax(axis=1) == samples.labels
    return {
        f"{split}_loss": cross_entropy(log_softmax(logits), samples.targets()),
        f"{split}_acc_1": float(right.mean()),
    }


class Training:
    """A training in memory, epoch by epoch; `state` is what a checkpoint holds."""

    def __init__(self, spec: Spec, seed: int, teacher: Network | None = None) -> None:
        """Raises ValueError for a batch size that leaves no step."""
        self.spec = spec
        self.seed = seed
        self.samples, self.validation = data.load(spec, "train"), data.load(spec, "val")
        size = spec["dataset.batch_size"]
        self.steps = len(self.samples) // size if size > 0 else 0
        if self.steps == 0:
            raise ValueError(f"batch_size={size} leaves no step in {len(self.samples)} samples")
        hidden = [spec["model.hidden_dim"]] * spec["model.num_layers"]
        self.sizes = (data.PIXELS, *hidden, data.CLASSES)
        self._loss = _loss(spec, self.samples, teacher)
        self.state = self.with_weights(
            Network.initialise(self.sizes, np.random.default_rng([seed]))
        )

    def with_weights(self, network: Network) -> Checkpoint:
        """A state before the first epoch, with the optimizer of the spec."""
        names = ("optim", "lr", "momentum", "weight_decay")
        optimizer = Optimizer(*(self.spec[f"train.optim.{name}"] for name in names))
        return Checkpoint(network, optimizer=optimizer)

    def train_epoch(self) -> float:
        """Train the next epoch; the mean training loss."""
        state, epoch = self.state, self.state.epoch + 1
        train_loss = _epoch(
            self.spec, state, epoch, self.samples.images, self._loss, self.steps, self.seed
        )
        state.epoch = epoch
        return train_loss

    def validate(self) -> dict[str, float]:
        """`metrics` on the validation split."""
        return metrics(self.state.network, self.validation, "val")


def _restore(training: Training, directory: Path, log: StatusLog) -> None:
    """Set the state to go on from, if there is one.

    As in TAO a resumed training takes learning rate, momentum and weight decay from the
    checkpoint, whatever the spec says; a pretrained model lends nothing but its weights.
    """
    spec = training.spec
    resume = spec["train.resume_training_checkpoint_path"]
    latest = directory / checkpoint.LATEST
    if not resume and latest.exists():
        resume = str(latest.resolve())
    if resume:
        log.write(f"Setting resume checkpoint to {resume}")
        log.write(f"Resuming training from checkpoint: {resume}")
        state = checkpoint.load(resume)
        _require_shape(state.network, training.sizes)
        if state.optimizer is None:
            raise RuntimeError(f"{resume} holds no optimizer state to resume from")
        training.state = state
    elif spec["train.pretrained_model_path"]:
        network = checkpoint.load(spec["train.pretrained_model_path"]).network
        _require_shape(network, training.sizes)
        training.state = training.with_weights(network)


def _require_shape(network: Network, sizes: tuple[int, ...]) -> None:
    if network.sizes != sizes:
        raise RuntimeError(
            f"Error(s) in loading state_dict: size mismatch: the checkpoint has layers "
            f"{network.sizes}, the current model {sizes}."
        )


def _epoch(
    spec: Spec,
    state: Checkpoint,
    epoch: int,
    images: Array,
    loss: Loss,
    steps: int,
    seed: int,
) -> float:
    """Train one epoch in place; the mean training loss."""
    optimizer = state.optimizer
    assert optimizer is not None
    lr = optimizer.lr * schedule(
        spec["train.optim.policy"],
        epoch,
        spec["train.num_epochs"],
        spec["train.optim.warmup_epochs"],
        spec["train.optim.gamma"],
    )
    print(f"Epoch {epoch}: learning rate {lr!r}", flush=True)
    rng = np.random.default_rng([seed, epoch])
    images = data.augment(images, spec, rng)
    size = spec["dataset.batch_size"]
    order = rng.permutation(len(images))
    total = 0.0
    for step in range(steps):
        batch = order[step * size : (step + 1) * size]
        value, gradient = state.network.backward(
            images[batch], batch, loss, spec["model.dropout"], rng
        )
        optimizer.step(state.network, gradient, lr)
        total += value
        if (step + 1) % max(steps // _PROGRESS_LINES, 1) == 0:
            _show_progress(epoch, step + 1, steps, value)
    optimizer.flush()
    sys.stdout.write("\n")
    return total / steps


def _show_progress(epoch: int, step: int, steps: int, loss: float) -> None:
    bar = "█" * (10 * step // steps)
    sys.stdout.write(
        f"\rEpoch {epoch}: {100 * step // steps:3d}%|{bar:<10}| {step}/{steps} "
        f"[train_loss_step={loss:.3f}]\x1b[K"
    )
    sys.stdout.flush()


def _loss(spec: Spec, training: data.Dataset, teacher: Network | None) -> Loss:
    """Cross entropy, mixed with the divergence from the teacher if there is one."""
    targets = training.targets(spec["train.label_smoothing"])
    if teacher is None:

        def supervised(logits: Array, batch: Array) -> tuple[float, Array]:
            logs, wanted = log_softmax(logits), targets[batch]
            return cross_entropy(logs, wanted), (np.exp(logs) - wanted) / np.float32(len(batch))

        return supervised

    share = float(spec["distill.loss_lambda"])
    temperature = float(spec["distill.temperature"])
    soft_logs = log_softmax(teacher.forward(training.images) / np.float32(temperature))
    soft = np.exp(soft_logs)

    def distilled(logits: Array, batch: Array) -> tuple[float, Array]:
        logs, wanted = log_softmax(logits), targets[batch]
        softened, followed = log_softmax(logits / np.float32(temperature)), soft[batch]
        divergence = cross_entropy(softened, followed) - cross_entropy(soft_logs[batch], followed)
        # The usual factor T^2 keeps the gradients of both parts comparable.
        value = (1 - share) * cross_entropy(logs, wanted) + share * temperature**2 * divergence
        hard = np.float32(1 - share) * (np.exp(logs) - wanted)
        follow = np.float32(share * temperature) * (np.exp(softened) - followed)
        return value, (hard + follow) / np.float32(len(batch))

    return distilled
