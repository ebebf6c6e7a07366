"""`objective.source: evaluate`: trials that are judged by an evaluate job. Real jobs, no Ray."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from small_runs import SmallRun, configure

from tao_ray.errors import TaoRayError
from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.evaluation import Evaluator
from tao_ray.experiment.jobs import JobStopped
from tao_ray.experiment.measure import objective_checks
from tao_ray.experiment.plan import make_plan
from tao_ray.experiment.retention import TO_EVALUATE, needs_of
from tao_ray.experiment.stop_rules import Limits
from tao_ray.experiment.trial_evaluations import TrialEvaluations
from tao_ray.journal import Journal
from tao_ray.network.status import StatusEvent
from tao_ray.trial.failure import FailureKind
from tao_ray.trial.setup import Epoch, Outcome
from tao_ray.trial.state import EVALUATING, RunState, TrialState
from tao_ray.trial.supervisor import Supervisor

EVALUATE = {"source": "evaluate"}


class EvaluatedRun(SmallRun):
    """A small run whose trials are evaluated; `train` and `evaluate` are the driver's steps."""

    def __init__(self, directory: Path, **sections: Any):
        super().__init__(configure(directory, **{"objective": EVALUATE, **sections}))
        self.conductor = self.make_conductor()

    def make_conductor(self) -> Conductor:
        plan = self.plan
        made = Conductor(
            plan.algorithm(),
            plan.objective,
            self.journal,
            Limits(plan.max_epochs, 1),
            plan.evaluation,
        )
        made.replay(self.journal.read())
        return made

    def train(self) -> TrialState:
        """Propose a trial and train it until its training is over."""
        trial = self.conductor.next_proposed()
        assert trial is not None
        supervisor = Supervisor(trial.id, self.plan.setup(0), self.platform, self.journal)
        while trial.trains:
            news = supervisor.next(1.0)
            if isinstance(news, Epoch):
                self.conductor.on_epoch(trial.id, news.epoch, news.metrics, job=news.job)
            elif isinstance(news, Outcome):
                assert news.failure is None, news.failure
                self.conductor.on_completed(trial.id, news.late)
        return trial

    def evaluations(self, watch: Any = lambda event: None) -> TrialEvaluations:
        evaluator = Evaluator(self.plan, self.run_dir, self.platform, 0, self.journal, watch=watch)
        return TrialEvaluations(evaluator, self.put_away, 1)

    def put_away(self, trial_id: str) -> None:
        Supervisor(trial_id, self.plan.setup(0), self.platform, self.journal).put_away()

    def evaluate(self) -> None:
        evaluations = self.evaluations()
        evaluations.finish(self.conductor, self.conductor.catch_up)
        evaluations.close()


def test_a_trial_is_judged_by_the_evaluation_of_its_chosen_checkpoint(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path)
    assert run.plan.objective.metric == "test_acc_1"
    assert run.plan.evaluation is not None
    assert run.plan.evaluation.guide is not None
    assert run.plan.evaluation.guide.metric == "val_acc_1"
    trial = run.train()
    assert (trial.status, trial.judged("best")) == (EVALUATING, None)
    assert run.conductor.next_proposed() is None  # it keeps its place
    run.evaluate()
    assert trial.status == "completed"
    judged = trial.judged("best")
    assert judged is not None
    guides = {e.epoch: e.metrics["val_acc_1"] for e in trial.epochs.values()}
    assert judged.epoch == max(guides, key=lambda e: (guides[e], -e))
    assert judged.loss == -trial.evaluation["metric"] == -judged.metrics["test_acc_1"]
    assert trial.evaluation["checkpoint"].endswith(f"model_epoch_{judged.epoch - 1:03d}.pth")
    assert run.jobs() == ["0000-1", "eval-0000-1"]
    assert run.conductor.next_proposed() is not None


def test_the_final_evaluation_is_the_trials_own(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path)
    for _ in range(2):
        run.train()
        run.evaluate()
    evaluator = Evaluator(run.plan, run.run_dir, run.platform, 0, run.journal)
    evaluator.before_search()
    final = evaluator.after_search(run.conductor.state)
    best = run.conductor.state.best(run.plan.objective)
    assert best is not None
    assert final["status"] == "reused"
    assert final["metric"] == best[0].evaluation["metric"] == -best[1].loss  # type: ignore[operator]
    assert run.jobs() == ["0000-1", "0001-1", "eval-0000-1", "eval-0001-1"]


