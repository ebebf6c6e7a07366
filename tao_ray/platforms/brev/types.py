"""Which instance types may be rented: an explicit chain, cheapest first, each with its price.

``brev create`` left to itself tries every matching type at any price. Here nothing is rented
that is not in the chain, and the chain always has a bound: a maximum price, types named by the
user, or the prices shown in a review that the user confirms.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tao_ray.platforms.brev.errors import BrevError
from tao_ray.platforms.brev.records import InstanceType

DISK_GB = 120.0
"""Disk that `brev create --type` gives where a type leaves the choice; no flag changes it."""


class NoTypeError(BrevError):
    """No type in the catalogue is what was asked for, or the wish has no bound."""


@dataclass(frozen=True)
class TypeRequest:
    """What a machine must be.

    gpu: name of the GPU, such as ``L40S`` (``L40`` is another one). gpus: GPUs on the machine.
    types: types named by the user, in their order, instead of the cheapest.
    max_price_per_hour: USD per machine. min_vram_gb: per GPU. disk_gb: the disk it starts with.
    limit: longest chain.
    """

    gpu: str | None = None
    gpus: int = 1
    min_vram_gb: float | None = None
    provider: str | None = None
    types: tuple[str, ...] = ()
    max_price_per_hour: float | None = None
    disk_gb: float | None = None
    limit: int = 5


def choose_types(
    catalogue: Sequence[InstanceType], request: TypeRequest, *, reviewed: bool = False
) -> list[InstanceType]:
    """The types to try, in order. Their prices are the bound from here on.

    reviewed: the user will confirm the chain with its prices before anything is rented.
    Raises NoTypeError, with what stood in the way.
    """
    if not (request.types or request.max_price_per_hour or reviewed):
        raise NoTypeError(
            "the price is unbounded",
            where="platform",
            remedy="set platform.max_price_per_hour, or name the type with platform.type",
        )
    rules = _rules(request)
    rows = [row for row in catalogue if row.gpu_count > 0 and row.gpu_name]
    fitting = collapse([row for row in rows if all(rule.holds(row) for rule in rules)], catalogue)
    affordable = [row for row in fitting if _within(row, request.max_price_per_hour)]
    if request.types:
        order = {name: place for place, name in enumerate(request.types)}
        chain = sorted(affordable, key=lambda row: order[row.type])
    else:
        chain = sorted(affordable, key=lambda row: (row.price_per_hour, row.gpu_count, row.type))
    if not chain:
        raise _nothing(rows, fitting, rules, request)
    return chain[: request.limit]


def collapse(
    rows: Sequence[InstanceType], catalogue: Sequence[InstanceType] = ()
) -> list[InstanceType]:
    """One row per type, at the highest price any row of that type has.

    The catalogue repeats a type for each of its GPU kinds; which one is made cannot be chosen.
    """
    price: dict[str, float] = {}
    for row in (*catalogue, *rows):
        price[row.type] = max(price.get(row.type, 0.0), row.price_per_hour)
    first: dict[str, InstanceType] = {}
    for row in rows:
        first.setdefault(row.type, replace(row, price_per_hour=price[row.type]))
    return list(first.values())


def same_gpu(wanted: str, name: str) -> bool:
    """Whether a GPU's name is the wanted one: its words are among the name's."""
    return set(_words(wanted)) <= set(_words(name))


@dataclass(frozen=True)
class _Rule:
    key: str
    text: str
    request: TypeRequest

    def holds(self, row: InstanceType) -> bool:
        wish = self.request
        if self.key == "type":
            return row.type in wish.types
        if self.key == "gpu":
            return same_gpu(wish.gpu or "", row.gpu_name)
        if self.key == "min_vram_gb":
            return row.vram_per_gpu_gb >= (wish.min_vram_gb or 0.0)
        if self.key == "provider":
            return (wish.provider or "").lower() in (row.provider.lower(), row.cloud.lower())
        if self.key == "disk_gb":
            return _disk(row) >= (wish.disk_gb or 0.0)
        return row.gpu_count >= wish.gpus


def _rules(request: TypeRequest) -> list[_Rule]:
    wishes = {
        "type": ", ".join(request.types),
        "gpu": request.gpu,
        "min_vram_gb": request.min_vram_gb,
        "provider": request.provider,
        "disk_gb": request.disk_gb,
        "gpus": request.gpus,
    }
    return [_Rule(key, f"{key}: {wish}", request) for key, wish in wishes.items() if wish]


def _disk(row: InstanceType) -> float:
    return min(max(DISK_GB, row.disk_min_gb), row.disk_max_gb or DISK_GB)


def _within(row: InstanceType, limit: float | None) -> bool:
    return limit is None or row.price_per_hour <= limit


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z]*\d+[a-z0-9]*|[a-z]+", name.lower())
    return [word for word in words if word != "nvidia"]


def _nothing(
    rows: Sequence[InstanceType],
    fitting: Sequence[InstanceType],
    rules: Sequence[_Rule],
    request: TypeRequest,
) -> NoTypeError:
    wish = ", ".join(rule.text for rule in rules)
    if fitting:
        best = min(fitting, key=lambda row: row.price_per_hour)
        return NoTypeError(
            f"the cheapest type with {wish} is {best.type} ({best.provider}) at "
            f"{best.price_per_hour:.2f} USD/h, above max_price_per_hour "
            f"{request.max_price_per_hour:.2f}",
            where="platform",
            remedy=f"raise platform.max_price_per_hour to {best.price_per_hour:.2f}, or relax the "
            "wish",
        )
    for rule in rules:
        if any(rule.holds(row) for row in rows):
            continue
        known = sorted({row.type if rule.key == "type" else row.gpu_name for row in rows})
        if rule.key == "type":
            known = difflib.get_close_matches(request.types[0], known, 5, 0.5) or known
        elif rule.key == "provider":
            known = sorted({row.provider for row in rows})
        return NoTypeError(
            f"no type in Brev's catalogue has {rule.text}",
            where="platform",
            remedy=f"there are: {', '.join(known[:12])}" if known else "see `brev search`",
        )
    return NoTypeError(
        f"no type in Brev's catalogue has all of {wish}",
        where="platform",
        remedy="relax one of them; `brev search` shows what there is",
    )
