"""Baseline and final evaluation: real evaluate jobs on this machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from small_runs import SmallRun, configure, trained_checkpoint

from tao_ray.errors import TaoRayError
from tao_ray.experiment.evaluation import Evaluator
from tao_ray.experiment.jobs import JobStopped
from tao_ray.experiment.measure import Measure, Unmeasurable, find_measure, objective_checks
from tao_ray.experiment.plan import make_plan
from tao_ray.experiment.result import write_result
from tao_ray.experiment.retention import Retention
from tao_ray.journal import Journal, read_events
from tao_ray.network.status import StatusEvent
from tao_ray.platforms.base import JobHandle, LinkError
from tao_ray.platforms.local import LocalPlatform
from tao_ray.platforms.process_job import ProcessJob
from tao_ray.tracking.terminal import evaluation_lines
from tao_ray.trial.state import RunState

REPO = Path(__file__).parents[2]
STANDIN = REPO / "tao_ray" / "standin" / "package"


def evaluator(run: SmallRun, **options: Any) -> Evaluator:
    return Evaluator(run.plan, run.run_dir, run.platform, 0, run.journal, **options)


def on_disk(run: SmallRun, name: str) -> Any:
    return json.loads(run.run_dir.evaluation(name).read_text())


def journalled(run: SmallRun, name: str) -> Any:
    return RunState.fold(read_events(run.run_dir.journal)).evaluations[name]


def test_from_scratch_trial_0_is_measured_like_the_winner(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    before = evaluator(run).before_search()
    assert (before["status"], before["kind"]) == ("pending", "trial 0")
    assert "trial 0" in before["reason"]
    state = run.search()
    final = evaluator(run).after_search(state)
    baseline = journalled(run, "baseline")

    best = state.best(run.plan.objective)
    assert best is not None
    assert final["trial"] == best[0].id == "0001"
    assert final["epoch"] == best[1].epoch
    epoch = best[1].epoch - 1
    assert final["checkpoint"].endswith(f"/jobs/0001/results/train/model_epoch_{epoch:03d}.pth")
    assert final["metric_name"] == baseline["metric_name"] == "test_acc_1"
    assert (baseline["status"], baseline["trial"]) == ("measured", "0000")
    assert final["status"] == "measured"
    assert final["delta"] == final["metric"] - baseline["metric"] == final["improvement"]
    # Both are what the evaluate jobs themselves have reported.
    for record in (baseline, final):
        status = Path(record["results_dir"], "evaluate", "status.json").read_text().splitlines()
        assert json.loads(status[-1])["kpi"]["test_acc_1"] == record["metric"]
    assert on_disk(run, "final") == journalled(run, "final") == final
    assert on_disk(run, "baseline") == baseline


def test_the_winner_is_evaluated_with_its_own_hyperparameters(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    state = run.search()
    final = evaluator(run).after_search(state)
    spec = yaml.safe_load((run.run_dir.jobs / "eval-final" / "eval-final-1.yaml").read_text())
    config = state.trials[final["trial"]].config
    assert spec["model"]["hidden_dim"] == config["model.hidden_dim"]
    assert spec["evaluate"]["checkpoint"] == final["checkpoint"]


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    evaluator(run).before_search()
    state = run.search()
    first = evaluator(run).after_search(state)
    events = len(run.journal.read())
    assert evaluator(run).after_search(state) == first
    assert run.jobs() == ["0000-1", "0001-1", "eval-baseline-1", "eval-final-1"]
    assert len(run.journal.read()) == events


class LateLink(LocalPlatform):
    """Cannot be reached at first, like a machine that a resumed run is still looking for."""

    refused = 0

    def attach(self, job_id: str) -> JobHandle | None:
        if self.refused < 2:
            self.refused += 1
            raise LinkError("it is being looked for")
        return super().attach(job_id)


def test_a_machine_without_a_link_is_waited_for(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    state = run.search()
    platform = LateLink(run.run_dir.jobs)
    run.platform = platform
    assert evaluator(run).after_search(state)["status"] == "measured"
    assert platform.refused == 2


def test_a_winner_that_is_the_baseline_is_evaluated_once(tmp_path: Path) -> None:
    search = {
        "algorithm": "random",
        "parameters": {"model.hidden_dim": {"options": [16, 32, 64]}},
        "trials": 1,
        "max_epochs": 1,
    }
    run = SmallRun(configure(tmp_path, search=search))
    evaluator(run).before_search()
    final = evaluator(run).after_search(run.search())
    assert final["status"] == "reused"
    assert final["metric"] == journalled(run, "baseline")["metric"]
    assert final["delta"] == 0
    assert run.jobs() == ["0000-1", "eval-baseline-1"]


def _die_at_the_first_status(config: Any, run: SmallRun) -> None:
    """A driver that is killed while the final evaluation runs."""

    def watch(event: object) -> None:
        if isinstance(event, StatusEvent):
            os._exit(9)

    journal = Journal(run.run_dir.journal, wait_s=10)
    state = RunState.fold(journal.read())
    Evaluator(run.plan, run.run_dir, run.platform, 0, journal, watch=watch).after_search(state)


def test_a_driver_killed_during_the_final_evaluation(tmp_path: Path) -> None:
    config = configure(tmp_path)
    run = SmallRun(config)
    state = run.search()
    run.journal.close()
    child = multiprocessing.get_context("fork").Process(
        target=_die_at_the_first_status, args=(config, run)
    )
    child.start()
    child.join()
    assert child.exitcode == 9
    assert journalled(run, "final")["status"] == "running"
    started = (run.run_dir.jobs / ".jobs" / "eval-final-1" / "started").read_text()

    run.journal = Journal(run.run_dir.journal, wait_s=10)
    final = evaluator(run).after_search(state)
    assert final["status"] == "measured"
    assert final["job"] == "eval-final-1"
    assert (run.run_dir.jobs / ".jobs" / "eval-final-1" / "started").read_text() == started
    assert [j for j in run.jobs() if "final" in j] == ["eval-final-1"]


def test_a_stop_request_ends_the_job_and_another_attempt_measures(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    state = run.search()

    def stop(event: object) -> None:
        raise JobStopped

    with pytest.raises(JobStopped):
        evaluator(run, watch=stop).after_search(state)
    handle = run.platform.attach("eval-final-1")
    assert handle is not None
    end = handle.poll()
    assert end is not None
    final = evaluator(run).after_search(state)
    assert final["status"] == "measured"
    assert final["job"] == ("eval-final-2" if end.stopped else "eval-final-1")


def test_the_starting_checkpoint_is_measured_before_the_search(tmp_path: Path) -> None:
    checkpoint = trained_checkpoint(tmp_path / "before")
    model = {"package": "digits_mlp", "checkpoint": checkpoint}
    search = {
        "algorithm": "random",
        "parameters": {"train.optim.lr": {"min": 0.0002, "max": 0.01, "scale": "log"}},
        "trials": 2,
        "max_epochs": 2,
    }
    run = SmallRun(configure(tmp_path, model=model, search=search))
    baseline = evaluator(run).before_search()
    assert (baseline["status"], baseline["kind"]) == ("measured", "checkpoint")
    assert baseline["checkpoint"] == checkpoint
    assert 0 < baseline["metric"] < 1
    assert run.jobs() == ["eval-baseline-1"]
    assert evaluator(run).before_search() == baseline
    final = evaluator(run).after_search(run.search())
    assert final["baseline"] == baseline["metric"]
    assert final["improvement"] > 0  # it has trained on
    assert run.jobs() == ["0000-1", "0001-1", "eval-baseline-1", "eval-final-1"]


def test_a_failed_baseline_stops_the_run_with_its_cause(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"no checkpoint")
    run = SmallRun(configure(tmp_path, model={"package": "digits_mlp", "checkpoint": str(broken)}))
    with pytest.raises(TaoRayError) as caught:
        evaluator(run).before_search()
    assert "the baseline failed, so the search was not started" in str(caught.value)
    assert "--set baseline=skip" in str(caught.value)
    record = on_disk(run, "baseline")
    assert record["status"] == "failed"
    assert record["failure"]["evidence"]
    with pytest.raises(TaoRayError):  # a resumed run tries again
        evaluator(run).before_search()
    assert run.jobs() == ["eval-baseline-1", "eval-baseline-2"]


def test_a_baseline_can_be_skipped(tmp_path: Path) -> None:
    model = {"package": "digits_mlp", "checkpoint": str(tmp_path / "none.pth")}
    run = SmallRun(configure(tmp_path, model=model, baseline="skip"))
    assert evaluator(run).before_search()["status"] == "skipped"


def test_a_training_with_the_defaults_as_baseline(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path, baseline="train"))

    def stop_at_evaluation(event: object) -> None:
        if journalled(run, "baseline")["action"] == "evaluate":
            raise JobStopped

    with pytest.raises(JobStopped):
        evaluator(run, watch=stop_at_evaluation).before_search()
    baseline = evaluator(run).before_search()
    assert (baseline["status"], baseline["kind"]) == ("measured", "train")
    assert baseline["trained_s"] > 0
    assert baseline["metric_name"] == "test_acc_1"
    assert [j for j in run.jobs() if j.startswith("train")] == ["train-baseline-1"]
    final = evaluator(run).after_search(run.search())
    assert final["delta"] == pytest.approx(final["metric"] - baseline["metric"])


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_the_checkpoints_of_a_trained_baseline_go_when_it_is_measured(
    tmp_path: Path, mode: str
) -> None:
    run = SmallRun(configure(tmp_path, baseline="train", retention={"mode": mode}))
    evaluator(run).before_search()
    state = run.search()
    assert evaluation_lines(state) == [
        f"baseline: test_acc_1 = {state.evaluations['baseline']['metric']:.6g}"
    ]
    train = run.run_dir.jobs / "baseline" / "results" / "train"
    checkpoints = sum(p.stat().st_size for p in train.glob("model_epoch_*.pth"))
    assert checkpoints > 0
    retention = Retention(
        run.plan.network, run.plan.objective, run.platform, run.journal, mode=mode
    )
    assert retention.finish(state, []) == []
    assert bool(list(train.glob("model_epoch_*.pth"))) is (mode == "manual")
    assert (train / "status.json").is_file()
    told = RunState.fold(run.journal.read())
    assert told.deleted_bytes == (checkpoints if mode == "auto" else 0)
    final = evaluator(run).after_search(state)
    assert evaluation_lines(RunState.fold(run.journal.read()))[1] == (
        f"final evaluation: test_acc_1 = {final['metric']:.6g}, {final['delta']:+.4g} from the "
        f"baseline's {final['baseline']:.6g}"
    )
    # A resumed run has nothing more to delete, and does not measure again.
    assert retention.finish(state, []) == []
    assert evaluator(run).before_search()["status"] == "measured"


def test_the_result_says_where_data_was_read_from(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path, data={"train_sample_count": 100}))
    records = [
        {
            "source": "s3://bucket/train",
            "keys": ["train"],
            "status": "staged",
            "path": "/cache/abc",
            "bytes": 10,
            "files": 1,
            "seconds": 0.1,
        }
    ]
    run.run_dir.evaluations.mkdir()
    run.run_dir.evaluation("data_staging").write_text(json.dumps({"data": records}))
    result = write_result(run.plan, run.run_dir, run.search(), run.platform, "done", "")
    assert result.data["data_staging"] == records
    schema = json.loads((REPO / "docs" / "result.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(run.run_dir.result.read_text()))


def test_a_checkpoint_that_was_not_kept(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path))
    state = run.search()
    best = state.best(run.plan.objective)
    assert best is not None
    train = run.run_dir.jobs / best[0].id / "results" / "train"
    (train / f"model_epoch_{best[1].epoch - 1:03d}.pth").unlink()
    final = evaluator(run).after_search(state)
    assert final["status"] == "measured"
    assert (
        final["note"] == f"no checkpoint was written after epoch {best[1].epoch}: this is epoch 1"
    )
    for path in train.glob("*.pth"):
        path.unlink()
    final = evaluator(run).after_search(state)
    assert (final["status"], final.get("metric")) == ("failed", None)
    assert "there is no checkpoint of trial 0001" in final["reason"]


def test_a_metric_that_the_evaluation_does_not_report(tmp_path: Path) -> None:
    evaluation = {"metric": "mAP", "direction": "maximize"}
    run = SmallRun(configure(tmp_path, evaluation=evaluation))
    final = evaluator(run).after_search(run.search())
    assert final["status"] == "failed"
    assert final["failure"]["kind"] == "metric_missing"
    assert "mAP never appeared; seen: test_acc_1, test_loss" in final["reason"]


def test_an_evaluation_may_have_other_gpus_than_a_trial(tmp_path: Path) -> None:
    run = SmallRun(configure(tmp_path, evaluation={"gpus": 1}))
    run.platform = LocalPlatform(run.run_dir.jobs, gpus=["7"])
    final = evaluator(run).after_search(run.search())
    assert final["gpus"] == 1
    gpus = {}
    for job in ("0001-1", "eval-final-1"):
        handle = run.platform.attach(job)
        assert isinstance(handle, ProcessJob)
        gpus[job] = handle.gpus
    assert gpus == {"0001-1": (), "eval-final-1": ("7",)}


def test_a_metric_of_unknown_direction_is_refused(tmp_path: Path) -> None:
    plan = make_plan(configure(tmp_path, evaluation={"metric": "mAP"}))
    with pytest.raises(TaoRayError, match="whether 'mAP' is to be minimized or maximized"):
        find_measure(plan)


def without_evaluate(tmp_path: Path) -> str:
    """The stand-in's package without its evaluate action."""
    package = tmp_path / "unevaluated"
    shutil.copytree(STANDIN, package)
    path = package / "references" / "skill_info.yaml"
    info = yaml.safe_load(path.read_text())
    del info["actions"]["evaluate"]
    path.write_text(yaml.safe_dump(info))
    return str(package)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_network_that_cannot_be_evaluated_must_be_accepted(
    tmp_path: Path, accepted: bool
) -> None:
    config = configure(
        tmp_path,
        model={"package": without_evaluate(tmp_path)},
        objective={"accept_proxy": accepted},
    )
    plan = make_plan(config)
    measure = find_measure(plan)
    assert isinstance(measure, Unmeasurable)
    (check,) = objective_checks(plan)
    assert (check.ok, check.warning) == (False, accepted)
    assert "has no action that evaluates what train makes" in check.detail
    assert ("objective.accept_proxy=true" in check.remedy) is not accepted


