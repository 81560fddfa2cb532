"""Tasks that travel to executors as bytes, and their results, which come back as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

__all__ = ["Batches", "cores", "each", "run_tasks", "spread"]

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark calls in an executor with batches of tasks."""


def cores(spark: SparkSession) -> int:
    """Tasks that the cluster carries out at a time; a client of Spark Connect does not know, and assumes 32."""
    if is_remote():
        return 32
    return int(spark.sparkContext.defaultParallelism)


def spread(spark: SparkSession, tasks: Sequence[bytes], partitions: int) -> DataFrame:
    """A DataFrame of one column, with a row for each task, in so many partitions."""
    rows = [(bytes(task),) for task in tasks]
    if is_remote():
        # A client has no partitions to choose: spread the rows, one task in most.
        return spark.createDataFrame(rows, "task binary").repartition(partitions)
    divided = spark.sparkContext.parallelize(rows, partitions)
    return spark.createDataFrame(divided, "task binary", verifySchema=False)


def each(carry_out: Callable[[bytes, dict[str, str] | None], bytes], settings: dict[str, str] | None) -> Batches:
    """Carries out each task of batches of tasks."""

    def carry_out_all(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tasks:
            for task in batch.column(0):
                done = carry_out(task.as_py(), settings)
                yield pa.record_batch([pa.array([done], pa.binary())], names=["result"])

    return carry_out_all


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[bytes],
    carry_out: Batches,
    max_tasks: int | None = None,
) -> list[bytes]:
    """Carry out tasks on the executors, one in each Spark task unless there are to be fewer; what each gave."""
    partitions = min(len(tasks), max_tasks or len(tasks))
    done = spread(spark, tasks, partitions).mapInArrow(carry_out, "result binary")
    results: list[bytes] = done.toArrow().column(0).to_pylist()
    return results
