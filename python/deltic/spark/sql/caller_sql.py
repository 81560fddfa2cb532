"""SQL of callers that Spark evaluates: it keeps the spelling that all SQL of callers has in deltic.

A backslash in a string is an ordinary character, and a word in double quotes is a name: `docs/expressions.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DataType, NullType

from deltic import _deltic
from deltic.errors import InvalidInputError
from deltic.spark.sql.rules import Unevaluated, analysed, refuse_words

__all__ = ["comparisons", "in_spark", "is_read", "kind_of", "path_of", "quoted", "refuse_time"]

_QUOTED = re.compile(r"""\b[rR]'[^']*'|'(?:[^']|'')*'|`(?:[^`]|``)*`|"(?:[^"]|"")*\"""")
_OF_A_PLACE = re.compile(
    r"\b(?:input_file_(?:name|block_start|block_length)|monotonically_increasing_id|spark_partition_id)\b",
    re.IGNORECASE,
)
"""Functions whose values say where Spark has a row, and not where it is in the table."""
_OF_THE_TIME = re.compile(
    r"\b(?:now|today|tomorrow|yesterday|current_\w+|curdate|localtimestamp|unix_timestamp)\b", re.IGNORECASE
)
_COMPARISONS = {
    *("And", "Or", "Not", "In", "IsNull", "IsNotNull", "UnresolvedAttribute", "Literal"),
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
}
_MAX_COMPARED = 1000
"""The most steps of a condition that are looked at."""


def is_read(sql: str) -> bool:
    """Whether deltic can parse SQL."""
    try:
        _deltic.column_names(sql)
    except InvalidInputError:
        return False
    return True


def quoted(name: str) -> str:
    """A name that may have any character, in SQL."""
    return "`" + name.replace("`", "``") + "`"


def in_spark(sql: str) -> str:
    """The same SQL for Spark's parser."""

    def spelled(found: re.Match[str]) -> str:
        text = found[0]
        if text[0] == "'":
            return "'" + text[1:-1].replace("''", "'").replace("\\", "\\\\").replace("'", "\\'") + "'"
        if text[0] == '"':
            return quoted(text[1:-1].replace('""', '"'))
        return text

    return _QUOTED.sub(spelled, sql)


def kind_of(frame: DataFrame, sql: str, *, is_condition: bool) -> DataType:
    """The type of SQL over the columns of a DataFrame, as Spark analyses it. Raises `Unevaluated`.

    A value, which is no condition, may be another one each time: it is computed once for each row.
    """
    bare = _without_quoted(sql)
    refuse_words(bare)
    if (found := _OF_A_PLACE.search(bare)) is not None:
        raise Unevaluated(f"deltic does not pass SQL with `{found[0]}` to it")
    escapes = str(frame.sparkSession.conf.get("spark.sql.parser.escapedStringLiterals")).lower() == "true"
    if escapes and "\\" in in_spark(sql):
        raise Unevaluated("spark.sql.parser.escapedStringLiterals is true, and a string has a backslash or a quote")
    kind = analysed(frame, in_spark(sql), may_vary=not is_condition)
    if is_condition and not isinstance(kind, BooleanType | NullType):
        raise Unevaluated(f"it is not a condition but a value of type {kind.simpleString()}")
    return kind


def _without_quoted(sql: str) -> str:
    """SQL without strings and quoted names, other than those that may be of functions."""

    def emptied(found: re.Match[str]) -> str:
        is_called = found[0][0] in '`"' and sql[found.end() :].lstrip().startswith("(")
        return found[0] if is_called else "''"

    return _QUOTED.sub(emptied, sql)


def refuse_time(sql: str) -> None:
    """Raise `Unevaluated` for SQL with the current time."""
    if (found := _OF_THE_TIME.search(sql)) is not None:
        raise Unevaluated(f"`{found[0]}` is another time whenever it is evaluated: write the time itself")


def path_of(name: str, names: Iterable[str]) -> list[str]:
    """The path of an assigned column, with the table's spelling of its first name, which is one of `names`."""
    spelled = {known.casefold(): known for known in names}
    if name.casefold() in spelled:
        return [spelled[name.casefold()]]
    parts = [part.strip() for part in re.findall(r"`(?:[^`]|``)*`|[^`.]+", name)]
    path = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts if part]
    return [spelled.get(path[0].casefold(), path[0]), *path[1:]] if path else [name]


def comparisons(spark: SparkSession, sql: str) -> list[str]:
    """Those parts of a condition, joined by AND, that compare columns with literals or each other, as
    Spark prints them.

    They cannot fail, mean the same to deltic, and may be evaluated before the others.
    """
    try:
        parser = spark._jsparkSession.sessionState().sqlParser()
        pending, found = [parser.parseExpression(in_spark(sql))], []
        while pending:
            node = pending.pop(0)
            if node.getClass().getSimpleName() == "And":
                pending = [node.left(), node.right(), *pending]
            elif _compares(node):
                found.append(str(node.sql()))
    except (Py4JError, PySparkException):
        return []
    # In strings Spark escapes with backslashes. The time must not be another one there.
    return [f"({part})" for part in found if "\\" not in part and not _OF_THE_TIME.search(part)]


def _compares(condition: Any) -> bool:
    """Whether an expression of Spark only compares columns with literals or each other."""
    pending, seen = [condition], 0
    while pending:
        node = pending.pop()
        children, seen = node.children(), seen + 1
        if seen > _MAX_COMPARED or node.getClass().getSimpleName() not in _COMPARISONS:
            return False
        pending += [children.apply(at) for at in range(children.size())]
    return True
