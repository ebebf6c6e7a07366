"""A directory as storage: writers that die, writers and readers that meet."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tao_ray.storage import StorageError, open_storage
from tao_ray.storage.file import FileStorage

WRITER = """
import sys
from pathlib import Path
from tao_ray.storage import open_storage
storage = open_storage(sys.argv[1])
print("ready", flush=True)
while True:
    for version in "ab":
        storage.put_dir(Path(sys.argv[2], version), "key")
"""


def versions(root: Path) -> Path:
    """Two directories of 20 files each, all holding the version's name."""
    for version in "ab":
        (root / version).mkdir(parents=True)
        for number in range(20):
            (root / version / f"{number}").write_text(version)
    return root


def whole(directory: Path) -> bool:
    found = [path.read_text() for path in sorted(directory.iterdir())]
    return len(found) == 20 and len(set(found)) == 1


def test_a_killed_writer_leaves_the_old_content_or_none(tmp_path: Path) -> None:
    source = versions(tmp_path / "source")
    storage = FileStorage(tmp_path / "storage")
    for attempt in range(8):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "storage"), str(source)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.02 + 0.013 * attempt)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        assert len(storage.list()) in (0, 20)
        if storage.exists("key"):
            storage.get_dir("key", tmp_path / f"back{attempt}")
            assert whole(tmp_path / f"back{attempt}")
    storage.put_dir(source / "a", "key")
    left = [path.name for path in (tmp_path / "storage" / ".partial").iterdir()]
    assert left == ["lock"], "what dead writers left is cleared away"


def test_a_reader_never_sees_a_mixture(tmp_path: Path) -> None:
    source = versions(tmp_path / "source")
    storage = FileStorage(tmp_path / "storage")
    storage.put_dir(source / "a", "key")
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            storage.put_dir(source / "b", "key")
            storage.put_dir(source / "a", "key")

    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in writers:
        thread.start()
    try:
        seen = 0
        for attempt in range(30):
            try:
                storage.get_dir("key", tmp_path / f"back{attempt}")
            except KeyError:
                continue
            seen += 1
            assert whole(tmp_path / f"back{attempt}")
        assert seen
    finally:
        done.set()
        for thread in writers:
            thread.join()


def test_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spaced = (tmp_path / "a b#c").as_uri()
    assert open_storage(str(tmp_path / "a b#c")).uri == spaced
    assert open_storage(spaced).uri == spaced
    assert open_storage("relative").uri == (tmp_path / "relative").as_uri()
    assert open_storage("s3://bucket/some/where/").uri == "s3://bucket/some/where"
    assert open_storage("s3://bucket").uri == "s3://bucket"
    assert not any(tmp_path.iterdir()), "opening touches nothing"


@pytest.mark.parametrize("uri", ["gs://bucket/x", "file://host/x", "s3:///x", "s3://b/x?y=1"])
def test_unknown_uris_are_refused(uri: str) -> None:
    with pytest.raises(StorageError, match="not a storage") as refusal:
        open_storage(uri)
    assert "s3://bucket/prefix" in str(refusal.value)
