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

from deltic.errors import InvalidInputError
from deltic.instant import EPOCH

__all__ = [
    "LEAST",
    "Compression",
    "Isolation",
    "Mode",
    "PartitionOverwrite",
    "SchemaMode",
    "Time",
    "bound",
    "byte_size",
    "commit_options",
    "condition",
    "duration_ms",
    "epoch_ms",
    "flag",
    "json_object",
    "json_or_string",
    "location",
    "names",
    "number",
    "one_of",
    "optional_string",
    "package_of",
    "properties_of",
    "settings",
    "several",
    "string",
    "whole",
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
_MOST = 1 << 63
LEAST = -_MOST
"""The smallest number of 64 bits."""


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def package_of(cls: type) -> str:
    """The package of a class, also if its compiled part is in another package."""
    return cls.__module__.partition(".")[0].lstrip("_")


def _is_of(value: object, package: str, *classes: str) -> bool:
    """Whether a value's class, or a base of it, has one of these names in a package, which need not be installed."""
    return any(c.__name__ in classes and package_of(c) == package for c in type(value).__mro__)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool) or _is_of(value, "numpy", "bool", "bool_")


def string(value: object, argument: str) -> str:
    """A string that the core accepts: Unicode without lone surrogates."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{argument} must be a string, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{argument} is not valid Unicode: it has half of a surrogate pair") from None
    # For a subclass, such as numpy's or an enumeration's, the string itself.
    return str.__str__(value)


def optional_string(value: object, argument: str) -> str | None:
    """`string`, or None."""
    return None if value is None else string(value, argument)


def condition(value: object, argument: str = "filter") -> str | None:
    """A filter: SQL as a string, or None. The error for a filter of another library shows it in deltic's form."""
    if value is None or isinstance(value, str):
        return optional_string(value, argument)
    raise InvalidInputError(f"{argument} must be a string of SQL, not {_kind(value)}{_condition_hint(value)}")


def _condition_hint(value: object) -> str:
    if (written := _of_tuples(value)) is not None:
        return f": write {written!r}"
    if isinstance(value, tuple | list):
        return ": write one string, such as \"month = 7 AND carrier IN ('UA', 'AA')\""
    if any(_is_of(value, package, "Expression", "Expr", "Column", "Series") for package in _ENGINES):
        engine = package_of(type(value))
        return f', and an expression of {engine} cannot be taken apart: write it as SQL, such as "month = 7 AND km > 5"'
    return ""


_ENGINES = ("pyarrow", "polars", "pandas", "pyspark", "duckdb")


def _of_tuples(value: object) -> str | None:
    """The SQL of pyarrow's and deltalake's filters: tuples joined by AND, lists of tuples by OR. Otherwise None."""
    if not isinstance(value, list | tuple) or not value:
        return None
    if isinstance(value[0], str):
        return _of_tuple(value)
    if isinstance(value[0], list):
        parts = [_of_tuples(part) for part in value]
        texts = [part for part in parts if part is not None]
        return " OR ".join(f"({part})" for part in texts) if len(texts) == len(parts) else None
    terms = [_of_tuple(term) for term in value]
    found = [term for term in terms if term is not None]
    return " AND ".join(found) if len(found) == len(terms) else None


def _of_tuple(term: object) -> str | None:
    if not isinstance(term, list | tuple) or len(term) != 3:
        return None
    column, op, value = term
    if not isinstance(column, str) or not isinstance(op, str):
        return None
    name = column if column.isidentifier() and column.isascii() else "`" + column.replace("`", "``") + "`"
    if op.lower() in ("in", "not in"):
        listed = isinstance(value, Iterable) and not isinstance(value, str | bytes)
        return f"{name} {op.upper()} ({', '.join(_literal(item) for item in value)})" if listed else None
    if op in ("=", "==") and value is None:
        return f"{name} IS NULL"
    if op == "!=" and value is None:
        return f"{name} IS NOT NULL"
    return f"{name} {'=' if op == '==' else op} {_literal(value)}" if op in _COMPARISONS else None


_COMPARISONS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if _is_boolean(value):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        return f"{kind} '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return "'" + str.__str__(value).replace("'", "''") + "'"
    return str(value)


