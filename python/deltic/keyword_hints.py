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

_OF_A_COMMIT = {
    "commit_properties": "give `user_metadata`, `commit_info`, `app_id` and `app_version`, and `max_attempts`",
    "custom_metadata": "use `commit_info` or `user_metadata`",
    "post_commithook_properties": _CHECKPOINTS,
}
_WRITE = {
    "configuration": "use `properties`",
    "predicate": "use `replace_where`",
    "writer_properties": "give `compression`, `compression_level`, `row_group_rows` and `column_options`",
    **_OF_A_COMMIT,
}
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
        "configuration": "use `properties`",
        "raise_if_key_not_exists": "nothing replaces it: a property of Delta that does not exist is always an error",
        "commit_properties": "the commit of a new table cannot have more metadata",
        "post_commithook_properties": _CHECKPOINTS,
    },
    "write": {
        "table_or_uri": "use `uri_or_table`",
        **_WRITE,
    },
    "spark.write": _WRITE,
    "Table": {
        "table_uri": "use `uri`",
        "version": "a table has all versions: use `Table.snapshot(version)`",
        "without_files": "nothing replaces it: files are read when they are needed",
        "log_buffer_size": "nothing replaces it: `cache_bytes` limits memory",
        "skip_stats": "nothing replaces it: statistics are read when they are needed",
    },
    "Table.changes": {
        "starting_version": "use `start`",
        "starting_timestamp": "use `start`, which may be a time",
        "ending_version": "use `end`",
        "ending_timestamp": "use `end`, which may be a time",
        "predicate": "use `filter`",
    },
    "Table.delete": {"predicate": "use `where`", "condition": "use `where`", **_OF_A_CHANGE},
    "Table.update": {
        "updates": "use `set`",
        "new_values": "use `set`, with `deltic.lit(value)` for each value",
        "predicate": "use `where`",
        "condition": "use `where`",
        "error_on_type_mismatch": _CONVERTED,
        **_OF_A_CHANGE,
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
        "predicate": "use `where`",
        "columns": "use `zorder_by`",
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
