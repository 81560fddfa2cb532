"""Hints for names of other Delta clients: the message of an AttributeError says what to use instead.

Names that deltic has must not be here; a test checks that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

__all__ = [
    "MERGES",
    "OF_OPTIMIZE",
    "OPTIMIZED",
    "SCANS",
    "SNAPSHOTS",
    "TABLES",
    "TOP",
    "no_attribute",
    "with_attribute_hints",
]

Call = TypeVar("Call", bound=Callable[..., Any])


_SNAPSHOT_ONLY = {
    name: f"a table changes; ask one version of it: `Table.snapshot()` has `{of}`"
    for name, of in {
        "version": "Snapshot.version",
        "schema": "Snapshot.schema",
        "metadata": "Snapshot.metadata",
        "protocol": "Snapshot.protocol",
        "properties": "Snapshot.properties",
        "table_config": "Snapshot.properties",
        "partition_columns": "Snapshot.partition_columns",
        "num_files": "Snapshot.num_files",
        "domains": "Snapshot.domains",
        "transaction_version": "Snapshot.transaction_version",
        "transaction_versions": "Snapshot.transaction_version",
    }.items()
}

_ROWS = {
    "to_pandas": "use `Table.scan(columns, filter).to_pandas()`",
    "to_polars": "use `Table.scan(columns, filter).to_polars()`",
    "to_arrow": "use `Table.scan(columns, filter).to_arrow()`",
    "to_pyarrow_table": "use `Table.scan(columns, filter).to_arrow()`",
    "to_pyarrow_dataset": "use `Table.scan(columns, filter)`, which anything that takes an Arrow stream reads lazily",
    "to_reader": "use `Table.scan(columns, filter).to_reader()`",
    "toDF": "use `deltic.spark.read` in Spark, or `Table.scan(columns, filter).to_pandas()`",
    "to_lazy": "use `Table.scan(columns, filter).to_polars()`, with the filter in the scan",
    "where": "use `Table.scan(filter='month = 7')`",
    "filter": "use `Table.scan(filter='month = 7')`",
    "select": "use `Table.scan(columns=['a', 'b'])`",
    "read": "use `Table.scan(columns, filter)`",
    "count": "use `Table.scan(columns, filter).count()`",
    "num_rows": "use `Table.scan(columns, filter).count()`",
    "limit": "use `Table.scan(columns, filter).limit(n)`",
    "head": "use `Table.scan(columns, filter).head(n)`",
    "take": "use `Table.scan(columns, filter).head(n)`",
    "show": "use `Table.scan(columns, filter).head(n)`",
    "query": "deltic does not run SQL; DuckDB does, over the stream of `Table.scan(columns, filter)`",
    "sql": "deltic does not run SQL; DuckDB does, over the stream of `Table.scan(columns, filter)`",
}

_CHANGES = {
    "upsert": "use `Table.merge`, whose `when_matched_update_all` and `when_not_matched_insert_all` make it one",
    "compact": "use `Table.optimize()`",
    "z_order": "use `Table.optimize(zorder_by=['a', 'b'])`",
    "restoreToVersion": "use `Table.restore(version)`",
    "restoreToTimestamp": "use `Table.restore(timestamp=...)`",
    "cloneAtVersion": "use `Table.clone(target, version=...)`",
    "cloneAtTimestamp": "use `Table.clone(target, timestamp=...)`",
    "shallow_clone": "use `Table.clone(target)`",
    "deep_clone": "use `Table.clone(target, shallow=False)`",
    "fsck": "use `Table.repair()`",
    "reorg": "use `Table.purge()`",
    "generate": "use `Table.write_manifests()`",
    "alter": "its methods are the table's own, such as `Table.add_columns` and `Table.set_properties`",
    "append": "use `deltic.write(table, data)`",
    "write": "use `deltic.write(table, data)`",
    "insert": "use `deltic.write(table, data)`",
    "overwrite": "use `deltic.write(table, data, mode='overwrite')`",
    "create": "use `deltic.create`",
    "createIfNotExists": "use `deltic.create(uri, schema, mode='ignore')`",
    "createOrReplace": "use `deltic.create(uri, schema, mode='create_or_replace')`",
    "replace": "use `deltic.create(uri, schema, mode='replace')`",
    "create_write_transaction": "files that others wrote cannot be committed: use `deltic.write(table, data)`, or "
    "`Table.transaction()` for several steps",
    "upgradeTableProtocol": "versions follow the features: use `Table.add_feature(name)`",
    "addFeatureSupport": "use `Table.add_feature(name)`",
    "dropFeatureSupport": "use `Table.drop_feature(name)`",
}

_SAME_UNDER_ANOTHER_NAME = {
    "table_uri": "use `Table.uri`",
    "path": "use `Table.uri`",
    "file_uris": "use `Table.files(filter)`",
    "get_add_actions": "use `Table.files(filter)`",
    "partitions": "use `Table.files(filter)`, whose column `partition` has the values",
    "deletion_vectors": "use `Table.plan(columns, filter).deletion_vectors()`",
    "load_cdf": "use `Table.changes(start, end)`",
    "create_checkpoint": "use `Table.checkpoint()`",
    "cleanup_metadata": "use `Table.clean_log()`",
    "compact_logs": "use `Table.compact_log()`",
    "load_as_version": "use `Table.snapshot(version)` or `Table.snapshot(timestamp=...)`",
    "load_version": "use `Table.snapshot(version)`",
    "load_with_datetime": "use `Table.snapshot(timestamp=...)`",
    "versionAsOf": "use `Table.snapshot(version)`",
    "timestampAsOf": "use `Table.snapshot(timestamp=...)`",
    "at": "use `Table.snapshot(version)` or `Table.snapshot(timestamp=...)`",
    "update_incremental": "nothing needs it: each `Table.snapshot()` is the latest version",
    "refresh": "nothing needs it: each `Table.snapshot()` is the latest version",
    "reload": "nothing needs it: each `Table.snapshot()` is the latest version",
    "is_deltatable": "use `Table.exists()`",
    "isDeltaTable": "use `Table.exists()`",
    "forPath": "use `deltic.Table(uri)`; in Spark `deltic.spark.read`",
    "forName": "deltic has no catalogs: use `deltic.Table(uri)`",
}

TABLES = {**_SNAPSHOT_ONLY, **_ROWS, **_CHANGES, **_SAME_UNDER_ANOTHER_NAME}
"""Of `Table`."""

SNAPSHOTS = {
    "delete": "use `Table.delete(where)`",
    **{name: hint.replace("`Table.", "`Snapshot.") for name, hint in _ROWS.items()},
    **_CHANGES,
    "table_config": "use `Snapshot.properties`",
    "file_uris": "use `Snapshot.files(filter)`",
    "get_add_actions": "use `Snapshot.files(filter)`",
    "partitions": "use `Snapshot.files(filter)`, whose column `partition` has the values",
    "table_uri": "use `Snapshot.uri`",
    "history": "use `Table.history()`",
    "changes": "use `Table.changes(start, end)`",
    "transaction": "use `Table.transaction()`",
    "checkpoint": "use `Table.checkpoint()`",
    "name": "use `Snapshot.metadata`, whose `name` may be missing",
    "description": "use `Snapshot.metadata`, whose `description` may be missing",
}
"""Of `Snapshot`."""

MERGES = {
    "whenMatchedUpdate": "use `Merge.when_matched_update`",
    "whenMatchedUpdateAll": "use `Merge.when_matched_update_all`",
    "whenMatchedDelete": "use `Merge.when_matched_delete`",
    "whenNotMatchedInsert": "use `Merge.when_not_matched_insert`",
    "whenNotMatchedInsertAll": "use `Merge.when_not_matched_insert_all`",
    "whenNotMatchedBySourceUpdate": "use `Merge.when_not_matched_by_source_update`",
    "whenNotMatchedBySourceDelete": "use `Merge.when_not_matched_by_source_delete`",
    "withSchemaEvolution": "use `Merge.with_schema_evolution`",
}
"""Of `Merge`."""

SCANS = {
    "collect": "use `Scan.to_arrow()`, `Scan.to_pandas()` or `Scan.to_polars()`",
    "to_table": "use `Scan.to_arrow()`",
    "to_pyarrow_table": "use `Scan.to_arrow()`",
    "to_batches": "use `Scan.to_reader()`, which yields batches",
    "to_pylist": "use `Scan.to_arrow()` and its `to_pylist()`",
    "to_df": "use `Scan.to_pandas()` or `Scan.to_polars()`",
    "toPandas": "use `Scan.to_pandas()`",
    "to_duckdb": "DuckDB reads a scan by its variable's name: `duckdb.sql('FROM scan')`",
    "filter": "give the filter to `Table.scan(columns, filter)`: it then skips files",
    "where": "give the filter to `Table.scan(columns, filter)`: it then skips files",
    "select": "give the columns to `Table.scan(columns, filter)`",
    "files": "use `Scan.plan`, whose `tasks` are the files",
    "num_rows": "use `Scan.count()`",
    "take": "use `Scan.head(n)`",
    "show": "use `Scan.head(n)`",
    "first": "use `Scan.head(n)`",
}
"""Of `Scan`."""

OF_OPTIMIZE = {
    "compact": "call `Table.optimize(where)` itself",
    "z_order": "call `Table.optimize(where, zorder_by=['a', 'b'])` itself",
    "executeCompaction": "call `Table.optimize(where)` itself",
    "executeZOrderBy": "call `Table.optimize(where, zorder_by=['a', 'b'])` itself",
    "where": "call `Table.optimize(where)` itself",
}
"""Of the method `Table.optimize`, which is an object with methods in deltalake."""

_DONE = "the files were rewritten already, by the call of `Table.optimize`"
OPTIMIZED = {
    "compact": f"{_DONE}; nothing is left to do",
    "executeCompaction": f"{_DONE}; nothing is left to do",
    "z_order": f"{_DONE}, but without this order: use `Table.optimize(where, zorder_by=['a', 'b'])` instead",
    "executeZOrderBy": f"{_DONE}, but without this order: use `Table.optimize(where, zorder_by=['a', 'b'])` instead",
    "where": f"{_DONE}, in all partitions: use `Table.optimize(where)` instead",
}
"""Of `OptimizeResult`, in whose place delta-spark has an object that has done nothing yet."""

TOP = {
    "DeltaTable": "use `deltic.Table`",
    "Delta": "use `deltic.Table`",
    "write_deltalake": "use `deltic.write`",
    "write_delta": "use `deltic.write`",
    "write_table": "use `deltic.write`",
    "append": "use `deltic.write(uri, data)`",
    "overwrite": "use `deltic.write(uri, data, mode='overwrite')`",
    "read_table": "use `deltic.Table(uri).scan(columns, filter)`",
    "read_deltalake": "use `deltic.Table(uri).scan(columns, filter)`",
    "read_delta": "use `deltic.Table(uri).scan(columns, filter)`",
    "read": "use `deltic.Table(uri).scan(columns, filter)`",
    "scan_delta": "use `deltic.Table(uri).scan(columns, filter)`",
    "read_pandas": "use `deltic.Table(uri).scan(columns, filter).to_pandas()`",
    "open": "use `deltic.Table(uri)`",
    "open_table": "use `deltic.Table(uri)`",
    "load": "use `deltic.Table(uri)`",
    "load_table": "use `deltic.Table(uri)`",
    "connect": "nothing is connected to: use `deltic.Table(uri, storage_options)`",
    "create_table": "use `deltic.create`",
    "is_deltatable": "use `deltic.Table(uri).exists()`",
    "Schema": "schemas are those of pyarrow: pass a `pyarrow.schema(...)` to `deltic.create`",
    "Field": "columns are fields of pyarrow, which `deltic.field` makes",
    "QueryBuilder": "deltic does not run SQL; DuckDB does, over the stream of `deltic.Table(uri).scan()`",
    "sql": "deltic does not run SQL; DuckDB does, over the stream of `deltic.Table(uri).scan()`",
    "convert_to_deltalake": "use `deltic.convert(uri, partition_schema={'day': 'date'})`",
    "convert_to_delta": "use `deltic.convert(uri, partition_schema={'day': 'date'})`",
    "CommitProperties": "give `user_metadata`, `app_id` and `app_version` to `deltic.write` or `Table.transaction`",
    "PostCommitHookProperties": "checkpoints follow the property `delta.checkpointInterval` (`Table.set_properties`)",
    "WriterProperties": "give `compression`, `target_file_size`, `row_group_rows` and others to `deltic.write`",
    "ColumnProperties": "give `column_options` to `deltic.write`",
    "DeltaError": "use `deltic.DelticError`",
    "exceptions": "use `deltic.errors`",
    "BloomFilterProperties": "give `column_options` to `deltic.write`, with `bloom_filter` for a column",
    "StructType": "types are those of pyarrow, or names of Delta's types in `deltic.field`",
    "ArrayType": "types are those of pyarrow, or names of Delta's types in `deltic.field`",
    "MapType": "types are those of pyarrow, or names of Delta's types in `deltic.field`",
    "VariantType": "types are those of pyarrow, or names of Delta's types in `deltic.field`",
    "DataType": "types are those of pyarrow, or names of Delta's types in `deltic.field`",
    "Metadata": "use `deltic.Table(uri).snapshot().metadata`, a dict",
    "AddAction": "files that others wrote are not committed one by one: use `deltic.write`, or `deltic.convert`",
    "create_table_with_add_actions": "use `deltic.convert(uri)`, which makes a table of a folder of Parquet files",
    "CommitFailedError": "use `deltic.CommitConflictError`",
    "SchemaMismatchError": "use `deltic.InvalidInputError`",
    "DeltaProtocolError": "use `deltic.UnsupportedFeatureError` or `deltic.CorruptTableError`",
    "DataCatalog": "deltic has no catalogs: use `deltic.Table(uri)`",
    "fs": "deltic has no file system for pyarrow: use `deltic.Table(uri).scan(columns, filter)`, and "
    "`Table.files(filter)` for the paths of files",
    "init_tracing": "the tracer provider of the program is used: docs/howto.md has an example; `deltic` needs no call",
    "repair": "use `deltic.Table(uri).repair()`",
    "clone": "use `deltic.Table(uri).clone(target)`",
    "merge": "use `deltic.Table(uri).merge(source, on)`",
    "delete": "use `deltic.Table(uri).delete(where)`",
    "update": "use `deltic.Table(uri).update(set, where)`",
    "optimize": "use `deltic.Table(uri).optimize()`",
    "vacuum": "use `deltic.Table(uri).vacuum()`",
    "restore": "use `deltic.Table(uri).restore(version)`",
}
"""Of the module `deltic`."""


def with_attribute_hints(method: str, hints: Mapping[str, str]) -> Callable[[Call], Call]:
    """Decorate a method so that calls of attributes of it, as `table.optimize.compact()`, raise an error with a hint.

    `method`: its name in messages. The attributes exist, since Python finds those of a method in its function, and a
    function has no `__getattr__`.
    """

    def decorate(call: Call) -> Call:
        for name, hint in hints.items():
            setattr(call, name, _refusal(f"{method}.{name}", hint))
        return call

    return decorate


def _refusal(name: str, hint: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: object, **_named: object) -> NoReturn:
        raise AttributeError(f"{name}() does not exist: {hint}")

    return refuse


def no_attribute(owner: str, hints: dict[str, str], name: str, of: object) -> NoReturn:
    """Raise an AttributeError as Python does, with a hint for names of other clients."""
    message = f"{owner} has no attribute {name!r}"
    if name in hints:
        message = f"{message}: {hints[name]}"
    raise AttributeError(message, name=name, obj=of)
