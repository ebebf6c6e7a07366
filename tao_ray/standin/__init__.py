"""A small real network that keeps TAO's conventions: ``digits_mlp``.

It trains a multilayer perceptron on scikit-learn's handwritten digits, on a CPU, in about a
second, and behaves like a TAO network in everything that a search depends on: its model package,
its command line, status.json, checkpoints, pause and resume, exit codes. So a whole search can
be tried, rehearsed and tested without a GPU, an account or a container.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent / "package"
"""The model package directory, as `tao_ray.network.load_package` takes it."""
