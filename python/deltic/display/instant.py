"""Times of the log, in milliseconds since 1970 UTC: as a `datetime`, and as strings for display."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

__all__ = ["EPOCH", "instant", "shown_instant", "shown_time"]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def instant(ms: float) -> datetime | None:
    """The time, None if its year is outside the range of a datetime."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def shown_time(at: datetime | None) -> str:
    """A time for display, without fractions of a second."""
    return "unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def shown_instant(ms: Any) -> str:
    """A time of the log for display; other values unchanged, since other writers may put anything there."""
    at = instant(ms) if isinstance(ms, int | float) else None
    return f"{ms} ms" if at is None else shown_time(at)
