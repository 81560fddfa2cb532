"""Tasks that travel to executors as bytes, and their results, which come back as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

__all__ = ["cores", "run_tasks", "spread"]


def cores(spark: SparkSession) -> int:
    """Tasks that the cluster carries out at a time; a client of Spark Connect is not told, and assumes 32."""
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


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[bytes],
    carry_out: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    max_tasks: int | None = None,
) -> list[bytes]:
    """Carry out tasks on the executors, one in each Spark task unless there are to be fewer; what each gave."""
    partitions = min(len(tasks), max_tasks or len(tasks))
    done = spread(spark, tasks, partitions).mapInArrow(carry_out, "result binary")
    results: list[bytes] = done.toArrow().column(0).to_pylist()
    return results
