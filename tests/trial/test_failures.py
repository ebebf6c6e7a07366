"""Every kind of failure, provoked: by small shell programs that fail as networks and hosts do."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tao_ray.config import load_config
from tao_ray.experiment.plan import make_plan
from tao_ray.journal import Event, Journal
from tao_ray.network.keys import SpecError
from tao_ray.platforms.base import (
    CapacityError,
    Exit,
    HostKeyChangedError,
    LinkError,
    MachineLostError,
    PlatformError,
)
from tao_ray.platforms.local import LocalPlatform
from tao_ray.trial.classify import classify, kind_of_error
from tao_ray.trial.failure import Failure, FailureKind
from tao_ray.trial.setup import Outcome
from tao_ray.trial.supervisor import Supervisor

REPO = Path(__file__).resolve().parents[2]
EPOCH = '{"epoch": 0, "kpi": {"acc": 0.5}, "status": "RUNNING", "message": "m"}'
FAILED = '{"status": "FAILURE", "message": "%s"}'


@pytest.fixture
def fail(tmp_path: Path) -> Iterator[Callable[..., Failure]]:
    """Run a shell program as a trial; why it failed."""
    platform = LocalPlatform(tmp_path / "jobs")

    def run(program: str, **setup: object) -> Failure:
        config = tmp_path / "config.yaml"
        text = {
            "name": "t",
            "model": {
                "network": "toy",
                "command": f"sh -c {shlex.quote(program)} {{config_path}}",
                "spec": {"train": {"num_epochs": 2, "optim": {"lr": 0.1}}},
            },
            "objective": {"metric": "acc", "direction": "maximize"},
            "search": {"parameters": {"train.optim.lr": {"min": 0.01, "max": 0.1}}},
        }
        config.write_text(yaml.safe_dump(text))
        plan = make_plan(load_config(config))
        journal = Journal(tmp_path / "journal.sqlite")
        defaults = plan.derived.space.defaults()
        journal.append(Event("proposed", "0000", {"config": defaults, "info": {}}))
        made = dataclasses.replace(plan.setup(gpus=0), grace_s=2.0, **setup)  # type: ignore[arg-type]
        supervisor = Supervisor("0000", made, platform, journal)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            news = supervisor.next(0.5)
            if isinstance(news, Outcome):
                assert news.failure is not None, "the program was meant to fail"
                return news.failure
        raise AssertionError("no outcome")

    yield run
    platform.discard("0000")


STATUS = "mkdir -p results/train; echo %s >> results/train/status.json"

PROVOKED = {
    "memory, as Python says it": (
        "ulimit -v 400000; exec python -c 'print(len(bytes(10**10)))'",
        FailureKind.OOM,
        "MemoryError",
    ),
    "memory, as CUDA says it": (
        "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB';"
        " echo 'Execution status: FAIL'; exit 1",
        FailureKind.OOM,
        "Tried to allocate 2.00 GiB",
    ),
    "shared memory": (
        "echo 'RuntimeError: DataLoader worker (pid 41) is killed by signal: Bus error. It is"
        " possible that workers are out of shared memory.'; exit 1",
        FailureKind.OOM,
        "Bus error",
    ),
    "a full disk": (
        'exec python -c \'open("/dev/full", "w").write("x" * 99999)\'',
        FailureKind.DISK_FULL,
        "No space left on device",
    ),
    "a command that is not there": (
        "exec digits_of_nobody",
        FailureKind.IMAGE_MISSING,
        "digits_of_nobody",
    ),
    "an image that is not there": (
        "echo 'docker: Error response from daemon: manifest unknown: manifest unknown'; exit 125",
        FailureKind.IMAGE_MISSING,
        "manifest unknown",
    ),
    "an image that is not ours": (
        "echo 'docker: Error response from daemon: pull access denied for nvcr.io/x'; exit 125",
        FailureKind.IMAGE_ACCESS,
        "pull access denied",
    ),
    "a login that is refused": (
        "echo 'botocore.exceptions.ClientError: An error occurred (InvalidAccessKeyId)'; exit 1",
        FailureKind.CREDENTIALS,
        "InvalidAccessKeyId",
    ),
    "data that is not there": (
        "exec python -c 'open(\"/nowhere/annotations.json\")'",
        FailureKind.DATA,
        "/nowhere/annotations.json",
    ),
    "a spec that is refused": (
        "echo 'omegaconf.errors.ConfigAttributeError: Key x is not in struct'; exit 1",
        FailureKind.SPEC,
        "Key x is not in struct",
    ),
    "a batch larger than the data": (
        "echo 'ValueError: batch_size=64 leaves no step in 10 samples'; exit 1",
        FailureKind.BATCH,
        "batch_size=64 leaves no step in 10 samples",
    ),
    "a loss that is NaN": (
        "echo 'Loss is nan, stopping training'; exit 1",
        FailureKind.NAN,
        "Loss is nan",
    ),
    "a machine without a driver": (
        "echo 'RuntimeError: Found no NVIDIA driver on your system.'; exit 1",
        FailureKind.PROVISION,
        "Found no NVIDIA driver",
    ),
    "a broken GPU": (
        "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered'; exit 1",
        FailureKind.MACHINE_LOST,
        "ECC",
    ),
    "a process that is killed": ("kill -9 $$", FailureKind.MACHINE_LOST, "killed by signal 9"),
    "a child that is killed": ("sh -c 'kill -9 $$'; exit $?", FailureKind.MACHINE_LOST, "signal 9"),
    "code that is wrong": (
        "exec python -c 'raise KeyError(\"neck\")'",
        FailureKind.CODE,
        "KeyError: 'neck'",
    ),
    "code that says nothing": ("exit 3", FailureKind.CODE, "exit status 3"),
    "a failure that only the status says": (
        STATUS % shlex.quote(FAILED % "Error: dataset.x, no space left on device") + "; exit 1",
        FailureKind.DISK_FULL,
        "no space left",
    ),
    "a metric that never appears": (
        STATUS % shlex.quote(EPOCH.replace("acc", "loss")) + "; exit 0",
        FailureKind.METRIC_MISSING,
        "acc never appeared; seen: loss",
    ),
    "no epoch at all": ("exit 0", FailureKind.DATA, "without one epoch"),
}


@pytest.mark.parametrize("name", PROVOKED)
def test_each_kind_as_it_is_seen(fail: Callable[..., Failure], name: str) -> None:
    program, kind, text = PROVOKED[name]
    failure = fail(program)
    assert failure.kind is kind, failure
    assert text in failure.message
    assert failure.kind.cause
    assert failure.kind.remedy


def test_a_job_that_takes_too_long(fail: Callable[..., Failure]) -> None:
    failure = fail("sleep 30", job_timeout_s=0.6)
    assert failure.kind is FailureKind.TIMEOUT
    assert failure.message == "no end after 1 s"
    assert "failures.job_timeout_hours" in failure.kind.remedy


def test_what_the_platform_knows_comes_first() -> None:
    lines = ["FileNotFoundError: x"]
    assert classify(Exit(137, oom=True), None, lines).kind is FailureKind.OOM
    assert classify(Exit(None, detail="no such process"), None, []).message == "no such process"


def test_the_evidence_shows_the_line_with_the_cause() -> None:
    log = [f"step {n}" for n in range(40)]
    log[20] = "torch.OutOfMemoryError: CUDA out of memory"
    failure = classify(Exit(1), None, log)
    assert log[20] in failure.evidence
    assert len(failure.evidence) <= 12


def test_progress_bars_do_not_hide_the_cause(fail: Callable[..., Failure]) -> None:
    bars = "printf 'Epoch 0:  10%%|#\\rEpoch 0:  90%%|###\\033[K\\nCUDA out of memory\\n'; exit 1"
    failure = fail(bars)
    assert failure.kind is FailureKind.OOM
    assert "Epoch 0:  90%|###" in failure.evidence
    assert not any(re.search("\r|\x1b", line) for line in failure.evidence)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SpecError("unknown spec keys:", ["a: b"]), FailureKind.SPEC),
        (SpecError("no batch size is possible:", ["a: b"]), FailureKind.BATCH),
        (CapacityError("all GPUs are taken"), FailureKind.CAPACITY),
        (LinkError("ssh: connect to host x: timed out"), FailureKind.LINK),
        (MachineLostError("the machine is gone"), FailureKind.MACHINE_LOST),
        (HostKeyChangedError("not the host key it had before"), FailureKind.HOST_KEY),
        (PlatformError("docker: pull access denied for a/b"), FailureKind.IMAGE_ACCESS),
        (PlatformError("mkdir: /x: No space left on device"), FailureKind.DISK_FULL),
        (PlatformError("the machine did not come up"), FailureKind.PROVISION),
        # Of a platform, "no such file" says nothing about the data.
        (PlatformError("sh: setsid: No such file or directory"), FailureKind.PROVISION),
    ],
)
def test_errors_before_a_job_runs(error: PlatformError, kind: FailureKind) -> None:
    assert kind_of_error(error) is kind


def test_only_what_says_nothing_of_the_configuration_is_tried_again() -> None:
    retried = {kind.value for kind in FailureKind if kind.retried}
    assert retried == {"capacity", "provision", "link", "machine_lost"}


def test_every_kind_has_a_text_of_its_own() -> None:
    assert len({kind.cause for kind in FailureKind}) == len(FailureKind)
    assert len({kind.remedy for kind in FailureKind} - {""}) >= len(FailureKind) - 2


def test_the_documented_kinds_are_these() -> None:
    page = (REPO / "docs" / "operations.md").read_text()
    spec = importlib.util.spec_from_file_location("gen_docs", REPO / "scripts" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.with_kinds(page) == page, "run scripts/gen_docs.py"
    assert all(f"| `{kind.value}` |" in page for kind in FailureKind)


def test_a_real_tao_failure(shared_dir: Path) -> None:
    from tao_ray.trial.classify import plain_lines

    log = (shared_dir / "tao-samples" / "stdout_failure.log").read_bytes()
    failure = classify(Exit(1), None, plain_lines(log))
    assert failure.kind is FailureKind.DATA
    assert failure.message.startswith("ValueError: num_samples should be a positive integer")
