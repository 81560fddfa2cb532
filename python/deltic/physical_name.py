"""Physical names of columns, which do not change when a column is renamed. PROTOCOL.md: "Column Mapping"."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["physical_name"]

_KEY = b"delta.columnMapping.physicalName"


def physical_name(field: pa.Field) -> str:
    """The physical name of a column, which is its name without column mapping."""
    found = (field.metadata or {}).get(_KEY)
    return str(field.name) if found is None else str(found.decode())
