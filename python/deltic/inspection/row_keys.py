"""A byte string for each row, equal for two rows exactly if all their values are equal, nested ones and nulls too.

A value is written with its length before it, a null as a letter, so that no two rows have the same string. NaN equals
NaN; -0.0 and 0.0 differ; the order of map entries matters. Proved by `tests/python/test_diff.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["flat_list", "row_keys"]

_BYTES = pa.large_binary()


@cache
def _scalar(value: bytes | None) -> pa.Scalar:
    """Made only when needed: the first scalar imports pandas if it is installed."""
    return pa.scalar(value, _BYTES)


def row_keys(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """The byte strings of the rows with these columns."""
    if not columns:
        return pa.array([b""] * rows, _BYTES)
    return pc.binary_join_element_wise(*map(_delimited, columns), _scalar(b""))


def flat_list(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The offsets of lists, with 64 bits, and their elements; the array may be a slice."""
    if pa.types.is_map(values.type):
        entry = [pa.field("key", values.type.key_type), pa.field("value", values.type.item_type)]
        values = values.cast(pa.list_(pa.struct(entry)))
    lengths = pc.cast(pc.fill_null(pc.list_value_length(values), 0), pa.int64())
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int64()), ends]), pc.list_flatten(values)


def _delimited(values: pa.Array) -> pa.Array:
    found = _bytes(values)
    lengths = pc.cast(pc.cast(pc.binary_length(found), pa.large_string()), _BYTES)
    return pc.coalesce(pc.binary_join_element_wise(lengths, found, _scalar(b":")), _scalar(b"N"))


def _bytes(values: pa.Array) -> pa.Array:
    """The bytes of each value; null for null."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _bytes(values.storage)
    if pa.types.is_null(kind):
        return pa.nulls(len(values), _BYTES)
    if pa.types.is_dictionary(kind):
        return _bytes(values.dictionary_decode())
    if pa.types.is_struct(kind):
        return _where_valid(values, row_keys(values.flatten(), len(values)))
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, elements = flat_list(values)
        lists = pa.LargeListArray.from_arrays(offsets, _delimited(elements))
        return _where_valid(values, pc.binary_join(lists, _scalar(b"")))
    return pc.cast(_castable(values), _BYTES)


def _castable(values: pa.Array) -> pa.Array:
    """The value as a string, or itself if it is a byte string."""
    kind = values.type
    if pa.types.is_floating(kind):
        nan = pa.scalar(float("nan"), kind)
        same = pc.if_else(pc.is_nan(values), nan, values)
        return pc.cast(same.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]), pa.large_string())
    if pa.types.is_temporal(kind):
        return pc.cast(values.view(pa.int32() if kind.bit_width == 32 else pa.int64()), pa.large_string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pc.cast(values, pa.large_string())
    return values


def _where_valid(values: pa.Array, found: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(values), found, _scalar(None))
