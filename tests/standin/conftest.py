"""Jobs of digits_mlp for these tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from standin_jobs import Job


@pytest.fixture
def new_job(tmp_path: Path) -> Callable[[str], Job]:
    def make(name: str) -> Job:
        directory = tmp_path / name
        directory.mkdir()
        return Job(directory)

    return make


@pytest.fixture
def job(new_job: Callable[[str], Job]) -> Job:
    return new_job("job")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A finished training of eight epochs. Not to be changed."""
    job = Job(tmp_path_factory.mktemp("trained"))
    result = job.run(values={"train.num_epochs": 8, "train.optim.lr": 2e-3})
    assert result.returncode == 0, result.stderr
    return job
