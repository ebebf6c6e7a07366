from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from toy_package import Toy

from tao_ray.config import DataConfig, ModelConfig, ObjectiveConfig
from tao_ray.errors import TaoRayError
from tao_ray.network import (
    Network,
    SpecError,
    build_spec,
    load_package,
    resolve_evaluation,
    resolve_network,
)
from tao_ray.network.keys import is_foreign
from tao_ray.network.tree import MISSING, flatten, get_path

DINO = {
    f"dataset.{part}_data_sources[0].{key}": f"s3://b/{part}/{key}"
    for part in ("train", "val")
    for key in ("image_dir", "json_file")
}
ANNOTATIONS = {"train_dataset_annotation": "t.json", "eval_dataset_annotation": "v.json"}
NAMED = {"train": "s3://b/train", "eval": "s3://b/val"}
# package -> (data, number of default parameters as NVIDIA's own controller finds them)
BANK: dict[str, tuple[dict[str, Any], int]] = {
    "tao-finetune-clip": (NAMED, 2),
    "tao-finetune-cosmos-reason": ({**NAMED, "annotations": ANNOTATIONS}, 4),
    "tao-finetune-nv-tesseract-forecasting": ({"dataset.csv": "/data/x.csv"}, 5),
    "tao-train-dino": (DINO, 17),
    "tao-train-image-classification": (NAMED, 22),
    "tao-train-ocrnet": (NAMED, 5),
    "tao-train-reid": ({"train": "s3://b/train"}, 1),
    "tao-train-visual-changenet": (NAMED, 20),
}


def of_bank(shared_dir: Path, name: str, action: str = "train", **model: Any) -> Network:
    directory = shared_dir / "tao-bank" / "skills" / "models" / name
    data = model.pop("data", None) or BANK[name][0]
    return resolve_network(
        ModelConfig(package=str(directory), action=action, **model),
        DataConfig(**data),
        ObjectiveConfig(),
        Path("/"),
    )


@pytest.mark.parametrize("name", BANK)
def test_every_training_of_the_bank_resolves(shared_dir: Path, name: str) -> None:
    network = of_bank(shared_dir, name)
    names = network.default_search_names()
    assert len(names) == BANK[name][1]
    assert all(n in network.known for n in names)
    assert not any(network.is_disabled(n) for n in names)
    assert network.metric is not None
    assert pickle.loads(pickle.dumps(network)).base_spec == network.base_spec
    left = [k for k, v in flatten(network.base_spec).items() if v == MISSING]
    assert all(is_foreign(k, network.action) for k in left)


@pytest.mark.parametrize("name", BANK)
def test_a_spec_of_every_training_of_the_bank(shared_dir: Path, name: str) -> None:
    network = of_bank(shared_dir, name)
    spec = build_spec(network, {}, results_dir="/r/t1", num_epochs=12, milestones=[3, 6], gpus=2)
    conventions = network.conventions
    for key in conventions.epoch_keys:
        assert get_path(spec.data, key) == 12
    for key in (conventions.validation_interval_key, conventions.checkpoint_interval_key):
        if key:
            assert 3 % get_path(spec.data, key, 1) == 0
    if conventions.gpu_ids_key:
        assert get_path(spec.data, conventions.gpu_ids_key) == [0, 1]
    if conventions.num_gpus_key:
        assert get_path(spec.data, conventions.num_gpus_key) == 2
    assert any(get_path(spec.data, k) == "/r/t1" for k in network.wiring.output_dirs)
    assert not any("." in key for key in spec.data)
    assert spec.render(network.config_format)


def test_unknown_marks_of_other_actions_do_not_count(shared_dir: Path) -> None:
    network = of_bank(shared_dir, "tao-train-image-classification")
    key = "distill.pretrained_teacher_model_path"
    assert get_path(network.base_spec, key) == MISSING
    with pytest.raises(SpecError) as error:
        of_bank(shared_dir, "tao-train-image-classification", "distill")
    assert error.value.problems == (f"{key}: is required and has no value; set model.teacher",)


def test_a_teacher_completes_a_distillation(shared_dir: Path) -> None:
    name = "tao-train-image-classification"
    network = of_bank(shared_dir, name, "distill", teacher="/w/teacher.pth")
    key = "distill.pretrained_teacher_model_path"
    assert get_path(network.base_spec, key) == "/w/teacher.pth"


