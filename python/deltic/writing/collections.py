"""Collections that callers pass as data: series of batches, and rows as mappings.

The values of rows get the types that Arrow infers, and the core converts them to the table's if that is exact: Arrow
itself would cut 1.5 to a whole number and a time to a day. A key that a row lacks is null; a key that no row has is not
a column, so that the rules for missing columns apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from deltic.display.strings import a
from deltic.errors import InvalidInputError
from deltic.types.names import type_name

__all__ = ["of_batches", "of_rows"]


Rows = Callable[[Any], pa.Table]
"""Converts one item to Arrow."""


def of_batches(data: Iterable[Any], rows: Rows) -> pa.RecordBatchReader:
    """A stream of batches or tables, all with the columns of the first."""
    found = iter(data)
    first = next(found, None)
    if first is None:
        message = "the data has no batch, and nothing else says which columns it has; pass a table without rows"
        raise InvalidInputError(message)
    schema, head = _batches(first, 0, rows)
    return pa.RecordBatchReader.from_batches(schema, chain(head, _rest(found, schema, rows)))


def _rest(found: Iterator[Any], schema: pa.Schema, rows: Rows) -> Iterator[pa.RecordBatch]:
    for at, item in enumerate(found, 1):
        for batch in _batches(item, at, rows)[1]:
            if not batch.schema.equals(schema):
                given, wanted = _columns(batch.schema), _columns(schema)
                message = f"item {at} (the first is 0) of the data has the columns {given}, and the first has {wanted}"
                raise InvalidInputError(f"{message}; give all of them the same")
            yield batch


def _batches(item: Any, at: int, rows: Rows) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    if isinstance(item, pa.RecordBatch):
        return item.schema, [item]
    if hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__"):
        table = rows(item)
        return table.schema, table.to_batches()
    message = f"item {at} (the first is 0) of the data is {a(type(item).__name__)}"
    is_row = isinstance(item, Mapping)
    how = "make a list of the rows" if is_row else "pass batches or tables of Arrow, or a list of dicts"
    raise InvalidInputError(f"{message}: {how}")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {type_name(field)}" for field in schema)


def of_rows(data: Sequence[Mapping[str, Any]], table_schema: Callable[[], pa.Schema | None]) -> pa.Table:
    """Rows as a table; `table_schema` returns the columns of an existing table."""
    names: dict[str, None] = {}
    for at, row in enumerate(data):
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"row {at} (the first is 0) of the data is {a(type(row).__name__)}, and others are dicts"
            )
        for name in row:
            if not isinstance(name, str):
                message = f"row {at} (the first is 0) of the data has a key that is {a(type(name).__name__)}"
                raise InvalidInputError(f"{message}; columns are named by strings")
            names[name] = None
    schema = table_schema()
    columns = [_column(data, name, _type_of(name, schema)) for name in names]
    return pa.Table.from_arrays(columns, names=list(names))


def _type_of(name: str, schema: pa.Schema | None) -> pa.DataType | None:
    if schema is None:
        return None
    alike = [field for field in schema if field.name.lower() == name.lower()]
    found = next((field for field in alike if field.name == name), alike[0] if len(alike) == 1 else None)
    return None if found is None else found.type


def _column(data: Sequence[Mapping[str, Any]], name: str, kind: pa.DataType | None) -> pa.Array:
    values = [row.get(name) for row in data]
    _check_times(values, name)
    if kind is not None and pa.types.is_map(kind):
        return _map(values, name)
    if kind is not None and pa.types.is_decimal(kind):
        try:
            return pa.array(values)
        except _NO_COMMON_TYPE:
            return _decimals(values, name, kind)
    return _inferred(values, name)


_NO_COMMON_TYPE = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Raised by `pa.array` for values for which it finds no type; elsewhere they may be defects."""


def _inferred(values: list[Any], name: str) -> pa.Array:
    try:
        return pa.array(values)
    except _NO_COMMON_TYPE as error:
        message = f"the values of `{name}` in the data have no type in common: {error}"
        raise InvalidInputError(message) from error


def _check_times(values: list[Any], name: str) -> None:
    """Refuse times of several kinds in one column: Arrow would convert them all to days, or to one time zone."""
    kinds: dict[tuple[str, ...], dict[str, str]] = {}
    for row, whole in enumerate(values):
        for path, value in _within(whole, (name,)):
            if isinstance(value, datetime):
                kind = "times without an offset" if value.tzinfo is None else "times with an offset"
            elif isinstance(value, date):
                kind = "dates"
            else:
                continue
            kinds.setdefault(path, {}).setdefault(kind, f"{kind} (row {row}: {value})")
    for path, found in kinds.items():
        if len(found) > 1:
            first, other, *_ = found.values()
            message = f"the values of `{'.'.join(path)}` in the data are {first} and {other}"
            raise InvalidInputError(f"{message}, where the first row is 0; make all of them the same")


def _within(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values with the path of their field; for lists and mappings, the values inside."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _within(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _within(inner, path)
    else:
        yield path, value


def _map(values: list[Any], name: str) -> pa.Array:
    """Mappings, or lists of pairs, as maps; Arrow would make structs of mappings."""
    starts: list[int | None] = []
    keys: list[Any] = []
    items: list[Any] = []
    for row, value in enumerate(values):
        # A map is null if its offset is.
        starts.append(None if value is None else len(keys))
        for key, item in () if value is None else _entries(value, row, name):
            keys.append(key)
            items.append(item)
    found = _inferred(keys, name)
    if found.null_count:
        raise InvalidInputError(f"a map of `{name}` in the data has a null key, which maps of Arrow cannot have")
    return pa.MapArray.from_arrays(pa.array([*starts, len(keys)], pa.int32()), found, _inferred(items, name))


def _entries(value: Any, row: int, name: str) -> list[tuple[Any, Any]]:
    try:
        return [(key, item) for key, item in (value.items() if isinstance(value, Mapping) else value)]
    except (TypeError, ValueError) as error:
        message = f"row {row} (the first is 0) of the data has {a(type(value).__name__)} for the map `{name}`"
        raise InvalidInputError(f"{message}; give a dict or a list of pairs") from error


def _decimals(values: list[Any], name: str, kind: pa.DataType) -> pa.Array:
    """Whole numbers together with decimals, which have no common type in Arrow; it refuses values with more digits."""
    try:
        return pa.array(values, kind)
    except _NO_COMMON_TYPE as error:
        raise InvalidInputError(f"the values of `{name}` in the data are not all {kind}: {error}") from error
