"""Spark's pushed filters as deltic's filter text.

deltic evaluates with Spark's semantics (three-valued logic, NaN the greatest and equal to itself), so what translates
is handled exactly and Spark need not look again. What does not translate is left to Spark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal, DefaultContext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["to_sql"]

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def to_sql(pushed: Filter) -> str | None:
    """Filter text that is TRUE for the same rows, or None when there is none.

    Filters are told apart by the name of their class, for pyspark 4.0 does not have the classes.
    """
    kind = type(pushed).__name__
    if kind == "Not":
        inner = to_sql(pushed.child)  # type: ignore[attr-defined]
        return None if inner is None else f"NOT ({inner})"
    column = _name(pushed.attribute)  # type: ignore[attr-defined]
    if kind == "IsNull":
        return f"{column} IS NULL"
    if kind == "IsNotNull":
        return f"{column} IS NOT NULL"
    value = pushed.value  # type: ignore[attr-defined]
    if kind in _COMPARISONS:
        literal = _literal(value)
        return None if literal is None else f"{column} {_COMPARISONS[kind]} {literal}"
    if kind == "In":
        literals = [_literal(item) for item in value]
        return None if not literals or None in literals else f"{column} IN ({', '.join(map(str, literals))})"
    if kind == "StringStartsWith":
        return f"{column} LIKE {_text(_escaped(value) + '%')} ESCAPE '!'"
    return None


def _name(path: Sequence[str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _escaped(value: str) -> str:
    return "".join("!" + letter if letter in "!%_" else letter for letter in value)


def _literal(value: object) -> str | None:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        # pyspark multiplies in Python's default context, which rounds: what it rounded has just so many digits.
        exact = value.is_finite() and len(value.as_tuple().digits) < DefaultContext.prec
        return format(value, "f") if exact else None
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bytes, bytearray)):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(' ', 'microseconds')}'"
        utc = value.astimezone(timezone.utc).replace(tzinfo=None)
        return f"TIMESTAMP '{utc.isoformat(' ', 'microseconds')}Z'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return None
