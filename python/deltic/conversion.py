"""A folder of Parquet files becomes a table. PROTOCOL.md: "Delta Table Specification"."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltic import _deltic
from deltic.alter import columns_of
from deltic.alter import field as column
from deltic.arguments import flag
from deltic.display import counted, size
from deltic.errors import InvalidInputError
from deltic.table import Table, opened
from deltic.write_options import checked

__all__ = ["ConvertResult", "convert"]


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion did, or would do.

    `version`: of the commit, None of a dry run. `num_files`, `num_rows` and `num_bytes`: what the table has.
    `schema`: its columns, those of the folders last.
    """

    version: int | None
    num_files: int
    num_rows: int
    num_bytes: int
    schema: pa.Schema = field(repr=False)

    def __str__(self) -> str:
        verb = "would be converted" if self.version is None else "converted"
        files, rows = counted(self.num_files, "file"), counted(self.num_rows, "row")
        return f"{files} {verb} ({rows}, {size(self.num_bytes)})"


def convert(
    uri: str | os.PathLike[str] | Table,
    *,
    partition_schema: Any = None,
    collect_statistics: bool = True,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> ConvertResult:
    """Make a Delta table of the Parquet files in a folder, as one commit. No file is moved or written again.

    All files below the folder are taken but hidden ones, whose name or folder begins with `_` or `.`. Their footers
    are read, 64 at a time, one request each where it is small; memory grows with the commit, some 500 bytes for each
    file. The columns are those of all files together, and may be null.

    Arguments:
        uri: A path or URL, or a `Table`, whose settings and connections are used.
        partition_schema: The columns of folders such as `day=2013-01-01/hour=3`, in their order: types by name,
            `{"day": "date", "hour": "integer"}`, as `deltic.field` has them, or a `pyarrow.Schema`. None where there
            are no such folders.
        collect_statistics: Whether minimum, maximum and null count of each column, as the footers have them, become
            statistics, by which scans leave files out. Floating-point columns get no minimum and maximum: those of
            Parquet leave NaN out. Without it each file has its number of rows only.
        properties: As for `deltic.create`; not those that ask something of data files, such as
            `delta.columnMapping.mode`: set these afterwards.
        name: The table's name, for people.
        description: What it holds, for people.
        dry_run: Whether only to read the footers, and to say what would be done.
        storage_options: The store's settings, as for `Table`.

    Raises `TableExistsError` where there is a table already, `TableNotFoundError` where there is no file,
    `InvalidInputError`, naming the file, for one that is no Parquet, is not in folders of the partition columns, or has
    a column of another type than other files, and `UnsupportedFeatureError` for an Iceberg table.

    >>> import tempfile
    >>> import deltic, pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_to_dataset(pa.table({"day": ["a", "b"], "visits": [3, 4]}), folder, partition_cols=["day"])
    >>> deltic.convert(folder, partition_schema={"day": "string"}).num_rows
    2
    >>> deltic.Table(folder).scan(filter="day = 'b'").to_arrow()["visits"].to_pylist()
    [4]
    """
    options = {
        "collect_statistics": flag(collect_statistics, "collect_statistics"),
        **checked({"properties": properties, "name": name, "description": description}),
    }
    table = opened(uri, storage_options)
    partitions = _partition_schema(partition_schema)
    text, schema = _deltic.convert(table._core, partitions, json.dumps(options), flag(dry_run, "dry_run"))
    told = json.loads(text)
    return ConvertResult(told["version"], told["files"], told["rows"], told["bytes"], pa.schema(schema))


def _partition_schema(given: Any) -> Any:
    if given is None:
        return pa.schema([])
    if isinstance(given, Mapping):
        return pa.schema([column(name, type) for name, type in given.items()])
    if isinstance(given, str):
        raise InvalidInputError('partition_schema must be types by name, such as {"day": "date"}, or a schema, not str')
    return columns_of(given, "partition_schema")
