"""Objectives that are not in status.json, and what is said when they are nowhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tao_ray.config import load_config
from tao_ray.errors import TaoRayError
from tao_ray.experiment.plan import make_plan
from tao_ray.journal import Event, Journal
from tao_ray.platforms.local import LocalPlatform
from tao_ray.trial.failure import FailureKind
from tao_ray.trial.setup import Epoch, Outcome
from tao_ray.trial.sources import Hook, LogPattern, MetricFile, Report
from tao_ray.trial.state import RunState
from tao_ray.trial.supervisor import Supervisor

Run = Callable[..., tuple[list[tuple[int, float | None]], Outcome]]


def report(files: Mapping[str, bytes] | None = None, **changes: Any) -> Report:
    held = dict(files or {})

    def read(path: str) -> bytes:
        if path not in held:
            raise FileNotFoundError(path)
        return held[path]

    return Report(**{"epoch": 1, "metrics": {}, "log": (), "read": read, **changes})


# -- one value ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (r"mAP: ([\d.]+)", "| mAP: 0.41 |", (None, 0.41)),
        (r"epoch (?P<epoch>\d+) f1=(?P<value>\S+)", "epoch 7 f1=0.5", (7, 0.5)),
        (r"epoch (?P<epoch0>\d+) f1=(?P<value>\S+)", "epoch 7 f1=0.5", (8, 0.5)),
        (r"f1=(\S+)", "f1=nan", (None, float("nan"))),
        (r"f1=(\S+)", "f1=n/a", None),
        (r"f1=(\S+)", "f2=1", None),
    ],
)
def test_a_line_of_output(pattern: str, line: str, found: tuple[int | None, float] | None) -> None:
    assert repr(LogPattern(pattern).match(line)) == repr(found)


@pytest.mark.parametrize(
    ("content", "json_path", "value"),
    [
        ({"val_mse": 0.25}, None, 0.25),
        ({"val_mse": "0.25"}, None, 0.25),
        ({"val/mse.x": 1, "val_mse": 2}, None, 2.0),
        ({"test": {"scores": [{"f1": 0.5}]}}, "test.scores[0].f1", 0.5),
        ([{"f1": 0.5}], "[0].f1", 0.5),
        (0.75, None, 0.75),
        ({"val_mse": None}, None, None),
        ({"val_mse": True}, None, None),
        ({"other": 1}, None, None),
        ({"val_mse": {"mean": 1}}, None, None),
    ],
)
def test_a_number_in_a_file(content: Any, json_path: str | None, value: float | None) -> None:
    source = MetricFile("metrics.json", "val_mse", json_path)
    assert source.value(report({"metrics.json": json.dumps(content).encode()})) == value


def test_a_file_that_is_not_there_or_half_written() -> None:
    source = MetricFile("metrics.json", "val_mse")
    assert source.value(report()) is None
    assert source.value(report({"metrics.json": b'{"val_'})) is None
    assert source.missing(report()) == "there is no metrics.json below the results directory"
    assert "is not JSON" in source.missing(report({"metrics.json": b'{"val_'}))
    other = report({"metrics.json": b'{"loss": 1, "f1": 2}'})
    assert source.missing(other) == "metrics.json has no number at val_mse; it holds: loss, f1"


def test_a_function_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "my_objective_a.py").write_text(
        "def score(report):\n    return report.metrics['a'] + len(report.read('x'))\n"
        "def broken(report):\n    return 1 / 0\n"
    )
    hook = Hook("my_objective_a:score", str(tmp_path))
    assert hook.value(report({"x": b"1234"}, metrics={"a": 0.5})) == 4.5
    with pytest.raises(TaoRayError, match="my_objective_a:broken failed at epoch 1: ZeroDivision"):
        Hook("my_objective_a:broken", str(tmp_path)).value(report())
    with pytest.raises(TaoRayError, match="cannot be imported"):
        Hook("my_objective_a:nothing", str(tmp_path)).load()


# -- a whole trial --------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run a shell program as a trial: its epochs with the objective's value, and its outcome."""
    platform = LocalPlatform(tmp_path / "jobs")

    def drive(program: str, source: Any, epochs: int = 3) -> Any:
        (tmp_path / "program.sh").write_text(program)
        text = {
            "name": "t",
            "model": {
                "network": "toy",
                "command": f"sh {tmp_path}/program.sh {{config_path}}",
                "spec": {"train": {"num_epochs": epochs, "optim": {"lr": 0.1}}},
            },
            "objective": {"metric": "f1", "direction": "maximize", "source": source},
            "search": {"parameters": {"train.optim.lr": {"min": 0.01, "max": 0.1}}},
        }
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(text))
        plan = make_plan(load_config(config))
        journal = Journal(tmp_path / "journal.sqlite")
        defaults = plan.derived.space.defaults()
        journal.append(Event("proposed", "0000", {"config": defaults, "info": {}}))
        supervisor = Supervisor("0000", plan.setup(gpus=0), platform, journal)
        seen: list[tuple[int, float | None]] = []
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            news = supervisor.next(0.5)
            if isinstance(news, Outcome):
                assert RunState.fold(journal.read()).trials["0000"].jobs[0].ended
                return seen, news
            if isinstance(news, Epoch):
                seen.append((news.epoch, news.metrics.get("f1")))
                loss = -news.metrics["f1"] if "f1" in news.metrics else None
                data = {"epoch": news.epoch, "metrics": {}, "loss": loss, "job": news.job}
                journal.append(Event("epoch", "0000", data))
        raise AssertionError("no outcome")

    yield drive
    platform.discard("0000")