def test_engines_have_their_own_image_and_output(shared_dir: Path) -> None:
    directory = shared_dir / "tao-bank/skills/models/tao-train-image-classification"
    network = resolve_network(
        ModelConfig(package=str(directory), action="gen_trt_engine", checkpoint="/w/model.onnx"),
        DataConfig(),
        ObjectiveConfig(metric="latency", direction="minimize"),
        Path("/"),
    )
    assert network.image == "nvcr.io/nvidia/tao/tao-toolkit:7.1.0-deploy"
    assert get_path(network.base_spec, "gen_trt_engine.onnx_file") == "/w/model.onnx"
    spec = build_spec(network, {}, results_dir="/r", num_epochs=None)
    assert get_path(spec.data, "gen_trt_engine.trt_engine") == "/r/gen_trt_engine/model.engine"


def test_calibration_of_an_engine_counts_for_int8_only(toy: Toy) -> None:
    tensorrt = {"data_type": "FP32", "calibration": {"cal_image_dir": MISSING}}
    toy.info["actions"]["gen_trt_engine"] = {
        "command": "toy gen_trt_engine -e {config_path}",
        "metric": "latency",
        "metric_direction": "minimize",
    }
    toy.schemas["gen_trt_engine"] = toy.schemas["train"]
    toy.templates["gen_trt_engine"] = {"gen_trt_engine": {"tensorrt": tensorrt}}
    toy.resolve(action="gen_trt_engine", data={})
    tensorrt["data_type"] = "INT8"
    key = "gen_trt_engine.tensorrt.calibration.cal_image_dir"
    with pytest.raises(SpecError) as error:
        toy.resolve(action="gen_trt_engine", data={})
    assert error.value.problems == (
        f"{key}: is {MISSING} in the template; set data: {{{key}: ...}}",
    )


def test_data_rules_of_the_bank(shared_dir: Path) -> None:
    clip = of_bank(shared_dir, "tao-finetune-clip", data={"train": ["s3://a", "s3://b"]})
    assert clip.base_spec["dataset"]["train"]["datasets"] == [
        {"image_dir": f"s3://{x}/images.tar.gz", "caption_dir": f"s3://{x}/captions.tar.gz"}
        for x in "ab"
    ]
    segment = of_bank(
        shared_dir, "tao-train-visual-changenet", "segment_train", data={"train": "s3://b/x"}
    )
    assert get_path(segment.base_spec, "dataset.segment.root_dir") == "s3://b/x"
    ocrnet = of_bank(shared_dir, "tao-train-ocrnet")
    assert get_path(ocrnet.base_spec, "dataset.train_dataset_dir") == ["s3://b/train/train.tar.gz"]
    assert [s.key for s in ocrnet.data_sources if s.extract] == [
        "dataset.train_dataset_dir[0]",
        "dataset.val_dataset_dir",
    ]
    cosmos = of_bank(shared_dir, "tao-finetune-cosmos-reason")
    custom = cosmos.base_spec["custom"]
    assert custom["train_dataset"]["annotation_path"] == "s3://b/train/t.json"
    assert custom["train_dataset"]["media_path"] == "s3://b/train/images.tar.gz"
    assert "custom.train_dataset.media_path: the package allows images.tar.gz or" in cosmos.notes[0]


def test_segment_training_searches_its_training_block(shared_dir: Path) -> None:
    data = {"train": "s3://b/x"}
    network = of_bank(shared_dir, "tao-train-visual-changenet", "segment_train", data=data)
    assert "train.optim.lr" in network.default_search_names()
    assert network.status_path == "train/status.json"
    assert network.evaluate_action == "segment_evaluate"


def test_weights_to_download_unless_given(shared_dir: Path) -> None:
    key = "model.backbone.pretrained_backbone_path"
    network = of_bank(shared_dir, "tao-train-visual-changenet")
    (download,) = network.downloads
    assert get_path(network.base_spec, key) == download.destination
    assert download.link.startswith("https://huggingface.co/")
    own = of_bank(shared_dir, "tao-train-visual-changenet", overrides={key: "/w/own.pth"})
    assert own.downloads == ()
    assert get_path(own.base_spec, key) == "/w/own.pth"


