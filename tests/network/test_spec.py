from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from toy_package import Toy

from tao_ray.config import DataConfig, ModelConfig, ObjectiveConfig
from tao_ray.network import Adjustment, Network, Spec, SpecError, build_spec, resolve_network
from tao_ray.network.tree import flatten, get_path, join_path, load_yaml, set_path, split_path


def build(network: Network, assignment: dict[str, Any] | None = None, **options: Any) -> Spec:
    options = {"results_dir": "/r/t", "num_epochs": 12, **options}
    return build_spec(network, assignment or {}, **options)


def test_the_run_decides_over_the_assignment(toy: Toy) -> None:
    spec = build(toy.resolve(), {"train.optim.lr": 0.1, "train.num_epochs": 3}, gpus=2)
    train = spec.data["train"]
    assert (train["optim"]["lr"], train["num_epochs"]) == (0.1, 12)
    assert (train["num_gpus"], train["gpu_ids"]) == (2, [0, 1])
    assert spec.data["results_dir"] == "/r/t"


def test_the_base_spec_is_never_changed(toy: Toy) -> None:
    network = toy.resolve()
    before = yaml.safe_dump(network.base_spec)
    build(network, {"train.weights[0]": 5.0, "dataset.batch_size": 1}, gpus=4)
    assert yaml.safe_dump(network.base_spec) == before


def test_one_device_without_a_gpu_and_lists_of_equal_length(toy: Toy) -> None:
    toy.templates["train"]["train"] |= {"num_gpus": 8, "gpu_ids": [0]}
    train = build(toy.resolve()).data["train"]
    assert (train["num_gpus"], train["gpu_ids"]) == (1, [0])


@pytest.mark.parametrize(
    ("asked", "epochs", "milestones", "used"),
    [
        (1, 27, [1, 3, 9], 1),
        (4, 27, [9], 3),
        (9, 27, [9], 9),
        (50, 30, [], 30),
        (4, 10, [], 2),
        (7, 7, [], 7),
        (5, 8, [4, 6], 2),
        (3, 27, [3, 9], 3),
    ],
)
def test_intervals_divide_every_milestone_and_the_end(
    toy: Toy, asked: int, epochs: int, milestones: list[int], used: int
) -> None:
    toy.templates["train"]["train"] |= {"validation_interval": asked, "checkpoint_interval": asked}
    spec = build(toy.resolve(), num_epochs=epochs, milestones=milestones)
    train = spec.data["train"]
    assert train["validation_interval"] == train["checkpoint_interval"] == used
    assert all(m % used == 0 for m in [*milestones, epochs])
    assert len(spec.adjustments) == (0 if used == asked else 2)


def test_an_adjustment_says_what_and_why(toy: Toy) -> None:
    spec = build(toy.resolve(), num_epochs=27, milestones=[3, 9])
    assert spec.adjustments == (
        Adjustment(
            "train.checkpoint_interval", 4, 3, "it must divide the decision epochs 3, 9, 27"
        ),
    )


def test_a_checkpoint_interval_of_the_users(toy: Toy) -> None:
    spec = build(toy.resolve(), num_epochs=12, checkpoint_interval=6)
    assert spec.data["train"]["checkpoint_interval"] == 6
    assert spec.adjustments == ()


def test_checkpoints_are_counted_in_epochs(toy: Toy) -> None:
    toy.templates["train"]["train"]["checkpoint_interval_unit"] = "step"
    spec = build(toy.resolve())
    assert spec.data["train"]["checkpoint_interval_unit"] == "epoch"
    assert spec.adjustments[0].key == "train.checkpoint_interval_unit"


def test_batches_are_capped_to_a_share_of_the_samples(toy: Toy) -> None:
    network = toy.resolve()
    spec = build(network, gpus=2, train_sample_count=21)
    assert spec.data["dataset"]["batch_size"] == 10
    assert spec.adjustments == (
        Adjustment(
            "dataset.batch_size", 16, 10, "21 training samples over 2 processes leave 10 each"
        ),
    )
    assert build(network, train_sample_count=16).adjustments == ()
    assert build(network, train_sample_count=16, shards=4).data["dataset"]["batch_size"] == 4
    with pytest.raises(SpecError) as error:
        build(network, train_sample_count=3, shards=4)
    assert str(error.value) == (
        "no batch size is possible:\n"
        "  dataset.batch_size: 3 training samples over 4 processes leave 0 each, fewer than 1;"
        " use fewer GPUs or more data"
    )


def test_a_capped_batch_keeps_whole_identities(shared_dir: Path) -> None:
    directory = shared_dir / "tao-bank" / "skills" / "models" / "tao-train-reid"
    network = resolve_network(
        ModelConfig(package=str(directory)),
        DataConfig(train="s3://b"),
        ObjectiveConfig(),
        Path("/"),
    )
    spec = build(network, train_sample_count=30)
    assert spec.data["dataset"]["batch_size"] == 28  # num_instances is 4


def test_weights_resume_and_start(toy: Toy) -> None:
    network = toy.resolve(checkpoint="/w/ptm.pth")
    train = build(network).data["train"]
    assert train["pretrained_model_path"] == "/w/ptm.pth"
    assert train["resume_training_checkpoint_path"] == ""
    train = build(network, resume_from="/r/model_epoch_002.pth").data["train"]
    assert train["pretrained_model_path"] == ""
    assert train["resume_training_checkpoint_path"] == "/r/model_epoch_002.pth"
    assert build(network, start_from="/w/donor.pth").data["train"]["pretrained_model_path"] == (
        "/w/donor.pth"
    )


