"""Writing a configuration and loading it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tao_ray.config import ConfigError, RunConfig, load_config

Load = Callable[..., RunConfig]
Refused = Callable[..., str]

MINIMAL = "name: a\nmodel: {package: p}\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a text as the file ``run.yaml`` of the working directory."""

    def load_text(
        text: str, overrides: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> RunConfig:
        monkeypatch.chdir(tmp_path)
        Path("run.yaml").write_text(text, encoding="utf-8")
        return load_config("run.yaml", overrides, env or {})

    return load_text


@pytest.fixture
def minimal(load: Load) -> Load:
    """The same, for what is added to a valid `name` and `model`."""
    return lambda text="", overrides=(), env=None: load(MINIMAL + text, overrides, env)


@pytest.fixture
def refused(minimal: Load) -> Refused:
    """The error text for what is added to a valid `name` and `model`."""

    def error_text(text: str = "", overrides: Sequence[str] = ()) -> str:
        with pytest.raises(ConfigError) as caught:
            minimal(text, overrides)
        return str(caught.value)

    return error_text
