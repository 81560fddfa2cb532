"""Hints for names of other Delta clients: the message of an AttributeError says what to use instead.

Names that deltic has must not be here; a test checks that.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["SCANS", "SNAPSHOTS", "TABLES", "TOP", "no_attribute"]


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
}

_SAME_UNDER_ANOTHER_NAME = {
    "table_uri": "use `Table.uri`",
    "path": "use `Table.uri`",
    "file_uris": "use `Table.files(filter)`",
    "get_add_actions": "use `Table.files(filter)`",
    "partitions": "use `Table.files(filter)`, whose column `partition` has the values",
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
    "merge": "use `deltic.Table(uri).merge(source, on)`",
    "delete": "use `deltic.Table(uri).delete(where)`",
    "update": "use `deltic.Table(uri).update(set, where)`",
    "optimize": "use `deltic.Table(uri).optimize()`",
    "vacuum": "use `deltic.Table(uri).vacuum()`",
    "restore": "use `deltic.Table(uri).restore(version)`",
}
"""Of the module `deltic`."""


def no_attribute(owner: str, hints: dict[str, str], name: str, of: object) -> NoReturn:
    """Raise an AttributeError as Python does, with a hint for names of other clients."""
    message = f"{owner} has no attribute {name!r}"
    if name in hints:
        message = f"{message}: {hints[name]}"
    raise AttributeError(message, name=name, obj=of)
