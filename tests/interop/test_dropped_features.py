"""Features that deltic drops with their history: delta-spark continues the tables, and completes what deltic began."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from delta_spark import check_checksum
from sample import rows

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

pytestmark = pytest.mark.usefixtures("validating")

PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
    "delta.enableRowTracking": "true",
}


def age(uri: str) -> None:
    """Make the files of the log two days older."""
    for path in Path(uri, "_delta_log").iterdir():
        modified = path.stat().st_mtime - 2 * 24 * 60 * 60
        os.utime(path, (modified, modified))


def with_features(uri: str) -> deltic.Table:
    deltic.write(uri, pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", "c"]}), properties=PROPERTIES)
    table = deltic.Table(uri)
    table.alter_column("id", type="long")
    deltic.write(table, pa.table({"id": [4], "v": ["d"]}))
    table.delete("id = 2")
    return table


def check(spark: SparkSession, table: deltic.Table) -> None:
    check_checksum(spark, table.uri, needed=False)
    assert rows(spark.read.format("delta").load(table.uri).toArrow()) == rows(table.scan().to_arrow())
    spark.sql(f"INSERT INTO delta.`{table.uri}` VALUES (9, 'x')")
    check_checksum(spark, table.uri)
    assert rows(spark.read.format("delta").load(table.uri).toArrow()) == rows(table.scan().to_arrow())


@pytest.mark.parametrize("feature", ["deletionVectors", "typeWidening"])
def test_delta_spark_continues_after_a_truncated_history(spark: SparkSession, uri: str, feature: str) -> None:
    table = with_features(uri)
    with pytest.raises(deltic.InvalidInputError, match="call it again"):
        table.drop_feature(feature, truncate_history=True)
    check(spark, table)
    age(uri)
    table.drop_feature(feature, truncate_history=True)
    check(spark, table)
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()
    assert {feature, "checkpointProtection"}.isdisjoint(detail["tableFeatures"])
    (latest, *_) = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").where("operation = 'DROP FEATURE'").collect()
    assert latest["operationParameters"] == {"featureName": feature, "truncateHistory": "true"}
    with pytest.raises(Exception, match=r"DELTA_VERSION|Cannot time travel|not available"):
        spark.read.format("delta").option("versionAsOf", 1).load(uri).collect()


@pytest.mark.parametrize("feature", ["deletionVectors", "typeWidening"])
def test_delta_spark_finds_no_trace_after_the_first_call(spark: SparkSession, uri: str, feature: str) -> None:
    """delta-spark checks the history by its own rules, and drops the feature after deltic has removed the traces."""
    table = with_features(uri)
    with pytest.raises(deltic.InvalidInputError, match="call it again"):
        table.drop_feature(feature, truncate_history=True)
    expected = rows(table.scan().to_arrow())
    age(uri)
    spark.sql(f"ALTER TABLE delta.`{uri}` DROP FEATURE {feature} TRUNCATE HISTORY")
    assert feature not in table.snapshot().protocol.get("readerFeatures", [])
    assert rows(table.scan().to_arrow()) == expected
    assert table.check(files=True).ok
