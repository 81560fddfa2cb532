"""`format("deltic")` with each option under Spark's and Delta's names: delta-spark reads and continues the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from delta_spark import check_checksum

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

import deltic.spark  # noqa: E402

pytestmark = pytest.mark.usefixtures("validating")

TABLE = [("a", 1), ("a", 2), ("b", 3), ("b", 4)]
WAYS: dict[str, tuple[str, dict[str, Any], list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "append": ("append", {}, [("c", 5)], [*TABLE, ("c", 5)]),
    "overwrite": ("overwrite", {}, [("c", 5)], [("c", 5)]),
    "ignore": ("ignore", {}, [("c", 5)], TABLE),
    "replaceWhere": ("overwrite", {"replaceWhere": "n % 2 = 0"}, [("c", 6)], [("a", 1), ("b", 3), ("c", 6)]),
    "partitionOverwriteMode": (
        "overwrite",
        {"partitionOverwriteMode": "dynamic"},
        [("b", 5)],
        [("a", 1), ("a", 2), ("b", 5)],
    ),
    "mergeSchema": (
        "append",
        {"mergeSchema": "true"},
        [("c", 5, 1.5)],
        [*((*row, None) for row in TABLE), ("c", 5, 1.5)],
    ),
    "overwriteSchema": ("overwrite", {"overwriteSchema": "true"}, [("c", 5, 1.5)], [("c", 5, 1.5)]),
    "userMetadata": ("append", {"userMetadata": "why"}, [("c", 5)], [*TABLE, ("c", 5)]),
    "txn": ("append", {"txnAppId": "job", "txnVersion": "3"}, [("c", 5)], [*TABLE, ("c", 5)]),
    "dataChange": ("overwrite", {"dataChange": "false"}, TABLE, TABLE),
    "maxRecordsPerFile": ("append", {"maxRecordsPerFile": "1"}, [("c", 5), ("c", 6)], [*TABLE, ("c", 5), ("c", 6)]),
    "compression": ("append", {"compression": "snappy"}, [("c", 5)], [*TABLE, ("c", 5)]),
    "optimizeWrite": ("append", {"optimizeWrite": "true"}, [("c", 5), ("c", 6)], [*TABLE, ("c", 5), ("c", 6)]),
    "files": (
        "append",
        {
            "sort_by": "n",
            "row_group_rows": "1",
            "compression_level": "3",
            "column_options": '{"n": {"encoding": "delta_binary_packed", "bloom_filter": true}}',
            "commit_info": '{"nightly": 1}',
            "target_file_size": "1",
        },
        [("c", 6), ("c", 5)],
        [*TABLE, ("c", 5), ("c", 6)],
    ),
}


@pytest.fixture
def installed(spark: SparkSession) -> Iterator[None]:
    deltic.spark.install(spark)
    yield
    deltic.spark.uninstall(spark)


def content(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


def save(spark: SparkSession, uri: str, way: str) -> None:
    mode, options, rows, _expected = WAYS[way]
    schema = "p string, n long" if len(rows[0]) == 2 else "p string, n long, x double"
    spark.createDataFrame(rows, schema).coalesce(1).write.format("deltic").mode(mode).options(**options).save(uri)


def check(spark: SparkSession, uri: str, way: str) -> None:
    _mode, options, _rows, expected = WAYS[way]
    assert content(spark.read.format("delta").load(uri)) == sorted(expected, key=repr)
    check_checksum(spark, uri)
    (entry,) = spark.sql(f"DESCRIBE HISTORY delta.`{uri}` LIMIT 1").collect()
    assert entry.userMetadata == options.get("userMetadata")
    theirs = spark.read.format("delta").load(uri)
    theirs.limit(1).write.format("delta").mode("append").save(uri)
    assert spark.read.format("deltic").load(uri).count() == len(expected) + 1


@pytest.mark.usefixtures("installed")
@pytest.mark.some(4)
@pytest.mark.parametrize("way", WAYS)
def test_delta_spark_reads_and_continues_the_table(spark: SparkSession, uri: str, way: str) -> None:
    spark.createDataFrame(TABLE, "p string, n long").write.format("deltic").partitionBy("p").save(uri)
    assert spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()[0].partitionColumns == ["p"]
    save(spark, uri, way)
    check(spark, uri, way)


@pytest.mark.some(3)
@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("ignore", "optimizeWrite")])
def test_delta_spark_reads_and_continues_writes_of_the_data_source(spark: SparkSession, uri: str, way: str) -> None:
    deltic.spark.register(spark)
    spark.createDataFrame(TABLE, "p string, n long").write.format("delta").partitionBy("p").save(uri)
    save(spark, uri, way)
    check(spark, uri, way)


@pytest.mark.usefixtures("installed")
def test_read_options_select_the_same_rows_as_delta_spark(spark: SparkSession, uri: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{uri}` (n BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    for n in (1, 2, 3):
        spark.createDataFrame([(n,)], "n long").write.format("delta").mode("append").save(uri)
    spark.sql(f"UPDATE delta.`{uri}` SET n = 20 WHERE n = 2")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE n = 1")
    times = [str(row.timestamp) for row in spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").collect()][::-1]
    reads: list[dict[str, Any]] = [
        {"versionAsOf": 2},
        {"timestampAsOf": times[2]},
        {"readChangeFeed": "true", "startingVersion": 0},
        {"readChangeFeed": "true", "startingVersion": 2, "endingVersion": 4},
        {"readChangeFeed": "true", "startingTimestamp": times[2], "endingTimestamp": times[4]},
        {"readChangeFeed": "true", "startingVersion": 4, "endingTimestamp": times[5]},
    ]
    for options in reads:
        ours, theirs = (spark.read.format(name).options(**options).load(uri) for name in ("deltic", "delta"))
        assert ours.columns == theirs.columns
        assert content(ours) == content(theirs), options