def test_backends_choose_image_and_command(shared_dir: Path) -> None:
    name = "tao-finetune-cosmos-reason"
    data = {"eval": "s3://b/v", "annotations": ANNOTATIONS}
    default = of_bank(shared_dir, name, "evaluate", checkpoint="/w/m", data=data)
    assert default.backend == "cosmos-rl"
    assert "/cosmos-rl:" in str(default.image)
    assert default.config_format == "toml"
    other = of_bank(
        shared_dir, name, "evaluate", checkpoint="/w/m", data=data, backend="cosmos-framework"
    )
    assert other.command("/c/s.toml") == "cosmos-framework-evaluate --config /c/s.toml"
    assert "/cosmos-framework:" in str(other.image)
    own = of_bank(shared_dir, name, "evaluate", checkpoint="/w/m", data=data, image="mine:1")
    assert own.image == "mine:1"


def test_a_checkpoint_folder_is_given_as_a_folder(shared_dir: Path) -> None:
    data = {"eval": "s3://b/v", "annotations": ANNOTATIONS}
    name = "tao-finetune-cosmos-reason"
    network = of_bank(shared_dir, name, "evaluate", checkpoint="/w/e1/model.safetensors", data=data)
    assert get_path(network.base_spec, "model.model_name") == "/w/e1"


def test_engines_and_checkpoints_go_to_their_own_keys(shared_dir: Path) -> None:
    def evaluate(checkpoint: str) -> Any:
        network = of_bank(
            shared_dir,
            "tao-train-ocrnet",
            "evaluate",
            checkpoint=checkpoint,
            overrides={} if checkpoint.endswith(".pth") else {"evaluate.checkpoint": "/unused.pth"},
        )
        return network.base_spec["evaluate"]

    assert evaluate("/w/m.pth")["checkpoint"] == "/w/m.pth"
    assert evaluate("/w/m.pth").get("trt_engine") != "/w/m.pth"
    assert evaluate("/w/m.engine")["trt_engine"] == "/w/m.engine"
    assert evaluate("/w/m.engine")["checkpoint"] == "/unused.pth"


def test_commands_replace_the_token_only(shared_dir: Path) -> None:
    network = of_bank(shared_dir, "tao-finetune-cosmos-reason")
    command = network.command("/tmp/a b/spec.toml")
    assert "cosmos-rl --config '/tmp/a b/spec.toml' \"$hook\"" in command
    assert command.startswith('hook="$(')
    assert command.count("\n") == network.command_text.count("\n")


def test_objectives_stand_in_for_metrics_of_evaluate_jobs(shared_dir: Path) -> None:
    metric = of_bank(shared_dir, "tao-train-dino").objective
    assert metric is not None
    assert (metric.name, metric.direction, metric.proxy) == ("val_mAP50", "maximize", True)
    assert metric.recommended == "test_mAP50"
    tesseract = of_bank(shared_dir, "tao-finetune-nv-tesseract-forecasting")
    assert tesseract.objective is not None
    assert (tesseract.objective.source, tesseract.metric_file) == ("file", "metrics.json")
    assert tesseract.status_path is None


def test_the_evaluation_of_a_training(shared_dir: Path) -> None:
    name = "tao-train-image-classification"
    directory = str(shared_dir / "tao-bank" / "skills" / "models" / name)
    model = ModelConfig(
        package=directory, overrides={"train.optim.lr": 1e-4, "evaluate.batch_size": 2}
    )
    data = DataConfig(**NAMED, inference="s3://b/test")
    network = resolve_network(model, data, ObjectiveConfig(), Path("/"))
    evaluation = resolve_evaluation(network, model, data)
    assert evaluation is not None
    assert (evaluation.metric, evaluation.direction) == ("test_acc_1", "maximize")
    spec = build_spec(
        evaluation,
        {"dataset.batch_size": 4, "train.optim.lr": 1e-5},
        results_dir="/r",
        num_epochs=None,
        gpus=2,
        start_from="/w/model_epoch_003.pth",
    )
    assert spec.data["evaluate"]["checkpoint"] == "/w/model_epoch_003.pth"
    assert spec.data["evaluate"]["batch_size"] == 2
    assert spec.data["evaluate"]["gpu_ids"] == [0, 1]
    assert spec.data["dataset"]["batch_size"] == 4
    with pytest.raises(SpecError, match=r"evaluate\.checkpoint: takes one"):
        build_spec(evaluation, {}, results_dir="/r", num_epochs=None)


