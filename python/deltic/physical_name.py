"""Physical names of columns, which stay when a column is renamed. PROTOCOL.md: "Column Mapping"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from deltic import _deltic

__all__ = ["by_name", "partition_columns", "physical_name"]

_KEY = b"delta.columnMapping.physicalName"


def physical_name(field: pa.Field) -> str:
    """The physical name of a column, which is its name where columns are not mapped."""
    found = (field.metadata or {}).get(_KEY)
    return str(field.name) if found is None else str(found.decode())


def partition_columns(table: _deltic.Table) -> dict[str, str]:
    """The names of the partition columns of the latest version by their physical names."""
    snapshot = table.snapshot()
    fields = pa.schema(snapshot.schema())
    return {physical_name(fields.field(name)): name for name in json.loads(snapshot.metadata())["partitionColumns"]}


def by_name(partitions: list[dict[str, Any]], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Partitions whose `values` have physical names, with the names of the columns."""
    return [
        {**partition, "values": {names.get(name, name): value for name, value in partition["values"].items()}}
        for partition in partitions
    ]
