"""The digits: 8x8 images of handwritten numbers, split once and for all, and their augmentation."""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tao_ray.standin.config import Spec
from tao_ray.standin.mlp import Array

CLASSES = 10
PIXELS = 64
_SPLITS = {"train": slice(0, 897), "val": slice(897, 1347), "test": slice(1347, 1797)}
_SPLIT_SEED = 0
_NOISE_SEED = 7


@dataclass(frozen=True)
class Dataset:
    """images: (n, 64) float32 in [0, 1]; labels: (n,) integers."""

    images: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    def targets(self, smoothing: float = 0.0) -> Array:
        """Target probabilities (n, 10)."""
        targets: Array = np.full((len(self), CLASSES), smoothing / CLASSES, "f4")
        targets[np.arange(len(self)), self.labels] += np.float32(1 - smoothing)
        return targets


def load(spec: Spec, split: str) -> Dataset:
    """The split ``train``, ``val`` or ``test``: the user's directory, or its bundled part.

    Training labels carry the label noise of the spec, the same in every job.

    Raises:
        ValueError: the user's directory holds no samples.
    """
    directory = spec[f"dataset.{split}_dataset.images_dir"]
    if directory:
        files = [p for p in sorted(Path(directory).glob("digits.csv*")) if p.is_file()]
        rows = _read(files[0]) if files else np.empty((0, PIXELS + 1), "f4")
    else:
        rows = _bundled()[_SPLITS[split]]
    if split == "train" and spec["dataset.train_sample_count"] > 0:
        rows = rows[: spec["dataset.train_sample_count"]]
    if len(rows) == 0:
        raise ValueError("num_samples should be a positive integer value, but got num_samples=0")
    labels = rows[:, PIXELS].astype(int)
    if split == "train":
        rng = np.random.default_rng(_NOISE_SEED)
        wrong = rng.random(len(labels)) < spec["dataset.label_noise"]
        labels = np.where(wrong, rng.integers(0, CLASSES, len(labels)), labels)
    return Dataset(rows[:, :PIXELS] / np.float32(16), labels)


def augment(images: Array, spec: Spec, rng: np.random.Generator) -> Array:
    """One epoch's variant of the training images."""
    count = len(images)
    if spec["dataset.augmentation.random_shift.enable"]:
        probability = spec["dataset.augmentation.random_shift.shift_probability"]
        shifted = rng.random(count) < probability
        direction = np.where(shifted, rng.integers(0, len(_SHIFTS), count), _NO_SHIFT)
        padded = np.pad(images, ((0, 0), (0, 1)))
        images = padded[np.arange(count)[:, None], _SHIFTS[direction]]
    low = spec["dataset.augmentation.random_erase_min"]
    high = spec["dataset.augmentation.random_erase_max"]
    if high > 0:
        erased = rng.integers(low, high + 1, count)
        rank = rng.random((count, PIXELS)).argsort(axis=1)
        images = np.where(rank < erased[:, None], np.float32(0), images)
    noise = spec["dataset.augmentation.noise_std"]
    if noise > 0:
        images = images + np.float32(noise) * rng.standard_normal(images.shape, "f4")
    return images


def _bundled() -> Array:
    # Found without importing scikit-learn, which would take two seconds.
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise RuntimeError("The bundled digits need scikit-learn to be installed.")
    rows = _read(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz")
    return rows[np.random.default_rng(_SPLIT_SEED).permutation(len(rows))]


def _read(path: Path) -> Array:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    values = np.fromstring(text.replace("\n", ","), dtype="f4", sep=",")
    return values.reshape(-1, PIXELS + 1)


def _shift_maps() -> Array:
    """For each of nine shifts, the source pixel of every pixel; 64 is an empty one."""
    grid = np.full((10, 10), PIXELS)
    grid[1:9, 1:9] = np.arange(PIXELS).reshape(8, 8)
    return np.array([grid[y : y + 8, x : x + 8].ravel() for y in range(3) for x in range(3)])


_SHIFTS = _shift_maps()
_NO_SHIFT = 4
