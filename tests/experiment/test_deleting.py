"""Retention on a platform: what nothing needs is deleted, verified and journalled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from journalled import ended

from tao_ray.config import load_config
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.experiment.retention import BEST, UNNEEDED, Retention, needs_of, retention_summary
from tao_ray.journal import Event, Journal
from tao_ray.platforms.base import Job, JobHandle, LinkError
from tao_ray.platforms.local import LocalPlatform
from tao_ray.trial.state import RunState

SIZE = 1000


class Bench:
    """Trials whose jobs wrote checkpoints on the local platform."""

    def __init__(self, path: Path):
        config = path / "config.yaml"
        config.write_text("name: t\nmodel: {package: digits_mlp}\n")
        self.plan: Plan = make_plan(load_config(config))
        self.journal = Journal(path / "journal.sqlite")
        self.platform = LocalPlatform(path / "jobs")

    def retention(self, **options: Any) -> Retention:
        return Retention(
            self.plan.network, self.plan.objective, self.platform, self.journal, **options
        )

    def trial(self, trial: str, loss: float, ends: bool = True) -> None:
        self.train(trial)
        events = ended(trial, loss)
        self.journal.append(*(events if ends else events[:-2]))

    def train(self, trial: str, epochs: int = 4) -> None:
        loop = " ".join(f"{e:03d}" for e in range(epochs))
        command = (
            f"mkdir -p results/train && for e in {loop}; do"
            f" head -c {SIZE} /dev/zero > results/train/model_epoch_$e.pth; done;"
            " echo log > results/train/status.json"
        )
        handle = self.platform.launch(Job(f"{trial}-1", trial, command))
        for _ in handle.events():
            pass

    @property
    def state(self) -> RunState:
        return RunState.fold(self.journal.read())

    def files(self, trial: str) -> list[str]:
        handle = self.platform.attach(f"{trial}-1")
        assert handle is not None
        return sorted(path.split("/")[-1] for path in handle.list("results"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for trial in made.state.trials:
        made.platform.discard(trial)


def test_files_are_deleted_verified_and_journalled_while_the_run_goes_on(bench: Bench) -> None:
    bench.trial("0000", 0.3)
    bench.trial("0001", 0.1)
    bench.trial("0002", 0.0, ends=False)
    retention = bench.retention()
    retention.look(bench.state, (), now=100.0)
    assert retention.finish(bench.state, ()) == []
    assert bench.files("0000") == ["status.json"]
    assert bench.files("0001") == ["model_epoch_000.pth", "status.json"]
    # It runs, and may win with its first epoch; the last two were not reported.
    assert len([f for f in bench.files("0002") if f.startswith("model")]) == 4
    summary = retention_summary(bench.state)
    assert summary is not None
    assert summary["deleted_checkpoints"] == 7
    assert summary["deleted_bytes"] == 7 * SIZE
    assert summary["kept_bytes"] == 5 * SIZE
    assert summary["peak_bytes_per_trial"] == dict.fromkeys(("0000", "0001", "0002"), 4 * SIZE)
    assert {e["trial"]: e["why"] for e in summary["kept"]}["0001"] == BEST
    assert Path(summary["kept"][0]["path"]).is_file()


def test_a_second_driver_deletes_nothing_twice(bench: Bench) -> None:
    bench.trial("0000", 0.3)
    bench.trial("0001", 0.1)
    for _ in range(2):
        assert bench.retention().finish(bench.state, ()) == []
    assert [e.trial for e in bench.journal.read() if e.kind == "deleted"] == ["0000", "0001"]


class LosesContact(LocalPlatform):
    """Its attach fails once, the `call`-th time."""

    def __init__(self, root: Path, call: int):
        super().__init__(root)
        self.left = call

    def attach(self, job_id: str) -> JobHandle | None:
        self.left -= 1
        if self.left == 0:
            raise LinkError("no answer")
        return super().attach(job_id)


def test_what_was_deleted_before_contact_was_lost_is_counted(bench: Bench) -> None:
    bench.trial("0000", 0.3)
    bench.trial("0001", 0.1)
    bench.platform = LosesContact(bench.platform.root, call=3)
    retention = bench.retention()
    needs = needs_of(bench.state, bench.plan.objective, ())["0000"]
    with pytest.raises(LinkError):
        retention.clean("0000", needs)
    assert bench.files("0000") == ["status.json"]
    assert bench.state.trials["0000"].deleted == 0
    assert retention.finish(bench.state, ()) == []
    assert bench.state.trials["0000"].deleted == 4
    assert bench.state.trials["0001"].deleted == 3


def test_so_is_what_was_deleted_of_a_baseline(bench: Bench) -> None:
    bench.train("baseline")
    data = {"name": "baseline", "status": "measured", "trained_by": "baseline-1"}
    bench.journal.append(Event("evaluation", data=data))
    bench.platform = LosesContact(bench.platform.root, call=3)
    retention = bench.retention()
    retention.look(bench.state, (), now=100.0)
    assert retention.finish(bench.state, ()) == []
    assert bench.files("baseline") == ["status.json"]
    assert bench.state.deleted == 4
    bench.platform.discard("baseline")


def test_manual_deletes_nothing_and_lists_what_may_be(bench: Bench) -> None:
    bench.trial("0000", 0.3)
    bench.trial("0001", 0.1)
    retention = bench.retention(mode="manual")
    retention.look(bench.state, (), now=100.0)
    assert retention.finish(bench.state, ()) == []
    summary = retention_summary(bench.state)
    assert summary is not None
    assert summary["deleted_bytes"] == 0
    assert [e["why"] for e in summary["kept"]].count(UNNEEDED) == 7
    assert len(bench.files("0000")) == 5


def test_what_cannot_be_deleted_is_said(bench: Bench) -> None:
    bench.trial("0000", 0.3)
    bench.trial("0001", 0.1)
    folder = Path(bench.platform.workspace("0000"), "results", "train")
    protected = folder / "model_epoch_000.pth"
    if not _immutable(folder):
        pytest.skip("this user can delete anything")
    try:
        (problem,) = bench.retention().finish(bench.state, ())
    finally:
        folder.chmod(0o755)
    assert "0000" in problem
    assert protected.is_file()


def _immutable(folder: Path) -> bool:
    folder.chmod(0o555)
    try:
        probe = folder / "probe"
        probe.touch()
    except OSError:
        return True
    probe.unlink()
    folder.chmod(0o755)
    return False
