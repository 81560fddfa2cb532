"""`DeltaTable`: a table with the methods of delta-spark's class of that name.

Conditions and values are strings of deltic's SQL, evaluated on the executors if the change is large. Results are
DataFrames where delta-spark returns DataFrames; `history` and `detail` have the columns of a table without a catalog.
Methods of that class that do not exist here raise an error that says what to use instead.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltic import _deltic
from deltic.conversion.convert import root_of
from deltic.display.instant import instant
from deltic.dml.merge import Merge
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.hints.keywords import with_keyword_hints
from deltic.results.optimize import OptimizeResult
from deltic.results.restore import RestoreResult
from deltic.spark.dml.frame_source import FrameSource
from deltic.spark.dml.rows import on_executors
from deltic.spark.location import opened, shared
from deltic.spark.maintenance import convert, optimize, vacuum
from deltic.spark.options import in_zone
from deltic.spark.read import read
from deltic.spark.sql.caller_sql import is_read
from deltic.spark.sql.time_zone import session_zone
from deltic.spark.types.column_types import to_arrow
from deltic.table.table import Table
from deltic.transaction.transaction import Commit

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable"]

_TEXTS = MapType(StringType(), StringType())
_HISTORY = StructType(
    [
        StructField("version", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("userId", StringType()),
        StructField("userName", StringType()),
        StructField("operation", StringType()),
        StructField("operationParameters", _TEXTS),
        StructField("clusterId", StringType()),
        StructField("readVersion", LongType()),
        StructField("isolationLevel", StringType()),
        StructField("isBlindAppend", BooleanType()),
        StructField("operationMetrics", _TEXTS),
        StructField("userMetadata", StringType()),
        StructField("engineInfo", StringType()),
    ]
)
_DETAIL = StructType(
    [
        StructField("format", StringType()),
        StructField("id", StringType()),
        StructField("name", StringType()),
        StructField("description", StringType()),
        StructField("location", StringType()),
        StructField("createdAt", TimestampType()),
        StructField("lastModified", TimestampType()),
        StructField("partitionColumns", ArrayType(StringType())),
        StructField("clusteringColumns", ArrayType(StringType())),
        StructField("numFiles", LongType()),
        StructField("sizeInBytes", LongType()),
        StructField("properties", _TEXTS),
        StructField("minReaderVersion", IntegerType()),
        StructField("minWriterVersion", IntegerType()),
        StructField("tableFeatures", ArrayType(StringType())),
    ]
)
_AFFECTED = "num_affected_rows"


def _refused(name: str, instead: str) -> Callable[..., Any]:
    """A method of delta-spark's class that does not exist here; its error says what to use."""

    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise UnsupportedFeatureError(f"deltic.spark.DeltaTable has no {name}: {instead}")

    refuse.__name__, refuse.__doc__ = name, f"Raise `UnsupportedFeatureError`: {instead}."
    return staticmethod(refuse)


_NO_CATALOG = "deltic uses no catalog; give the table's location to forPath(spark, path)"
_CREATE = (
    "call deltic.create(path, schema, partition_by=..., cluster_by=..., properties=...), with deltic.field for columns"
)


