"""Whether SQL depends on the session's time zone: deltic evaluates SQL in UTC, Spark in `spark.sql.session.timeZone`.

If the zone is not UTC, SQL that may depend on it is refused. SQL that depends on it is never let through; some that
does not is refused. SQL without timestamps is let through: a value is a timestamp only by a column, a literal, a cast
or a function. Of timestamps, comparisons with each other and with literals that have an offset are let through. Proved
by `tests/python/test_time_zone.py`.

Each token is one letter of a code: regular expressions find the comparisons in it, and what is left decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from deltic.errors import InvalidInputError
from deltic.spark.options import is_utc

__all__ = ["dependence", "refuse_conversion", "refuse_dependent", "session_zone"]

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^']|'')*')
    |(?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[A-Za-z]*)
    |(?P<word>(?:[A-Za-z_]|[^\x00-\x7f\s])(?:[A-Za-z0-9_]|[^\x00-\x7f\s])*)
    |(?P<symbol><=>|==|<>|!=|<=|>=|\|\||::|\S))""",
    re.VERBOSE,
)
_WITH_OFFSET = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_TIMESTAMP_TYPES = {"timestamp", "timestamp_ltz"}
_DEPENDENT_CALLS = {
    "current_date", "current_timestamp", "localtimestamp", "now", "timestamp", "timestamp_ltz", "date_format",
    "date_trunc", "from_unixtime", "hour", "minute", "months_between", "second", "timestamp_micros", "timestamp_millis",
    "timestamp_seconds", "to_date", "to_timestamp", "to_unix_timestamp", "unix_micros", "unix_millis", "unix_seconds",
    "unix_timestamp",
}  # fmt: skip
"""Functions that return timestamps, or convert to or from them."""
_TIMES_OF_DAY = {"hour", "minute", "second"}
_CHOOSING_CALLS = {"coalesce", "greatest", "ifnull", "least", "nullif", "nvl"}
_NULL_CALLS = {"isnotnull", "isnull"}
_SYMBOLS = {"(": "(", ")": ")", ",": ",", "!": "!"} | dict.fromkeys(
    ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"), "C"
)
_WORDS = {
    "and": "a", "between": "b", "distinct": "d", "else": "e", "end": "E", "from": "f", "in": "i", "is": "s", "not": "n",
    "null": "N", "or": "o", "then": "t", "when": "w",
}  # fmt: skip

# I: a timestamp. K: a column with timestamps in it. O: a string with an offset. Z: what depends on the zone. G: isnull.
# F: a function that chooses one of its arguments. A: the AND of BETWEEN. B: a condition. x: anything else.
_TIMESTAMPS = (
    (re.compile(r"F\((?:N,)*I(?:,[IN])*\)"), "I"),
    (re.compile(r"(?:^|(?<=[C(,abontweA!]))\(I\)"), "I"),
)
_CONDITIONS = re.compile(
    r"(?:^|(?<=[(,aonwte!]))"
    r"(?:IC[IO]|OCI|In?b[IO]A[IO]|In?i\([INO](?:,[INO])*\)|[IK]sn?N|Isn?df[IO]|G\([IK]\))"
    r"(?=$|[),aoteEw])"
)

