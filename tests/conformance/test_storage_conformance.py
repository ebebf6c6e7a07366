"""What every storage must do."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tao_ray.storage import Storage

KEY = "trials/0003/epoch_009"


def tree(root: Path, **files: str) -> Path:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def contents(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tree(tmp_path / "source", train__model_pth="weights", spec_yaml="lr: 1", empty="")


def test_a_directory_comes_back_as_it_was(storage: Storage, source: Path, tmp_path: Path) -> None:
    assert not storage.exists(KEY)
    assert storage.put_dir(source, KEY) == 12
    assert storage.exists(KEY)
    assert storage.get_dir(KEY, tmp_path / "back") == 12
    assert contents(tmp_path / "back") == contents(source)


def test_a_single_file(storage: Storage, source: Path, tmp_path: Path) -> None:
    assert storage.put_dir(source / "spec.yaml", "best/spec.yaml") == 5
    assert storage.exists("best/spec.yaml")
    assert storage.list() == {"best/spec.yaml": 5}
    storage.get_dir("best/spec.yaml", tmp_path / "new" / "copy.yaml")
    assert (tmp_path / "new" / "copy.yaml").read_text() == "lr: 1"


def test_an_empty_directory_is_an_artifact_too(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "void").mkdir()
    assert storage.put_dir(tmp_path / "void", KEY) == 0
    assert storage.exists(KEY)
    storage.get_dir(KEY, tmp_path / "back")
    assert (tmp_path / "back").is_dir()


def test_put_replaces_all_that_was_there(storage: Storage, source: Path, tmp_path: Path) -> None:
    storage.put_dir(source, KEY)
    newer = tree(tmp_path / "newer", spec_yaml="lr: 2", other="x")
    storage.put_dir(newer, KEY)
    storage.get_dir(KEY, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(newer)
    storage.put_dir(newer / "other", KEY)
    assert storage.list(KEY) == {KEY: 1}


def test_get_leaves_other_files_of_the_destination(
    storage: Storage, source: Path, tmp_path: Path
) -> None:
    storage.put_dir(source, KEY)
    there = tree(tmp_path / "there", mine="stays", spec_yaml="goes")
    storage.get_dir(KEY, there)
    assert contents(there) == {**contents(source), "mine": "stays"}
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_absent(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        storage.get_dir(KEY, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert storage.list() == {}
    assert storage.delete_prefix(KEY) == 0
    assert storage.delete_prefix("") == 0
    with pytest.raises(FileNotFoundError):
        storage.put_dir(tmp_path / "nowhere", KEY)
    assert not storage.exists(KEY)


def test_exists_is_about_whole_artifacts(storage: Storage, source: Path) -> None:
    storage.put_dir(source, KEY)
    for other in ("trials", "trials/0003", "trials/0003/epoch_00", f"{KEY}/train", f"{KEY}/empty"):
        assert not storage.exists(other)
        with pytest.raises(KeyError):
            storage.get_dir(other, source.parent / "back")


def test_list_by_whole_parts_of_a_key(storage: Storage, source: Path) -> None:
    storage.put_dir(source, "t/1/e")
    storage.put_dir(source, "t/10/e")
    storage.put_dir(source / "spec.yaml", "t/1.yaml")
    one = {"t/1/e/empty": 0, "t/1/e/spec.yaml": 5, "t/1/e/train/model.pth": 7}
    ten = {"t/10/e/empty": 0, "t/10/e/spec.yaml": 5, "t/10/e/train/model.pth": 7}
    assert storage.list("t/1") == one
    assert storage.list("t/1/e/train") == {"t/1/e/train/model.pth": 7}
    assert storage.list("t/1.yaml") == {"t/1.yaml": 5}
    assert list(storage.list()) == sorted([*one, *ten, "t/1.yaml"])


def test_delete_by_whole_parts_of_a_key(storage: Storage, source: Path) -> None:
    storage.put_dir(source, "t/1/e")
    storage.put_dir(source, "t/1/f")
    storage.put_dir(source, "t/10/e")
    assert storage.delete_prefix("t/1") == 24
    assert not storage.exists("t/1/e")
    assert storage.exists("t/10/e")
    assert storage.delete_prefix("t/10/e") == 12
    assert storage.list() == {}
    storage.put_dir(source, "t/1/e")
    assert storage.delete_prefix("") == 12
    assert not storage.exists("t/1/e")


def test_artifacts_do_not_nest(storage: Storage, source: Path) -> None:
    storage.put_dir(source, "a/b")
    for key in ("a/b/c", "a/b/train/c", "a"):
        with pytest.raises(ValueError, match="a"):
            storage.put_dir(source, key)
    assert len(storage.list()) == 3


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\\b", "a/.b.complete"]
)
def test_bad_keys(storage: Storage, source: Path, key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        storage.put_dir(source, key)
    with pytest.raises(ValueError, match="key"):
        storage.exists(key)
    if key:
        with pytest.raises(ValueError, match="key"):
            storage.delete_prefix(key)


def test_links(storage: Storage, source: Path, tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", blob="data")
    (source / "latest.pth").symlink_to("train/model.pth")
    (source / "gone.pth").symlink_to("train/deleted.pth")
    (source / "blob").symlink_to(outside / "blob")
    storage.put_dir(source, KEY)
    assert sorted(name[len(KEY) + 1 :] for name in storage.list()) == [
        "blob",
        "empty",
        "spec.yaml",
        "train/model.pth",
    ]
    storage.get_dir(KEY, tmp_path / "back")
    assert not (tmp_path / "back" / "blob").is_symlink()


def test_a_copy_in_another_process_sees_the_same(storage: Storage, source: Path) -> None:
    storage.put_dir(source, KEY)
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.uri == storage.uri
    assert copy.exists(KEY)
