"""Functions of Spark's SQL that DuckDB evaluates for the core.

The core passes one call at a time, with its arguments as columns `a0`, `a1` and so on, in its own types. `sqlglot`
translates the call to DuckDB's dialect. `FUNCTIONS` lists the calls that have the same result as in Spark then, also
for NULLs and limits of values; no other is evaluated. `tests/spark/test_functions.py` compares the results.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa


class _RefusedError(Exception):
    """The reason why a call is not evaluated."""


class _Argument:
    """An argument's type and, if it is a literal, its value."""

    def __init__(self, field: pa.Field, value: Any) -> None:
        self.type = field.type
        self.is_literal = bool(field.metadata) and field.metadata.get(b"literal") == b"true"
        self.value = value if self.is_literal else None


def _array(*, of: Callable[[pa.DataType], bool] | None = None) -> Callable[[_Argument], pa.DataType]:
    """The type of the elements of an array of simple values."""

    def element(argument: _Argument) -> pa.DataType:
        if not pa.types.is_list(argument.type) or not (of or _is_plain)(argument.type.value_type):
            raise _RefusedError(f"it does not take {_type_text(argument.type)}")
        return argument.type.value_type

    return element


def _type_text(kind: pa.DataType) -> str:
    return "an array of such elements" if pa.types.is_list(kind) else f"the type {kind}"


def _is_plain(kind: pa.DataType) -> bool:
    is_one = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_decimal128)
    return any(check(kind) for check in (*is_one, pa.types.is_string, pa.types.is_date32))


def _is_ordered(kind: pa.DataType) -> bool:
    """Not floats: engines differ in the order of NaN and of the two zeros."""
    return _is_plain(kind) and not pa.types.is_floating(kind)


def _literal_integer(argument: _Argument) -> int:
    if isinstance(argument.value, bool) or not isinstance(argument.value, int):
        raise _RefusedError("a position and a length must be literals")
    return argument.value


def _list(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable=True))


def _make_array(*arguments: _Argument) -> pa.DataType:
    kinds = {argument.type for argument in arguments}
    if len(kinds) != 1 or not _is_plain(next(iter(kinds))):
        raise _RefusedError("it takes values of one plain type; write a CAST")
    return _list(kinds.pop())


def _extreme(array: _Argument) -> pa.DataType:
    return _array(of=_is_ordered)(array)


def _with_element(array: _Argument, element: _Argument) -> pa.DataType:
    kind = _array()(array)
    if element.type != kind:
        raise _RefusedError("the element must have the type of the array's; write a CAST")
    return _list(kind)


def _join(array: _Argument, separator: _Argument) -> pa.DataType:
    if not isinstance(separator.value, str):
        raise _RefusedError("the separator must be a literal")
    return _array(of=pa.types.is_string)(array)


def _slice(array: _Argument, start: _Argument, length: _Argument) -> pa.DataType:
    if _literal_integer(start) == 0 or _literal_integer(length) < 0:
        raise _RefusedError("positions are counted from 1, and a length is not negative")
    return _list(_array()(array))


def _sorted(array: _Argument, ascending: _Argument | None = None) -> pa.DataType:
    if ascending is not None and not isinstance(ascending.value, bool):
        raise _RefusedError("the order must be TRUE or FALSE")
    return _list(_array(of=_is_ordered)(array))


# Characters, escaped characters and sets of characters; each once or repeated.
_SEPARATOR = re.compile(r"((?:[^\\.\[\]{}()*+?^$|]|\\[^\w\s]|\[[^\\\[\]^&~\-]+\])\+?)+")


def _split(text: _Argument, separator: _Argument) -> pa.DataType:
    if not pa.types.is_string(text.type):
        raise _RefusedError("it splits strings")
    if not isinstance(separator.value, str) or not _SEPARATOR.fullmatch(separator.value):
        raise _RefusedError(
            "it takes a literal of characters, of sets such as [,;] and of either with a + after it, with a backslash "
            "before characters that mean something in regular expressions"
        )
    return _list(pa.string())


def _map(which: str) -> Callable[[_Argument], pa.DataType]:
    def of(argument: _Argument) -> pa.DataType:
        kind = argument.type
        if not pa.types.is_map(kind) or not _is_plain(kind.key_type) or not _is_plain(kind.item_type):
            raise _RefusedError("it takes a map of plain values")
        return _list(getattr(kind, which))

    return of


# Returns the type of a call, or refuses the call.
FUNCTIONS: dict[str, Callable[..., pa.DataType]] = {
    "array": _make_array,
    "array_append": _with_element,
    "array_compact": lambda array: _list(_array()(array)),
    "array_join": _join,
    "array_max": _extreme,
    "array_min": _extreme,
    "array_prepend": _with_element,
    "map_keys": _map("key_type"),
    "map_values": _map("item_type"),
    "slice": _slice,
    "sort_array": _sorted,
    "split": _split,
}


def bind(name: str, values: Any) -> pa.Schema | str | None:
    """The type of a call, the reason why it is not evaluated, or `None` if there is no such function."""
    function = FUNCTIONS.get(name)
    if function is None:
        return None
    if any(importlib.util.find_spec(package) is None for package in ("duckdb", "sqlglot")):
        return f"the function {name} is evaluated by DuckDB, which is not installed; run pip install 'deltic[sql]'"
    row = pa.record_batch(values)
    arguments = [_Argument(field, column[0].as_py()) for field, column in zip(row.schema, row.columns, strict=True)]
    if any(pa.types.is_null(argument.type) for argument in arguments):
        return f"the function {name} is not evaluated for NULL itself; write CAST(NULL AS …) or leave it out"
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return f"the function {name} does not take {len(arguments)} arguments"
    try:
        return pa.schema([pa.field("value", function(*arguments))])
    except _RefusedError as refused:
        return f"the function {name} is not evaluated here: {refused}"


def evaluate(name: str, arguments: Any, schema: Any) -> pa.RecordBatch:
    """The values of a call, a column of the type that `bind` gave."""
    rows = pa.record_batch(arguments)
    literals = [
        _Argument(field, column[0].as_py()).value for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    kind = pa.schema(schema).field(0).type
    cursor = _connection(os.getpid()).cursor()
    try:
        cursor.register("arguments", pa.Table.from_batches([rows]))
        values = cursor.execute(f"SELECT {_translated(name, *literals)} AS value FROM arguments")
        column = values.to_arrow_table().column("value").cast(kind).combine_chunks()
    finally:
        cursor.close()
    return pa.record_batch([column], schema=pa.schema([pa.field("value", kind)]))


# `typed`, since 1 and True are one key otherwise.
@lru_cache(maxsize=256, typed=True)
def _translated(name: str, *literals: Any) -> str:
    """A call in DuckDB's dialect, with literal strings, whole numbers and booleans; other arguments are columns."""
    import sqlglot

    def argument(at: int, value: Any) -> Any:
        if isinstance(value, (bool, int, str)):
            return sqlglot.exp.convert(value)
        return sqlglot.exp.column(f"a{at}")

    arguments = ", ".join(argument(at, value).sql(dialect="spark") for at, value in enumerate(literals))
    call = sqlglot.parse_one(f"{name}({arguments})", read="spark").sql(dialect="duckdb")
    # DuckDB joins an array of NULLs alone to NULL, Spark to an empty string.
    return f"CASE WHEN a0 IS NOT NULL THEN coalesce({call}, '') END" if name == "array_join" else call


@lru_cache(maxsize=1)
def _connection(process: int) -> Any:
    """The process's database, which reads no files and starts no threads."""
    import duckdb

    return duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
