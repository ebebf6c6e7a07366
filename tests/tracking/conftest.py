"""Fixtures of the tracking tests."""

from __future__ import annotations

from pathlib import Path

import made_run
import pytest

from tao_ray.journal import Journal


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """A run directory whose journal holds the whole made run."""
    journal = Journal(tmp_path / "journal.sqlite")
    journal.append(*made_run.events())
    journal.close()
    return tmp_path
