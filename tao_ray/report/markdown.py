"""A document as Markdown. Plots are in the HTML report; here their captions stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tao_ray.report.document import (
    Block,
    Bullets,
    Callout,
    Cards,
    Code,
    Document,
    Figure,
    Table,
    Text,
)


def render_markdown(document: Document) -> str:
    """The whole document, GitHub flavour."""
    parts = [f"# {document.title}", document.subtitle]
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts += [text for block in section.blocks if (text := _block(block))]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return _inline(block.text)
    if isinstance(block, Bullets):
        return _bullets(block.items)
    if isinstance(block, Cards):
        return _bullets(
            [f"{c.label}: **{c.value}**{f' ({c.detail})' if c.detail else ''}" for c in block.cards]
        )
    if isinstance(block, Callout):
        quoted = [f"> **{_inline(block.title)}**"]
        return "\n".join(quoted + [f"> - {_inline(item)}" for item in block.items])
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        text = f"*{_inline(block.title)}* (plot in report.html). {_inline(block.lead)}".strip()
        return f"{text} {_inline(block.caption)}".strip()
    return _code(block)


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {_inline(item)}" for item in items)


def _table(table: Table) -> str:
    rule = ["---:" if i in table.numeric else "---" for i in range(len(table.head))]
    rows = [table.head, rule, *table.rows]
    return "\n".join(f"| {' | '.join(_cell(c) for c in row)} |" for row in rows)


def _code(block: Code) -> str:
    # A fence longer than any within.
    fence = "```"
    while fence in block.text:
        fence += "`"
    text = f"{fence}\n{block.text.rstrip()}\n{fence}"
    return f"{_inline(block.title)}:\n\n{text}" if block.title else text


def _inline(text: str) -> str:
    return escape(" ".join(text.split()), quote=False)


def _cell(text: str) -> str:
    return _inline(text).replace("|", "\\|")
