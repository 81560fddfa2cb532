"""Changes rows of a table from Spark: the driver plans, decides and commits once, the executors read and write files.

Spark computes the source of a merge. Its rows are collected to the driver and sent to every executor. The rest is done
in Rust, with the results that `deltic.Table.delete`, `update` and `merge` describe.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import VariantType
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.dml import Assigned, RowChanges
from deltic.errors import DelticError, InvalidInputError, UnsupportedFeatureError
from deltic.merge_builder import Merge
from deltic.spark.location import checked_session, shared
from deltic.spark.schema import as_binaries, nullable
from deltic.spark.tasks import Batches, cores, each, run_tasks
from deltic.spark.types import CHAR_VARCHAR, has_char, has_type, to_arrow, with_binaries
from deltic.table import Table
from deltic.transaction import Commit

__all__ = ["delete", "merge", "on_executors", "source_rows", "update"]

BYTES_PER_TASK = 32 * 1024 * 1024
"""The least bytes of files for a task."""

TASKS_PER_CORE = 4
"""The most tasks of a job for each core: some write more than others."""

LARGE_SOURCE = 32 * 1024 * 1024
"""From this size of a source in bytes a job has at most one task for each core: each task builds a hash table of it."""

LONGEST_MESSAGE = 32 * 1024 * 1024
"""The most bytes of a source that a client of Spark Connect sends with a job."""

RowChange: TypeAlias = tuple[str, str, pa.Table, pa.Table | None]
"""A DELETE, UPDATE or MERGE: its kind, its parameters as JSON, the values that columns are set to, and the source."""


def _sent(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue()


def _changer(storage_options: dict[str, str] | None, row_change: RowChange) -> Batches:
    kind, parameters, values, source = row_change
    # Spark broadcasts a function of this size.
    sent = _sent(values).to_pybytes(), None if source is None else _sent(source).to_pybytes()

    def change(task: bytes, settings: dict[str, str] | None) -> bytes:
        rows = [None if given is None else pa.ipc.open_stream(given).read_all() for given in sent]
        return _deltic.change_rows(task, settings, (kind, parameters, rows[0], rows[1]))

    return each(change, storage_options)


class _OnExecutors:
    """Changes the rows of a transaction by tasks on executors: `deltic.dml.RowChanges`."""

    def __init__(self, core: _deltic.Transaction, spark: SparkSession, settings: dict[str, str] | None) -> None:
        self._core = core
        self._spark = spark
        self._settings = settings

    def delete(self, filter: str | None = None) -> int | None:
        done = self._change(("delete", "", pa.table({}), None), filter)
        return self._core.delete(filter) if done is None else done["deleted"]

    def update(self, set: list[tuple[str, str | None]], values: Any, filter: str | None = None) -> int:
        done = self._change(("update", json.dumps(set), values, None), filter)
        return self._core.update(set, values, filter) if done is None else int(done["updated"])

    def merge(self, data: Any, request: str, values: Any) -> str:
        done = self._change(("merge", request, values, data), None)
        return self._core.merge(data, request, values) if done is None else json.dumps(done["merged"])

    def _change(self, row_change: RowChange, filter: str | None) -> dict[str, Any] | None:
        """The counts of changed rows; None if the core should change them itself, since there is at most one task."""
        source = 0 if row_change[3] is None else row_change[3].nbytes
        tasks = cores(self._spark) * (TASKS_PER_CORE if source < LARGE_SOURCE else 1)
        if is_remote() and source > LONGEST_MESSAGE:
            tasks = 1
        planned = _deltic.plan_row_change(self._core, row_change, filter, (tasks, BYTES_PER_TASK))
        if planned is None:
            return None
        try:
            changer = _changer(self._settings, row_change)
            results = run_tasks(self._spark, planned.tasks(), changer, row_change[0].upper())
        except BaseException:
            with suppress(DelticError):
                planned.discard(self._core)
            raise
        done: dict[str, Any] = json.loads(planned.apply(self._core, results))
        return done


class _ExecutorTable(Table):
    """A table whose rows are changed by executors."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._core = table._core
        self._spark = spark

    def _row_changes(self, core: _deltic.Transaction) -> RowChanges:
        return _OnExecutors(core, self._spark, self.storage_options)


def on_executors(spark: SparkSession, table: Table) -> Table:
    """The same table, whose `delete`, `update` and `merge` run on the executors of `spark`."""
    return _ExecutorTable(spark, table)


