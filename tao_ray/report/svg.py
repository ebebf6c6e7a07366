"""Plots as plain SVG: scales, axes and marks. No script, no font, nothing fetched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

INK, MUTED, GRID = "#1f2937", "#6b7280", "#e5e7eb"
BEST, REFERENCE, OTHER = "#c2410c", "#111827", "#9aa5b5"
STATUS = {
    "completed": "#2563eb",
    "stopped": "#94a3b8",
    "failed": "#dc2626",
    "paused": "#d97706",
    "running": "#059669",
    "pending": "#cbd5e1",
}
FONT = 12
CHAR = 7.2
"""Mean width of a character of the font, in pixels."""


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to pixels [start, end]; values outside are put at the nearer end."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int) -> list[float]:
        """Round values within the scale, about so many."""
        if self.high <= self.low:
            return [self.low]
        if self.log:
            return _log_ticks(self.low, self.high, about)
        raw = (self.high - self.low) / max(about, 1)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def _log_ticks(low: float, high: float, about: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low <= 200 else (1,)
    ticks = [m * 10.0**d for d in decades for m in steps]
    ticks = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
    return ticks[:: max(1, math.ceil(len(ticks) / max(about, 1)))]


def padded(values: Iterable[float], share: float = 0.05) -> tuple[float, float]:
    """Lowest and highest value with some room around."""
    found = list(values)
    low, high = min(found), max(found)
    room = (high - low) * share or abs(high) * share or 1.0
    return low - room, high + room


def tick_text(value: float) -> str:
    """A tick's label: ``0.05``, ``1e-5``."""
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{round(value, 6):g}"


class Svg:
    """A drawing in the making. Coordinates are pixels from the top left."""

    def __init__(self, width: int, height: float, label: str):
        self.width = width
        self.height = height
        self._label = label
        self._parts: list[str] = []

    def line(
        self, x1: float, y1: float, x2: float, y2: float, color: str = GRID, width: float = 1
    ) -> None:
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"'
            f' stroke-width="{width:g}"/>'
        )

    def path(
        self,
        points: Sequence[tuple[float, float]],
        color: str,
        width: float = 1.5,
        *,
        title: str = "",
        dash: str = "",
        opacity: float = 1.0,
    ) -> None:
        """A line through `points`."""
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        extra += f' opacity="{opacity:g}"' if opacity < 1 else ""
        self._add(
            f'path class="l" d="{d}" fill="none" stroke="{color}" stroke-width="{width:g}"'
            f' stroke-linejoin="round"{extra}',
            title,
        )

    def dot(
        self, x: float, y: float, r: float, color: str, *, title: str = "", hollow: bool = False
    ) -> None:
        fill = f'fill="#fff" stroke="{color}" stroke-width="1.5"' if hollow else f'fill="{color}"'
        self._add(f'circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" {fill}', title)

    def cross(self, x: float, y: float, r: float, color: str, *, title: str = "") -> None:
        d = f"M{x - r:.1f} {y - r:.1f}l{2 * r:g} {2 * r:g}m0 {-2 * r:g}l{-2 * r:g} {2 * r:g}"
        self._add(f'path d="{d}" stroke="{color}" stroke-width="2" fill="none"', title)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        color: str,
        *,
        title: str = "",
        round_: float = 2,
        stroke: str = "",
    ) -> None:
        extra = f' stroke="{stroke}" stroke-width="2"' if stroke else ""
        self._add(
            f'rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}"'
            f' rx="{round_:g}" fill="{color}"{extra}',
            title,
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        color: str = MUTED,
        size: float = FONT,
        bold: bool = False,
        halo: bool = False,
    ) -> None:
        """halo: legible over lines."""
        extra = ' font-weight="600"' if bold else ""
        extra += ' class="h"' if halo else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"'
            f' font-size="{size:g}"{extra}>{escape(text)}</text>'
        )

    def fitted(self, x: float, y: float, text: str, room: float, **style: object) -> None:
        """`text` cut to `room` pixels: its end stays, since dotted names differ there."""
        most = max(int(room / CHAR), 4)
        cut = text if len(text) <= most else "…" + text[len(text) - most + 1 :]
        self.text(x, y, cut, **style)  # type: ignore[arg-type]

    def _add(self, element: str, title: str) -> None:
        if title:
            tag = element.split(" ", 1)[0]
            self._parts.append(f"<{element}><title>{escape(title)}</title></{tag}>")
        else:
            self._parts.append(f"<{element}/>")

    def __str__(self) -> str:
        return (
            f'<svg viewBox="0 0 {self.width} {self.height:g}" role="img"'
            f' aria-label="{escape(self._label)}">{"".join(self._parts)}</svg>'
        )


class Plot(Svg):
    """A drawing with an x and a y axis.

    The y label stands above the axis and the x label below its end, so both are read without
    turning the head and take no width.
    """

    def __init__(
        self,
        width: int,
        height: int,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        label: str,
        x_label: str = "",
        y_label: str = "",
        x_log: bool = False,
        x_whole: bool = False,
        x_ticks: Sequence[tuple[float, str]] | None = None,
    ):
        """x_whole: x counts. x_ticks: places and texts, instead of round values."""
        super().__init__(width, height, label)
        top, bottom = 26.0, height - (38.0 if x_label else 22.0)
        self.y = Scale(*y, bottom, top)
        y_ticks = self.y.ticks(max(2, int((bottom - top) / 45)))
        left = max(len(tick_text(t)) for t in y_ticks) * CHAR + 10 if y_ticks else 20
        self.x = Scale(*x, left, width - 12.0, x_log)
        for tick in y_ticks:
            self.line(left, self.y(tick), self.x.end, self.y(tick))
            self.text(left - 6, self.y(tick) + 4, tick_text(tick), anchor="end")
        if x_ticks is None:
            places = self.x.ticks(max(2, int((self.x.end - left) / 70)))
            x_ticks = [(t, tick_text(t)) for t in places if not x_whole or t == round(t)]
        for tick, text in x_ticks:
            self.line(self.x(tick), bottom, self.x(tick), bottom + 4, MUTED)
            room = len(text) * CHAR / 2
            at = min(max(self.x(tick), left + room - 8), width - room - 2)
            self.text(at, bottom + 17, text, anchor="middle")
        self.line(left, bottom, self.x.end, bottom, MUTED)
        self.text(2, 13, y_label, color=INK)
        self.text(self.x.end, height - 4, x_label, anchor="end", color=INK)
