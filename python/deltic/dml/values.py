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

    Attributes:
        version: The version that was read.
        files_total: Its live files.
        skipped_by_partition, skipped_by_statistics: Files that the condition on the table rules out, by their partition
            values or their statistics in the log. Each skipped file counts once, for the first reason.
        skipped_by_keys: Further files that the keys of a merge's source (all keys, or their bounds) rule out.
        files_read: Files that were searched for rows; only the columns of the condition are read.
        row_groups: Row groups of these files.
        row_groups_skipped_by_statistics, row_groups_skipped_by_bloom_filter: Row groups that were not read, because of
            the statistics in the footers or because of bloom filters.
        files_removed: Files that would be removed as a whole, without being read if the log proves that every row
            matches.
        files_marked: Files that would get a deletion vector.
        files_rewritten: Files that would be rewritten.
        rows: Matching rows; None if files that were not read do not say how many rows they have.
        rows_inserted: Rows that a merge would insert.
        rows_copied: Other rows that would be copied.
        bytes_read: Bytes of data files that were read, and that copying would read.
        bytes_written: Bytes that would be written, estimated from the sizes of the files and the shares of their rows.
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
