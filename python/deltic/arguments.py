"""Checks of arguments before the core gets them: `InvalidInputError` names the argument.

Scalars of numpy and pandas are accepted like Python's. Checks that depend on the table are not here, such as whether a
column exists.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any, Literal, TypeAlias, cast

from deltic.display.instant import EPOCH
from deltic.errors import InvalidInputError
from deltic.hints.filters import filter_hint
from deltic.types.other_libraries import as_python, is_boolean, is_instance

__all__ = [
    "MIN_INT64",
    "Compression",
    "Isolation",
    "Mode",
    "PartitionOverwrite",
    "SchemaMode",
    "Time",
    "byte_size",
    "check_bool",
    "check_choice",
    "check_filter",
    "check_float",
    "check_int",
    "check_name_or_names",
    "check_names",
    "check_optional_str",
    "check_properties",
    "check_storage_options",
    "check_str",
    "commit_options",
    "duration_ms",
    "epoch_ms",
    "json_object",
    "json_or_string",
    "location",
    "version_or_ms",
]

Mode: TypeAlias = Literal["append", "overwrite", "error", "ignore"]
"""What a write does if there is a table already."""
PartitionOverwrite: TypeAlias = Literal["static", "dynamic"]
"""What an overwrite replaces: all rows, or those in the partitions of the new rows."""
SchemaMode: TypeAlias = Literal["merge", "overwrite"]
"""How a table's columns change if rows have other columns: some are added, or all are replaced."""
Isolation: TypeAlias = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]
"""The isolation level of a transaction; see `docs/commit-protocol.md`."""
Engine: TypeAlias = Literal["auto", "arrow", "native"]
"""The writer of data files in Spark: deltic's, which gets Arrow batches, or Spark's own."""
Compression: TypeAlias = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"]
"""Parquet codecs that deltic can write."""
Time: TypeAlias = datetime | date | str
"""A datetime (pandas' and numpy's too), a date (its midnight), or an ISO 8601 string. UTC by default."""

_CATALOG_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*")
_INT64_END = 1 << 63
MIN_INT64 = -_INT64_END
"""The smallest number of 64 bits."""


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def check_str(value: object, argument: str) -> str:
    """A string that the core accepts: Unicode without lone surrogates."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{argument} must be a string, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{argument} is not valid Unicode: it has half of a surrogate pair") from None
    # For a subclass, such as numpy's or an enumeration's, the string itself.
    return str.__str__(value)


def check_optional_str(value: object, argument: str) -> str | None:
    """`check_str`, or None."""
    return None if value is None else check_str(value, argument)


def check_filter(value: object, argument: str = "filter") -> str | None:
    """A filter: SQL as a string, or None. The error for a filter of another library shows it in deltic's form."""
    if value is None or isinstance(value, str):
        return check_optional_str(value, argument)
    raise InvalidInputError(f"{argument} must be a string of SQL, not {_kind(value)}{filter_hint(value)}")


