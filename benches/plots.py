"""Curves as SVG: seconds over the number of files, with logarithmic axes, readable on light and dark pages."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 40
# Distinguishable by hue, lightness and marker, on white and on black.
COLOURS = ["#d9480f", "#1c7ed6", "#2f9e44", "#9c36b5", "#868e96", "#e6a700"]
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 13px; }
.grid { stroke: #8c959f; stroke-opacity: .3; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } }"""


@dataclass(frozen=True)
class Curve:
    """One engine: files and seconds, in order."""

    name: str
    points: list[tuple[int, float]]


def ticks(low: float, high: float) -> list[float]:
    """The powers of ten that enclose a range."""
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def seconds(value: float) -> str:
    if value >= 1:
        return f"{value:g} s"
    return f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"


def count(value: float) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k"


def plot(title: str, curves: list[Curve]) -> str:
    """An SVG document."""
    across = [x for curve in curves for x, _ in curve.points]
    up = [y for curve in curves for _, y in curve.points]
    marks = ticks(min(up), max(up))
    low, high = math.log(marks[0]), math.log(marks[-1] if len(marks) > 1 else marks[0] * 10)
    first, last = math.log(min(across)), math.log(max(across))

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (math.log(x) - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        return right, HEIGHT - BOTTOM - (math.log(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>',
    ]
    for mark in marks:
        _, y = place(min(across), mark)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{seconds(mark)}</text>')
    for files in sorted(set(across)):
        x, _ = place(files, marks[0])
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{count(files)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">files</text>')
    for curve, colour in zip(curves, COLOURS, strict=False):
        dots = [place(x, y) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in dots]
    parts += names(curves, [place(*curve.points[-1]) for curve in curves])
    return "\n".join([*parts, "</svg>", ""])


def names(curves: list[Curve], ends: list[tuple[float, float]]) -> list[str]:
    """The names of engines at the ends of their curves, moved apart if they would overlap."""
    parts, free = [], float(TOP)
    for place in sorted(range(len(curves)), key=lambda place: ends[place][1]):
        y = max(ends[place][1], free)
        free = y + 15
        fill = f"fill:{COLOURS[place % len(COLOURS)]};font-weight:600"
        parts.append(
            f'<text x="{WIDTH - RIGHT + 10}" y="{y + 4:.1f}" style="{fill}">{escape(curves[place].name)}</text>'
        )
    return parts