def delete(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    where: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    **commit_options: Any,
) -> Commit:
    """Delete the rows that make `where` TRUE, or all rows, as one commit: see `deltic.Table.delete`.

    `uri`: a location, or a `deltic.Table`. The other arguments are those of `deltic.Table.delete`, and mean the same.

    The driver chooses the files that may have such rows, as `deltic.Table.delete` does, and commits once. The executors
    find the rows and write files: up to four tasks for each core, each with about the same number of bytes and at least
    32 MiB; up to one for each core if the source of a merge is larger than that. If this makes only one task, the
    driver does the work itself. Nothing of a failed or killed task is in the commit. If a job fails its files are
    deleted, except those of a task that is still running.

    Raises the errors of `deltic.Table.delete`, also those in tasks, and `InvalidInputError` for `memory://`. If the
    store fails in a task, or a task is killed, it raises Spark's error.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1,), (2,)], "id long"), uri + "_rows")
    >>> deltic.spark.delete(spark, uri + "_rows", "id = 1").metrics["numDeletedRows"]
    1
    """
    checked_session(spark)
    return on_executors(spark, shared(uri, storage_options)).delete(where, **commit_options)


def update(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    set: Mapping[str, Assigned],
    where: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    **commit_options: Any,
) -> Commit:
    """Set columns of the rows that make `where` TRUE, of all rows without it: see `deltic.Table.update`.

    `uri`: a location, or a `deltic.Table`. The other arguments are those of `deltic.Table.update`, and mean the same;
    who does the work, and what is raised, `delete` says.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string"), uri + "_set")
    >>> deltic.spark.update(spark, uri + "_set", {"v": "upper(v)"}, "id = 2").metrics["numUpdatedRows"]
    1
    """
    checked_session(spark)
    return on_executors(spark, shared(uri, storage_options)).update(set, where, **commit_options)


def merge(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    source: DataFrame,
    on: str,
    source_alias: str = "source",
    target_alias: str = "target",
    *,
    storage_options: Mapping[str, str] | None = None,
    **commit_options: Any,
) -> Merge[Commit]:
    """Begin a merge of a DataFrame into a table: see `deltic.Table.merge`.

    `uri`: a location, or a `deltic.Table`. `source` is computed by Spark when the merge is executed or previewed, once.
    Its rows are collected to the driver and sent to every executor, and each task that runs holds them beside a hash
    table of their keys: all of these must have memory for that. `memory_limit` is what the driver holds of the rows
    when it has collected them; tasks hold all. The other arguments are those of `deltic.Table.merge`, and mean the
    same.

    `delete` says which process does the work, and what it raises. The driver writes the inserted rows, and computes a
    preview alone. A client of Spark Connect does all of it itself when the source has more than 32 MiB in Arrow's form:
    larger messages are not sent.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string"), uri + "_merged")
    >>> news = spark.createDataFrame([(2, "B"), (3, "C")], "id long, v string")
    >>> merge = deltic.spark.merge(spark, uri + "_merged", news, "source.id = target.id")
    >>> metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute().metrics
    >>> metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]
    (1, 1)
    """
    checked_session(spark)
    table = on_executors(spark, shared(uri, storage_options))
    return table.merge(source_rows(source), on, source_alias, target_alias, **commit_options)


class _Collected:
    """Rows that Spark computes when they are read, with the columns' metadata."""

    def __init__(self, frame: DataFrame, schema: pa.Schema) -> None:
        self._frame = frame
        self._schema = schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        frame = self._frame
        if has_type(frame.schema, VariantType):
            frame = frame.mapInArrow(_binaries, with_binaries(frame.schema))  # type: ignore[arg-type]
        rows: pa.Table = frame.toArrow()
        return rows.cast(self._schema).__arrow_c_stream__(requested_schema)


def _binaries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Variants as plain structs, since `toArrow` fails if a variant is null."""
    for batch in batches:
        yield pa.record_batch(list(map(as_binaries, batch.columns, batch.schema)), names=batch.schema.names)


def source_rows(source: DataFrame) -> Any:
    """The rows of a DataFrame as data for the core, computed when they are read.

    Raises the errors of `write` for columns of types that deltic does not write, and `UnsupportedFeatureError` for
    those of type CHAR, which Spark pads with blanks when it reads them: no string of the table would be equal to them.
    """
    if not hasattr(source, "toArrow"):
        raise InvalidInputError(f"source must be a Spark DataFrame, not {type(source).__name__}")
    schema = to_arrow(nullable(source.schema), voids=True, binaries=True)
    for column in schema:
        declared = (column.metadata or {}).get(CHAR_VARCHAR.encode(), b"").decode()
        if has_char(declared):
            message = f"the source's column `{column.name}` is of type {declared}, whose values Spark pads with blanks"
            hint = f"take them away, as by source.withColumn({column.name!r}, F.rtrim({column.name!r}))"
            raise UnsupportedFeatureError(f"{message}, and deltic compares and stores strings as they are: {hint}")
    return _Collected(source, schema)
