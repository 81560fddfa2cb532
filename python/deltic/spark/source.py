"""The data source behind `spark.read.format("deltic")` and `df.write.format("deltic")`.

Spark makes these objects on the driver and sends them, pickled, to short-lived Python processes: they hold plain data.
The version read is fixed when `load()` is called.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
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
from deltic.spark.filter import to_sql
from deltic.spark.read import group_count
from deltic.spark.schema import fit, nullable, refuse_variants, resolve, to_arrow, to_spark
from deltic.spark.write import write_batches
from deltic.table import Table, place
from deltic.write import commit, spec

__all__ = ["DelticDataSource", "register"]

_READ = {"path", "filter", "version", "timestamp", "partitions", "pushdown"}
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


def register(spark: SparkSession) -> None:
    """Make `format("deltic")` known to a session.

    Reading: `spark.read.format("deltic").option("filter", "month = 7").load(uri)`. Options: `filter`, in the syntax of
    `deltic.Snapshot.plan`; `version` or `timestamp`; `partitions`; and the store's settings with the prefix `storage.`.
    A schema given with `.schema(...)` reads only its columns and nested fields, with the types that the table has: cast
    after `load`. With the option `pushdown` set to `true`, Spark's own filters are pushed down too (pyspark 4.1 and
    newer).

    `pushdown` is for a DataFrame that serves one query with one filter on it. Spark keeps a single pushed plan for each
    `load()`: when the same DataFrame is queried twice, or joined with itself, with different filters, Spark 4.1 and 4.2
    may read one with the files and the filter of the other. Without the option, every query is planned in full.

    Writing: `df.write.format("deltic").mode("append").option("partition_by", "year,month").save(uri)`. Modes: append
    and overwrite. Options: those of `deltic.spark.write` by the same names, `properties` as JSON text, and the store's
    settings with the prefix `storage.`.

    Streams are refused: `foreachBatch` with `deltic.spark.write(df, uri, app_id=..., app_version=batch_id)` writes one.

    This sets `spark.sql.python.filterPushdown.enabled`, without which Spark refuses `pushdown`.

    >>> deltic.spark.register(spark)
    >>> spark.read.format("deltic").option("pushdown", "true").load(uri).filter("distance > 2000").count()
    1
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
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
    """Delta tables as a Spark data source; see `register`."""

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
        refuse_variants(snapshot, snapshot.schema.names)
        return to_spark(snapshot.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan a read of the columns of `schema`."""
        snapshot = self._snapshot()
        stored = resolve(schema, to_spark(snapshot.schema))
        refuse_variants(snapshot, stored.names)
        partitions = whole(self._number("partitions"), "option 'partitions'", 1)
        request = _Request(self._table(), stored.names, self.options.get("filter"), partitions)
        reader = _PushdownReader if self._flag("pushdown") else _Reader
        return reader(snapshot, request, to_arrow(stored), to_arrow(schema))

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
        where, store = place(self._uri(), self._storage())
        write_spec = spec(
            where,
            store,
            to_arrow(nullable(schema)),
            "overwrite" if overwrite else "append",
            None if partition_by is None else [column.strip() for column in partition_by.split(",")],
            options,
        )
        return _Writer(write_spec, store)

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
        for option in self.options:
            if option not in known and not option.startswith("storage."):
                raise InvalidInputError(
                    f"unknown option {option!r} of format 'deltic'; there are {', '.join(sorted(known))} and storage.*"
                )

    def _uri(self) -> str:
        path = self.options.get("path")
        if path is None:
            raise InvalidInputError("no path: pass the table's location to load() or save()")
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

    def _flag(self, option: str) -> bool:
        value = self.options.get(option, "false")
        if value.lower() not in ("true", "false"):
            raise InvalidInputError(f"option {option!r} must be true or false, not {value!r}")
        return value.lower() == "true"

    def _json(self, option: str) -> Any:
        try:
            return json.loads(self.options[option])
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"option {option!r} must be a JSON object of texts: {error}") from None

    def _table(self) -> Table:
        return Table(self._uri(), self._storage())

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
        self.filters = [] if request.filter is None else [f"({request.filter})"]

    def partitions(self) -> Sequence[InputPartition]:
        request = self.request
        assert self.snapshot is not None
        plan = self.snapshot.plan(request.columns, " AND ".join(self.filters) or None)
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


class _PushdownReader(_Reader):
    # Overriding this at all is what asks Spark to push.
    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        for pushed in filters:
            text = to_sql(pushed)
            if text is not None and self._takes(text):
                self.filters.append(text)
            else:
                yield pushed

    def _takes(self, text: str) -> bool:
        assert self.snapshot is not None
        try:
            # All together, for there is a limit to what one filter may be. This reads nothing of the files.
            self.snapshot.files(" AND ".join([*self.filters, text]))
        except InvalidInputError:
            return False
        return True


class _Writer(DataSourceArrowWriter):
    def __init__(self, write_spec: bytes, storage_options: dict[str, str] | None) -> None:
        self.write_spec = write_spec
        self.storage_options = storage_options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Written(write_batches(self.write_spec, self.storage_options, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self.write_spec, self.storage_options, _files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if None not in messages:
            # Every task wrote, so it was the commit that failed: refused, it deleted the files itself; otherwise it may
            # have landed without our hearing of it.
            return
        _deltic.abort_files(self.write_spec, self.storage_options, _files(messages))


def _files(messages: list[WriterCommitMessage | None]) -> list[bytes]:
    return [file for message in messages if isinstance(message, Written) for file in message.files]
