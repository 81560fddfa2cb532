"""Schemas between Spark and Arrow, in one place.

Timestamps are microseconds: with zone UTC for Spark's TIMESTAMP, whatever the session's time zone, and without a zone
for TIMESTAMP_NTZ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StructField, StructType, VariantType

from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.snapshot import Snapshot

__all__ = ["fit", "nullable", "refuse_variants", "resolve", "to_arrow", "to_spark"]

_ROW_TRACKING = ("_metadata.row_id", "_metadata.row_commit_version")


def to_spark(schema: pa.Schema) -> StructType:
    """Spark's schema for what deltic reads, nullability kept at every level; `refuse_variants` looks for variants."""
    spark = types.from_arrow_schema(schema, prefer_timestamp_ntz=True)
    assert isinstance(spark, StructType)
    return spark


def to_arrow(schema: StructType) -> pa.Schema:
    """Arrow schema of a DataFrame's batches, with UTC timestamps."""
    for name in _variants(schema, ""):
        raise _no_variants(name, "store it as text, with to_json(), or as typed columns, with variant_get()")
    try:
        return types.to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # pyspark before 4.2 has another keyword, whose default is UTC
        return types.to_arrow_schema(schema)


def refuse_variants(snapshot: Snapshot, columns: Sequence[str]) -> None:
    """Raise `UnsupportedFeatureError` when one of a table's `columns` is or holds a variant."""
    for field in json.loads(snapshot.metadata["schemaString"])["fields"]:
        if field["name"] in columns:
            for name in _table_variants(field["type"], field["name"]):
                raise _no_variants(name, "give the columns to read without it, or read it with deltic outside of Spark")


def _no_variants(name: str, advice: str) -> UnsupportedFeatureError:
    told = f"`{name}` is a variant, which deltic does not carry to or from Spark: {advice}"
    return UnsupportedFeatureError(told, features=["variantType"])


def _variants(kind: DataType, place: str) -> Iterator[str]:
    if isinstance(kind, VariantType):
        yield place
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _variants(field.dataType, f"{place}.{field.name}" if place else field.name)
    elif isinstance(kind, ArrayType):
        yield from _variants(kind.elementType, f"{place}.element")
    elif isinstance(kind, MapType):
        yield from _variants(kind.keyType, f"{place}.key")
        yield from _variants(kind.valueType, f"{place}.value")


def _table_variants(kind: Any, place: str) -> Iterator[str]:
    """The same of a type as the protocol writes it (PROTOCOL.md: "Schema Serialization Format")."""
    if kind == "variant":
        yield place
    elif isinstance(kind, dict):
        for field in kind.get("fields", ()):
            # A struct with this mark is a variant to Spark, whatever it is to the table.
            if field["name"] == "metadata" and str(field.get("metadata", {}).get("variant")).lower() == "true":
                yield place
            yield from _table_variants(field["type"], f"{place}.{field['name']}")
        for inner in ("elementType", "keyType", "valueType"):
            if inner in kind:
                yield from _table_variants(kind[inner], f"{place}.{inner.removesuffix('Type')}")


def nullable(schema: StructType) -> StructType:
    """The schema with nulls allowed everywhere: what Spark infers of a DataFrame is no constraint on a table."""
    loose = schema._as_nullable()
    assert isinstance(loose, StructType)
    return loose


def resolve(given: StructType, table: StructType) -> StructType:
    """The schema a caller gave, its fields spelled as the table spells them; nullability is the caller's.

    `InvalidInputError`, naming it, for a field that the table does not have or has with another type: a conversion here
    would not be Spark's, and filters that Spark pushes would meet the type that is stored.
    """
    tracked = [StructField(name, LongType()) for name in _ROW_TRACKING if name not in table.names]
    return _resolve_fields(given, StructType([*table.fields, *tracked]), "")


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
    """A batch with the fields and nullability of `stored`, then called what `schema` calls them."""
    if batch.schema.equals(schema):
        return batch
    chosen = batch.cast(stored)
    return chosen if stored.equals(schema) else pa.record_batch(_Renamed(chosen, schema))


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
