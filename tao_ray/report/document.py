"""What a report consists of, before it is HTML or Markdown.

Text is plain, except that ``**…**`` is strong and ``` `…` ``` is code; use `code` for values that
come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["good", "unclear", "bad", "plain"]


@dataclass(frozen=True)
class Text:
    """A paragraph. small: a remark to the block before it."""

    text: str
    small: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Card:
    """One figure of the headline: a large value, what it is, and what belongs to it."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Cards:
    """The headline's figures, side by side."""

    cards: Sequence[Card]


@dataclass(frozen=True)
class Callout:
    """An answer that must not be missed."""

    tone: Tone
    title: str
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of texts. numeric: columns aligned right. marked: rows to stand out.

    sortable: a click on a column's head sorts by it.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    sortable: bool = False


@dataclass(frozen=True)
class Figure:
    """A plot: `draw` gets a width in pixels and returns an SVG. caption: how to read it.

    lead: what must be known before it is looked at.
    """

    title: str
    draw: Callable[[int], str]
    caption: str = ""
    lead: str = ""
    half: bool = False
    """Two of these stand side by side where there is room."""


@dataclass(frozen=True)
class Code:
    """Text to copy. title: what it is; folded: shown on a click."""

    text: str
    title: str = ""
    folded: bool = False


Block = Text | Bullets | Cards | Callout | Table | Figure | Code


@dataclass(frozen=True)
class Section:
    """A part of the report with a heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    subtitle: str
    sections: Sequence[Section] = field(default_factory=tuple)


def code(value: object) -> str:
    """A value as code within a text; backticks of its own are dropped."""
    text = str(value).replace("`", "'")
    return f"`{text}`" if text else ""
