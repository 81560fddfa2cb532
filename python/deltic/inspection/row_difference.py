"""Finds the rows that differ between two versions, without change data: from files, deletion vectors and row ids.

Only files that one version lacks, or has with another deletion vector, are read. PROTOCOL.md: "Row Tracking", "Deletion
Vectors".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltic.errors import CorruptTableError, InvalidInputError
from deltic.inspection.physical_name import column_keys, comparable_schemas
from deltic.inspection.row_keys import flat_list, row_keys
from deltic.reading.snapshot import Snapshot
from deltic.types.names import type_name

__all__ = ["CHANGE_TYPE", "ROW_ID", "ReadGroup", "changed_rows", "widens"]

CHANGE_TYPE = "_change_type"
ROW_ID = "_metadata.row_id"
_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_FILES_AT_A_TIME = 8


ReadGroup: TypeAlias = Callable[[bytes], pa.RecordBatchReader]
"""Reads the rows of one of `Plan.task_groups`."""


def changed_rows(before: Snapshot, after: Snapshot, read: ReadGroup) -> pa.Table:
    """The rows that were inserted, deleted and updated, with the columns of `after`."""
    if CHANGE_TYPE in after.schema.names:
        raise InvalidInputError(f"the table has a column `{CHANGE_TYPE}` itself: its rows cannot be told apart")
    tracked = _tracks_rows(before, after)
    old, new = (_tasks(snapshot, tracked) for snapshot in (before, after))
    removed, added = _without(old, new), _without(new, old)
    earlier, later = comparable_schemas(before.schema, after.schema)
    wanted = pa.schema([_as_nullable(field) for field in later])
    sides = [_rows(removed, read, earlier, later, tracked), _rows(added, read, later, later, tracked)]
    schema = wanted.append(pa.field(ROW_ID, pa.int64())) if tracked else wanted
    batches = [(side, keys, rows) for side, found in enumerate(sides) for keys, rows in found]
    rows = pa.Table.from_batches([rows for _, _, rows in batches], schema)
    keys = pa.chunked_array([keys for _, keys, _ in batches], pa.large_binary())
    side = pa.chunked_array([pa.repeat(pa.scalar(side, pa.int8()), len(keys)) for side, keys, _ in batches], pa.int8())
    chosen = _by_row_id(keys, side, rows[ROW_ID], after) if tracked else _by_values(keys, side)
    return rows.take(chosen["at"]).add_column(0, CHANGE_TYPE, chosen["kind"])


def _tracks_rows(before: Snapshot, after: Snapshot) -> bool:
    """Whether both versions have row ids of the same series: after the feature was dropped, ids begin anew."""

    def of(snapshot: Snapshot) -> tuple[bool, str | None]:
        enabled = snapshot.properties.get("delta.enableRowTracking", "").lower() == "true"
        return enabled, snapshot.properties.get(_ROW_ID_COLUMN)

    return of(before) == of(after) and of(after)[0]


def _tasks(snapshot: Snapshot, tracked: bool) -> pa.Array:
    """The task group for each file: equal for two versions if file, vector and schema are."""
    columns = [*snapshot.schema.names, ROW_ID] if tracked else None
    plan = snapshot.plan(columns)
    # As many groups as files: each group has one file.
    return pa.array(plan.task_groups(plan.files_kept) if plan.files_kept else [], pa.large_binary())


def _without(tasks: pa.Array, others: pa.Array) -> list[bytes]:
    found = tasks.filter(pc.invert(pc.is_in(tasks, value_set=others)))
    return sorted(found.to_pylist())


def _rows(
    tasks: Sequence[bytes], read: ReadGroup, old: pa.Schema, new: pa.Schema, tracked: bool
) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Keys and rows, with the columns of `new`, batch by batch."""

    def batches(task: bytes) -> list[tuple[pa.Array, pa.RecordBatch]]:
        return [_in_columns(batch, old, new, tracked) for batch in read(task) if batch.num_rows]

    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        for found in pool.map(batches, tasks):
            yield from found


def _in_columns(
    batch: pa.RecordBatch, old: pa.Schema, new: pa.Schema, tracked: bool
) -> tuple[pa.Array, pa.RecordBatch]:
    old_keys, new_keys = column_keys(old, new)
    known = {key: (batch.column(at), old.field(at)) for at, key in enumerate(old_keys)}
    found = zip(new_keys, new, strict=True)
    columns = [_column(known.get(key), field, batch.num_rows, field.name) for key, field in found]
    keys = row_keys(columns, batch.num_rows)
    fields = [_as_nullable(field) for field in new]
    if tracked:
        columns.append(batch.column(len(old)))
        fields.append(pa.field(ROW_ID, pa.int64()))
    return keys, pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _as_nullable(field: pa.Field) -> pa.Field:
    """The column as nullable: an added column may be NOT NULL, and older rows lack it."""
    return field.remove_metadata().with_nullable(True)


def _column(found: tuple[pa.Array, pa.Field] | None, wanted: pa.Field, rows: int, path: str) -> pa.Array:
    """A column of older rows with its later type; null if it did not exist."""
    if found is None:
        return pa.nulls(rows, wanted.type)
    values, field = found
    if field.equals(wanted, check_metadata=True):
        return values
    return _value(values, field.type, wanted.type, path)


