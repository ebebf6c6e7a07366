"""status.json bytes become the right epochs, however they are cut."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_ray.network.status import (
    EpochReport,
    EpochUpdate,
    Failure,
    Finished,
    Started,
    StatusEvent,
    StatusReader,
)

nan = math.nan


def line(message: str, status: str = "RUNNING", **fields: Any) -> bytes:
    """A line as TAO writes it; fields with an epoch come first there, which must not matter."""
    date = {"date": "11/30/2026", "time": "9:34:0", "status": status, "verbosity": "INFO"}
    return json.dumps({**date, "message": message, **fields}).encode() + b"\n"


def launch(name: str = "train") -> bytes:
    return (
        line(f"Starting Classification {name}.", "STARTED")
        + line("Experiment configuration:\nmodel_name: null\n")
        + line("Starting Training Loop.", "STARTED")
    )


def evaluated(**kpi: Any) -> bytes:
    return line("Eval metrics generated.", kpi=kpi)


def epoch(number: int, of: int = 10, **kpi: Any) -> bytes:
    fields: dict[str, Any] = {
        "epoch": number,
        "max_epoch": of - 1,
        "time_per_epoch": "0:00:02.500000",
    }
    if kpi:
        fields["kpi"] = kpi
    return line("Training loop in progress", **fields)


def trained(**kpi: Any) -> bytes:
    return line("Train metrics generated.", kpi=kpi)


FINISHED = line("Train finished successfully.")


def read(data: bytes, **options: Any) -> list[StatusEvent]:
    reader = StatusReader(**options)
    return reader.feed(data) + reader.close()


def reports(data: bytes, **options: Any) -> list[EpochReport]:
    return [event for event in read(data, **options) if isinstance(event, EpochReport)]


def curve(events: list[StatusEvent], metric: str) -> list[tuple[int, int, float]]:
    """(launch, epoch, value) of a metric, from reports and updates."""
    return [
        (event.launch, event.epoch, event.metrics[metric])
        for event in events
        if isinstance(event, EpochReport | EpochUpdate) and metric in event.metrics
    ]


# What the sample files of real runs hold.
THREE_EPOCHS_OF_40 = {
    "val_loss": [
        (1, 1, 0.24505023658275604),
        (1, 2, 0.2003704458475113),
        (1, 3, 0.24758119881153107),
    ],
    "val_acc_1": [(1, 1, 1.0), (1, 2, 0.9583333134651184), (1, 3, 0.9166666865348816)],
    "train_loss": [
        (1, 1, 0.9898656010627747),
        (1, 2, 0.7444773316383362),
        (1, 3, 0.8839189410209656),
    ],
}
SAMPLES: dict[str, dict[str, list[tuple[int, int, float]]]] = {
    "status_run1.json": {
        "val_loss": [
            (1, 1, 0.8599886894226074),
            (1, 2, 0.5708044171333313),
            (1, 3, 0.36174359917640686),
        ],
        "val_acc_1": [(1, e, 0.9166666865348816) for e in (1, 2, 3)],
        "val_acc_2": [
            (1, 1, 0.9166666865348816),
            (1, 2, 0.9583333134651184),
            (1, 3, 0.9583333134651184),
        ],
        "train_loss": [
            (1, 1, 1.0477813482284546),
            (1, 2, 0.8387291431427002),
            (1, 3, 0.8466472625732422),
        ],
    },
    "status_resume_2_then_4_epochs.json": {
        "val_loss": [
            (1, 1, 0.24505023658275604),
            (1, 2, 0.19255568087100983),
            (2, 3, 0.17493826150894165),
            (2, 4, 0.14005060493946075),
        ],
        "val_acc_1": [
            (1, 1, 1.0),
            (1, 2, 0.9583333134651184),
            (2, 3, 0.9583333134651184),
            (2, 4, 0.9583333134651184),
        ],
        "train_loss": [
            (1, 1, 0.9898656010627747),
            (1, 2, 0.7395445704460144),
            (2, 3, 0.5279828310012817),
            (2, 4, 0.5020321011543274),
        ],
    },
    "status_nan.json": {
        "val_loss": [(1, 1, nan), (1, 2, nan)],
        "val_acc_1": [(1, 1, 0.3333333432674408), (1, 2, 0.3333333432674408)],
        "train_loss": [(1, 1, nan), (1, 2, nan)],
    },
    "status_sigterm_child_exit0.json": THREE_EPOCHS_OF_40,
    "status_sigint_child.json": THREE_EPOCHS_OF_40,
    "status_sigterm_wrapper.json": THREE_EPOCHS_OF_40,
    "status_failure_caught.json": {"val_loss": []},
    "status_failure_uncaught_exit1.json": {"val_loss": []},
}
ENDS = {
    "status_run1.json": Finished("Train finished successfully.", 1),
    "status_resume_2_then_4_epochs.json": Finished("Train finished successfully.", 2),
    "status_nan.json": Finished("Train finished successfully.", 1),
    "status_sigterm_wrapper.json": Failure("File system error: [Errno 32] Broken pipe", 1),
    "status_failure_caught.json": Failure(
        "Parameter validation error: num_samples should be a positive integer value, "
        "but got num_samples=0",
        1,
    ),
}


@pytest.fixture(params=sorted(SAMPLES))
def sample(request: pytest.FixtureRequest, shared_dir: Path) -> tuple[str, bytes]:
    return request.param, (shared_dir / "tao-samples" / request.param).read_bytes()


class TestRealRuns:
    def test_curves(self, sample: tuple[str, bytes]) -> None:
        name, data = sample
        events = read(data)
        for metric, expected in SAMPLES[name].items():
            assert repr(curve(events, metric)) == repr(expected)  # NaN equals itself in print only

    @pytest.mark.parametrize("objective", ["val_loss", "train_loss", "absent"])
    def test_the_objective_changes_when_but_not_what(
        self, sample: tuple[str, bytes], objective: str
    ) -> None:
        name, data = sample
        events = read(data, objective=objective)
        for metric, expected in SAMPLES[name].items():
            assert repr(curve(events, metric)) == repr(expected)  # NaN equals itself in print only

    def test_how_it_ended(self, sample: tuple[str, bytes]) -> None:
        name, data = sample
        reader = StatusReader()
        ends = [e for e in reader.feed(data) if isinstance(e, Failure | Finished)]
        assert ends[-1:] == ([ENDS[name]] if name in ENDS else [])
        assert reader.finished == isinstance(ENDS.get(name), Finished)
        assert (reader.failure is not None) == isinstance(ENDS.get(name), Failure)
        assert reader.unreadable_lines == 0

    def test_epoch_fields(self, shared_dir: Path) -> None:
        data = (shared_dir / "tao-samples/status_resume_2_then_4_epochs.json").read_bytes()
        assert [(r.epoch, r.seconds, r.max_epochs, r.launch) for r in reports(data)] == [
            (1, 1.477229, 2, 1),
            (2, 1.399318, 2, 1),
            (3, 0.932612, 4, 2),
            (4, 1.008078, 4, 2),
        ]

    @pytest.mark.parametrize("objective", [None, "train_loss"])
    def test_every_cut_gives_the_same_events(
        self, sample: tuple[str, bytes], objective: str | None
    ) -> None:
        data = re.sub(rb"(Experiment configuration:\\n.{60}).*?\"}", rb'\1"}', sample[1])
        whole = repr(read(data, objective=objective))
        for cut in range(len(data) + 1):
            reader = StatusReader(objective=objective)
            events = reader.feed(data[:cut]) + reader.feed(data[cut:]) + reader.close()
            assert repr(events) == whole, cut

    def test_byte_by_byte(self, sample: tuple[str, bytes]) -> None:
        reader = StatusReader()
        events = [e for i in range(len(sample[1])) for e in reader.feed(sample[1][i : i + 1])]
        assert repr(events + reader.close()) == repr(read(sample[1]))


STREAM = (
    launch()
    + evaluated(val_loss=0.5, acc="0.25")
    + epoch(0, val_loss=0.5, acc="0.25")
    + trained(train_loss=nan)
    + epoch(1, train_loss=nan)
    + trained(train_loss=1.5)
    + b'{"date": "11/30/2026", "time": "9:3'
    + launch()
    + "läuft: ü\n".encode()
    + evaluated(val_loss=0.25)
    + epoch(1, val_loss=0.25)
    + FINISHED
)


@given(
    st.lists(st.integers(0, len(STREAM)), max_size=12),
    st.sampled_from([None, "val_loss", "train_loss", "absent"]),
)
@settings(max_examples=200, deadline=None)
def test_any_chunking_gives_the_same_events(cuts: list[int], objective: str | None) -> None:
    reader = StatusReader(objective=objective)
    bounds = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(bounds)]
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert repr(events + reader.close()) == repr(read(STREAM, objective=objective))


@given(st.binary(max_size=300))
def test_noise_never_raises(noise: bytes) -> None:
    read(noise + b"\n" + noise)


class TestAttribution:
    def test_a_validation_value_belongs_to_the_next_epoch_line(self) -> None:
        data = launch() + evaluated(val_loss=0.5) + epoch(0, val_loss=0.5)
        data += evaluated(val_loss=0.4)
        assert [(r.epoch, r.metrics) for r in reports(data)] == [(1, {"val_loss": 0.5})]

    def test_sticky_kpi_is_no_value_of_an_epoch_that_was_not_validated(self) -> None:
        data = launch() + epoch(0) + trained(train_loss=3.0)
        for number, value in ((1, 0.5), (3, 0.4)):
            data += evaluated(val_loss=value) + epoch(number, val_loss=value)
            data += trained(train_loss=2.0) + epoch(number + 1, train_loss=2.0)
        assert [(r.epoch, r.metrics) for r in reports(data)] == [
            (1, {}),
            (2, {"val_loss": 0.5}),
            (3, {}),
            (4, {"val_loss": 0.4}),
            (5, {}),
        ]

    def test_sticky_kpi_without_training_metrics_lines(self) -> None:
        data = launch()
        data += evaluated(mIoU=0.5) + epoch(0, mIoU=0.5) + epoch(1, mIoU=0.5)
        assert [r.metrics for r in reports(data)] == [{"mIoU": 0.5}, {}]

    def test_a_network_that_writes_its_values_on_the_epoch_line(self) -> None:
        data = launch()
        for number in range(3):
            data += line(
                "Train metrics generated.",
                epoch=number,
                max_epoch=80,
                time_per_epoch="1 day, 0:00:01.5",
                kpi={"loss": 2.0, "learning_rate": 0.1 / (number + 1)},
            )
        assert [(r.epoch, r.metrics["loss"], r.max_epochs) for r in reports(data)] == [
            (1, 2.0, 80),
            (2, 2.0, 80),
            (3, 2.0, 80),
        ]
        assert reports(data)[0].seconds == 86401.5

    def test_a_network_that_counts_from_one(self) -> None:
        data = launch() + line("Training loop in progress", epoch=1, max_epoch=5, kpi={"loss": 1})
        assert [(r.epoch, r.max_epochs) for r in reports(data, first_epoch=1)] == [(1, 5)]

    def test_training_metrics_before_the_epoch_line(self) -> None:
        data = launch()
        for number in (0, 1):
            data += trained(train_loss=number + 0.5) + epoch(number, train_loss=number + 0.5)
        assert [(r.epoch, r.metrics) for r in reports(data)] == [
            (1, {"train_loss": 0.5}),
            (2, {"train_loss": 1.5}),
        ]

    def test_progress_within_an_epoch_is_no_epoch(self) -> None:
        data = launch() + line("Training loop in progress", epoch=0.53, kpi={"loss": 1.0})
        assert reports(data) == []

    def test_values_of_a_killed_launch_do_not_leak_into_the_next(self) -> None:
        data = launch() + evaluated(val_loss=0.5) + launch() + epoch(0)
        assert [(r.launch, r.metrics) for r in reports(data)] == [(2, {})]

    def test_a_repeated_epoch_is_reported_with_the_newer_launch(self) -> None:
        first = launch() + evaluated(v=1.0) + epoch(3, v=1.0) + evaluated(v=2.0) + epoch(4, v=2.0)
        again = launch() + evaluated(v=3.0) + epoch(4, v=3.0)
        assert curve(read(first + again), "v") == [(1, 4, 1.0), (1, 5, 2.0), (2, 5, 3.0)]


class TestValues:
    def test_numbers_as_strings_and_names_of_all_kinds(self) -> None:
        kpi = {
            "val_mAP": "0.41",
            "val Precision at Rank 1": 0.5,
            "val/loss": "nan",
            "[bbox] val_mAP": "1e-3",
            "gap": math.inf,
        }
        (report,) = reports(launch() + evaluated(**kpi) + epoch(0))
        assert dict(report.metrics) == pytest.approx(
            {
                "val_mAP": 0.41,
                "val Precision at Rank 1": 0.5,
                "val/loss": nan,
                "[bbox] val_mAP": 0.001,
                "gap": math.inf,
            },
            nan_ok=True,
        )

    def test_what_is_no_number_is_left_out(self) -> None:
        kpi = {"model_path": "/results/x", "ok": True, "list": [1.0], "none": None, "v": 1}
        (report,) = reports(launch() + evaluated(**kpi) + epoch(0))
        assert report.metrics == {"v": 1.0}

    def test_names_seen_are_kept_for_the_error_about_a_missing_metric(self) -> None:
        reader = StatusReader(objective="val_acc")
        reader.feed(launch() + evaluated(val_acc_1=1.0) + epoch(0) + trained(train_loss=1.0))
        assert reader.metric_names_seen == ("val_acc_1", "train_loss")

    def test_the_result_of_an_action_without_epochs(self) -> None:
        reader = StatusReader()
        reader.feed(launch() + evaluated(test_acc=0.1) + FINISHED)
        reader.feed(launch("evaluate") + line("Test metrics generated.", kpi={"test_mAP": "0.7"}))
        assert reader.metrics == {"test_mAP": 0.7}
        assert not reader.finished


class TestTime:
    """An epoch is known the moment its line is read, never one epoch later."""

    def test_a_validated_objective_is_reported_at_the_epoch_line(self) -> None:
        reader = StatusReader(objective="val_loss")
        assert reader.feed(launch() + evaluated(val_loss=0.5)) == [
            Started("Starting Classification train.", 1)
        ]
        assert reader.feed(epoch(0, val_loss=0.5)) == [
            EpochReport(1, {"val_loss": 0.5}, 2.5, 10, 1)
        ]
        assert reader.feed(trained(train_loss=2.0)) == [EpochUpdate(1, {"train_loss": 2.0}, 1)]

    def test_a_training_objective_is_reported_when_it_is_there(self) -> None:
        reader = StatusReader(objective="train_loss")
        assert reader.feed(launch() + evaluated(val_loss=0.5) + epoch(0, val_loss=0.5))[1:] == []
        assert reader.feed(trained(train_loss=2.0)) == [
            EpochReport(1, {"val_loss": 0.5, "train_loss": 2.0}, 2.5, 10, 1)
        ]

    def test_an_epoch_without_validation_does_not_wait_once_the_network_is_known(self) -> None:
        reader = StatusReader(objective="val_loss")
        reader.feed(launch() + evaluated(val_loss=0.5) + epoch(0) + trained(train_loss=2.0))
        assert [type(e) for e in reader.feed(epoch(1))] == [EpochReport]

    def test_a_network_without_training_metrics_lags_at_most_once(self) -> None:
        reader = StatusReader(objective="absent")
        reader.feed(launch() + epoch(0))
        first, second = reader.feed(epoch(1))
        assert isinstance(first, EpochReport)
        assert isinstance(second, EpochReport)
        assert [type(e) for e in reader.feed(epoch(2))] == [EpochReport]

    def test_a_kill_between_the_two_lines_teaches_nothing(self) -> None:
        reader = StatusReader(objective="train_loss")
        reader.feed(launch() + epoch(0))
        held, started = reader.feed(launch())
        assert isinstance(held, EpochReport)
        assert isinstance(started, Started)
        assert reader.feed(epoch(0)) == []
        assert curve(reader.feed(trained(train_loss=2.0)), "train_loss") == [(2, 1, 2.0)]

    def test_the_end_of_the_stream_releases_what_was_held(self) -> None:
        reader = StatusReader(objective="train_loss")
        reader.feed(launch() + epoch(0))
        assert [type(e) for e in reader.close()] == [EpochReport]
        assert reader.close() == []


class TestLaunches:
    def test_finished_counts_for_its_own_launch_only(self) -> None:
        reader = StatusReader()
        reader.feed(launch() + FINISHED)
        assert reader.finished
        reader.feed(launch())
        assert not reader.finished

    def test_a_failure_counts_for_its_own_launch_only(self) -> None:
        reader = StatusReader()
        events = reader.feed(launch() + line("boom", "FAILURE"))
        assert events[-1] == Failure("boom", 1)
        assert reader.failure == "boom"
        reader.feed(launch())
        assert reader.failure is None

    def test_finishing_is_not_a_word_inside_a_message(self) -> None:
        reader = StatusReader()
        reader.feed(launch() + line("Whether it finished successfully. is unknown yet"))
        assert not reader.finished

    def test_a_network_that_announces_nothing_but_its_training_loop(self) -> None:
        loop = line("Starting Training Loop.", "STARTED")
        events = read(loop + epoch(0) + loop + epoch(0))
        assert [e.launch for e in events if isinstance(e, EpochReport)] == [1, 2]

    def test_half_a_line_of_a_killed_job_hides_nothing(self) -> None:
        torn = evaluated(val_loss=0.5)[:-4]
        data = launch() + evaluated(val_loss=0.9) + epoch(0) + torn + launch() + epoch(1)
        events = read(data)
        assert [type(e) for e in events] == [Started, EpochReport, Started, EpochReport]
        assert events[2] == Started("Starting Classification train.", 2)
        assert curve(events, "val_loss") == [(1, 1, 0.9)]

    def test_unreadable_lines_are_counted(self) -> None:
        reader = StatusReader()
        reader.feed(b'garbage\n{"half": \n\n[1]\n{"json": "but no status"}\n')
        assert reader.unreadable_lines == 4

    def test_a_last_line_without_newline_counts_when_the_stream_ends(self) -> None:
        reader = StatusReader()
        assert reader.feed(launch() + FINISHED.rstrip()) != []
        assert not reader.finished
        assert [type(e) for e in reader.close()] == [Finished]
