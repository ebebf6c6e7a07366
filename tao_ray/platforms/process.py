"""Engine ``process``: jobs as detached processes, on any machine with a POSIX shell.

Workspaces are ``<root>/<workspace>``; what the engine knows of a job is in ``<root>/.jobs/<id>``
(see `process_scripts`, which also says why a job cannot start twice). Nothing is kept in memory:
any process that can reach the machine can watch, stop and release any job.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from tao_ray.platforms import process_scripts as scripts
from tao_ray.platforms.base import CapacityError, Check, Job, JobConflictError, PlatformError
from tao_ray.platforms.machine import CommandError, CommandResult, Machine
from tao_ray.platforms.process_job import ProcessJob, script

_FREE_WARNING = 10 << 30


class ProcessEngine:
    """See `tao_ray.platforms.machine.Engine`.

    root: absolute directory on the machine, without symbolic links in its path. env: added to
    the machine's environment for every job; a job's own env wins. activate: a file to source
    before (a virtual environment's ``activate``). slots: jobs that may run at once, None: any.
    gpus: the GPUs to hand out (indices or UUIDs), None: those the machine shows.

    A job that reserves GPUs gets them through ``CUDA_VISIBLE_DEVICES`` and holds them as long as
    it runs. Where there are GPUs, a job that reserves none sees none; on a machine without GPUs
    a reservation means nothing and the variable is unset.
    """

    def __init__(
        self,
        root: str,
        *,
        env: Mapping[str, str] | None = None,
        activate: str | None = None,
        slots: int | None = None,
        gpus: Sequence[int | str] | None = None,
    ):
        self.root = root
        self._jobs = f"{root}/.jobs"
        self._env = dict(env or {})
        self._activate = activate
        self._slots = slots
        self._gpus = None if gpus is None else [str(gpu) for gpu in gpus]
        self._seen_gpus: dict[str, list[str]] = {}

    def workspace(self, machine: Machine, name: str) -> str:
        del machine
        _check_path(name)
        if any(part.startswith(".") for part in name.split("/")):
            raise ValueError(f"a workspace's name may not begin with a dot: {name!r}")
        return f"{self.root}/{name}"

    def gpus(self, machine: Machine) -> list[str]:
        """The GPUs jobs on this machine can reserve."""
        if self._gpus is not None:
            return self._gpus
        if machine.name not in self._seen_gpus:
            found = self._run(machine, "look for GPUs", scripts.GPUS)
            self._seen_gpus[machine.name] = found.stdout.decode().split()
        return self._seen_gpus[machine.name]

    def prepare(
        self,
        machine: Machine,
        image: str | None = None,
        *,
        say: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """See `Engine.prepare`; here the machine is reached, no more."""
        del image, say, sleep
        self._run(machine, "reach the machine", "true")

    def launch(self, machine: Machine, job: Job) -> ProcessJob:
        _check_id(job.id)
        workspace = self.workspace(machine, job.workspace)
        devices = self.gpus(machine)
        given = {
            "jobs": self._jobs,
            "id": job.id,
            "workspace": workspace,
            "gpus": job.gpus,
            "devices": " ".join(devices),
            "slots": self._slots,
        }
        result = self._run(
            machine,
            f"start job {job.id}",
            self._start_script(machine, job, given),
            stdin=self._package(job, workspace, hide_gpus=bool(devices) and not job.gpus),
            timeout=180.0,
        )
        outcome, _, detail = result.stdout.decode().strip().partition(" ")
        where = f"job {job.id} on {machine.name}"
        if outcome == "conflict":
            raise JobConflictError(
                "a job of this id exists with another command or other files",
                where=where,
                remedy=f"release it, or use another run directory than {self.root}",
            )
        if outcome == "full":
            raise CapacityError(f"all {self._slots} slots are taken", where=where)
        if outcome == "gpus":
            raise CapacityError(
                f"{job.gpus} GPUs wanted, {detail} of {len(devices)} free", where=where
            )
        if outcome != "started":
            reason = {"busy": "another start holds the lock", "stuck": "the runner did not start"}
            raise PlatformError(reason.get(outcome, "no answer"), where=where)
        return self._job(machine, job.id)

    def attach(self, machine: Machine, job_id: str) -> ProcessJob | None:
        _check_id(job_id)
        try:
            return self._job(machine, job_id)
        except FileNotFoundError:
            pass  # never started, or a start is in progress: only the lock can tell
        result = machine.run(self._attach_script(machine, job_id), timeout=90.0)
        if result.code > 1:
            raise CommandError(f"look for job {job_id}", result, where=machine.name)
        return None if result.code else self._job(machine, job_id)

    def release(self, machine: Machine, job_id: str) -> None:
        job = self.attach(machine, job_id)
        if job is not None:
            job.stop(grace_s=5.0)
        text = self._release_script(machine, job_id)
        self._run(machine, f"release job {job_id}", text, timeout=300.0)

    def discard(self, machine: Machine, workspace: str) -> None:
        path = self.workspace(machine, workspace)
        text = script(scripts.JOBS_IN, jobs=self._jobs, workspace=workspace)
        for job_id in self._run(machine, "list jobs", text).stdout.decode().split():
            self.release(machine, job_id)
        machine.remove(path)

    def preflight(self, machine: Machine) -> list[Check]:
        text = script(scripts.PREFLIGHT, root=self.root, tools=" ".join(scripts.TOOLS))
        found = [line.split() for line in machine.run(text).stdout.decode().splitlines()]
        missing = sorted({words[1] for words in found if words[0] == "missing"})
        free = next((int(words[1]) << 10 for words in found if words[0] == "kib"), 0)
        devices = self.gpus(machine)
        checks = [
            Check(
                "tools",
                not missing,
                f"not found: {', '.join(missing)}" if missing else f"{len(scripts.TOOLS)} found",
                "apt-get install -y util-linux coreutils grep tar" if missing else "",
            ),
            Check(
                "root",
                ["root"] not in found,
                f"{self.root} on {machine.name}"
                + (" cannot be written to" if ["root"] in found else ""),
                f"choose a directory you may write to instead of {self.root}",
            ),
            Check(
                "disk",
                free >= _FREE_WARNING,
                f"{free / 2**30:.0f} GiB free at {self.root}",
                f"free some space at {self.root}: every checkpoint of every trial is kept there",
                warning=True,
            ),
            Check("gpus", True, f"GPUs {', '.join(devices)}" if devices else "no GPU: CPU only"),
        ]
        if ["proc"] in found:
            checks.append(Check("proc", False, "/proc is not readable", "mount -t proc proc /proc"))
        if self._activate is not None:
            present = not machine.run(f"test -r {shlex.quote(self._activate)}").code
            remedy = f"correct platform.activate: there is no file {self._activate}"
            checks.append(Check("activate", present, self._activate, "" if present else remedy))
        return checks

    # What another engine that keeps jobs in the same way does in its own manner.

    def _job(self, machine: Machine, job_id: str) -> ProcessJob:
        return ProcessJob(machine, self.root, job_id)

    def _start_script(self, machine: Machine, job: Job, given: Mapping[str, object]) -> str:
        del machine, job
        return script(scripts.LIBRARY, scripts.START, **given)

    def _attach_script(self, machine: Machine, job_id: str) -> str:
        del machine
        return script(scripts.ATTACH, jobs=self._jobs, id=job_id)

    def _release_script(self, machine: Machine, job_id: str) -> str:
        del machine
        return script(scripts.RELEASE, jobs=self._jobs, id=job_id)

    def _shell_files(
        self, path: str, workspace: str, status: str | None, *, hide_gpus: bool
    ) -> tuple[str, str]:
        """``run.sh``, and the head of ``command.sh``, of the job whose directory is `path`."""
        runner = script(scripts.LIBRARY, scripts.RUNNER, job=path, status=status)
        command = script(
            scripts.COMMAND_HEAD,
            tao_ray_job=path,
            tao_ray_workspace=workspace,
            tao_ray_activate=self._activate,
            tao_ray_hide_gpus="yes" if hide_gpus else None,
        )
        return runner, command

    def _run(
        self, machine: Machine, what: str, text: str, *, stdin: bytes = b"", timeout: float = 60.0
    ) -> CommandResult:
        result = machine.run(text, stdin=stdin, timeout=timeout)
        if result.code:
            raise CommandError(what, result, where=machine.name)
        return result

    def _package(self, job: Job, workspace: str, *, hide_gpus: bool) -> bytes:
        """The job directory as a tar, the files for the workspace in ``files``."""
        path = f"{self._jobs}/{job.id}"
        status = f"{workspace}/{_check_path(job.status_path)}" if job.status_path else None
        record = {
            "id": job.id,
            "workspace": job.workspace,
            "command": job.command,
            "status_path": job.status_path,
            "gpus": job.gpus,
        }
        runner, command = self._shell_files(path, workspace, status, hide_gpus=hide_gpus)
        members: dict[str, tuple[bytes, int]] = {
            "fingerprint": (f"{_fingerprint(job)}\n".encode(), 0o644),
            "workspace": (f"{job.workspace}\n".encode(), 0o644),
            "run.sh": (runner.encode(), 0o644),
            "command.sh": (f"{command}{job.command}\n".encode(), 0o644),
            "env": (_exports({**self._env, **job.env, **job.secrets}), 0o600),
        }
        for name, content in job.files.items():
            members[f"files/{_check_path(name)}"] = (content, 0o600)  # specs may hold keys
        members["job.json"] = (json.dumps(record, indent=1).encode(), 0o644)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, (content, mode) in members.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), mode
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()


def _fingerprint(job: Job) -> str:
    """Of what makes two jobs the same: command, files, workspace, status path. Not of secrets."""
    digest = hashlib.sha256()
    parts = [job.command, job.workspace, job.status_path or ""]
    for name, content in sorted(job.files.items()):
        parts += [name, hashlib.sha256(content).hexdigest()]
    for part in parts:
        digest.update(part.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


def _exports(env: Mapping[str, str]) -> bytes:
    for name in env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"not a name of an environment variable: {name!r}")
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in env.items()]
    return "".join(lines).encode(errors="surrogateescape")


def _check_id(job_id: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", job_id):
        raise ValueError(f"a job id is letters, digits, '_', '-' and '.': {job_id!r}")


def _check_path(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\n" in path:
        raise ValueError(f"not a relative path below the workspace: {path!r}")
    return path
