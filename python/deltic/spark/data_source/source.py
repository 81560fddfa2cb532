"""The data source behind `spark.read.format("deltic")` and `df.write.format("deltic")`.

Spark makes these objects on the driver and sends them, pickled, to short-lived Python processes: they only have plain
data. The version to read is fixed when `load()` is called, or at the first use if the caller gives a schema.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.arguments import check_int
from deltic.errors import DelticError, InvalidInputError, UnsupportedFeatureError
from deltic.reading.scan import batches
from deltic.reading.snapshot import Snapshot
from deltic.spark.location import opened, shared
from deltic.spark.options import location, read_arguments, storage_options, write_arguments
from deltic.spark.read import group_count, log_plan
from deltic.spark.sql.time_zone import refuse_dependent
from deltic.spark.types.column_types import CHANGE_COLUMNS, ROW_TRACKING, to_arrow, to_spark
from deltic.spark.types.schema import check_all_columns, fit, nullable, resolve
from deltic.spark.writing.write import discard, engine_and_reason, write_batches
from deltic.table.table import Table
from deltic.write import commit_core
from deltic.writing.options import core_options

__all__ = ["DelticDataSource", "refuse_stream", "register"]

_LOG = logging.getLogger("deltic.spark")


def register(spark: SparkSession) -> None:
    """Register `format("deltic")` with a session.

    Reading: `spark.read.format("deltic").option("filter", "month = 7").load(uri)`. Options: `filter`, in the syntax of
    `deltic.Snapshot.plan`; `version` or `timestamp`, also as `versionAsOf` and `timestampAsOf`; `partitions`;
    `readChangeFeed` with `startingVersion` or `startingTimestamp`, and `endingVersion` or `endingTimestamp`, which
    reads the rows of `deltic.Table.changes`; and the store's settings with the prefix `storage.`. A schema given with
    `.schema(...)` reads only its columns and nested fields, with the types that the table has: cast after `load`. With
    the option `all_columns` it must have all columns of the table, in its order.

    `.where()` and `.select()` after `load` reduce nothing: every file and every column is read before Spark applies
    them. Use the option `filter` and `.schema(...)` instead, or `deltic.spark.read(columns=, filter=)`.
    `docs/decisions/001-spark-pushes-no-filters.md` has the reason.

    Writing: `df.write.format("deltic").mode("append").option("partition_by", "year,month").save(uri)`. Modes: append
    and overwrite; `install` adds the others, and `.partitionBy()`. Options: those of `deltic.spark.write` by the same
    names, or by Spark's and Delta's own (`mergeSchema`, `replaceWhere` and so on: `docs/spark.md` lists them), lists as
    names with commas between them, mappings as JSON text, and the store's settings with the prefix `storage.`.

    In SQL: `deltic.spark.create_view` makes a view in Spark's catalog, and `CREATE TEMPORARY VIEW flights USING deltic
    OPTIONS (path '...', filter 'month = 7')` one of the session, which stays at its version. `CREATE TABLE` and
    `saveAsTable` do not work, since Spark passes a Python data source neither the location nor the options of a table
    in its catalog.

    Streams are refused: `foreachBatch` with `deltic.spark.write(df, uri, app_id=..., app_version=batch_id)` writes one.

    A load and a save raise an exception of Spark, with the text of deltic's error: one of `deltic.spark.read` or
    `deltic.spark.write`, or `InvalidInputError` for an unknown option.

    >>> deltic.spark.register(spark)
    >>> spark.read.format("deltic").option("filter", "distance > 2000").load(uri).count()
    1
    """
    with _active(spark):
        spark.dataSource.register(DelticDataSource)


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one for the block: otherwise Spark refuses a name that the other active session has."""
    if is_remote():
        yield
        return
    sessions = spark._jvm.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@dataclass
class TaskGroup(InputPartition):
    """The files that one Spark task reads; None if the plan has none."""

    files: bytes | None


@dataclass
class Written(WriterCommitMessage):
    """The files that one Spark task wrote, serialised."""

    files: list[bytes]


class DelticDataSource(DataSource):
    """Delta tables as a Spark data source; see `register`.

    Spark applies `.where()` and `.select()` only after every file and column was read; use the option `filter` and
    `.schema(...)`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options; Spark makes this object."""
        super().__init__(options)
        self._version: int | None = None
        self._versions: range | None = None

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "deltic"

    def __getstate__(self) -> dict[str, Any]:
        # Spark does not call `schema` if the caller gives one. All reads of the DataFrame are made of this state.
        if self._version is None and self._versions is None:
            with suppress(DelticError):  # It is raised again where rows are read.
                self._snapshot(read_arguments(self.options))
        return self.__dict__

    def schema(self) -> StructType:
        """Open the table, and fix the version that will be read, or the versions whose changes will be read."""
        arguments = read_arguments(self.options)
        snapshot = self._snapshot(arguments)
        return _columns(snapshot, arguments)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan a read of the columns of `schema`."""
        arguments = read_arguments(self.options)
        snapshot = self._snapshot(arguments)
        changes = arguments["changes"]
        if arguments.get("all_columns"):
            check_all_columns(schema, _columns(snapshot, arguments))
        stored = resolve(schema, snapshot, CHANGE_COLUMNS if changes else ROW_TRACKING)
        request = _Request(self._table(), stored.names, arguments.get("filter"), arguments.get("partitions"))
        arrow = _Schemas(to_arrow(stored, voids=True), to_arrow(schema, voids=True))
        if changes:
            assert self._versions is not None
            return _ChangesReader(self._versions, request, arrow)
        return _Reader(snapshot, request, arrow)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Check the schema against the table, and prepare a write."""
        arguments = write_arguments(self.options)
        if arguments.pop("optimize_write", False):
            raise InvalidInputError(
                "option 'optimizeWrite' needs deltic.spark.install(spark), because a Python data source cannot choose "
                "how rows are divided among tasks: install it, or repartition the DataFrame"
            )
        if engine_and_reason(arguments.pop("engine", "auto"), "option 'engine'")[0] == "native":
            raise InvalidInputError(
                "option 'engine' = 'native' needs deltic.spark.install(spark), because Spark hands the rows to a "
                "Python data source and not to its own writer: install it, or use "
                "deltic.spark.write(df, uri, engine='native')"
            )
        attempts = check_int(arguments.pop("max_attempts", None), "option 'max_attempts'", 1)
        table = self._table()
        rows = to_arrow(nullable(schema))
        chosen = core_options("overwrite" if overwrite else "append", arguments)
        if "replace_where" in arguments:
            # Only Spark's driver knows the session.
            columns = [rows, table.snapshot().schema] if table.exists() else [rows]
            refuse_dependent(arguments["replace_where"], "option 'replaceWhere'", None, columns)
        transaction = _deltic.plan_write(table._core, rows, chosen)
        return _Writer(transaction.write_plan(rows), transaction.header(), table.storage_options, attempts)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that refuses `spark.readStream`: `UnsupportedFeatureError` says what to do instead."""
        return _NoStream()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse `df.writeStream.format("deltic")`: `UnsupportedFeatureError` says what to do instead."""
        raise UnsupportedFeatureError(
            "format 'deltic' cannot be written as a stream: use foreachBatch with a function of (df, batch_id) that "
            "calls deltic.spark.write(df, uri, app_id=..., app_version=batch_id), which commits each batch once"
        )

    def _table(self) -> Table:
        return shared(location(self.options), storage_options(self.options))

    def _snapshot(self, arguments: dict[str, Any]) -> Snapshot:
        table = self._table()
        if arguments["changes"]:
            if self._versions is None:
                self._versions = table.changes(arguments["start"], arguments.get("end")).versions
            # Rows have the columns of the last version of the range.
            return table.snapshot(self._versions[-1] if self._versions else None)
        if self._version is not None:
            return table.snapshot(self._version)
        snapshot = opened(table, lambda of: of.snapshot(arguments.get("version"), arguments.get("timestamp")))
        self._version = snapshot.version
        return snapshot


class _NoStream(DataSourceStreamReader):
    """Refuses to be read. If it were not made at all, Spark would hide the reason behind an error of its own."""

    def initialOffset(self) -> NoReturn:
        refuse_stream()

    def read(self, partition: InputPartition) -> NoReturn:
        refuse_stream()


def _columns(snapshot: Snapshot, arguments: dict[str, Any]) -> StructType:
    """All columns of the rows that are read."""
    columns = to_spark(snapshot, snapshot.schema.names)
    return StructType([*columns.fields, *CHANGE_COLUMNS]) if arguments["changes"] else columns


def refuse_stream() -> NoReturn:
    """Raise `UnsupportedFeatureError` for `spark.readStream`."""
    raise UnsupportedFeatureError(
        "format 'deltic' cannot be read as a stream: read the table with spark.read or deltic.spark.read when it "
        "has a new version, or what commits changed with deltic.Table.changes"
    )


@dataclass(frozen=True)
class _Schemas:
    """The columns of batches: those of the table, and those that Spark expects."""

    stored: pa.Schema
    wanted: pa.Schema

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Spark requires the exact types and nullability, and passes a schema that allows nulls."""
        return fit(batch, self.stored, self.wanted)


@dataclass(frozen=True)
class _Request:
    """The request of `load()`."""

    table: Table
    columns: list[str]
    filter: str | None
    partitions: int | None


class _Reader(DataSourceReader):
    def __init__(self, snapshot: Snapshot, request: _Request, schemas: _Schemas) -> None:
        self.snapshot: Snapshot | None = snapshot
        self.request = request
        self.schemas = schemas

    def partitions(self) -> Sequence[InputPartition]:
        request = self.request
        assert self.snapshot is not None
        plan = self.snapshot.plan(request.columns, request.filter)
        if _LOG.level == logging.NOTSET and logging.root.handlers:
            # Spark collects the log messages of this process, in which users cannot set a level.
            _LOG.setLevel(logging.INFO)
        log_plan(self.snapshot, plan, request.filter)
        count = request.partitions or group_count(plan, os.cpu_count() or 1)
        groups: list[InputPartition] = [TaskGroup(files) for files in plan.task_groups(count)]
        return groups or [TaskGroup(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskGroup)
        if partition.files is None:
            return
        table = self.request.table
        stream = _deltic.read_task_group(table.uri, table.storage_options, partition.files)
        yield from map(self.schemas.fit, batches(stream))

    def __getstate__(self) -> dict[str, Any]:
        # The task groups have the files; a snapshot would make the executors open the table.
        return {**self.__dict__, "snapshot": None}


class _ChangesReader(DataSourceReader):
    """Reads the change data feed in the order of the versions, in one task."""

    def __init__(self, versions: range, request: _Request, schemas: _Schemas) -> None:
        self.versions = versions
        self.request = request
        self.schemas = schemas

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not self.versions:
            return
        request, (first, last) = self.request, (self.versions[0], self.versions[-1])
        changes = request.table.changes(first, last, request.columns, request.filter)
        yield from map(self.schemas.fit, batches(changes._read()))


class _Writer(DataSourceArrowWriter):
    def __init__(
        self, plan: bytes, header: bytes, storage_options: dict[str, str] | None, max_attempts: int | None
    ) -> None:
        self.plan = plan
        # Spark commits in another process.
        self.header = header
        self.storage_options = storage_options
        self.max_attempts = max_attempts

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Written(write_batches(self.plan, self.storage_options, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        transaction = _deltic.resume(self.header, self.storage_options)
        transaction.append_files(_files(messages))
        commit_core(transaction, self.max_attempts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if None not in messages:
            # Every task wrote, so the commit failed: if it was refused, it deleted the files itself; otherwise it may
            # have been made without an answer.
            return
        discard(self.plan, self.storage_options)


def _files(messages: list[WriterCommitMessage | None]) -> list[bytes]:
    return [file for message in messages if isinstance(message, Written) for file in message.files]
