"""A secret is not taken from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_ray.config import ConfigError, load_config


def test_a_key_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("name: a\nmodel: {package: digits_mlp}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["model.key=tlt_encode"])
    assert "a secret on the command line can be read by everybody" in str(caught.value)
    assert "tlt_encode" not in str(caught.value)
    config = load_config(path, ["model.key=${env:TAO_KEY}"], {"TAO_KEY": "tlt_encode"})
    assert config.model.key is not None
    assert config.model.key.get_secret_value() == "tlt_encode"
