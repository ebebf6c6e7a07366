"""digits_mlp trains as TAO does: status lines, checkpoints, resume, schedules."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from standin_jobs import Job, learning_rates

from tao_ray.network.status import EpochReport, StatusReader


class TestStatus:
    def test_order_of_lines(self, job: Job) -> None:
        assert job.run(values={"train.num_epochs": 2}).returncode == 0
        epoch = [
            "Eval metrics generated.",
            "Training loop in progress",
            "Train metrics generated.",
        ]
        assert job.messages() == [
            "Starting Digits MLP train.",
            "Experiment configuration:",
            "Starting Training Loop.",
            *epoch,
            *epoch,
            "Training loop complete.",
            "Train finished successfully.",
        ]
        statuses = [line["status"] for line in job.lines()]
        assert statuses == ["STARTED", "RUNNING", "STARTED", *["RUNNING"] * 8]

    def test_fields_of_an_epoch_line(self, trained: Job) -> None:
        line = next(line for line in trained.lines() if line.get("epoch") == 2)
        assert list(line) == [
            "epoch",
            "step",
            "max_epoch",
            "max_step",
            "time_per_epoch",
            "time_per_step",
            "eta",
            "date",
            "time",
            "status",
            "verbosity",
            "message",
            "kpi",
        ]
        assert line["max_epoch"] == 7
        assert line["step"] * 8 == line["max_step"] * 3
        assert re.fullmatch(r"\d:\d\d:\d\d(\.\d+)?", line["time_per_epoch"])
        assert re.fullmatch(r"[1-9]\d*/[1-9]\d*/\d{4}", line["date"])
        assert re.fullmatch(r"(0|[1-9]\d?):(0|[1-9]\d?):(0|[1-9]\d?)", line["time"])

    def test_kpi_is_sticky(self, job: Job) -> None:
        job.run(values={"train.num_epochs": 4, "train.validation_interval": 2})
        by_epoch = {line["epoch"]: line.get("kpi") for line in job.lines() if "epoch" in line}
        assert by_epoch[0] is None
        assert set(by_epoch[1] or {}) == {"val_loss", "val_acc_1"}
        assert set(by_epoch[2] or {}) == {"train_loss"}
        assert len(job.values()) == 2

    def test_our_reader_understands_it(self, trained: Job) -> None:
        reader = StatusReader(objective="val_acc_1")
        events = reader.feed((trained.results / "train/status.json").read_bytes())
        curve = [(e.epoch, dict(e.metrics)) for e in events if isinstance(e, EpochReport)]
        assert curve == list(enumerate(trained.values(), start=1))
        assert reader.finished

    def test_it_learns(self, trained: Job) -> None:
        values = trained.values()
        assert values[-1]["val_acc_1"] > 0.93
        assert values[0]["val_acc_1"] < values[-1]["val_acc_1"]
        assert values[-1]["val_loss"] < 0.6 * values[0]["val_loss"]


class TestCheckpoints:
    def test_all_are_kept_and_the_latest_is_a_link(self, trained: Job) -> None:
        directory = trained.results / "train"
        names = sorted(p.name for p in directory.iterdir())
        assert names == [
            "digits_mlp_model_latest.pth",
            "experiment.yaml",
            *(f"model_epoch_{e:03d}.pth" for e in range(8)),
            "status.json",
        ]
        latest = directory / "digits_mlp_model_latest.pth"
        assert latest.is_symlink()
        assert latest.resolve() == trained.checkpoint(7).resolve()

    def test_nothing_extra_is_saved_or_validated_at_the_end(self, job: Job) -> None:
        values = {
            "train.num_epochs": 5,
            "train.checkpoint_interval": 2,
            "train.validation_interval": 2,
        }
        job.run(values=values)
        assert [e for e in range(5) if job.checkpoint(e).exists()] == [1, 3]
        assert len(job.values()) == 2
        job.run(values=values)
        assert job.epochs() == [0, 1, 2, 3, 4, 4]

    def test_padding(self, job: Job) -> None:
        job.run(values={"train.num_epochs": 1, "train.checkpoint_mb": 5})
        assert 5e6 < job.checkpoint(0).stat().st_size < 6e6


class TestResume:
    def test_it_is_automatic_and_exact(self, job: Job, trained: Job) -> None:
        """Interrupted or not, the numbers are the same to the last bit."""
        values = {"train.num_epochs": 8, "train.optim.lr": 2e-3}
        process = job.start({**values, "train.seconds_per_epoch": 0.2})
        job.wait_for_epoch(2)
        process.kill()
        process.wait()
        assert job.run(values=values).returncode == 0
        assert "Resuming training from checkpoint: " in " ".join(job.messages())
        by_epoch = {}
        for line in job.lines():
            if line["message"] == "Training loop in progress":
                by_epoch[line["epoch"]] = line["kpi"]
        assert [by_epoch[e] for e in range(8)] == trained.values()

    def test_the_resume_key_wins_over_the_latest(self, job: Job, trained: Job) -> None:
        job.run(values={"train.num_epochs": 2})
        key = "train.resume_training_checkpoint_path"
        job.run(values={"train.num_epochs": 8, key: str(trained.checkpoint(5))})
        assert job.epochs() == [0, 1, 6, 7]

    def test_the_learning_rate_of_the_checkpoint_wins(self, job: Job) -> None:
        job.run(values={"train.num_epochs": 1, "train.optim.lr": 1e-3})
        log = job.run(values={"train.num_epochs": 2, "train.optim.lr": 5e-2}).stdout
        assert learning_rates(log) == {1: pytest.approx(1e-3 / 2)}

    def test_a_longer_training_lifts_the_schedule(self, job: Job) -> None:
        short = learning_rates(job.run(values={"train.num_epochs": 3}).stdout)
        longer = learning_rates(job.run(values={"train.num_epochs": 6}).stdout)
        assert sorted(short) == [0, 1, 2]
        assert sorted(longer) == [3, 4, 5]
        assert longer[3] > short[2]

    def test_a_pretrained_model_lends_its_weights_only(self, job: Job, trained: Job) -> None:
        values = {
            "train.num_epochs": 2,
            "train.optim.lr": 5e-4,
            "train.pretrained_model_path": str(trained.checkpoint(7)),
        }
        log = job.run(values=values).stdout
        assert learning_rates(log) == {0: pytest.approx(5e-4), 1: pytest.approx(5e-4 / 2)}
        assert job.epochs() == [0, 1]
        assert job.values()[0]["val_acc_1"] > 0.92

    def test_equal_epochs_again(self, job: Job) -> None:
        job.run(values={"train.num_epochs": 2})
        result = job.run(values={"train.num_epochs": 2})
        assert result.returncode == 0
        assert job.epochs() == [0, 1]
        assert job.messages().count("Train finished successfully.") == 2
        assert job.messages()[-1] == "Train finished successfully."

    def test_fewer_epochs_than_done(self, job: Job) -> None:
        job.run(values={"train.num_epochs": 2})
        result = job.run(values={"train.num_epochs": 1})
        assert result.returncode == 1
        assert "FAILURE" not in [line["status"] for line in job.lines()]
        assert job.messages().count("Train finished successfully.") == 1

    def test_another_shape_is_refused(self, job: Job, trained: Job) -> None:
        path = str(trained.checkpoint(7))
        result = job.run(
            values={"train.pretrained_model_path": path, "model.hidden_dim": 32},
        )
        assert result.returncode == 1
        assert "size mismatch" in result.stderr


class TestSettings:
    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            ("linear", [1, 2 / 3, 1 / 3]),
            ("cosine", [1, 0.75, 0.25]),
            ("step", [1, 0.1, 0.01]),
        ],
    )
    def test_schedules(self, job: Job, policy: str, expected: list[float]) -> None:
        values = {"train.optim.policy": policy, "train.optim.lr": 0.01}
        rates = learning_rates(job.run(values=values).stdout)
        assert list(rates.values()) == pytest.approx([0.01 * factor for factor in expected])

    def test_warm_up(self, job: Job) -> None:
        values = {"train.num_epochs": 4, "train.optim.warmup_epochs": 2, "train.optim.lr": 0.3}
        rates = learning_rates(job.run(values=values).stdout)
        assert list(rates.values()) == pytest.approx([0.1, 0.2, 0.3, 0.15])

    @pytest.mark.parametrize(
        "change",
        [
            {"model.dropout": 0.4},
            {"model.hidden_dim": 32},
            {"model.num_layers": 1},
            {"dataset.batch_size": 16},
            {"dataset.label_noise": 0.5},
            {"dataset.train_sample_count": 400},
            {"dataset.augmentation.random_shift.enable": True},
            {"dataset.augmentation.random_erase_max": 12},
            {"dataset.augmentation.noise_std": 0.2},
            {"train.label_smoothing": 0.2},
            {"train.seed": 5},
            {"train.optim.optim": "sgd"},
            {"train.optim.policy": "cosine"},
            {"train.optim.lr": 4e-3},
            {"train.optim.weight_decay": 0.5},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_every_setting_has_an_effect(
        self, job: Job, trained: Job, change: dict[str, object]
    ) -> None:
        job.run(values={"train.num_epochs": 8, "train.optim.lr": 2e-3, **change})
        assert job.values()[-1]["val_loss"] != trained.values()[-1]["val_loss"]
        assert math.isfinite(job.values()[-1]["val_loss"])

    def test_the_same_seed_gives_the_same_training(self, job: Job, trained: Job) -> None:
        job.run(values={"train.num_epochs": 8, "train.optim.lr": 2e-3, "dataset.workers": 3})
        assert job.values() == trained.values()

    def test_seconds_per_epoch(self, job: Job) -> None:
        job.run(values={"train.num_epochs": 2, "train.seconds_per_epoch": 0.3})
        durations = [line["time_per_epoch"] for line in job.lines() if "epoch" in line]
        assert all("0:00:00.3" <= text < "0:00:00.9" for text in durations)

    def test_the_users_own_data(self, job: Job, tmp_path: Path) -> None:
        bright, dark = ",".join(["16"] * 64), ",".join(["0"] * 64)
        (tmp_path / "digits.csv").write_text(f"{bright},1\n{dark},0\n" * 40)
        values = {
            "train.optim.lr": 1e-2,
            "dataset.train_dataset.images_dir": str(tmp_path),
            "dataset.val_dataset.images_dir": str(tmp_path),
            "dataset.label_noise": 0.0,
            "train.num_epochs": 10,
        }
        assert job.run(values=values).returncode == 0
        assert job.values()[-1]["val_acc_1"] == 1.0

    def test_a_diverging_training_ends_well_with_nan(self, job: Job) -> None:
        result = job.run(values={"train.optim.lr": 1e30})
        assert result.returncode == 0
        assert all(math.isnan(value["val_loss"]) for value in job.values())
        assert job.messages()[-1] == "Train finished successfully."
        assert "NaN" in (job.results / "train/status.json").read_text()


def test_distill_follows_a_teacher(new_job: Callable[[str], Job], trained: Job) -> None:
    values = {
        "distill.pretrained_teacher_model_path": str(trained.checkpoint(7)),
        "distill.loss_lambda": 0.9,
        "model.hidden_dim": 32,
    }
    student = new_job("student")
    assert student.run("distill", values).returncode == 0
    assert student.messages("distill")[-1] == "Distill finished successfully."
    assert (student.results / "distill/model_epoch_002.pth").is_file()

    alone = new_job("alone")
    alone.run("distill", {**values, "distill.loss_lambda": 0.0})
    losses = [
        [x["kpi"]["val_loss"] for x in job.lines("distill") if x["message"].startswith("Eval")]
        for job in (student, alone)
    ]
    assert losses[0] != losses[1]
