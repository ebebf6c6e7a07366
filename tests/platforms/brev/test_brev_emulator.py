"""The emulator itself: rows of the contract that the wrapper never meets, and its account."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from brev_emulator.emulator import BrevEmulator
from brev_support import cli_for


def brev(
    emulator: BrevEmulator, *arguments: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    options = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    line = [str(emulator.executable), *arguments]
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        line, env=emulator.environment, capture_output=True, text=True, timeout=60, **options
    )


@pytest.fixture
def box(emulator: BrevEmulator) -> BrevEmulator:
    """An account with the running instance `box`."""
    emulator.add("box")
    time.sleep(0.1)
    assert emulator.instances() == {"box": "RUNNING"}
    return emulator


def test_exec_prints_the_name_after_the_output(box: BrevEmulator) -> None:
    assert brev(box, "exec", "box", "echo ok").stdout == "ok\nbox\n"


def test_exec_runs_a_failing_command_twice_where_that_version_does(box: BrevEmulator) -> None:
    command = 'echo run >>"$HOME/count"; exit 7'
    said = brev(box, "exec", "box", command)
    assert said.returncode == 1
    assert "Connection failed, checking instance status..." in said.stderr
    count = box.home_of("box") / "count"
    assert count.read_text() == "run\nrun\n"
    box.behave(exec_replay=False)
    brev(box, "exec", "box", command)
    assert count.read_text() == "run\n" * 3


def test_exec_reads_names_from_stdin_and_nothing_reaches_the_other_side(
    box: BrevEmulator,
) -> None:
    said = brev(box, "exec", "box", "cat", stdin="secret\n")
    assert "=== secret ===" in said.stderr
    assert "could not look up instance" in said.stderr
    assert said.stdout == "box\n"


def test_exec_starts_a_stopped_instance(box: BrevEmulator) -> None:
    cli_for(box).stop("box")
    assert brev(box, "exec", "box", "echo ok").stdout == "ok\nbox\n"
    assert [event["event"] for event in box.ledger()].count("started") == 1


def test_create_reads_types_from_a_pipe_unless_the_version_wants_a_flag(
    emulator: BrevEmulator,
) -> None:
    emulator.change(capacity={"g5.xlarge": 0})
    piped = json.dumps([{"type": "a100-80-1x"}])
    arguments = ("create", "box", "--type", "g5.xlarge", "--detached")
    assert brev(emulator, *arguments, stdin=piped).stdout == "box\n"
    assert emulator.bills()[0].type == "a100-80-1x", "a type nobody asked for by --type"
    emulator.behave(create_stdin="flag")
    said = brev(emulator, "create", "box2", *arguments[2:], stdin=piped)
    assert (said.returncode, said.stdout) == (1, "")
    assert "could only create 0/1 instances" in said.stderr


def test_create_reports_success_for_an_instance_that_failed(emulator: BrevEmulator) -> None:
    emulator.fault("create", "failure")
    said = brev(emulator, "create", "box", "--type", "g5.xlarge", "--timeout", "5")
    assert (said.returncode, said.stdout) == (0, "box\n")
    assert emulator.instances() == {"box": "FAILURE"}


def test_create_keeps_what_it_made_when_it_fails(emulator: BrevEmulator) -> None:
    emulator.change(capacity={"g5.xlarge": 1})
    said = brev(emulator, "create", "box", "--type", "g5.xlarge", "--count", "2", "--detached")
    assert (said.returncode, said.stdout) == (1, "")
    assert emulator.alive() == ["box-1"]


def test_words_and_flags_it_does_not_know(box: BrevEmulator) -> None:
    said = brev(box, "ls", "box", "--json")
    assert (said.returncode, said.stdout) == (0, "")
    assert "unknown flag: --yes" in brev(box, "delete", "box", "--yes").stderr
    assert "unknown flag: --gpu" in brev(box, "create", "b", "--gpu", "L40S:1").stderr
    assert brev(box, "orgs", "--json").returncode == 1
    said = brev(box, "start", "nobody")
    assert (said.returncode, "local path" in said.stdout) == (0, True)
    said = brev(box, "start", "box")
    assert (said.returncode, "Instance is not stopped" in said.stderr) == (1, True)


def test_an_open_pipe_blocks_the_login_prompt(emulator: BrevEmulator) -> None:
    (emulator.home / ".brev" / "credentials.json").unlink()
    line = [str(emulator.executable), "ls"]
    process = subprocess.Popen(
        line,
        env=emulator.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    said, error = process.communicate(b"", timeout=20)
    assert said.endswith(b"log in? [Y/n]: ")
    assert error == b"EOF\n"
    assert process.returncode == 1


def test_login_keeps_what_it_was_given_before_it_is_checked(emulator: BrevEmulator) -> None:
    path = emulator.home / ".brev" / "credentials.json"
    token = emulator.token()
    assert brev(emulator, "login", "--token", token).returncode == 0
    assert json.loads(path.read_text())["access_token"] == token
    assert brev(emulator, "login", "--token", "nonsense").returncode == 1
    assert (path.parent / ".invalid-refresh-token").read_text() == "nonsense"


def test_killing_an_instance_ends_what_ran_on_it(box: BrevEmulator) -> None:
    pidfile = box.home_of("box") / "pid"
    brev(box, "exec", "box", "setsid sleep 300 >/dev/null 2>&1 & echo $! >pid")
    pid = int(pidfile.read_text())
    assert _alive(pid)
    box.kill("box")
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline and _alive(pid):
        time.sleep(0.02)
    assert not _alive(pid)
    assert box.instances() == {"box": "RUNNING"}, "Brev has not noticed"
    box.restart("box")
    assert brev(box, "exec", "box", "cat pid").stdout == f"{pid}\nbox\n", "its files are there"


def test_losing_sshd_leaves_jobs_running(box: BrevEmulator) -> None:
    brev(box, "exec", "box", "setsid sleep 300 >/dev/null 2>&1 & echo $! >pid")
    pid = int((box.home_of("box") / "pid").read_text())
    box.kill_sshd("box")
    assert _alive(pid)
    box.restart("box")
    assert brev(box, "exec", "box", f"kill -0 {pid} && echo yes").stdout == "yes\nbox\n"


def test_the_account_bills_what_ran(emulator: BrevEmulator) -> None:
    emulator.delays(boot=0.0)
    emulator.add("box", "g5.xlarge")
    cli = cli_for(emulator)
    cli.stop("box")
    after_stop = emulator.bills()[0].billed_s
    time.sleep(0.3)
    assert emulator.bills()[0].billed_s == after_stop, "stopped: not billed"
    cli.start("box")
    time.sleep(0.2)
    cli.delete("box")
    (bill,) = emulator.bills()
    assert bill.billed_s > after_stop + 0.2
    assert bill.cost == pytest.approx(bill.billed_s / 3600.0 * 1.21)
    assert not bill.alive
    time.sleep(0.3)
    assert emulator.instances() == {}
    events = [event["event"] for event in emulator.ledger() if event["event"] != "sshd"]
    assert events == ["created", "stopped", "started", "deleted", "gone"]


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] != b"Z"
    except FileNotFoundError:
        return False
