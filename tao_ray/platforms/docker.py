"""Engine ``docker``: jobs as containers, on any machine with a Docker Engine.

Jobs are kept as the process engine keeps them, below the same root, and started under the same
lock (see `docker_scripts`). The container sees the whole root at the very path it has on the
machine, so that paths in specs mean the same inside and outside, and trials can read each other's
checkpoints. It runs as the machine's user, so what it writes can be removed. Secrets are read by
the job from a file that only this user can read and that is gone once read: neither a command
line nor ``docker inspect`` shows them.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tao_ray.platforms import docker_scripts as scripts
from tao_ray.platforms import process_scripts
from tao_ray.platforms.base import Check, Job, LinkError, PlatformError
from tao_ray.platforms.docker_image import Registry, pull_image
from tao_ray.platforms.machine import CommandError, CommandResult, Machine
from tao_ray.platforms.process import ProcessEngine
from tao_ray.platforms.process_job import ProcessJob, script

_TOOLKIT = (
    "install the NVIDIA Container Toolkit there, then: nvidia-ctk runtime configure "
    "--runtime=docker && systemctl restart docker"
)

ULIMITS = MappingProxyType({"memlock": "-1", "stack": "67108864"})


class DockerEngine(ProcessEngine):
    """See `tao_ray.platforms.machine.Engine`; root, env, slots and gpus as in `ProcessEngine`.

    image: for jobs that name none. registry: the login for pulling images of its host.
    shm_size: of ``/dev/shm``, which data loaders fill. ulimits: name -> ``soft[:hard]``; by default
    those that NVIDIA recommends for its images, which a Docker Engine without privileges refuses.
    mounts: "path on the machine" -> path in
    the container, optionally with ``:ro``. network: Docker's ``--network``, None is its default.
    pull_timeout: seconds.

    A container sees only the GPUs it was given, numbered from 0.
    """

    def __init__(
        self,
        root: str,
        *,
        image: str | None = None,
        registry: Registry | None = None,
        env: Mapping[str, str] | None = None,
        slots: int | None = None,
        gpus: Sequence[int | str] | None = None,
        shm_size: str = "16g",
        ulimits: Mapping[str, str] = ULIMITS,
        mounts: Mapping[str, str] | None = None,
        network: str | None = None,
        pull_timeout: float = 3600.0,
    ):
        super().__init__(root, env=env, slots=slots, gpus=gpus)
        self._image = image
        self._registry = registry
        self._shm_size = shm_size
        self._ulimits = dict(ulimits)
        self._mounts = dict(mounts or {})
        self._network = network
        self._pull_timeout = pull_timeout
        self._found: dict[str, tuple[str, bool]] = {}

    def prepare(
        self,
        machine: Machine,
        image: str | None = None,
        *,
        say: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Have the image on the machine. Raises ImageAccessError, ImageMissingError, LinkError."""
        docker, _ = self._docker(machine)
        wanted = image or self._image
        if wanted is None:
            raise PlatformError("the job names no container image", remedy="set model.image")
        pull_image(
            machine,
            docker,
            self.root,
            wanted,
            self._registry,
            timeout=self._pull_timeout,
            progress=say,
            sleep=sleep,
        )

    def launch(self, machine: Machine, job: Job) -> ProcessJob:
        self.prepare(machine, job.image)
        try:
            return super().launch(machine, job)
        except CommandError as error:
            if "could not select device driver" in error.message:
                raise PlatformError(
                    "Docker cannot give GPUs to containers there",
                    where=machine.name,
                    remedy=_TOOLKIT,
                ) from error
            raise

    def preflight(self, machine: Machine) -> list[Check]:
        checks = super().preflight(machine)
        try:
            docker, _ = self._docker(machine)
        except PlatformError as error:
            return [*checks, Check("docker", False, error.message, error.remedy or "")]
        text = script(scripts.LIBRARY, scripts.PREFLIGHT, docker=docker)
        said = machine.run(text).stdout.decode().splitlines()
        found = [line.split() for line in said if line.split()]
        version = next((words[1] for words in found if words[0] == "server"), "?")
        checks.append(Check("docker", True, f"Docker {version}, as `{docker}`"))
        if self.gpus(machine):
            able = any(w[0] == "toolkit" or (w[0] == "runtimes" and "nvidia" in w) for w in found)
            detail = "Docker can give GPUs to containers" if able else "no NVIDIA runtime found"
            checks.append(Check("nvidia runtime", able, detail, "" if able else _TOOLKIT))
        return checks

    def _docker(self, machine: Machine) -> tuple[str, bool]:
        """The command that reaches the engine, and whether it is a rootless one."""
        if machine.name not in self._found:
            result = machine.run(scripts.FIND)
            said = result.stdout.decode(errors="replace").strip()
            if result.code:
                raise _unreachable(machine, said)
            asked = machine.run(f"{said} info --format '{{{{.SecurityOptions}}}}'")
            self._found[machine.name] = (said, b"rootless" in asked.stdout)
        return self._found[machine.name]

    def _name(self, job_id: str) -> str:
        """The container's name: job ids are unique in a root only."""
        return f"tao-ray-{hashlib.sha256(self.root.encode()).hexdigest()[:8]}-{job_id}"

    def _job(self, machine: Machine, job_id: str) -> ProcessJob:
        docker, _ = self._docker(machine)
        return DockerJob(machine, self.root, job_id, docker, self._name(job_id))

    def _start_script(self, machine: Machine, job: Job, given: Mapping[str, object]) -> str:
        docker, rootless = self._docker(machine)
        arguments = [f"--ulimit={name}={limit}" for name, limit in self._ulimits.items()]
        for source, target in self._mounts.items():
            arguments += ["--volume", f"{source}:{target}"]
        more = {
            "docker": docker,
            "name": self._name(job.id),
            "root": self.root,
            "image": job.image or self._image,
            "shm": self._shm_size,
            "network": self._network,
            "rootless": "yes" if rootless else None,
            "status": f"{given['workspace']}/{job.status_path}" if job.status_path else None,
        }
        return script(
            f"set -- {shlex.join(arguments)}\n",
            scripts.LIBRARY,
            process_scripts.RECEIVE,
            scripts.COUNT,
            process_scripts.CHOOSE,
            process_scripts.PLACE,
            scripts.RUN,
            **given,
            **more,
        )

    def _attach_script(self, machine: Machine, job_id: str) -> str:
        return self._script(machine, job_id, scripts.ATTACH)

    def _release_script(self, machine: Machine, job_id: str) -> str:
        return self._script(machine, job_id, scripts.RELEASE)

    def _script(self, machine: Machine, job_id: str, text: str) -> str:
        docker, _ = self._docker(machine)
        given = {"docker": docker, "jobs": self._jobs, "id": job_id, "name": self._name(job_id)}
        return script(scripts.LIBRARY, text, **given)

    def _shell_files(
        self, path: str, workspace: str, status: str | None, *, hide_gpus: bool
    ) -> tuple[str, str]:
        del status, hide_gpus
        runner = script(scripts.RUNNER, job=path)
        head = script(scripts.COMMAND_HEAD, tao_ray_job=path, tao_ray_workspace=workspace)
        return runner, head

    def _run(
        self, machine: Machine, what: str, text: str, *, stdin: bytes = b"", timeout: float = 60.0
    ) -> CommandResult:
        return _checked(machine, what, machine.run(text, stdin=stdin, timeout=timeout))


