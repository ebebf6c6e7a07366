"""The Docker engine, over a real one: what is its own, beyond what every platform must do."""

from __future__ import annotations

import http.server
import os
import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from real_services.dockerd import IMAGE, MOUNTS, Dockerd, running_dockerd
from real_services.sshd import running_sshd

from tao_ray.platforms import CapacityError, Exit, Job, LinkError, PlatformError
from tao_ray.platforms.docker import DockerEngine, DockerJob
from tao_ray.platforms.docker_host import DockerPlatform
from tao_ray.platforms.docker_image import (
    ImageAccessError,
    ImageMissingError,
    Registry,
    pull_image,
    refusal,
)
from tao_ray.platforms.hosts import Host, HostsPlatform
from tao_ray.platforms.local_machine import LocalMachine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    yield from running_dockerd(tmp_path_factory.mktemp("dockerd"))


@pytest.fixture
def make(engine: Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("DOCKER_HOST", engine.environment["DOCKER_HOST"])
    made = partial(
        DockerPlatform,
        tmp_path / "root",
        image=IMAGE,
        mounts=MOUNTS,
        network="none",
        ulimits={},
    )
    yield made
    made().discard("w")


def launch(platform: DockerPlatform, name: str, command: str, **more: object) -> DockerJob:
    handle = platform.launch(Job(name, "w", command, **more))  # type: ignore[arg-type]
    assert isinstance(handle, DockerJob)
    return handle


def log(handle: DockerJob) -> str:
    *_, exit_ = handle.events()
    assert isinstance(exit_, Exit)
    return (Path(handle._directory) / "log").read_text()


# --- secrets


def test_secrets_show_neither_in_the_engine_nor_on_a_command_line(
    make: partial[DockerPlatform], engine: Dockerd, tmp_path: Path
) -> None:
    handle = launch(make(), "t-1", "echo ${#TOKEN}; sleep 30", secrets={"TOKEN": "very-secret"})
    while not (Path(handle._directory) / "log").exists():
        time.sleep(0.05)
    assert b"very-secret" not in engine.docker("inspect", handle.container).stdout
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not any(b"very-secret" in line for line in lines)
    kept = [p for p in (tmp_path / "root").rglob("*") if p.is_file()]
    assert kept
    assert not [p for p in kept if b"very-secret" in p.read_bytes()]
    handle.stop(0)


# --- GPUs


def test_gpus_are_given_by_device_and_counted(
    make: partial[DockerPlatform], engine: Dockerd
) -> None:
    platform = make(gpus=[2, 3])
    first = launch(platform, "t-1", "env; sleep 30", gpus=1)
    second = launch(platform, "t-2", "sleep 30", gpus=1)
    assert (first.gpus, second.gpus) == (("2",), ("3",))
    asked = engine.docker("inspect", "-f", "{{json .HostConfig.DeviceRequests}}", second.container)
    assert b'"DeviceIDs":["3"]' in asked.stdout
    with pytest.raises(CapacityError, match="1 GPUs wanted, 0 of 2 free"):
        launch(platform, "t-3", "true", gpus=1)
    first.stop(0)
    assert launch(platform, "t-3", "true", gpus=1).gpus == ("2",)
    second.stop(0)
    assert "NVIDIA_VISIBLE_DEVICES=void" in log(launch(platform, "t-4", "env"))


def test_slots(make: partial[DockerPlatform]) -> None:
    platform = make(slots=1)
    first = launch(platform, "t-1", "sleep 30")
    with pytest.raises(CapacityError, match="all 1 slots are taken"):
        launch(platform, "t-2", "true")
    first.stop(0)
    assert launch(platform, "t-2", "true").stop() == Exit(code=0)


# --- ends


def test_a_container_removed_behind_our_back_has_an_end(
    make: partial[DockerPlatform], engine: Dockerd
) -> None:
    platform = make()
    running = launch(platform, "t-1", "sleep 60")
    engine.docker("rm", "-f", running.container)
    *_, end = running.events()
    assert end == Exit(code=None, detail="the container was removed")
    done = launch(platform, "t-2", "exit 3")
    while not (Path(done._directory) / "ended").exists():
        time.sleep(0.05)
    engine.docker("wait", done.container)
    engine.docker("rm", done.container)
    assert done.poll() == Exit(code=3)
    job = Job("t-2", "w", "exit 3")
    assert platform.launch(job).poll() == Exit(code=3)  # not run again


def test_a_container_that_is_started_again_does_not_run_the_job_again(
    make: partial[DockerPlatform], engine: Dockerd
) -> None:
    handle = launch(make(), "t-1", "echo run >> runs")
    *_, end = handle.events()
    engine.docker("start", handle.container)
    engine.docker("wait", handle.container)
    assert handle.list() == {"runs": 4}
    assert handle.poll() == end


def test_a_launcher_that_died_between_create_and_start(
    make: partial[DockerPlatform], engine: Dockerd, tmp_path: Path
) -> None:
    platform = make()
    first = launch(platform, "t-1", "echo run >> runs; sleep 0.2")
    first.stop()
    name, directory = first.container, Path(first._directory)
    engine.docker("rm", "-f", name)
    for file in ("started", "exit", "ended", "stop", "log"):
        (directory / file).unlink(missing_ok=True)
    (directory / "ran").rmdir()
    (directory / "env").touch()
    (directory / "begun").write_text(f"0 0 {'0' * 8} 0 0 -\n")
    engine.docker("create", "--name", name, IMAGE, "false")
    assert platform.attach("t-1") is None
    again = launch(platform, "t-1", "echo run >> runs; sleep 0.2")
    *_, end = again.events()
    assert end == Exit(code=0)
    platform.release("t-1")
    assert name not in engine.docker("ps", "-a").stdout.decode()


# --- the engine itself


def test_an_engine_that_is_down_is_a_link_error(
    make: partial[DockerPlatform], engine: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(make(), "t-1", "true").stop()
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    platform = make()
    with pytest.raises(LinkError, match="does not answer"):
        platform.launch(Job("t-1", "w", "true"))
    found = {check.name: check for check in platform.preflight()}
    assert not found["docker"].ok
    assert "systemctl start docker" in found["docker"].remedy
    monkeypatch.setenv("DOCKER_HOST", engine.environment["DOCKER_HOST"])


def test_preflight_wants_an_nvidia_runtime_where_there_are_gpus(
    make: partial[DockerPlatform],
) -> None:
    found = {check.name: check for check in make(gpus=[0]).preflight()}
    assert found["docker"].ok
    assert not found["nvidia runtime"].ok
    assert "nvidia-ctk runtime configure" in found["nvidia runtime"].remedy


# --- images


def test_an_image_from_nowhere_is_refused_with_its_cause(make: partial[DockerPlatform]) -> None:
    with pytest.raises(PlatformError, match=r"could not pull registry\.invalid/x:1") as caught:
        make().launch(Job("t-1", "w", "true", image="registry.invalid/x:1"))
    assert "reaches the registry" in (caught.value.remedy or "")


NVCR = Registry("nvcr.io", "key", variable="NGC_KEY")
TAO = "nvcr.io/nvidia/tao/tao-toolkit:7.1.0-pyt"


@pytest.mark.parametrize(
    ("registry", "code", "log_text", "kind", "message", "remedy"),
    [
        (
            NVCR,
            46,
            "Error response from daemon: Get https://nvcr.io/v2/: unauthorized",
            ImageAccessError,
            "refuses the login",
            "new API key",
        ),
        (
            NVCR,
            47,
            'denied: {"errors": [{"code": "DENIED", "message": "Payment Required"}]}',
            ImageAccessError,
            "has no access to",
            "ask the owner",
        ),
        (NVCR, 47, "unauthorized: access to the resource", ImageAccessError, "no access", "ask"),
        (
            None,
            47,
            "unauthorized: authentication required",
            ImageAccessError,
            "needs a login to nvcr.io, and none was given",
            "export NGC_KEY",
        ),
        (NVCR, 47, "manifest unknown: x", ImageMissingError, "there is no image", "model.image"),
        (NVCR, 1, "no space left on device", PlatformError, "no space left", "disk space"),
        (NVCR, None, "", PlatformError, "no reason given", "docker pull"),
    ],
)
def test_the_causes_of_a_refused_pull(
    registry: Registry | None,
    code: int | None,
    log_text: str,
    kind: type[PlatformError],
    message: str,
    remedy: str,
) -> None:
    error = refusal(TAO, "box", registry, code, log_text)
    assert type(error) is kind
    assert message in str(error)
    assert remedy in str(error)
    assert "key" not in repr(registry).replace("NGC_KEY", "")


class _Registry(http.server.BaseHTTPRequestHandler):
    """A registry that knows one user and lets nobody pull."""

    heard: list[str]

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.heard.append(given)
        right = given == "Basic JG9hdXRodG9rZW46cmlnaHQ="  # $oauthtoken:right
        body = b'{"errors": [{"code": "DENIED", "message": "requested access is denied"}]}'
        self.send_response(200 if self.path == "/v2/" and right else 403 if right else 401)
        if not right:
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    _Registry.heard = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("token", "message"), [("wrong", "refuses the login"), ("right", "has no access to")]
)
def test_a_login_is_made_for_the_pull_alone(
    engine: Dockerd, tmp_path: Path, registry: str, token: str, message: str
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    machine = LocalMachine({**engine.environment, "TMPDIR": str(private)})
    login = Registry(registry, token)
    with pytest.raises(ImageAccessError, match=message):
        pull_image(machine, "docker", str(tmp_path), f"{registry}/a/b:1", login, timeout=60)
    assert [given for given in _Registry.heard if given.startswith("Basic ")]
    assert list(private.iterdir()) == []
    kept = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert not [p for p in kept if token.encode() in p.read_bytes()]


# --- other ways to it


def test_over_ssh(engine: Dockerd, tmp_path: Path) -> None:
    environment = {"DOCKER_HOST": engine.environment["DOCKER_HOST"]}
    for server in running_sshd(tmp_path / "sshd", environment=environment):
        settings = {"mounts": MOUNTS, "network": "none", "ulimits": {}, "image": IMAGE}
        platform = HostsPlatform(
            [Host("box", server.target, slots=2)],
            partial(DockerEngine, str(tmp_path / "far"), **settings),
            tmp_path / "run",
        )
        assert not [c for c in platform.preflight() if not c.ok and not c.warning]
        handle = platform.launch(Job("t-1", "w", "echo hello > out; exit 3"))
        *_, end = handle.events()
        assert end == Exit(code=3)
        handle.fetch("out", str(tmp_path / "out"))
        assert (tmp_path / "out").read_text() == "hello\n"
        platform.discard("w")
        platform.close()


def test_an_engine_that_only_sudo_reaches(engine: Dockerd, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    real = shutil.which("docker")
    (tools / "docker").write_text(
        f'#!/bin/sh\n[ -n "$AS_ROOT" ] || {{ echo permission denied; exit 1; }}\nexec {real} "$@"\n'
    )
    (tools / "sudo").write_text('#!/bin/sh\n[ "$1" = -n ] || exit 9\nshift\nAS_ROOT=1 exec "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    machine = LocalMachine({**engine.environment, "PATH": f"{tools}:{os.environ['PATH']}"})
    docker = DockerEngine(
        str(tmp_path / "root"), image=IMAGE, mounts=MOUNTS, network="none", ulimits={}
    )
    *_, end = docker.launch(machine, Job("t-1", "w", "exit 3")).events()
    assert end == Exit(code=3)
    docker.discard(machine, "w")
    (tools / "sudo").unlink()
    other = DockerEngine(str(tmp_path / "root"), image=IMAGE)
    with pytest.raises(LinkError, match="permission denied") as caught:
        other.launch(machine, Job("t-1", "w", "true"))
    assert "usermod -aG docker" in (caught.value.remedy or "")
