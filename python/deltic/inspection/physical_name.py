"""Physical names of columns, which do not change when a column is renamed. PROTOCOL.md: "Column Mapping"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["column_keys", "comparable_schemas"]

_KEY = b"delta.columnMapping.physicalName"
_ID = b"delta.columnMapping.id"
_NEW_COLUMN = "col-"
"""Begins the physical names of columns that were added while there was column mapping."""


def comparable_schemas(before: pa.Schema, after: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
    """The schemas of two versions; without physical names if those of one say nothing about the other.

    Physical names are assigned when column mapping is enabled, and go when it is dropped and files are rewritten under
    the names of the schema. So they belong together only if it was not dropped between the versions.
    """
    if _belong_together(before, after):
        return before, after
    return _unmapped(before), _unmapped(after)


def column_keys(before: Iterable[pa.Field], after: Iterable[pa.Field]) -> tuple[list[str], list[str]]:
    """The names by which the columns of two versions are the same: those of one struct, or of the table.

    They are the physical names, or the names of a version without column mapping. The fields are those of
    `comparable_schemas`.
    """
    return list(map(_physical_name, before)), list(map(_physical_name, after))


def _belong_together(before: pa.Schema, after: pa.Schema) -> bool:
    was_mapped, is_mapped = (any(map(_is_mapped, schema)) for schema in (before, after))
    if was_mapped and is_mapped:
        old = {field.metadata[_ID]: _physical_name(field) for field in _all_fields(before) if _has_id(field)}
        now = ((field.metadata[_ID], _physical_name(field)) for field in _all_fields(after) if _has_id(field))
        return all(old.get(id, name) == name for id, name in now)
    if was_mapped:
        return not len(after)
    if not is_mapped or not len(before):
        return True
    # Enabled on a table, column mapping takes the names that its columns have then.
    names = set(before.names)
    keeps_some = any(_physical_name(field) in names for field in after)
    is_other = any(
        field.name in names and (key := _physical_name(field)) not in names and not key.startswith(_NEW_COLUMN)
        for field in after
    )
    return keeps_some and not is_other


def _all_fields(of: pa.Schema | pa.DataType) -> Iterator[pa.Field]:
    """The fields of a table or type, and those within them."""
    fields = of if isinstance(of, pa.Schema) else [of.field(at) for at in range(of.num_fields)]
    for field in fields:
        yield field
        yield from _all_fields(field.type)


def _unmapped(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_unmapped_field(field) for field in schema])


def _unmapped_field(field: pa.Field) -> pa.Field:
    metadata = {key: value for key, value in (field.metadata or {}).items() if key not in (_KEY, _ID)}
    return field.with_type(_unmapped_type(field.type)).with_metadata(metadata)


def _unmapped_type(of: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(of):
        return pa.struct([_unmapped_field(field) for field in of])
    if pa.types.is_list(of):
        return pa.list_(_unmapped_field(of.value_field))
    if pa.types.is_map(of):
        return pa.map_(_unmapped_field(of.key_field), _unmapped_field(of.item_field))
    return of


def _is_mapped(field: pa.Field) -> bool:
    return _KEY in (field.metadata or {})


def _has_id(field: pa.Field) -> bool:
    return _is_mapped(field) and _ID in field.metadata


def _physical_name(field: pa.Field) -> str:
    return str(field.metadata[_KEY].decode() if _is_mapped(field) else field.name)
