"""Whether SQL depends on the session's time zone: deltic evaluates SQL in UTC, Spark in `spark.sql.session.timeZone`.

If the zone is not UTC, SQL that may depend on it is refused. SQL without timestamps passes. SQL with timestamps passes
only if nothing in it is converted to or from a timestamp, except strings with an offset. SQL that depends on the zone
never passes; some that does not is refused. Proved by `tests/python/test_time_zone.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from deltic import _deltic
from deltic.errors import InvalidInputError
from deltic.spark.options import is_utc

__all__ = ["dependence", "refuse_conversion", "refuse_dependent", "session_zone"]

_TOKEN = re.compile(r"""'(?:[^']|'')*'|`(?:[^`]|``)*`|"(?:[^"]|"")*"|\w+|\|\||::|\S""")
_WITH_OFFSET = re.compile(
    r"'[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})'"
)
_TIME_WORDS = {
    "curdate", "current_date", "current_timestamp", "date_format", "date_trunc", "from_unixtime", "hour",
    "localtimestamp", "minute", "months_between", "now", "second", "timestamp", "timestamp_ltz", "timestamp_micros",
    "timestamp_millis", "timestamp_seconds", "to_date", "to_timestamp", "to_timestamp_ltz", "to_unix_timestamp",
    "unix_micros", "unix_millis", "unix_seconds", "unix_timestamp",
}  # fmt: skip
"""Types of timestamps, and functions that return timestamps, or convert to or from them."""
_HARMLESS_WORDS = {
    "and", "between", "case", "current_timestamp", "distinct", "else", "from", "in", "not", "now", "or", "then",
    "timestamp", "timestamp_ltz", "when",
}  # fmt: skip
"""Words that may stand before a parenthesis or a string in SQL with timestamps: keywords, and those that make a
timestamp of what such SQL may have."""
_NEVER_CONVERTED = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_binary,
)  # fmt: skip


def session_zone(spark: SparkSession) -> str:
    """The time zone of a session: that of the JVM if none was set."""
    return str(spark.conf.get("spark.sql.session.timeZone"))


def refuse_dependent(
    sql: str | None,
    argument: str,
    zone: str | None,
    columns: Sequence[pa.Schema],
    assigned: str | None = None,
) -> None:
    """Raise `InvalidInputError` if SQL may depend on the time zone of a session that is not in UTC.

    Arguments:
        sql: A condition or a value; None for none.
        argument: Its name for the message.
        zone: The session's time zone; None if it is not known.
        columns: The columns that SQL can name: those of the table, and those of a source.
        assigned: The column that is set to the value.
    """
    if sql is None or (zone is not None and is_utc(zone)):
        return
    found = dependence(sql, columns, assigned)
    if found is not None:
        raise InvalidInputError(
            f"{argument} may depend on the time zone of the session: it has timestamps and {found}. {_advice(zone)}"
        )


def refuse_conversion(given: pa.DataType, assigned: str, table: pa.Schema, argument: str, zone: str) -> None:
    """Raise `InvalidInputError` if a column gets values of another type, and one of the types has timestamps."""
    if is_utc(zone) or pa.types.is_null(given):
        return
    for _, to in _types(_assigned_paths(assigned), [table]):
        if (_has_timestamp(given) or _has_timestamp(to)) and not _is_same(given, to):
            raise InvalidInputError(
                f"{argument} has the type {given} and column `{assigned}` has {to}, which depends on the time zone of "
                f"the session: deltic converts them in UTC, and the session's time zone is {zone!r}. Cast the values "
                "to the column's type, or set spark.sql.session.timeZone to UTC"
            )


def _advice(zone: str | None) -> str:
    write = (
        "compare timestamps only with each other and with literals that have an offset, such as "
        "TIMESTAMP '2024-01-01 00:00:00+00:00', in SQL without other strings, dates, casts and functions"
    )
    if zone is None:
        return (
            "deltic evaluates SQL in UTC, and Spark does not tell a Python data source the time zone of the session: "
            f"{write}, or call deltic.spark.install(spark)"
        )
    return (
        f"deltic evaluates SQL in UTC, and the session's time zone is {zone!r}: {write}, or set "
        "spark.sql.session.timeZone to UTC"
    )


def dependence(sql: str, columns: Sequence[pa.Schema], assigned: str | None = None) -> str | None:
    """What SQL has beside timestamps, so that it may depend on the time zone; None if it does not depend on it."""
    paths = _deltic.column_names(sql)  # Refuses SQL that has unclosed quotes or comments.
    types = _types(paths if assigned is None else [*paths, *_assigned_paths(assigned)], columns)
    tokens = _TOKEN.findall(sql)
    words = list(_words_by_place(tokens))
    if not any(_has_timestamp(of) for _, of in types) and _TIME_WORDS.isdisjoint(words):
        return None
    for word in words:
        if word not in _HARMLESS_WORDS:
            return f"`{word}`"
    for token in tokens:
        if token in ("::", "||"):
            return f"`{token}`"
        if token.startswith("'") and not _WITH_OFFSET.fullmatch(token):
            return f"the string {token:.80}"
    for name, of in types:
        if not _is_timestamp(of) and not any(is_type(of) for is_type in _NEVER_CONVERTED):
            return f"`{name}` of the type {of!s:.80}"
    return None


def _words_by_place(tokens: Sequence[str]) -> Iterator[str]:
    """The words that their place makes functions, types, or keywords before a value. Others may be columns."""
    lower = [token.lower() for token in tokens]
    for before, word, after in zip(["", *lower[:-1]], lower, [*lower[1:], ""], strict=True):
        if re.match(r"\w", word) and (after[:1] in ("(", "'") or after == "from" or before in ("as", "::")):
            yield word


def _types(paths: Iterable[Sequence[str]], columns: Sequence[pa.Schema]) -> list[tuple[str, pa.DataType]]:
    """The names and types of all columns and fields that paths may mean, with or without an alias."""
    return [
        (".".join(path), of)
        for path in paths
        for schema in columns
        for names in (path, path[1:])
        for of in _types_in(names, schema)
    ]


def _types_in(names: Sequence[str], fields: Iterable[pa.Field]) -> list[pa.DataType]:
    if not names:
        return []
    types = [field.type for field in fields if field.name.casefold() == names[0].casefold()]
    return types if len(names) == 1 else [inner for of in types for inner in _types_in(names[1:], _inner(of))]


def _assigned_paths(assigned: str) -> list[list[str]]:
    """What the name of an assigned column may mean: a column, one after an alias, or a path with or without quotes."""
    parts = [part.strip() for part in re.findall(r"`(?:[^`]|``)*`|[^`.]+", assigned)]
    path = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts if part]
    return [[assigned], [assigned.partition(".")[2]], path]


def _inner(of: pa.DataType) -> list[pa.Field]:
    return [of.field(at) for at in range(of.num_fields)]


def _is_timestamp(of: pa.DataType) -> bool:
    return pa.types.is_timestamp(of) and of.tz is not None


def _has_timestamp(of: pa.DataType) -> bool:
    return _is_timestamp(of) or any(_has_timestamp(field.type) for field in _inner(of))


def _is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether types differ at most in nullability, metadata, names of elements, and the unit and zone of timestamps."""
    if _is_timestamp(one) and _is_timestamp(other):
        return True
    if one.id != other.id or one.num_fields != other.num_fields or not one.num_fields:
        return bool(one == other)
    if pa.types.is_struct(one) and one.names != other.names:
        return False
    return all(_is_same(a.type, b.type) for a, b in zip(_inner(one), _inner(other), strict=True))
