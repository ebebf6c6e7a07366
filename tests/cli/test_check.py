"""``tao-ray check``: what it says about a configuration that is right, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_ray.cli import main

CONFIG = """\
name: bare
model:
  network: mine
  command: mine train -e {config_path}
  spec: {train: {num_epochs: 9, optim: {lr: 0.01}}}
objective: {metric: val_loss, direction: minimize}
search:
  algorithm: random
  trials: 3
  parameters: {train.optim.lr: {min: 1e-4, max: 1e-1, scale: log}}
platform: {kind: local}
"""


def check(tmp_path: Path, *overrides: str) -> int:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG)
    return main(["check", str(path), *(part for text in overrides for part in ("--set", text))])


def test_it_shows_what_the_configuration_comes_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path) == 0
    out = capsys.readouterr().out
    assert "run.yaml is valid" in out
    assert "network    mine, train" in out
    assert "objective  minimize val_loss (best epoch)" in out
    assert "search     random, 3 trials of up to 9 epochs" in out
    assert "train.optim.lr: " in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.yaml"]


def test_it_refuses_what_only_the_network_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, "model.overrides.train.optim.lrr=1") == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "train.optim.lrr" in captured.err
    assert captured.out == ""