def test_a_trained_baseline_is_chosen_by_the_training_s_own_metric(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path, baseline="train")
    record = Evaluator(run.plan, run.run_dir, run.platform, 0, run.journal).before_search()
    assert (record["status"], record["kind"]) == ("measured", "train")
    assert record["metric_name"] == "test_acc_1"
    assert record["checkpoint"].endswith(f"model_epoch_{record['epoch'] - 1:03d}.pth")


def test_the_proposer_hears_only_of_the_evaluation(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path)
    told: list[tuple[float | None, str]] = []
    proposer = run.conductor._proposer
    tell = proposer.tell

    def listen(trial_id: str, config: Any, fidelity: int, loss: Any, status: Any) -> None:
        told.append((loss, status.value))
        tell(trial_id, config, fidelity, loss, status)

    proposer.tell = listen  # type: ignore[method-assign]
    trial = run.train()
    assert told == []
    run.evaluate()
    assert told == [(-trial.evaluation["metric"], "completed")]


def test_a_failed_evaluation_fails_the_trial(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path)
    trial = run.train()
    for path in (run.run_dir.jobs / trial.id / "results" / "train").glob("*.pth"):
        path.write_bytes(b"no checkpoint")
    run.evaluate()
    assert trial.status == "failed"
    assert trial.failure is not None
    assert trial.judged("best") is None
    assert run.conductor.next_proposed() is not None


def test_a_metric_that_the_evaluation_does_not_report(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path, objective={**EVALUATE, "metric": "mAP", "direction": "maximize"})
    trial = run.train()
    run.evaluate()
    assert trial.failure is not None
    assert trial.failure.kind is FailureKind.METRIC_MISSING
    assert "mAP never appeared" in trial.failure.message


def test_a_trial_that_a_rung_stopped_is_evaluated_too(tmp_path: Path) -> None:
    search = {
        "algorithm": "asha",
        "parameters": {"train.optim.lr": {"min": 0.00001, "max": 0.01, "scale": "log"}},
        "trials": 6,
        "max_epochs": 4,
        "seed": 1,
        "options": {"reduction_factor": 2, "min_epochs": 1},
    }
    run = EvaluatedRun(tmp_path, search=search)
    while not run.conductor.finished():
        for trial_id in run.conductor.settle_losers():
            assert run.conductor.state.trials[trial_id].status == EVALUATING
        resumed = run.conductor.next_resumed()
        trial = resumed or run.conductor.next_proposed()
        if trial is not None:
            supervisor = Supervisor(trial.id, run.plan.setup(0), run.platform, run.journal)
            while trial.trains and trial.status != "paused":
                news = supervisor.next(1.0)
                if isinstance(news, Epoch):
                    run.conductor.on_epoch(trial.id, news.epoch, news.metrics, job=news.job)
                elif isinstance(news, Outcome):
                    assert news.failure is None
                    run.conductor.on_completed(trial.id)
            supervisor.stop()
            run.conductor.catch_up()
        run.evaluate()
    trials = run.conductor.state.trials.values()
    assert {t.status for t in trials} == {"completed", "stopped"}
    assert all(t.judged("best").loss == -t.evaluation["metric"] for t in trials)  # type: ignore[union-attr]
    # A driver that takes over comes to the same decisions.
    again = run.make_conductor()
    assert again.state.trials == run.conductor.state.trials


def test_the_checkpoint_to_evaluate_is_kept_until_then(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path)
    trial = run.train()
    needs = needs_of(run.conductor.state, run.plan.objective, [])["0000"]
    assert needs.chosen == ((trial.chosen, TO_EVALUATE),)


def _die_at_the_first_status(run: EvaluatedRun) -> None:
    def watch(event: object) -> None:
        if isinstance(event, StatusEvent):
            os._exit(9)

    run.journal = Journal(run.run_dir.journal, wait_s=10)
    run.conductor = run.make_conductor()
    run.evaluations(watch).finish(run.conductor, run.conductor.catch_up)


