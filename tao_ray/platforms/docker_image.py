"""Getting a container image onto a machine: once, visibly, and with the cause if it is refused."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tao_ray.platforms import docker_scripts as scripts
from tao_ray.platforms.base import ImageAccessError, ImageMissingError, PlatformError
from tao_ray.platforms.machine import CommandError, Machine
from tao_ray.platforms.process_job import script

_LOGIN_FAILED, _NO_MANIFEST = 46, 47
_ABSENT = re.compile(
    r"manifest unknown|no such manifest|not found: manifest|repository .* not found"
)
_UNKNOWN_USER = re.compile(r"unauthorized|401|authentication required|no basic auth", re.IGNORECASE)
_FORBIDDEN = re.compile(r"denied|forbidden|403|402|payment required", re.IGNORECASE)


@dataclass(frozen=True)
class Registry:
    """A login. user: for nvcr.io literally ``$oauthtoken``; the token is the NGC API key.

    variable: the environment variable the token is from, for error messages.
    """

    host: str
    token: str = field(repr=False)
    user: str = "$oauthtoken"
    variable: str = "NGC_KEY"


Progress = Callable[[str], None]


def pull_image(
    machine: Machine,
    docker: str,
    root: str,
    image: str,
    registry: Registry | None,
    *,
    timeout: float,
    progress: Progress = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Have the image on the machine. All who ask for it at once wait for one pull, which goes on
    when the link breaks. The login lasts as long as the pull.

    progress: told in words whenever there is something new. sleep: used for all waiting, and may
    raise to end it. Raises ImageAccessError, ImageMissingError, LinkError, PlatformError.
    """
    present = script(scripts.LIBRARY, scripts.PRESENT, docker=docker, image=image)
    if not machine.run(present).code:
        return
    place = f"{root}/.images/{hashlib.sha256(image.encode()).hexdigest()[:16]}"
    if registry is not None and not image.startswith(f"{registry.host}/"):
        registry = None
    start = script(
        scripts.LIBRARY,
        scripts.PULL,
        docker=docker,
        image=image,
        place=place,
        registry=registry.host if registry else None,
        user=registry.user if registry else None,
    )
    _run(machine, "start a pull", start, registry.token.encode() if registry else b"")
    deadline = time.monotonic() + timeout
    said = ""
    while True:
        looked = _run(machine, "watch a pull", script(scripts.PULLING, place=place))
        head, _, log = looked.partition("\n")
        state, code, layers, done = head.split()
        if int(layers) and said != (text := f"{done} of {layers} layers"):
            said = text
            progress(f"pulling {image}: {text}")
        if state == "idle":
            break
        if time.monotonic() > deadline:
            raise PlatformError(
                f"{image} was not pulled within {timeout:g} s ({done} of {layers} layers)",
                where=machine.name,
                remedy="the pull goes on there: try again later, or allow more time",
            )
        sleep(max(0.2, machine.poll_interval))
    if code != "0" or machine.run(present).code:
        raise refusal(image, machine.name, registry, None if code == "-" else int(code), log)


def refusal(
    image: str, where: str, registry: Registry | None, code: int | None, log: str
) -> PlatformError:
    """The error for a pull that ended with `code` (None: it was killed) and `log`."""
    host = image.partition("/")[0]
    last = log.strip().splitlines()[-1] if log.strip() else "no reason given"
    key = registry.variable if registry else "NGC_KEY"
    if code == _LOGIN_FAILED:
        return ImageAccessError(
            f"the registry {host} refuses the login: {last}",
            where=where,
            remedy=f"make a new API key (for nvcr.io: https://org.ngc.nvidia.com/setup/api-keys) "
            f"and export {key}",
        )
    if _ABSENT.search(log):
        return ImageMissingError(
            f"there is no image {image}: {last}", where=where, remedy="correct model.image"
        )
    if registry is None and (_UNKNOWN_USER.search(log) or _FORBIDDEN.search(log)):
        return ImageAccessError(
            f"{image} needs a login to {host}, and none was given: {last}",
            where=where,
            remedy=f"export {key} with an API key of an account that may pull it",
        )
    if _UNKNOWN_USER.search(log) or _FORBIDDEN.search(log):
        return ImageAccessError(
            f"the login to {host} is valid, but has no access to {image}: {last}",
            where=where,
            remedy="ask the owner of the image's organisation or team for access, accept its terms "
            "of use in the catalogue, or use a key of that organisation",
        )
    return PlatformError(
        f"could not pull {image}: {last}",
        where=where,
        remedy="see whether that machine reaches the registry and has disk space (docker pull)",
    )


def _run(machine: Machine, what: str, text: str, stdin: bytes = b"") -> str:
    result = machine.run(text, stdin=stdin)
    if result.code:
        raise CommandError(what, result, where=machine.name)
    return result.stdout.decode(errors="replace")
