"""digits_mlp ends as TAO does: exit codes, signals, errors, output."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from standin_jobs import COMMAND, Job


def statuses(job: Job) -> list[str]:
    return [line["status"] for line in job.lines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_job_ends_with_0_and_pass_but_is_not_finished(
    job: Job, number: signal.Signals
) -> None:
    process = job.start({"train.num_epochs": 40, "train.seconds_per_epoch": 0.1})
    job.wait_for_epoch(1)
    os.killpg(process.pid, number)
    assert process.wait(timeout=10) == 0
    assert "Execution status: PASS" in (job.directory / "log.txt").read_text()
    assert "Train finished successfully." not in job.messages()
    assert "FAILURE" not in statuses(job)


def test_success_says_pass(job: Job) -> None:
    result = job.run(values={"train.num_epochs": 1})
    assert result.returncode == 0
    assert "Execution status: PASS" in result.stdout
    assert result.stderr == ""


def test_output_is_full_of_progress_bars_and_colours(job: Job) -> None:
    spec = job.spec({"train.num_epochs": 1})
    output = subprocess.run([*COMMAND, "train", "-e", spec], capture_output=True).stdout
    assert b"\rEpoch 0:  25%|" in output
    assert b"\x1b[38;20m" in output


@pytest.mark.parametrize("interval", ["checkpoint_interval", "validation_interval"])
def test_an_interval_beyond_the_epochs_asserts(job: Job, interval: str) -> None:
    result = job.run(values={f"train.{interval}": 4})
    assert result.returncode == 1
    assert "AssertionError" in result.stderr
    assert "FAILURE" not in statuses(job)


def test_gpu_ids_must_match_num_gpus(job: Job) -> None:
    result = job.run(values={"train.num_gpus": 2})
    assert result.returncode == 1
    assert "AssertionError" in result.stderr
    assert job.run(values={"train.num_gpus": 2, "train.gpu_ids": [0, 1]}).returncode == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"dataset.train_dataset.images_dir": "/nowhere"},
            "Parameter validation error: num_samples should be a positive integer value, "
            "but got num_samples=0",
        ),
        (
            {"dataset.batch_size": 900},
            "Parameter validation error: batch_size=900 leaves no step in 897 samples",
        ),
        (
            {"train.optim.policy": "magic"},
            "Parameter validation error: train.optim.policy should be one of "
            "['linear', 'step', 'cosine'], but got magic",
        ),
        (
            {"train.pretrained_model_path": "/nowhere.pth"},
            "File system error: [Errno 2] No such file or directory: '/nowhere.pth'",
        ),
    ],
)
def test_errors_that_leave_a_failure_line(
    job: Job, values: dict[str, object], message: str
) -> None:
    result = job.run(values=values)
    assert result.returncode == 1
    assert "Execution status: FAIL" in result.stdout
    assert job.lines()[-1]["status"] == "FAILURE"
    assert job.lines()[-1]["message"] == message


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"train.optim.learning_rate": 1}, "full_key: train.optim.learning_rate"),
        ({"train.num_epochs": "many"}, "could not be converted to int"),
        ({"train.num_epochs": 2.5}, "could not be converted to int"),
        ({"model": 3}, "Value '3' of 'model' is not a mapping"),
    ],
)
def test_a_spec_that_cannot_be_read_leaves_no_status(
    job: Job, values: dict[str, object], text: str
) -> None:
    result = job.run(values=values)
    assert result.returncode == 1
    assert text in result.stderr
    assert not job.results.exists()


def test_a_file_that_is_no_checkpoint(job: Job) -> None:
    path = job.directory / "x.pth"
    path.write_bytes(b"not a checkpoint")
    result = job.run(values={"train.pretrained_model_path": str(path)})
    assert result.returncode == 1
    assert "is not a checkpoint of digits_mlp" in result.stderr
    assert "FAILURE" not in statuses(job)


def test_a_bare_file_name_fails(job: Job) -> None:
    job.spec({})
    bare = subprocess.run(
        [*COMMAND, "train", "-e", "spec.yaml"], cwd=job.directory, capture_output=True
    )
    assert bare.returncode == 1
    dotted = subprocess.run(
        [*COMMAND, "train", "-e", "./spec.yaml"], cwd=job.directory, capture_output=True
    )
    assert dotted.returncode == 0


def test_overrides_on_the_command_line_lose_their_quotes(job: Job) -> None:
    command = [*COMMAND, "train", "-e", str(job.spec({})), "train.num_epochs=1"]
    assert subprocess.run([*command, "model_name=plain"], capture_output=True).returncode == 0
    assert job.epochs() == [0]
    spaced = subprocess.run([*command, "model_name=two words"], capture_output=True)
    assert spaced.returncode == 1


def test_numbers_as_yaml_reads_them(job: Job) -> None:
    path = job.spec({"train.num_epochs": 1})
    path.write_text(path.read_text() + "  optim:\n    lr: 1e-3\n")  # a text to YAML 1.1
    assert subprocess.run([*COMMAND, "train", "-e", path], capture_output=True).returncode == 0
    written = yaml.safe_load((job.results / "train/experiment.yaml").read_text())
    assert written["train"]["optim"]["lr"] == 1e-3


def test_world_size_is_the_number_of_nodes(job: Job) -> None:
    result = job.run(WORLD_SIZE="4")
    assert result.returncode == 1
    assert "4 nodes" in result.stderr
    rewritten = yaml.safe_load((job.directory / "spec.yaml").read_text())
    assert rewritten["train"]["num_nodes"] == 4
    assert "dataset" in rewritten


def test_the_encryption_key_is_not_shown(job: Job) -> None:
    result = job.run(values={"encryption_key": "hunter2", "train.num_epochs": 1})
    written = [p.read_text() for p in (job.results / "train").iterdir() if p.suffix != ".pth"]
    assert "hunter2" not in result.stdout + "".join(written)
    assert "'*******'" in result.stdout


def test_the_command_of_the_package_is_installed() -> None:
    """`digits_mlp` stands beside the Python that has tao_ray."""
    command = shutil.which("digits_mlp", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("tao_ray is on the path but not installed")
    result = subprocess.run([command, "--help"], capture_output=True, text=True)
    assert result.returncode == 0
    assert "quantize" in result.stdout
