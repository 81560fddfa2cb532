"""Maintenance with the cores of a Spark cluster: the driver plans and commits, the executors write files again.

A task hands back what it wrote as bytes, and only those of successful attempts arrive: what a failed, retried or
speculative task wrote is named by no commit. When a job fails, the driver finds the files of all its tasks by their
names and deletes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from deltic import _deltic
from deltic.arguments import flag, whole
from deltic.errors import DelticError
from deltic.maintenance import OptimizeResult, optimize_options
from deltic.spark.location import checked_session, shared
from deltic.spark.tasks import run_tasks
from deltic.table import Table

__all__ = ["optimize"]


def _rewriter(
    storage_options: dict[str, str] | None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rewrite(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tasks:
            for task in batch.column(0):
                written = _deltic.rewrite_files(task.as_py(), storage_options)
                yield pa.record_batch([pa.array([written], pa.binary())], names=["result"])

    return rewrite


def optimize(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    where: str | None = None,
    *,
    zorder_by: Sequence[str] | str | None = None,
    target_file_size: int | None = None,
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
            written = run_tasks(spark, tasks, _rewriter(table.storage_options), most)
            run.commit(written)
        except BaseException:
            # What a commit may name is no longer known to it.
            with suppress(DelticError):
                run.discard()
            raise
    return OptimizeResult.parse(run.told(), only_plans)
