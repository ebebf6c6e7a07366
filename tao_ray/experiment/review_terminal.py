"""A review as it is shown: laid out on a terminal, Markdown elsewhere."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.table import Table

from tao_ray.experiment.review import Review
from tao_ray.experiment.review_text import markdown


def show_review(review: Review, console: Console) -> None:
    """Print the whole review."""
    text = markdown(review)
    if console.is_terminal:
        console.print(_Laid(text, code_theme="bw", hyperlinks=False))
    else:
        console.print(text, markup=False, soft_wrap=True, end="")


class _Folded(TableElement):
    """A table that shows long names in full."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for item in super().__rich_console__(console, options):
            if isinstance(item, Table):
                for column in item.columns:
                    column.overflow = "fold"
            yield item


class _Laid(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "table_open": _Folded,
    }
