"""A multilayer perceptron in plain numpy: forward, backward, optimisers, schedules.

Plain numpy because a job must start in a fraction of a second. All arrays are float32;
`x` is (samples, inputs), logits and targets are (samples, classes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Loss = Callable[[Array, Array], tuple[float, Array]]
"""(logits, sample indices) -> mean loss and its gradient with respect to the logits."""

_BETA1, _BETA2 = 0.9, 0.999


class Network:
    """Weights and biases of consecutive layers, as views into one vector.

    sizes: layer widths, input first. vector: all values, so that an optimiser's step is a few
    operations whatever the depth. layers: (weight (inputs, outputs), bias (outputs,)) views.
    """

    def __init__(self, sizes: Sequence[int], vector: Array | None = None) -> None:
        self.sizes = tuple(sizes)
        shapes = list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
        count = sum(inputs * outputs + outputs for inputs, outputs in shapes)
        self.vector: Array = np.zeros(count, "f4") if vector is None else vector
        self.layers: list[tuple[Array, Array]] = []
        start = 0
        for inputs, outputs in shapes:
            middle, end = start + inputs * outputs, start + inputs * outputs + outputs
            weight = self.vector[start:middle].reshape(inputs, outputs)
            self.layers.append((weight, self.vector[middle:end]))
            start = end

    @classmethod
    def initialise(cls, sizes: Sequence[int], rng: np.random.Generator) -> Network:
        """He initialisation."""
        network = cls(sizes)
        for weight, _ in network.layers:
            weight[:] = rng.normal(0.0, math.sqrt(2.0 / len(weight)), weight.shape)
        return network

    def forward(self, x: Array) -> Array:
        """Logits, without dropout."""
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return x @ weight + bias

    def backward(
        self, x: Array, indices: Array, loss: Loss, dropout: float, rng: np.random.Generator
    ) -> tuple[float, Array]:
        """Mean loss of a batch and the gradient of `vector`; dropout on the hidden layers."""
        inputs, masks = [x], []
        for weight, bias in self.layers[:-1]:
            x = x @ weight + bias
            mask: Array = (x > 0).astype("f4")
            if dropout > 0:
                mask *= (rng.random(x.shape, "f4") >= dropout) / np.float32(1 - dropout)
            x = x * mask
            masks.append(mask)
            inputs.append(x)
        weight, bias = self.layers[-1]
        value, upstream = loss(x @ weight + bias, indices)
        gradient = Network(self.sizes)
        for i in range(len(self.layers) - 1, -1, -1):
            np.matmul(inputs[i].T, upstream, out=gradient.layers[i][0])
            upstream.sum(axis=0, out=gradient.layers[i][1])
            if i > 0:
                upstream = (upstream @ self.layers[i][0].T) * masks[i - 1]
        return value, gradient.vector


def log_softmax(logits: Array) -> Array:
    """Logarithms of the probabilities, row by row."""
    shifted: Array = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def cross_entropy(log_probabilities: Array, targets: Array) -> float:
    """Mean cross entropy against target probabilities."""
    return -float((targets * log_probabilities).sum()) / len(targets)


@dataclass
class Optimizer:
    """SGD with momentum, or AdamW; decoupled weight decay.

    The moments have the shape of the network's vector and are part of a checkpoint.
    """

    kind: str
    lr: float
    momentum: float
    weight_decay: float
    steps: int = 0
    moments: list[Array] = field(default_factory=list)

    def step(self, network: Network, gradient: Array, lr: float) -> None:
        """Update the network in place with the learning rate of this moment."""
        if not self.moments:
            self.moments = [np.zeros_like(gradient), np.zeros_like(gradient)]
        self.steps += 1
        first, second = self.moments
        for weight, _ in network.layers:
            weight *= np.float32(1 - lr * self.weight_decay)
        if self.kind == "sgd":
            first *= np.float32(self.momentum)
            first += gradient
            network.vector -= np.float32(lr) * first
            return
        first *= np.float32(_BETA1)
        first += np.float32(1 - _BETA1) * gradient
        second *= np.float32(_BETA2)
        second += np.float32(1 - _BETA2) * (gradient * gradient)
        scale = lr * math.sqrt(1 - _BETA2**self.steps) / (1 - _BETA1**self.steps)
        update = np.sqrt(second)
        update += np.float32(1e-8)
        np.divide(first, update, out=update)
        update *= np.float32(scale)
        network.vector -= update

    def flush(self) -> None:
        """Zero the moments that have faded: denormal numbers slow arithmetic fivefold."""
        for moment in self.moments:
            moment[np.abs(moment) < np.float32(1e-30)] = 0


def schedule(policy: str, epoch: int, num_epochs: int, warmup_epochs: int, gamma: float) -> float:
    """Factor on the base learning rate in `epoch` (0-based) of a training of `num_epochs`."""
    if epoch < warmup_epochs:
        return (epoch + 1) / (warmup_epochs + 1)
    progress = (epoch - warmup_epochs) / max(num_epochs - warmup_epochs, 1)
    if policy == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    if policy == "linear":
        return 1 - progress
    return gamma ** int(progress * 3)  # step: drops after one and after two thirds
