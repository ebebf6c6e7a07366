"""The whole text that a user sees for malformed configurations (malformed.yaml)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tao_ray.config import ConfigError, RunConfig

CASES = yaml.safe_load(Path(__file__).with_name("malformed.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_error_text(load: Callable[..., RunConfig], case: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(case["config"], case.get("set", ()), {"TOKEN": "s3cret"})
    assert str(caught.value) == case["error"].rstrip("\n")
    assert caught.value.exit_code == 2