def whole(value: Any, argument: str, least: int = 0) -> int | None:
    """A number of 64 bits, at least `least`."""
    if value is None:
        return None
    try:
        number = None if _is_boolean(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number < _MOST:
        lowest = f" from {least}" if least > LEAST else ""
        raise InvalidInputError(f"{argument} must be a whole number{lowest}, not {_plain(value)!r}")
    return number


def number(value: Any, argument: str) -> float:
    """A finite number."""
    plain = _plain(value)
    try:
        found = math.nan if _is_boolean(plain) or not isinstance(plain, int | float) else float(plain)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InvalidInputError(f"{argument} must be a number, not {plain!r}")
    return found


def flag(value: object, argument: str, or_else: str | None = None) -> bool:
    """True or False, and no other value, such as 1. `or_else`: other allowed values, for the message."""
    if not _is_boolean(value):
        besides = "" if or_else is None else f" or {or_else}"
        raise InvalidInputError(f"{argument} must be True or False{besides}, not {_kind(value)}")
    return bool(value)


def one_of(value: object, argument: str, choices: Sequence[str]) -> str:
    """One of several strings."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices[:-1]))
        raise InvalidInputError(f"{argument} must be {listed} or {choices[-1]!r}, not {value!r}")
    return str.__str__(value)


def several(values: Iterable[str] | str, argument: str) -> list[str]:
    """Names as a list; a single name is allowed."""
    if isinstance(values, str):
        return [string(values, argument)]
    return names(values, argument) or []


def names(values: Iterable[str] | None, argument: str) -> list[str] | None:
    """Names as a list; a single string is refused, since it would be taken for a list of letters."""
    if values is None:
        return None
    if isinstance(values, str):
        raise InvalidInputError(f"{argument} must be a list of names, not a string: write [{str.__str__(values)!r}]")
    if not isinstance(values, Iterable):
        raise InvalidInputError(f"{argument} must be a list of names, not {_kind(values)}")
    return [string(name, f"{argument}[{at}]") for at, name in enumerate(values)]


def settings(options: Mapping[str, str] | None) -> dict[str, str] | None:
    """A store's settings. They may be secret, so messages have the names and never the values."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise InvalidInputError(f"storage_options must be a mapping of strings, not {_kind(options)}")
    named = {string(key, "a name in storage_options"): value for key, value in options.items()}
    return {key: string(value, f"storage_options[{key!r}]") for key, value in named.items()}


def properties_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Table properties, with a hint for a value that is no string."""
    if not isinstance(properties, Mapping):
        raise InvalidInputError(f"properties must be a mapping of strings, not {_kind(properties)}")
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            plain = _plain(value)
            hint = f": write {json.dumps(plain)!r}" if isinstance(plain, bool | int | float) else ""
            raise InvalidInputError(f"property {key!r} must be a string, not {value!r}{hint}")
    return {string(key, "a property's name"): string(value, f"property {key!r}") for key, value in properties.items()}


def json_or_string(value: object, argument: str) -> str | None:
    """A string unchanged, and a mapping as JSON."""
    if not isinstance(value, Mapping):
        return optional_string(value, argument)
    try:
        return json.dumps(dict(value), default=_for_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{argument} cannot be stored as JSON: {error}") from error


def json_object(value: object, argument: str) -> dict[str, Any]:
    """A mapping of strings to values that JSON can represent."""
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{argument} must be a mapping, not {_kind(value)}")
    named = {string(key, f"a name in {argument}"): member for key, member in value.items()}
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
        "app_id": optional_string(app_id, "app_id"),
        "app_version": whole(app_version, "app_version", LEAST),
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
        return whole(value, argument, 1)
    found = re.fullmatch(r"\s*([0-9]+)\s*([A-Za-z]*)\s*", value)
    shift = None if found is None else _UNITS_OF_BYTES.get(found[2].lower())
    number = 0 if found is None or shift is None or len(found[1]) > 19 else int(found[1]) << shift
    if not 0 < number < _MOST:
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
    plain = _plain(value)
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


def _plain(value: Any) -> Any:
    """A scalar of numpy as one of Python."""
    return value.item() if _is_of(value, "numpy", "generic") else value


def _for_json(value: Any) -> Any:
    plain = _plain(value)
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
    where = string(os.fspath(uri), "uri")
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
    if _is_of(timestamp, "numpy", "datetime64"):
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


def bound(value: int | Time | None, argument: str, *, up: bool = False) -> tuple[int | None, int | None]:
    """One end of a range in the form of the core: a version or milliseconds since 1970-01-01 UTC."""
    if isinstance(value, date | str | None) or _is_of(value, "numpy", "datetime64"):
        return None, epoch_ms(value, argument, up=up)  # type: ignore[arg-type]
    try:
        number = None if _is_boolean(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        message = f"{argument} must be a version, a datetime or an ISO 8601 string"
        raise InvalidInputError(f"{message}, not {_kind(value)}")
    if not 0 <= number < _MOST:
        raise InvalidInputError(f"{argument} must be a version from 0, not {number}")
    return number, None
