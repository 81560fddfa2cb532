"""The commits of a table as a list that notebooks show as a table (`History`). PROTOCOL.md: "Commit Provenance
Information".
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from deltic.display import html_rows

__all__ = ["History"]

_MOST_SHOWN = 50
_LONGEST = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class History(list[dict[str, Any]]):
    """Commits, newest first, made by `Table.history`: a list of dicts."""

    def _repr_html_(self) -> str:
        rows = [
            (entry.get("version"), _time(entry.get("timestamp")), entry.get("operation", "?"), _parameters(entry))
            for entry in self[:_MOST_SHOWN]
        ]
        left = len(self) - _MOST_SHOWN
        title = f"{len(self):,} commits" + (f", the newest {_MOST_SHOWN}" if left > 0 else "")
        return html_rows(title, ("version", "time", "operation", "parameters"), rows)


def _time(ms: Any) -> str:
    try:
        return f"{_EPOCH + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, TypeError):
        return f"{ms} ms"


def _parameters(entry: dict[str, Any]) -> str:
    # What writers put into a commit info is up to them.
    found = entry.get("operationParameters")
    if isinstance(found, dict):
        found = ", ".join(f"{name}={value}" for name, value in found.items())
    told = str(found or "")
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}…"