def check_int(value: Any, argument: str, least: int = 0) -> int | None:
    """A number of 64 bits, at least `least`."""
    if value is None:
        return None
    try:
        number = None if is_boolean(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number < _INT64_END:
        lowest = f" from {least}" if least > MIN_INT64 else ""
        raise InvalidInputError(f"{argument} must be a whole number{lowest}, not {as_python(value)!r}")
    return number


def check_float(value: Any, argument: str) -> float:
    """A finite number."""
    plain = as_python(value)
    try:
        found = math.nan if is_boolean(plain) or not isinstance(plain, int | float) else float(plain)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InvalidInputError(f"{argument} must be a number, not {plain!r}")
    return found


def check_bool(value: object, argument: str, or_else: str | None = None) -> bool:
    """True or False, and no other value, such as 1. `or_else`: other allowed values, for the message."""
    if not is_boolean(value):
        besides = "" if or_else is None else f" or {or_else}"
        raise InvalidInputError(f"{argument} must be True or False{besides}, not {_kind(value)}")
    return bool(value)


def check_choice(value: object, argument: str, choices: Sequence[str]) -> str:
    """One of several strings."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices[:-1]))
        raise InvalidInputError(f"{argument} must be {listed} or {choices[-1]!r}, not {value!r}")
    return str.__str__(value)


def check_name_or_names(values: Iterable[str] | str, argument: str) -> list[str]:
    """Names as a list; a single name is allowed."""
    if isinstance(values, str):
        return [check_str(values, argument)]
    return check_names(values, argument) or []


def check_names(values: Iterable[str] | None, argument: str) -> list[str] | None:
    """Names as a list; a single string is refused, since it would be taken for a list of letters."""
    if values is None:
        return None
    if isinstance(values, str):
        raise InvalidInputError(f"{argument} must be a list of names, not a string: write [{str.__str__(values)!r}]")
    if not isinstance(values, Iterable):
        raise InvalidInputError(f"{argument} must be a list of names, not {_kind(values)}")
    return [check_str(name, f"{argument}[{at}]") for at, name in enumerate(values)]


def check_storage_options(options: Mapping[str, str] | None) -> dict[str, str] | None:
    """A store's settings. They may be secret, so messages have the names and never the values."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise InvalidInputError(f"storage_options must be a mapping of strings, not {_kind(options)}")
    named = {check_str(key, "a name in storage_options"): value for key, value in options.items()}
    return {key: check_str(value, f"storage_options[{key!r}]") for key, value in named.items()}


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Table properties, with a hint for a value that is no string."""
    if not isinstance(properties, Mapping):
        raise InvalidInputError(f"properties must be a mapping of strings, not {_kind(properties)}")
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            plain = as_python(value)
            hint = f": write {json.dumps(plain)!r}" if isinstance(plain, bool | int | float) else ""
            raise InvalidInputError(f"property {key!r} must be a string, not {value!r}{hint}")
    return {
        check_str(key, "a property's name"): check_str(value, f"property {key!r}") for key, value in properties.items()
    }


def json_or_string(value: object, argument: str) -> str | None:
    """A string unchanged, and a mapping as JSON."""
    if not isinstance(value, Mapping):
        return check_optional_str(value, argument)
    try:
        return json.dumps(dict(value), default=_for_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{argument} cannot be stored as JSON: {error}") from error


def json_object(value: object, argument: str) -> dict[str, Any]:
    """A mapping of strings to values that JSON can represent."""
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{argument} must be a mapping, not {_kind(value)}")
    named = {check_str(key, f"a name in {argument}"): member for key, member in value.items()}
    try:
        found: dict[str, Any] = json.loads(json.dumps(named, default=_for_json, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{argument} cannot be stored as JSON: {error}") from error
    return found


def commit_options(user_metadata: object, commit_info: object, app_id: object, app_version: object) -> dict[str, Any]:
    """The options that the commit of any operation has, in the form of the core."""
    return {
        "user_metadata": json_or_string(user_metadata, "user_metadata"),
        "commit_info": {} if commit_info is None else json_object(commit_info, "commit_info"),
        "app_id": check_optional_str(app_id, "app_id"),
        "app_version": check_int(app_version, "app_version", MIN_INT64),
    }


_UNITS_OF_BYTES = {"": 0, "b": 0, **{f"{c}{end}": 10 * at for at, c in enumerate("kmgt", 1) for end in ("", "b", "ib")}}
_HOUR = 3_600_000
_UNITS_OF_TIME = {
    "week": 168 * _HOUR,
    "day": 24 * _HOUR,
    "hour": _HOUR,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}


def byte_size(value: Any, argument: str) -> int | None:
    """A number of bytes, at least 1, or a string such as `"128 MB"`, whose units are powers of 1,024 as in Delta."""
    if not isinstance(value, str):
        return check_int(value, argument, 1)
    found = re.fullmatch(r"\s*([0-9]+)\s*([A-Za-z]*)\s*", value)
    shift = None if found is None else _UNITS_OF_BYTES.get(found[2].lower())
    number = 0 if found is None or shift is None or len(found[1]) > 19 else int(found[1]) << shift
    if not 0 < number < _INT64_END:
        message = 'a number of bytes or a string such as "128 MB" or "1 GiB"'
        raise InvalidInputError(f"{argument} must be {message}, not {str.__str__(value)!r}")
    return number


def duration_ms(value: Any, argument: str) -> int | None:
    """Milliseconds of a `timedelta`, a number of hours, or a string such as `"7 days"` or `"1 week 12 hours"`."""
    if value is None:
        return None
    if isinstance(value, str):
        ms = _interval_ms(value)
        if ms is None:
            message = 'a number of hours or a string such as "7 days", "1 week 12 hours" or "168 hours"'
            raise InvalidInputError(f"{argument} must be {message}, not {str.__str__(value)!r}")
        return ms
    plain = as_python(value)
    if isinstance(plain, bool) or not isinstance(plain, timedelta | int | float):
        message = 'a timedelta, a number of hours or a string such as "7 days"'
        raise InvalidInputError(f"{argument} must be {message}, not {value!r}")
    try:
        length = plain if isinstance(plain, timedelta) else timedelta(hours=plain)
    except (OverflowError, ValueError) as error:
        raise InvalidInputError(f"{argument} {value!r} is not a length of time") from error
    if length < timedelta(0):
        raise InvalidInputError(f"{argument} {value!r} is negative")
    return length // timedelta(milliseconds=1)


def _interval_ms(text: str) -> int | None:
    """Numbers with units, after an optional `interval`; a number without a unit is hours. Otherwise None."""
    rest = text.strip().lower()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", rest):
        rest = f"{rest} hours"
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", rest.removeprefix("interval "))
    units = [_UNITS_OF_TIME.get(unit.removesuffix("s")) for _, unit in parts]
    written = r"(interval\s+)?([0-9]+(\.[0-9]+)?\s*[a-z]+\s*)+"
    if None in units or not re.fullmatch(written, rest):
        return None
    ms = sum(Fraction(number) * (unit or 0) for (number, _), unit in zip(parts, units, strict=True))
    # The range of a `timedelta`.
    return int(ms) if ms < 86_400_000 * 1_000_000_000 else None


def _for_json(value: Any) -> Any:
    plain = as_python(value)
    if plain is not value:
        return plain
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {_kind(value)} has no JSON form")


def location(uri: object) -> str:
    """A path or URL as a string; `~` is expanded as in a shell, except in `./~`."""
    if not isinstance(uri, str | os.PathLike):
        raise InvalidInputError(f"uri must be a path or a URL, not {_kind(uri)}")
    where = check_str(os.fspath(uri), "uri")
    if not isinstance(uri, str):
        return where
    if where.startswith("~"):
        expanded = os.path.expanduser(where)
        if expanded.startswith("~"):
            user = where.split("/")[0]
            raise InvalidInputError(f"{user!r} is no user of this machine; write './{user}' for a folder of that name")
        return expanded
    if _CATALOG_NAME.fullmatch(where) and not os.path.exists(where):
        raise InvalidInputError(
            f"{where!r} looks like a table's name in a catalog, and deltic opens tables by location: give the one that "
            f"DESCRIBE DETAIL shows there, or write './{where}' for a folder of that name"
        )
    return where


def epoch_ms(timestamp: Time | None, argument: str = "timestamp", *, up: bool = False) -> int | None:
    """Milliseconds since 1970-01-01 UTC, rounded down, or up if `up`; a time without offset is UTC."""
    if timestamp is None:
        return None
    if is_instance(timestamp, "numpy", "datetime64"):
        return _numpy_ms(timestamp, argument, up)
    if isinstance(timestamp, str):
        iso = timestamp[:-1] + "+00:00" if timestamp.endswith(("Z", "z")) else timestamp
        try:
            timestamp = datetime.fromisoformat(iso)
        except ValueError:
            message = f"{argument} {str.__str__(timestamp)!r} is not ISO 8601"
            raise InvalidInputError(f"{message}; write it like '2026-03-01T12:00:00Z'") from None
    # pandas' NaT is a datetime that does not equal itself.
    if not isinstance(timestamp, date) or timestamp != timestamp:
        raise InvalidInputError(f"{argument} must be a datetime or an ISO 8601 string, not {_kind(timestamp)}")
    # pandas' timestamps have nanoseconds, which Python's datetime drops.
    below = getattr(timestamp, "nanosecond", 0)
    since, unit = _datetime(timestamp) - EPOCH, timedelta(milliseconds=1)
    ms, rest = divmod(since, unit)
    return ms + 1 if up and (rest or below) else ms


def _datetime(timestamp: date) -> datetime:
    if not isinstance(timestamp, datetime):
        return datetime(timestamp.year, timestamp.month, timestamp.day, tzinfo=timezone.utc)
    if hasattr(timestamp, "to_pydatetime"):
        timestamp = cast("datetime", timestamp.to_pydatetime(warn=False))
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=timezone.utc)


def _numpy_ms(timestamp: Any, argument: str, up: bool) -> int:
    if timestamp != timestamp:
        raise InvalidInputError(f"{argument} must be a datetime or an ISO 8601 string, not NaT")
    ms = timestamp.astype("datetime64[ms]")
    return int(ms.astype("int64")) + (1 if up and ms < timestamp else 0)


def version_or_ms(value: int | Time | None, argument: str, *, up: bool = False) -> tuple[int | None, int | None]:
    """One end of a range in the form of the core: a version or milliseconds since 1970-01-01 UTC."""
    if isinstance(value, date | str | None) or is_instance(value, "numpy", "datetime64"):
        return None, epoch_ms(value, argument, up=up)  # type: ignore[arg-type]
    try:
        number = None if is_boolean(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        message = f"{argument} must be a version, a datetime or an ISO 8601 string"
        raise InvalidInputError(f"{message}, not {_kind(value)}")
    if not 0 <= number < _INT64_END:
        raise InvalidInputError(f"{argument} must be a version from 0, not {number}")
    return number, None