def _value(values: pa.Array, old: pa.DataType, new: pa.DataType, path: str) -> pa.Array:
    nulls = pc.is_null(values)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        old_keys, new_keys = column_keys(old, new)
        known = dict(zip(old_keys, zip(values.flatten(), old, strict=True), strict=True))
        found = zip(new_keys, new, strict=True)
        children = [_column(known.get(key), to, len(values), f"{path}.{to.name}") for key, to in found]
        return pa.StructArray.from_arrays(children, fields=list(new), mask=nulls)
    if pa.types.is_list(old) and pa.types.is_list(new):
        offsets, elements = flat_list(values)
        inner = _value(elements, old.value_type, new.value_type, f"{path}.element")
        return pa.ListArray.from_arrays(pc.cast(offsets, pa.int32()), inner, new, mask=nulls)
    if pa.types.is_map(old) and pa.types.is_map(new):
        offsets, entries = flat_list(values)
        keys, items = entries.flatten()
        keys = _value(keys, old.key_type, new.key_type, f"{path}.key")
        items = _value(items, old.item_type, new.item_type, f"{path}.value")
        # A map is null if its offset is: `mask` needs pyarrow 17.
        null = pa.concat_arrays([nulls, pa.array([False])])
        starts = pc.if_else(null, pa.scalar(None, pa.int32()), pc.cast(offsets, pa.int32()))
        return pa.MapArray.from_arrays(starts, keys, items, new)
    if old == new:
        return values
    if widens(old, new):
        return pc.cast(values, new)
    raise InvalidInputError(
        f"column `{path}` was {type_name(old)} and is {type_name(new)}: rows of the two versions cannot be compared; "
        "leave rows out"
    )


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a change of type loses no value (PROTOCOL.md: "Type Widening")."""
    if pa.types.is_integer(old):
        if pa.types.is_integer(new):
            return bool(old.bit_width <= new.bit_width)
        digits = {8: 3, 16: 5, 32: 10, 64: 19}[old.bit_width]
        to_double = pa.types.is_float64(new) and old.bit_width <= 32
        return bool(to_double or (pa.types.is_decimal(new) and new.precision - new.scale >= digits))
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    to_timestamp = pa.types.is_date32(old) and pa.types.is_timestamp(new) and new.tz is None
    return bool(to_timestamp or (pa.types.is_float32(old) and pa.types.is_float64(new)))


def _by_values(keys: pa.ChunkedArray, side: pa.ChunkedArray) -> pa.Table:
    """Rows that one side has more often than the other, as often as the difference. Rows of both cancel out."""
    sign = pc.subtract(pc.multiply(pc.cast(side, pa.int64()), 2), 1)
    numbered = pa.table({"key": keys, "net": sign, "at": _numbers(len(keys))})
    counted = numbered.group_by("key").aggregate([("net", "sum"), ("at", "min")])
    counted = counted.filter(pc.not_equal(counted["net_sum"], 0)).sort_by([("at_min", "ascending")])
    times = pc.cumulative_sum(pc.abs(counted["net_sum"].combine_chunks()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), times])
    copies = pa.LargeListArray.from_arrays(offsets, pa.nulls(offsets[-1].as_py()))
    chosen = counted.take(pc.list_parent_indices(copies))
    kind = pc.if_else(pc.greater(chosen["net_sum"], 0), "insert", "delete")
    # Deletes first.
    return pa.table({"kind": kind, "at": chosen["at_min"]}).sort_by([("kind", "ascending"), ("at", "ascending")])


def _by_row_id(keys: pa.ChunkedArray, side: pa.ChunkedArray, ids: pa.ChunkedArray, after: Snapshot) -> pa.Table:
    """A row with the same id on both sides is an update if its values differ."""
    at = _numbers(len(keys))
    is_new = pc.equal(side, 1)
    nothing = pa.scalar(None, pa.int64())
    sides = {"old": pc.if_else(is_new, nothing, at), "new": pc.if_else(is_new, at, nothing)}
    how = [(name, what) for name in sides for what in ("max", "count")]
    found = pa.table({"id": ids, **sides}).group_by("id").aggregate(how)
    if ids.null_count or pc.any(pc.or_(pc.greater(found["old_count"], 1), pc.greater(found["new_count"], 1))).as_py():
        raise CorruptTableError(f"a row id is missing, or two rows have the same one [table {after.uri}]")
    old, new = found["old_max"], found["new_max"]
    # Null if one side lacks the row.
    same = pc.fill_null(pc.equal(keys.take(old), keys.take(new)), False)
    found = found.filter(pc.invert(same))
    both = pc.and_(pc.is_valid(found["old_max"]), pc.is_valid(found["new_max"]))
    parts = [
        pa.table({"id": found["id"], "at": found[f"{name}_max"], "kind": pc.if_else(both, updated, alone)})
        for name, updated, alone in (("old", "update_preimage", "delete"), ("new", "update_postimage", "insert"))
    ]
    rows = pa.concat_tables(parts)
    rows = rows.filter(pc.is_valid(rows["at"]))
    # The preimage has the lower number.
    return rows.sort_by([("id", "ascending"), ("at", "ascending")])


def _numbers(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)
