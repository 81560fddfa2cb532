"""The commits of a table as a list that notebooks show as a table (`History`). PROTOCOL.md: "Commit Provenance
Information".

Writers may put anything into a commit info: any member may be missing, or be any JSON value.
"""

from __future__ import annotations

from typing import Any

from deltic.display.instant import shown_instant
from deltic.display.strings import counted, html_rows

__all__ = ["History", "metrics_of", "parameters_of"]

_MOST_SHOWN = 50
_LONGEST = 200


class History(list[dict[str, Any]]):
    """Commits, newest first, made by `Table.history`: a list of dicts."""

    def _repr_html_(self) -> str:
        rows = [
            (
                entry.get("version"),
                shown_instant(entry.get("timestamp")),
                entry.get("operation", "?"),
                parameters_of(entry),
                metrics_of(entry),
            )
            for entry in self[:_MOST_SHOWN]
        ]
        left = len(self) - _MOST_SHOWN
        title = counted(len(self), "commit") + (f", the newest {_MOST_SHOWN}" if left > 0 else "")
        return html_rows(title, ("version", "time", "operation", "parameters", "metrics"), rows)


def parameters_of(entry: dict[str, Any]) -> str:
    """The parameters of the operation, in one line."""
    found = entry.get("operationParameters")
    if isinstance(found, dict):
        found = ", ".join(f"{name}={value}" for name, value in found.items())
    return _short(str(found or ""))


def metrics_of(entry: dict[str, Any]) -> str:
    """The metrics of the operation, in one line: without zeros and without durations."""
    found = entry.get("operationMetrics")
    if not isinstance(found, dict):
        return ""
    lines = [f"{name}={value}" for name, value in found.items() if str(value) != "0" and not name.endswith("Ms")]
    return _short(", ".join(lines))


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
