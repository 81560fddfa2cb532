"""SQL of callers that Spark evaluates: it keeps the spelling that all SQL of callers has in deltic.

A backslash in a string is an ordinary character, and a word in double quotes is a name: `docs/expressions.md`.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DataType, NullType

from deltic import _deltic
from deltic.errors import InvalidInputError
from deltic.spark.rules import Unevaluated, analysed, refuse_words

__all__ = ["conjuncts", "in_spark", "is_read", "kind_of", "quoted"]

_QUOTED = re.compile(r"""\b[rR]'[^']*'|'(?:[^']|'')*'|`(?:[^`]|``)*`|"(?:[^"]|"")*\"""")
_OF_A_PLACE = re.compile(
    r"\b(?:input_file_(?:name|block_start|block_length)|monotonically_increasing_id|spark_partition_id)\b",
    re.IGNORECASE,
)
"""Functions whose values say where Spark has a row, and not where it is in the table."""


_OF_THE_TIME = re.compile(r"\b(?:now|current_\w+|curdate|localtimestamp|unix_timestamp)\b", re.IGNORECASE)


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
    bare = _QUOTED.sub("''", sql)
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


def conjuncts(spark: SparkSession, sql: str) -> list[str]:
    """The parts of a condition that must all be TRUE, as Spark prints them; none that deltic could read otherwise."""
    try:
        parser = spark._jsparkSession.sessionState().sqlParser()
        pending, found = [parser.parseExpression(in_spark(sql))], []
        while pending:
            node = pending.pop(0)
            if node.getClass().getSimpleName() == "And":
                pending = [node.left(), node.right(), *pending]
            else:
                found.append(str(node.sql()))
    except (Py4JError, PySparkException):
        return []
    # In strings Spark escapes with backslashes. The time must not be another one there.
    return [f"({part})" for part in found if "\\" not in part and not _OF_THE_TIME.search(part)]
