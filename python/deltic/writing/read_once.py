"""Data that can be read only once, and has been read: it would seem to have no rows, or only the rest of them.

Objects are remembered by identity, weakly, so that they can be freed. Python iterators of some kinds cannot be
referenced weakly: the last few of them are kept, until others take their place.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from deltic.errors import InvalidInputError
from deltic.types.other_libraries import package_of

__all__ = ["mark_as_read", "nonempty_again", "refuse_if_read"]

_KEPT = 16
"""The most iterators that are kept because they cannot be referenced weakly."""

_READ_AGAIN = {"pyarrow", "polars", "pandas", "duckdb", "datafusion", "ibis", "deltic"}
"""Packages whose objects with `__arrow_c_stream__` return all rows each time, unless they are iterators."""

_read: dict[int, Callable[[], Any]] = {}
"""By id, the objects that were read, which are `None` when they do not exist any more: the id may be another's then."""

_kept: deque[Any] = deque(maxlen=_KEPT)


def refuse_if_read(data: Any) -> None:
    """Raise `InvalidInputError` for a reader, stream or iterator of which deltic has read rows before."""
    if isinstance(data, Iterator) and _was_read(data):
        raise InvalidInputError(
            f"this {type(data).__name__} was read already, at least in part, and it can be read only once; make a new "
            "one, or read it into a table first, such as with reader.read_all()"
        )


def mark_as_read(data: Any, rows: int | None = None) -> None:
    """Remember that deltic has begun to read `data`, if it may be readable only once.

    `rows`: how many it returned, None if that is not known.
    """
    if isinstance(data, Iterator) or (_is_of_unknown_kind(data) and rows != 0):
        _remember(data)


def nonempty_again(data: Any, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The rows of an object that may be readable only once.

    Raises `InvalidInputError` if it returned rows before and has none now.
    """
    if not _is_of_unknown_kind(data) or not _was_read(data):
        return reader
    first = next((batch for batch in reader if batch.num_rows), None)
    if first is None:
        raise InvalidInputError(
            f"this {type(data).__name__} was read already, and has no rows now, as if it could be read only once; make "
            "a new one, or pass pa.table(data) if it really has no rows"
        )
    return pa.RecordBatchReader.from_batches(reader.schema, chain([first], reader))


def _is_of_unknown_kind(data: Any) -> bool:
    """Whether its class does not say if `data` can be read again."""
    is_known = any(package_of(kind) in _READ_AGAIN for kind in type(data).__mro__)
    return hasattr(data, "__arrow_c_stream__") and not is_known


def _was_read(data: Any) -> bool:
    found = _read.get(id(data))
    return (found is not None and found() is data) or any(kept is data for kept in _kept)


def _remember(data: Any) -> None:
    if _was_read(data):
        return
    key = id(data)

    def forget(reference: weakref.ref[Any]) -> None:
        # Another object may have the id by now.
        if _read.get(key) is reference:
            del _read[key]

    try:
        _read[key] = weakref.ref(data, forget)
    except TypeError:
        _kept.append(data)
