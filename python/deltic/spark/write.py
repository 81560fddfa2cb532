"""Writing a Spark DataFrame: each task writes Parquet files in Rust, the driver commits once.

A task hands back one row for each file it wrote, and only rows of successful attempts arrive: a failed, retried or
speculative task leaves files that no commit names, and so does a job that fails in another task, for its rows do not
arrive. A dead driver leaves the table as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from deltic import _deltic
from deltic.spark.location import shared
from deltic.spark.schema import nullable
from deltic.spark.types import to_arrow
from deltic.table import Table
from deltic.write import Commit, commit
from deltic.write_options import core_options

__all__ = ["write"]


def write_batches(plan: bytes, storage_options: dict[str, str] | None, rows: Iterator[pa.RecordBatch]) -> list[bytes]:
    """Write a task's rows and return its files, serialised."""
    first = next(rows, None)
    if first is None:
        return []
    stream = pa.RecordBatchReader.from_batches(first.schema, chain([first], rows))
    context = TaskContext.get()
    return _deltic.write_files(plan, storage_options, stream, task=context.partitionId() if context else None)


def _writer(
    plan: bytes, storage_options: dict[str, str] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = write_batches(plan, storage_options, rows)
        yield pa.record_batch([pa.array(files, pa.binary())], names=["file"])

    return write_task


def write(
    df: DataFrame,
    uri: str | os.PathLike[str] | Table,
    mode: str = "append",
    partition_by: Sequence[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    target_file_size: int | None = None,
    compression: str | None = None,
    user_metadata: str | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
) -> Commit:
    """Write a DataFrame as one commit, creating the table if there is none.

    The arguments are those of `deltic.write` that have the same names; it has more.

    `uri`: a location, or a `deltic.Table`. The metadata of the columns, such as comments and the lengths of CHAR and
    VARCHAR, becomes that of a new table, but for what defines one (defaults, generated columns, `delta.*`): a DataFrame
    is rows and no definition.

    Every task writes its own files, one or more for each partition value it meets: repartition the DataFrame by
    `partition_by` beforehand when a table has many partitions. Columns of a new table are nullable, as Spark's own
    writers make them.

    With `app_id` and `app_version` a write that is made again commits nothing: in `foreachBatch` of a stream, give a
    name of the stream's own and the number of the batch.

    Raises before any task runs: `InvalidInputError` when the DataFrame does not fit the table, has a column of a type
    that deltic does not write (intervals, times, user-defined types), or the location is `memory://`; and
    `UnsupportedFeatureError` for variants, geometries and collated strings. `CommitConflictError` when another writer's
    commit may not be followed. Failures in a
    task reach the caller as Spark's `PythonException`, the deltic error in its text, and commit nothing; the files of
    tasks that ended before stay, named by no commit.

    >>> df = spark.createDataFrame([("UA", 2475)], "carrier string, distance int")
    >>> deltic.spark.write(df, uri + "_copy").version
    0
    """
    options = {
        "partition_by": partition_by,
        "properties": properties,
        "name": name,
        "description": description,
        "target_file_size": target_file_size,
        "compression": compression,
        "user_metadata": user_metadata,
        "app_id": app_id,
        "app_version": app_version,
    }
    table = shared(uri, storage_options)
    rows = to_arrow(nullable(df.schema))
    transaction = _deltic.plan_write(table._core, rows, core_options(mode, options))
    if transaction.replayed() is not None:
        # Nothing is to be written, so that the rows need not be computed.
        return commit(transaction)
    plan = transaction.write_plan(rows)
    tasks = df.mapInArrow(_writer(plan, table.storage_options), "file binary")
    files = tasks.toArrow().column(0).to_pylist()
    try:
        transaction.append_files(files)
    except BaseException:
        transaction.abandon()
        raise
    return commit(transaction)
