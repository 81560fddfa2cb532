"""Charts as HTML with inline SVG, for notebooks and pages: no script, no network, every label escaped.

Labels are HTML, so that they stay readable where a drawing is narrow; only bars and columns are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from deltic.display import printable

__all__ = ["bars", "columns"]

_FILL = "var(--deltic-bar, #3b76c4)"
_GRID = "display:grid;grid-template-columns:minmax(4em,max-content) minmax(3em,1fr) max-content;gap:2px 10px"


def bars(rows: Iterable[tuple[object, float, object]], most: float | None = None) -> str:
    """A bar for each (label, value, what is written behind it), in proportion to `most` or to the largest."""
    told = list(rows)
    whole = max([value for _, value, _ in told], default=0.0) if most is None else most
    drawn = "".join(
        f'<span style="overflow-wrap:anywhere">{escape(printable(label))}</span>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" width="100%" height="12" role="img" '
        f'aria-label="{escape(printable(shown))}">'
        f'<rect width="{_share(value, whole):.2f}" height="10" fill="{_FILL}"></rect></svg>'
        f"<span>{escape(printable(shown))}</span>"
        for label, value, shown in told
    )
    return f'<div class="deltic-bars" style="{_GRID};align-items:center;text-align:left">{drawn}</div>'


def columns(rows: Sequence[tuple[object, float]], height: int = 90) -> str:
    """A column for each (tooltip, value), from left to right, in proportion to the largest."""
    whole = max([value for _, value in rows], default=0.0)
    width = 100 / max(len(rows), 1)
    drawn = "".join(
        f'<rect x="{at * width + width * 0.08:.3f}" y="{100 - _share(value, whole):.2f}" width="{width * 0.84:.3f}" '
        f'height="{_share(value, whole):.2f}" fill="{_FILL}"><title>{escape(printable(label))}</title></rect>'
        for at, (label, value) in enumerate(rows)
    )
    return f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="{height}">{drawn}</svg>'


def _share(value: float, whole: float) -> float:
    """Percent of the whole; what is there at all is seen."""
    if value <= 0 or whole <= 0:
        return 0.0
    return min(100.0, max(1.0, 100 * value / whole))
