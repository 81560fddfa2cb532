"""A delta-spark session for one run, and rows that Spark generates.

The tests' module has the release and fetches its jars. The settings here are Spark's defaults, except for memory, the
codec, and numbers of partitions that fit the machine.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import work_job as work
from job import Answer, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "python"))
MEMORY = "6g"


@contextmanager
def session(job: Job) -> "Iterator[SparkSession]":
    """A session on all processors. Start and warm-up are not measured."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    import delta_spark
    from pyspark.sql import SparkSession

    parts = str(4 * (os.cpu_count() or 1))
    made = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", MEMORY)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", parts)
        # Numbers of tasks in which VACUUM lists (default 10,000) and deletes.
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", parts)
        .config("spark.databricks.delta.vacuum.parallelDelete.enabled", "true")
        .config("spark.databricks.delta.vacuum.parallelDelete.parallelism", parts)
        .config("spark.databricks.delta.snapshotPartitions", str(os.cpu_count() or 1))
        .config("spark.sql.parquet.compression.codec", work.CODEC)
        .config("spark.hadoop.parquet.compression.codec.zstd.level", str(work.LEVEL))
        .config("spark.databricks.delta.optimize.maxFileSize", str(work.FILE_BYTES))
        .config("spark.local.dir", str(job.scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(job.scratch / "warehouse"))
        .config("spark.jars", ",".join(map(str, delta_spark.jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    try:
        yield made
    finally:
        made.stop()


def frame(spark: "SparkSession", rows: int) -> "DataFrame":
    return spark.range(rows).selectExpr(*work.SPARK_ROWS)


def write(job: Job, format: str, source: str) -> Iterator[Answer | None]:
    """Write rows in a format. `source` is DuckDB's table expression for the answer."""
    uri = str(job.scratch / "written")
    with session(job) as spark:
        frame(spark, 1_000).write.format(format).save(str(job.scratch / "warm"))
        rows = frame(spark, work.spark_rows(job))
        yield None
        rows.write.format(format).mode("append").save(uri)
        yield None
    yield work.spark_answer(source.format(uri))