def test_exact_keys_beat_overrides_beat_named_sources(toy: Toy) -> None:
    network = toy.resolve()
    assert network.base_spec["dataset"]["train_dir"] == "s3://b/train/images"
    assert network.base_spec["dataset"]["val_dir"] == "s3://b/val"
    key = "dataset.train_dir"
    network = toy.resolve(overrides={key: "/mine"})
    assert network.base_spec["dataset"]["train_dir"] == "/mine"
    assert [s.key for s in network.data_sources] == ["dataset.val_dir"]
    network = toy.resolve(overrides={key: "/mine"}, data={**NAMED, key: "/exact"})
    assert network.base_spec["dataset"]["train_dir"] == "/exact"


def test_overrides_may_be_nested_and_indexed(toy: Toy) -> None:
    network = toy.resolve(
        overrides={
            "train": {"optim": {"lr": 0.5}},
            "train.weights[1]": 3.0,
            "model.layers[0].units": 2,
            "dataset.extra": {"anything": 1},
        }
    )
    assert network.base_spec["train"]["optim"]["lr"] == 0.5
    assert network.base_spec["train"]["weights"] == [1.0, 3.0]
    assert network.base_spec["model"]["layers"] == [{"units": 2}, {"units": 4}]
    assert network.base_spec["dataset"]["extra"] == {"anything": 1}


