"""Times as the log has them, in milliseconds since 1970 UTC: as a `datetime`, and as they are shown."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

__all__ = ["EPOCH", "instant", "shown_instant", "shown_time"]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def instant(ms: float) -> datetime | None:
    """The time, None where its year is none that a datetime has."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def shown_time(at: datetime | None) -> str:
    """A time to the second, for people."""
    return "unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def shown_instant(ms: Any) -> str:
    """A time of the log for people; what is none, as it is: other writers may put anything there."""
    at = instant(ms) if isinstance(ms, int | float) else None
    return f"{ms} ms" if at is None else shown_time(at)
