"""Machines reached by SSH, over real servers on loopback."""

from __future__ import annotations

import itertools
import os
import pickle
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from real_services.sshd import Sshd, running_sshd

from tao_ray.platforms import CapacityError, Exit, Job, LinkError, LogLine, Offset, StatusLine
from tao_ray.platforms.host_keys import HostKeyChangedError
from tao_ray.platforms.hosts import Host, HostsPlatform
from tao_ray.platforms.machine import Chunk, CommandError
from tao_ray.platforms.process import ProcessEngine
from tao_ray.platforms.ssh import SshMachine
from tao_ray.platforms.ssh_config import SshTarget, find_route
from tao_ray.platforms.ssh_link import LoginError, SshTimings

QUICK = SshTimings(connect=3.0, keepalive=0.3, dead_after=1.5, backoff=0.5)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    yield from running_sshd(tmp_path / "server")


@pytest.fixture
def machine(server: Sshd, tmp_path: Path) -> Iterator[SshMachine]:
    made = SshMachine("box", server.target, tmp_path / "known_hosts", timings=QUICK)
    yield made
    made.close()


# --- commands and files


def test_commands(machine: SshMachine) -> None:
    result = machine.run("cat; echo said >&2; exit 3", stdin=b"\0bytes")
    assert (result.code, result.stdout, result.stderr) == (3, b"\0bytes", b"said\n")
    assert machine.run("kill -9 $$").code > 128
    text = "a 'b' \"c\" $d\n\\e"
    assert machine.run(f"cat <<'END'\n{text}\nEND").stdout.decode() == f"{text}\n"


def test_a_command_that_does_not_end_is_given_up_in_time(machine: SshMachine) -> None:
    begun = time.monotonic()
    with pytest.raises(LinkError, match="no answer within"):
        machine.run("sleep 60", timeout=0.8)
    assert time.monotonic() - begun < 3
    assert machine.run("echo again").stdout == b"again\n"


def test_what_a_command_is_given_does_not_show(machine: SshMachine) -> None:
    seen = machine.run("cat > /dev/null; cat /proc/[0-9]*/cmdline", stdin=b"very-secret").stdout
    assert seen
    assert b"very-secret" not in seen


def test_trees_are_copied_whole(machine: SshMachine, tmp_path: Path) -> None:
    far, outside = tmp_path / "far", tmp_path / "outside"
    outside.write_text("linked")
    (tmp_path / "near" / "a b").mkdir(parents=True)
    (tmp_path / "near" / "a b" / "big").write_bytes(os.urandom(3_000_000))
    (tmp_path / "near" / "c\nd").write_text("odd name")
    machine.put(str(tmp_path / "near"), str(far))
    assert machine.list(str(far)) == {"a b/big": 3_000_000, "c\nd": 8}
    (far / "latest").symlink_to("a b/big")
    (far / "link").symlink_to(outside)
    os.link(far / "a b" / "big", far / "twin")
    machine.get(str(far), str(tmp_path / "back"))
    back = {p.name for p in (tmp_path / "back").rglob("*") if p.is_file()}
    assert back == {"big", "c\nd", "link", "twin"}
    assert (tmp_path / "back" / "link").read_text() == "linked"
    original = (tmp_path / "near" / "a b" / "big").read_bytes()
    assert (tmp_path / "back" / "twin").read_bytes() == original
    assert machine.list(str(tmp_path / "nothing")) == {}
    with pytest.raises(FileNotFoundError):
        machine.get(str(tmp_path / "nothing"), str(tmp_path / "x"))
    with pytest.raises(CommandError, match="store"):
        machine.put(str(outside), "/proc/nothing/x")
    machine.remove(str(far))
    assert not far.exists()


