"""Machines by `brev exec`, whatever that does to a command: on the emulator, with real sshds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from brev_emulator.emulator import BrevEmulator

from tao_ray.config import BrevPlatformConfig
from tao_ray.platforms.base import Exit, Job, LinkError, PlatformError, StatusLine
from tao_ray.platforms.brev import BrevCli
from tao_ray.platforms.brev.exec import ExecMachine
from tao_ray.platforms.machine import Chunk
from tao_ray.platforms.process import ProcessEngine

NAME = "tao-x-1"


@pytest.fixture
def machine(emulator: BrevEmulator, cli: BrevCli) -> ExecMachine:
    emulator.add(NAME)
    while not _answers(emulator):
        time.sleep(0.05)
    return ExecMachine(NAME, cli)


def _answers(emulator: BrevEmulator) -> bool:
    emulator.instances()  # moves it on
    return any(event["event"] == "sshd" for event in emulator.ledger())


def test_a_command_and_what_it_says(machine: ExecMachine, emulator: BrevEmulator) -> None:
    result = machine.run("cat; printf '\\000\\377'; echo oops >&2; exit 7", stdin=b"in\n")
    assert (result.code, result.stdout, result.stderr) == (7, b"in\n\x00\xff", b"oops\n")
    (call,) = emulator.calls("exec")
    assert "\n" not in call["arguments"][-1]
    assert machine.run("true").code == 0


def test_a_command_that_is_sent_twice_runs_once(
    machine: ExecMachine, emulator: BrevEmulator, tmp_path: Path
) -> None:
    """Its link breaks while it runs; the CLI connects again and sends it again."""
    count = tmp_path / "count"
    breaker = threading.Thread(target=_break_the_link, args=(emulator, count))
    breaker.start()
    result = machine.run(f"echo run >> '{count}'; sleep 3; echo done; exit 3")
    breaker.join()
    assert (result.code, result.stdout) == (3, b"done\n")
    assert count.read_text() == "run\n"


def _break_the_link(emulator: BrevEmulator, begun: Path) -> None:
    while not begun.exists():
        time.sleep(0.02)
    emulator.kill_sshd(NAME)
    emulator.restart(NAME)


@pytest.mark.slow
def test_trouble_of_the_cli_is_a_broken_link(
    machine: ExecMachine, emulator: BrevEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for effect in ("network", "garbage", "server"):
        emulator.fault("exec", effect)
        with pytest.raises(LinkError):
            machine.run("true")
    monkeypatch.setattr("tao_ray.platforms.brev.exec._OVERHEAD_S", 2.0)
    emulator.fault("exec", "hang", value=60.0)
    with pytest.raises(LinkError, match="did not end within 3 s and was killed") as late:
        machine.run("true", timeout=1.0)
    assert "network" in (late.value.remedy or "")
    emulator.vanish(NAME)
    with pytest.raises(LinkError, match="could not look the instance up"):
        machine.run("true")


@pytest.mark.slow
def test_files(machine: ExecMachine, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "in").mkdir(parents=True)
    (tree / "in" / "big").write_bytes(bytes(range(256)) * 800)
    (tree / "a b").write_text("x")
    far = tmp_path / "far side"
    machine.put(str(tree), str(far))
    assert machine.list(str(far)) == {"a b": 1, "in/big": 204800}
    machine.get(str(far), str(tmp_path / "back"))
    assert (tmp_path / "back" / "in" / "big").read_bytes() == (tree / "in" / "big").read_bytes()
    machine.get(f"{far}/a b", str(tmp_path / "one"))
    assert (tmp_path / "one").read_text() == "x"
    assert machine.read(f"{far}/in/big", 255, 2) == b"\xff\x00"
    machine.remove(str(far))
    assert machine.list(str(far)) == {}
    for absent in (machine.read, lambda path: machine.get(path, str(tmp_path / "no"))):
        with pytest.raises(FileNotFoundError):
            absent(f"{far}/a b")
    (tmp_path / "huge").write_bytes(b"0" * (5 << 20))
    with pytest.raises(PlatformError, match="cannot be brought onto the machine"):
        machine.put(str(tmp_path / "huge"), str(far))


@pytest.mark.slow
def test_a_followed_file(machine: ExecMachine, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    stream = machine.follow({str(path): 0})
    assert _next(stream).data == b"one\n"
    with open(path, "a") as file:
        file.write("two\n")
    chunk = _next(stream)
    assert (chunk.offset, chunk.data) == (4, b"two\n")
    stream.close()  # type: ignore[attr-defined]


def _next(stream: Iterator[Chunk | None]) -> Chunk:
    quiet = time.monotonic()
    for item in stream:
        if item is not None:
            return item
        assert time.monotonic() - quiet < 1.5, "something must come every second"
        quiet = time.monotonic()
    raise AssertionError


@pytest.mark.slow
def test_a_job(machine: ExecMachine, tmp_path: Path) -> None:
    engine = ProcessEngine(str(tmp_path / "root"))
    text = 'for i in 1 2; do echo "{$i}" >> status.json; sleep 1; done; exit 5'
    job = Job("a-1", "a", text, status_path="status.json")
    engine.launch(machine, job)
    handle = engine.attach(machine, "a-1")
    assert handle is not None
    events = list(handle.events())
    assert [e.data for e in events if isinstance(e, StatusLine)] == [b"{1}\n", b"{2}\n"]
    assert events[-1] == Exit(code=5)


def test_nothing_secret_goes_this_way() -> None:
    with pytest.raises(ValueError, match="process lists"):
        BrevPlatformConfig(kind="brev", link="exec", pass_env=["TOKEN"])
