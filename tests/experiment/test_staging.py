"""Data staging: archives and S3, once for all trials and all runs."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import tao_ray.standin
from tao_ray.config import load_config
from tao_ray.errors import TaoRayError
from tao_ray.experiment.jobs import JobPlan, run_job
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.experiment.staging import original_data, stage_data
from tao_ray.network.spec import get_path
from tao_ray.platforms.local import LocalPlatform

STANDIN = Path(tao_ray.standin.__file__).parent
IMAGES = "dataset.train_dataset.images_dir"


class Bench:
    """A network that wants its training images as a folder named images, packed or not."""

    def __init__(self, path: Path):
        self.path = path
        self.package = path / "digits_mlp"
        shutil.copytree(STANDIN / "package", self.package)
        info_path = self.package / "references" / "skill_info.yaml"
        info = yaml.safe_load(info_path.read_text())
        rule = {
            "source": "train_datasets",
            "path": "images.tar.gz",
            "runtime": "extracted_folder",
        }
        info["data_sources"]["train"][IMAGES] = rule
        info_path.write_text(yaml.safe_dump(info))
        self.platform: Any = LocalPlatform(path / "jobs")
        self.said: list[str] = []
        self.digits = path / "digits.csv"
        rows = "\n".join(",".join([*["1"] * 64, str(n % 10)]) for n in range(40))
        self.digits.write_text(rows)

    def plan(self, **data: Any) -> Plan:
        config = self.path / "config.yaml"
        text = {
            "name": "t",
            "model": {"package": str(self.package), "overrides": {"dataset.batch_size": 8}},
            "data": data,
            "search": {"max_epochs": 1},
        }
        config.write_text(yaml.safe_dump(text))
        return make_plan(load_config(config))

    def stage(self, plan: Plan) -> Plan:
        self.record = self.path / "evaluations" / "data_staging.json"
        staged, self.warnings = stage_data(
            plan, self.platform, self.path / "runs" / ".data", self.record, self.said.append
        )
        return staged

    @property
    def records(self) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = json.loads(self.record.read_text())["data"]
        return records

    def pack(self, name: str = "images.tar.gz", top: str = "images/") -> Path:
        data = self.path / "data"
        data.mkdir(exist_ok=True)
        (data / "annotations.json").write_text("[]")
        if name.endswith(".zip"):
            with zipfile.ZipFile(data / name, "w") as archive:
                archive.write(self.digits, f"{top}digits.csv")
        else:
            with tarfile.open(data / name, "w:gz") as tar:
                tar.add(self.digits, f"{top}digits.csv")
        return data


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("top", ["images/", "./images/", ""])
def test_an_archive_is_unpacked_once_and_read_by_the_job(bench: Bench, top: str) -> None:
    data = bench.pack(top=top)
    plan = bench.plan(train=str(data))
    staged = bench.stage(plan)
    folder = Path(get_path(staged.network.base_spec, IMAGES))
    assert folder.name == "images"
    assert (folder / "digits.csv").read_text() == bench.digits.read_text()
    assert (folder.parent / "annotations.json").resolve() == (data / "annotations.json").resolve()
    assert sorted(p.name for p in data.iterdir()) == ["annotations.json", "images.tar.gz"]

    job = JobPlan(staged.network, "0000-1", "0000", 0, num_epochs=1)
    ended = run_job(bench.platform, job, watch=lambda event: None)
    bench.platform.discard("0000")
    assert ended.failure is None
    assert list(ended.epochs) == [1]


def test_a_later_run_finds_what_was_staged_until_the_data_changes(bench: Bench) -> None:
    data = bench.pack()
    first = bench.stage(bench.plan(train=str(data)))
    (record,) = bench.records
    assert (record["status"], record["keys"], record["files"]) == ("staged", ["train"], 1)
    assert record["bytes"] == bench.digits.stat().st_size
    again = bench.stage(bench.plan(train=str(data)))
    assert bench.records[0]["status"] == "reused"
    assert again.config.data.train == first.config.data.train
    bench.digits.write_text(bench.digits.read_text() + "\n")
    bench.pack()
    other = bench.stage(bench.plan(train=str(data)))
    assert bench.records[0]["status"] == "staged"
    assert other.config.data.train != first.config.data.train
    assert len(bench.said) == 2


def test_data_that_is_readable_as_it_is_stays_where_it_is(bench: Bench) -> None:
    folder = bench.path / "data" / "images"
    folder.mkdir(parents=True)
    shutil.copy(bench.digits, folder)
    plan = bench.plan(train=str(bench.path / "data"))
    assert bench.stage(plan) is plan
    assert bench.records[0]["status"] == "in place"
    assert bench.said == []


def test_an_archive_that_is_damaged(bench: Bench) -> None:
    data = bench.pack()
    (data / "images.tar.gz").write_bytes(b"no archive")
    with pytest.raises(TaoRayError, match="cannot be unpacked"):
        bench.stage(bench.plan(train=str(data)))
    bench.pack()
    assert bench.stage(bench.plan(train=str(data)))  # the half made one is not in the way


@pytest.mark.parametrize("old_python", [False, True])
def test_an_archive_that_reaches_outside_its_folder(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, old_python: bool
) -> None:
    if old_python:  # that of Debian 12 has no filter
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    data = bench.pack()
    assert bench.stage(bench.plan(train=str(data)))
    with tarfile.open(data / "images.tar.gz", "w:gz") as tar:
        tar.add(bench.digits, "images/../../escaped.csv")
    with pytest.raises(TaoRayError, match=r"cannot be unpacked: .*escaped.csv"):
        bench.stage(bench.plan(train=str(data)))
    assert not list(bench.path.rglob("escaped.csv"))


@pytest.fixture
def upload(s3_environment: None) -> Callable[[Path, str], None]:
    from tao_ray.storage.s3 import s3_client

    def put(path: Path, key: str) -> None:
        s3_client().upload_file(str(path), "bucket", key)

    return put


def test_data_on_s3_is_fetched_once(bench: Bench, upload: Callable[[Path, str], None]) -> None:
    data = bench.pack()
    upload(data / "images.tar.gz", "a/train/images.tar.gz")
    upload(data / "annotations.json", "a/train/annotations.json")
    upload(bench.digits, "a/training/other.csv")  # not below a/train
    val = bench.path / "digits.csv.gz"
    val.write_bytes(gzip.compress(bench.digits.read_bytes()))
    upload(val, "a/val/digits.csv.gz")
    plan = bench.plan(train="s3://bucket/a/train", eval="s3://bucket/a/val/")
    staged = bench.stage(plan)
    folder = Path(get_path(staged.network.base_spec, IMAGES))
    assert (folder / "digits.csv").is_file()
    assert sorted(p.name for p in folder.parent.iterdir()) == ["annotations.json", "images"]
    val_dir = Path(get_path(staged.network.base_spec, "dataset.val_dataset.images_dir"))
    assert [p.name for p in val_dir.iterdir()] == ["digits.csv.gz"]
    assert [r["status"] for r in bench.records] == ["staged", "staged"]
    assert bench.warnings == []
    bench.stage(plan)
    assert [r["status"] for r in bench.records] == ["reused", "reused"]
    # The result shows what the user wrote, beside where it was read from.
    assert original_data(staged.config.data, bench.records) == plan.config.data
    assert staged.config.data.train == bench.records[0]["path"]


def test_a_single_file_by_its_spec_key(bench: Bench, upload: Callable[[Path, str], None]) -> None:
    bench.pack()
    upload(bench.digits, "b/one/digits.csv")
    staged = bench.stage(bench.plan(**{IMAGES: "s3://bucket/b/one/digits.csv"}))
    path = Path(get_path(staged.network.base_spec, IMAGES))
    assert path.read_text() == bench.digits.read_text()
    assert path.name == "digits.csv"


def test_nothing_on_s3(bench: Bench, s3_environment: None) -> None:
    with pytest.raises(TaoRayError, match="nothing is there"):
        bench.stage(bench.plan(train="s3://bucket/nowhere"))


def test_what_cannot_be_staged_is_said_with_its_cost(
    bench: Bench, upload: Callable[[Path, str], None]
) -> None:
    upload(bench.digits, "c/train/digits.csv")
    plan = bench.plan(train="s3://bucket/c/train")
    bench.platform = object()  # a platform that shares no files
    assert bench.stage(plan) is plan
    (warning,) = bench.warnings
    assert warning.warning
    assert "every trial reads it from S3, 20 x 0.00 GB" in warning.detail
    assert bench.records[0]["status"] == "not staged"
