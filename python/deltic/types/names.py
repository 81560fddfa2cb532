"""Delta's names of types, for display of columns. PROTOCOL.md: "Primitive Types"."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["type_name"]

_KEY = b"delta.type"
"""Keys in the metadata of fields whose Arrow type is only an encoding: variants, geometries, types of other clients."""

_PRIMITIVES = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.int16(): "short",
    pa.int8(): "byte",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.null(): "void",
}


def type_name(of: pa.Field | pa.DataType) -> str:
    """The type of a column of a table, such as `long`, `decimal(5,2)` or `array<struct<x: date>>`.

    Arrow types that no column of a table has get Arrow's name.

    >>> type_name(pa.list_(pa.struct([("x", pa.int32())])))
    'array<struct<x: integer>>'
    """
    if isinstance(of, pa.Field):
        name = (of.metadata or {}).get(_KEY, b"").decode()
        # Types of other clients are JSON.
        return name if name and not name.startswith(("{", '"')) else type_name(of.type)
    if pa.types.is_struct(of):
        return f"struct<{', '.join(f'{field.name}: {type_name(field)}' for field in of)}>"
    if pa.types.is_list(of):
        return f"array<{type_name(of.value_field)}>"
    if pa.types.is_map(of):
        return f"map<{type_name(of.key_field)}, {type_name(of.item_field)}>"
    if pa.types.is_decimal128(of):
        return f"decimal({of.precision},{of.scale})"
    return _PRIMITIVES.get(of, str(of))
