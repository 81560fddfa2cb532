"""Rewrites large bins by all executors: Spark brings the rows of each interval of a curve to one task.

A first job samples the columns of the curve, and the driver divides the curve into intervals with about as many rows
each. Tasks of a second job read the files, and the rows go through Spark's shuffle as bytes, so that no value becomes
one of Spark's types. Each of its last tasks sorts the rows of one interval, and writes its files. So columns are read
once, those of the curve twice, and a task holds or sorts only its part of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.monitoring.progress_bars import Work
from deltic.spark.tasks import Batches, collect, copied, cores, each, planned_in, results, run_tasks, spread

__all__ = ["dividing_cluster", "rewrite_intervals"]

BYTES_PER_TASK = 32 * 1024 * 1024
"""Bytes of files that are worth a task that reads them."""

_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_RECORDS = 16
"""Rows of Spark that may be in the memory of a task together: each has about one MiB of rows of the table."""
_ROWS = pa.schema([pa.field("rows", pa.binary())])


def dividing_cluster(spark: SparkSession, max_tasks: int | None) -> tuple[int, int | None, int] | None:
    """What `_deltic.DistributedOptimize.next_tasks` needs to divide bins; None if it must not.

    One task uses all cores of a machine, so on one machine bins are divided only if `max_tasks` is given. Sessions of
    Spark Connect cannot be copied, so there the caller must have limited the rows of a batch.
    """
    master = spark.conf.get("spark.master", "") or ""
    if max_tasks is None and master.startswith("local") and not master.startswith("local-cluster"):
        return None
    if is_remote() and not 0 < int(spark.conf.get(_RECORDS, "0") or 0) <= _MOST_RECORDS:
        return None
    return cores(spark), max_tasks, BYTES_PER_TASK


def rewrite_intervals(
    spark: SparkSession,
    run: _deltic.DistributedOptimize,
    samples: list[bytes],
    settings: dict[str, str] | None,
    max_tasks: int | None,
) -> list[bytes]:
    """Rewrite the bins that the tasks `samples` sample, and return the results of all intervals."""
    sampled = run_tasks(spark, samples, each(_deltic.sample_rows, settings), "OPTIMIZE", max_tasks)
    division, tasks, intervals = run.divide(sampled)
    if not tasks:
        return []
    given = spread(spark, tasks, min(len(tasks), max_tasks or len(tasks)))
    if not is_remote():
        given = planned_in(copied(spark, {_RECORDS: "1"}), given)
    rows = given.mapInArrow(_splitter(division, settings), "interval int, rows binary")
    if hasattr(rows, "repartitionById"):
        parts = rows.repartitionById(intervals, F.col("interval"))
    else:
        # Before Spark 4.1 some partitions have several intervals, and others none.
        parts = rows.repartition(intervals, F.col("interval")).sortWithinPartitions("interval")
    return collect(parts, _interval_writer(division, settings), Work("OPTIMIZE", "tasks", intervals))


def _splitter(division: bytes, settings: dict[str, str] | None) -> Batches:
    """A function that reads files, and returns their rows by interval."""

    def split(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tasks:
            for task in batch.column(0):
                rows = _deltic.split_rows(task.as_py(), division, settings)
                while (some := rows.read_next()) is not None:
                    yield pa.record_batch(some)

    return split


def _interval_writer(division: bytes, settings: dict[str, str] | None) -> Batches:
    """A function that writes the rows of intervals, which come one after the other."""

    def one_by_one(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            rows = batch.column("rows").cast(pa.binary())
            for at, interval in enumerate(batch.column("interval").to_pylist()):
                yield interval, pa.record_batch([rows.slice(at, 1)], schema=_ROWS)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for interval, group in groupby(one_by_one(batches), key=itemgetter(0)):
            rows = pa.RecordBatchReader.from_batches(_ROWS, map(itemgetter(1), group))
            yield results([_deltic.write_interval(division, interval, rows, settings)], [1])

    return write
