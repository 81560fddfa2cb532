"""Both ways with delta-spark, the JVM library, at the release for the PySpark in use.

Its jars come from Maven through Spark's own resolver, once, into the cache; where that fails these tests are skipped.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from conftest import FILTERS
from sample import rows

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402


def theirs(spark: SparkSession, uri: str, version: int | None = None) -> pa.Table:
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(uri).toArrow()


def append(spark: SparkSession, uri: str, table: pa.Table, *partition_by: str) -> None:
    frame = spark.createDataFrame(table).coalesce(1)
    frame.write.format("delta").mode("append").partitionBy(*partition_by).save(uri)


def check_filters(spark: SparkSession, uri: str) -> None:
    frame = spark.read.format("delta").load(uri)
    for filter in FILTERS:
        ours = deltic.Table(uri).scan(columns=["id"], filter=filter).to_arrow()
        assert rows(frame.where(filter).select("id").toArrow()) == rows(ours), filter


@pytest.mark.parametrize("partition_by", [[], ["month"], ["origin", "month"]])
def test_delta_spark_reads_what_deltic_wrote(
    spark: SparkSession, uri: str, flights: pa.Table, partition_by: list[str]
) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=partition_by or None)
    assert rows(theirs(spark, uri)) == rows(flights)
    assert rows(theirs(spark, uri, version=0)) == rows(flights.slice(0, 40))
    check_filters(spark, uri)


@pytest.mark.parametrize("partition_by", [[], ["month"], ["origin", "month"]])
def test_deltic_reads_what_delta_spark_wrote(
    spark: SparkSession, uri: str, flights: pa.Table, partition_by: list[str]
) -> None:
    for start in range(0, 120, 40):
        append(spark, uri, flights.slice(start, 40), *partition_by)
    table = deltic.Table(uri)
    assert rows(table.scan().to_arrow()) == rows(flights)
    assert rows(table.snapshot(0).scan().to_arrow()) == rows(flights.slice(0, 40))
    assert table.snapshot().partition_columns == partition_by
    check_filters(spark, uri)


def test_statistics_of_delta_spark_prune_for_deltic(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 40):
        append(spark, uri, flights.slice(start, 40))
    plan = deltic.Table(uri).plan(filter="id BETWEEN 45 AND 50")
    assert (plan.files_kept, plan.skipped["statistics"]) == (1, 2)


def test_statistics_of_deltic_prune_for_delta_spark(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40))
    frame = spark.read.format("delta").load(uri).where("id BETWEEN 45 AND 50")
    assert frame.count() == 6
    assert len(frame.inputFiles()) == 1, "delta-spark skips the files our statistics rule out"


def test_delta_sparks_changes(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    append(spark, uri, flights, "month")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id < 60")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights.slice(60))
    spark.sql(f"UPDATE delta.`{uri}` SET integer = -1 WHERE id = 100")
    assert deltic.Table(uri).scan(filter="integer = -1").to_arrow()["id"].to_pylist() == [100]
    spark.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMN (extra STRING)")
    assert deltic.Table(uri).scan().to_arrow()["extra"].null_count == 60
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(theirs(spark, uri))
    spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 10 = 0")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(theirs(spark, uri))


def test_delta_sparks_checkpoints(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 10):
        append(spark, uri, flights.slice(start, 10), "month")
    log = Path(uri, "_delta_log")
    assert list(log.glob("*10.checkpoint.parquet"))
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights)
    plan = deltic.Table(uri).plan(filter="id BETWEEN 42 AND 48 AND month = 0")
    assert plan.files_kept == 1


def test_deltics_checkpoints(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    for start in range(0, 120, 10):
        deltic.write(uri, flights.slice(start, 10), partition_by=["month"])
    log = Path(uri, "_delta_log")
    assert list(log.glob("*10.checkpoint.parquet"))
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert rows(theirs(spark, uri)) == rows(flights)
    check_filters(spark, uri)


def test_writers_take_turns(spark: SparkSession, uri: str, flights: pa.Table) -> None:
    deltic.write(uri, flights.slice(0, 30), partition_by=["month"])
    append(spark, uri, flights.slice(30, 30), "month")
    deltic.write(uri, flights.slice(60, 30))
    append(spark, uri, flights.slice(90), "month")
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(theirs(spark, uri)) == rows(flights)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").select("version", "operation", "operationMetrics").collect()
    assert [row.version for row in history] == [3, 2, 1, 0]
    assert history[1].operation == "WRITE"
    assert history[1].operationMetrics["numOutputRows"] == "30"
    ours = deltic.Table(uri).history()
    assert [entry["version"] for entry in ours] == [3, 2, 1, 0]


def test_delta_spark_overwrites_what_deltic_wrote_and_the_other_way_round(
    spark: SparkSession, uri: str, flights: pa.Table
) -> None:
    deltic.write(uri, flights)
    spark.createDataFrame(flights.slice(0, 7)).write.format("delta").mode("overwrite").save(uri)
    assert rows(deltic.Table(uri).scan().to_arrow()) == rows(flights.slice(0, 7))
    deltic.write(uri, flights.slice(0, 3), mode="overwrite")
    assert rows(theirs(spark, uri)) == rows(flights.slice(0, 3))
    assert rows(theirs(spark, uri, version=0)) == rows(flights)
