"""What W&B's server has been told is what the journal says, whatever happens on the way.

The client is W&B's own; the server answers as W&B's does, on loopback.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import EVENTS, SECRET, drive, environment, finish, state_of
from wandb_files import recorded_runs
from wandb_server import WandbServer, wandb_server

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[WandbServer]:
    with wandb_server() as served:
        yield served


def check(server: WandbServer, directory: Path) -> None:
    """Compare all that the server has with the journal."""
    state = state_of(directory)
    runs = server.named()
    assert sorted(runs) == sorted([*state.trials, "summary"])
    assert {run.group for run in runs.values()} == {"made/20260102-030405"}
    for trial in state.trials.values():
        run = runs[trial.id]
        assert run.steps == sorted(trial.epochs), trial.id
        losses = [point["loss"] for point in run.history.values()]
        assert losses == [trial.epochs[e].metrics["loss"] for e in sorted(trial.epochs)]
        assert run.exit_code == (1 if trial.status == "failed" else 0)
        assert run.config["train.lr"]["value"] == trial.config["train.lr"]
    points = runs["summary"].history
    table = points[max(points)]["trials"]
    assert table["nrows"] == len(state.trials)
    (sent,) = [body for path, body in server.files.items() if path.endswith(table["path"])]
    assert [row[0] for row in json.loads(sent)["data"]] == list(state.trials)


def sync(server: WandbServer, directory: Path) -> None:
    """What the user is told to do."""
    folders = [str(path) for path in (directory / "wandb").glob("offline-run-*")]
    command = [sys.executable, "-m", "wandb", "sync", *folders]
    subprocess.run(command, env=environment(directory, server.url), check=True, timeout=120)


def test_a_run_that_is_killed_and_resumed(server: WandbServer, run_directory: Path) -> None:
    generator = random.Random(7)
    killed = 0
    for _ in range(3):
        process = drive("online", run_directory, url=server.url)
        try:
            process.communicate(timeout=generator.uniform(4.0, 8.0))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
    assert killed
    said = finish(drive("online", run_directory, url=server.url))
    assert f"W&B: {server.url}/team/project/groups/made%2F20260102-030405" in said
    assert "wandb sync" not in said
    check(server, run_directory)
    for path in run_directory.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_a_server_that_falls_silent(server: WandbServer, run_directory: Path) -> None:
    finish(drive("online", run_directory, EVENTS // 2, url=server.url))
    server.silent = True
    begin = time.monotonic()
    said = finish(drive("online", run_directory, url=server.url))
    assert time.monotonic() - begin < 60
    assert "trials that it does not know are recorded offline" in said
    assert f"wandb sync {run_directory}/wandb/offline-run-*" in said
    assert f"tao-ray resume {run_directory}" in said
    server.silent = False
    sync(server, run_directory)
    said = finish(drive("online", run_directory, url=server.url))
    assert "resume" not in said
    check(server, run_directory)


def test_no_server_from_the_start(run_directory: Path) -> None:
    with wandb_server() as gone:
        pass
    begin = time.monotonic()
    said = finish(drive("online", run_directory, url=gone.url))
    assert time.monotonic() - begin < 60
    assert said.count("trials that it does not know are recorded offline") == 1
    assert "tao-ray resume" not in said
    state = state_of(run_directory)
    runs = recorded_runs(run_directory / "wandb")
    assert sorted(runs) == sorted([*state.trials, "summary"])
    assert all(runs[t.id].steps == sorted(t.epochs) for t in state.trials.values())


def test_what_was_recorded_offline_in_parts_is_one_run_after_sync(
    server: WandbServer, run_directory: Path
) -> None:
    finish(drive("offline", run_directory, EVENTS // 2))
    finish(drive("online", run_directory, url=server.url))
    assert server.named()["0008"].steps == [1, 2, 3, 4, 5, 6]
    assert "0003" not in server.named()  # its second part must come after the first
    sync(server, run_directory)
    check(server, run_directory)


def test_after_sync_a_run_goes_on_online(server: WandbServer, run_directory: Path) -> None:
    finish(drive("offline", run_directory, EVENTS // 2))
    sync(server, run_directory)
    said = finish(drive("online", run_directory, url=server.url))
    assert "offline" not in said
    check(server, run_directory)