def status(epoch: int, **kpi: float) -> str:
    line = {"epoch": epoch, "kpi": kpi, "status": "RUNNING", "message": "m"}
    return f"echo '{json.dumps(line)}' >> results/train/status.json\n"


def test_epochs_and_values_from_the_output(run: Run) -> None:
    program = "for e in 0 1 2; do echo \"epoch $e, f1: 0.$e\"; done; echo 'f1: done'\n"
    seen, outcome = run(program, {"log_regex": r"f1: ([\d.]+)"})
    assert seen == [(1, 0.0), (2, 0.1), (3, 0.2)]
    assert outcome.failure is None


def test_epochs_that_the_output_names(run: Run) -> None:
    program = 'for e in 1 3 5; do echo "epoch $e, f1: 0.$e"; done\n'
    source = {"log_regex": r"epoch (?P<epoch0>\d+), f1: (?P<value>[\d.]+)"}
    seen, _ = run(program, source, epochs=6)
    assert seen == [(2, 0.1), (4, 0.3), (6, 0.5)]


def test_a_file_that_grows_better_by_the_epoch(run: Run) -> None:
    program = "mkdir -p results/train\n" + "".join(
        f'echo \'{{"best": {{"f1": 0.{e}}}}}\' > results/best_score.json\n'
        f"{status(e, loss=1.0)}sleep 0.7\n"
        for e in range(3)
    )
    seen, outcome = run(program, {"file": "best_score.json", "json_path": "best.f1"})
    assert seen == [(1, 0.0), (2, 0.1), (3, 0.2)]
    assert outcome.failure is None


def test_a_function_sees_metrics_and_output(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my_objective_b.py").write_text(
        "def score(report):\n"
        "    return report.metrics['loss'] * 2 if 'ready' in report.log else None\n"
    )
    program = f"mkdir -p results/train; echo ready; sleep 0.5\n{status(0, loss=0.25)}"
    seen, outcome = run(program, {"python": "my_objective_b:score"}, epochs=1)
    assert seen == [(1, 0.5)]
    assert outcome.failure is None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"log_regex": r"f1=(\d+)"}, r"f1: no line of the output matched 'f1=(\\d+)'"),
        ({"file": "metrics.json"}, "f1: metrics.json has no number at f1; it holds: loss"),
        ({"file": "other.json"}, "f1: there is no other.json below the results directory"),
    ],
)
def test_an_objective_that_is_nowhere_is_named_with_what_was_seen(
    run: Run, source: Any, text: str
) -> None:
    program = f"mkdir -p results/train; echo '{{\"loss\": 1}}' > results/metrics.json\n{status(0)}"
    _, outcome = run(program, source)
    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.METRIC_MISSING
    assert outcome.failure.message == text


def test_networks_whose_package_names_a_file_need_no_source(
    shared_dir: Path, tmp_path: Path
) -> None:
    package = shared_dir / "tao-bank/skills/models/tao-finetune-nv-tesseract-forecasting"
    config = tmp_path / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {"name": "t", "model": {"package": str(package)}, "platform": {"kind": "local"}}
        )
    )
    plan = make_plan(load_config(config))
    assert plan.setup(gpus=0).source == MetricFile("metrics.json", "val_mse")
    assert (plan.objective.metric, plan.objective.direction) == ("val_mse", "minimize")
