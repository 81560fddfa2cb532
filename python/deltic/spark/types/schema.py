"""Matches a caller's schema with a table's: case-insensitive names, selected nested fields, nullability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from deltic.errors import InvalidInputError
from deltic.reading.snapshot import Snapshot
from deltic.spark.types.column_types import VARIANT, to_spark, type_without_nullability

__all__ = ["as_binaries", "check_all_columns", "fit", "nullable", "resolve"]


def nullable(schema: StructType) -> StructType:
    """The schema with nulls allowed everywhere: Spark's inferred nullability is not a constraint of a table."""
    loose = schema._as_nullable()
    assert isinstance(loose, StructType)
    return loose


def resolve(given: StructType, snapshot: Snapshot, extra: Sequence[StructField]) -> StructType:
    """A caller's schema, with the table's spelling of names; nullability is the caller's.

    `extra`: columns that can be read in addition to those of the table's schema.

    Raises `InvalidInputError`, naming the field, for one that the table does not have or has with another type: a
    conversion here would differ from Spark's. Raises `UnsupportedFeatureError` for a column whose type cannot be passed
    to Spark.
    """
    wanted = {name.lower() for name in given.names}
    table = to_spark(snapshot, [field.name for field in snapshot.schema if field.name.lower() in wanted])
    added = [field for field in extra if field.name not in table.names]
    return _resolve_fields(given, StructType([*table.fields, *added]), "")


def check_all_columns(given: StructType, stored: StructType) -> None:
    """Raise `InvalidInputError` unless a caller's schema has the same columns, in the same order, as the table."""
    if type_without_nullability(given) != type_without_nullability(stored):
        raise InvalidInputError(
            f"the table has the columns {stored.simpleString()}, and {given.simpleString()} are expected: if they are "
            "those of a view, remove it with DROP VIEW and its table of columns with DROP TABLE, and call "
            "deltic.spark.create_view again"
        )


def _resolve_fields(given: StructType, stored: StructType, place: str) -> StructType:
    fields: list[StructField] = []
    for field in given.fields:
        name = f"{place}.{field.name}" if place else field.name
        alike = [other for other in stored.fields if other.name.lower() == field.name.lower()]
        found = next((other for other in alike if other.name == field.name), alike[0] if len(alike) == 1 else None)
        if found is None:
            inside = f"; `{place}` has {', '.join(stored.names)}" if place else ""
            raise InvalidInputError(f"the given schema has `{name}`, and the table does not{inside}")
        if any(other.name == found.name for other in fields):
            raise InvalidInputError(f"the given schema has `{name}` twice")
        fields.append(StructField(found.name, _resolve_type(field.dataType, found.dataType, name), field.nullable))
    return StructType(fields)


def _resolve_type(given: DataType, stored: DataType, place: str) -> DataType:
    if isinstance(given, StructType) and isinstance(stored, StructType):
        return _resolve_fields(given, stored, place)
    if isinstance(given, ArrayType) and isinstance(stored, ArrayType):
        element = _resolve_type(given.elementType, stored.elementType, f"{place}.element")
        return ArrayType(element, given.containsNull)
    if isinstance(given, MapType) and isinstance(stored, MapType):
        key = _resolve_type(given.keyType, stored.keyType, f"{place}.key")
        value = _resolve_type(given.valueType, stored.valueType, f"{place}.value")
        return MapType(key, value, given.valueContainsNull)
    if given != stored:
        kinds = f"{given.simpleString()} in the given schema and {stored.simpleString()} in the table"
        raise InvalidInputError(f"`{place}` is {kinds}: read it with the table's type and cast it after load()")
    return given


def fit(batch: pa.RecordBatch, stored: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the fields and nullability of `stored`, renamed as in `schema`."""
    if batch.schema.equals(schema):
        return batch
    columns = list(map(_of_spark, batch.columns, batch.schema))
    chosen = pa.record_batch(columns, names=batch.schema.names).cast(stored)
    return chosen if stored.equals(schema) else pa.record_batch(_Renamed(chosen, schema))


def _of_spark(array: pa.Array, field: pa.Field) -> pa.Array:
    """The values with their variants in Spark's form: the same two binaries in the other order, which not every cast of
    pyarrow changes.
    """
    if (field.metadata or {}).get(b"delta.type") == b"variant":
        # Below a null there may be nulls, which a cast would take for values.
        parts = [pc.fill_null(array.field(part.name), b"") for part in VARIANT]
        return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=array.is_null())
    return _inside(array, field, _of_spark)


def as_binaries(array: pa.Array, field: pa.Field) -> pa.Array:
    """The values with variants in Spark's form as structs that Spark does not take for variants."""
    if _is_marked(field.type):
        fields = [part.remove_metadata().with_nullable(True) for part in field.type]
        return pa.StructArray.from_arrays(array.flatten(), fields=fields, mask=array.is_null())
    return _inside(array, field, as_binaries)


def _is_marked(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or [part.name for part in kind] != [part.name for part in VARIANT]:
        return False
    return (kind.field("metadata").metadata or {}).get(b"variant") == b"true"


def _inside(array: pa.Array, field: pa.Field, change: Callable[[pa.Array, pa.Field], pa.Array]) -> pa.Array:
    """A struct, list or map with its parts changed."""
    kind = field.type
    if pa.types.is_struct(kind):
        parts = [change(array.field(at), kind.field(at)) for at in range(kind.num_fields)]
        fields = [part.with_type(values.type) for part, values in zip(kind, parts, strict=True)]
        if pa.struct(fields).equals(kind, check_metadata=True):
            return array
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if pa.types.is_map(kind):
        inner = [change(array.keys, kind.key_field), change(array.items, kind.item_field)]
        fields = [kind.key_field.with_type(inner[0].type), kind.item_field.with_type(inner[1].type)]
        changed = pa.map_(*fields)
        if changed.equals(kind, check_metadata=True):
            return array
        return _around(array, changed, pa.StructArray.from_arrays(inner, fields=fields))
    if pa.types.is_list(kind):
        values = change(array.values, kind.value_field)
        changed = pa.list_(kind.value_field.with_type(values.type))
        return array if changed.equals(kind, check_metadata=True) else _around(array, changed, values)
    return array


def _around(array: pa.Array, kind: pa.DataType, inner: pa.Array) -> pa.Array:
    """The same lists or maps, with other values."""
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[inner])


class _Renamed:
    """The columns of a batch under a schema of the same types: a cast would take a nested field of another name for one
    that is missing.
    """

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self.batch = batch
        self.schema = schema

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[Any, Any]:
        _own, columns = self.batch.__arrow_c_array__()
        return self.schema.__arrow_c_schema__(), columns
