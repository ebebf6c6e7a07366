"""The wrapper against the emulated command: rows of the login and ls tables, and its manners."""

from __future__ import annotations

import itertools
import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from brev_emulator.emulator import BrevEmulator
from brev_support import cli_for

from tao_ray.platforms.brev import (
    BrevAuthError,
    BrevCli,
    BrevError,
    BrevMissingError,
    BrevNetworkError,
    BrevNotFoundError,
    BrevOutputError,
    BrevRefusedError,
    BrevTimeoutError,
    BrevUnsupportedError,
)


@pytest.fixture
def fresh(tmp_path: Path) -> BrevEmulator:
    """An account nobody is logged in to. Needs no sshd."""
    return BrevEmulator(tmp_path / "brev")


def test_every_call_has_the_manners_the_cli_needs(fresh: BrevEmulator) -> None:
    fresh.log_in()
    cli = cli_for(fresh)
    cli.ls()
    cli.search()
    for call in fresh.calls():
        assert call["stdin_device"], "stdin must be /dev/null: a pipe would be read to its end"
        assert call["stdout_piped"]
        assert call["umask"] == 0o077
        assert call["do_not_track"] == "1"
        assert call["group_leader"]
        assert call["cwd"] == "/"


@pytest.mark.parametrize("profile", ["0.6.317", "0.6.322", "0.6.327", "later"])
def test_ls_in_each_shape(tmp_path: Path, profile: str) -> None:
    emulator = BrevEmulator(tmp_path / "brev", profile)
    emulator.log_in()
    cli = cli_for(emulator)
    assert cli.ls() == []  # printed as null
    emulator.add("tao-a-1", plan="stuck")
    (instance,) = cli.ls()
    assert (instance.name, instance.status, instance.build_status) == (
        "tao-a-1",
        "STARTING",
        "BUILDING",
    )
    assert (instance.type, instance.gpu, instance.running) == ("l40s-1x.north", "L40S", False)


def test_ls_without_the_type_list(fresh: BrevEmulator) -> None:
    fresh.log_in()
    fresh.add("tao-a-1", plan="stuck")
    fresh.change(types_hidden=True)
    (instance,) = cli_for(fresh).ls()
    assert (instance.type, instance.gpu) == ("", "")


def test_json_is_found_behind_pollution(fresh: BrevEmulator) -> None:
    fresh.log_in()
    fresh.fault("ls", "pollution")
    assert cli_for(fresh).ls() == []


def test_a_strangers_token_pollutes_every_command(fresh: BrevEmulator) -> None:
    cli = cli_for(fresh, BREV_API_TOKEN=fresh.token(issuer="https://elsewhere/"))
    assert cli.ls() == []
    assert len(cli.search()) == 10


@pytest.mark.parametrize("effect", ["garbage", "empty"])
def test_unreadable_output_is_not_no_instances(fresh: BrevEmulator, effect: str) -> None:
    fresh.log_in()
    fresh.fault("ls", effect)
    with pytest.raises(BrevOutputError, match="not the JSON"):
        cli_for(fresh).ls()


def test_ls_of_another_organisation(fresh: BrevEmulator) -> None:
    fresh.log_in()
    fresh.change(orgs=["lab", "home"])
    fresh.add("tao-a-1", plan="stuck")
    fresh.change(active="home")
    cli = cli_for(fresh)
    assert cli.ls() == []
    assert [instance.name for instance in cli.ls("lab")] == ["tao-a-1"]
    assert [(org.name, org.active) for org in cli.organizations()] == [
        ("lab", False),
        ("home", True),
    ]


def test_a_cli_without_json_is_refused_before_it_is_believed(tmp_path: Path) -> None:
    emulator = BrevEmulator(tmp_path / "brev", "0.6.316")
    emulator.log_in()
    cli = cli_for(emulator)
    with pytest.raises(BrevUnsupportedError, match=r"\(0\.6\.316\) has no --json") as caught:
        cli.ls()
    assert "install a current brev CLI" in str(caught.value)
    with pytest.raises(BrevUnsupportedError, match="--type"):
        cli.create("tao-a-1", "g5.xlarge")
    assert not emulator.calls("create") or all(
        call["arguments"][-1] == "--help" for call in emulator.calls("create")
    )


