"""How values, times and names are written in a report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any


def shown(value: Any, digits: int = 4) -> str:
    """A value of any kind, short: floats with `digits` significant digits, YAML's booleans."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(v, digits) for v in value)}]"
    return str(value)


def signed(value: float, digits: int = 3) -> str:
    """A difference, with its sign."""
    return f"{value:+.{digits}g}".replace("-", "−")


def duration(seconds: float) -> str:
    """A span of time in its two largest units."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min"


def dollars(usd: float) -> str:
    """An amount of money: to the cent, small ones to two digits."""
    return f"${usd:.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}"


def megabytes(size: int) -> str:
    """Bytes in MB."""
    return f"{size / 1e6:,.1f} MB"


def moment(time: float) -> str:
    """A point in time, in this machine's zone."""
    return datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def count(n: int, noun: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def listing(names: Sequence[str], most: int = 8) -> str:
    """Names in a row, cut after `most`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


_SAYS_NOTHING = {"enable", "enabled", "name", "type", "value"}


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each dotted name by as few of its last parts as tell what it is, and it from the others."""
    short = {}
    for name in names:
        parts = name.split(".")
        tail = name
        for n in range(2 if parts[-1] in _SAYS_NOTHING else 1, len(parts) + 1):
            tail = ".".join(parts[-n:])
            if sum(other == tail or other.endswith(f".{tail}") for other in names) == 1:
                break
        short[name] = tail
    return short
