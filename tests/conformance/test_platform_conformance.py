"""What every platform must do. Real jobs; sizes and delays kept small."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tao_ray.platforms import (
    Event,
    Exit,
    Heartbeat,
    Job,
    JobConflictError,
    JobHandle,
    LogLine,
    Offset,
    Platform,
    RentsMachines,
    StatusLine,
)

EPOCHS = "for i in 1 2 3; do echo epoch $i; echo '{\"epoch\":' $i} >> status.json; done"


def job(job_id: str, command: str, **more: object) -> Job:
    settings: dict[str, object] = {"workspace": "w", "status_path": "status.json", **more}
    return Job(job_id, command=command, **settings)  # type: ignore[arg-type]


def ended(handle: JobHandle) -> Exit:
    last = list(handle.events())[-1]
    assert isinstance(last, Exit)
    return last


def statuses(events: list[Event]) -> list[bytes]:
    return [event.data for event in events if isinstance(event, StatusLine)]


def logs(events: list[Event]) -> list[bytes]:
    return [event.data for event in events if isinstance(event, LogLine)]


def text_of(handle: JobHandle, path: str, tmp_path: Path) -> str:
    handle.fetch(path, str(tmp_path / "fetched"))
    return (tmp_path / "fetched").read_text()


def await_file(handle: JobHandle, path: str) -> None:
    for _ in range(200):
        if path in handle.list():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


def in_another_process(platform: Platform, code: str, tmp_path: Path) -> subprocess.Popen[str]:
    """Run `code` with the name ``platform`` bound to a copy of it."""
    path = tmp_path / "platform.pickle"
    path.write_bytes(pickle.dumps(platform))
    start = f"import pickle; platform = pickle.load(open({str(path)!r}, 'rb'))\n"
    imports = "from tao_ray.platforms import *\n"
    command = [sys.executable, "-c", imports + start + code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# --- the plain life of a job


def test_preflight_finds_nothing_wrong(platform: Platform) -> None:
    checks = platform.preflight()
    assert checks
    assert [check for check in checks if not check.ok and not check.warning] == []


def test_a_job_from_start_to_end(platform: Platform) -> None:
    begun = time.time()
    events = list(platform.launch(job("t-1", f"{EPOCHS}; echo oops >&2; exit 3")).events())
    assert statuses(events) == [b'{"epoch": 1}\n', b'{"epoch": 2}\n', b'{"epoch": 3}\n']
    assert logs(events) == [b"epoch 1", b"epoch 2", b"epoch 3", b"oops"]
    assert events[-1] == Exit(code=3)
    assert [event for event in events if isinstance(event, Exit)] == [events[-1]]
    for event in events:
        if isinstance(event, StatusLine) and event.written is not None:
            assert begun - 1 <= event.written <= time.time() + 1


def test_files_and_directory_of_a_job(platform: Platform, tmp_path: Path) -> None:
    files = {"spec.yaml": b"lr: 1\n", "deep/er/data.bin": bytes(range(256))}
    command = "pwd; cat spec.yaml; stat -c %a spec.yaml; cp -r deep copy"
    handle = platform.launch(job("t-1", command, files=files))
    events = list(handle.events())
    assert events[-1] == Exit(code=0)
    assert logs(events) == [platform.workspace("w").encode(), b"lr: 1", b"600"]
    handle.fetch("copy/er/data.bin", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == bytes(range(256))


def test_a_job_with_nothing_to_say(platform: Platform) -> None:
    assert list(platform.launch(job("t-1", "true", status_path=None)).events()) == [Exit(code=0)]
    assert platform.launch(job("t-2", "no-such-command")).events is not None
    handle = platform.attach("t-2")
    assert handle is not None
    assert ended(handle).code == 127


def test_a_silent_job_has_heartbeats(platform: Platform) -> None:
    handle = platform.launch(job("t-1", "sleep 3.5"))
    times = []
    for event in handle.events():
        times.append(time.monotonic())
        assert isinstance(event, Heartbeat | Exit)
    assert len(times) >= 3
    assert max(b - a for a, b in itertools.pairwise(times)) < 2


def test_poll(platform: Platform) -> None:
    handle = platform.launch(job("t-1", "sleep 0.5; exit 4"))
    assert handle.poll() is None
    assert ended(handle) == handle.poll() == Exit(code=4)


def test_the_environment(platform: Platform) -> None:
    variables = {"PLAIN": "a 'b' \"c\" $d\nsecond line"}
    secrets = {"TOKEN": "hush; echo 'x'"}
    command = 'printf \'%s|%s\\n\' "$PLAIN" "$TOKEN"; env | cut -d= -f1'
    events = list(platform.launch(job("t-1", command, env=variables, secrets=secrets)).events())
    lines = b"\n".join(logs(events)).decode()
    assert lines.startswith(f"{variables['PLAIN']}|{secrets['TOKEN']}\n")
    names = set(lines.splitlines())
    assert not names & {"WORLD_SIZE", "RANK", "LOCAL_RANK", "RAY_JOB_ID", "CUDA_VISIBLE_DEVICES"}


def test_two_jobs_side_by_side(platform: Platform) -> None:
    handles = [
        platform.launch(job(name, f"sleep 6; {EPOCHS}; echo {name} > mine", workspace=space))
        for name, space in (("a-1", "w"), ("b-1", "other"))
    ]
    assert [handle.poll() for handle in handles] == [None, None]
    for handle, name in zip(handles, ("a-1", "b-1"), strict=True):
        events = list(handle.events())
        assert len(statuses(events)) == 3
        assert events[-1] == Exit(code=0)
        assert handle.list()["mine"] == len(name) + 1


# --- the stream


def test_events_from_any_offset(platform: Platform) -> None:
    handle = platform.launch(job("t-1", f"{EPOCHS}; printf unfinished"))
    events = list(handle.events())
    assert logs(events)[-1] == b"unfinished"
    for event in events[:-1]:
        assert isinstance(event, StatusLine | LogLine)
        rest = list(handle.events(event.offset))
        left = [
            other
            for other in events[:-1]
            if isinstance(other, StatusLine | LogLine)
            and (
                other.offset.status > event.offset.status
                if isinstance(other, StatusLine)
                else other.offset.log > event.offset.log
            )
        ]
        assert statuses(rest) == statuses(list(left))
        assert logs(rest) == logs(list(left))
        assert rest[-1] == events[-1]
    assert logs(list(handle.events(logs=False))) == []
    assert statuses(list(handle.events(logs=False))) == statuses(events)


def test_only_complete_status_lines(platform: Platform) -> None:
    command = "printf 'one\\ntw' > status.json; sleep 0.4; printf 'o\\ntorn' >> status.json"
    assert statuses(list(platform.launch(job("t-1", command)).events())) == [b"one\n", b"two\n"]


def test_a_status_file_that_appears_late(platform: Platform) -> None:
    late = job("t-1", f"sleep 0.3; mkdir -p r/t; cd r/t; {EPOCHS}", status_path="r/t/status.json")
    assert len(statuses(list(platform.launch(late).events()))) == 3


def test_a_second_job_of_a_workspace_has_its_own_stream(platform: Platform) -> None:
    first = platform.launch(job("t-1", f"{EPOCHS}; echo data > checkpoint"))
    assert len(statuses(list(first.events()))) == 3
    second = platform.launch(job("t-2", "cat checkpoint; echo more >> status.json"))
    events = list(second.events())
    assert statuses(events) == [b"more\n"]
    assert logs(events) == [b"data"]
    status = next(event for event in events if isinstance(event, StatusLine))
    assert status.offset.status == len(b"more\n")
    assert statuses(list(second.events(status.offset))) == []


@pytest.mark.parametrize("how", ["> status.json", "> new; mv new status.json"])
def test_a_status_file_begun_anew(platform: Platform, how: str) -> None:
    ended(platform.launch(job("t-1", "echo long line of the first job > status.json")))
    handle = platform.launch(
        job("t-2", f"sleep 0.3; echo 1 {how}; sleep 0.3; echo 2 >> status.json")
    )
    events = list(handle.events())
    assert statuses(events) == [b"1\n", b"2\n"]
    first = next(event for event in events if isinstance(event, StatusLine))
    assert statuses(list(handle.events(first.offset))) == [b"2\n"]


def test_an_epoch_is_seen_soon(platform: Platform) -> None:
    command = "for i in 1 2 3 4 5 6 7 8 9; do date +%s.%N >> status.json; sleep 0.13; done"
    delays = []
    for event in platform.launch(job("t-1", command)).events():
        if isinstance(event, StatusLine):
            delays.append(time.time() - float(event.data))
    assert len(delays) == 9
    assert statistics.median(delays) < 0.15


def test_a_long_log_is_streamed(platform: Platform) -> None:
    command = f"yes {'0123456789' * 100} | head -c 100000000; echo; echo line >> status.json"
    handle = platform.launch(job("t-1", command))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = lines = 0
    for event in handle.events():
        if isinstance(event, LogLine):
            size += len(event.data) + 1
            lines += 1
    assert size == 100_000_001
    assert lines == 99_901
    assert event == Exit(code=0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


def test_a_progress_bar_without_newlines_is_handed_out(platform: Platform) -> None:
    command = "yes 0123456789 | tr '\\n' '\\r' | head -c 300000; sleep 60"
    handle = platform.launch(job("t-1", command))
    size = 0
    for event in handle.events():
        if isinstance(event, LogLine):
            size += len(event.data)
        if size > 200_000:
            break
    handle.stop(1)


# --- ends


def test_stop_ends_all_of_a_job(platform: Platform) -> None:
    handle = platform.launch(job("t-1", "touch up; sleep 70 & sleep 71; touch went-on"))
    await_file(handle, "up")
    exit_ = handle.stop(grace_s=10)
    assert exit_.stopped
    assert handle.poll() == exit_ == ended(handle) == handle.stop()
    assert "went-on" not in handle.list()


def test_a_stopped_job_that_exits_with_zero_is_known_as_stopped(platform: Platform) -> None:
    trap = f'{sys.executable} -c "import signal,sys,time;\n'
    code = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); open('up','w'); time.sleep(60)\""
    handle = platform.launch(job("t-1", trap + code))
    await_file(handle, "up")
    exit_ = handle.stop()
    assert (exit_.code, exit_.stopped) == (0, True)
    other = platform.attach("t-1")
    assert other is not None
    assert other.poll() == exit_


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(platform: Platform) -> None:
    handle = platform.launch(job("t-1", "trap '' TERM; touch up; while :; do sleep 1; done"))
    await_file(handle, "up")
    begun = time.monotonic()
    exit_ = handle.stop(grace_s=1)
    assert 0.8 < time.monotonic() - begun < 10
    assert exit_.stopped
    assert exit_.code != 0


def test_stop_waits_for_a_job_that_cleans_up(platform: Platform) -> None:
    cleanup = "trap 'sleep 0.5; echo saved > saved; exit 0' TERM; touch up; sleep 60 & wait"
    handle = platform.launch(job("t-1", f'sh -c "{cleanup}"'))
    await_file(handle, "up")
    assert handle.stop(grace_s=20).stopped
    assert handle.list()["saved"] == 6


def test_stopping_an_ended_job_is_its_end(platform: Platform) -> None:
    handle = platform.launch(job("t-1", "exit 5"))
    assert ended(handle) == handle.stop() == Exit(code=5)


def test_a_killed_job_has_an_end(platform: Platform) -> None:
    # The job kills its whole process group, its supervisor included.
    handle = platform.launch(job("t-1", f"{EPOCHS}; kill -9 0; sleep 60"))
    events = list(handle.events())
    assert len(statuses(events)) == 3
    exit_ = events[-1]
    assert isinstance(exit_, Exit)
    assert exit_.code in (None, 137)
    assert not exit_.stopped
    assert handle.poll() == exit_


def test_a_killed_main_process_has_its_signal(platform: Platform) -> None:
    exit_ = ended(platform.launch(job("t-1", "sh -c 'kill -9 $$'")))
    assert exit_.code in (None, 137)
    assert exit_.signal in (None, signal.SIGKILL)


def test_a_grandchild_does_not_outlive_its_job(platform: Platform) -> None:
    beat = "while :; do echo >> beats; sleep 0.05; done"
    handle = platform.launch(job("t-1", f"setsid sh -c '{beat}' & ({beat}) & sleep 0.3; exit 6"))
    assert ended(handle).code == 6
    beats = handle.list()["beats"]
    time.sleep(0.3)
    assert handle.list()["beats"] == beats


# --- names


def test_attach_knows_only_what_was_started(platform: Platform) -> None:
    assert platform.attach("t-1") is None
    platform.launch(job("t-1", "exit 2"))
    handle = platform.attach("t-1")
    assert handle is not None
    assert handle.job_id == "t-1"
    assert ended(handle).code == 2
    assert platform.attach("t-2") is None


def test_launch_is_idempotent(platform: Platform) -> None:
    once = job("t-1", "echo run >> runs; sleep 0.5; cat spec", files={"spec": b"first"})
    platform.launch(once)
    assert ended(platform.launch(once)).code == 0
    handle = platform.launch(once)
    assert ended(handle).code == 0
    assert handle.list()["runs"] == 4


@pytest.mark.parametrize("change", [{"command": "false"}, {"files": {"spec": b"second"}}])
def test_another_job_of_the_same_id_is_a_conflict(
    platform: Platform, tmp_path: Path, change: dict[str, object]
) -> None:
    settings: dict[str, object] = {"command": "sleep 0.5", "files": {"spec": b"first"}}
    handle = platform.launch(job("t-1", **settings))  # type: ignore[arg-type]
    with pytest.raises(JobConflictError, match="other files"):
        platform.launch(job("t-1", **{**settings, **change}))  # type: ignore[arg-type]
    assert text_of(handle, "spec", tmp_path) == "first"
    assert ended(handle).code == 0


@pytest.mark.parametrize("bad", ["", "a/b", ".hidden", "a b", "../x", "a\n"])
def test_bad_ids_are_refused(platform: Platform, bad: str) -> None:
    with pytest.raises(ValueError, match="job id"):
        platform.launch(job(bad, "true"))


def test_release_removes_the_job_and_leaves_the_workspace(
    platform: Platform, tmp_path: Path
) -> None:
    handle = platform.launch(job("t-1", "touch kept; echo x > beats; sleep 60"))
    await_file(handle, "beats")
    platform.release("t-1")
    platform.release("t-1")
    assert platform.attach("t-1") is None
    again = platform.launch(job("t-1", "ls; exit 7"))
    events = list(again.events())
    assert b"kept" in logs(events)
    assert events[-1] == Exit(code=7)


def test_discard_removes_the_workspace_and_its_jobs(platform: Platform) -> None:
    platform.launch(job("t-1", "exit"))
    running = platform.launch(job("t-2", "touch here; sleep 60"))
    await_file(running, "here")
    other = platform.launch(job("u-1", "touch mine", workspace="other"))
    ended(other)
    platform.discard("w")
    platform.discard("w")
    assert platform.attach("t-1") is platform.attach("t-2") is None
    assert platform.attach("u-1") is not None
    assert list(other.list()) == ["mine"]
    assert list(platform.launch(job("t-3", "ls > /dev/null")).list()) == []


# --- files


def test_put_fetch_list_remove(platform: Platform, tmp_path: Path) -> None:
    handle = platform.launch(job("t-1", "mkdir -p out; echo 1 > out/a; ln -s a out/latest"))
    ended(handle)
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "b.bin").write_bytes(b"\0" * 5)
    (source / "c").write_text("c")
    handle.put(str(source), "in")
    handle.put(str(source / "c"), "deep/er/c2")
    assert handle.list() == {"deep/er/c2": 1, "in/c": 1, "in/sub/b.bin": 5, "out/a": 2}
    assert handle.list("in") == {"in/c": 1, "in/sub/b.bin": 5}
    assert handle.list("nothing") == {}
    handle.fetch("in", str(tmp_path / "back"))
    assert (tmp_path / "back" / "sub" / "b.bin").read_bytes() == b"\0" * 5
    handle.fetch("out/latest", str(tmp_path / "latest"))
    assert (tmp_path / "latest").read_text() == "1\n"
    for path in ("in", "deep/er/c2", "nothing"):
        handle.remove(path)
    assert handle.list() == {"out/a": 2}
    with pytest.raises(FileNotFoundError):
        handle.fetch("nothing", str(tmp_path / "nothing"))


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x"])
def test_no_path_leads_out_of_the_workspace(platform: Platform, tmp_path: Path, path: str) -> None:
    handle = platform.launch(job("t-1", "true"))
    with pytest.raises(ValueError, match="relative path"):
        handle.fetch(path, str(tmp_path / "x"))
    with pytest.raises(ValueError, match="relative path"):
        handle.remove(path)


# --- other processes, and their deaths


def test_attach_from_another_process(platform: Platform, tmp_path: Path) -> None:
    platform.launch(job("t-1", f"sleep 0.2; {EPOCHS}; exit 9"))
    code = "for e in platform.attach('t-1').events(): print(type(e).__name__, flush=True)"
    watcher = in_another_process(platform, code, tmp_path)
    said = watcher.communicate(timeout=60)[0].split()
    assert said.count("StatusLine") == 3
    assert said[-1] == "Exit"


def needs_no_lease(platform: Platform) -> None:
    """Machines are leased by the pool: in the driver, or in Ray's cluster, which is not here."""
    if isinstance(platform, RentsMachines):
        pytest.skip("other processes launch through Ray")


