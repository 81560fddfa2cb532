"""Hints for keyword arguments of deltalake and delta-spark: the message of a TypeError says what to use instead.

Keywords that a function of deltic has must not be here, and keywords in back-ticks must be its own; tests check both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["KEYWORDS", "with_keyword_hints"]

Call = TypeVar("Call", bound=Callable[..., Any])

_CHECKPOINTS = "checkpoints follow the property `delta.checkpointInterval` (`Table.set_properties`)"
_CODEC = "the codec is that of the property `delta.parquet.compression.codec` (`Table.set_properties`)"
_CONVERTED = "nothing replaces it: a value that does not fit its column is always an error"

_PARTITIONED = dict.fromkeys(
    ("partition_columns", "partitionBy", "partitionby", "partitioned_by"), "use `partition_by`"
)
_OF_A_COMMIT = {
    "commit_properties": "give `user_metadata`, `commit_info`, `app_id` and `app_version`, and `max_attempts`",
    "custom_metadata": "use `commit_info` or `user_metadata`",
    "post_commithook_properties": _CHECKPOINTS,
}
_WRITE = {
    "configuration": "use `properties`",
    "predicate": "use `replace_where`",
    "replaceWhere": "use `replace_where`",
    "partition_filters": "use `replace_where`, as SQL",
    "partitionOverwriteMode": "use `partition_overwrite`",
    "mergeSchema": "use `schema_mode`: 'merge'",
    "merge_schema": "use `schema_mode`: 'merge'",
    "overwriteSchema": "use `schema_mode`: 'overwrite'",
    "overwrite_schema": "use `schema_mode`: 'overwrite'",
    "maxRecordsPerFile": "use `max_rows_per_file`",
    "userMetadata": "use `user_metadata`",
    "writer_properties": "give `compression`, `compression_level`, `row_group_rows` and `column_options`",
    **_PARTITIONED,
    **_OF_A_COMMIT,
}
_FILTERED = {"where": "use `filter`", "predicate": "use `filter`", "condition": "use `filter`"}
_QUERY = {"partitions": "use `filter`, as SQL", "filters": "use `filter`, as SQL", **_FILTERED}
_OF_A_PLAN = {
    "limit": "a plan has all files; the rows can be limited: `Table.scan(columns, filter).limit(n)`",
    **_QUERY,
}
_OF_A_VERSION = dict.fromkeys(
    ("version", "timestamp", "versionAsOf", "timestampAsOf"),
    "use this method of `Table.snapshot(version)` or `Table.snapshot(timestamp=...)`",
)
_WHERE = {"predicate": "use `where`", "condition": "use `where`", "filter": "use `where`"}
_OF_A_CHANGE = {
    "commit_properties": "give `user_metadata`, `app_id` and `app_version`, and `max_attempts`; "
    "`Table.transaction` has `commit_info` too",
    "custom_metadata": "use `user_metadata`; `Table.transaction` has `commit_info` too",
    "post_commithook_properties": _CHECKPOINTS,
    "writer_properties": _CODEC,
}
_OF_MAINTENANCE = {
    "commit_properties": "its commits cannot have more metadata",
    "post_commithook_properties": _CHECKPOINTS,
}
_MATCHED = {"predicate": "use `condition`"}

KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "create": {
        "table_uri": "use `uri`",
        "table": "use `uri`, which may be an open table",
        "configuration": "use `properties`",
        "raise_if_key_not_exists": "nothing replaces it: a property of Delta that does not exist is always an error",
        "commit_properties": "the commit of a new table cannot have more metadata",
        "post_commithook_properties": _CHECKPOINTS,
        **_PARTITIONED,
    },
    "write": {
        **dict.fromkeys(("table_or_uri", "table_uri", "uri", "table", "path"), "use `uri_or_table`"),
        "df": "use `data`",
        "engine": "there is one: Arrow data is written in Rust",
        **_WRITE,
    },
    "spark.write": _WRITE,
    "spark.read": {
        "versionAsOf": "use `version`",
        "timestampAsOf": "use `timestamp`",
        "limit": "call `limit(n)` on the DataFrame",
        "filters": "use `filter`, as SQL",
        **_FILTERED,
    },
    "Table": {
        "table_uri": "use `uri`",
        "version": "a table has all versions: use `Table.snapshot(version)`",
        "without_files": "nothing replaces it: files are read when they are needed",
        "log_buffer_size": "nothing replaces it: `cache_bytes` limits memory",
        "skip_stats": "nothing replaces it: statistics are read when they are needed",
    },
    "Table.scan": {"limit": "call `Scan.limit(n)` on the result", **_QUERY, **_OF_A_VERSION},
    "Table.plan": {**_OF_A_PLAN, **_OF_A_VERSION},
    "Snapshot.scan": {"limit": "call `Scan.limit(n)` on the result", **_QUERY},
    "Snapshot.plan": _OF_A_PLAN,
    "Transaction.scan": {"limit": "call `TransactionScan.limit(n)` on the result", **_QUERY},
    "to_pandas": {"types_mapper": "use `Scan.to_arrow()` and its `to_pandas(types_mapper=...)`"},
    "Table.changes": {
        "starting_version": "use `start`",
        "starting_timestamp": "use `start`, which may be a time",
        "ending_version": "use `end`",
        "ending_timestamp": "use `end`, which may be a time",
        **_FILTERED,
    },
    "Table.delete": {**_WHERE, **_OF_A_CHANGE},
    "Table.update": {
        "updates": "use `set`",
        "new_values": "use `set`, with `deltic.lit(value)` for each value",
        "values": "use `set`, with `deltic.lit(value)` for each value",
        **_WHERE,
        "error_on_type_mismatch": _CONVERTED,
        **_OF_A_CHANGE,
    },
    "Transaction.delete": _WHERE,
    "Transaction.update": {
        "updates": "use `set`",
        "values": "use `set`, with `deltic.lit(value)` for each value",
        **_WHERE,
    },
    "Table.merge": {
        "predicate": "use `on`",
        "condition": "use `on`",
        "merge_schema": "call `Merge.with_schema_evolution()` on the result",
        "error_on_type_mismatch": _CONVERTED,
        "streamed_exec": "nothing replaces it: the source is always read once, in batches",
        "max_spill_size": "nothing limits the temporary file; `memory_limit` limits memory",
        "max_temp_directory_size": "nothing limits the temporary file; `memory_limit` limits memory",
        **_OF_A_CHANGE,
    },
    "Merge.when_matched_update": {"updates": "use `set`", **_MATCHED},
    "Merge.when_matched_update_all": {"except_cols": "use `except_columns`", **_MATCHED},
    "Merge.when_matched_delete": _MATCHED,
    "Merge.when_not_matched_insert": {"updates": "use `values`", **_MATCHED},
    "Merge.when_not_matched_insert_all": {"except_cols": "use `except_columns`", **_MATCHED},
    "Merge.when_not_matched_by_source_update": {"updates": "use `set`", **_MATCHED},
    "Merge.when_not_matched_by_source_delete": _MATCHED,
    "Table.optimize": {
        "partition_filters": "use `where`, as SQL",
        **_WHERE,
        "columns": "use `zorder_by`",
        "zorder": "use `zorder_by`",
        "z_order": "use `zorder_by`",
        "z_order_by": "use `zorder_by`",
        "zorderBy": "use `zorder_by`",
        "target_size": "use `target_file_size`",
        "max_concurrent_tasks": "use `max_tasks`",
        "min_commit_interval": "nothing replaces it: a commit has about 64 GiB of files",
        "writer_properties": _CODEC,
        **_OF_MAINTENANCE,
    },
    "Table.vacuum": {
        "retention_hours": "use `retention`, whose numbers are hours",
        "retentionHours": "use `retention`, whose numbers are hours",
        "enforce_retention_duration": "use `force`, with the opposite value",
        "full": "use `mode`: 'full', the default, or 'lite'",
        "keep_versions": "deltic keeps the versions of a time, not chosen ones: `Table.clone` copies a version",
        **_OF_MAINTENANCE,
    },
    "Table.clone": {
        "isShallow": "use `shallow`",
        "is_shallow": "use `shallow`",
        "replace": "use `mode`: 'replace'",
        "commit_properties": "give `user_metadata`, `commit_info`, `app_id` and `app_version`, and `max_attempts`",
    },
    "Table.restore": {
        "target": "use `version` or `timestamp`",
        **_OF_A_COMMIT,
    },
    "DeltaTable.forPath": {"hadoopConf": "use `storageOptions`, the settings of the store as for `deltic.Table`"},
}
"""By the name of a function, and by keyword."""


def with_keyword_hints(name: str) -> Callable[[Call], Call]:
    """Decorate a function so that keywords of other clients raise a TypeError with a hint; `name`: that in `KEYWORDS`.

    Its signature and documentation stay.
    """
    hints = KEYWORDS[name]

    def decorate(call: Call) -> Call:
        @wraps(call)
        def hinted(*arguments: Any, **named: Any) -> Any:
            for keyword in named:
                if keyword in hints:
                    message = f"{name}() has no argument {keyword!r}: {hints[keyword]}"
                    raise TypeError(message)
            return call(*arguments, **named)

        return cast("Call", hinted)

    return decorate
