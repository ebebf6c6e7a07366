"""``tao-ray machines`` on the emulated account."""

from __future__ import annotations

from pathlib import Path

import pytest
from brev_emulator.emulator import BrevEmulator

from tao_ray.cli import main
from tao_ray.journal import FILE_NAME, Event, Journal


@pytest.fixture(autouse=True)
def account(
    emulator: BrevEmulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> BrevEmulator:
    for name in ("PATH", "HOME", "BREV_EMULATOR"):
        monkeypatch.setenv(name, emulator.environment[name])
    monkeypatch.chdir(tmp_path)
    for name in ("tao-a-1", "tao-b-1", "my-own"):
        emulator.add(name)
    return emulator


@pytest.fixture
def running(tmp_path: Path) -> Journal:
    """The run of tao-b-1, which goes on."""
    directory = tmp_path / "runs" / "b" / "now"
    directory.mkdir(parents=True)
    journal = Journal(directory / FILE_NAME)
    journal.append(Event("machine", data={"what": "wanted", "name": "tao-b-1", "slots": 1}))
    return journal


def test_it_lists_our_machines_and_whose_they_are(
    running: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["tao-a-1", "tao-b-1"]
    assert lines[0].endswith("of no run here")
    assert lines[1].endswith("runs/b/now, running")
    running.close()


def test_it_deletes_what_is_left_but_nothing_that_is_used_or_not_ours(
    running: Journal, emulator: BrevEmulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machines", "delete"]) == 2
    assert "used by a running search: tao-b-1" in capsys.readouterr().err
    assert main(["machines", "delete", "my-own"]) == 2
    assert len(emulator.alive()) == 3
    running.close()
    assert main(["machines", "delete"]) == 0
    assert emulator.alive() == ["my-own"]
    assert main(["machines", "ls"]) == 0
    assert "no machine of ours exists" in capsys.readouterr().out
