"""Physical names of columns, which do not change when a column is renamed. PROTOCOL.md: "Column Mapping"."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

__all__ = ["column_keys"]

_KEY = b"delta.columnMapping.physicalName"


def column_keys(before: Iterable[pa.Field], after: Iterable[pa.Field]) -> tuple[list[str], list[str]]:
    """The names by which the columns of two versions are the same: those of one struct, or of the table.

    They are the physical names, or the names of a version without column mapping. If only the version before has column
    mapping, it was dropped, and files were rewritten under the names of the schema: these count then.
    """
    before, after = list(before), list(after)
    if after and not any(map(_is_mapped, after)):
        return [field.name for field in before], [field.name for field in after]
    return list(map(_physical_name, before)), list(map(_physical_name, after))


def _is_mapped(field: pa.Field) -> bool:
    return _KEY in (field.metadata or {})


def _physical_name(field: pa.Field) -> str:
    return str(field.metadata[_KEY].decode() if _is_mapped(field) else field.name)
