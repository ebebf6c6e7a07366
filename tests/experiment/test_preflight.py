"""What is checked before a run, and what the user is told to do about it."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from small_runs import configure

from tao_ray.cli import main
from tao_ray.experiment.data_checks import data_checks
from tao_ray.experiment.plan import make_plan
from tao_ray.experiment.preflight import (
    Preflight,
    PreflightError,
    install_missing,
    network_checks,
    preflight,
    require,
)
from tao_ray.platforms import open_platform
from tao_ray.platforms.base import Check

STANDIN = Path(__file__).parents[2] / "tao_ray" / "standin" / "package"
BARE = {
    "network": "mine",
    "command": "digits_mlp train -e {config_path}",
    "spec": {
        "train": {"num_epochs": 2, "optim": {"lr": 0.001}},
        "dataset": {
            "batch_size": 8,
            "train_dataset": {"json_file": "", "image_dir": "", "images_dir": "", "file": ""},
            "val_dataset": {"image_dir": ""},
            "train_data_sources": [],
            "val_data_sources": [],
        },
    },
}
BARE_SECTIONS: dict[str, Any] = {
    "model": BARE,
    "objective": {"metric": "val_loss", "direction": "minimize"},
    "search": {
        "algorithm": "random",
        "parameters": {"train.optim.lr": {"min": 1e-4, "max": 1e-2, "scale": "log"}},
        "trials": 2,
    },
}
TRAIN_KEY = "dataset.train_dataset.json_file"


def by_name(found: Preflight) -> dict[str, Check]:
    return {check.name: check for check in found.checks}


def coco(images: int, **fields: Any) -> str:
    whole = {
        "images": [{"id": i} for i in range(images)],
        "annotations": [{"image_id": 0, "category_id": 1}] * 3 * images,
        "categories": [{"id": 1}],
        **fields,
    }
    return json.dumps({key: value for key, value in whole.items() if value is not None})


def test_a_run_that_may_start(tmp_path: Path) -> None:
    config = configure(tmp_path)
    found = preflight(config)
    assert found.problems == []
    assert found.plan is not None
    checks = by_name(found)
    assert checks["command"].detail.endswith("/digits_mlp")
    assert checks["evaluation"].detail == "evaluate: test_acc_1"
    assert {"package", "image", "tools", "disk", "results"} <= set(checks)


def test_everything_is_checked_whatever_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    shutil.copytree(STANDIN, package)
    path = package / "references" / "skill_info.yaml"
    info = yaml.safe_load(path.read_text())
    info["required_credentials"] = ["HF_TOKEN", "NGC_KEY"]
    info["conditional_credentials"] = {"WANDB_API_KEY": "only to log to W&B"}
    info["actions"]["train"]["command"] = "no_such_network train -e {config_path}"
    path.write_text(yaml.safe_dump(info))
    monkeypatch.setenv("NGC_KEY", "s3cret")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    configure(tmp_path, model={"package": str(package)}, data={"train": str(tmp_path / "nowhere")})
    assert main(["check", "--preflight", str(tmp_path / "run.yaml")]) == 2
    out = capsys.readouterr().out
    assert "3 of 13 checks failed" in out
    assert out.count("FAILED") == 3
    assert "variable HF_TOKEN -> export HF_TOKEN=..." in out
    assert (
        "command -> set platform.activate to an environment in which no_such_network is installed"
        in out
    )
    assert "data dataset.train_dataset.images_dir -> correct data.train" in out
    assert "s3cret" not in out
    lines = out.splitlines()
    assert any("ok" in line and "NGC_KEY" in line for line in lines)
    assert any("note" in line and "WANDB_API_KEY" in line for line in lines)


def test_a_variable_must_reach_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    shutil.copytree(STANDIN, package)
    path = package / "references" / "skill_info.yaml"
    info = yaml.safe_load(path.read_text())
    info["required_credentials"] = ["HF_TOKEN"]
    info["container_image"] = "example.org/toy:1"
    path.write_text(yaml.safe_dump(info))
    monkeypatch.setenv("HF_TOKEN", "s3cret")

    def remedy(**platform: Any) -> str:
        model = {"package": str(package)}
        config = configure(tmp_path, model=model, platform={"kind": "docker", **platform})
        plan = make_plan(config)
        checks = {check.name: check for check in network_checks(config, plan.network)}
        return checks["variable HF_TOKEN"].remedy

    assert remedy() == "add HF_TOKEN to platform.pass_env"
    assert remedy(pass_env=["HF_TOKEN"]) == ""
    monkeypatch.delenv("HF_TOKEN")
    assert remedy() == "export HF_TOKEN=..., and add HF_TOKEN to platform.pass_env"


def test_a_configuration_that_comes_to_nothing_does_not_hide_the_platform(tmp_path: Path) -> None:
    config = configure(tmp_path, model={"package": str(tmp_path / "nowhere/package")})
    found = preflight(config)
    assert found.plan is None
    assert [c.name for c in found.problems] == ["configuration"]
    assert "no such directory" in found.problems[0].detail
    assert "disk" in by_name(found)


def test_a_run_is_refused_with_every_problem(tmp_path: Path) -> None:
    out = io.StringIO()
    config = configure(tmp_path, data={"train": str(tmp_path / "nowhere")})
    with pytest.raises(PreflightError) as caught:
        require(preflight(config), Console(file=out))
    assert f"{tmp_path}/nowhere: there is no such file or directory" in str(caught.value)
    assert caught.value.exit_code == 2
    assert "FAILED" in out.getvalue()
    assert main(["tune", str(tmp_path / "run.yaml"), "--yes"]) == 2
    assert not list((tmp_path / "runs").glob("small/*"))


def test_counted_samples_bound_the_batch_size(tmp_path: Path) -> None:
    annotations = tmp_path / "train.json"
    annotations.write_text(coco(images=5))
    config = configure(tmp_path, **BARE_SECTIONS, data={TRAIN_KEY: str(annotations)})
    found = preflight(config)
    assert found.plan is not None
    assert found.plan.train_sample_count == 5
    assert by_name(found)[f"data {TRAIN_KEY}"].detail.endswith("train.json, 5 samples")
    assert by_name(found)["batch size"].detail == (
        "5 training samples (counted) over 1 process(es): dataset.batch_size 8 -> 5"
    )
    assert found.plan.setup(0).train_sample_count == 5


def test_the_configured_number_of_samples_has_precedence(tmp_path: Path) -> None:
    annotations = tmp_path / "train.json"
    annotations.write_text(coco(images=5))
    data = {TRAIN_KEY: str(annotations), "train_sample_count": 7}
    found = preflight(configure(tmp_path, **BARE_SECTIONS, data=data))
    assert found.plan is not None
    assert found.plan.train_sample_count == 7


def test_a_resumed_run_keeps_the_number_it_was_planned_with(tmp_path: Path) -> None:
    annotations = tmp_path / "train.json"
    annotations.write_text(coco(images=5))
    config = configure(tmp_path, **BARE_SECTIONS, data={TRAIN_KEY: str(annotations)})
    for counted in (3, None):
        found = preflight(config, counted, count=False)
        assert found.plan is not None
        assert found.plan.train_sample_count == counted


@pytest.mark.parametrize(
    ("name", "content", "samples"),
    [
        ("a.jsonl", '{"a": 1}\n\n{"a": 2}\n', 2),
        ("a.json", '[{"conversations": []}, {"conversations": []}, {"conversations": []}]', 3),
        ("labels.json", '{"cat": 0, "dog": 1}', None),
        ("a.csv", "x,y\n1,2\n", None),
    ],
)
def test_what_is_counted(tmp_path: Path, name: str, content: str, samples: int | None) -> None:
    (tmp_path / name).write_text(content)
    key = "dataset.train_dataset.file"
    data = {key: str(tmp_path / name)}
    found = preflight(configure(tmp_path, **BARE_SECTIONS, data=data))
    assert found.problems == []
    assert found.plan is not None
    assert found.plan.train_sample_count == samples


def test_sets_are_added_up_and_a_set_is_counted_once(tmp_path: Path) -> None:
    for name, images in (("a", 4), ("b", 6)):
        (tmp_path / f"{name}.json").write_text(coco(images))
        folder = tmp_path / name / "class"
        folder.mkdir(parents=True)
        for i in range(9):
            (folder / f"{i}.jpg").touch()
    sets = [
        {"json_file": str(tmp_path / f"{n}.json"), "image_dir": str(tmp_path / n)}
        for n in ("a", "b")
    ]
    data = {"dataset.train_data_sources": sets, "dataset.val_data_sources": sets}
    found = preflight(configure(tmp_path, **BARE_SECTIONS, data=data))
    assert found.plan is not None
    assert found.plan.train_sample_count == 10
    looked_at = [c.detail.split(",")[0] for c in found.checks if c.name.startswith("data ")]
    assert len(looked_at) == len(set(looked_at)) == 4


def test_images_by_class_are_counted(tmp_path: Path) -> None:
    for i in range(3):
        folder = tmp_path / "images" / f"class{i % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.PNG").touch()
        (folder / "readme.txt").touch()
    data = {"dataset.train_dataset.images_dir": str(tmp_path / "images")}
    found = preflight(configure(tmp_path, **BARE_SECTIONS, data=data))
    assert found.plan is not None
    assert found.plan.train_sample_count == 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (coco(2, categories=None), "lacks categories"),
        (coco(2, annotations=[{"image_id": 1}]), "lacks annotations[0].category_id"),
        ("{", "is not JSON"),
    ],
)
def test_annotations_without_the_fields_the_network_reads(
    tmp_path: Path, content: str, problem: str
) -> None:
    annotations = tmp_path / "train.json"
    annotations.write_text(content)
    data = {TRAIN_KEY: str(annotations), "format": "coco"}
    found = preflight(configure(tmp_path, **BARE_SECTIONS, data=data))
    (check,) = found.problems
    assert problem in check.detail
    assert check.remedy == "correct the file, or data.format (now coco)"


def test_data_in_s3_is_looked_for_and_counted(
    tmp_path: Path, s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tao_ray.storage.s3 import s3_client

    client = s3_client()
    client.put_object(Bucket="bucket", Key="set/train.json", Body=coco(11).encode())
    client.put_object(Bucket="bucket", Key="set/images/0.jpg", Body=b"")
    data = {
        "dataset.train_dataset.json_file": "s3://bucket/set/train.json",
        "dataset.train_dataset.image_dir": "s3://bucket/set/images",
        "dataset.val_dataset.image_dir": "s3://bucket/set/imag",
    }
    found = preflight(configure(tmp_path, **BARE_SECTIONS, data=data))
    (missing,) = found.problems
    assert missing.name == "data dataset.val_dataset.image_dir"
    assert missing.detail == "s3://bucket/set/imag: there is no such object or prefix"
    assert found.plan is not None
    assert found.plan.train_sample_count == 11

    monkeypatch.delenv("ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    remedies = {
        c.remedy for c in preflight(configure(tmp_path, **BARE_SECTIONS, data=data)).problems
    }
    assert remedies == {"export ACCESS_KEY=... SECRET_KEY=... (and S3_ENDPOINT_URL)"}


def test_remedies_that_are_commands_are_run_after_a_question(tmp_path: Path) -> None:
    made = tmp_path / "made"
    found = Preflight(
        (
            Check("tool", False, "not there", f"touch {made}", runnable=True),
            Check("data", False, "not there", "rm -rf /", runnable=False),
        )
    )
    console = Console(file=io.StringIO())
    assert not install_missing(found, console, lambda question: False)
    assert not made.exists()
    assert install_missing(found, console, lambda question: True)
    assert made.exists()
    failing = Preflight((Check("tool", False, "", "exit 3", runnable=True),))
    with pytest.raises(PreflightError, match="exit code 3"):
        install_missing(failing, console, lambda question: True)


def test_a_data_set_to_be_converted_is_pointed_out(tmp_path: Path, shared_dir: Path) -> None:
    package = shared_dir / "tao-bank" / "skills" / "models" / "tao-train-ocrnet"
    for name in ("train", "val"):
        (tmp_path / name).mkdir()
    data = {
        "dataset.train_dataset_dir": [str(tmp_path / "train")],
        "dataset.val_dataset_dir": str(tmp_path / "val"),
        "dataset.character_list_file": str(tmp_path / "characters"),
    }
    config = configure(
        tmp_path,
        model={"package": str(package)},
        data=data,
        search={"algorithm": "random", "trials": 2},
        platform={"kind": "local"},
    )
    found = preflight(config)
    checks = by_name(found)
    assert found.plan is not None, checks["configuration"]
    assert "not used here" in checks["image"].detail
    assert checks["conversion"].warning
    assert "--action dataset_convert" in checks["conversion"].remedy
    assert not checks["data dataset.character_list_file"].ok


@pytest.mark.parametrize("vouched", [False, True])
def test_a_local_path_is_refused_on_rented_machines_unless_vouched_for(
    tmp_path: Path, vouched: bool
) -> None:
    data = {TRAIN_KEY: "/data/train.json", "on_instance": vouched}
    config = configure(tmp_path, data=data, **BARE_SECTIONS, platform={"kind": "brev"})
    rented, _ = open_platform(config.platform, tmp_path / "run" / "jobs", 1)
    (check,), samples = data_checks(config, make_plan(config).network, rented)
    assert (check.ok, check.warning, samples) == (vouched, False, None)
    assert ("s3://" in check.remedy) is not vouched


def test_what_jobs_on_new_machines_lack_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NGC_KEY", "NGC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    sections = {**BARE_SECTIONS, "model": {**BARE, "image": "nvcr.io/nvidia/tao:1"}}
    data = {TRAIN_KEY: "s3://bucket/train.json"}
    config = configure(tmp_path, data=data, **sections, platform={"kind": "brev"})
    network = make_plan(config).network
    checks = {c.name: c for c in network_checks(config, network)}
    assert "export NGC_KEY" in checks["variable NGC_KEY"].remedy
    found, _ = data_checks(config, network, None)
    assert "platform.pass_env" in {c.name: c for c in found}["data credentials"].remedy
    passed = {"kind": "brev", "pass_env": ["ACCESS_KEY", "SECRET_KEY"]}
    config = configure(tmp_path, data=data, **sections, platform=passed)
    found, _ = data_checks(config, network, None)
    assert "data credentials" not in {c.name for c in found}