def test_a_driver_killed_during_an_evaluation(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path)
    run.train()
    run.journal.close()
    child = multiprocessing.get_context("fork").Process(
        target=_die_at_the_first_status, args=(run,)
    )
    child.start()
    child.join()
    assert child.exitcode == 9
    started = run.run_dir.jobs / ".jobs" / "eval-0000-1" / "started"
    first = started.read_text()

    run.journal = Journal(run.run_dir.journal, wait_s=10)
    run.conductor = run.make_conductor()
    trial = run.conductor.state.trials["0000"]
    assert trial.evaluation["status"] == "running"
    assert run.conductor.unfinished() == []
    run.evaluate()
    assert trial.status == "completed"
    assert run.jobs() == ["0000-1", "eval-0000-1"]
    assert started.read_text() == first


def test_a_stopped_evaluation_goes_on_in_another_job(tmp_path: Path) -> None:
    run = EvaluatedRun(tmp_path)
    trial = run.train()

    def stop(event: object) -> None:
        if isinstance(event, StatusEvent):
            raise JobStopped

    evaluations = run.evaluations(stop)
    evaluations.finish(run.conductor, run.conductor.catch_up)
    evaluations.close()
    assert RunState.fold(run.journal.read()).trials["0000"].status == EVALUATING
    run.evaluate()
    assert trial.status == "completed"


@pytest.mark.parametrize("algorithm", ["pbt", "pb2", "dehb"])
def test_algorithms_that_learn_from_rungs_are_refused(tmp_path: Path, algorithm: str) -> None:
    search = {"algorithm": algorithm, "trials": 8, "max_epochs": 8, "max_concurrent": 4}
    with pytest.raises(TaoRayError, match="learns from values at its rungs"):
        make_plan(configure(tmp_path, objective=EVALUATE, search=search))


def test_it_lifts_the_proxy_blocker(tmp_path: Path, shared_dir: Path) -> None:
    package = shared_dir / "tao-bank" / "skills" / "models" / "tao-train-dino"
    keys = {
        f"dataset.{split}_data_sources{index}.{leaf}": str(tmp_path / leaf)
        for split, index in (("train", "[0]"), ("val", "[0]"), ("test", ""))
        for leaf in ("image_dir", "json_file")
    }
    config = configure(
        tmp_path,
        model={"package": str(package)},
        data=keys,
        objective=EVALUATE,
        search={"algorithm": "random", "trials": 2},
        platform={"kind": "local"},
    )
    plan = make_plan(config)
    assert (plan.objective.metric, plan.objective.direction) == ("test_mAP50", "maximize")
    assert plan.evaluation is not None
    assert plan.evaluation.guide is not None
    assert plan.evaluation.guide.metric == "val_mAP50"
    assert [(c.name, c.ok) for c in objective_checks(plan)] == [("evaluation", True)]


def test_a_users_function_says_what_an_evaluation_is_worth(tmp_path: Path) -> None:
    (tmp_path / "judging_trials.py").write_text(
        "def score(report):\n"
        "    lines = report.read('evaluate/status.json').splitlines()\n"
        "    assert report.log\n"
        "    return 100 * report.metrics['test_acc_1'] + len(lines) / 1000 + report.epoch\n"
    )
    evaluation = {
        "metric": "score",
        "direction": "maximize",
        "python": "judging_trials:score",
    }
    run = EvaluatedRun(tmp_path, evaluation=evaluation)
    assert run.plan.objective.metric == "score"
    trial = run.train()
    run.evaluate()
    record, chosen = trial.evaluation, trial.chosen
    status = Path(record["results_dir"], "evaluate", "status.json").read_text().splitlines()
    value = 100 * record["metrics"]["test_acc_1"] + len(status) / 1000 + (chosen or 0)
    assert record["metric"] == record["metrics"]["score"] == value
    assert trial.judged("best").loss == -value  # type: ignore[union-attr]


def test_a_users_function_that_fails(tmp_path: Path) -> None:
    (tmp_path / "failing_judge.py").write_text("def score(report):\n    return report.read('no')\n")
    run = EvaluatedRun(tmp_path, evaluation={"python": "failing_judge:score"})
    trial = run.train()
    run.evaluate()
    assert trial.failure is not None
    assert "failing_judge:score failed at epoch" in trial.failure.message
    with pytest.raises(TaoRayError, match="cannot be imported"):
        EvaluatedRun(tmp_path, evaluation={"python": "no_such_module:score"}).evaluations()
