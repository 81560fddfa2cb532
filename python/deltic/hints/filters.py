"""The SQL for filters that are written for other libraries, for error messages (`filter_hint`)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any

from deltic.types.ddl import quoted
from deltic.types.other_libraries import is_boolean, is_instance, package_of

__all__ = ["filter_hint"]


def filter_hint(value: object) -> str:
    """How to write a filter of another library in SQL, as the end of a message."""
    if (written := _sql_of_filters(value)) is not None:
        return f": write {written!r}"
    if isinstance(value, tuple | list):
        return ": write one string, such as \"month = 7 AND carrier IN ('UA', 'AA')\""
    if any(is_instance(value, package, "Expression", "Expr", "Column", "Series") for package in _ENGINES):
        engine = package_of(type(value))
        return f', and an expression of {engine} cannot be taken apart: write it as SQL, such as "month = 7 AND km > 5"'
    return ""


_ENGINES = ("pyarrow", "polars", "pandas", "pyspark", "duckdb")


def _sql_of_filters(value: object) -> str | None:
    """The SQL of pyarrow's and deltalake's filters: tuples joined by AND, lists of tuples by OR. Otherwise None."""
    if not isinstance(value, list | tuple) or not value:
        return None
    if isinstance(value[0], str):
        return _sql_of_filter(value)
    if isinstance(value[0], list):
        parts = [_sql_of_filters(part) for part in value]
        texts = [part for part in parts if part is not None]
        return " OR ".join(f"({part})" for part in texts) if len(texts) == len(parts) else None
    terms = [_sql_of_filter(term) for term in value]
    found = [term for term in terms if term is not None]
    return " AND ".join(found) if len(found) == len(terms) else None


def _sql_of_filter(term: object) -> str | None:
    if not isinstance(term, list | tuple) or len(term) != 3:
        return None
    column, op, value = term
    if not isinstance(column, str) or not isinstance(op, str):
        return None
    name = quoted(column)
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
    if is_boolean(value):
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
