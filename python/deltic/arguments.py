"""What callers pass, checked by the name of the argument before the core sees it: `InvalidInputError` says which.

Not here: what needs the table to judge, such as whether there is a column of some name.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone

from deltic.errors import InvalidInputError

__all__ = [
    "LEAST",
    "bound",
    "epoch_ms",
    "flag",
    "json_or_text",
    "location",
    "names",
    "optional_text",
    "properties_of",
    "settings",
    "text",
    "whole",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST = 1 << 63
LEAST = -_MOST
"""The least number of 64 bits."""


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def text(value: object, argument: str) -> str:
    """Text as the core takes it, which is Unicode without lone surrogates."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{argument} must be text, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{argument} is no Unicode text: it has half of a surrogate pair") from None
    return value


def optional_text(value: object, argument: str) -> str | None:
    """`text`, or None."""
    return None if value is None else text(value, argument)


def whole(value: int | None, argument: str, least: int = 0) -> int | None:
    """A number of 64 bits, at least `least`."""
    if value is None:
        return None
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number < _MOST:
        lowest = f" from {least}" if least > LEAST else ""
        raise InvalidInputError(f"{argument} must be a whole number{lowest}, not {value!r}")
    return number


def flag(value: object, argument: str) -> bool:
    """True or False, and nothing that is merely true."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"{argument} must be True or False, not {_kind(value)}")
    return value


def names(values: Iterable[str] | None, argument: str) -> list[str] | None:
    """Names as a list; a bare string is refused, for it would be read as its letters."""
    if values is None:
        return None
    if isinstance(values, str):
        raise InvalidInputError(f"{argument} must be a list of names, not a string: write [{values!r}]")
    if not isinstance(values, Iterable):
        raise InvalidInputError(f"{argument} must be a list of names, not {_kind(values)}")
    return [text(name, f"{argument}[{at}]") for at, name in enumerate(values)]


def settings(options: Mapping[str, str] | None) -> dict[str, str] | None:
    """A store's settings. They may be secret, so that a message names the setting and never its value."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise InvalidInputError(f"storage_options must be a mapping of texts, not {_kind(options)}")
    named = {text(key, "a name in storage_options"): value for key, value in options.items()}
    return {key: text(value, f"storage_options[{key!r}]") for key, value in named.items()}


def properties_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Table properties, with a hint for a value that is not text."""
    if not isinstance(properties, Mapping):
        raise InvalidInputError(f"properties must be a mapping of texts, not {_kind(properties)}")
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            hint = f": write {json.dumps(value)!r}" if isinstance(value, bool | int | float) else ""
            raise InvalidInputError(f"property {key!r} must be text, not {value!r}{hint}")
    return {text(key, "a property's name"): text(value, f"property {key!r}") for key, value in properties.items()}


def json_or_text(value: object, argument: str) -> str | None:
    """Text as it is, and a mapping as JSON."""
    if not isinstance(value, Mapping):
        return optional_text(value, argument)
    try:
        return json.dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{argument} cannot be stored as JSON: {error}") from error


def location(uri: object) -> str:
    """A path or URL as text."""
    if not isinstance(uri, str | os.PathLike):
        raise InvalidInputError(f"uri must be a path or a URL, not {_kind(uri)}")
    return text(os.fspath(uri), "uri")


def epoch_ms(timestamp: datetime | str | None, argument: str = "timestamp", *, up: bool = False) -> int | None:
    """Milliseconds since 1970-01-01 UTC, rounded down or `up`; a time without offset is taken as UTC."""
    if timestamp is None:
        return None
    if isinstance(timestamp, str):
        iso = timestamp[:-1] + "+00:00" if timestamp.endswith(("Z", "z")) else timestamp
        try:
            timestamp = datetime.fromisoformat(iso)
        except ValueError:
            raise InvalidInputError(
                f"{argument} {timestamp!r} is not ISO 8601; write it like '2026-03-01T12:00:00Z'"
            ) from None
    # pandas' NaT is a datetime that equals nothing.
    if not isinstance(timestamp, datetime) or timestamp != timestamp:
        kind = _kind(timestamp)
        raise InvalidInputError(f"{argument} must be a datetime or ISO 8601 text, not {kind}")
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=timezone.utc)
    since, unit = timestamp - _EPOCH, timedelta(milliseconds=1)
    return -(-since // unit) if up else since // unit


def bound(value: int | datetime | str | None, argument: str, *, up: bool = False) -> tuple[int | None, int | None]:
    """One end of a range as the core takes it: a version or milliseconds since 1970-01-01 UTC."""
    if isinstance(value, bool) or not isinstance(value, int | datetime | str | None):
        raise InvalidInputError(f"{argument} must be a version, a datetime or ISO 8601 text, not {_kind(value)}")
    if not isinstance(value, int):
        return None, epoch_ms(value, argument, up=up)
    if not 0 <= value < _MOST:
        raise InvalidInputError(f"{argument} must be a version from 0, not {value}")
    return value, None
