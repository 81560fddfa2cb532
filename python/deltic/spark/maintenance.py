"""Maintenance with the cores of a Spark cluster: the driver plans and commits, the executors read and write files.

A task returns its files as bytes, and only those of successful attempts arrive: files of a failed, retried or
speculative task are in no commit. If a job fails, the driver finds the files of all its tasks by their names and
deletes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from deltic import _deltic
from deltic.arguments import check_bool, check_int
from deltic.conversion.convert import Conversion, ConvertResult
from deltic.errors import DelticError
from deltic.monitoring.telemetry import operation
from deltic.results.optimize import OptimizeResult, optimize_options
from deltic.results.vacuum import VacuumMode, VacuumResult, vacuum_arguments
from deltic.spark.intervals import dividing_cluster, rewrite_intervals
from deltic.spark.location import checked_session, shared
from deltic.spark.tasks import Batches, cores, each, run_tasks
from deltic.table.table import Table

__all__ = ["convert", "optimize", "vacuum"]

FILES_PER_TASK = 1000
"""The most footers that one task reads."""

TASKS_PER_CORE = 4
"""Tasks for each core in a job that reads footers or lists folders: results of a job are in the driver's memory."""


def _rewriter(storage_options: dict[str, str] | None) -> Batches:
    return each(_deltic.rewrite_files, storage_options)


def _footer_reader(storage_options: dict[str, str] | None) -> Batches:
    return each(_deltic.read_footers, storage_options)


def _sweeper(storage_options: dict[str, str] | None) -> Batches:
    return each(_deltic.sweep_files, storage_options)


