"""Charts as HTML with inline SVG, for notebooks and reports: no script, no network, every label escaped.

Labels are HTML, so that they are readable in a narrow drawing; only bars and columns are SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from deltic.display.strings import printable

__all__ = ["SERIES", "bars", "columns", "legend"]

SERIES = tuple(
    f"var(--deltic-{at}, {colour})"
    for at, colour in enumerate(("#3b76c4", "#d9822b", "#2f9e6e", "#b8529b", "#7d6bd6", "#8a8f98"))
)
"""Colours, which a page can override."""

_GRID = "display:grid;grid-template-columns:fit-content(35%) minmax(3em,1fr) fit-content(45%);gap:3px 10px"


def bars(rows: Iterable[tuple[object, float, object]], most: float | None = None) -> str:
    """A bar for each (label, value, note), in proportion to `most` or to the largest value."""
    measures = list(rows)
    whole = max([value for _, value, _ in measures], default=0.0) if most is None else most
    drawn = "".join(
        f'<span style="overflow-wrap:anywhere">{_text(label)}</span>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" width="100%" height="12" role="img" '
        f'aria-label="{_text(shown)}">'
        f'<rect width="{_share(value, whole):.2f}" height="10" fill="{SERIES[0]}"></rect></svg>'
        f"<span>{_text(shown)}</span>"
        for label, value, shown in measures
    )
    return f'<div class="deltic-bars" style="{_GRID};align-items:center;text-align:left">{drawn}</div>'


def columns(rows: Sequence[tuple[object, Sequence[float]]], height: int = 110) -> str:
    """A column for each (tooltip, values of the series), from left to right, with stacked values."""
    whole = max([sum(values) for _, values in rows], default=0.0)
    width = 100 / max(len(rows), 1)
    drawn = []
    for at, (label, values) in enumerate(rows):
        top = 100.0
        for series, value in enumerate(values):
            if value > 0:
                tall = 100 * value / whole
                top -= tall
                drawn.append(
                    f'<rect x="{at * width + width * 0.08:.3f}" y="{top:.2f}" width="{width * 0.84:.3f}" '
                    f'height="{tall:.2f}" fill="{SERIES[series % len(SERIES)]}"><title>{_text(label)}</title></rect>'
                )
    head = f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="{height}" role="img">'
    return f"{head}{''.join(drawn)}</svg>"


def legend(names: Iterable[object]) -> str:
    """The colours of the series with their names."""
    shown = "".join(
        f'<span><svg width="10" height="10"><rect width="10" height="10" rx="2" '
        f'fill="{SERIES[at % len(SERIES)]}"></rect></svg> {_text(name)}</span>'
        for at, name in enumerate(names)
    )
    return f'<div class="deltic-legend" style="display:flex;flex-wrap:wrap;gap:4px 14px">{shown}</div>'


def _text(value: object) -> str:
    return escape(printable(value))


def _share(value: float, whole: float) -> float:
    """Percent of the whole; a value above zero is always visible."""
    if value <= 0 or whole <= 0:
        return 0.0
    return min(100.0, max(1.0, 100 * value / whole))
