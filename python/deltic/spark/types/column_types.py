"""Column types between Spark, Delta and Arrow: an allow-list in both directions.

A type that is not on the list is refused at every depth, with an error that names column and type. No value is passed
as a type with another meaning: a vector as a struct, a geometry as two binaries, a collated string as one that compares
byte by byte.

Column metadata that users may set, such as comments and the lengths of CHAR and VARCHAR, is passed from a DataFrame to
a new table, and from a table to Spark. Metadata that is part of a table's definition is not, since a DataFrame only has
rows: defaults, identities, generated columns, `delta.*`. PROTOCOL.md: "Schema Serialization Format", "Primitive Types".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from deltic.errors import DelticError, InvalidInputError, UnsupportedFeatureError
from deltic.reading.snapshot import Snapshot

__all__ = [
    "CHANGE_COLUMNS",
    "CHAR_VARCHAR",
    "ROW_TRACKING",
    "VARIANT",
    "has_char",
    "has_type",
    "schema_of",
    "to_arrow",
    "to_spark",
    "type_without_nullability",
    "with_binaries",
    "without_chars",
]

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""The key for the type of a column whose strings have a length in Spark: `varchar(4)`, `array<char(2)>`."""
_DESCRIBES = ("comment", CHAR_VARCHAR)
_USER_METADATA = "deltic.user_metadata"
"""The key in Arrow field metadata for a JSON object with further metadata of a column."""
_COLLATIONS = "__COLLATIONS"
ROW_TRACKING = tuple(StructField(name, LongType()) for name in ("_metadata.row_id", "_metadata.row_commit_version"))
"""Columns that a table with row tracking has in addition to its schema."""
CHANGE_COLUMNS = (
    StructField("_change_type", StringType()),
    StructField("_commit_version", LongType()),
    StructField("_commit_timestamp", TimestampType()),
)
"""Columns that the change data feed has in addition to those of the table."""

_DEFINITIONS = ("CURRENT_DEFAULT", "EXISTS_DEFAULT", "GENERATION_EXPRESSION")
_DEFINITION_PREFIXES = ("delta.", "identity.", "parquet.", "__", "ARROW:", "PARQUET:", "SPARK::", "deltic.")

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
"""A variant in Spark's Arrow form: Spark relies on the order of the two fields and on the mark."""

_TO_ARROW: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
    TimestampNTZType: pa.timestamp("us"),
    CharType: pa.string(),
    VarcharType: pa.string(),
    VariantType: VARIANT,
}

_TO_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "float": FloatType(),
    "double": DoubleType(),
    "variant": VariantType(),
    "decimal": DecimalType(10, 0),
    **dict.fromkeys(("long", "bigint"), LongType()),
    **dict.fromkeys(("integer", "int"), IntegerType()),
    **dict.fromkeys(("short", "smallint"), ShortType()),
    **dict.fromkeys(("byte", "tinyint"), ByteType()),
    **dict.fromkeys(("void", "null"), NullType()),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)")
_CHAR = re.compile(r"(?<!var)char\(", re.IGNORECASE)
_LENGTH = re.compile(r"(?:var)?char\(\s*\d+\s*\)")

_ADVICE = {
    "GeometryType": "store its well-known binary, with ST_AsBinary()",
    "GeographyType": "store its well-known binary, with ST_AsBinary()",
    "StringType": "add COLLATE UTF8_BINARY, if comparing it byte by byte is what you want",
    "NullType": "cast it to the type that the column shall have",
    "TimeType": "cast it to a string, or store the microseconds of the day as a number",
    "CalendarIntervalType": "cast it to a string, or store it as a number of its units",
    "DayTimeIntervalType": "store its seconds, CAST(CAST(... AS INTERVAL SECOND) AS DECIMAL(19, 6)), which times "
    "INTERVAL '1' SECOND are the interval again, or cast it to a string",
    "YearMonthIntervalType": "store its months, CAST(CAST(... AS INTERVAL MONTH) AS INT), which times "
    "INTERVAL '1' MONTH are the interval again, or cast it to a string",
}
_FEATURES = {
    "GeometryType": "geospatial",
    "GeographyType": "geospatial",
    "StringType": "collations",
}
"""The protocol's names of types that deltic does not pass to or from Spark."""

