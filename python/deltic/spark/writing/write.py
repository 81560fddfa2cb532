"""Writes a Spark DataFrame: each task writes Parquet files in Rust, the driver commits once.

A task returns a row for each file that it wrote, and only rows of successful attempts arrive: files of a failed,
retried or speculative task are not in the commit. If the job fails, the driver finds the files of all tasks by their
names and deletes them. If the driver dies, the table is unchanged. Spark's own Parquet writer may write instead
(`native`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, get_args

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from deltic import _deltic
from deltic.arguments import (
    Compression,
    Engine,
    Mode,
    PartitionOverwrite,
    SchemaMode,
    check_bool,
    check_choice,
    check_int,
    check_name_or_names,
)
from deltic.errors import DelticError, InvalidInputError
from deltic.hints.keywords import with_keyword_hints
from deltic.monitoring.progress_bars import Work
from deltic.monitoring.telemetry import operation
from deltic.spark.location import shared
from deltic.spark.options import is_utc
from deltic.spark.sql.rules import column, evaluated
from deltic.spark.sql.time_zone import refuse_dependent, session_zone
from deltic.spark.tasks import Batches, collect, results
from deltic.spark.types.column_types import to_arrow
from deltic.spark.types.schema import nullable
from deltic.spark.writing.native import NativeWrite, check_arguments
from deltic.table.table import Table
from deltic.types.other_libraries import package_of
from deltic.write import Commit, commit_core
from deltic.writing.options import core_options

__all__ = ["write"]

_LOG = logging.getLogger("deltic")
_OVERWRITE_SETTING = "spark.sql.sources.partitionOverwriteMode"


def write_batches(plan: bytes, storage_options: dict[str, str] | None, rows: Iterator[pa.RecordBatch]) -> list[bytes]:
    """Write a task's rows and return its files, serialised."""
    first = next(rows, None)
    if first is None:
        return []
    stream = pa.RecordBatchReader.from_batches(first.schema, chain([first], rows))
    context = TaskContext.get()
    return _deltic.write_files(plan, storage_options, stream, task=context.partitionId() if context else None)


def _writer(plan: bytes, storage_options: dict[str, str] | None, names: list[str]) -> Batches:
    def write_task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = []

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                counts.append(batch.num_rows)
                yield batch.rename_columns(names)

        files = write_batches(plan, storage_options, counted())
        # All rows are counted with the first file, since only the core knows how many each file has.
        yield results(files, [sum(counts) if at == 0 else 0 for at in range(len(files))])

    return write_task


def discard(plan: bytes, storage_options: dict[str, str] | None) -> None:
    """Delete the files of a failed job's tasks; an error of the store is ignored, since the job's is raised."""
    with suppress(DelticError):
        _deltic.delete_files(plan, storage_options)


