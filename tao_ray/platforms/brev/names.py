"""Names of the machines a run makes: ``tao-<run>-<n>``.

The prefix marks everything this project has ever created in an account, so that whatever was
left behind can be found by name alone, and nothing else is ever deleted.
"""

from __future__ import annotations

import hashlib
import re

from tao_ray.platforms.brev.errors import BrevError

PREFIX = "tao-"
_OURS = re.compile(r"tao-[a-z0-9]+(?:-[a-z0-9]+)*-[0-9]+")
_LONGEST = 40


def machine_name(run: str, number: int) -> str:
    """The name of a run's machine. A run's name that had to be altered gets a digest with it."""
    return f"{run_prefix(run)}{number}"


def run_prefix(run: str) -> str:
    """What the names of one run's machines begin with."""
    slug = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    if slug != run or not slug or len(slug) > _LONGEST:
        digest = hashlib.sha256(run.encode()).hexdigest()[:6]
        slug = f"{slug[:_LONGEST].strip('-')}-{digest}".strip("-")
    return f"{PREFIX}{slug}-"


def is_ours(name: str, run: str | None = None) -> bool:
    """Whether this project made it; with `run`: whether that run did (``a`` is not ``a-1``)."""
    if len(name) > 63 or not _OURS.fullmatch(name):
        return False
    return run is None or name.rpartition("-")[0] + "-" == run_prefix(run)


def check_ours(name: str) -> str:
    """The name, if it is one of ours. Raises BrevError: others are not made or deleted."""
    if not is_ours(name):
        raise BrevError(
            f"{name!r} is not the name of a machine of ours (tao-<run>-<n>)",
            where="brev",
            remedy="instances of other names are yours alone: use `brev delete NAME` for them",
        )
    return name