_MARKS = {
    "metadata": {"variant": "variantType"},
    "wkb": {"geometry": "geospatial", "geography": "geospatial"},
}
"""Fields of a struct, and their metadata, by which Spark takes the struct for another type, whatever the table
says."""


def to_arrow(schema: StructType, *, voids: bool = False, binaries: bool = False) -> pa.Schema:
    """Arrow schema of a DataFrame's batches, with UTC timestamps.

    Columns of type void have an Arrow type, but no table can have them: `voids` allows them. With `binaries` the parts
    of variants may be null, as in `with_binaries`.
    """
    extra_types: dict[type[DataType], pa.DataType] = {NullType: pa.null()} if voids else {}
    if binaries:
        extra_types[VariantType] = pa.struct([part.with_nullable(True) for part in VARIANT])
    return pa.schema([_arrow_field(field, "", extra_types) for field in schema.fields])


def with_binaries(kind: DataType) -> DataType:
    """A type with structs of two binaries instead of variants."""
    if isinstance(kind, StructType):
        return StructType(
            [StructField(field.name, with_binaries(field.dataType), field.nullable, field.metadata) for field in kind]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(with_binaries(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, with_binaries(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, VariantType):
        return StructType([StructField(part.name, BinaryType()) for part in VARIANT])
    return kind


def _arrow_field(field: StructField, inside: str, extra_types: Mapping[type[DataType], pa.DataType]) -> pa.Field:
    place = f"{inside}.{field.name}" if inside else field.name
    carried = _carried(field.metadata)
    metadata = {key: value for key, value in carried.items() if key in _DESCRIBES}
    if users := {key: value for key, value in carried.items() if key not in _DESCRIBES}:
        metadata[_USER_METADATA] = json.dumps(users)
    if not inside and has_type(field.dataType, CharType, VarcharType):
        metadata[CHAR_VARCHAR] = field.dataType.simpleString()
    return pa.field(field.name, _arrow_type(field.dataType, place, extra_types), field.nullable, metadata or None)


def _arrow_type(kind: DataType, place: str, extra_types: Mapping[type[DataType], pa.DataType]) -> pa.DataType:
    if type(kind) is StructType:
        return pa.struct([_arrow_field(field, place, extra_types) for field in kind.fields])
    if type(kind) is ArrayType:
        element = _arrow_type(kind.elementType, f"{place}.element", extra_types)
        return pa.list_(pa.field("element", element, kind.containsNull))
    if type(kind) is MapType:
        key = pa.field("key", _arrow_type(kind.keyType, f"{place}.key", extra_types), nullable=False)
        value = _arrow_type(kind.valueType, f"{place}.value", extra_types)
        return pa.map_(key, pa.field("value", value, kind.valueContainsNull))
    if type(kind) is DecimalType:
        return pa.decimal128(kind.precision, kind.scale)
    if type(kind) is StringType and kind.collation == "UTF8_BINARY":
        return pa.string()
    if type(kind) in extra_types:
        return extra_types[type(kind)]
    if type(kind) not in _TO_ARROW:
        raise _refused_to_write(kind, place)
    return _TO_ARROW[type(kind)]


def _refused_to_write(kind: DataType, place: str) -> DelticError:
    name = type(kind).__name__
    advice = _ADVICE.get(name, "store its parts as columns of types that Delta has")
    if hasattr(kind, "sqlType"):
        advice = "store its parts, such as vector_to_array() of pyspark.ml.functions gives, as columns of plain types"
    message = (
        f"column `{place}` has the Spark type {kind.simpleString()}, which deltic does not write from Spark: {advice}"
    )
    if name in _FEATURES:
        return UnsupportedFeatureError(message, features=[_FEATURES[name]])
    return InvalidInputError(message)


def has_type(kind: DataType, *sought: type[DataType]) -> bool:
    """Whether a type is one of these, or contains one."""
    if isinstance(kind, StructType):
        return any(has_type(field.dataType, *sought) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return has_type(kind.elementType, *sought)
    if isinstance(kind, MapType):
        return has_type(kind.keyType, *sought) or has_type(kind.valueType, *sought)
    return isinstance(kind, sought)


def _carried(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of a column's metadata that is not part of a table's definition."""
    kept = dict(metadata or {})
    for key in list(kept):
        if key != CHAR_VARCHAR and (key in _DEFINITIONS or key.startswith(_DEFINITION_PREFIXES)):
            del kept[key]
    for key in _DESCRIBES:  # Spark takes them for strings without a check.
        if key in kept and not isinstance(kept[key], str):
            del kept[key]
    return kept


def to_spark(snapshot: Snapshot, names: Sequence[str]) -> StructType:
    """Spark's schema for these columns of a table, with nullability and comments at every level.

    Raises `UnsupportedFeatureError` for a column whose type cannot be passed to Spark.
    """
    table = {field["name"]: field for field in json.loads(snapshot.metadata["schemaString"])["fields"]}
    ids = {field.name: field for field in ROW_TRACKING if field.name not in table}
    return StructType([ids.get(name) or _spark_field(table[name], "") for name in names])


def schema_of(schema_string: str) -> StructType:
    """Spark's schema for the columns of a `schemaString`. Raises the errors of `to_spark`."""
    return StructType([_spark_field(field, "") for field in json.loads(schema_string)["fields"]])


def type_without_nullability(kind: DataType) -> Any:
    """A type without nullability and metadata."""
    if isinstance(kind, StructType):
        return ("struct", *((field.name, type_without_nullability(field.dataType)) for field in kind.fields))
    if isinstance(kind, ArrayType):
        return ("array", type_without_nullability(kind.elementType))
    if isinstance(kind, MapType):
        return ("map", type_without_nullability(kind.keyType), type_without_nullability(kind.valueType))
    return kind.jsonValue()


def has_char(declared: str) -> bool:
    """Whether the declared type of a column contains a CHAR, at any depth."""
    return _CHAR.search(declared) is not None


def without_chars(schema: StructType) -> StructType:
    """The schema with its CHAR columns as STRING.

    Spark pads values that it compares with a CHAR, but pads the CHAR values only if they come from a relation.
    """
    fields = []
    for field in schema.fields:
        kept = dict(field.metadata or {})
        if has_char(kept.get(CHAR_VARCHAR, "")):
            del kept[CHAR_VARCHAR]
        fields.append(StructField(field.name, field.dataType, field.nullable, kept))
    return StructType(fields)


def _spark_field(field: Mapping[str, Any], inside: str) -> StructField:
    place = f"{inside}.{field['name']}" if inside else field["name"]
    metadata = field.get("metadata") or {}
    if metadata.get(_COLLATIONS):
        raise _refused_to_read("a string with a collation", place, "collations")
    for mark, feature in _MARKS.get(field["name"], {}).items():
        if inside and str(metadata.get(mark)).lower() == "true":
            raise _refused_to_read(f"a {mark}", inside, feature)
    kept = _carried(metadata)
    name = field["type"]
    if isinstance(name, str) and _LENGTH.fullmatch(name.strip().lower()):
        kept.setdefault(CHAR_VARCHAR, name.strip().lower())
    return StructField(field["name"], _spark_type(name, place), field.get("nullable", True), kept)


def _spark_type(kind: Any, place: str) -> DataType:
    """A type of the protocol as Spark's."""
    if isinstance(kind, dict):
        outer = kind.get("type")
        if outer == "struct":
            return StructType([_spark_field(field, place) for field in kind["fields"]])
        if outer == "array":
            return ArrayType(_spark_type(kind["elementType"], f"{place}.element"), kind.get("containsNull", True))
        if outer == "map":
            key = _spark_type(kind["keyType"], f"{place}.key")
            return MapType(key, _spark_type(kind["valueType"], f"{place}.value"), kind.get("valueContainsNull", True))
        # Some writers wrap a primitive type in an object.
        kind = outer
    name = str(kind).strip().lower()
    if name in _TO_SPARK:
        return _TO_SPARK[name]
    if _LENGTH.fullmatch(name):
        return StringType()
    if (decimal := _DECIMAL.fullmatch(name)) is not None:
        return DecimalType(int(decimal[1]), int(decimal[2] or 0))
    if name == "udt":
        raise _refused_to_read("a user-defined type", place, "user-defined types")
    feature = "geospatial" if name.startswith("geo") else f"type {name}"
    raise _refused_to_read(f"of the type {kind}", place, feature)


def _refused_to_read(what: str, place: str, feature: str) -> UnsupportedFeatureError:
    advice = "give the columns to read without it, or read it with deltic outside of Spark"
    message = f"`{place}` is {what}, which deltic does not carry to Spark: {advice}"
    return UnsupportedFeatureError(message, features=[feature])
