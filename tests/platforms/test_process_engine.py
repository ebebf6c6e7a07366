"""The process engine on this host: what is its own, beyond what every platform must do."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tao_ray.platforms import CapacityError, Exit, Job, PlatformError, StatusLine
from tao_ray.platforms.local import LocalPlatform
from tao_ray.platforms.process_job import ProcessJob, script
from tao_ray.platforms.process_scripts import LIBRARY


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "root"
    platform = LocalPlatform(tmp_path / "root")
    for path in (tmp_path / "root" / ".jobs").glob("[!.]*"):
        platform.release(path.name)


def launch(platform: LocalPlatform, name: str, command: str, **more: object) -> ProcessJob:
    handle = platform.launch(Job(name, "w", command, **more))  # type: ignore[arg-type]
    assert isinstance(handle, ProcessJob)
    return handle


def record(root: Path, name: str) -> Path:
    return root / ".jobs" / name


def pid_of(root: Path, name: str) -> int:
    return int((record(root, name) / "started").read_text().split()[0])


def wait_for(path: Path) -> None:
    for _ in range(200):
        if path.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def log(handle: ProcessJob) -> str:
    *_, exit_ = handle.events()
    assert isinstance(exit_, Exit)
    return (Path(handle._directory) / "log").read_text()


# --- starting exactly once


def test_killing_launcher_and_its_shell_never_leads_to_two_starts(root: Path) -> None:
    platform = LocalPlatform(root)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tao_ray.platforms.local"])
    chance = random.Random(3)
    for attempt in range(15):
        job = Job(f"t-{attempt}", "w", f"echo $$ >> runs-{attempt}; sleep 0.1")
        launcher = processes.Process(target=platform.launch, args=(job,))
        launcher.start()
        time.sleep(chance.uniform(0.01, 0.06))
        assert launcher.pid is not None
        try:
            doomed = [*psutil.Process(launcher.pid).children(), launcher]
        except psutil.NoSuchProcess:
            doomed = [launcher]
        for process in doomed:
            process.kill()
        launcher.join()
        handle = platform.launch(job)
        assert list(handle.events())[-1] == Exit(code=0)
        assert len((root / "w" / f"runs-{attempt}").read_text().splitlines()) == 1
    launch(platform, "last", "true")
    leftovers = [path.name for path in (root / ".jobs").glob(".stage-*")]
    assert leftovers == [], "the next start clears what killed ones left"


def test_a_start_that_was_cut_before_the_runner_is_completed(root: Path) -> None:
    platform = LocalPlatform(root)
    job = Job("t-1", "w", "echo ran; cat spec", files={"spec": b"s"}, secrets={"TOKEN": "x"})
    first = platform.launch(job)
    list(first.events())
    directory = record(root, "t-1")
    kept = {"fingerprint", "workspace", "run.sh", "command.sh", "job.json"}
    for path in directory.iterdir():
        if path.name not in kept:
            path.unlink()
    (directory / "env").write_text("export TOKEN=x\n")
    assert platform.attach("t-1") is None, "prepared is not started"
    assert log(launch(platform, "t-1", job.command, files=job.files)) == "ran\ns"


def test_a_second_runner_of_a_job_leaves_at_once(root: Path) -> None:
    handle = launch(LocalPlatform(root), "t-1", "echo run >> runs; sleep 0.5")
    started = (record(root, "t-1") / "started").read_text()
    for _ in ("while it runs", "after its end"):
        subprocess.run(["sh", record(root, "t-1") / "run.sh", "-"], check=True, timeout=10)
        assert (record(root, "t-1") / "started").read_text() == started
        assert list(handle.events())[-1] == Exit(code=0)
    assert (root / "w" / "runs").read_text() == "run\n"


def test_a_start_in_progress_counts_although_its_launcher_died(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner is slow; launcher and shell die meanwhile; the GPU is taken all the same."""
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "stat"
    slow.write_text('#!/bin/sh\nsleep 0.7\nPATH=${PATH#*:*:} exec stat "$@"\n')
    slow.chmod(0o755)
    (root / "w").mkdir(parents=True)
    (root / "w" / "status.json").write_text("of an earlier job\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    platform = LocalPlatform(root, gpus=[0])
    job = Job("t-1", "w", "echo run >> runs; sleep 60", status_path="status.json", gpus=1)
    launcher = multiprocessing.get_context("fork").Process(target=platform.launch, args=(job,))
    launcher.start()
    wait_for(record(root, "t-1") / "job.json")
    time.sleep(0.1)  # the shell has called the runner
    for process in [*psutil.Process(launcher.pid).children(), launcher]:
        process.kill()
    launcher.join()
    assert not (record(root, "t-1") / "started").exists()
    with pytest.raises(CapacityError, match="0 of 1 free"):
        platform.launch(Job("t-2", "w", "true", gpus=1))
    assert platform.attach("t-1") is not None
    assert launch(platform, "t-1", job.command, gpus=1, status_path="status.json").gpus == ("0",)
    wait_for(root / "w" / "runs")
    assert (root / "w" / "runs").read_text() == "run\n"


def test_launches_from_many_processes_share_the_gpus(root: Path) -> None:
    platform = LocalPlatform(root, gpus=[0, 1])
    context = multiprocessing.get_context("fork")
    jobs = [Job(f"t-{n}", "w", "sleep 60", gpus=1) for n in range(5)]
    launchers = [context.Process(target=platform.launch, args=(job,)) for job in jobs]
    for process in launchers:
        process.start()
    for process in launchers:
        process.join()
    handles = [handle for job in jobs if (handle := platform.attach(job.id)) is not None]
    held = [gpu for handle in handles if isinstance(handle, ProcessJob) for gpu in handle.gpus]
    assert sorted(held) == ["0", "1"]


def test_the_runner_is_alone_in_its_session_and_no_child_of_the_launcher(root: Path) -> None:
    handle = launch(LocalPlatform(root), "t-1", "sleep 60")
    pid = pid_of(root, "t-1")
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert pid not in {child.pid for child in psutil.Process().children(recursive=True)}
    handle.stop()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_jobs_start_with_default_signal_handlers(root: Path) -> None:
    # What a launcher in the background ignores stays ignored, says POSIX.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = "import signal as s; print(s.getsignal(15) == s.SIG_DFL, s.getsignal(2))"
    text = log(launch(LocalPlatform(root), "t-1", f"{sys.executable} -c '{code}'"))
    assert text.startswith("True <built-in function default_int_handler>")


# --- ends


def test_what_a_killed_runner_leaves_is_ended(root: Path) -> None:
    handle = launch(LocalPlatform(root), "t-1", "touch up; sleep 60")
    wait_for(root / "w" / "up")
    runner = psutil.Process(pid_of(root, "t-1"))
    children = runner.children(recursive=True)
    assert children
    runner.kill()
    exit_ = list(handle.events())[-1]
    assert exit_ == Exit(code=None, detail="the job's supervising process was killed")
    psutil.wait_procs(children, timeout=5)
    assert not [child for child in children if child.is_running()]


@pytest.mark.parametrize(
    ("field", "value", "detail"),
    [(1, "12345", "supervising process was killed"), (2, "another-boot", "host was restarted")],
)
def test_a_reused_process_number_is_not_the_job(
    root: Path, field: int, value: str, detail: str
) -> None:
    handle = launch(LocalPlatform(root), "t-1", "true")
    list(handle.events())
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as innocent:
        started = record(root, "t-1") / "started"
        fields = [str(innocent.pid), *started.read_text().split()[1:]]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        ticks = Path(f"/proc/{innocent.pid}/stat").read_text().rpartition(")")[2].split()[19]
        fields[1:3] = [ticks, boot]
        fields[field] = value
        started.write_text(" ".join(fields) + "\n")
        (record(root, "t-1") / "exit").unlink()
        other = LocalPlatform(root).attach("t-1")
        assert other is not None
        exit_ = other.poll()
        assert exit_ is not None
        assert exit_.code is None
        assert detail in exit_.detail
        assert other.stop() == exit_
        assert innocent.poll() is None, "a process of others is left alone"
        innocent.kill()


def test_a_stop_request_outlives_the_stopper(root: Path) -> None:
    """The stopper dies after SIGTERM; the job ends by itself, with status 0."""
    wait = "import signal,sys,time; signal.signal(15, lambda *_: (time.sleep(0.4), sys.exit(0)))"
    command = f"{sys.executable} -c \"{wait}; open('up', 'w'); time.sleep(60)\""
    platform = LocalPlatform(root)
    handle = launch(platform, "t-1", command)
    wait_for(root / "w" / "up")
    stopper = multiprocessing.get_context("fork").Process(target=handle.stop)
    stopper.start()
    wait_for(record(root, "t-1") / "stop")
    time.sleep(0.1)
    stopper.kill()
    stopper.join()
    assert list(handle.events())[-1] == Exit(code=0, stopped=True)


def test_each_process_of_a_job_is_listed_once(root: Path) -> None:
    """So each gets one SIGTERM: a second would hit a program that is cleaning up."""
    handle = launch(LocalPlatform(root), "t-1", "touch up; sleep 60 & sleep 61; true")
    wait_for(root / "w" / "up")
    text = script(
        LIBRARY,
        'members "$job" "$runner"; echo $found',
        job=record(root, "t-1"),
        runner=pid_of(root, "t-1"),
    )
    pids: list[str] = []
    deadline = time.monotonic() + 10
    while len(set(pids)) < 3 and time.monotonic() < deadline:  # the shell and both sleeps
        pids = subprocess.run(["sh", "-c", text], capture_output=True, text=True).stdout.split()
    assert sorted(set(pids)) == sorted(pids)
    assert len(pids) == 3
    handle.stop(grace_s=5)


def test_stop_reaches_processes_that_left_the_session(root: Path) -> None:
    handle = launch(LocalPlatform(root), "t-1", "setsid sleep 77 & sleep 78; true")
    runner = pid_of(root, "t-1")
    mine: list[psutil.Process] = []
    for _ in range(100):
        marked = f"{record(root, 't-1')}/"
        mine = [p for p in psutil.process_iter() if has_marker(p, marked)]
        if sum("sleep" in p.name() for p in mine) == 2:
            break
        time.sleep(0.02)
    assert any(os.getsid(p.pid) != runner for p in mine)
    assert handle.stop(grace_s=5).stopped
    assert not [p for p in mine if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def has_marker(process: psutil.Process, value: str) -> bool:
    try:
        return bool(process.environ().get("TAO_RAY_JOB") == value)
    except psutil.Error:
        return False


def test_a_job_is_not_mistaken_for_one_with_a_longer_name(root: Path) -> None:
    platform = LocalPlatform(root)
    long = launch(platform, "t-10", "sleep 60")
    launch(platform, "t-1", "sleep 60").stop()
    assert long.poll() is None


def test_a_released_job_ends_its_watchers(root: Path) -> None:
    platform = LocalPlatform(root)
    handle = launch(platform, "t-1", "echo hi; sleep 60")
    watch = handle.events()
    next(watch)
    platform.release("t-1")
    with pytest.raises(PlatformError, match="released"):
        list(watch)
    assert list((root / ".jobs").glob("*t-1*")) == []


def test_a_new_status_file_longer_than_the_old_one_is_read_whole(root: Path) -> None:
    platform = LocalPlatform(root)
    log(launch(platform, "t-1", "echo old > status.json"))
    command = "seq 100 > new; mv new status.json; echo 101 >> status.json"
    handle = launch(platform, "t-2", command, status_path="status.json")
    log(handle)
    lines = [int(e.data) for e in handle.events() if isinstance(e, StatusLine)]
    assert lines == list(range(1, 102))


# --- GPUs and slots


def test_gpus_are_handed_out_and_come_back(root: Path) -> None:
    platform = LocalPlatform(root, gpus=[0, 2, "GPU-abc"])
    show = 'echo "gpus=$CUDA_VISIBLE_DEVICES"; [ -z "$WAIT" ] || sleep 60'
    first = launch(platform, "a", show, gpus=2, env={"WAIT": "1"})
    assert first.gpus == ("0", "2")
    second = launch(platform, "b", show, gpus=1, env={"WAIT": "1", "CUDA_VISIBLE_DEVICES": "9"})
    assert second.gpus == ("GPU-abc",)
    with pytest.raises(CapacityError, match="1 GPUs wanted, 0 of 3 free"):
        platform.launch(Job("c", "w", show, gpus=1))
    assert platform.attach("c") is None, "a refused job leaves nothing"
    first.stop()
    third = launch(platform, "c", show, gpus=1)
    assert log(third) == "gpus=0\n"
    with pytest.raises(CapacityError, match="3 GPUs wanted, 2 of 3 free"):
        platform.launch(Job("d", "w", show, gpus=3))
    os.kill(pid_of(root, "b"), signal.SIGKILL)
    assert launch(platform, "d", show, gpus=3).gpus == ("0", "2", "GPU-abc")
    assert "gpus=GPU-abc" in log(second), "an assigned GPU wins over the job's own setting"


def test_a_job_without_gpus_sees_none_where_there_are_some(root: Path) -> None:
    show = 'echo "${CUDA_VISIBLE_DEVICES-unset}"'
    assert log(launch(LocalPlatform(root, gpus=[0]), "a", show)) == "\n"
    own = {"CUDA_VISIBLE_DEVICES": "0"}
    assert log(launch(LocalPlatform(root, gpus=[0]), "b", show, env=own)) == "0\n"
    assert log(launch(LocalPlatform(root, gpus=[]), "c", show, gpus=2)) == "unset\n"


def test_the_makers_visible_gpus_are_the_platforms(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert LocalPlatform(root).gpus == ["3", "5"]


def test_slots(root: Path) -> None:
    platform = LocalPlatform(root, slots=2)
    for name in "ab":
        launch(platform, name, "sleep 60")
    with pytest.raises(CapacityError, match="all 2 slots are taken"):
        platform.launch(Job("c", "w", "true", files={"c.yaml": b""}))
    assert not (root / "w" / "c.yaml").exists()
    launch(platform, "a", "sleep 60").stop()
    assert log(launch(platform, "c", "echo in")) == "in\n"


# --- environment and secrets


def test_activate_then_env_then_the_jobs_own(root: Path, tmp_path: Path) -> None:
    activate = tmp_path / "activate"
    activate.write_text("A=activate B=activate C=activate; export A B C\n")
    platform = LocalPlatform(root, activate=str(activate), env={"B": "platform", "C": "platform"})
    assert log(launch(platform, "t-1", "echo $A $B $C", env={"C": "job"})) == (
        "activate platform job\n"
    )
    missing = LocalPlatform(root, activate=str(tmp_path / "nowhere"))
    bad = [check for check in missing.preflight() if not check.ok and not check.warning]
    assert [check.name for check in bad] == ["activate"]
    assert "platform.activate" in bad[0].remedy
    failed = launch(missing, "t-2", "echo never")
    text = log(failed)
    assert "nowhere" in text
    assert "never" not in text
    assert failed.poll() != Exit(code=0)


def test_path_begins_with_this_interpreters_directory(root: Path) -> None:
    text = log(launch(LocalPlatform(root), "t-1", 'echo "$PATH"'))
    assert text.startswith(f"{os.path.dirname(sys.executable)}:")


def test_secrets_are_in_no_argument_and_no_open_file(root: Path) -> None:
    platform = LocalPlatform(root)
    handle = launch(platform, "t-1", "touch up; sleep 60", secrets={"TOKEN": "hushhush"})
    wait_for(root / "w" / "up")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            assert b"hushhush" not in (process / "cmdline").read_bytes()
        except OSError:
            continue
    for path in root.rglob("*"):
        if path.is_file():
            assert b"hushhush" not in path.read_bytes()
    handle.stop()


def test_the_secrets_file_is_its_owners_alone(root: Path) -> None:
    """Looked at while the start waits for the lock, so that no runner has read it yet."""
    platform = LocalPlatform(root)
    job = Job("t-1", "w", "true", secrets={"TOKEN": "hushhush"})
    (root / ".jobs").mkdir(parents=True)
    with open(root / ".jobs" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        launcher = threading.Thread(target=platform.launch, args=(job,))
        launcher.start()
        deadline = time.monotonic() + 10
        while not (staged := list((root / ".jobs").glob(".stage-*/job.json"))):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        env = staged[0].with_name("env")
        assert b"hushhush" in env.read_bytes()
        assert stat.S_IMODE(env.stat().st_mode) == 0o600
        assert stat.S_IMODE(env.parent.stat().st_mode) == 0o700
    launcher.join()
    assert (record(root, "t-1") / "started").exists()


@pytest.mark.parametrize("name", ["A B", "1A", "A=B", ""])
def test_bad_names_of_variables_are_refused(root: Path, name: str) -> None:
    with pytest.raises(ValueError, match="environment variable"):
        LocalPlatform(root).launch(Job("t-1", "w", "true", env={name: "x"}))


# --- preflight


def test_a_root_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    checks = LocalPlatform(tmp_path / "file" / "root").preflight()
    bad = [check for check in checks if not check.ok and not check.warning]
    assert [check.name for check in bad] == ["root"]
    assert str(tmp_path / "file" / "root") in bad[0].remedy
