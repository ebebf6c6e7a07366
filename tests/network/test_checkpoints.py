"""Checkpoints are found among a job's files by the conventions of its network."""

from __future__ import annotations

from tao_ray.network.checkpoints import CheckpointFile, find_checkpoints
from tao_ray.network.conventions import conventions_for


def test_checkpoints_are_found_by_the_network_s_conventions() -> None:
    files = {
        "train/model_epoch_000_step_00010.pth": 5,
        "train/model_epoch_001.pth": 7,
        "train/student_epoch_001.pth": 3,
        "train/status.json": 1,
        "train/my_model_epoch_x.pth": 1,
    }
    found = find_checkpoints(conventions_for("nvdinov2", "train"), files)
    assert [(c.path, c.epoch, c.bytes) for c in found] == [
        ("train/model_epoch_000_step_00010.pth", 1, 5),
        ("train/model_epoch_001.pth", 2, 7),
        ("train/student_epoch_001.pth", 2, 3),
    ]


def test_a_checkpoint_may_be_a_folder_or_have_no_epoch() -> None:
    folders = {"safetensors/epoch_2/a.bin": 4, "safetensors/epoch_2/b/c.bin": 5}
    found = find_checkpoints(conventions_for("cosmos-reason", "train"), folders)
    assert found == [CheckpointFile("safetensors/epoch_2", 2, 9)]
    found = find_checkpoints(conventions_for("ocrnet", "train"), {"train/best_accuracy.pth": 4})
    assert found == [CheckpointFile("train/best_accuracy.pth", None, 4)]
