"""Creates tables and adds rows to them, each call as one commit.

Data files are written first and count only after the commit; a failure before it leaves the table unchanged.
PROTOCOL.md: "Commit Files", "Add File and Remove File", "Commit Provenance Information".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import (
    Compression,
    Mode,
    PartitionOverwrite,
    SchemaMode,
    check_int,
    check_name_or_names,
    check_names,
    check_str,
)
from deltic.errors import (
    InvalidInputError,
    MetadataChangedError,
    ProtocolChangedError,
    TableNotFoundError,
    VersionNotFoundError,
)
from deltic.hints.keywords import with_keyword_hints
from deltic.monitoring.telemetry import operation
from deltic.table.table import Table, as_table
from deltic.transaction.alter import columns_of
from deltic.transaction.transaction import Commit
from deltic.writing.data import stream
from deltic.writing.options import checked, core_options
from deltic.writing.read_once import mark_as_read

__all__ = ["Commit", "create", "write"]

CreateMode: TypeAlias = Literal["error", "ignore", "replace", "create_or_replace"]
"""What `create` does if there is a table already, or none."""


_INSTEAD_OF = {
    "overwrite": ": use 'create_or_replace' for an empty table with this schema, or deltic.write for new rows",
    "append": ": use 'ignore' to keep a table that exists, and deltic.write to add rows",
}
"""Modes of a write, which `create` does not have."""


def commit_core(transaction: _deltic.Transaction, max_attempts: int | None = None) -> Commit:
    """Commit a write; the core deletes its files if it is refused."""
    with operation("commit") as span:
        done = transaction.commit(max_attempts)
        assert done is not None, "a write is committed even if there are no rows"
        return span.record(Commit.parse(done[0]))


@with_keyword_hints("create")
def create(
    uri: str | os.PathLike[str] | Table,
    schema: Any,
    partition_by: str | Sequence[str] | None = None,
    *,
    cluster_by: str | Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    constraints: Mapping[str, str] | None = None,
    mode: CreateMode = "error",
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Create an empty table, as one commit, and return that.

    Arguments:
        uri: A path or URL, or a `Table`, whose settings and connections are used.
        schema: A `pyarrow.Schema`, or anything with `__arrow_c_schema__`. The metadata of its fields becomes that of
            the columns, such as `comment`, keys of your own, and the settings of `deltic.field`.
        partition_by: Columns of the schema, of primitive types, in the order of the folders; none by default.
        cluster_by: Paths of up to four columns by which the table is clustered, instead of partitions: see
            `Table.cluster_by`.
        properties: Strings by name, such as `{"delta.checkpointInterval": "20"}` (PROTOCOL.md: "Table Properties");
            names that do not begin with `delta.` can be chosen freely. The features that properties need are added to
            the protocol.
        name: The table's name, as information.
        description: Its description, as information.
        constraints: CHECK constraints, as SQL conditions by name: `{"positive": "amount > 0"}`.
        mode: `"error"` raises a `TableExistsError` if there is a table; `"ignore"` keeps it and returns its version,
            with no attempts; `"replace"` makes the existing table an empty one, and raises a `TableNotFoundError` if
            there is none; or `"create_or_replace"`. Replacing is a commit like others: older versions can be read, and
            other writers conflict with it. The new table has a new id, its own columns, partitioning and properties,
            and keeps the features of the protocol.
        storage_options: The store's settings, as for `Table`.

    Raises `InvalidInputError` for an invalid schema, partitioning or property, and for replacing a table where rows may
    only be added (`delta.appendOnly`); `TableExistsError` also if another writer creates the table at the same time;
    `UnsupportedFeatureError` for types, properties and column metadata that need features that deltic does not write;
    `StorageError` if the store fails.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/visits"
    >>> schema = pa.schema([("day", pa.date32()), ("visits", pa.int64())])
    >>> deltic.create(uri, schema, partition_by=["day"], name="visits").version
    0
    >>> deltic.create(uri, schema, mode="ignore").attempts
    0
    >>> deltic.create(uri, pa.schema([("day", pa.date32())]), mode="replace").version
    1
    """
    if mode not in ("error", "ignore", "replace", "create_or_replace"):
        hint = _INSTEAD_OF.get(mode, "") if isinstance(mode, str) else ""
        message = "mode must be 'error', 'ignore', 'replace' or 'create_or_replace'"
        raise InvalidInputError(f"{message}, not {mode!r}{hint}")
    definition = {"mode": mode, **checked({"properties": properties, "name": name, "description": description})}
    if isinstance(partition_by, str):
        partition_by = [partition_by]
    if (partition_columns := check_names(partition_by, "partition_by")) is not None:
        definition["partition_by"] = partition_columns
    if cluster_by is not None:
        definition["cluster_by"] = check_name_or_names(cluster_by, "cluster_by")
    if constraints is not None:
        definition["constraints"] = _expressions(constraints)
    columns = columns_of(schema, "schema")
    return Commit.parse(_deltic.create(as_table(uri, storage_options)._core, columns, json.dumps(definition)))


