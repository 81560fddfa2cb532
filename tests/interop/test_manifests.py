"""Manifests, purge and repair, compared with delta-spark's manifests and REORG; delta-spark continues the tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from symlink_manifests import FOLDER, manifests

import deltic


def both(spark: SparkSession, uri: str) -> dict[str, list[str]]:
    """Check that both write the same manifests into an empty folder; return them."""
    shutil.rmtree(Path(uri, FOLDER), ignore_errors=True)
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{uri}`")
    theirs = manifests(uri)
    shutil.rmtree(Path(uri, FOLDER))
    deltic.Table(uri).write_manifests()
    assert manifests(uri) == theirs
    return theirs


def test_manifests_are_the_same(spark: SparkSession, uri: str) -> None:
    values = ["a", None, "a b", "x/y", "50%", "ü", "c=d", "tab\t", "{[]}^", "'q'"]
    deltic.write(uri, pa.table({"p": values, "q": [1] * 10, "n": range(10)}), partition_by=["p", "q"])
    spark.sql(f"INSERT INTO delta.`{uri}` VALUES ('a', 1, 100)")
    assert len(both(spark, uri)) == len(values)
    plain = uri + "-plain"
    spark.range(5).write.format("delta").save(plain)
    assert list(both(spark, plain)) == ["."]
    deltic.Table(plain).delete()
    assert both(spark, plain) == {".": []}


def test_commits_keep_the_manifests_that_are_generated(spark: SparkSession, uri: str) -> None:
    enabled = {"delta.compatibility.symlinkFormatManifest.enabled": "true", "delta.checkpointInterval": "3"}
    rows = pa.table({"p": ["a", "b c", None, "d"], "n": range(4), "v": range(4)})
    table = deltic.Table(uri)
    deltic.write(table, rows, partition_by=["p"], properties=enabled)
    at = f"delta.`{uri}`"
    steps: list[Callable[[], object]] = [
        lambda: deltic.write(table, pa.table({"p": ["b c", "e"], "n": [10, 11]})),
        lambda: table.delete("p = 'a'"),
        lambda: table.update({"p": "'d'"}, "n = 10"),
        lambda: spark.sql(f"INSERT INTO {at} VALUES ('e', 20, 0), ('f', 21, 0)"),
        lambda: table.delete("n = 20"),
        lambda: spark.sql(f"DELETE FROM {at} WHERE p IS NULL"),
        lambda: table.optimize(),
        lambda: deltic.write(table, rows.slice(2), mode="overwrite", partition_overwrite="dynamic"),
        lambda: table.restore(3),
        lambda: deltic.write(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=["n", "p"]),
        lambda: table.delete("n > 1"),
        lambda: table.delete(),
        lambda: deltic.write(table, rows),
    ]
    for at_step, step in enumerate(steps):
        step()
        kept = manifests(uri)
        shutil.rmtree(Path(uri, FOLDER))
        spark.sql(f"GENERATE symlink_format_manifest FOR TABLE {at}")
        assert manifests(uri) == kept, at_step
    assert len(kept) == 4


def test_nothing_is_left_for_reorg(spark: SparkSession, uri: str) -> None:
    enabled = ("enableDeletionVectors", "enableRowTracking")
    properties = ", ".join([*(f"'delta.{name}' = 'true'" for name in enabled), "'delta.columnMapping.mode' = 'name'"])
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, gone STRING, s STRUCT<x: INT, y: INT>, p INT) USING delta "
        f"PARTITIONED BY (p) TBLPROPERTIES ({properties})"
    )
    for part in range(2):
        spark.sql(f"INSERT INTO delta.`{uri}` SELECT id, 'x', named_struct('x', 1, 'y', 2), {part} FROM range(20)")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = 3 AND p = 0")
    spark.sql(f"ALTER TABLE delta.`{uri}` DROP COLUMN gone")
    spark.sql(f"ALTER TABLE delta.`{uri}` DROP COLUMN s.y")

    def rows() -> list[tuple[object, ...]]:
        found = spark.sql(f"SELECT *, _metadata.row_id FROM delta.`{uri}`").collect()
        return sorted(tuple(row) for row in found)

    before = rows()
    result = deltic.Table(uri).purge()
    assert (result.files_with_vectors, result.files_to_rewrite) == (1, result.files_total)
    assert rows() == before
    version = deltic.Table(uri).snapshot().version
    spark.sql(f"REORG TABLE delta.`{uri}` APPLY (PURGE)")
    assert deltic.Table(uri).snapshot().version == version
    assert spark.sql(f"DESCRIBE HISTORY delta.`{uri}` LIMIT 1").collect()[0]["operation"] == "REORG"


def test_delta_spark_continues_a_repaired_table(spark: SparkSession, uri: str) -> None:
    for n in range(3):
        spark.range(n, n + 1).coalesce(1).write.format("delta").mode("append").save(uri)
    table = deltic.Table(uri)
    next(Path(uri).glob("*.parquet")).unlink()
    Path(uri, "_delta_log", f"{2:020}.crc").write_text("{}")
    assert table.repair(dry_run=False).committed == 3
    assert spark.read.format("delta").load(uri).count() == 2
    spark.range(9, 10).write.format("delta").mode("append").save(uri)
    assert table.scan().count() == 3
    assert table.check(files=True).ok
