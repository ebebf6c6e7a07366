"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Real model packages and status files, if this machine has them beside the checkout."""
    path = Path(os.environ.get("TAO_RAY_SHARED", REPO.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no shared data at {path} (set TAO_RAY_SHARED)")
    return path
