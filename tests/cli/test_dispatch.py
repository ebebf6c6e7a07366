"""The command line itself: help, errors, exit codes, what it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tao_ray.cli import COMMANDS, main
from tao_ray.config import ALGORITHMS

HEAVY = ("pydantic", "yaml", "ray", "rich", "numpy", "torch", "wandb")


def tao_ray(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tao_ray.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_lists_every_command_with_its_line() -> None:
    done = tao_ray("--help")
    assert done.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert name in done.stdout
        assert line.split()[0] in done.stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, tao_ray.cli\n"
        "try: tao_ray.cli.main(['--help'])\n"
        f"finally: print(sorted(set(sys.modules) & {set(HEAVY)!r}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: tao-ray {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["chekc"], ["check"], ["check", "a", "--sat", "b"]])
def test_wrong_usage_exits_with_2(arguments: Sequence[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("tao-ray ")


def test_an_error_is_printed_for_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("name: a\nmodel: {package: p}\nsearch: {algorithm: asha}\n")
    done = tao_ray(
        "check", str(path), "--set", "search.algorithm=autoresearch", "--set", "search.trials=0"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: 2 problems in the configuration\n"
        "--set search.algorithm: planned, not available in this version (got 'autoresearch')\n"
        f"  -> available: {', '.join(ALGORITHMS)}\n"
        "--set search.trials: must be a whole number of at least 1 (got 0)\n"
    )


def test_schema_prints_json() -> None:
    done = tao_ray("schema")
    assert done.returncode == 0
    assert json.loads(done.stdout)["title"] == "tao_ray configuration"


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m tao_ray.cli schema | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