class DockerJob(ProcessJob):
    """See `tao_ray.platforms.base.JobHandle`."""

    _end_file = "ended"
    _stop_script = scripts.LIBRARY + scripts.STOP
    _kill_script = scripts.LIBRARY + scripts.KILL
    _settle_script = scripts.LIBRARY + scripts.SETTLE

    def __init__(self, machine: Machine, root: str, job_id: str, docker: str, container: str):
        super().__init__(machine, root, job_id)
        self.container = container
        self._docker = docker

    def _alive(self) -> bool:
        """Whether the container runs; if it has ended, its exit is on disk afterwards."""
        self._do("look after", self._settle_script)
        return self._read_exit() is None

    def _do(self, what: str, text: str, **given: object) -> None:
        given |= {"docker": self._docker, "name": self.container, "job": self._directory}
        _checked(
            self._machine, f"{what} job {self.job_id}", self._machine.run(script(text, **given))
        )


def _checked(machine: Machine, what: str, result: CommandResult) -> CommandResult:
    if result.code == scripts.NO_DAEMON:
        raise _unreachable(machine, result.stderr.decode(errors="replace").strip())
    if result.code:
        raise CommandError(what, result, where=machine.name)
    return result


def _unreachable(machine: Machine, said: str) -> LinkError:
    """The engine being down says nothing about the containers: they may go on without it."""
    remedy = "start it: systemctl start docker"
    if "permission denied" in said:
        remedy = "let this user reach it (usermod -aG docker USER, then log in anew), or use sudo"
    elif "not found" in said:
        remedy = "install it: https://docs.docker.com/engine/install/"
    return LinkError(
        f"the Docker Engine does not answer: {said}", where=machine.name, remedy=remedy
    )
