"""Loss curves: block characters for the terminal, and one self-contained SVG figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH, PLOT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 44
ROW, COLUMNS = 20, 3  # of the legend
# (colour, dashes) of each run; the dashes tell them apart without colour. The curve that a run must follow lies under it
# as a broad band.
STYLES = (("#d98200", "7 4"), ("#1a86d0", "2 3"), ("#009e73", "1 4"), ("#c05a9e", "9 3 2 3"))
BAND, LINE = 6, 2


@dataclass(frozen=True)
class Curve:
    """The global losses of one run.

    style: a place in `STYLES`; None for the original. reference: another run is compared with this one.
    """

    name: str
    losses: tuple[float, ...]
    style: int | None
    reference: bool


def sparkline(losses: Sequence[float], width: int, low: float, high: float) -> str:
    """At most ``width`` block characters. Each is the mean of a stretch of losses, scaled from ``low`` to ``high``."""
    size = max(1, math.ceil(len(losses) / width))
    out = []
    for start in range(0, len(losses), size):
        stretch = [value for value in losses[start : start + size] if math.isfinite(value)]
        if not stretch:
            out.append("×")
            continue
        share = (sum(stretch) / len(stretch) - low) / (high - low) if high > low else 0.0
        out.append(BLOCKS[min(len(BLOCKS) - 1, max(0, int(share * len(BLOCKS))))])
    return "".join(out)


def bounds(losses: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The smallest and largest finite loss; (0, 1) if there is none."""
    finite = [value for run in losses for value in run if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 1.0)


def svg(found: Sequence[Curve]) -> str:
    """The figure as an SVG document; "" if nothing trained.

    It uses only presentation attributes, which every content security policy allows. Text and axes have the colour of the
    surrounding text, so the figure also suits dark pages.
    """
    if not found:
        return ""
    low, high = bounds([curve.losses for curve in found])
    longest = max(len(curve.losses) for curve in found)
    height = PLOT + ROW * math.ceil(len(found) / COLUMNS)
    title = f"Loss of every backward pass: {', '.join(curve.name for curve in found)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(title)}</title>",
        *_axes(low, high, longest),
        *(_line(curve, low, high, longest) for curve in sorted(found, key=lambda curve: not curve.reference)),
    ]
    for index, curve in enumerate(found):
        x = LEFT + index % COLUMNS * ((WIDTH - LEFT) // COLUMNS)
        y = PLOT + ROW * (index // COLUMNS)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 26}" y2="{y}" {_stroke(curve)}/>')
        parts.append(f'<text x="{x + 34}" y="{y + 4}">{escape(curve.name)}</text>')
    return "\n".join([*parts, "</svg>"])


def _line(curve: Curve, low: float, high: float, longest: int) -> str:
    points = " ".join(
        f"{_x(step, longest):.1f},{_y(loss, low, high):.1f}"
        for step, loss in enumerate(curve.losses)
        if math.isfinite(loss)
    )
    return f'<polyline points="{points}" fill="none" stroke-linejoin="round" {_stroke(curve)}/>'


def _stroke(curve: Curve) -> str:
    colour, dashes = ("currentColor", "none") if curve.style is None else STYLES[curve.style]
    if curve.reference:
        return f'stroke="{colour}" stroke-width="{BAND}" stroke-opacity="0.3"'
    return f'stroke="{colour}" stroke-width="{LINE}" stroke-dasharray="{dashes}"'


def _axes(low: float, high: float, longest: int) -> list[str]:
    bottom, right = PLOT - BOTTOM, WIDTH - RIGHT
    grey = 'stroke="currentColor" stroke-opacity="0.35"'
    out = [
        f'<line x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{bottom}" {grey}/>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" {grey}/>',
    ]
    for value in dict.fromkeys((low, (low + high) / 2, high)):
        y = _y(value, low, high)
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for step in sorted({1, (longest + 1) // 2, longest}):
        x = _x(step - 1, longest)
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{step}</text>')
    return out


def _x(step: int, longest: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, longest - 1)


def _y(loss: float, low: float, high: float) -> float:
    share = (loss - low) / (high - low) if high > low else 0.5
    return PLOT - BOTTOM - (PLOT - TOP - BOTTOM) * share