class DeltaTable:
    """A table with the methods of delta-spark's `DeltaTable`. Made by `forPath`.

    Methods and arguments have the names and the meaning that delta-spark's documentation gives them; docstrings here
    say what differs. Conditions and values are strings of deltic's SQL (`docs/expressions.md`), in which a word in
    double quotes is the name of a column, where Spark takes it for a string. Spark evaluates those that deltic does not
    know (`docs/spark.md`). If the session's time zone is not UTC, conditions and values of `delete`, `update` and
    `merge` that may depend on it raise `InvalidInputError`. A Column of Spark raises `UnsupportedFeatureError`, an
    argument of another type `InvalidInputError`. Other errors are those of the deltic method that a docstring names.
    There is no catalog: tables have locations, and `forName` and the builders of new tables raise
    `UnsupportedFeatureError`, which says what to use.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string"), uri + "_known")
    >>> table = deltic.spark.DeltaTable.forPath(spark, uri + "_known")
    >>> table.update("id = 2", {"v": "upper(v)"}).first()["num_affected_rows"]
    1
    >>> news = spark.createDataFrame([(2, "x"), (3, "y")], "id long, v string").alias("s")
    >>> merge = table.alias("t").merge(news, "t.id = s.id").whenMatchedDelete().whenNotMatchedInsertAll()
    >>> row = merge.execute().first()
    >>> row["num_deleted_rows"], row["num_inserted_rows"]
    (1, 1)
    >>> sorted(table.toDF().collect())
    [Row(id=1, v='a'), Row(id=3, v='y')]
    """

    def __init__(self, spark: SparkSession, table: Table, name: str | None = None) -> None:
        """Keep the arguments; use `forPath`."""
        self._spark = spark
        self._table = table
        self._name = name

    @classmethod
    @with_keyword_hints("DeltaTable.forPath")
    def forPath(
        cls, sparkSession: SparkSession, path: str | os.PathLike[str], storageOptions: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Return the table at a path or URL. `storageOptions`: the store's settings, as for `deltic.Table`.

        Raises `TableNotFoundError` if there is none.
        """
        table = shared(path, storageOptions)
        opened(table)
        return cls(sparkSession, table)

    @classmethod
    def isDeltaTable(
        cls,
        sparkSession: SparkSession,
        identifier: str | os.PathLike[str],
        storageOptions: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether there is a table at a path or URL: see `deltic.Table.exists`."""
        return shared(identifier, storageOptions).exists()

    @classmethod
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | StructType | None = None
    ) -> DeltaTable:
        """Make a table of existing files: see `deltic.spark.convert`, which has more options, and the errors.

        Arguments:
            sparkSession: The session.
            identifier: The folder of Parquet files, as ``parquet.`/a/path` ``, or of an Iceberg table, as
                ``iceberg.`/a/path` ``, or its metadata file. The contents of the folder decide which; ``iceberg``
                refuses anything but an Iceberg table. Names of a catalog are refused.
            partitionSchema: The columns of folders such as `day=2013-01-01`, as DDL or a schema.
        """
        found = re.fullmatch(r"(?i)(parquet|iceberg)\.`(.+)`", _text(identifier, "identifier"))
        if found is None:
            message = f"identifier must be parquet.`path` or iceberg.`path`, not {identifier!r}: {_NO_CATALOG}"
            raise InvalidInputError(message)
        columns = StructType.fromDDL(partitionSchema) if isinstance(partitionSchema, str) else partitionSchema
        if not isinstance(columns, StructType | None):
            raise InvalidInputError(f"partitionSchema must be columns and their types, not {partitionSchema!r}")
        given = shared(found.group(2), None)
        table, metadata = root_of(given)
        if found.group(1).lower() == "iceberg" and metadata is None and not _deltic.iceberg_metadata_files(table._core):
            message = (
                f"{table.uri} is no Iceberg table: it has no metadata/*.metadata.json; parquet.`path` is a plain folder"
            )
            raise InvalidInputError(message, table=table.uri)
        convert(sparkSession, given, partition_schema=None if columns is None else to_arrow(columns))
        return cls(sparkSession, table)

    def toDF(self) -> DataFrame:
        """Return the rows of the newest version: see `deltic.spark.read`."""
        frame = read(self._spark, self._table)
        return frame if self._name is None else frame.alias(self._name)

    def alias(self, aliasName: str) -> DeltaTable:
        """Return the table with a name for conditions."""
        return DeltaTable(self._spark, self._table, _text(aliasName, "aliasName"))

    def delete(self, condition: str | None = None) -> DataFrame:
        """Delete the rows that make `condition` TRUE, or all rows; the result has `num_affected_rows`.

        That is -1 if no file was read and the log does not say how many rows were in it. See `deltic.spark.delete`.
        """
        where = None if condition is None else self._without_alias(_text(condition, "condition"), self._column_names())
        done = on_executors(self._spark, self._table).delete(where)
        return self._counted({_AFFECTED: done.metrics.get("numDeletedRows", -1)})

    def update(self, condition: str | None = None, set: Mapping[str, str] | None = None) -> DataFrame:
        """Set columns to SQL expressions in the rows that make `condition` TRUE; the result has `num_affected_rows`.

        See `deltic.spark.update`.
        """
        names = self._column_names()
        where = None if condition is None else self._without_alias(_text(condition, "condition"), names)
        values: dict[str, str] = {}
        for given, value in _assigned(set, "set").items():
            column = self._without_alias(given, names, is_assigned=True)
            if column in values:
                raise InvalidInputError(f"`{column}` is set twice, with and without the alias of the table")
            values[column] = self._without_alias(value, names)
        done = on_executors(self._spark, self._table).update(values, where)
        return self._counted({_AFFECTED: done.metrics["numUpdatedRows"]})

    def merge(self, source: DataFrame, condition: str) -> DeltaMergeBuilder:
        """Begin a merge: see `deltic.spark.merge`.

        In SQL the sides have the names that `alias` of the table and of the DataFrame gave them; without one, `target`
        and `source`.
        """
        on, frame, target = _text(condition, "condition"), FrameSource(source), self._name or "target"
        name = _alias_of(source)
        if name is None:
            columns = [*frame.schema.names, *self._table.snapshot().schema.names]
            _refuse_other_aliases(on, target, columns)
        table = on_executors(self._spark, self._table)
        return DeltaMergeBuilder(self, table.merge(frame, on, name or "source", target))

    def _column_names(self) -> list[str]:
        """The columns of the table, if it has an alias that SQL may name before them."""
        return [] if self._name is None else self._table.snapshot().schema.names

    def _without_alias(self, text: str, columns: list[str], is_assigned: bool = False) -> str:
        """SQL, or the name of an assigned column, without the alias of the table."""
        return text if self._name is None else _deltic.without_alias(text, self._name, columns, is_assigned)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits, newest first, as `DESCRIBE HISTORY`: see `deltic.Table.history`."""
        rows = []
        for entry in self._table.history(limit):
            known = {name: entry.get(name) for name in _HISTORY.names}
            known["timestamp"] = _instant(entry.get("timestamp"))
            for name in ("operationParameters", "operationMetrics"):
                known[name] = {key: _plain(value) for key, value in (entry.get(name) or {}).items()}
            rows.append(tuple(known.values()))
        return self._spark.createDataFrame(rows, _HISTORY)

    def detail(self) -> DataFrame:
        """Return the facts about the table, as `DESCRIBE DETAIL`: see `deltic.Table.detail`."""
        detail = self._table.detail()
        row = (
            detail.format,
            detail.id,
            detail.name,
            detail.description,
            detail.location,
            detail.created_at,
            detail.last_modified,
            detail.partition_columns,
            detail.clustering_columns,
            detail.num_files,
            detail.size_in_bytes,
            detail.properties,
            detail.min_reader_version,
            detail.min_writer_version,
            detail.table_features,
        )
        return self._spark.createDataFrame([row], _DETAIL)

    def vacuum(self, retentionHours: float | None = None) -> DataFrame:
        """Delete files that no version within the retention needs; the result is an empty DataFrame.

        `retentionHours`: how many hours removed files are kept; by default `delta.deletedFileRetentionDuration`, or a
        week. A shorter time than that raises `InvalidInputError`: no setting of Spark turns this check off, but `force`
        of `deltic.spark.vacuum` does, which also has dry runs and returns counts.
        """
        vacuum(self._spark, self._table, retentionHours)
        return self._spark.createDataFrame([], StructType([]))

    def optimize(self) -> DeltaOptimizeBuilder:
        """Begin to rewrite files in a better layout, on the executors: see `deltic.spark.optimize`."""
        return DeltaOptimizeBuilder(self)

    def generate(self, mode: str) -> None:
        """Write symlink manifests; `mode` is `"symlink_format_manifest"`, the only kind.

        See `deltic.Table.write_manifests`. Raises `InvalidInputError` for another mode.
        """
        if mode != "symlink_format_manifest":
            raise InvalidInputError(f"mode must be 'symlink_format_manifest', the only kind there is, not {mode!r}")
        self._table.write_manifests()

    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore the table to a version; the result has the counts of files and bytes that delta-spark's has.

        The driver does it alone: see `deltic.Table.restore`, which can also ignore missing files.
        """
        return self._restored(self._table.restore(version))

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Restore the table to a time in ISO 8601: see `restoreToVersion`.

        A time without an offset is in the time zone of the session.
        """
        return self._restored(self._table.restore(timestamp=self._time(timestamp)))

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Make another table a copy of this one, and return it: see `deltic.Table.clone`.

        Arguments:
            target: The path or URL of the clone, which uses the settings of this table's store. Names of a catalog are
                refused.
            isShallow: True shares the files. False copies them, by the driver, not the executors.
            replace: True replaces a table at the target; False raises `TableExistsError` for one.
            properties: More table properties of the clone.
        """
        return self._cloned(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Make another table a copy of a version of this one: see `clone`."""
        return self._cloned(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Make another table a copy of this one at a time in ISO 8601: see `clone`.

        A time without an offset is in the time zone of the session.
        """
        return self._cloned(target, isShallow, replace, properties, timestamp=self._time(timestamp))

    def _time(self, timestamp: str) -> str:
        """A time with an offset: its own, or that of the session's time zone."""
        return in_zone(timestamp, "timestamp", session_zone(self._spark))

    def _cloned(
        self,
        target: str,
        shallow: bool,
        replaces: bool,
        properties: Mapping[str, str] | None,
        version: int | None = None,
        timestamp: str | None = None,
    ) -> DeltaTable:
        clone = Table(target, self._table.storage_options)
        self._table.clone(
            clone,
            shallow=shallow,
            version=version,
            timestamp=timestamp,
            mode="replace" if replaces else "error",
            properties=properties,
        )
        return DeltaTable(self._spark, clone)

    def _restored(self, result: RestoreResult) -> DataFrame:
        names = (
            "table_size_after_restore",
            "num_of_files_after_restore",
            "num_removed_files",
            "num_restored_files",
            "removed_files_size",
            "restored_files_size",
        )
        numbers = result.to_dict()
        return self._counted({name: numbers[name] for name in names})

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a feature to the protocol: see `deltic.Table.add_feature`.

        Raises `UnsupportedFeatureError` for a feature that deltic does not support.
        """
        self._table.add_feature(featureName)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Drop a feature from the protocol: see `deltic.Table.drop_feature`."""
        self._table.drop_feature(featureName, False if truncateHistory is None else truncateHistory)

    forName = _refused("forName", _NO_CATALOG)
    create = _refused("create", _CREATE)
    createIfNotExists = _refused("createIfNotExists", f"{_CREATE}, and mode='ignore'")
    createOrReplace = _refused("createOrReplace", f"{_CREATE}, and mode='create_or_replace'")
    replace = _refused("replace", f"{_CREATE}, and mode='replace'")
    upgradeTableProtocol = _refused("upgradeTableProtocol", "name the feature: addFeatureSupport(featureName)")

    def _counted(self, counts: Mapping[str, int]) -> DataFrame:
        schema = StructType([StructField(name, LongType()) for name in counts])
        return self._spark.createDataFrame([tuple(counts.values())], schema)


class DeltaOptimizeBuilder:
    """An OPTIMIZE before its execution, as in delta-spark. Made by `DeltaTable.optimize`.

    Results differ: one row of counts, instead of delta-spark's row with a path and nested metrics. Errors are those of
    `deltic.spark.optimize`.
    """

    def __init__(self, table: DeltaTable) -> None:
        """Keep the arguments; use `DeltaTable.optimize`."""
        self._of = table
        self._where: str | None = None

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Optimize only the partitions that match a condition on partition columns."""
        self._where = _text(partitionFilter, "partitionFilter")
        return self

    def executeCompaction(self) -> DataFrame:
        """Combine small files; the result has counts of files and bytes."""
        return self._counted(optimize(self._of._spark, self._of._table, self._where))

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Order rows along a Z-order curve through these columns; the result has counts of files and bytes."""
        first = cols[0] if len(cols) == 1 else cols
        names = [first] if isinstance(first, str) else [_text(name, "a column") for name in first]
        return self._counted(optimize(self._of._spark, self._of._table, self._where, zorder_by=names))

    def _counted(self, result: OptimizeResult) -> DataFrame:
        names = ("numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes", "numDeletionVectorsRemoved")
        return self._of._counted({name: result.metrics.get(name, 0) for name in names})


class DeltaMergeBuilder:
    """A merge before its execution. Made by `DeltaTable.merge`; the clauses and the errors are those of `deltic.Merge`.

    Conditions and values are strings of SQL over both sides. A clause changes this object, and returns it.
    """

    def __init__(self, table: DeltaTable, merge: Merge[Commit]) -> None:
        """Keep the arguments; use `DeltaTable.merge`."""
        self._table = table
        self._merge = merge

    def whenMatchedUpdate(
        self, condition: str | None = None, set: Mapping[str, str] | None = None
    ) -> DeltaMergeBuilder:
        """Update matched rows."""
        self._merge.when_matched_update(_assigned(set, "set"), _condition(condition))
        return self

    def whenMatchedUpdateAll(self, condition: str | None = None) -> DeltaMergeBuilder:
        """Update every column of matched rows to that of the source."""
        self._merge.when_matched_update_all(_condition(condition))
        return self

    def whenMatchedDelete(self, condition: str | None = None) -> DeltaMergeBuilder:
        """Delete matched rows."""
        self._merge.when_matched_delete(_condition(condition))
        return self

    def whenNotMatchedInsert(
        self, condition: str | None = None, values: Mapping[str, str] | None = None
    ) -> DeltaMergeBuilder:
        """Insert rows of the source that match none."""
        self._merge.when_not_matched_insert(_assigned(values, "values"), _condition(condition))
        return self

    def whenNotMatchedInsertAll(self, condition: str | None = None) -> DeltaMergeBuilder:
        """Insert rows of the source that match none, with all columns."""
        self._merge.when_not_matched_insert_all(_condition(condition))
        return self

    def whenNotMatchedBySourceUpdate(
        self, condition: str | None = None, set: Mapping[str, str] | None = None
    ) -> DeltaMergeBuilder:
        """Update rows of the table that no row of the source matches."""
        self._merge.when_not_matched_by_source_update(_assigned(set, "set"), _condition(condition))
        return self

    def whenNotMatchedBySourceDelete(self, condition: str | None = None) -> DeltaMergeBuilder:
        """Delete rows of the table that no row of the source matches."""
        self._merge.when_not_matched_by_source_delete(_condition(condition))
        return self

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add the columns that only the source has to the table."""
        self._merge.with_schema_evolution()
        return self

    def execute(self) -> DataFrame:
        """Merge, as one commit; the result has the numbers of rows that were affected, updated, deleted, inserted."""
        done = self._merge.execute().metrics
        updated, deleted = done.get("numTargetRowsUpdated", 0), done.get("numTargetRowsDeleted", 0)
        inserted = done.get("numTargetRowsInserted", 0)
        return self._table._counted(
            {
                _AFFECTED: updated + deleted + inserted,
                "num_updated_rows": updated,
                "num_deleted_rows": deleted,
                "num_inserted_rows": inserted,
            }
        )


def _text(given: Any, argument: str) -> str:
    if isinstance(given, Column):
        raise UnsupportedFeatureError(
            f"{argument} is a Column, which only Spark evaluates, and its text is not SQL: "
            "write a string of SQL, such as \"id = 1\" for F.col('id') == 1"
        )
    if not isinstance(given, str):
        raise InvalidInputError(f"{argument} must be a string of SQL, not {type(given).__name__}")
    return given


def _condition(given: Any) -> str | None:
    return None if given is None else _text(given, "condition")


def _assigned(given: Mapping[str, str] | None, argument: str) -> dict[str, str]:
    if not given:
        raise InvalidInputError(f"{argument} is needed: a dict of columns and SQL")
    return {column: _text(value, f"{argument}[{column!r}]") for column, value in given.items()}


_KEEPS_NAMES = {
    "Deduplicate",
    "Distinct",
    "Filter",
    "GlobalLimit",
    "Limit",
    "LocalLimit",
    "Offset",
    "Repartition",
    "RepartitionByExpression",
    "Sample",
    "Sort",
}
"""Operators whose rows have the columns of their input, so that these keep its alias."""


def _alias_of(frame: DataFrame) -> str | None:
    """The name that `DataFrame.alias` gave it, or to what it chooses rows from."""
    plan = getattr(frame, "_plan", None)
    if plan is not None:
        while type(plan).__name__ in _KEEPS_NAMES:
            plan = plan._child
        return str(plan._alias) if type(plan).__name__ == "SubqueryAlias" else None
    analysed = frame._jdf.queryExecution().analyzed()
    while (kind := analysed.getClass().getSimpleName()) in _KEEPS_NAMES:
        analysed = analysed.child()
    return str(analysed.alias()) if kind == "SubqueryAlias" else None


def _refuse_other_aliases(condition: str, target: str, columns: list[str]) -> None:
    """Refuse names of a merge condition that begin with an alias, where none was found for the source."""
    if not is_read(condition):
        # Spark finds out.
        return
    known = {name.lower() for name in (target, "source", *columns)}
    for path in _deltic.column_names(condition):
        if len(path) > 1 and path[0].lower() not in known:
            raise InvalidInputError(
                f"the condition names `{'.'.join(path)}`, but the table is called `{target}`, and no alias was found "
                f"for the source, which is called `source` then: give it the alias last, as in "
                f"df.select(...).alias({path[0]!r})"
            )


def _plain(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _instant(milliseconds: int | None) -> Any:
    return None if milliseconds is None else instant(milliseconds)