def test_reading_at_a_place(machine: SshMachine, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    assert machine.read(str(tmp_path / "file"), 90, 5) == bytes(range(90, 95))
    assert machine.read(str(tmp_path / "file"), 200) == b""
    with pytest.raises(FileNotFoundError):
        machine.read(str(tmp_path / "nothing"))


# --- following


def take(follower: Iterator[Chunk | None], count: int) -> bytes:
    """The next bytes, at least `count`."""
    data = b""
    while len(data) < count:
        chunk = next(follower)
        data += chunk.data if chunk else b""
    return data


def test_a_line_is_seen_within_a_third_of_a_second(machine: SshMachine, tmp_path: Path) -> None:
    path = tmp_path / "status.json"

    def write() -> None:
        for _ in range(15):
            time.sleep(0.171)
            with open(path, "a") as file:
                file.write(f"{time.time()}\n")

    writer = threading.Thread(target=write)
    follower = machine.follow({str(path): 0})
    next(follower)
    writer.start()
    delays: list[float] = []
    while len(delays) < 15:
        chunk = next(follower)
        if chunk is not None:
            delays += [time.time() - float(line) for line in chunk.data.split()]
    writer.join()
    assert statistics.median(delays) < 0.3


def test_a_shorter_or_replaced_file_is_read_anew(machine: SshMachine, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"123456")
    follower = machine.follow({str(path): 2})
    assert take(follower, 4) == b"3456"
    path.write_bytes(b"12")
    assert take(follower, 2) == b"12"
    (tmp_path / "other").write_bytes(b"other!")
    (tmp_path / "other").replace(path)
    assert take(follower, 6) == b"other!"


def test_following_resumes_after_the_connection_was_lost(
    server: Sshd, machine: SshMachine, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")
    follower = machine.follow({str(path): 0})
    assert take(follower, 6) == b"before"
    for text in (b"first", b"second"):
        server.end_connections()
        with open(path, "ab") as file:
            file.write(text)
        assert take(follower, len(text)) == text


def test_nothing_is_left_running_when_nobody_follows(machine: SshMachine, tmp_path: Path) -> None:
    path = str(tmp_path / "a-file-of-this-test")
    follower = machine.follow({path: 0})
    next(follower)

    def followers() -> list[psutil.Process]:
        return [p for p in psutil.process_iter(["cmdline"]) if path in str(p.info["cmdline"])]

    assert followers()
    follower.close()  # type: ignore[attr-defined]
    for _ in range(100):
        if not followers():
            return
        time.sleep(0.1)
    raise AssertionError(followers())


# --- the link


def test_a_refused_connection_is_a_link_error(server: Sshd, machine: SshMachine) -> None:
    server.stop()
    with pytest.raises(LinkError, match=f"no SSH link to .*:{server.port}"):
        machine.run("true")
    server.start()
    assert machine.run("true").code == 0


def test_a_name_that_does_not_resolve_is_a_link_error(tmp_path: Path) -> None:
    target = SshTarget("no-such-host.invalid", "u", 22, "/dev/null")
    with pytest.raises(LinkError, match=r"no-such-host\.invalid"):
        SshMachine("x", target, tmp_path / "known", timings=QUICK).run("true", timeout=10)


def test_a_server_that_hangs_is_noticed(server: Sshd, machine: SshMachine, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    follower = machine.follow({str(path): 0})
    take(follower, 1)
    server.suspend()
    begun = time.monotonic()
    with pytest.raises(LinkError):
        take(follower, 1)
    with pytest.raises(LinkError):
        machine.run("true", timeout=60)
    assert time.monotonic() - begun < 15
    server.resume()
    assert take(machine.follow({str(path): 0}), 1) == b"x"


def test_a_port_that_never_speaks_is_a_link_error(tmp_path: Path, server: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = SshTarget("127.0.0.1", "u", mute.getsockname()[1], str(server.key))
        begun = time.monotonic()
        with pytest.raises(LinkError):
            SshMachine("mute", target, tmp_path / "known", timings=QUICK).run("true")
        assert time.monotonic() - begun < 8


def test_more_followers_than_a_connection_carries(tmp_path: Path) -> None:
    for server in running_sshd(tmp_path / "strict", "MaxSessions 2"):
        machine = SshMachine("box", server.target, tmp_path / "known_hosts", timings=QUICK)
        (tmp_path / "f").write_bytes(b"x")
        followers = [machine.follow({str(tmp_path / "f"): 0}) for _ in range(7)]
        assert [take(follower, 1) for follower in followers] == [b"x"] * 7
        machine.close()


def test_commands_that_outlive_their_channels_do_not_block_the_next(tmp_path: Path) -> None:
    for server in running_sshd(tmp_path / "strict", "MaxSessions 2"):
        machine = SshMachine("box", server.target, tmp_path / "known_hosts", timings=QUICK)
        (tmp_path / "f").write_bytes(b"x")
        for _ in range(5):
            follower = machine.follow({str(tmp_path / "f"): 0})
            assert take(follower, 1) == b"x"
            follower.close()
            assert machine.run("true").code == 0
        machine.close()


def test_machines_pickle_and_share_a_connection(server: Sshd, machine: SshMachine) -> None:
    machine.run("true")
    copies = [pickle.loads(pickle.dumps(machine)) for _ in range(3)]
    assert [copy.run("echo $SSH_CONNECTION").stdout for copy in copies] == [
        machine.run("echo $SSH_CONNECTION").stdout
    ] * 3


# --- who is there


def test_another_host_key_is_refused_loudly(
    server: Sshd, machine: SshMachine, tmp_path: Path
) -> None:
    machine.run("true")
    pinned = (tmp_path / "known_hosts").read_text()
    assert pinned.startswith("box ssh-ed25519 ")
    server.stop()
    server.new_host_key()
    server.start()
    with pytest.raises(HostKeyChangedError, match="not the one it had before"):
        machine.run("true")
    assert (tmp_path / "known_hosts").read_text() == pinned
    other = SshMachine("another", server.target, tmp_path / "known_hosts", timings=QUICK)
    assert other.run("true").code == 0  # names are pinned, not addresses


def test_a_refused_login_says_who_and_with_what(server: Sshd, tmp_path: Path) -> None:
    (server.directory / "authorized_keys").write_text("")
    machine = SshMachine("box", server.target, tmp_path / "known_hosts", timings=QUICK)
    with pytest.raises(LoginError, match="refuses the login") as caught:
        machine.run("true")
    assert str(server.key) in str(caught.value)


# --- configuration files


def write_config(path: Path, text: str) -> SshTarget:
    path.write_text(text)
    return SshTarget("box", config_file=str(path))


def test_an_alias_with_a_quoted_key_and_a_proxy(server: Sshd, tmp_path: Path) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import socket, sys, threading, os\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "print('noise ' * 50000, file=sys.stderr)\n"
        "def up():\n"
        "    while data := os.read(0, 65536): s.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536): os.write(1, data)\n"
    )
    target = write_config(
        tmp_path / "config",
        f"Host box\n  Port {server.port}\n  User {server.target.user}\n"
        f'  IdentityFile "{server.key}"\n'
        f"  ProxyCommand python3 {relay} 127.0.0.1 %p\n  ForwardAgent yes\n  RequestTTY yes\n",
    )
    machine = SshMachine("box", target, tmp_path / "known_hosts", timings=QUICK)
    assert machine.run("echo through").stdout == b"through\n"
    assert machine.run("echo ${SSH_AUTH_SOCK:-none}").stdout == b"none\n"
    machine.close()
    time.sleep(0.2)
    relays = [p for p in psutil.process_iter(["cmdline"]) if str(relay) in str(p.info["cmdline"])]
    assert not relays


def test_a_match_block_makes_a_certificate_first(server: Sshd, tmp_path: Path) -> None:
    authority, key = server.directory / "ca", tmp_path / "minted"
    for path in (authority, key):
        subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(path)], check=True)
    server.stop()
    (server.directory / "authorized_keys").write_text("")
    with open(server.directory / "sshd_config", "a") as file:
        file.write(f"TrustedUserCAKeys {authority}.pub\n")
    server.start()
    user = server.target.user
    mint = tmp_path / "mint.sh"
    mint.write_text(
        f"exec ssh-keygen -q -s {str(authority)!r} -I id -n {user} -V +5m {str(key)!r}.pub\n"
    )
    target = write_config(
        tmp_path / "config",
        f'Match host box exec "sh {mint}"\n  Hostname 127.0.0.1\n  Port {server.port}\n'
        f"  User {user}\n  IdentityFile {key}\n",
    )
    machine = SshMachine("box", target, tmp_path / "known_hosts", timings=QUICK)
    assert machine.run("echo in").stdout == b"in\n"
    machine.close()
    mint.write_text("exit 1\n")
    with pytest.raises(LinkError, match="Match command"):
        machine.run("true")


def test_explicit_keys_win_over_the_file(tmp_path: Path) -> None:
    target = write_config(
        tmp_path / "c", "Host box\n Hostname h\n Port 7\n User a\n ProxyCommand none\n"
    )
    assert find_route(target, 5).host == "h"
    assert find_route(target, 5).proxy_command is None
    explicit = SshTarget("box", "me", 9, "/key", target.config_file)
    route = find_route(explicit, 5)
    assert (route.host, route.port, route.user, route.identity_files) == ("h", 9, "me", ("/key",))


def test_an_alias_that_appears_while_it_is_looked_for(tmp_path: Path) -> None:
    target = write_config(tmp_path / "c", "Host other\n Hostname x\n")
    timer = threading.Timer(0.3, write_config, (tmp_path / "c", "Host box\n Hostname found\n"))
    timer.start()
    assert find_route(target, 10).host == "found"
    timer.join()


# --- jobs


def ssh_platform(servers: dict[str, Sshd], tmp_path: Path, **host: object) -> HostsPlatform:
    # The hosts are one machine in truth, with one root: their GPUs are told apart.
    hosts = [
        Host(name, server.target, gpus=(str(gpu),), **host)  # type: ignore[arg-type]
        for gpu, (name, server) in enumerate(servers.items())
    ]
    engine = partial(ProcessEngine, str(tmp_path / "far"))
    platform = HostsPlatform(hosts, engine, tmp_path / "run")
    for name, server in servers.items():
        platform._machines[name] = SshMachine(
            name, server.target, tmp_path / "run" / "known_hosts", timings=QUICK
        )
    return platform


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_link_neither_ends_nor_repeats_a_job(server: Sshd, tmp_path: Path, how: str) -> None:
    platform = ssh_platform({"box": server}, tmp_path, slots=4)
    command = "for i in 1 2 3 4 5 6 7 8; do echo $i >> status.json; echo log $i; sleep 0.5; done"
    job = Job("t-1", "w", command, status_path="status.json")
    handle = platform.launch(job)
    lines, offset = [], Offset()
    for event in handle.events():
        if isinstance(event, StatusLine | LogLine):
            lines.append(event.data)
            offset = event.offset
        if len(lines) == 4:
            break
    if how == "killed":
        server.stop()
    else:
        server.suspend()
    with pytest.raises(LinkError):
        list(handle.events(offset))
    if how == "killed":
        server.start()
    else:
        server.resume()
    again = platform.launch(job)
    for event in again.events(offset):
        if isinstance(event, StatusLine | LogLine):
            lines.append(event.data)
    assert isinstance(event, Exit)
    assert event.code == 0
    assert [line for line in lines if line.endswith(b"\n")] == [b"%d\n" % i for i in range(1, 9)]
    assert [x for x in lines if x.startswith(b"log")] == [b"log %d" % i for i in range(1, 9)]
    platform.discard("w")
    platform.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[dict[str, Sshd]]:
    for first, second in zip(
        running_sshd(tmp_path / "s1"), running_sshd(tmp_path / "s2"), strict=True
    ):
        yield {"one": first, "two": second}


def where(platform: HostsPlatform) -> dict[str, str]:
    return platform._bindings.read().jobs


def test_trials_are_spread_and_stay_where_they_began(two: dict[str, Sshd], tmp_path: Path) -> None:
    platform = ssh_platform(two, tmp_path)
    running = [platform.launch(Job(f"{n}-1", n, "sleep 60", gpus=1)) for n in ("a", "b")]
    assert set(where(platform).values()) == {"one", "two"}
    with pytest.raises(CapacityError):
        platform.launch(Job("c-1", "c", "true", gpus=1))
    assert platform.attach("c-1") is None
    host = where(platform)["a-1"]
    running[0].stop(1)
    other = ssh_platform(two, tmp_path)
    other.launch(Job("a-2", "a", "true", gpus=1)).stop()
    assert where(other)["a-2"] == host
    for name in ("a", "b", "c"):
        other.discard(name)
    assert not other._bindings.read().workspaces
    for made in (platform, other):
        made.close()


def test_a_host_that_is_down_is_passed_over(two: dict[str, Sshd], tmp_path: Path) -> None:
    two["one"].stop()
    platform = ssh_platform(two, tmp_path, slots=2)
    failed = [check for check in platform.preflight() if not check.ok and not check.warning]
    assert [check.name for check in failed] == ["one: ssh"]
    begun = time.monotonic()
    for name in ("a", "b"):
        *_, end = platform.launch(Job(f"{name}-1", name, "exit 4")).events()
        assert end == Exit(code=4)
    assert set(where(platform).values()) == {"two"}
    assert time.monotonic() - begun < 30
    platform.discard("a")
    platform.discard("b")
    platform.close()


def test_bindings_survive_a_torn_line(tmp_path: Path, two: dict[str, Sshd]) -> None:
    platform = ssh_platform(two, tmp_path, slots=1)
    platform._bindings.path.parent.mkdir(parents=True)
    platform._bindings.add(job="t-1", workspace="t", host="two")
    with open(platform._bindings.path, "a") as file:
        file.write('{"job": "t-2", "work')
    platform._bindings.add(job="t-3", workspace="u", host="one")
    assert where(platform) == {"t-1": "two", "t-3": "one"}


def test_heartbeats_come_while_nothing_does(machine: SshMachine, tmp_path: Path) -> None:
    times = []
    for chunk in itertools.islice(machine.follow({str(tmp_path / "none"): 0}), 4):
        assert chunk is None
        times.append(time.monotonic())
    assert max(b - a for a, b in itertools.pairwise(times)) < 2
