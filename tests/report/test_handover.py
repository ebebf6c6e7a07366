"""The hand-over: schemas, and that what is exported really is the winner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_runs import MadeRun

from tao_ray.cli import main
from tao_ray.config import load_config
from tao_ray.errors import TaoRayError
from tao_ray.experiment.plan import make_plan
from tao_ray.experiment.run_dir import RunDir
from tao_ray.network.spec import build_spec, flatten
from tao_ray.report import read_run
from tao_ray.report.handover import changes, export, handover

DOCS = Path(__file__).parents[2] / "docs"


def check(data: Any, schema: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = json.loads((DOCS / schema).read_text())
    jsonschema.Draft202012Validator.check_schema(text)
    jsonschema.Draft202012Validator(text).validate(data)


def strict(text: str) -> Any:
    """JSON as the standard has it, without NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_result_is_as_its_schema_says(done_run: RunDir) -> None:
    check(strict(done_run.result.read_text()), "result.schema.json")


def test_a_result_without_success_is_as_its_schema_says(tmp_path: Path) -> None:
    def diverging(*_: Any) -> float:
        return float("nan")

    run_dir = MadeRun(tmp_path, diverging, trials=3, algorithm="random").go().end()
    result = strict(run_dir.result.read_text())
    assert result["best"] is None
    check(result, "result.schema.json")


def test_a_hand_over_is_as_its_schema_says(done_run: RunDir, tmp_path: Path) -> None:
    made = export(read_run(done_run), tmp_path)
    data = strict((tmp_path / "handover.json").read_text())
    check(data, "handover.schema.json")
    assert data == made.data
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*data["files"], "handover.json"])


def test_overrides_are_what_differs_from_the_defaults(done_run: RunDir) -> None:
    run = read_run(done_run)
    assert run.best is not None
    data = handover(run).data
    defaults = run.state.trials["0000"].config
    config = run.best[0].config
    assert data["hyperparameters"] == dict(config)
    assert data["overrides"] == {k: v for k, v in config.items() if v != defaults[k]}
    assert changes(run, defaults) == {}


def test_the_spec_trains_the_winner_elsewhere(done_run: RunDir, tmp_path: Path) -> None:
    run = read_run(done_run)
    export(run, tmp_path)
    assert run.result is not None
    ours, theirs = yaml.safe_load((tmp_path / "spec.yaml").read_text()), run.result["best"]["spec"]
    different = {k for k, v in flatten(ours).items() if flatten(theirs)[k] != v}
    assert different == {"results_dir"}
    assert ours["results_dir"] == "./results"


@pytest.mark.parametrize("epochs", [None, 50])
def test_the_longer_training_is_the_winner_with_more_epochs(
    done_run: RunDir, tmp_path: Path, epochs: int | None
) -> None:
    run = read_run(done_run)
    export(run, tmp_path, epochs)
    plan = make_plan(load_config(tmp_path / "train_longer.yaml"))
    assert plan.settings.trials == 1
    assert plan.max_epochs == (epochs or 36)
    proposal = plan.algorithm().proposer.ask(0)
    assert run.result is not None
    best = run.result["best"]
    spec = build_spec(
        plan.network,
        proposal.config,
        results_dir=best["results_dir"],
        num_epochs=plan.max_epochs,
        milestones=plan.setup(0).milestones,
    )
    ours, theirs = flatten(spec.data), flatten(best["spec"])
    assert {k for k in ours if ours[k] != theirs[k]} == {"train.num_epochs"}


def test_a_user_s_own_overrides_stay(tmp_path: Path) -> None:
    made = MadeRun(
        tmp_path,
        trials=4,
        algorithm="random",
        max_epochs=2,
        overrides={"train": {"optim": {"gamma": 0.5}}, "train.optim.lr": 1e-3},
    )
    run = read_run(made.go().end())
    export(run, tmp_path / "winner")
    longer = load_config(tmp_path / "winner" / "train_longer.yaml")
    assert run.best is not None
    assert longer.model.overrides == {"train.optim.gamma": 0.5, **run.best[0].config}


def test_a_run_that_goes_on_has_nothing_to_hand_over(tmp_path: Path) -> None:
    run_dir = MadeRun(tmp_path).go(10).close()
    with pytest.raises(TaoRayError, match="no result yet"):
        handover(read_run(run_dir))


def test_without_success_there_is_nothing_to_hand_over(tmp_path: Path) -> None:
    made = MadeRun(tmp_path, lambda *_: float("nan"), trials=2, algorithm="random")
    with pytest.raises(TaoRayError, match="no trial has a result"):
        handover(read_run(made.go().end()))


def test_the_command(done_run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", str(done_run.path), "--to", str(tmp_path / "w"), "--epochs", "40"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "train longer: tao-ray tune train_longer.yaml --yes" in said
    assert "max_epochs: 40" in (tmp_path / "w" / "train_longer.yaml").read_text()
    with pytest.raises(SystemExit):
        main(["export", str(done_run.path), "--epochs", "0"])
