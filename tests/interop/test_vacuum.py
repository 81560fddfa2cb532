"""VACUUM compared with delta-spark: both delete the same files, and read each other's tables."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltic

PROPERTIES = (
    "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name'"
)


def age(uri: str) -> None:
    for path in Path(uri).rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            os.utime(path, (time.time() - 10**7,) * 2)


def rows(spark: SparkSession, uri: str) -> list[tuple[object, ...]]:
    theirs = sorted(tuple(row) for row in spark.read.format("delta").load(uri).collect())
    ours = deltic.Table(uri).scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in ours) == theirs
    return theirs


@pytest.fixture
def made(spark: SparkSession, uri: str) -> str:
    """A table with unusual partition values, deletion vectors, change files, removed files and orphans."""
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, `_p é` STRING) USING delta PARTITIONED BY (`_p é`) "
        f"TBLPROPERTIES ({PROPERTIES})"
    )
    for part in ("a b", "ü", "50%"):
        spark.sql(f"INSERT INTO delta.`{uri}` SELECT id, '{part}' FROM range(20)")
        spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 5 = 0")
        deltic.Table(uri).delete("id = 1")
    spark.sql(f"UPDATE delta.`{uri}` SET id = id + 100 WHERE id = 2")
    deltic.write(uri, pa.table({"id": [7], "_p é": ["ü"]}))
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE `_p é` = '50%'")
    (Path(uri) / "left.parquet").write_bytes(b"x")
    (Path(uri) / "_hidden").mkdir()
    (Path(uri) / "_hidden" / "left.parquet").write_bytes(b"x")
    age(uri)
    return uri


def test_both_delete_the_same_files(spark: SparkSession, made: str) -> None:
    expected = rows(spark, made)
    time.sleep(0.01)
    listed = deltic.Table(made).vacuum(0, force=True, dry_run=True).files
    assert listed is not None
    ours = set(listed["path"].to_pylist())
    dry_run = spark.sql(f"VACUUM delta.`{made}` RETAIN 0 HOURS DRY RUN").collect()
    root = Path(made).resolve()
    theirs = {Path(unquote(urlparse(row[0]).path)).resolve() for row in dry_run}
    # delta-spark also lists folders that would become empty.
    assert ours == {path.relative_to(root).as_posix() for path in theirs if path.is_file()}
    assert deltic.Table(made).vacuum(0, force=True).files_deleted == len(ours)
    assert rows(spark, made) == expected
    left = spark.sql(f"VACUUM delta.`{made}` RETAIN 0 HOURS DRY RUN").collect()
    assert not any(Path(unquote(urlparse(row[0]).path)).is_file() for row in left)
    spark.sql(f"INSERT INTO delta.`{made}` VALUES (1, 'new')")
    assert len(rows(spark, made)) == len(expected) + 1
    history = [row["operation"] for row in spark.sql(f"DESCRIBE HISTORY delta.`{made}`").collect()]
    assert history[1:3] == ["VACUUM END", "VACUUM START"]


def test_a_lite_vacuum_follows_one_of_delta_spark(spark: SparkSession, made: str) -> None:
    expected = rows(spark, made)
    spark.sql(f"VACUUM delta.`{made}` RETAIN 0 HOURS")
    # With a retention of zero, delta-spark writes no version to _last_vacuum_info, so deltic lists deleted files again.
    listed = deltic.Table(made).vacuum(0, mode="lite", force=True, dry_run=True).files
    assert listed is not None
    assert not any((Path(made) / path).exists() for path in listed["path"].to_pylist())
    spark.sql(f"DELETE FROM delta.`{made}` WHERE `_p é` = 'ü'")
    time.sleep(0.01)
    assert deltic.Table(made).vacuum(0, mode="lite", force=True).files_deleted > 0
    assert rows(spark, made) == [row for row in expected if row[1] != "ü"]
    spark.sql(f"VACUUM delta.`{made}` LITE RETAIN 0 HOURS")
    assert rows(spark, made) == [row for row in expected if row[1] != "ü"]