Token: TypeAlias = tuple[str, str, tuple[str, ...]]
"""The letter of a token, its text, and the path if it is a name."""


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
        assigned: The column of the table, the first of `columns`, that is set to the value.
    """
    if sql is None or (zone is not None and is_utc(zone)):
        return
    to = None if assigned is None else _assigned_type(assigned, columns[0])
    found = dependence(sql, columns, to)
    if found is not None:
        raise InvalidInputError(f"{argument} may depend on the time zone of the session: {found}. {_advice(zone)}")


def refuse_conversion(given: pa.DataType, assigned: str, table: pa.Schema, argument: str, zone: str) -> None:
    """Raise `InvalidInputError` if a column gets values of a type that is converted to its own by the time zone."""
    to = _assigned_type(assigned, table)
    if to is not None and not is_utc(zone) and _is_converted(given, to):
        raise InvalidInputError(
            f"{argument} has the type {given} and column `{assigned}` has {to}, which depends on the time zone of the "
            f"session: deltic converts them in UTC, and the session's time zone is {zone!r}. Cast the values to the "
            "column's type, or set spark.sql.session.timeZone to UTC"
        )


def _advice(zone: str | None) -> str:
    write = (
        "compare timestamps only with each other and with literals that have an offset, such as "
        "TIMESTAMP '2024-01-01 00:00:00+00:00'"
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


def dependence(sql: str, columns: Sequence[pa.Schema], assigned: pa.DataType | None = None) -> str | None:
    """What in SQL may depend on the time zone; None if nothing does.

    `assigned`: the type of the column that is set to the value; None for conditions.
    """
    tokens = list(_encoded(list(_tokens(sql)), columns))
    letters, texts = "".join(token[0] for token in tokens), [token[1] for token in tokens]
    if assigned is not None and _has_timestamp(assigned):
        is_equal = len(tokens) == 1 and bool(tokens[0][2]) and _types(tokens[0][2], columns) == {assigned}
        if is_equal or letters in ("N", "O"):
            return None
    was = None
    while was != letters:
        was = letters
        for pattern, to in _TIMESTAMPS:
            letters, texts = _replaced(pattern, to, letters, texts)
    letters, texts = _replaced(_CONDITIONS, "B", letters, texts)
    if assigned is not None and _has_timestamp(assigned):
        if letters == "I" and _is_timestamp(assigned):
            return None
        return f"`{_shown(sql)}` is converted to the type {assigned}"
    found = re.search("[IKZ]", letters)
    return None if found is None else f"`{_shown(texts[found.start()])}`"


def _tokens(sql: str) -> Iterator[Token]:
    """The tokens, with `n` for names, `w` for words that may be names, `q` for strings; a path is one token."""
    path: list[str] = []
    texts: list[str] = []
    is_quoted = is_open = False
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup, match.group().strip()
        if kind in ("quoted", "word"):
            if path and not is_open:
                yield _name(texts, path, is_quoted)
                path, texts, is_quoted = [], [], False
            name = text[1:-1].replace(text[0] * 2, text[0]) if kind == "quoted" else text
            path, texts, is_quoted, is_open = [*path, name], [*texts, text], is_quoted or kind == "quoted", False
            continue
        if text == "." and path and not is_open:
            is_open = True
            continue
        if path:
            yield _name(texts, path, is_quoted)
            path, texts, is_quoted, is_open = [], [], False, False
        yield ("q" if kind == "string" else "x" if kind == "number" else text, text, ())
    if path:
        yield _name(texts, path, is_quoted)


def _name(texts: list[str], path: list[str], is_quoted: bool) -> Token:
    return ("n" if is_quoted or len(path) > 1 else "w", ".".join(texts), tuple(part.casefold() for part in path))


def _encoded(tokens: list[Token], columns: Sequence[pa.Schema]) -> Iterator[Token]:
    """The tokens with the letters of the code: a literal with its type is one token, and so is `now()`."""
    kinds, words = [token[0] for token in tokens], [token[2][0] if token[0] == "w" else "" for token in tokens]
    names, pending = _names_of_timestamps(columns), [0]
    at = 0
    while at < len(tokens):
        kind, text, path = tokens[at]
        length, letter = 1, "x"
        following = kinds[at + 1] if at + 1 < len(kinds) else ""
        before = words[at - 1] if at else ""
        if kind == "q":
            letter = "O" if _WITH_OFFSET.fullmatch(text[1:-1]) else "x"
        elif kind == "w" and following == "q" and words[at] in _TIMESTAMP_TYPES:
            length, text = 2, f"{text} {tokens[at + 1][1]}"
            letter = "I" if _WITH_OFFSET.fullmatch(tokens[at + 1][1][1:-1]) else "Z"
        elif (
            kind == "w"
            and following == "("
            and words[at] in ("now", "current_timestamp")
            and kinds[at + 2 : at + 3] == [")"]
        ):
            length, letter, text = 3, "I", f"{text}()"
        elif kind == "w" and words[at] in _TIMESTAMP_TYPES and (before == "as" or (at and kinds[at - 1] == "::")):
            letter, text = "Z", f"{tokens[at - 1][1]} {text}"
        elif kind == "w" and following == "(" and words[at] not in _WORDS:
            letter = _letter_of_call(words[at], words[at + 2 : at + 3])
        elif kind in ("n", "w"):
            letter = _letter_of_name(path, names, columns)
            if letter == "x" and kind == "w":
                letter = _WORDS.get(words[at], "x")
        else:
            letter = _SYMBOLS.get(kind, "x")
        if letter == "(":
            pending.append(0)
        elif letter == ")" and len(pending) > 1:
            pending.pop()
        elif letter == "b":
            pending[-1] += 1
        elif letter == "a" and pending[-1]:
            pending[-1] -= 1
            letter = "A"
        yield (letter, text, path)
        at += length


def _letter_of_call(name: str, first: list[str]) -> str:
    if name in _DEPENDENT_CALLS or (name == "extract" and bool(_TIMES_OF_DAY.intersection(first))):
        return "Z"
    return "F" if name in _CHOOSING_CALLS else "G" if name in _NULL_CALLS else "x"


def _letter_of_name(path: tuple[str, ...], names: set[str], columns: Sequence[pa.Schema]) -> str:
    if names.isdisjoint(path):
        return "x"
    types = _types(path, columns)
    if types and not any(map(_has_timestamp, types)):
        return "x"
    return "I" if types and all(map(_is_timestamp, types)) else "K"


def _replaced(pattern: re.Pattern[str], to: str, letters: str, texts: list[str]) -> tuple[str, list[str]]:
    """The code with another letter for each match, whose text is that of all its tokens."""
    parts, kept, end = [], [], 0
    for match in pattern.finditer(letters):
        parts += [letters[end : match.start()], to]
        kept += [*texts[end : match.start()], " ".join(texts[match.start() : match.end()])]
        end = match.end()
    return "".join([*parts, letters[end:]]), [*kept, *texts[end:]]


def _is_timestamp(of: pa.DataType) -> bool:
    return pa.types.is_timestamp(of) and of.tz is not None


def _inner(of: pa.DataType) -> list[pa.Field]:
    return [of.field(at) for at in range(of.num_fields)]


def _has_timestamp(of: pa.DataType) -> bool:
    return _is_timestamp(of) or any(_has_timestamp(field.type) for field in _inner(of))


def _names_of_timestamps(columns: Iterable[Iterable[pa.Field]]) -> set[str]:
    """The names of columns and fields that are timestamps or have some in them."""
    found: set[str] = set()
    for fields in columns:
        for field in fields:
            if _has_timestamp(field.type):
                found |= {field.name.casefold()} | _names_of_timestamps([_inner(field.type)])
    return found


def _types(path: tuple[str, ...], columns: Iterable[pa.Schema]) -> set[pa.DataType]:
    """The types of all columns and fields that a path can mean, with or without an alias."""
    found: set[pa.DataType] = set()
    for schema in columns:
        for parts in (path, path[1:]):
            fields: list[pa.Field] = list(schema)
            for at, part in enumerate(parts):
                named = [field for field in fields if field.name.casefold() == part]
                if at == len(parts) - 1:
                    found |= {field.type for field in named}
                fields = [inner for field in named if pa.types.is_struct(field.type) for inner in _inner(field.type)]
    return found


def _assigned_type(assigned: str, table: pa.Schema) -> pa.DataType | None:
    """The type of a column that is set; None if there is none of that name, which is refused elsewhere."""
    paths = {(assigned.casefold(),)} | {token[2] for token in list(_tokens(assigned))[:1]}
    types = {of for path in paths if path for of in _types(path, [table])}
    return next(iter(sorted(types, key=lambda of: not _has_timestamp(of))), None)


def _is_converted(given: pa.DataType, to: pa.DataType) -> bool:
    """Whether values of one type become those of another by the time zone."""
    if pa.types.is_null(given) or not (_has_timestamp(given) or _has_timestamp(to)):
        return False
    if _is_timestamp(given) or _is_timestamp(to):
        return not (_is_timestamp(given) and _is_timestamp(to))
    if pa.types.is_struct(given) and pa.types.is_struct(to):
        inner: dict[str, Any] = {field.name.casefold(): field.type for field in _inner(to)}
        named = [(field.type, inner.get(field.name.casefold())) for field in _inner(given)]
        return any(other is not None and _is_converted(of, other) for of, other in named)
    if given.num_fields != to.num_fields or not given.num_fields:
        return True
    return any(_is_converted(a.type, b.type) for a, b in zip(_inner(given), _inner(to), strict=True))


def _shown(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