def test_flags_are_probed_once(fresh: BrevEmulator) -> None:
    cli = cli_for(fresh)
    assert cli.supports("create", "detached")
    assert not cli.supports("create", "cloud-cred-id")
    assert len(fresh.calls("create")) == 1
    assert cli.version() == "0.6.327"


def test_an_option_the_cli_lacks_is_an_error_and_one_it_has_is_passed(fresh: BrevEmulator) -> None:
    fresh.log_in()
    with pytest.raises(BrevUnsupportedError, match="--cloud-cred-id"):
        cli_for(fresh).create("tao-a-1", "g5.xlarge", {"cloud-cred-id": "c"})
    assert fresh.instances() == {}
    fresh.behave(create_flags=["type", "detached", "cloud-cred-id"])
    cli_for(fresh).create("tao-a-1", "g5.xlarge", {"cloud-cred-id": "c"})
    assert fresh.calls("create")[-1]["arguments"] == [
        "create",
        "tao-a-1",
        "--type",
        "g5.xlarge",
        "--cloud-cred-id",
        "c",
        "--detached",
    ]


@pytest.mark.parametrize("name", ["-rf", "a b", "", "x" * 64, "a;b"])
def test_names_are_checked_before_the_cli_sees_them(fresh: BrevEmulator, name: str) -> None:
    with pytest.raises(BrevError, match="not a name for an instance"):
        cli_for(fresh).delete(name)
    assert fresh.calls() == []


def test_search(fresh: BrevEmulator) -> None:
    rows = cli_for(fresh).search()  # needs no session
    cheapest = min((row for row in rows if row.gpu_name == "L40S"), key=lambda r: r.price_per_hour)
    assert (cheapest.type, cheapest.price_per_hour, cheapest.gpu_count) == (
        "l40s-1x.north",
        1.03,
        1,
    )
    assert (cheapest.vram_per_gpu_gb, cheapest.disk_max_gb) == (48.0, 2000.0)


def test_start_stop_delete(fresh: BrevEmulator) -> None:
    fresh.log_in()
    fresh.delays(stop=0.0, boot=60.0)
    fresh.add("tao-a-1", plan="stuck")
    cli = cli_for(fresh)
    cli.stop("tao-a-1")
    assert cli.ls()[0].status == "STOPPED"
    cli.start("tao-a-1")
    assert fresh.calls("start")[-1]["arguments"][-1] == "--detached"
    assert cli.ls()[0].status == "STARTING"
    cli.delete("tao-a-1")
    assert fresh.alive() == []
    fresh.behave(not_stoppable=["l40s-1x.north"])
    fresh.add("tao-a-2", plan="stuck")
    with pytest.raises(BrevRefusedError, match="cannot be stopped"):
        cli.stop("tao-a-2")
    with pytest.raises(BrevNotFoundError, match="no instance of this name"):
        cli.delete("tao-a-3")


# Login


