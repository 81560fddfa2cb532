"""The data source behind `spark.read.format("deltic")` and `df.write.format("deltic")`.

Spark makes these objects on the driver and sends them, pickled, to short-lived Python processes: they hold plain data.
The version read is fixed when `load()` is called.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from deltic import _deltic
from deltic.arguments import whole
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.scan import batches
from deltic.snapshot import Snapshot
from deltic.spark.location import shared
from deltic.spark.read import group_count, log_plan
from deltic.spark.schema import fit, nullable, resolve
from deltic.spark.types import to_arrow, to_spark
from deltic.spark.write import write_batches
from deltic.table import Table
from deltic.write import commit
from deltic.write_options import core_options

__all__ = ["DelticDataSource", "register"]

_LOG = logging.getLogger("deltic.spark")

_READ = {"path", "filter", "version", "timestamp", "partitions"}
_WRITE = {
    "path",
    "partition_by",
    "properties",
    "name",
    "description",
    "target_file_size",
    "compression",
    "user_metadata",
    "app_id",
    "app_version",
}

_OF_A_CATALOG = {"provider", "owner", "location", "external"}
"""What Spark adds to the options, when it asks for the columns of a table that it is about to put into its catalog."""
_NO_CATALOG = (
    "A table of Spark's catalog does not work with format 'deltic', because Spark passes neither its location nor its "
    "options to a Python data source when the table is used: write CREATE TEMPORARY VIEW ... USING deltic OPTIONS "
    "(path '...'), or use load(path) and save(path)"
)


def register(spark: SparkSession) -> None:
    """Make `format("deltic")` known to a session.

    Reading: `spark.read.format("deltic").option("filter", "month = 7").load(uri)`. Options: `filter`, in the syntax of
    `deltic.Snapshot.plan`; `version` or `timestamp`; `partitions`; and the store's settings with the prefix `storage.`.
    A schema given with `.schema(...)` reads only its columns and nested fields, with the types that the table has: cast
    after `load`.

    `.where()` and `.select()` on what was loaded choose nothing: every file and every column is read, and then Spark
    drops what it does not want. Give the option `filter` and `.schema(...)` instead, or use
    `deltic.spark.read(columns=, filter=)`. `docs/decisions/001-spark-pushes-no-filters.md` says why.

    Writing: `df.write.format("deltic").mode("append").option("partition_by", "year,month").save(uri)`. Modes: append
    and overwrite. Options: those of `deltic.spark.write` by the same names, `properties` as JSON text, and the store's
    settings with the prefix `storage.`. Spark's own `.partitionBy()` is for tables of its catalog.

    In SQL: `CREATE TEMPORARY VIEW flights USING deltic OPTIONS (path '...', filter 'month = 7')`. `CREATE TABLE` and
    `saveAsTable` do not do, for Spark gives a Python data source neither the location nor the options of a table in its
    catalog when the table is used.

    Streams are refused: `foreachBatch` with `deltic.spark.write(df, uri, app_id=..., app_version=batch_id)` writes one.

    >>> deltic.spark.register(spark)
    >>> spark.read.format("deltic").option("filter", "distance > 2000").load(uri).count()
    1
    """
    spark.dataSource.register(DelticDataSource)


@dataclass
class TaskGroup(InputPartition):
    """The files one Spark task reads; None for a plan that keeps none."""

    files: bytes | None


@dataclass
class Written(WriterCommitMessage):
    """The files one Spark task wrote, serialised."""

    files: list[bytes]


class DelticDataSource(DataSource):
    """Delta tables as a Spark data source; see `register`.

    `.where()` and `.select()` on what it loads are Spark's, after every file and column was read: the option `filter`
    and `.schema(...)` choose.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options; Spark makes this object."""
        super().__init__(options)
        self._version: int | None = None

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "deltic"

    def schema(self) -> StructType:
        """Open the table and fix the version that will be read."""
        snapshot = self._snapshot()
        self._version = snapshot.version
        return to_spark(snapshot, snapshot.schema.names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan a read of the columns of `schema`."""
        snapshot = self._snapshot()
        stored = resolve(schema, snapshot)
        partitions = whole(self._number("partitions"), "option 'partitions'", 1)
        request = _Request(self._table(), stored.names, self.options.get("filter"), partitions)
        return _Reader(snapshot, request, to_arrow(stored, voids=True), to_arrow(schema, voids=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Check the schema against the table, and prepare a write."""
        self._check(_WRITE)
        partition_by = self.options.get("partition_by")
        options: dict[str, Any] = {
            name: self.options[name] for name in _WRITE - {"path", "partition_by"} if name in self.options
        }
        for name in ("target_file_size", "app_version"):
            options[name] = self._number(name)
        if "properties" in options:
            options["properties"] = self._json("properties")
        table = self._table()
        rows = to_arrow(nullable(schema))
        if partition_by is not None:
            options["partition_by"] = [column.strip() for column in partition_by.split(",")]
        chosen = core_options("overwrite" if overwrite else "append", options)
        transaction = _deltic.plan_write(table._core, rows, chosen)
        return _Writer(transaction.write_plan(rows), transaction.header(), table.storage_options)

    def streamReader(self, schema: StructType) -> NoReturn:
        """Refuse `spark.readStream`: `UnsupportedFeatureError` says what to do instead."""
        raise UnsupportedFeatureError(
            "format 'deltic' cannot be read as a stream: read the table with spark.read or deltic.spark.read when it "
            "has a new version, or what commits changed with deltic.Table.changes"
        )

    simpleStreamReader = streamReader

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse `df.writeStream.format("deltic")`: `UnsupportedFeatureError` says what to do instead."""
        raise UnsupportedFeatureError(
            "format 'deltic' cannot be written as a stream: use foreachBatch with a function of (df, batch_id) that "
            "calls deltic.spark.write(df, uri, app_id=..., app_version=batch_id), which commits each batch once"
        )

    def _check(self, known: set[str]) -> None:
        if "pushdown" in self.options:
            raise InvalidInputError(
                "format 'deltic' has no option 'pushdown': give the filter itself, in the option 'filter' or to "
                "deltic.spark.read(filter=...), for Spark may mix up the filters that it pushes"
            )
        if "paths" in self.options:
            raise InvalidInputError(
                "load() takes the location of one table, not several: load each, and unite the rows"
            )
        if _OF_A_CATALOG & self.options.keys():
            raise InvalidInputError(_NO_CATALOG)
        for option in self.options:
            if option not in known and not option.startswith("storage."):
                raise InvalidInputError(
                    f"unknown option {option!r} of format 'deltic'; there are {', '.join(sorted(known))} and storage.*"
                )

    def _uri(self) -> str:
        path = self.options.get("path")
        if path is None:
            raise InvalidInputError(f"no path: pass the table's location to load() or save(). {_NO_CATALOG}")
        return path

    def _storage(self) -> dict[str, str]:
        prefix = "storage."
        return {key[len(prefix) :]: value for key, value in self.options.items() if key.startswith(prefix)}

    def _number(self, option: str) -> int | None:
        text = self.options.get(option)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise InvalidInputError(f"option {option!r} must be a whole number, not {text!r}") from None

    def _json(self, option: str) -> Any:
        try:
            return json.loads(self.options[option])
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"option {option!r} must be a JSON object of strings: {error}") from None

    def _table(self) -> Table:
        return shared(self._uri(), self._storage())

    def _snapshot(self) -> Snapshot:
        self._check(_READ)
        if self._version is not None:
            return self._table().snapshot(self._version)
        return self._table().snapshot(self._number("version"), self.options.get("timestamp"))


@dataclass(frozen=True)
class _Request:
    """What `load()` asked for."""

    table: Table
    columns: list[str]
    filter: str | None
    partitions: int | None


class _Reader(DataSourceReader):
    def __init__(self, snapshot: Snapshot, request: _Request, stored: pa.Schema, schema: pa.Schema) -> None:
        self.snapshot: Snapshot | None = snapshot
        self.request = request
        self.stored = stored
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        request = self.request
        assert self.snapshot is not None
        plan = self.snapshot.plan(request.columns, request.filter)
        if _LOG.level == logging.NOTSET and logging.root.handlers:
            # Spark collects the log of this process, in which nobody else can choose a level.
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
        for batch in batches(stream):
            # Spark checks types and nullability to the letter, and hands down a schema that allows nulls.
            yield fit(batch, self.stored, self.schema)

    def __getstate__(self) -> dict[str, Any]:
        # Executors are sent the files, and would open the table for a snapshot.
        return {**self.__dict__, "snapshot": None}


class _Writer(DataSourceArrowWriter):
    def __init__(self, plan: bytes, header: bytes, storage_options: dict[str, str] | None) -> None:
        self.plan = plan
        # Spark commits in another process than this one.
        self.header = header
        self.storage_options = storage_options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Written(write_batches(self.plan, self.storage_options, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        transaction = _deltic.resume(self.header, self.storage_options)
        transaction.append_files(_files(messages))
        commit(transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if None not in messages:
            # Every task wrote, so it was the commit that failed: refused, it deleted the files itself; otherwise it may
            # have landed without our hearing of it.
            return
        _deltic.delete_files(self.plan, self.storage_options, _files(messages))


def _files(messages: list[WriterCommitMessage | None]) -> list[bytes]:
    return [file for message in messages if isinstance(message, Written) for file in message.files]