@with_keyword_hints("spark.write")
def write(
    df: DataFrame,
    uri: str | os.PathLike[str] | Table,
    mode: Mode = "append",
    partition_by: Sequence[str] | str | None = None,
    *,
    replace_where: str | None = None,
    partition_overwrite: PartitionOverwrite | None = None,
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
    optimize_write: bool = False,
    engine: Engine = "auto",
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Write a DataFrame as one commit, creating the table if there is none.

    Arguments that `deltic.write` has too mean the same, and have more words there.

    Arguments:
        df: The rows.
        uri: A path or URL, or a `deltic.Table`.
        mode: If there is a table already: `"append"`, `"overwrite"`, `"error"` or `"ignore"`.
        partition_by: The partition columns of a new table.
        replace_where: Which rows `"overwrite"` replaces, as SQL, which must not depend on the session's time zone if
            that is not UTC. The tasks check their rows, and the driver deletes those that are replaced, in the same
            commit.
        partition_overwrite: What `"overwrite"` replaces: `"static"`, all rows; `"dynamic"`, the partitions of the rows.
            None is the session's setting `spark.sql.sources.partitionOverwriteMode`; without partitions, or with
            `replace_where`, it has no effect.
        schema_mode: `"merge"` adds columns, `"overwrite"` replaces them; None refuses other columns.
        data_change: False if the rows are those that the table has, in other files.
        sort_by: Columns by which the rows of each file of a task are sorted.
        target_file_size: Bytes after which a task begins a new file, or a string such as `"256 MB"`.
        max_rows_per_file: The most rows of a file.
        row_group_rows: The most rows of a row group.
        compression: The Parquet codec, such as `"zstd"`.
        compression_level: The level of the codec.
        column_options: Encodings, codecs and Bloom filters of single columns.
        memory_limit: The most memory of each task outside the JVM, in bytes or as a string such as `"1 GB"`.
        properties: Properties of a new table.
        name: The name of a new table.
        description: The description of a new table.
        user_metadata: The commit's `userMetadata`: a string, or a mapping to be stored as JSON.
        commit_info: Members of your own for the commit's entry in the history.
        app_id: With `app_version`, an application's transaction, which is committed only once: in `foreachBatch` of a
            stream, pass a name for the stream and the number of the batch.
        app_version: The number of the application's transaction.
        max_attempts: How often to try if other writers commit first.
        optimize_write: True lets Spark redistribute the rows before they are written, by the table's partition columns
            if it has some (its hint REBALANCE), so that few tasks have the rows of a partition. Otherwise every task
            writes its own files, one for each partition value of its rows, and more if one would be too large.
        engine: `"arrow"` lets the tasks write Parquet in Rust, from the Arrow batches that Spark passes to Python.
            `"native"` uses Spark's own Parquet writer, without Python, in a separate folder of the table, and reads the
            statistics from the footers: the same rows, in files that end with the rows of a task. It evaluates no row,
            and is refused if the write needs that (`docs/spark.md` lists the cases). `"auto"`, the default, is
            `"arrow"`. The logger `deltic` logs the engine at the level INFO.
        storage_options: The store's settings, as for `deltic.Table`.

    The metadata of the columns, such as comments and the lengths of CHAR and VARCHAR, becomes that of a new table,
    except metadata that is part of a table's definition (defaults, generated columns, `delta.*`): a DataFrame only has
    rows. Columns of a new table are nullable, as with Spark's own writers.

    Constraints, generated columns and defaults of the table that deltic does not know are evaluated by Spark, in the
    session's time zone (`docs/spark.md`). If Spark does not know one either, the write is refused before any task runs:
    `UnsupportedFeatureError` names the function.

    Raises before any task runs: `InvalidInputError` if the DataFrame does not fit the table, has a column of a type
    that deltic does not write (intervals, times, user-defined types), or the location is `memory://`;
    `TableExistsError` for mode `"error"` if there is a table; and `UnsupportedFeatureError` for geometries and collated
    strings. Raises `CommitConflictError` if another writer's commit conflicts. An error in a task becomes Spark's
    `PythonException`, with the text of deltic's error, and nothing is committed; the files of the other tasks are
    deleted, except those of a task that is still running.

    >>> df = spark.createDataFrame([("UA", 2475)], "carrier string, distance int")
    >>> deltic.spark.write(df, uri + "_copy").version
    0
    >>> more = spark.createDataFrame([("UA", 184, 7)], "carrier string, distance int, month int")
    >>> deltic.spark.write(more, uri + "_copy", schema_mode="merge", sort_by="distance").version
    1
    """
    if not isinstance(df, DataFrame):
        raise TypeError(_not_a_frame(df))
    # Iterators are read once.
    partition_by, sort_by = _names(partition_by, "partition_by"), _names(sort_by, "sort_by")
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
    options["engine_evaluates"] = True
    chosen = core_options(mode, options)
    used, why = engine_and_reason(engine, "engine")
    attempts, rebalances = check_int(max_attempts, "max_attempts", 1), check_bool(optimize_write, "optimize_write")
    table = shared(uri, storage_options)
    rows = to_arrow(nullable(df.schema))
    if replace_where is not None:
        _refuse_dependent(replace_where, df, table, rows)
    elif partition_overwrite is None and mode == "overwrite":
        session = {"partition_overwrite": _session_overwrite(df, table, partition_by, schema_mode)}
        chosen = core_options(mode, options | session)
    transaction = _deltic.plan_write(table._core, rows, chosen)
    if transaction.replayed() is not None:
        # Nothing is written, so the rows need not be computed.
        return commit_core(transaction, attempts)
    plan = transaction.write_plan(rows)
    _LOG.info("%s: rows are written by the engine %r (%s)", table.uri, used, why)
    if rebalances:
        given = {name.lower() for name in rows.names}
        partitions = [name for name in _partition_columns(table, partition_by) if name.lower() in given]
        df = df.hint("rebalance", *map(column, partitions))
    with operation("write", table.uri) as span:
        if used == "native":
            check_arguments(options)
            native = NativeWrite(df, table, plan, rows)
            _append(transaction, native.run, native.discard)
        else:
            work = Work("WRITE", "rows")
            written = partial(write_collected, evaluated(df, plan, rows), plan, table.storage_options, work)
            _append(transaction, written, partial(discard, plan, table.storage_options))
        return span.record(commit_core(transaction, attempts))


def _not_a_frame(df: object) -> str:
    """The message for rows that are not Spark's."""
    kind = type(df)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{package_of(kind)}.{kind.__name__}"
    return (
        f"df must be a DataFrame of Spark, not {name}: use spark.createDataFrame(...), or write without Spark: "
        "deltic.write(uri, data)"
    )


def _session_overwrite(
    df: DataFrame, table: Table, partition_by: Sequence[str] | str | None, schema_mode: SchemaMode | None
) -> PartitionOverwrite:
    """What an overwrite replaces by the session's setting, as in delta-spark."""
    if str(df.sparkSession.conf.get(_OVERWRITE_SETTING)).lower() != "dynamic":
        return "static"
    if schema_mode == "overwrite":
        if _partition_columns(table, partition_by):
            raise InvalidInputError(
                'schema_mode="overwrite" is for writes that replace all rows, and the session\'s '
                f'{_OVERWRITE_SETTING} is dynamic, which leaves some: pass partition_overwrite="static" (the option '
                "partitionOverwriteMode)"
            )
        return "static"
    return "dynamic"


def _refuse_dependent(replace_where: str, df: DataFrame, table: Table, rows: pa.Schema) -> None:
    """Raise `InvalidInputError` if a condition may depend on the session's time zone."""
    zone = session_zone(df.sparkSession)
    if not is_utc(zone):
        columns = [rows, table.snapshot().schema] if table.exists() else [rows]
        refuse_dependent(replace_where, "replace_where", zone, columns)


def engine_and_reason(engine: object, argument: str) -> tuple[str, str]:
    """The engine that writes, and the reason for it."""
    chosen = check_choice(engine, argument, get_args(Engine))
    if chosen == "auto":
        return "arrow", "auto: it writes every table, with all statistics and files of the target size"
    return chosen, "requested"


def _append(
    transaction: _deltic.Transaction, written: Callable[[], list[bytes]], discarded: Callable[[], None]
) -> None:
    """Add the files of a job to a transaction; the files of a failed job are deleted."""
    try:
        transaction.append_files(written())
    except BaseException:
        transaction.abandon()
        discarded()
        raise


def write_collected(
    rows: tuple[DataFrame, list[str]], plan: bytes, settings: dict[str, str] | None, work: Work
) -> list[bytes]:
    """Write rows as `rules.evaluated` returns them, and return the files."""
    numbered, names = rows
    return collect(numbered, _writer(plan, settings, names), work)


def _partition_columns(table: Table, partition_by: Sequence[str] | str | None) -> list[str]:
    """The partition columns of the table after the write; the arguments were checked with the table."""
    if (given := _names(partition_by, "partition_by")) is not None:
        return given
    return table.snapshot().partition_columns if table.exists() else []


def _names(names: Sequence[str] | str | None, argument: str) -> list[str] | None:
    return None if names is None else check_name_or_names(names, argument)