def test_without_an_evaluation_the_records_say_why(tmp_path: Path) -> None:
    model = {"package": without_evaluate(tmp_path)}
    run = SmallRun(configure(tmp_path, model=model, objective={"accept_proxy": True}))
    evaluator(run).before_search()
    final = evaluator(run).after_search(run.search())
    assert final["status"] == journalled(run, "baseline")["status"] == "not applicable"
    assert "has no action that evaluates" in final["reason"]
    assert final["accepted_proxy"] is True


def test_a_proxy_objective_must_be_accepted(tmp_path: Path, shared_dir: Path) -> None:
    package = shared_dir / "tao-bank" / "skills" / "models" / "tao-train-dino"
    keys = {
        f"dataset.{split}_data_sources[0].{leaf}": str(tmp_path / leaf)
        for split in ("train", "val")
        for leaf in ("image_dir", "json_file")
    }
    config = configure(
        tmp_path,
        model={"package": str(package)},
        data=keys,
        search={"algorithm": "random", "trials": 2},
        platform={"kind": "local"},
    )
    plan = make_plan(config)
    objective, evaluation = objective_checks(plan)
    assert objective.detail == (
        "val_mAP50 of the training stands in for test_mAP50, which only an evaluate job reports"
    )
    assert not objective.ok
    assert not objective.warning
    # The test data of the evaluation was not given either.
    assert isinstance(find_measure(plan), Unmeasurable)
    assert "dataset.test_data_sources" in evaluation.detail
    accepted = config.model_copy(
        update={"objective": config.objective.model_copy(update={"accept_proxy": True})}
    )
    assert all(check.warning for check in objective_checks(make_plan(accepted)))


def test_a_bare_command_is_not_evaluated_and_not_blocked(tmp_path: Path) -> None:
    model = {
        "network": "mine",
        "command": "mine train -e {config_path}",
        "spec": {"train": {"num_epochs": 2, "optim": {"lr": 0.001}}, "model": {"hidden_dim": 32}},
    }
    objective = {"metric": "val_loss", "direction": "minimize"}
    plan = make_plan(configure(tmp_path, model=model, objective=objective))
    (check,) = objective_checks(plan)
    assert check.warning


def test_the_measure_knows_its_data(tmp_path: Path) -> None:
    plan = make_plan(configure(tmp_path, data={"inference": "/data/test"}))
    measure = find_measure(plan)
    assert isinstance(measure, Measure)
    assert measure.data == {"dataset.test_dataset.images_dir": "/data/test"}
