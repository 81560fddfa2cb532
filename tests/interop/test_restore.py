"""RESTORE and CLONE by deltic and delta-spark: each reads, checks and continues the other's result."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltic

pytestmark = pytest.mark.usefixtures("validating")

PROPERTIES = (
    "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', "
    "'delta.enableRowTracking' = 'true', "
    "'delta.columnMapping.mode' = 'name', 'delta.enableInCommitTimestamps' = 'true'"
)


def theirs(spark: SparkSession, uri: str) -> Counter[Any]:
    return Counter(tuple(row) for row in spark.read.format("delta").load(uri).collect())


def both(spark: SparkSession, uri: str) -> Counter[Any]:
    """The rows, which both clients must read alike."""
    found = theirs(spark, uri)
    ours = deltic.Table(uri).scan().to_arrow().to_pylist()
    assert Counter(tuple(row.values()) for row in ours) == found
    assert deltic.Table(uri).check(files=True).ok
    return found


def last(uri: str) -> list[dict[str, Any]]:
    log = max(path for path in Path(uri, "_delta_log").glob("*.json") if path.stem.isdigit())
    return [json.loads(line) for line in log.read_text().splitlines()]


def commit_info(uri: str) -> dict[str, Any]:
    return dict(next(action["commitInfo"] for action in last(uri) if "commitInfo" in action))


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Versions 1 to 5: rows in two partitions, rows deleted twice, and rows of another schema."""
    uri = str(tmp_path_factory.mktemp("restore") / "table")
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, `p é` STRING) USING delta PARTITIONED BY (`p é`) "
        f"TBLPROPERTIES ({PROPERTIES})"
    )
    spark.sql(f"INSERT INTO delta.`{uri}` SELECT id, CASE WHEN id % 2 = 0 THEN 'a b' ELSE '50%' END FROM range(20)")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id IN (2, 3)")
    deltic.Table(uri).delete("id = 4")
    deltic.Table(uri).add_columns([deltic.field("more", pa.int64())])
    deltic.write(uri, pa.table({"id": [30], "p é": ["new"], "more": [1]}))
    return uri


@pytest.fixture
def made(original: str, uri: str) -> str:
    """A copy of the table for one test."""
    shutil.copytree(original, uri, copy_function=shutil.copy2)
    return uri


def test_what_deltic_restores(spark: SparkSession, made: str) -> None:
    expected = Counter({(n, "a b" if n % 2 == 0 else "50%"): 1 for n in range(20) if n not in (2, 3)})
    version = deltic.Table(made).restore(2).version
    assert both(spark, made) == expected
    feed = (
        spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", str(version)).load(made)
    )
    assert sorted((row["id"], row["_change_type"]) for row in feed.collect()) == [(4, "insert"), (30, "delete")]
    spark.sql(f"UPDATE delta.`{made}` SET id = 40 WHERE id = 5")
    assert both(spark, made) == expected - Counter([(5, "50%")]) + Counter([(40, "50%")])
    spark.sql(f"RESTORE TABLE delta.`{made}` TO VERSION AS OF {version}")
    assert both(spark, made) == expected


def test_restore_is_recorded_as_by_delta_spark(spark: SparkSession, made: str) -> None:
    """RESTORE of delta-spark on the same table has the same actions, metrics and metadata."""
    table = deltic.Table(made)
    newest = table.snapshot().version
    spark.sql(f"RESTORE TABLE delta.`{made}` TO VERSION AS OF 2")
    their_info, their_actions = commit_info(made), last(made)
    expected = both(spark, made)
    table.restore(newest)
    table.restore(2)
    our_info, our_actions = commit_info(made), last(made)
    assert both(spark, made) == expected
    assert our_info["operation"] == their_info["operation"] == "RESTORE"
    assert our_info["operationParameters"].keys() == their_info["operationParameters"].keys()
    for name, count in their_info["operationMetrics"].items():
        assert our_info["operationMetrics"][name] == count, name

    def of_kind(actions: list[dict[str, Any]], kind: str) -> list[Any]:
        keys = (
            "path",
            "size",
            "partitionValues",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
            "dataChange",
        )
        return sorted(json.dumps({key: a[kind].get(key) for key in keys}, sort_keys=True) for a in actions if kind in a)

    assert of_kind(our_actions, "add") == of_kind(their_actions, "add")
    assert of_kind(our_actions, "remove") == of_kind(their_actions, "remove")
    metadata = [next(a["metaData"] for a in actions if "metaData" in a) for actions in (our_actions, their_actions)]
    assert metadata[0]["schemaString"] == metadata[1]["schemaString"]
    # deltic does not reset the highest column id, so that it assigns no id twice.
    largest = [int(m["configuration"].pop("delta.columnMapping.maxColumnId")) for m in metadata]
    assert largest[0] >= largest[1]
    assert metadata[0]["configuration"] == metadata[1]["configuration"]


def test_what_deltic_clones(spark: SparkSession, made: str, tmp_path: Path) -> None:
    expected = both(spark, made)
    table = deltic.Table(made)
    for name, shallow in (("shallow é%20", True), ("deep é%20", False)):
        clone = str(tmp_path / name)
        table.clone(clone, shallow=shallow)
        assert both(spark, clone) == expected
        spark.sql(f"DELETE FROM delta.`{clone}` WHERE id IN (6, 7)")
        left = Counter({row: n for row, n in expected.items() if row[0] not in (6, 7)})
        assert both(spark, clone) == left
    assert both(spark, made) == expected
    deltic.write(made, pa.table({"id": [50], "p é": ["c"], "more": [2]}))
    table.clone(clone, shallow=False, mode="update")
    assert both(spark, clone) == both(spark, made)


def test_what_delta_spark_clones(spark: SparkSession, made: str, tmp_path: Path) -> None:
    expected = both(spark, made)
    clone = str(tmp_path / "a clone")
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{made}`")
    assert both(spark, clone) == expected
    their_info, their_paths = commit_info(clone), sorted(a["add"]["path"] for a in last(clone) if "add" in a)
    mine = str(tmp_path / "mine")
    deltic.Table(made).clone(mine)
    our_info, our_paths = commit_info(mine), sorted(a["add"]["path"] for a in last(mine) if "add" in a)
    assert our_info["operation"] == their_info["operation"] == "CLONE"
    assert their_info["operationParameters"].items() <= our_info["operationParameters"].items()
    assert our_info["operationMetrics"] == their_info["operationMetrics"]
    assert [path.encode() for path in our_paths] == [path.replace("é", "%C3%A9").encode() for path in their_paths]
    # deltic changes and updates the clone of delta-spark.
    deltic.Table(clone).delete("id = 8")
    assert both(spark, clone) == Counter({row: n for row, n in expected.items() if row[0] != 8})
    assert deltic.Table(made).clone(clone, mode="update").attempts == 1
    assert both(spark, clone) == expected