def test_a_token_becomes_the_session_without_being_on_any_command_line(
    fresh: BrevEmulator,
) -> None:
    token = fresh.token()
    cli = cli_for(fresh, BREV_API_TOKEN=token)
    cli.login()
    path = fresh.home / ".brev" / "credentials.json"
    assert json.loads(path.read_text()) == {"access_token": token, "refresh_token": "auto-login"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert fresh.calls("login") == []
    assert not any(token in json.dumps(call) for call in fresh.calls())


def test_a_renewing_token_goes_where_login_would_put_it(fresh: BrevEmulator) -> None:
    fresh.change(renewable=True)
    cli = cli_for(fresh, BREV_API_TOKEN="session:device")
    assert cli.ls() == []
    stored = json.loads((fresh.home / ".brev" / "credentials.json").read_text())
    assert stored["refresh_token"] == "session:device"


def test_an_earlier_login_is_enough_without_a_token(fresh: BrevEmulator) -> None:
    fresh.log_in()
    cli = cli_for(fresh)
    assert cli.ls() == []
    assert cli.expires_at() is None


def test_an_api_key_wins_and_is_not_erased(fresh: BrevEmulator) -> None:
    environment = fresh.environment
    line = [str(fresh.executable), "login", "--api-key", "bak-key", "--org-id", "o"]
    said = subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    assert b"API key saved for org o" in said.stdout
    cli = cli_for(fresh, BREV_API_TOKEN=fresh.token(10.0))
    assert cli.uses_api_key()
    assert cli.expires_at() is None
    assert cli.ls("lab") == []  # --org is refused with a key, so it is not passed
    stored = json.loads((fresh.home / ".brev" / "credentials.json").read_text())
    assert stored["api_key"] == "bak-key"


def test_logged_out_without_a_token(fresh: BrevEmulator) -> None:
    with pytest.raises(BrevAuthError, match="the session has ended") as caught:
        cli_for(fresh).ls()
    assert "run `brev login`" in str(caught.value)
    assert len(fresh.calls("ls")) == 2  # --help, and once: there is nothing to log in with


@pytest.mark.parametrize("effect", ["eof", "401"])
def test_one_forced_login_repairs_a_lost_session(fresh: BrevEmulator, effect: str) -> None:
    fresh.fault("ls", effect)
    fresh.fault("ls", effect)
    cli = cli_for(fresh, BREV_API_TOKEN=fresh.token())
    cli.supports("ls", "json")
    with pytest.raises(BrevAuthError, match="session has ended") as caught:
        cli.ls()
    assert "make a new token" in str(caught.value)
    fresh.fault("ls", effect)
    assert cli.ls() == []


def test_a_session_that_the_cli_threw_away_is_written_again(fresh: BrevEmulator) -> None:
    cli = cli_for(fresh, BREV_API_TOKEN=fresh.token())
    cli.ls()
    stored = {"access_token": "", "refresh_token": "malformed"}
    (fresh.home / ".brev" / "credentials.json").write_text(json.dumps(stored))
    assert cli.ls() == []


def test_a_torn_session_file_is_replaced(fresh: BrevEmulator) -> None:
    cli = cli_for(fresh, BREV_API_TOKEN=fresh.token())
    (fresh.home / ".brev").mkdir()
    (fresh.home / ".brev" / "credentials.json").write_text('{"access_tok')
    assert cli.ls() == []


def test_expiry_is_told_and_a_new_token_in_the_file_is_taken(
    fresh: BrevEmulator, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    old = fresh.token(-5.0)
    file.write_text(old + "\n")
    cli = cli_for(fresh, BREV_API_TOKEN_FILE=str(file))
    assert cli.expires_at() == pytest.approx(time.time() - 5.0, abs=2.0)
    with pytest.raises(BrevAuthError, match="the Brev token expired at") as caught:
        cli.ls()
    assert "BREV_API_TOKEN_FILE" in str(caught.value)
    assert old not in str(caught.value)
    file.write_text(fresh.token(500.0))
    assert cli.ls() == []
    assert cli.expires_at() == pytest.approx(time.time() + 500.0, abs=2.0)


def test_a_token_from_the_future_is_invalid_to_the_cli(fresh: BrevEmulator) -> None:
    cli = cli_for(fresh, BREV_API_TOKEN=fresh.token(skew=120.0))
    with pytest.raises(BrevAuthError):
        cli.ls()


def test_a_token_file_that_cannot_be_read(fresh: BrevEmulator, tmp_path: Path) -> None:
    cli = cli_for(fresh, BREV_API_TOKEN_FILE=str(tmp_path / "none"))
    with pytest.raises(BrevAuthError, match="cannot read the token: No such file"):
        cli.ls()


def test_a_session_file_of_another_form_leaves_the_command_as_the_only_way(
    tmp_path: Path,
) -> None:
    emulator = BrevEmulator(tmp_path / "brev", session_form="other")
    place = emulator.home / ".brev"
    place.mkdir()
    (place / "credentials.json").write_text('{"session": {"token": ""}}')
    cli = cli_for(emulator, BREV_API_TOKEN=emulator.token())
    assert cli.ls() == []
    assert [call["arguments"][:2] for call in emulator.calls("login")] == [["login", "--token"]]


def test_errors_hold_no_secret(fresh: BrevEmulator) -> None:
    token = fresh.token()
    fresh.fault("ls", "text", value=f"bad request with {token}")
    with pytest.raises(BrevError) as caught:
        cli_for(fresh, BREV_API_TOKEN=token).ls()
    assert token not in str(caught.value)
    assert "***" in str(caught.value)


# Processes


def test_a_hanging_command_is_killed_with_its_children(fresh: BrevEmulator) -> None:
    fresh.log_in()
    cli = cli_for(fresh, timeout=3.0)
    cli.supports("ls", "json")
    fresh.fault("ls", "hang", value=61.0)
    begun = time.monotonic()
    with pytest.raises(BrevTimeoutError, match="did not end within 3 s"):
        cli.ls()
    assert time.monotonic() - begun < 10.0
    mark = f"BREV_EMULATOR={fresh.directory}".encode()
    assert [pid for pid in _pids() if mark in _read(f"/proc/{pid}/environ")] == []
    assert cli.ls() == []


def test_a_child_that_holds_the_output_open_is_not_waited_for(
    fresh: BrevEmulator, tmp_path: Path
) -> None:
    script = tmp_path / "bin" / "brev"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho '--json [1.2.3]'\nsleep 3 &\n")
    script.chmod(0o755)
    begun = time.monotonic()
    assert BrevCli(str(script), environment=fresh.environment).version() == "1.2.3"
    assert time.monotonic() - begun < 2.0


def test_calls_of_threads_and_processes_never_overlap(fresh: BrevEmulator) -> None:
    fresh.log_in()
    fresh.delays(call=0.15)
    clis = [cli_for(fresh), cli_for(fresh)]
    for cli in clis:
        cli.supports("ls", "json")
    threads = [threading.Thread(target=cli.ls) for cli in clis for _ in range(2)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun > 4 * 0.15
    starts = sorted(call["at"] for call in fresh.calls("ls") if "--help" not in call["arguments"])
    assert all(later - earlier > 0.15 for earlier, later in itertools.pairwise(starts))


def test_a_lock_that_is_never_handed_on(fresh: BrevEmulator) -> None:
    fresh.log_in()
    holder, waiter = cli_for(fresh), BrevCli(environment=fresh.environment, lock_timeout=0.2)
    waiter.supports("ls", "json")
    with holder.lock(), pytest.raises(BrevTimeoutError, match="kept the lock") as caught:
        waiter.ls()
    assert "fuser" in str(caught.value)


def test_the_command_is_missing(tmp_path: Path) -> None:
    cli = BrevCli(environment={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    with pytest.raises(BrevMissingError, match="'brev' was not found") as caught:
        cli.ls()
    assert "install the brev CLI" in str(caught.value)


def test_a_panic_and_a_lost_network(fresh: BrevEmulator) -> None:
    fresh.log_in()
    fresh.fault("refresh", "panic")
    with pytest.raises(BrevError, match="exit code 2"):
        cli_for(fresh).refresh()
    fresh.fault("refresh", "network")
    with pytest.raises(BrevNetworkError, match="could not be resolved"):
        cli_for(fresh).refresh()


def test_no_secret_on_any_command_line(fresh: BrevEmulator) -> None:
    """Looks at every process of this host while the wrapper logs in, works and recovers."""
    token = fresh.token()
    fresh.delays(call=0.2)
    fresh.fault("ls", "eof")
    seen: list[bytes] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.extend(_read(f"/proc/{pid}/cmdline") for pid in _pids())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        cli = cli_for(fresh, BREV_API_TOKEN=token)
        cli.login()
        cli.create("tao-a-1", "g5.xlarge")
        cli.delete("tao-a-1")
    finally:
        done.set()
        watcher.join()
    assert any(b"create\0tao-a-1" in line for line in seen), "the watcher must have seen the calls"
    assert not any(token.encode() in line for line in seen)


def _pids() -> list[str]:
    return [entry for entry in os.listdir("/proc") if entry.isdigit()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
