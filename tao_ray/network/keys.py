"""Which spec keys a network knows, and whose block a key is in."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.network.conventions import TRAINING_ACTIONS
from tao_ray.network.package import Action
from tao_ray.network.schema import SchemaParameter
from tao_ray.network.tree import flatten, join_path, split_path

ACTION_BLOCKS = frozenset(
    {
        "train",
        "distill",
        "evaluate",
        "export",
        "gen_trt_engine",
        "inference",
        "prune",
        "quantize",
        "retrain",
        "dataset_convert",
    }
)
"""Top-level blocks of a spec that belong to one action; all others (model, dataset, ...) are
shared by every action."""


class SpecError(TaoRayError):
    """A spec that cannot be built; `problems` holds one text per spec key."""

    def __init__(self, title: str, problems: list[str], where: str | None = None):
        self.problems = tuple(problems)
        super().__init__("\n  ".join([title, *problems]), where=where)


def is_foreign(key: str, action: Action) -> bool:
    """Whether `key` lies in a block of another action, so that `action` does not use it.

    An action's own blocks are those of its name or its command's subcommand (``segment_train``
    runs ``visual_changenet train``: its block is ``train``; ``inference_hpo`` uses ``inference``);
    distill and retrain use ``train`` as well. Blocks that belong to no action are never foreign.
    """
    block = str(split_path(key)[0])
    return block in ACTION_BLOCKS and not _owns(action, block)


def is_own(key: str, action: Action) -> bool:
    """Whether `key` lies in a block that is the action's alone; see `is_foreign`."""
    block = str(split_path(key)[0])
    return block in ACTION_BLOCKS and _owns(action, block)


def _owns(action: Action, block: str) -> bool:
    name = action.name
    own = block in (name, action.subcommand)
    own = own or name.startswith(f"{block}_") or name.endswith(f"_{block}")
    return own or (block == "train" and name in TRAINING_ACTIONS)


@dataclass(frozen=True)
class KnownKeys:
    """The spec keys of an action: of its schema, its base spec and its declarations.

    names: every leaf. open: leaves below which anything goes: lists and open mappings.
    shorthand: the package's short names, for hints.
    """

    names: frozenset[str]
    open: frozenset[str]
    shorthand: Mapping[str, str]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in self.names or any(p in self.open for p in _up(key)))

    def nearest(self, key: str) -> str | None:
        """The known key that was most likely meant, or None."""
        if key in self.shorthand:
            return self.shorthand[key]
        last = key.rsplit(".", 1)[-1]
        same_end = [n for n in self.names if n.rsplit(".", 1)[-1] == last]
        near = difflib.get_close_matches(key, same_end or self.names, n=1, cutoff=0.0)
        plausible = near and (same_end or difflib.SequenceMatcher(None, key, near[0]).ratio() > 0.6)
        return near[0] if plausible else None

    def unknown(self, key: str) -> str:
        """The text for a key that is not known."""
        if any(n.startswith((f"{key}.", f"{key}[")) for n in self.names):
            return f"{key}: is a block of the spec, not a value; set the keys in it"
        near = self.nearest(key)
        return f"{key}: no such spec key" + (f"; did you mean {near}?" if near else "")


def known_keys(
    action: Action, base_spec: Mapping[str, Any], shorthand: Mapping[str, str]
) -> KnownKeys:
    """What `action` knows: schema, base spec, declared inputs, outputs and wired parameters."""
    leaves = flatten(base_spec)
    parameters: Mapping[str, SchemaParameter] = action.schema.parameters if action.schema else {}
    declared = {i.key for i in action.inputs} | {*action.outputs, *action.spec_params}
    declared |= {*action.data_rules}
    open_leaves = {n for n, v in leaves.items() if isinstance(v, list | dict)}
    open_leaves |= {join_path(steps[:-1]) for n in leaves for steps in _indexed(n)}
    open_leaves |= {
        p.name for p in parameters.values() if p.type == "collection" or "list" in p.type
    }
    return KnownKeys(
        names=frozenset({*leaves, *parameters, *declared}),
        open=frozenset(open_leaves),
        shorthand=shorthand,
    )


def _up(key: str) -> Iterator[str]:
    steps = split_path(key)
    for length in range(len(steps) - 1, 0, -1):
        yield join_path(steps[:length])


def _indexed(name: str) -> Iterator[list[str | int]]:
    """The prefixes of `name` that end in an index."""
    steps = split_path(name)
    for position, step in enumerate(steps):
        if isinstance(step, int):
            yield steps[: position + 1]
