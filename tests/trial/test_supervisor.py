"""One trial supervised: real jobs of the stand-in network, a real journal, the real platform."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tao_ray.config import load_config
from tao_ray.experiment.plan import make_plan
from tao_ray.journal import Event, Journal
from tao_ray.platforms.local import LocalPlatform
from tao_ray.trial.failure import FailureKind
from tao_ray.trial.setup import Epoch, Idle, News, Outcome, TrialSetup
from tao_ray.trial.state import RunState, TrialState
from tao_ray.trial.supervisor import Supervisor

EPOCHS = 4


class Bench:
    """One trial of a small run, and what its journal says of it."""

    def __init__(self, path: Path):
        self.path = path
        self.journal = Journal(path / "journal.sqlite")
        self.platform = LocalPlatform(path / "jobs", slots=2)
        self.setup = self.make_setup()

    def make_setup(self, overrides: Mapping[str, Any] | None = None, **changes: Any) -> TrialSetup:
        import dataclasses

        import yaml

        config = self.path / "config.yaml"
        model = {"package": "digits_mlp", "overrides": dict(overrides or {})}
        config.write_text(
            yaml.safe_dump({"name": "t", "model": model, "search": {"max_epochs": EPOCHS}})
        )
        plan = make_plan(load_config(config))
        self.defaults = plan.derived.space.defaults()
        return dataclasses.replace(plan.setup(gpus=0), grace_s=5.0, **changes)

    def propose(self, trial_id: str, start: dict[str, Any] | None = None, **config: Any) -> None:
        data = {"config": {**self.defaults, **config}, "info": {}, "start": start}
        self.journal.append(Event("proposed", trial_id, data))

    def supervisor(self, trial_id: str = "0000") -> Supervisor:
        return Supervisor(trial_id, self.setup, self.platform, self.journal)

    def trial(self, trial_id: str = "0000") -> TrialState:
        return RunState.fold(self.journal.read()).trials[trial_id]

    def journal_epoch(self, news: Epoch, decision: str = "continue") -> None:
        """What the driver does with an epoch."""
        loss = -news.metrics["val_acc_1"]
        data = {"epoch": news.epoch, "metrics": dict(news.metrics), "loss": loss, "job": news.job}
        trial = news.job.rsplit("-", 1)[0]
        self.journal.append(
            Event("epoch", trial, data),
            Event("decision", trial, {"epoch": news.epoch, "decision": decision, "loss": loss}),
        )

    def drain(self, supervisor: Supervisor, until: int | None = None) -> list[News]:
        """Everything up to the outcome, or up to an epoch."""
        seen: list[News] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            news = supervisor.next(0.5)
            if isinstance(news, Idle):
                continue
            seen.append(news)
            if isinstance(news, Outcome):
                return seen
            assert isinstance(news, Epoch)
            self.journal_epoch(news)
            if news.epoch == until:
                return seen
        raise AssertionError(f"no outcome; seen {seen}")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for trial in RunState.fold(made.journal.read()).trials:
        made.platform.discard(trial)


def curve(news: list[News]) -> list[tuple[int, float]]:
    return [(n.epoch, n.metrics["val_acc_1"]) for n in news if isinstance(n, Epoch)]


def test_a_trial_from_launch_to_outcome(bench: Bench) -> None:
    bench.propose("0000")
    news = bench.drain(bench.supervisor())
    assert [n.epoch for n in news[:-1] if isinstance(n, Epoch)] == [1, 2, 3, 4]
    assert isinstance(news[-1], Outcome)
    assert news[-1].failure is None
    # Training metrics come after their epoch: with the next one, the last with the outcome.
    assert isinstance(news[1], Epoch)
    assert "train_loss" in news[1].late[1]
    assert "train_loss" in news[-1].late[4]
    job = bench.trial().jobs[0]
    assert (job.id, job.segment, job.resume_epoch, job.code) == ("0000-1", 1, 0, 0)
    assert job.launched is not None
    assert job.ended is not None


def test_a_new_supervisor_attaches_to_the_running_job(bench: Bench) -> None:
    bench.setup = bench.make_setup({"train.seconds_per_epoch": 0.3})
    bench.propose("0000")
    first = bench.drain(bench.supervisor(), until=2)
    rest = bench.drain(bench.supervisor())  # the first is gone without a word
    assert [epoch for epoch, _ in curve(first) + curve(rest)] == [1, 2, 3, 4]
    assert [j.id for j in bench.trial().jobs] == ["0000-1"]


def test_a_job_that_ended_unwatched_is_read_to_its_end(bench: Bench) -> None:
    bench.propose("0000")
    bench.drain(bench.supervisor(), until=1)
    handle = bench.platform.attach("0000-1")
    assert handle is not None
    while handle.poll() is None:
        time.sleep(0.05)
    rest = bench.drain(bench.supervisor())
    assert [epoch for epoch, _ in curve(rest)] == [2, 3, 4]
    assert isinstance(rest[-1], Outcome)
    assert rest[-1].failure is None
    assert len(bench.trial().jobs) == 1


def test_a_stopped_trial_goes_on_from_its_checkpoint_as_if_never_stopped(bench: Bench) -> None:
    bench.setup = bench.make_setup({"train.seconds_per_epoch": 0.2})
    bench.propose("0000")
    bench.propose("0001")
    undisturbed = curve(bench.drain(bench.supervisor("0001")))
    supervisor = bench.supervisor()
    before = bench.drain(supervisor, until=2)
    supervisor.stop()
    job = bench.trial().jobs[0]
    assert job.ended is not None
    after = bench.drain(bench.supervisor())
    assert curve(before) + curve(after) == undisturbed
    first, second = bench.trial().jobs
    assert (first.segment, first.resume_epoch, second.segment) == (1, 0, 2)
    assert second.resume_epoch >= 2  # the job may have been an epoch ahead of what was heard


@pytest.mark.parametrize("heard", [0, 1])
def test_epochs_that_nobody_heard_of_before_a_stop_are_reported_after_it(
    bench: Bench, heard: int
) -> None:
    bench.setup = bench.make_setup({"train.seconds_per_epoch": 0.2})
    bench.propose("0000")
    supervisor = bench.supervisor()
    before = bench.drain(supervisor, until=1) if heard else [supervisor.next(0.01)]
    handle = bench.platform.attach("0000-1")
    assert handle is not None
    while not any("model_epoch_002" in path for path in handle.list("results")):
        time.sleep(0.02)
    supervisor.stop()
    after = bench.drain(bench.supervisor())
    assert [e for e, _ in curve(before) + curve(after)] == [1, 2, 3, 4]


def test_a_checkpoint_of_an_unreported_epoch_is_not_resumed_from(bench: Bench) -> None:
    bench.setup = bench.make_setup({"train.seconds_per_epoch": 0.3})
    bench.propose("0000")
    supervisor = bench.supervisor()
    supervisor.next(0.01)
    handle = bench.platform.attach("0000-1")
    assert handle is not None
    while not any("model_epoch_000" in path for path in handle.list("results")):
        time.sleep(0.02)
    supervisor.stop()
    # As if the job had been killed after its first checkpoint and before that epoch's line.
    status = bench.path / "jobs" / "0000" / "results" / "train" / "status.json"
    status.write_text("".join(status.read_text().splitlines(keepends=True)[:3]))
    after = bench.drain(bench.supervisor())
    assert [e for e, _ in curve(after)] == [1, 2, 3, 4]


def test_a_paused_trial_resumes_from_its_rung_although_its_job_ran_on(bench: Bench) -> None:
    bench.propose("0000")
    supervisor = bench.supervisor()
    news: list[News] = []
    while not news or news[-1] == Idle():
        news.append(supervisor.next(0.5))
    assert isinstance(news[-1], Epoch)
    bench.journal_epoch(news[-1], decision="pause")
    handle = bench.platform.attach("0000-1")
    assert handle is not None
    while handle.poll() is None:  # the driver is dead: nobody stops the job
        time.sleep(0.05)
    assert bench.supervisor().next(0.1) == Idle()  # paused: nothing is started
    assert bench.trial().jobs[0].ended is not None
    bench.journal.append(Event("resumed", "0000", {}))
    rest = bench.drain(bench.supervisor())
    assert [epoch for epoch, _ in curve(rest)] == [2, 3, 4]
    assert [(j.segment, j.resume_epoch) for j in bench.trial().jobs] == [(1, 0), (2, 1)]


def test_weights_of_a_donor_with_the_own_learning_rate(bench: Bench) -> None:
    bench.propose("0000")
    bench.drain(bench.supervisor())
    bench.propose("0001", start={"trial_id": "0000", "epoch": 2}, **{"train.optim.lr": 0.003})
    news = bench.drain(bench.supervisor("0001"))
    assert [epoch for epoch, _ in curve(news)] == [3, 4]  # the remaining epochs, numbered on
    handle = bench.platform.attach("0001-1")
    assert handle is not None
    log = b"\n".join(e.data for e in handle.events() if hasattr(e, "data") and b"rate" in e.data)
    rates = [
        float(line.rsplit(b" ", 1)[1]) for line in log.splitlines() if b"learning rate" in line
    ]
    assert rates[0] == pytest.approx(0.003, rel=0.01)


def test_an_ended_trial_is_never_started_again(bench: Bench) -> None:
    bench.propose("0000")
    bench.drain(bench.supervisor())
    ended = {"status": "completed", "failure": None, "late": {}}
    bench.journal.append(Event("ended", "0000", ended))
    assert bench.supervisor().next(0.1) == Idle()
    assert len(bench.trial().jobs) == 1


def test_a_full_platform_is_waited_for(bench: Bench) -> None:
    bench.setup = bench.make_setup({"train.seconds_per_epoch": 0.5})
    for trial in ("0000", "0001", "0002"):
        bench.propose(trial)
    first, second, third = (bench.supervisor(t) for t in ("0000", "0001", "0002"))
    first.next(0.2)
    second.next(0.2)
    assert third.next(0.1) == Idle("all 2 slots are taken")
    assert bench.trial("0002").jobs[0].launched is None
    first.stop()
    assert third.next(1.0) != Idle("all 2 slots are taken")
    assert bench.trial("0002").jobs[0].launched is not None
    second.stop()
    third.stop()


@pytest.mark.parametrize(
    ("overrides", "config", "kind", "text"),
    [
        ({"dataset.train_dataset.images_dir": "/nowhere"}, {}, FailureKind.DATA, "num_samples=0"),
        ({}, {"model.hidden_dim": -8}, FailureKind.SPEC, ""),
    ],
)
def test_failures_say_why(
    bench: Bench, overrides: dict[str, Any], config: dict[str, Any], kind: FailureKind, text: str
) -> None:
    bench.setup = bench.make_setup(overrides)
    bench.propose("0000", **config)
    outcome = bench.drain(bench.supervisor())[-1]
    assert isinstance(outcome, Outcome)
    assert outcome.failure is not None
    assert outcome.failure.kind is kind, outcome.failure
    assert text in outcome.failure.message


def test_a_metric_that_never_appears_is_named_with_what_was_seen(bench: Bench) -> None:
    bench.setup = bench.make_setup(metric="mAP")
    bench.propose("0000")
    supervisor = bench.supervisor()
    news: News = Idle()
    while not isinstance(news, Outcome):
        news = supervisor.next(0.5)
    assert news.failure is not None
    assert news.failure.kind is FailureKind.METRIC_MISSING
    assert news.failure.message == "mAP never appeared; seen: train_loss, val_acc_1, val_loss"


def test_a_job_that_takes_too_long_is_ended(bench: Bench) -> None:
    bench.setup = bench.make_setup({"train.seconds_per_epoch": 30}, job_timeout_s=0.5)
    bench.propose("0000")
    outcome = bench.drain(bench.supervisor())[-1]
    assert isinstance(outcome, Outcome)
    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.TIMEOUT
    assert bench.trial().jobs[0].ended is not None


def test_a_job_somebody_else_ends_is_continued_not_believed(bench: Bench) -> None:
    import os
    import signal

    bench.setup = bench.make_setup({"train.seconds_per_epoch": 0.3})
    bench.propose("0000")
    supervisor = bench.supervisor()
    before = bench.drain(supervisor, until=1)
    for entry in Path("/proc").iterdir():  # SIGTERM from outside: TAO exits 0 without finishing
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(bench.path).encode() in words and b"digits_mlp" in words:
                os.kill(int(entry.name), signal.SIGTERM)
    outcome = bench.drain(supervisor)[-1]
    assert isinstance(outcome, Outcome)
    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.MACHINE_LOST
    bench.journal.append(Event("retry", "0000", {"failure": outcome.failure.to_json()}))
    after = bench.drain(supervisor)
    assert [e for e, _ in curve(before) + curve(after)][-1] == EPOCHS
    assert bench.trial().jobs[1].resume_epoch >= 1