def _expressions(constraints: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(constraints, Mapping):
        message = "a mapping of names to SQL"
        raise InvalidInputError(f"constraints must be {message}, not {constraints.__class__.__name__}")
    return {
        check_str(name, "a constraint's name"): check_str(expression, f"constraint {name!r}")
        for name, expression in constraints.items()
    }


@with_keyword_hints("write")
def write(
    uri_or_table: str | os.PathLike[str] | Table,
    data: Any,
    mode: Mode = "append",
    partition_by: Sequence[str] | str | None = None,
    *,
    replace_where: str | None = None,
    partition_overwrite: PartitionOverwrite = "static",
    schema_mode: SchemaMode | None = None,
    data_change: bool = True,
    sort_by: Sequence[str] | str | None = None,
    target_file_size: int | str | None = None,
    max_rows_per_file: int | None = None,
    row_group_rows: int | None = None,
    compression: Compression | None = None,
    compression_level: int | None = None,
    column_options: Mapping[str, Mapping[str, Any]] | None = None,
    memory_limit: int | str | None = None,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    user_metadata: Mapping[str, Any] | str | None = None,
    commit_info: Mapping[str, Any] | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
    max_attempts: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Write rows as one commit, creating the table if there is none.

    Arguments:
        uri_or_table: A path or URL, or a `Table`, whose settings and connections are used. Appending through the same
            `Table` again within a minute, without `app_id`, reads nothing first: the commit is one request, with a
            check before and after it that the previous commit still exists.
        data: Anything with `__arrow_c_stream__` (pyarrow, polars, DuckDB results, a `Scan`), which is streamed, so that
            memory has a few batches and at most `memory_limit`; a `Dataset` or `Scanner` of pyarrow; a list or a
            generator of batches; a polars `LazyFrame`, which is collected; a list of dicts, in which a missing key is
            null; or a pandas DataFrame, whose named index becomes columns, before the others. An index of row numbers
            without a name is left out; another index without a name is refused. Columns are found by name; a nullable
            one that is missing becomes null, unless the table is partitioned by it. Values are converted to the
            column's type if all of them are exact in it, as int64 in double, whole floats in long or `2024-02-29` in
            date; otherwise the error names the first row that is not. Arrow's extension types are refused at every
            depth, except those whose stored values have the same meaning: JSON, UUIDs, and geometries of GeoArrow as
            well-known binary or text. As new columns those are refused, too, unless they were read from a table: their
            reference system would be lost. A new table gets the comments of the columns and no other metadata, so that
            rows of a table do not bring its definition along.
        mode: If there is a table already, `"append"` adds rows; `"overwrite"` replaces all rows; `"error"` raises a
            `TableExistsError`; `"ignore"` does nothing: the data is not read, and `attempts` is 0.
        partition_by: The partition columns of a new table, or one; on an existing table they must be the same.
        replace_where: Which rows `"overwrite"` replaces, as SQL with the grammar of `Snapshot.plan`: those that make it
            TRUE. Every row of the data must make it TRUE too; otherwise the error names the first that does not, and
            nothing is written. Files whose rows all match, as the log proves, are not read; in others the rows are
            deleted as by `Table.delete`, in the same commit.
        partition_overwrite: What `"overwrite"` replaces: `"static"`, all rows; `"dynamic"`, only those in the
            partitions for which the data has rows. A concurrent commit that adds rows to one of these partitions, or
            removes some, is a conflict. In a table without partitions all rows are replaced.
        schema_mode: How the table's columns change if the data has other columns, in the same commit. `"merge"` adds
            those that the table lacks, nested ones too, after its own (older rows have null in them), and widens types
            if `delta.enableTypeWidening` is true (PROTOCOL.md: "Type Widening"). `"overwrite"`, for mode `"overwrite"`,
            replaces the table's columns by those of the data, and the partitioning by `partition_by` if that is given.
            Without it, a column that the table does not have is an error.
        data_change: False means that the rows are those that the table has, in other files, so that readers of changes
            skip them (`dataChange` in PROTOCOL.md: "Add File and Remove File").
        sort_by: Columns by which rows are sorted, ascending, nulls first. Each row group is sorted, and so is a file
            whose rows take less than 64 MiB in memory.
        target_file_size: Bytes after which a new file begins, or a string such as `"256 MB"`, whose units are powers of
            1,024, as in the property; by default `delta.targetFileSize` or 128 MiB.
        max_rows_per_file: The most rows of a file.
        row_group_rows: The most rows of a row group; 1,048,576 by default.
        compression: The Parquet codec: `"zstd"`, `"snappy"`, `"gzip"`, `"lz4"`, `"brotli"` or `"uncompressed"`; by
            default `delta.parquet.compression.codec` or zstd.
        compression_level: The level of the codec: up to 22 for zstd, 0 to 9 for gzip, 0 to 11 for brotli.
        column_options: Options for single columns, by name or dotted path such as `"place.name"`, with `element`, `key`
            and `value` for the inside of arrays and maps; an option for a struct, array or map applies to all columns
            inside it. A mapping of `encoding` (`"plain"`, `"rle"`, `"delta_binary_packed"`,
            `"delta_length_byte_array"`, `"delta_byte_array"`, `"byte_stream_split"`), `dictionary` (whether values are
            dictionary-encoded; by default they are if no encoding is given), `compression`, `compression_level`, and
            `bloom_filter` (True, or a mapping of `fpp`, the probability of a false positive, and `ndv`, the distinct
            values of a row group). Not every reader supports every encoding.
        memory_limit: The most bytes of rows and encoded pages in memory, or a string such as `"1 GB"`; 512 MiB by
            default, at least 1 MiB. Rows of partitions for which there is no room are written to a temporary file (in
            `TMPDIR`) first, so that each partition has one file, however many partitions there are; if that disk is
            full, the write fails with a `StorageError`. Uploads to a bucket need more memory, which the limit does not
            count: for each open file the part of 8 MiB that is being filled, and up to 8 parts that are being sent, so
            72 MiB if the store is slow. One file can be open for each 8 MiB of the limit, at most 64.
        properties: Of a new table only, as for `create`.
        name: Of a new table only.
        description: Of a new table only.
        user_metadata: A string, or a mapping to be stored as JSON, for the commit's `userMetadata`.
        commit_info: Members of your own for the commit's entry in the history, by name; anything that JSON can hold.
            Names that Delta's clients write, such as `operation`, are refused.
        app_id: With `app_version`, an application's transaction, which is committed only once (PROTOCOL.md:
            "Transaction Identifiers").
        app_version: A whole number of 64 bits. If the table has this version of `app_id` or a later one, nothing is
            committed, and `attempts` is 0.
        max_attempts: How often to try if other writers commit first, as for `Table.transaction`.
        storage_options: The store's settings, as for `Table`; by default those of the given `Table`.

    Raises `InvalidInputError` if the data does not fit the table, a partition value cannot be encoded, or the source of
    the data, written in Python, raised an exception, which is the `__cause__`; `UnsupportedFeatureError` for a table or
    data with features that deltic does not write; `CommitConflictError` if another writer's commit conflicts with this
    one; `StorageError` if the store fails. After any error the table has either all of the rows or none.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/visits"
    >>> deltic.write(uri, pa.table({"page": ["/", "/docs"], "visits": [9, 4]})).version
    0
    >>> note = {"job": "nightly"}
    >>> commit = deltic.write(uri, pa.table({"page": ["/api"], "visits": [2]}), user_metadata=note, sort_by="page")
    >>> commit.version, commit.attempts, commit.num_added_files
    (1, 1, 1)
    >>> deltic.Table(uri).history(limit=1)[0]["userMetadata"]
    '{"job": "nightly"}'
    """
    options = {
        "partition_by": partition_by,
        "replace_where": replace_where,
        "partition_overwrite": partition_overwrite,
        "schema_mode": schema_mode,
        "data_change": data_change,
        "sort_by": sort_by,
        "target_file_size": target_file_size,
        "max_rows_per_file": max_rows_per_file,
        "row_group_rows": row_group_rows,
        "compression": compression,
        "compression_level": compression_level,
        "column_options": column_options,
        "memory_limit": memory_limit,
        "properties": properties,
        "name": name,
        "description": description,
        "user_metadata": user_metadata,
        "commit_info": commit_info,
        "app_id": app_id,
        "app_version": app_version,
    }
    chosen = core_options(mode, options)
    attempts = check_int(max_attempts, "max_attempts", 1)
    table = as_table(uri_or_table, storage_options)
    rows = stream(data, lambda: None if schema_mode == "overwrite" else _columns_of(table))
    with operation("write", table.uri) as span:
        transaction = _deltic.plan_write(table._core, rows.schema, chosen)
        uses_cached_state = transaction.uses_cached_state()
        try:
            return span.record(_written(transaction, data, rows, attempts))
        except (MetadataChangedError, ProtocolChangedError, TableNotFoundError, VersionNotFoundError):
            # The cached state of the table was outdated. A stream can be read only once.
            if not uses_cached_state or not isinstance(rows, pa.Table):
                raise
        return span.record(_written(_deltic.plan_write(table._core, rows.schema, chosen), data, rows, attempts))


def _columns_of(table: Table) -> pa.Schema | None:
    """The columns of a table; None if it does not exist."""
    try:
        return table.snapshot().schema
    except TableNotFoundError:
        return None


def _written(
    transaction: _deltic.Transaction,
    data: Any,
    rows: _deltic.ArrowStream | pa.RecordBatchReader | pa.Table,
    max_attempts: int | None,
) -> Commit:
    """The commit of the rows, which were made of `data`."""
    is_read, count = transaction.replayed() is None, None
    try:
        count = transaction.append(rows, isinstance(rows, pa.Table))
    except BaseException:
        # Rows that are kept may have been rewritten already, because of those that the write replaces.
        transaction.abandon()
        raise
    finally:
        if is_read:
            mark_as_read(data, count)
    return commit_core(transaction, max_attempts)
