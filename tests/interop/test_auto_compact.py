"""Auto compaction of a table of delta-spark: its small files count, and it continues the compacted table."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

import deltic


def test_delta_spark_reads_and_continues_a_compacted_table(spark: SparkSession, uri: str) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, part STRING) USING delta PARTITIONED BY (part) TBLPROPERTIES "
        "('delta.autoOptimize.autoCompact' = 'true', 'delta.enableDeletionVectors' = 'true', "
        "'delta.enableRowTracking' = 'true', 'delta.enableChangeDataFeed' = 'true')"
    )
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "false")
    try:
        for id in range(30):
            spark.sql(f"INSERT INTO delta.`{uri}` VALUES ({id}, 'a')")
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.enabled")
    table = deltic.Table(uri)
    commits = [deltic.write(table, pa.table({"id": [id], "part": ["a"]})) for id in range(30, 50)]
    assert [commit.compaction for commit in commits[:-1]] == [None] * 19, "delta-spark's small files count too"
    packed = commits[-1].compaction
    assert packed == commits[-1].version + 1
    assert table.snapshot().num_files == 1
    rows = spark.sql(f"SELECT id, _metadata.row_id FROM delta.`{uri}` ORDER BY id").collect()
    assert [(row[0], row[1]) for row in rows] == [(id, id) for id in range(50)]
    last = spark.sql(f"DESCRIBE HISTORY delta.`{uri}` LIMIT 1").collect()[0]
    assert (last["version"], last["operation"], last["operationParameters"]["auto"]) == (packed, "OPTIMIZE", "true")
    changes = spark.sql(f"SELECT * FROM table_changes_by_path('{uri}', {packed})").collect()
    assert changes == []
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 2 = 0")
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == list(range(1, 50, 2))
