"""Changes rows of a table from Spark: the driver plans, decides and commits once, the executors read and write files.

Spark computes the source of a merge (`frame_source`), and evaluates SQL that deltic does not know
(`evaluated_changes`). The rest is done in Rust, with the results that `deltic.Table.delete`, `update` and `merge`
describe.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.arguments import Isolation
from deltic.dml.merge import Merge
from deltic.dml.values import Assigned
from deltic.errors import DelticError, InvalidInputError, UnsupportedFeatureError
from deltic.spark.dml.evaluated_changes import EvaluatedChange
from deltic.spark.dml.frame_source import BYTES_PER_PART, FrameSource, StoredSource, carry_out
from deltic.spark.location import checked_session, shared
from deltic.spark.options import is_utc
from deltic.spark.sql.time_zone import refuse_conversion, refuse_dependent, session_zone
from deltic.spark.tasks import Batches, cores, each, ipc_bytes, run_tasks
from deltic.table.table import Table
from deltic.transaction.transaction import Commit

__all__ = ["delete", "merge", "on_executors", "update"]

BYTES_PER_TASK = 32 * 1024 * 1024
"""The least bytes of files for a task."""

TASKS_PER_CORE = 4
"""The most tasks of a job for each core: some write more than others."""

LARGE_SOURCE = 32 * 1024 * 1024
"""From this size of a source in bytes its rows are not collected, but sent to the tasks that need them. If no equality
joins the sides, each task needs all rows; then a job has at most one task for each core."""

UNKNOWN = (InvalidInputError, UnsupportedFeatureError)
"""The errors for SQL that deltic does not know; Spark may."""

LONGEST_MESSAGE = 32 * 1024 * 1024
"""The most bytes of a source that a client of Spark Connect sends with a job."""

RowChange: TypeAlias = tuple[str, str, pa.Table, pa.Table | None]
"""A DELETE, UPDATE or MERGE: its kind, its parameters as JSON, the values that columns are set to, and the source."""

Condition: TypeAlias = tuple[str | None, str]
"""SQL, None for none, and its name for messages."""

AssignedValue: TypeAlias = tuple[str, str | pa.DataType]
"""A column that is set, and SQL or the type of a value."""


def _changer(storage_options: dict[str, str] | None, row_change: RowChange) -> Batches:
    kind, parameters, values, source = row_change
    # Spark broadcasts a function of this size.
    sent = ipc_bytes(values), None if source is None else ipc_bytes(source)

    def change(task: bytes, settings: dict[str, str] | None) -> bytes:
        rows = [None if given is None else pa.ipc.open_stream(given).read_all() for given in sent]
        return _deltic.change_rows(task, settings, (kind, parameters, rows[0], rows[1]))

    return each(change, storage_options)


class _OnExecutors:
    """Changes the rows of a transaction by tasks on executors: `deltic.dml.values.RowChanges`."""

    def __init__(self, core: _deltic.Transaction, spark: SparkSession, settings: dict[str, str] | None) -> None:
        self._core = core
        self._spark = spark
        self._settings = settings

    def delete(self, filter: str | None = None) -> int | None:
        def check() -> None:
            self._refuse_dependent([(filter, "the condition")])

        try:
            planned = self._planned(("delete", "", pa.table({}), None), filter)
        except UNKNOWN as refused:
            deleted: int | None = self._evaluated(refused, [filter], check).delete(filter)["deleted"]
            return deleted
        done = self._change(planned, ("delete", "", pa.table({}), None), check)
        return self._core.delete(filter) if done is None else done["deleted"]

    def update(self, set: list[tuple[str, str | None]], values: Any, filter: str | None = None) -> int:
        def check() -> None:
            self._refuse_dependent([(filter, "the condition")], _assigned(set, values))

        row_change = ("update", json.dumps(set), values, None)
        try:
            planned = self._planned(row_change, filter)
        except UNKNOWN as refused:
            by_spark = self._evaluated(refused, [filter, *(sql for _column, sql in set)], check)
            return int(by_spark.update(set, values, filter)["updated"])
        done = self._change(planned, row_change, check)
        return self._core.update(set, values, filter) if done is None else int(done["updated"])

    def merge(self, data: Any, request: str, values: Any) -> str:
        def check() -> None:
            self._refuse_dependent(*_of_merge(json.loads(request), values, data.schema), data.schema)

        if not isinstance(data, FrameSource):
            check()
            return self._merge(data, (request, values))
        if self._core.replayed() is not None:
            check()
            # The source need not be computed.
            return self._core.merge(data.schema.empty_table(), request, values)
        try:
            keys = _deltic.merge_keys(self._core, data.schema, request, values)
        except UNKNOWN as refused:
            conditions, assigned = _of_merge(json.loads(request), values, data.schema)
            sql = [*(sql for sql, _name in conditions), *(value for _column, value in assigned)]
            return json.dumps(self._evaluated(refused, sql, check).merge(data, request, values)["merged"])
        check()
        with data.used():
            stored = StoredSource(data, keys)
            if keys is not None and stored.num_bytes >= LARGE_SOURCE:
                return self._merge_divided(stored, (request, values))
            return self._merge(stored.collected(), (request, values))

    def _refuse_dependent(
        self, conditions: list[Condition], assigned: list[AssignedValue] | None = None, source: pa.Schema | None = None
    ) -> None:
        """Raise `InvalidInputError` for SQL and values whose meaning depends on the session's time zone."""
        zone = session_zone(self._spark)
        if is_utc(zone) or self._core.replayed() is not None:
            return
        table = pa.schema(self._core.snapshot().schema())
        columns = [table] if source is None else [table, source]
        for sql, name in conditions:
            refuse_dependent(sql, name, zone, columns)
        for column, value in assigned or []:
            name = f"the value of column `{column}`"
            if isinstance(value, str):
                refuse_dependent(value, name, zone, columns, column)
            else:
                refuse_conversion(value, column, table, name, zone)

    def _evaluated(self, refused: DelticError, sql: Iterable[object], check: Callable[[], None]) -> EvaluatedChange:
        """The same change, with this SQL, which Spark evaluates. Raises an error if deltic knows all of it."""
        limits = (cores(self._spark) * TASKS_PER_CORE, BYTES_PER_TASK)
        try:
            change = EvaluatedChange(self._core, self._spark, self._settings, limits, refused)
            change.check_unknown(text for text in sql if isinstance(text, str))
        except UNKNOWN:
            # Its error says more of values that depend on the time zone.
            check()
            raise
        return change

    def _merge(self, source: Any, merge: tuple[str, Any]) -> str:
        row_change = ("merge", *merge, source)
        done = self._change(self._planned(row_change, None), row_change)
        return self._core.merge(source, *merge) if done is None else json.dumps(done["merged"])

    def _merge_divided(self, source: StoredSource, merge: tuple[str, Any]) -> str:
        """Merge a large source: each task gets the rows that can match in its files."""
        no_rows = ("merge", *merge, source.schema.empty_table())
        most_tasks = max(cores(self._spark) * TASKS_PER_CORE, source.num_bytes // BYTES_PER_PART)
        planned = _deltic.plan_row_change(self._core, no_rows, None, (most_tasks, BYTES_PER_TASK), source.summaries)
        assert planned is not None, "it was not committed before"

        def change(tasks: Sequence[bytes]) -> list[bytes]:
            return source.change(tasks, self._settings, merge)

        def insert(plan: bytes, inserts: tuple[bytes, int]) -> list[bytes]:
            return source.insert(plan, self._settings, merge, inserts)

        return json.dumps(carry_out(self._core, planned, change, insert, self._settings)["merged"])

    def _planned(self, row_change: RowChange, filter: str | None) -> _deltic.DistributedRowChange | None:
        """The change, planned; None if the core should change the rows itself, since there is at most one task."""
        source = 0 if row_change[3] is None else row_change[3].nbytes
        tasks = cores(self._spark) * (TASKS_PER_CORE if source < LARGE_SOURCE else 1)
        if is_remote() and source > LONGEST_MESSAGE:
            tasks = 1
        return _deltic.plan_row_change(self._core, row_change, filter, (tasks, BYTES_PER_TASK))

    def _change(
        self,
        planned: _deltic.DistributedRowChange | None,
        row_change: RowChange,
        check: Callable[[], None] | None = None,
    ) -> dict[str, Any] | None:
        """The counts of changed rows; None if the core should change them. `check` may refuse to change any."""
        if planned is None:
            if check is not None:
                check()
            return None

        def change(tasks: Sequence[bytes]) -> list[bytes]:
            if check is not None:
                check()
            return run_tasks(self._spark, tasks, _changer(self._settings, row_change), row_change[0].upper())

        return carry_out(self._core, planned, change, None, self._settings)


def _assigned(set: list[Any], values: pa.Table, first: int = 0) -> list[AssignedValue]:
    """The columns that are set, each to SQL or to the type of a value; `first` is the first value of these columns."""
    types = iter(values.schema.types[first:])
    return [(column, next(types) if sql is None else sql) for column, sql in set]


def _of_merge(request: Any, values: pa.Table, source: pa.Schema) -> tuple[list[Condition], list[AssignedValue]]:
    """The conditions of a merge, and the values that it sets columns to."""
    conditions: list[Condition] = [(request["on"], "the merge condition")]
    assigned: list[AssignedValue] = []
    first = 0
    for clause in request["clauses"]:
        conditions.append((clause["condition"], f"the condition of a clause for rows that are {clause['when']}"))
        if clause["set"] is not None:
            assigned += _assigned(clause["set"], values, first)
            first += sum(sql is None for _column, sql in clause["set"])
        elif clause["except"] is not None:
            left_out = {name.casefold() for name in clause["except"]}
            assigned += [(field.name, field.type) for field in source if field.name.casefold() not in left_out]
    return conditions, assigned


def on_executors(spark: SparkSession, table: Table) -> Table:
    """The same table, whose `delete`, `update` and `merge` run on the executors of `spark`."""
    return table._with_row_changes(lambda core: _OnExecutors(core, spark, table.storage_options))


def delete(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    where: str | None = None,
    *,
    isolation: Isolation | None = None,
    user_metadata: Mapping[str, Any] | str | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
    max_attempts: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Delete the rows that make `where` TRUE, or all rows, as one commit: see `deltic.Table.delete`.

    Arguments:
        spark: The session.
        uri: A path or URL, or a `deltic.Table`.
        where: SQL such as `"month = 7"`; `deltic.Snapshot.plan` has the grammar, and Spark knows more.
        isolation: As for `deltic.Table.transaction`, which describes the arguments below too.
        user_metadata: The commit's `userMetadata`.
        app_id: With `app_version`, an application's transaction, which must be committed only once.
        app_version: The number of the application's transaction.
        max_attempts: How often to try if other writers commit first.
        storage_options: The store's settings, as for `deltic.Table`.

    The driver chooses the files that may have such rows, as `deltic.Table.delete` does, and commits once. The executors
    find the rows and write files: up to four tasks for each core, each with about the same number of bytes and at least
    32 MiB. If this makes only one task, the driver does the work itself. Nothing of a failed or killed task is in the
    commit. If a job fails its files are deleted, except those of a task that is still running.

    Spark evaluates the SQL of `where` if deltic does not know it, and so for `update` and `merge`: the section "SQL
    that only Spark knows" of `docs/spark.md`.

    Raises the errors of `deltic.Table.delete`, also those in tasks, and `InvalidInputError` for `memory://`. If the
    store fails in a task, or a task is killed, it raises Spark's error.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1,), (2,)], "id long"), uri + "_rows")
    >>> deltic.spark.delete(spark, uri + "_rows", "id = 1").metrics["numDeletedRows"]
    1
    """
    checked_session(spark)
    return on_executors(spark, shared(uri, storage_options)).delete(
        where,
        isolation=isolation,
        user_metadata=user_metadata,
        app_id=app_id,
        app_version=app_version,
        max_attempts=max_attempts,
    )


def update(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    set: Mapping[str, Assigned],
    where: str | None = None,
    *,
    isolation: Isolation | None = None,
    user_metadata: Mapping[str, Any] | str | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
    max_attempts: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Set columns of the rows that make `where` TRUE, of all rows without it: see `deltic.Table.update`.

    See `delete` for the division of work and the errors.

    Arguments:
        spark: The session.
        uri: A path or URL, or a `deltic.Table`.
        set: Columns and their new values: SQL, or `deltic.lit(value)`.
        where: SQL such as `"month = 7"`, as for `delete`.
        isolation: As for `deltic.Table.transaction`, which describes the arguments below too.
        user_metadata: The commit's `userMetadata`.
        app_id: With `app_version`, an application's transaction, which must be committed only once.
        app_version: The number of the application's transaction.
        max_attempts: How often to try if other writers commit first.
        storage_options: The store's settings, as for `deltic.Table`.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string"), uri + "_set")
    >>> deltic.spark.update(spark, uri + "_set", {"v": "upper(v)"}, "id = 2").metrics["numUpdatedRows"]
    1
    """
    checked_session(spark)
    return on_executors(spark, shared(uri, storage_options)).update(
        set,
        where,
        isolation=isolation,
        user_metadata=user_metadata,
        app_id=app_id,
        app_version=app_version,
        max_attempts=max_attempts,
    )


def merge(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    source: DataFrame,
    on: str,
    source_alias: str = "source",
    target_alias: str = "target",
    *,
    memory_limit: int | str | None = None,
    isolation: Isolation | None = None,
    user_metadata: Mapping[str, Any] | str | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
    max_attempts: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Merge[Commit]:
    """Begin a merge of a DataFrame into a table: see `deltic.Table.merge`.

    Arguments:
        spark: The session.
        uri: A path or URL, or a `deltic.Table`.
        source: A DataFrame. Spark computes it when the merge is first previewed or executed, and stores it on the
            executors (`localCheckpoint`) until the merge has been executed.
        on: SQL over the columns of both sides, such as `"source.id = target.id"`.
        source_alias: The name of the source in SQL.
        target_alias: The name of the table in SQL.
        memory_limit: The most bytes of the source's rows in the memory of a task, or a string such as `"1 GB"`.
        isolation: As for `deltic.Table.transaction`, which describes the arguments below too.
        user_metadata: The commit's `userMetadata`.
        app_id: With `app_version`, an application's transaction, which must be committed only once.
        app_version: The number of the application's transaction.
        max_attempts: How often to try if other writers commit first.
        storage_options: The store's settings, as for `deltic.Table`.

    A source of less than 32 MiB in Arrow's form is collected to the driver and sent to every task; the driver writes
    the inserted rows. The rows of a larger one stay on the executors: Spark joins hashes of the keys of both sides, and
    each task gets the rows whose keys are in its files. It holds their keys, and up to `memory_limit` bytes of them;
    the rest is in a temporary file. A second job writes the inserted rows. If no equality joins the two sides, every
    task needs all rows: they are collected, and the driver and each task must have memory for them. A preview is
    computed by the driver alone, with all rows.

    See `delete` for the division of the other work and the errors. A value of the source that cannot be merged is an
    `InvalidInputError`.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string"), uri + "_merged")
    >>> news = spark.createDataFrame([(2, "B"), (3, "C")], "id long, v string")
    >>> merge = deltic.spark.merge(spark, uri + "_merged", news, "source.id = target.id")
    >>> metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute().metrics
    >>> metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]
    (1, 1)
    """
    checked_session(spark)
    table = on_executors(spark, shared(uri, storage_options))
    return table.merge(
        FrameSource(source),
        on,
        source_alias,
        target_alias,
        memory_limit=memory_limit,
        isolation=isolation,
        user_metadata=user_metadata,
        app_id=app_id,
        app_version=app_version,
        max_attempts=max_attempts,
    )
