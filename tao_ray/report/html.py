"""A document as one HTML file that needs nothing else: no network, no font, no library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import groupby

from tao_ray.report.document import (
    Block,
    Bullets,
    Callout,
    Cards,
    Code,
    Document,
    Figure,
    Section,
    Table,
    Text,
)
from tao_ray.report.style import CSS, SCRIPT

WIDE, HALF, NARROW = 940, 460, 344
"""Plots are drawn for the width they are shown at, so that their text keeps its size."""
_LONG = 30
_BREAK = r"\1<wbr>"


def render_html(document: Document) -> str:
    """The whole document. Everything that is not markup of ours is escaped."""
    links = "".join(f'<a href="#{_anchor(s)}">{escape(s.title)}</a>' for s in document.sections[1:])
    sections = "".join(_section(s) for s in document.sections)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(document.title)}</title><style>{CSS}</style></head><body><main>"
        f'<h1>{escape(document.title)}</h1><p class="sub">{_inline(document.subtitle)}</p>'
        f"<nav>{links}</nav>{sections}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _section(section: Section) -> str:
    parts = []
    for halves, blocks in groupby(section.blocks, lambda b: isinstance(b, Figure) and b.half):
        content = "".join(map(_block, blocks))
        parts.append(f'<div class="halves">{content}</div>' if halves else content)
    body = "".join(parts)
    return f'<section id="{_anchor(section)}"><h2>{escape(section.title)}</h2>{body}</section>'


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f"<p{' class=small' if block.small else ''}>{_inline(block.text)}</p>"
    if isinstance(block, Bullets):
        return _bullets(block.items)
    if isinstance(block, Cards):
        return f'<div class="cards">{"".join(map(_card, block.cards))}</div>'
    if isinstance(block, Callout):
        title = f"<strong>{_inline(block.title)}</strong>"
        return f'<div class="callout {block.tone}">{title}{_bullets(block.items)}</div>'
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block)
    return _code(block)


def _bullets(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in items)}</ul>" if items else ""


def _card(card: object) -> str:
    label, value, detail = (_inline(getattr(card, a)) for a in ("label", "value", "detail"))
    return f"<div><span>{label}</span><b>{value}</b><small>{detail}</small></div>"


def _table(table: Table) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{_kind(cell, i in table.numeric)}>{_inline(cell)}</{tag}>"
            for i, cell in enumerate(row)
        )

    rows = "".join(
        f"<tr{' class=mark' if i in table.marked else ''}>{cells(row, 'td')}</tr>"
        for i, row in enumerate(table.rows)
    )
    kind = ' class="sort"' if table.sortable else ""
    head = cells(table.head, "th")
    return (
        f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _kind(cell: str, numeric: bool) -> str:
    """Long texts, such as paths, get room to be read on a narrow screen, too."""
    if numeric:
        return " class=n"
    return " class=long" if len(cell) > _LONG else ""


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{_inline(figure.caption)}</figcaption>" if figure.caption else ""
    lead = f"<p>{_inline(figure.lead)}</p>" if figure.lead else ""
    wide = figure.draw(HALF if figure.half else WIDE)
    return (
        f"<figure><h3>{_inline(figure.title)}</h3>{lead}"
        f'<div class="wide">{wide}</div><div class="narrow">{figure.draw(NARROW)}</div>'
        f"{caption}</figure>"
    )


def _code(block: Code) -> str:
    text = f"<pre>{escape(block.text.rstrip())}</pre>"
    if block.folded:
        return f"<details><summary>{_inline(block.title)}</summary>{text}</details>"
    return f"<p>{_inline(block.title)}</p>{text}" if block.title else text


def _inline(text: str) -> str:
    """Escaped text with its ``**strong**`` and ``` `code` ```."""
    parts = re.split(r"`([^`]*)`", text)
    for i, part in enumerate(parts):
        safe = escape(part)
        if i % 2:
            parts[i] = _breakable(safe)
        else:
            parts[i] = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", safe)
    return "".join(parts)


def _breakable(code: str) -> str:
    """Names and paths may break at their joints, which a narrow screen needs."""
    return f"<code>{re.sub('([._/])(?=[^._/])', _BREAK, code)}</code>"


def _anchor(section: Section) -> str:
    return re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")
