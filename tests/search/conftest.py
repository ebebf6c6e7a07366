"""Fixtures of the search tests."""

from __future__ import annotations

import pytest
from search_cases import make_space

from tao_ray.space import SearchSpace


@pytest.fixture
def space() -> SearchSpace:
    return make_space()
