"""The table of conventions against NVIDIA's own lists and packages."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tao_ray.errors import TaoRayError
from tao_ray.network import conventions_for, load_package
from tao_ray.network.conventions import TABLE
from tao_ray.network.keys import known_keys

TESSERACT = {"tao-finetune-nv-tesseract-ad-diffusion", "tao-finetune-nv-tesseract-forecasting"}


def rows(shared_dir: Path) -> list[dict[str, str]]:
    with (shared_dir / "reference" / "tao-metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_network_of_the_list_is_in_the_table(shared_dir: Path) -> None:
    listed = {row["model"]: row["network_arch"] for row in rows(shared_dir)}
    assert len(listed) == 36
    of_nvidia = {n: entry.network_arch for n, entry in TABLE.items() if n != "digits_mlp"}
    assert of_nvidia == listed


def test_recommended_metric_and_direction_of_every_training(shared_dir: Path) -> None:
    for row in rows(shared_dir):
        if row["action"] == "inference_hpo":
            continue  # the packages state it themselves
        found = conventions_for(row["network_arch"], row["action"], row["model"])
        assert (found.metric or "", found.direction or "") == (row["metric"], row["direction"]), row


def test_source_of_the_metric(shared_dir: Path) -> None:
    for row in rows(shared_dir):
        found = conventions_for(row["network_arch"], row["action"], row["model"])
        source = row["selection_source"]
        if source.startswith("train"):
            assert found.metric_source == "status", row
        elif source.startswith("evaluate"):
            assert found.metric_source == "evaluate", row
            assert found.evaluate_metric == row["metric"]
        elif source == "unspecified":
            assert found.metric_source == "unspecified", row
        elif source == "metrics.json" and row["action"] == "train":
            assert found.metric_source == "file", row


def test_a_stand_in_is_what_the_training_is_documented_to_report(shared_dir: Path) -> None:
    checked = 0
    for row in rows(shared_dir):
        proxy = TABLE[row["model"]].proxy_metric
        if proxy is not None:
            checked += 1
            assert proxy in row["other_metrics"], row
            assert row["selection_source"].startswith("evaluate")
    assert checked == 7
    assert TABLE["tao-train-mask-auto-label"].proxy_metric is None  # none is documented


def test_metrics_of_trainings_are_among_those_tao_core_lists(shared_dir: Path) -> None:
    core = json.loads((shared_dir / "tao-samples" / "tao_core_network_metrics.json").read_text())
    # What is documented for AutoML but missing from tao-core's own list of monitored metrics.
    beyond = {"action_recognition", "mask_grounding_dino", "pose_classification", "ocdnet"}
    checked = 0
    for entry in TABLE.values():
        listed = core.get(entry.network_arch)
        metric = entry.proxy_metric or entry.metric
        if listed is None or entry.network_arch in beyond or entry.metric_cases:
            continue
        patterns = listed.get("dynamic_metric_patterns", [])
        known = metric in listed["available_metrics"]
        assert known or any(re.search(p, str(metric)) for p in patterns), entry.network_arch
        checked += 1
    assert checked >= 20


def test_keys_are_those_of_the_packages(shared_dir: Path) -> None:
    bank = shared_dir / "tao-bank"
    for directory in sorted((bank / "skills" / "models").iterdir()):
        package = load_package(directory.name, Path("/"), bank)
        action = package.actions["train"]
        known = known_keys(action, action.template or {}, {})
        found = conventions_for(package.network_arch, "train", package.name)
        stated = [
            found.start_key,
            found.resume_key,
            found.batch_multiple_key,
            found.num_gpus_key,
            found.gpu_ids_key,
            found.validation_interval_key,
            found.checkpoint_interval_key,
            *found.epoch_keys,
            *found.batch_size_keys,
        ]
        assert [k for k in stated if k is not None and k not in known] == [], package.name
        if package.gpu_spec_key:
            assert found.num_gpus_key == package.gpu_spec_key
        shorthand = package.shorthand.get("num_epochs")
        assert shorthand is None or shorthand in found.epoch_keys


@pytest.mark.parametrize("name", ["tao-finetune-clip", "tao-finetune-cosmos-reason"])
def test_networks_that_need_a_template(name: str) -> None:
    assert TABLE[name].template_required


def test_networks_that_need_converted_data() -> None:
    needing = {n for n, entry in TABLE.items() if entry.dataset_convert_required}
    assert needing == {
        "tao-train-bevfusion",
        "tao-train-pointpillars",
        "tao-train-ocrnet",
        "tao-train-sparse4d",
    }


def test_resuming_is_as_the_networks_want_it() -> None:
    common = "train.resume_training_checkpoint_path"
    others = {n: e.resume_key for n, e in TABLE.items() if e.resume_key != common}
    assert others == {
        "tao-finetune-cosmos-embed": None,
        "tao-finetune-cosmos-reason": "train.resume",
        "tao-finetune-video-clip": None,
        **dict.fromkeys(TESSERACT),
    }
    assert TABLE["tao-train-bevfusion"].resume_extra == {"train.resume": True}
    assert TABLE["tao-train-nvpanoptix3d"].resume_extra_epochs == 1


def test_a_shared_network_arch_needs_the_package() -> None:
    with pytest.raises(TaoRayError) as error:
        conventions_for("depth_net_stereo", "train")
    assert str(error.value) == (
        "model.network: 'depth_net_stereo' is the network of 2 packages:"
        " tao-train-fast-foundation-stereo, tao-train-foundation-stereo\n"
        "  -> use model.package with one of them, as their objectives differ"
    )
    assert conventions_for("depth_net_stereo", "train", "tao-train-foundation-stereo").metric == (
        "val/epe"
    )


def test_an_unknown_network_has_taos_common_form_and_no_objective() -> None:
    found = conventions_for("mine", "train")
    assert found.metric is None
    assert found.epoch_keys == ("train.num_epochs",)


def test_evaluations_have_their_own_metric_and_block() -> None:
    found = conventions_for("dino", "evaluate")
    assert (found.metric, found.metric_source) == ("test_mAP50", "status")
    assert found.num_gpus_key == "evaluate.num_gpus"
    assert found.checkpoint_key == "evaluate.checkpoint"
    assert found.epoch_keys == ()


def test_actions_with_conventions_of_their_own() -> None:
    segment: Any = conventions_for("visual-changenet", "segment_train")
    assert segment.batch_size_keys == ("dataset.segment.batch_size",)
    assert conventions_for("nv_tesseract_forecasting", "inference_hpo").checkpoint_key == (
        "inference.ckpt"
    )
