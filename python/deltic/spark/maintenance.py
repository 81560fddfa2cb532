"""Maintenance with the cores of a Spark cluster: the driver plans and commits, the executors read and write files.

A task returns what it wrote as bytes, and only those of successful attempts arrive: what a failed, retried or
speculative task wrote is named by no commit. When a job fails, the driver finds the files of all its tasks by their
names and deletes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from deltic import _deltic
from deltic.arguments import flag, whole
from deltic.conversion import Conversion, ConvertResult
from deltic.errors import DelticError
from deltic.maintenance import OptimizeResult, optimize_options
from deltic.spark.location import checked_session, shared
from deltic.spark.tasks import Batches, cores, each, run_tasks
from deltic.table import Table
from deltic.telemetry import operation
from deltic.vacuum_result import VacuumMode, VacuumResult, vacuum_arguments

__all__ = ["convert", "optimize", "vacuum"]

FILES_PER_TASK = 1000
"""Footers that one task reads, at most."""

TASKS_PER_CORE = 4
"""Tasks for each core in a job that reads footers or lists folders: the driver holds the results of one job."""


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
    """Write files again in a better layout, with the cores of the executors: see `deltic.Table.optimize`.

    `uri`: a location, or a `deltic.Table`. The other arguments are those of `deltic.Table.optimize`, and mean the same;
    `max_tasks` is the most Spark tasks of a job, one for each group of files if not given. A group is written by one
    task: the small files that become one file, all files of a partition for a Z-order, up to 150 GiB for a clustered
    table. So a Z-order of a table without partitions is the work of one task. A task holds up to some 600 MB, and
    spills rows to be sorted to the disk of its machine.

    The driver chooses the files and commits, as `deltic.Table.optimize` does: one job and one commit for 64 GiB of
    files, with `dataChange` false, rows with their ids, and groups that other writers got to meanwhile left out
    (`files_lost`). Nothing of a failed or killed task is in a commit. When a job fails its files are deleted, but for
    those of a task that still runs then, and the commits before it stand.

    Raises what `deltic.Table.optimize` raises, and `InvalidInputError` for `memory://`. Failures in a task reach the
    caller as Spark's `PythonException`, the deltic error in its text.

    >>> for day in range(3):
    ...     _ = deltic.spark.write(spark.range(4).coalesce(1), uri + "_days")
    >>> deltic.spark.optimize(spark, uri + "_days").metrics["numRemovedFiles"]
    3
    """
    options = optimize_options(where, zorder_by, target_file_size, full, max_tasks)
    only_plans, most = flag(dry_run, "dry_run"), whole(max_tasks, "max_tasks", 1)
    checked_session(spark)
    table = shared(uri, storage_options)
    run = _deltic.optimize_distributed(table._core, options)
    while not only_plans and (tasks := run.next_tasks()):
        try:
            written = run_tasks(spark, tasks, _rewriter(table.storage_options), "OPTIMIZE", most)
            run.commit(written)
        except BaseException:
            # What a commit may name is no longer known to it.
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

    `uri`: a location, or a `deltic.Table`. The executors read the footers, in tasks of at most 1,000 files, and as many
    tasks at a time as `max_tasks` says, by default four for each core, with 50,000 files together at most. The driver
    alone lists the folder, or reads the metadata of an Iceberg table, and commits; what it holds grows with the commit.
    The other arguments are those of `deltic.convert`, and mean the same.

    Raises what `deltic.convert` raises, and `InvalidInputError` for `memory://`. What is wrong with the footer of a
    file reaches the caller as Spark's `PythonException`, the deltic error in its text. Nothing is written then.

    >>> spark.range(4).write.parquet(uri + "_folder")
    >>> deltic.spark.convert(spark, uri + "_folder").num_rows
    4
    """
    given = {"properties": properties, "name": name, "description": description}
    most, only_plans = whole(max_tasks, "max_tasks", 1), flag(dry_run, "dry_run")
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
    retention: timedelta | float | None = None,
    *,
    mode: VacuumMode = "full",
    dry_run: bool = False,
    force: bool = False,
    inventory: Any = None,
    storage_options: Mapping[str, str] | None = None,
) -> VacuumResult:
    """Delete files that no version within the retention needs: see `deltic.Table.vacuum`.

    `uri`: a location, or a `deltic.Table`. The driver reads the log and tells the history; the executors list the
    folders of the table's root, decide by the same rule as `deltic.Table.vacuum`, and delete. Files directly in the
    root, those that the log names (`mode="lite"`) and those of an `inventory` are chosen by the driver and deleted by
    the executors. The other arguments are those of `deltic.Table.vacuum`, and mean the same; `inventory` may be a Spark
    DataFrame with its columns, whose rows are collected to the driver. Folders whose names read as another place, such
    as `file:`, are not looked into.

    The driver holds 8 bytes for each file that is kept, 16 on a disk. A task holds 8 bytes for each file to keep in its
    folders, on a disk for each of the whole table; they travel as some 20 bytes of text.

    A task that runs again or twice at once deletes nothing else: the cutoff is the driver's, and younger files stay.
    Files that the driver chose are deleted by name, on a disk only if they are still old. A task deletes nothing unless
    it finds the VACUUM START commit: environment variables do not travel to executors, `storage_options` do.

    What an attempt deleted that did not come to its end is not counted. When a job fails the history says so, the table
    is whole, and the vacuum can be run again; a task that still runs then goes on deleting.

    Raises what `deltic.Table.vacuum` raises, and `InvalidInputError` for `memory://`. Where the store fails in a task,
    the driver raises `StorageError`; a killed task reaches the caller as Spark's error.

    >>> for _ in range(2):
    ...     _ = deltic.spark.write(spark.range(4).coalesce(1), uri + "_replaced", mode="overwrite")
    >>> deltic.spark.vacuum(spark, uri + "_replaced", 0, force=True).files_deleted
    1
    """
    checked_session(spark)
    table = shared(uri, storage_options)
    files = inventory.toArrow() if hasattr(inventory, "toArrow") else inventory
    arguments = vacuum_arguments(retention, mode, dry_run, force, files)
    with operation("vacuum", table.uri) as span:
        work = _deltic.vacuum_distributed(table._core, *arguments)
        try:
            while tasks := work.next_tasks(TASKS_PER_CORE * cores(spark)):
                work.take(run_tasks(spark, tasks, _sweeper(table.storage_options), "VACUUM"))
        except BaseException:
            # Which tells the history that it failed.
            with suppress(DelticError):
                work.end()
            raise
        return span.record(VacuumResult.parse(*work.end()))
