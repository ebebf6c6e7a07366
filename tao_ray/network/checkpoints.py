"""The checkpoints among a trial's files, by the network's conventions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tao_ray.network.conventions import Conventions


@dataclass(frozen=True)
class CheckpointFile:
    """One checkpoint: a file, or a folder with all its files.

    path: relative to results_dir. epoch: the 1-based epoch of its own training that was completed
    with it; None for the best one that the network keeps by itself and overwrites.
    """

    path: str
    epoch: int | None
    bytes: int


def find_checkpoints(conventions: Conventions, files: Mapping[str, int]) -> list[CheckpointFile]:
    """Every checkpoint among `files` (path below results_dir -> bytes), by path."""
    found: dict[str, tuple[int | None, int]] = {}
    patterns = [conventions.checkpoint_pattern]
    if conventions.weights_pattern:
        patterns.append(conventions.weights_pattern)
    regexes = [_with_epoch(pattern) for pattern in patterns]
    for path, size in files.items():
        match = next((m for regex in regexes if (m := regex.match(path))), None)
        if match is not None:
            # The one file of an action without epochs counts as its first epoch's.
            number = match.groupdict().get("epoch")
            epoch = 1 if number is None else int(number) + 1 - conventions.checkpoint_first
            name = match[0].rstrip("/")
            found[name] = epoch, found.get(name, (None, 0))[1] + size
        elif conventions.best_checkpoint and path.split("/")[-1] == conventions.best_checkpoint:
            found[path] = None, size
    return [CheckpointFile(path, *found[path]) for path in sorted(found)]


def _with_epoch(pattern: str) -> re.Pattern[str]:
    """A conventions' pattern with any epoch in it, anywhere below results_dir."""
    any_epoch = re.sub(r"\{epoch[^}]*\}", r"(?P<epoch>\\d+)", pattern)
    end = "" if pattern.endswith("/") else "$"
    return re.compile(r"(?:^|.*/)" + any_epoch.replace("{{", "{").replace("}}", "}") + end)
