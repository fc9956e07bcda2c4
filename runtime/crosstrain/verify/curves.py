"""Loss curves: in the terminal with block characters, and as one SVG figure that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from crosstrain.verify.report import Report

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 56
# Distinct also without colour: each has its own dashes, and later lines do not hide earlier ones.
STYLES = (("#444444", "", 5), ("#d98200", "7 4", 2.5), ("#0072b2", "2 3", 1.8), ("#009e73", "1 4", 1.8))


def curves(report: Report) -> list[tuple[str, tuple[float, ...]]]:
    """(name, global losses) of every run that trained the same way; the default launch takes other steps."""
    runs = [("original", report.original.losses)]
    runs += [(run.name, run.losses) for run in report.runs if run.losses]
    return [(name, losses) for name, losses in runs if losses]


def sparkline(losses: Sequence[float], width: int, low: float, high: float) -> str:
    """A row of blocks, `width` at most: the mean of each stretch between `low` and `high`."""
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
    """The smallest and largest finite loss; (0, 1) where there is none."""
    finite = [value for run in losses for value in run if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 1.0)


def svg(report: Report) -> str:
    """The figure, or "" where nothing trained. Only presentation attributes: it stands any content policy."""
    found = curves(report)
    if not found:
        return ""
    low, high = bounds([losses for _, losses in found])
    longest = max(len(losses) for _, losses in found)
    title = f"Loss of every backward pass: {', '.join(name for name, _ in found)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(title)}</title>",
        *_axes(low, high, longest),
    ]
    for index, (name, losses) in enumerate(found):
        colour, dashes, thick = STYLES[index % len(STYLES)]
        points = " ".join(
            f"{_x(step, longest):.1f},{_y(loss, low, high):.1f}"
            for step, loss in enumerate(losses)
            if math.isfinite(loss)
        )
        stroke = f'fill="none" stroke="{colour}" stroke-width="{thick}" stroke-dasharray="{dashes or "none"}"'
        parts.append(f'<polyline points="{points}" {stroke} stroke-linejoin="round"/>')
        x, y = LEFT + index * 165, HEIGHT - 12
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 26}" y2="{y - 4}" {stroke}/>')
        parts.append(f'<text x="{x + 32}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"])


def _axes(low: float, high: float, longest: int) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    grey = 'stroke="currentColor" stroke-opacity="0.35"'
    out = [
        f'<line x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{bottom}" {grey}/>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" {grey}/>',
    ]
    for value in (low, (low + high) / 2, high):
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
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