def test_a_job_survives_its_launcher(platform: Platform, tmp_path: Path) -> None:
    needs_no_lease(platform)
    code = """
platform.launch(Job("t-1", "w", "sleep 0.6; echo done >> status.json", status_path="status.json"))
print("up", flush=True)
import time; time.sleep(60)
"""
    launcher = in_another_process(platform, code, tmp_path)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "up\n"
    launcher.kill()
    launcher.communicate()
    handle = platform.attach("t-1")
    assert handle is not None
    assert handle.poll() is None
    assert statuses(list(handle.events())) == [b"done\n"]


LAUNCH_ONCE = """
job = Job({id!r}, "w", "echo $$ >> runs-{id}; sleep 0.1")
print("go", flush=True)
handle = platform.launch(job)
print("up", flush=True)
"""


def test_concurrent_launches_start_one_process(platform: Platform, tmp_path: Path) -> None:
    needs_no_lease(platform)
    code = LAUNCH_ONCE.format(id="t-1")
    both = [in_another_process(platform, code, tmp_path) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == ["go\nup\n"] * 2
    handle = platform.attach("t-1")
    assert handle is not None
    assert ended(handle).code == 0
    assert len(text_of(handle, "runs-t-1", tmp_path).splitlines()) == 1


def test_a_launcher_killed_at_any_moment_never_leads_to_two_starts(
    platform: Platform, tmp_path: Path
) -> None:
    needs_no_lease(platform)
    # A fork server: starting twenty interpreters would be most of the test.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([type(platform).__module__])
    chance = random.Random(7)
    for attempt in range(20):
        once = job(f"t-{attempt}", f"echo $$ >> runs-{attempt}; sleep 0.1")
        launcher = processes.Process(target=platform.launch, args=(once,))
        launcher.start()
        time.sleep(chance.uniform(0, 0.08))
        launcher.kill()
        launcher.join()
        handle = platform.launch(once)
        assert ended(handle).code == 0
        assert len(text_of(handle, f"runs-{attempt}", tmp_path).splitlines()) == 1


def test_offsets_are_those_of_the_job_not_of_the_reader(platform: Platform, tmp_path: Path) -> None:
    handle = platform.launch(job("t-1", EPOCHS))
    mine = [e.offset for e in handle.events() if isinstance(e, StatusLine | LogLine)]
    code = "for e in platform.attach('t-1').events(): print(repr(getattr(e, 'offset', None)))"
    said = in_another_process(platform, code, tmp_path).communicate(timeout=60)[0]
    theirs = [eval(line, {"Offset": Offset}) for line in said.splitlines() if line != "None"]
    assert max(offset.status for offset in mine) == max(offset.status for offset in theirs)
    assert max(offset.log for offset in mine) == max(offset.log for offset in theirs)
