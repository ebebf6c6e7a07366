"""How two resolved configurations differ, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tao_ray.config.problems import KeyPath, key_text

_UNSET = "(not set)"


def config_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed between two `RunConfig.dump()`s: ``search.trials: 20 -> 30``, one per key."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    return [
        f"{key_text(path)}: {_shown(old, path)} -> {_shown(new, path)}"
        for path in dict.fromkeys([*old, *new])
        if path not in old or path not in new or not _same(old[path], new[path])
    ]


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Everything that is not a mapping, and empty mappings below the root's keys are nothing."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    else:
        yield path, value


def _same(a: Any, b: Any) -> bool:
    # 1 and 1.0 are the same setting; True and 1 are not.
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _shown(leaves: Mapping[KeyPath, Any], path: KeyPath) -> str:
    return repr(leaves[path]) if path in leaves else _UNSET
