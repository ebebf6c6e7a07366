"""A Docker Engine on an emulated instance: started when the instance's `docker` is first used.

It lives in the instance's own view of the file system, and ends with the instance.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

IMAGE = "registry.invalid/userland:1"
"""An image of links only: its userland is this host's ``/usr``, which containers must mount."""

_TOOL = """#!/bin/sh
# The socket's path must be short.
here=/tmp/brev-docker-$(printf %s "$HOME" | cksum | tr -d ' ')
export DOCKER_HOST=unix://$here/s
mkdir -p "$here"
(
    flock 9
    {docker} version > /dev/null 2>&1 && exit
    pid= tries=0
    until {docker} version > /dev/null 2>&1; do
        # One that was killed leaves a containerd behind, at which the first start may fail.
        if [ -z "$pid" ] || ! kill -0 "$pid" 2> /dev/null; then
            setsid {dockerd} --iptables=false --ip6tables=false --bridge=none \\
                --storage-driver=vfs --data-root "$HOME/../docker" --exec-root "$here/exec" \\
                --pidfile "$here/pid" -H "$DOCKER_HOST" \\
                >> "$HOME/../docker.log" 2>&1 < /dev/null 9>&- &
            pid=$!
        fi
        tries=$((tries + 1))
        [ $tries -lt 600 ] || exit 1
        sleep 0.1
    done
    {docker} import {image} {name} > /dev/null
) 9> "$here/lock"
exec {docker} "$@"
"""


def docker_missing() -> str | None:
    """Why instances can have no Docker Engine here, None if they can."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        return "no dockerd here, or not root: scripts/test_services.sh installs it"
    return None


def docker_tool(directory: Path) -> dict[str, str]:
    """For `BrevEmulator.change(tools=…)`. directory: for the image."""
    image = directory / "userland.tar"
    with open(image, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("usr", "tmp", "etc", "proc", "root", "sbin"):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(member, io.BytesIO())
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, f"usr/{name}"
                archive.addfile(member)
    text = _TOOL.format(
        docker=shutil.which("docker"), dockerd=shutil.which("dockerd"), image=image, name=IMAGE
    )
    return {"docker": text}