def optimize(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    where: str | None = None,
    *,
    zorder_by: Sequence[str] | str | None = None,
    target_file_size: int | str | None = None,
    full: bool = False,
    max_tasks: int | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> OptimizeResult:
    """Rewrite files in a better layout, on the executors: see `deltic.Table.optimize`.

    Bins (files that are rewritten together) are the small files that become one file, all files of a partition for a
    Z-order, and up to 150 GiB for a clustered table. One task writes a bin. A large bin whose rows are ordered along a
    curve is divided: a job samples its rows, and Spark's shuffle brings them to up to 1,000 tasks, each of which sorts
    an interval of the curve and writes at least one file (`docs/spark.md`). A task needs up to about 600 MB of memory,
    and writes other rows that are to be sorted to the disk of its machine.

    Arguments:
        spark: The session.
        uri: A path or URL, or a `deltic.Table`.
        where: SQL over partition columns: only their files are rewritten.
        zorder_by: Columns by which the rows of each partition are ordered along a Z-order curve.
        target_file_size: The size of new files in bytes, or a string such as `"128 MB"`.
        full: True also rewrites files of a clustered table that are clustered already.
        max_tasks: The most Spark tasks of a job, by default one for each bin, and 1,000 for bins that are divided.
            With 1 no bin is divided. On one machine (`local[n]`), where one task uses all cores, bins are divided only
            if it is given.
        dry_run: True only plans, and returns what would be done.
        storage_options: The store's settings, as for `deltic.Table`.

    The driver chooses the files and commits, as `deltic.Table.optimize` does: one commit for about 64 GiB of files.
    `dataChange` is false, rows keep their ids, and bins that other writers changed meanwhile are left out
    (`files_lost`). Nothing of a failed or killed task is in a commit. If a job fails its files are deleted, except
    those of a task that is still running, and the commits before it are kept.

    Raises the errors of `deltic.Table.optimize`, and `InvalidInputError` for `memory://`. An error in a task becomes
    Spark's `PythonException`, with the text of deltic's error.

    >>> for day in range(3):
    ...     _ = deltic.spark.write(spark.range(4).coalesce(1), uri + "_days")
    >>> deltic.spark.optimize(spark, uri + "_days").metrics["numRemovedFiles"]
    3
    """
    options = optimize_options(where, zorder_by, target_file_size, full, max_tasks)
    only_plans, most = check_bool(dry_run, "dry_run"), check_int(max_tasks, "max_tasks", 1)
    checked_session(spark)
    table = shared(uri, storage_options)
    run = _deltic.optimize_distributed(table._core, options)
    cluster = dividing_cluster(spark, most)
    while not only_plans and (tasks := run.next_tasks(cluster)):
        rewrites, samples = tasks
        try:
            written = []
            if rewrites:
                written += run_tasks(spark, rewrites, _rewriter(table.storage_options), "OPTIMIZE", most)
            if samples:
                written += rewrite_intervals(spark, run, samples, table.storage_options, most)
            run.commit(written)
        except BaseException:
            # The driver no longer knows which files the commit may have.
            with suppress(DelticError):
                run.discard()
            raise
    return OptimizeResult.parse(run.result(), only_plans)


def convert(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    *,
    partition_schema: Any = None,
    collect_statistics: bool = True,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    max_tasks: int | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> ConvertResult:
    """Make a Delta table of the Parquet files in a folder, or of an Iceberg table: see `deltic.convert`.

    The executors read the footers, in tasks of at most 1,000 files, in jobs of at most 50,000 files. Only the driver
    lists the folder, or reads the metadata of an Iceberg table, and commits; its memory grows with the commit.

    Arguments:
        spark: The session.
        uri: A path or URL, or a `deltic.Table`, as for `deltic.convert`.
        partition_schema: The columns of folders such as `day=2013-01-01`: types by name, or a `pyarrow.Schema`.
        collect_statistics: Whether statistics of the columns are taken from the footers.
        properties: Properties of the table.
        name: The table's name.
        description: The table's description.
        max_tasks: The most Spark tasks of a job, by default four for each core.
        dry_run: True only reads the footers, and returns what would be done.
        storage_options: The store's settings, as for `deltic.Table`.

    Raises the errors of `deltic.convert`, and `InvalidInputError` for `memory://`. An error in the footer of a file
    becomes Spark's `PythonException`, with the text of deltic's error. Nothing is written then.

    >>> spark.range(4).write.parquet(uri + "_folder")
    >>> deltic.spark.convert(spark, uri + "_folder").num_rows
    4
    """
    given = {"properties": properties, "name": name, "description": description}
    most, only_plans = check_int(max_tasks, "max_tasks", 1), check_bool(dry_run, "dry_run")
    checked_session(spark)
    conversion = Conversion.of(shared(uri, storage_options), partition_schema, collect_statistics, given)
    table = conversion.table
    work = _deltic.convert_distributed(table._core, conversion.partitions, conversion.options, only_plans)
    while tasks := work.next_tasks(most or TASKS_PER_CORE * cores(spark), FILES_PER_TASK):
        work.take(run_tasks(spark, tasks, _footer_reader(table.storage_options), "CONVERT"))
    return ConvertResult.of(work.commit())


def vacuum(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    retention: timedelta | float | str | None = None,
    *,
    mode: VacuumMode = "full",
    dry_run: bool = False,
    force: bool = False,
    log: bool = True,
    inventory: Any = None,
    storage_options: Mapping[str, str] | None = None,
) -> VacuumResult:
    """Delete files that no version within the retention needs: see `deltic.Table.vacuum`.

    The driver reads the log and writes the history; the executors list the folders of the table's root, decide by the
    rule of `deltic.Table.vacuum`, and delete. Files directly in the root, those from the log (`mode="lite"`) and those
    of an `inventory` are chosen by the driver and deleted by the executors. Folders whose names look like another
    location, such as `file:`, are not listed.

    Arguments:
        spark: The session.
        uri: A path or URL, or a `deltic.Table`.
        retention: How long removed files are kept: a `timedelta`, a number of hours, or a string such as `"7 days"`; by
            default `delta.deletedFileRetentionDuration`, or a week.
        mode: `"full"` lists the table's folder, `"lite"` takes removed files from the log.
        dry_run: True deletes nothing, and returns the files.
        force: True allows a retention shorter than the table's.
        log: False leaves the vacuum out of the history, and writes nothing before files are deleted.
        inventory: Files instead of a listing, as for `deltic.Table.vacuum`; a Spark DataFrame is read partition by
            partition.
        storage_options: The store's settings, as for `deltic.Table`.

    The driver needs 8 bytes of memory for each file that is kept, 16 on a local disk. A task needs 8 bytes for each
    file to keep in its folders, on a local disk for each of the whole table; they are sent as about 20 bytes of text
    each.

    A task that runs again or twice at the same time deletes no other files: the driver sets the cutoff, and younger
    files are kept. Files that the driver chose are deleted by name, on a local disk only if they are still old. A task
    deletes nothing unless it finds the newest commit that the driver found, and so uses the same store: environment
    variables are not sent to executors, `storage_options` are.

    Files that an unfinished attempt deleted are not counted. If a job fails, the history says so, the table is intact,
    and the vacuum can be run again; a task that is still running goes on deleting.

    Raises the errors of `deltic.Table.vacuum`, and `InvalidInputError` for `memory://`. If the store fails in a task,
    the driver raises `StorageError`; if a task is killed, it raises Spark's error.

    >>> for _ in range(2):
    ...     _ = deltic.spark.write(spark.range(4).coalesce(1), uri + "_replaced", mode="overwrite")
    >>> deltic.spark.vacuum(spark, uri + "_replaced", 0, force=True).files_deleted
    1
    """
    checked_session(spark)
    table = shared(uri, storage_options)
    arguments = vacuum_arguments(retention, mode, dry_run, force, log, inventory)
    with operation("vacuum", table.uri) as span:
        work = _deltic.vacuum_distributed(table._core, *arguments)
        try:
            while tasks := work.next_tasks(TASKS_PER_CORE * cores(spark)):
                work.take(run_tasks(spark, tasks, _sweeper(table.storage_options), "VACUUM"))
        except BaseException:
            # This writes the failure to the history.
            with suppress(DelticError):
                work.end()
            raise
        return span.record(VacuumResult.parse(*work.end()))