def test_a_spec_of_ones_own_replaces_the_template(toy: Toy, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("train: {num_epochs: 3, optim: {lr: 1e-5}}\n")
    network = toy.resolve(spec=str(path))
    assert network.base_spec["train"] == {"num_epochs": 3, "optim": {"lr": 1e-5}}


def test_without_a_template_the_schemas_default_is_the_base(toy: Toy) -> None:
    del toy.templates["train"]
    assert toy.resolve().base_spec["train"]["num_epochs"] == 10


def test_local_archives_that_are_extracted_already(toy: Toy, tmp_path: Path) -> None:
    rule = {"source": "train_datasets", "path": "x.tar.gz", "runtime": "extracted_folder"}
    toy.info["data_sources"]["train"]["dataset.train_dir"] = rule
    (tmp_path / "data" / "x").mkdir(parents=True)
    data = {"train": str(tmp_path / "data"), "eval": "s3://b/v"}
    network = toy.resolve(data=data)
    assert network.base_spec["dataset"]["train_dir"] == str(tmp_path / "data" / "x")
    assert not network.data_sources[0].extract
    (tmp_path / "data" / "x.tar.gz").touch()
    assert toy.resolve(data=data).data_sources[0].extract


def test_paths_by_format_and_optional_members(toy: Toy, tmp_path: Path) -> None:
    toy.info["data_sources"]["train"] = {
        "dataset.train_dir": {
            "source": "train_datasets",
            "path_from_format": {"kitti": "k", "*": "other"},
        },
        "dataset.val_dir": {
            "source": "eval_dataset",
            "mapping": {"a": {"path": "a"}, "b": {"path": "b.txt", "optional": True}},
        },
    }
    (tmp_path / "b.txt").touch()
    data = {"train": "s3://b/t", "eval": str(tmp_path)}
    dataset = toy.resolve(data=data).base_spec["dataset"]
    assert dataset["train_dir"] == "s3://b/t/other"
    assert dataset["val_dir"] == {"a": f"{tmp_path}/a", "b": f"{tmp_path}/b.txt"}
    dataset = toy.resolve(data={**data, "eval": "s3://b/v", "format": "kitti"}).base_spec["dataset"]
    assert dataset["train_dir"] == "s3://b/t/k"
    assert dataset["val_dir"] == {"a": "s3://b/v/a"}


def test_constants_and_key_defaults(toy: Toy) -> None:
    toy.info["spec_params"]["train"]["dataset.name"] = "StereoDataset"
    toy.info["key_defaults"] = {"dataset.extra": {"x": 1}, "model.width": 1, "dataset.note": "n"}
    toy.templates["train"]["dataset"]["note"] = ""
    network = toy.resolve()
    assert network.base_spec["dataset"]["name"] == "StereoDataset"
    assert network.base_spec["dataset"]["note"] == "n"
    assert network.base_spec["model"]["width"] == 64


def test_the_encryption_key_is_in_the_job_and_nowhere_else(toy: Toy) -> None:
    network = toy.resolve(key="sesame")
    spec = build_spec(network, {}, results_dir="/r", num_epochs=3)
    assert "sesame" not in f"{network!r} {spec!r} {spec.render('yaml')}"
    assert "encryption_key: sesame" in spec.render("yaml", secrets=True)


def test_a_network_without_a_package() -> None:
    model = ModelConfig(
        network="dino",
        command="dino train -e {config_path}",
        spec={"train": {"num_epochs": 4, "num_gpus": 1}, "evaluate": {"checkpoint": "???"}},
    )
    network = resolve_network(model, DataConfig(), ObjectiveConfig(), Path("/"))
    assert network.metric == "val_mAP50"
    assert network.default_search_names() == ()
    assert network.status_path == "train/status.json"
    spec = build_spec(network, {"train.num_gpus": 1}, results_dir="/r", num_epochs=8, gpus=2)
    assert spec.data["results_dir"] == "/r"
    assert spec.data["train"] == {"num_epochs": 8, "num_gpus": 2, "gpu_ids": [0, 1]}


def test_an_objective_of_ones_own(toy: Toy) -> None:
    network = toy.resolve(objective={"metric": "val_f1", "direction": "maximize"})
    assert (network.metric, network.direction) == ("val_f1", "maximize")
    with pytest.raises(TaoRayError) as error:
        toy.resolve(objective={"metric": "val_f1"})
    assert str(error.value) == (
        "objective.direction: whether 'val_f1' is to be minimized or maximized is not known\n"
        "  -> set it, if the network reports a metric of this name; known for this network:"
        " val_loss"
    )


def test_the_default_set_leaves_out_other_blocks_and_modes(toy: Toy) -> None:
    properties = toy.schemas["train"]["properties"]
    assert toy.resolve().default_search_names() == ("dataset.batch_size", "train.optim.lr")
    # In the schema's default but not in the base spec: of another mode of the network.
    toy.schemas["train"]["default"]["dataset"]["crop"] = 3
    properties["dataset"]["properties"]["crop"] = {"type": "int", "automl_enabled": True}
    properties["dataset"]["properties"]["paths"] = {"type": "list", "automl_enabled": True}
    assert toy.resolve().default_search_names() == ("dataset.batch_size", "train.optim.lr")
    assert toy.resolve(overrides={"dataset.crop": 5}).default_search_names() == (
        "dataset.batch_size",
        "dataset.crop",
        "train.optim.lr",
    )


def test_disabled_parameters(toy: Toy) -> None:
    network = toy.resolve()
    assert network.is_disabled("model.width")
    assert not network.is_disabled("train.optim.momentum")


def test_checkpoints_are_found_by_the_networks_own_names(shared_dir: Path) -> None:
    network = of_bank(shared_dir, "tao-train-image-classification")
    files = [
        "train/model_epoch_000.pth",
        "train/model_epoch_001_step_00010.pth",
        "train/model_epoch_001_step_00020.pth",
        "train/classifier_model_latest.pth",
        "train/model_epoch_011.pth",
    ]
    assert network.checkpoint_name(1, files) == "train/model_epoch_000.pth"
    assert network.checkpoint_name(2, files) == "train/model_epoch_001_step_00020.pth"
    assert network.checkpoint_name(3, files) is None
    assert network.checkpoint_name(12, files) == "train/model_epoch_011.pth"
    cosmos = of_bank(shared_dir, "tao-finetune-cosmos-reason")
    folder = "20260101/safetensors/epoch_2_step_40"
    assert cosmos.checkpoint_name(2, [f"{folder}/a.safetensors", f"{folder}/b.json"]) == folder


def test_numbered_from_one_and_exported_by_another_name() -> None:
    def network(name: str) -> Network:
        model = ModelConfig(
            network=name, command=f"{name} train -e {{config_path}}", spec={"train": {}}
        )
        objective = ObjectiveConfig(metric="loss", direction="minimize")
        return resolve_network(model, DataConfig(), objective, Path("/"))

    files = ["train/checkpoint_epoch_1.pth", "train/checkpoint_epoch_10.pth"]
    assert network("pointpillars").checkpoint_name(1, files) == files[0]
    files = ["train/model_epoch_000.pth", "train/student_epoch_000.pth"]
    nvdinov2 = network("nvdinov2")
    assert nvdinov2.checkpoint_name(1, files) == files[0]
    assert nvdinov2.checkpoint_name(1, files, weights=True) == files[1]


def test_the_stand_in_resolves_without_any_data() -> None:
    network = resolve_network(
        ModelConfig(package="digits_mlp"), DataConfig(), ObjectiveConfig(), Path("/")
    )
    assert network.image is None
    assert len(network.default_search_names()) > 5
    assert load_package("digits_mlp", Path("/")).name == network.package.name  # type: ignore[union-attr]
