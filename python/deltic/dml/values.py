"""Changes of rows: the values that columns are set to (`lit`), the result of a preview (`Preview`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from deltic.arguments import check_str
from deltic.errors import InvalidInputError

__all__ = ["Assigned", "Literal", "Preview", "RowChanges", "assignments", "lit"]


@dataclass(frozen=True)
class Literal:
    """A value for a column, made by `lit`."""

    value: Any


Assigned: TypeAlias = str | Literal
"""The new value of a column: SQL over the old row, or a value."""


def lit(value: Any) -> Literal:
    """A value (not SQL) for `Table.update` and `Table.merge`: anything that pyarrow can put into an array.

    The functions that take it raise `InvalidInputError` for a value that Arrow does not have, or that does not fit its
    column.

    >>> import deltic
    >>> deltic.lit("nut")
    Literal(value='nut')
    """
    return Literal(value)


def assignments(given: object, argument: str = "set") -> tuple[list[tuple[str, str | None]], pa.Table]:
    """Columns with their SQL, or None for a value; the values as one row, in the order of the columns."""
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise InvalidInputError(f'{argument} must be a dict of columns, such as {{"km": "miles * 1.6"}}, not {kind}')
    columns: list[tuple[str, str | None]] = []
    values: list[pa.Array] = []
    for name, value in given.items():
        column = check_str(name, f"a column of {argument}")
        if isinstance(value, Literal):
            columns.append((column, None))
            values.append(_array(_not_duration(value.value, argument, column), f"{argument}[{column!r}]"))
        elif isinstance(value, str):
            columns.append((column, check_str(value, f"{argument}[{column!r}]")))
        else:
            kind = type(_not_duration(value, argument, column)).__name__
            raise InvalidInputError(
                f"{argument}[{column!r}] must be SQL or a value in deltic.lit, not {kind}: write deltic.lit({value!r})"
            )
    return columns, pa.Table.from_arrays(values, names=[str(i) for i in range(len(values))])


def _not_duration(value: object, argument: str, column: str) -> object:
    """The value. Raises `InvalidInputError` if it is a length of time, which no column of a Delta table has."""
    if isinstance(value, timedelta):
        raise InvalidInputError(
            f"{argument}[{column!r}] is a {type(value).__name__}, and Delta has no type for lengths of time: give a "
            f"number, in seconds deltic.lit({value.total_seconds()!r})"
        )
    return value


def _array(value: object, what: str) -> pa.Array:
    try:
        made = pa.array([value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{what} cannot be converted to Arrow: {error}") from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


class RowChanges(Protocol):
    """Changes rows within a transaction: in the core, or on Spark's executors."""

    def delete(self, filter: str | None = None) -> int | None:
        """Delete rows; return how many, None if files that were not read do not say."""

    def update(self, set: list[tuple[str, str | None]], values: Any, filter: str | None = None) -> int:
        """Set columns; return how many rows were updated."""

    def merge(self, data: Any, request: str, values: Any) -> str:
        """Merge rows; return the counts as JSON."""


@dataclass(frozen=True)
class Preview:
    """What a change of rows would do to the latest version; nothing was written.

    `version`: the one that was read. `files_total`: its live files. Of these, `skipped_by_partition` and
    `skipped_by_statistics` cannot have a matching row, by the log and the condition on the table alone, and
    `skipped_by_keys` cannot by the keys of a merge's source (all keys, or their bounds); each file counts for the
    first of these that rules it out. `files_read` were read to find the rows (only the columns of the condition).
    They have `row_groups`. Of these, `row_groups_skipped_by_statistics` were not read because of the statistics in
    the footers of the files, and `row_groups_skipped_by_bloom_filter` because of bloom filters. `files_removed` would
    be removed as a whole, without being read if the log proves that every row matches; `files_marked` would get a
    deletion vector; `files_rewritten` would be rewritten. `rows`: how many match; None if files that were not read do
    not say how many rows they have. `rows_inserted`: how many a merge would insert. `rows_copied`: how many other
    rows would be copied. `bytes_read`: bytes of data files that were read, and that copying would read.
    `bytes_written`: bytes that would be written, estimated from the sizes of the files and the shares of their rows.
    """

    version: int
    files_total: int
    skipped_by_partition: int
    skipped_by_statistics: int
    skipped_by_keys: int
    files_read: int
    row_groups: int
    row_groups_skipped_by_statistics: int
    row_groups_skipped_by_bloom_filter: int
    files_removed: int
    files_marked: int
    files_rewritten: int
    rows: int | None
    rows_inserted: int
    rows_copied: int
    bytes_read: int
    bytes_written: int

    @classmethod
    def parse(cls, text: str) -> Preview:
        """Parse a preview as the core describes it."""
        return cls(**json.loads(text))