def test_networks_that_resume_in_their_own_way() -> None:
    def bare(name: str, train: dict[str, Any]) -> Network:
        model = ModelConfig(
            network=name, command=f"{name} train -e {{config_path}}", spec={"train": train}
        )
        return resolve_network(model, DataConfig(), ObjectiveConfig(), Path("/"))

    keys = {"num_epochs": 1, "resume_training_checkpoint_path": ""}
    spec = build(bare("bevfusion", {**keys, "resume": False}), resume_from="/c.pth")
    assert spec.data["train"]["resume"] is True
    spec = build(bare("nvpanoptix3d", keys), resume_from="/c.pth")
    assert spec.data["train"]["num_epochs"] == 13
    assert spec.adjustments[0].reason == "this network counts one epoch more when it resumes"


def test_cosmos_reason_and_tesseract_have_their_own_keys(shared_dir: Path) -> None:
    models = shared_dir / "tao-bank" / "skills" / "models"

    def resolve(name: str, **data: Any) -> Network:
        return resolve_network(
            ModelConfig(package=str(models / name)),
            DataConfig(**data),
            ObjectiveConfig(),
            Path("/"),
        )

    names = {"train_dataset_annotation": "t.json", "eval_dataset_annotation": "v.json"}
    cosmos = resolve("tao-finetune-cosmos-reason", train="s3://b", eval="s3://b", annotations=names)
    spec = build(cosmos, num_epochs=5, gpus=4, resume_from="/c/epoch_2")
    assert spec.data["train"]["epoch"] == 5
    assert spec.data["train"]["resume"] == "/c/epoch_2"
    assert spec.data["train"]["output_dir"] == "/r/t"
    assert spec.data["policy"]["parallelism"]["dp_shard_size"] == 4
    tesseract = resolve("tao-finetune-nv-tesseract-forecasting", **{"dataset.csv": "/d.csv"})
    spec = build(tesseract, num_epochs=9)
    assert (spec.data["train"]["epochs"], spec.data["train"]["num_epochs"]) == (9, 9)
    assert spec.data["train"]["output_dir"] == "/r/t"


def test_toml_specs_read_back(shared_dir: Path) -> None:
    tomllib = pytest.importorskip("tomllib") if sys.version_info >= (3, 11) else None
    text = Spec({"a": {"b": [1, {"c": None, "d": 1e-5}], "e": None}}).render("toml")
    assert "c" not in text
    if tomllib:
        assert tomllib.loads(text) == {"a": {"b": [1, {"d": 1e-5}]}}


def test_yaml_specs_read_back_with_numbers_as_numbers() -> None:
    data = {"lr": 1e-5, "text": "1e-5", "inf": float("inf"), "none": None, "link": "${a.b}"}
    text = Spec(data).render("yaml")
    assert load_yaml(text, "x") == data
    assert yaml.safe_load(text)["lr"] == 1e-5
    assert load_yaml("lr: 1e-5\nbig: 2E+3\nword: e5", "x") == {
        "lr": 1e-5,
        "big": 2000.0,
        "word": "e5",
    }


def test_every_output_is_below_results_dir(toy: Toy) -> None:
    toy.templates["train"]["train"]["results_dir"] = "/elsewhere"
    toy.templates["train"]["export"] = {"results_dir": "/elsewhere"}
    toy.templates["train"]["model"]["results_dir"] = "${results_dir}/m"
    toy.train["outputs"]["train.table_file"] = {"type": "file"}
    data = build(toy.resolve()).data
    assert data["train"]["results_dir"] == "/r/t/train"
    assert data["train"]["table_file"] == "/r/t/train/table_file"
    assert data["model"]["results_dir"] == "${results_dir}/m"
    assert data["export"]["results_dir"] == "/elsewhere"  # another action's block


def test_unknown_assignments_are_refused(toy: Toy) -> None:
    with pytest.raises(SpecError) as error:
        build(toy.resolve(), {"train.optim.lrr": 1, "train.optim": 3})
    assert str(error.value) == (
        "unknown spec keys:\n"
        "  train.optim.lrr: no such spec key; did you mean train.optim.lr?\n"
        "  train.optim: is a block of the spec, not a value; set the keys in it"
    )


def test_a_checkpoint_without_a_place(toy: Toy) -> None:
    for section in (
        toy.templates["train"]["train"],
        toy.info["spec_params"]["train"],
        toy.train["inputs"],
    ):
        for key in ("pretrained_model_path", "resume_training_checkpoint_path"):
            section.pop(key, None)
            section.pop(f"train.{key}", None)
    network = toy.resolve()
    with pytest.raises(SpecError) as error:
        build(network, resume_from="/c.pth")
    assert str(error.value) == "toy cannot resume:\n  it has no key for it"
    with pytest.raises(SpecError) as error:
        build(network, start_from="/c.pth")
    assert str(error.value) == "/c.pth cannot be used:\n  train has no spec key that takes weights"


def test_paths_in_trees() -> None:
    assert split_path("a.b[1][2].c") == ["a", "b", 1, 2, "c"]
    assert join_path(["a", "b", 1, 2, "c"]) == "a.b[1][2].c"
    tree: dict[str, Any] = {"a": {"b": [1, 2]}, "empty": ""}
    set_path(tree, "a.b[2]", 3)
    set_path(tree, "x.y[0].z", 4)
    set_path(tree, "empty.k", 5)
    assert tree == {"a": {"b": [1, 2, 3]}, "empty": {"k": 5}, "x": {"y": [{"z": 4}]}}
    assert get_path(tree, "x.y[0].z") == 4
    assert get_path(tree, "x.y[1].z", "no") == "no"
    assert get_path(tree, "a.b.c", "no") == "no"
    assert flatten({"a": {"b": [{"c": 1}], "d": [1, 2], "e": {}}}) == {
        "a.b[0].c": 1,
        "a.d": [1, 2],
        "a.e": {},
    }
