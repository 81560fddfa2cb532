"""Makes a Delta table of a folder of Parquet files, or of an Iceberg table.

PROTOCOL.md: "Delta Table Specification".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import check_bool
from deltic.conversion.iceberg import foreign_table, is_metadata
from deltic.display.strings import counted, size
from deltic.errors import InvalidInputError
from deltic.monitoring.telemetry import operation
from deltic.table.table import Table, as_table
from deltic.transaction.alter import columns_of
from deltic.transaction.alter import field as column
from deltic.writing.options import checked

__all__ = ["Conversion", "ConvertResult", "convert", "root_of"]


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion did, or would do.

    `version`: of the commit, None of a dry run. `num_files`, `num_rows` and `num_bytes`: the totals of the table.
    `schema`: its columns, partition columns last.
    """

    version: int | None
    num_files: int
    num_rows: int
    num_bytes: int
    schema: pa.Schema = field(repr=False)

    @classmethod
    def of(cls, result: tuple[str, Any]) -> ConvertResult:
        """Take a result of the core."""
        counts = json.loads(result[0])
        return cls(counts["version"], counts["files"], counts["rows"], counts["bytes"], pa.schema(result[1]))

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
    """Make a Delta table of the Parquet files in a folder, as one commit. No file is moved or rewritten.

    All files below the folder are taken except hidden ones, whose name or folder begins with `_` or `.`. Their footers
    are read, 64 at a time, one request for each small footer; memory grows with the commit, about 500 bytes for each
    file. The columns are those of all files together, and are nullable.

    If the folder is an Iceberg table (it has `metadata/*.metadata.json`), its newest snapshot is converted (needs
    pyiceberg: `deltic[iceberg]`): its metadata and manifests have the live files and the columns, and memory grows with
    the number of all files. Columns are found by their field ids (`delta.columnMapping.mode` is `id`), so that added,
    renamed and dropped columns are read correctly; all are nullable. Identity partition columns become partition
    columns; other transforms (bucket, truncate, year to hour) do not. Files outside of the folder get absolute paths.
    The Iceberg table must not be written or maintained any more, and VACUUM will delete its metadata and older files.

    Arguments:
        uri: A path or URL, or a `Table`, whose settings and connections are used. For an Iceberg table one of its
            metadata files, or its folder. If the table is in a catalog, always pass the metadata file that the catalog
            names: no file in the folder says which snapshot is current. Pass credentials in `storage_options`, not in
            the query of the URL.
        partition_schema: The columns of folders such as `day=2013-01-01/hour=3`, in their order: types by name,
            `{"day": "date", "hour": "integer"}`, as for `deltic.field`, or a `pyarrow.Schema`. None if there are no
            such folders, and for an Iceberg table, whose metadata has them.
        collect_statistics: Whether the minimum, maximum and null count of each column in the footers become statistics,
            by which scans skip files. Floating-point columns get no minimum and maximum, since those of Parquet leave
            NaN out. If False, statistics only have the number of rows.
        properties: As for `deltic.create`, except those that data files depend on, such as `delta.columnMapping.mode`:
            set these afterwards. For an Iceberg table that one is `id`.
        name: The table's name, as information.
        description: Its description, as information.
        dry_run: True only reads the footers, and returns what would be done.
        storage_options: The store's settings, as for `Table`.

    Raises `TableExistsError` if there is a table already, `TableNotFoundError` if there is no file,
    `InvalidInputError`, naming the file, for one that is not Parquet, is not in folders of the partition columns, or
    has a column of another type than other files. For an Iceberg table `UnsupportedFeatureError`, naming column or
    file, for what a Delta table cannot have: delete files and deletion vectors (compact it first), files that are not
    Parquet, that are encrypted or have no field ids, columns of the types time, uuid, fixed, timestamp_ns and unknown,
    columns whose type was widened since some file was written or that have an initial default, files of an older
    partitioning, files that lack a column by which they were partitioned, the empty string as a partition value;
    `InvalidInputError` for metadata that cannot be read, if it is unclear which metadata file is the newest, and for a
    table that is written meanwhile.

    >>> import tempfile
    >>> import deltic, pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_to_dataset(pa.table({"day": ["a", "b"], "visits": [3, 4]}), folder, partition_cols=["day"])
    >>> deltic.convert(folder, partition_schema={"day": "string"}).num_rows
    2
    >>> deltic.Table(folder).scan(filter="day = 'b'").to_arrow()["visits"].to_pylist()
    [4]
    """
    given = {"properties": properties, "name": name, "description": description}
    conversion = Conversion.of(as_table(uri, storage_options), partition_schema, collect_statistics, given)
    only_plans = check_bool(dry_run, "dry_run")
    core = conversion.table._core
    with operation("convert", core.uri) as span:
        return span.record(
            ConvertResult.of(_deltic.convert(core, conversion.partitions, conversion.options, only_plans))
        )


@dataclass(frozen=True)
class Conversion:
    """The checked arguments of `convert`, in the form of the core."""

    table: Table
    partitions: Any
    options: str

    @classmethod
    def of(cls, table: Table, partition_schema: Any, statistics: bool, given: Mapping[str, Any]) -> Conversion:
        """Check the arguments, and read an Iceberg table's metadata."""
        options = {"collect_statistics": check_bool(statistics, "collect_statistics"), **checked(given)}
        partitions = _partition_schema(partition_schema)
        table, named = root_of(table)
        before: str | None = None
        if named is not None:
            metadata, files = named, _deltic.iceberg_metadata_files(table._core)
        elif (found := _deltic.iceberg_metadata(table._core)) is not None:
            metadata, before, files = found
        else:
            return cls(table, partitions, json.dumps(options))
        if partition_schema is not None:
            message = f"{table.uri} is an Iceberg table, whose partition columns are known: leave partition_schema out"
            raise InvalidInputError(message, table=table.uri)
        options["foreign"] = {**foreign_table(table, metadata, before), "metadata_files": files}
        return cls(table, partitions, json.dumps(options))


def root_of(table: Table) -> tuple[Table, str | None]:
    """The table that is to be converted, and the path of the given Iceberg metadata file below its root, if any.

    For the location of a metadata file it is another `Table`, of the whole folder, with the same settings.
    """
    if not is_metadata(table.uri):
        return table, None
    folder, _, file = table.uri.rpartition("/")
    root, _, name = folder.rpartition("/")
    if name != "metadata":
        message = f"{table.uri} is not in the folder `metadata` of an Iceberg table; pass the folder of the table"
        raise InvalidInputError(message, table=table.uri)
    return Table(root, table.storage_options), f"metadata/{file}"


def _partition_schema(given: Any) -> Any:
    if given is None:
        return pa.schema([])
    if isinstance(given, Mapping):
        return pa.schema([column(name, type) for name, type in given.items()])
    if isinstance(given, str):
        raise InvalidInputError('partition_schema must be types by name, such as {"day": "date"}, or a schema, not str')
    return columns_of(given, "partition_schema")
