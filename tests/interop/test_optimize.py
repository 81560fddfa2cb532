"""OPTIMIZE by deltic and delta-spark on each other's tables: both read the same rows and row ids as before.

After every step delta-spark validates the checksum.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from delta_spark import check_checksum
from sample import adds, log_actions, rows

import deltic
from deltic import Table

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

pytestmark = pytest.mark.usefixtures("validating")


@dataclass
class Shared:
    """A table that both clients write."""

    spark: SparkSession
    uri: str
    tracks_rows: bool = False

    @property
    def table(self) -> Table:
        return Table(self.uri)

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.replace("@", f"delta.`{self.uri}`"))

    def in_spark(self) -> Counter[Any]:
        return rows(self.spark.read.format("delta").load(self.uri).toArrow())

    def ids_in_spark(self) -> Counter[Any]:
        read = self.spark.read.format("delta").load(self.uri)
        return rows(read.select("id", "_metadata.row_id", "_metadata.row_commit_version").toArrow())

    def ids(self) -> Counter[Any]:
        found = self.table.scan(columns=["id", "_metadata.row_id", "_metadata.row_commit_version"]).to_arrow()
        return rows(found.rename_columns(["id", "row_id", "row_commit_version"]))

    def state(self) -> tuple[Counter[Any], Counter[Any]]:
        """Rows and row ids, which both clients must read alike."""
        check_checksum(self.spark, self.uri, needed=False)
        found = rows(self.table.scan().to_arrow())
        assert self.in_spark() == found
        ids = self.ids() if self.tracks_rows else Counter()
        assert (self.ids_in_spark() if self.tracks_rows else Counter()) == ids
        return found, ids

    def history(self) -> dict[str, Any]:
        newest = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.uri}` LIMIT 1").first()
        assert newest is not None
        return newest.asDict()


def made(spark: SparkSession, uri: str, clauses: str, **properties: str) -> Shared:
    """A table that delta-spark created with several appends and deletes."""
    listed = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    shared = Shared(spark, uri, properties.get("enableRowTracking") == "true")
    shared.sql(
        f"CREATE TABLE @ (id BIGINT, part STRING, value INT, s STRUCT<x: INT, t: STRING>) USING delta {clauses} "
        f"TBLPROPERTIES ({listed})"
    )
    for number in range(4):
        shared.sql(
            f"INSERT INTO @ SELECT id, concat('p', id % 2), CAST(id * 37 % 101 AS INT), "
            f"named_struct('x', CAST(id AS INT), 't', 'é ' || id) "
            f"FROM range({number * 50}, {number * 50 + 50}, 1, 1)"
        )
    shared.sql("DELETE FROM @ WHERE id % 9 = 4", "DELETE FROM @ WHERE id = 7")
    return shared


CASES: list[tuple[dict[str, str], bool, str]] = [
    ({"enableDeletionVectors": "false"}, True, "compact"),
    ({"enableDeletionVectors": "true", "enableRowTracking": "true"}, False, "compact"),
    ({"enableDeletionVectors": "true", "enableRowTracking": "true"}, True, "zorder"),
    ({"columnMapping.mode": "name", "enableRowTracking": "true", "enableDeletionVectors": "true"}, True, "compact"),
    ({"columnMapping.mode": "id", "enableInCommitTimestamps": "true", "enableChangeDataFeed": "true"}, False, "zorder"),
    ({"checkpointPolicy": "v2", "enableDeletionVectors": "true"}, False, "zorder"),
]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("properties", "partitioned", "layout"),
    CASES,
    ids=["+".join([*properties, layout]) + "-partitioned" * partitioned for properties, partitioned, layout in CASES],
)
def test_deltic_optimizes_what_delta_spark_made(
    spark: SparkSession, uri: str, properties: dict[str, str], partitioned: bool, layout: str
) -> None:
    shared = made(spark, uri, "PARTITIONED BY (part)" if partitioned else "", **properties)
    # Add small files: a copy-on-write DELETE has left one file.
    shared.sql("INSERT INTO @ VALUES (1000, 'p0', 1, NULL), (1001, 'p1', NULL, NULL), (1002, NULL, 3, NULL)")
    before = shared.state()
    where = "part = 'p0'" if partitioned else None
    zorder_by = ["value", "s.x"] if layout == "zorder" else None
    result = shared.table.optimize(where, zorder_by=zorder_by)
    assert len(result.versions) == 1
    assert shared.state() == before
    entry = shared.history()
    assert (entry["operation"], entry["isBlindAppend"]) == ("OPTIMIZE", False)
    assert {name: int(value) for name, value in entry["operationMetrics"].items()} == dict(result.metrics)
    assert json.loads(entry["operationParameters"]["zOrderBy"]) == (zorder_by or [])
    # delta-spark continues the table.
    shared.sql("INSERT INTO @ VALUES (2000, 'p0', 5, NULL)", "DELETE FROM @ WHERE id = 8")
    between = shared.state()
    shared.sql("OPTIMIZE @")
    assert shared.state() == between
    again = shared.table.optimize()
    assert (again.files_to_rewrite, again.versions) == (0, []), "delta-spark has compacted all files"
    assert shared.state() == between
    assert shared.table.check(files=True).ok


def test_optimize_is_recorded_as_by_delta_spark(spark: SparkSession, uri: str) -> None:
    entries = []
    for number, by in enumerate(("deltic", "delta-spark")):
        shared = made(spark, f"{uri}{number}", "PARTITIONED BY (part)", enableDeletionVectors="true")
        if by == "deltic":
            shared.table.optimize("part = 'p1'", zorder_by=["value"])
        else:
            shared.sql("OPTIMIZE @ WHERE part = 'p1' ZORDER BY (value)")
        entries.append((shared.history(), log_actions(shared.uri, shared.table.snapshot().version)))
    (ours, our_log), (theirs, their_log) = entries
    assert set(theirs["operationMetrics"]) <= {*ours["operationMetrics"], *EXTRA}
    for name in ("numRemovedFiles", "numAddedFiles", "numDeletionVectorsRemoved"):
        assert ours["operationMetrics"][name] == theirs["operationMetrics"][name], name
    assert set(theirs["operationParameters"]) == set(ours["operationParameters"])
    for name in ("zOrderBy", "clusterBy", "auto"):
        assert ours["operationParameters"][name] == theirs["operationParameters"][name], name
    for kind in ("add", "remove"):
        our, their = ([a[kind] for a in log if kind in a] for log in (our_log, their_log))
        assert {a["dataChange"] for a in our} == {a["dataChange"] for a in their} == {False}


EXTRA = {"numDeletionVectorRowsRemoved", "numDeletionVectorBytesRemoved"}


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_deltic_clusters_what_delta_spark_made(spark: SparkSession, uri: str, mapping: str) -> None:
    properties = {"columnMapping.mode": mapping, "enableRowTracking": "true", "enableDeletionVectors": "true"}
    shared = made(spark, uri, "CLUSTER BY (value, s.x)", **properties)
    before = shared.state()
    result = shared.table.optimize()
    assert (result.layout, result.columns) == ("hilbert", ["value", "s.x"])
    assert shared.state() == before
    tags = adds(uri, result.versions[0])[0]["tags"]
    assert json.loads(shared.history()["operationParameters"]["clusterBy"]) == ["value", "s.x"]
    # Each client recognizes the clustering of the other, and rewrites nothing.
    version = shared.table.snapshot().version
    shared.sql("OPTIMIZE @")
    assert shared.table.snapshot().version == version
    shared.sql("INSERT INTO @ VALUES (2000, 'p0', 5, NULL)")
    shared.sql("OPTIMIZE @")
    assert shared.table.snapshot().version == version + 2
    theirs = adds(uri, version + 2)[0]
    assert theirs["clusteringProvider"] == "liquid"
    assert set(theirs["tags"]) == set(tags)
    assert theirs["tags"]["ZCUBE_ZORDER_BY"] == tags["ZCUBE_ZORDER_BY"]
    assert shared.table.optimize().versions == []
    assert shared.state()[0].total() == before[0].total() + 1
    assert shared.table.optimize(full=True).versions == [version + 3]
    assert shared.state()[1].total() == before[1].total() + 1


def test_type_widening_and_identity_columns(spark: SparkSession, uri: str) -> None:
    shared = Shared(spark, uri)
    shared.sql(
        "CREATE TABLE @ (id BIGINT GENERATED BY DEFAULT AS IDENTITY, a INT, twice INT GENERATED ALWAYS AS (a * 2)) "
        "USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.enableDeletionVectors' = 'true')",
        "INSERT INTO @ (a) VALUES (1), (2), (3)",
        "INSERT INTO @ (id, a) VALUES (100, 4)",
        "INSERT INTO @ (a) VALUES (5)",
        "DELETE FROM @ WHERE a = 2",
    )
    before = shared.state()
    assert shared.table.optimize().versions
    assert shared.state() == before
    shared.sql("INSERT INTO @ (a) VALUES (7)")
    found = shared.table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(set(found)) == len(found), "identity values stay unique"

    widened = Shared(spark, uri + "-wide")
    widened.sql(
        "CREATE TABLE @ (id INT, day DATE) USING delta TBLPROPERTIES "
        "('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')",
        "INSERT INTO @ VALUES (1, DATE '2024-01-01')",
        "ALTER TABLE @ ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE @ ALTER COLUMN day TYPE TIMESTAMP_NTZ",
        "INSERT INTO @ VALUES (5000000000, TIMESTAMP_NTZ '2024-01-02 03:04:05')",
    )
    before = widened.state()
    assert widened.table.optimize(zorder_by=["id"]).versions
    assert widened.state() == before


def test_delta_spark_and_deltic_optimize_what_deltic_wrote(spark: SparkSession, uri: str) -> None:
    for number in range(5):
        data = pa.table({"id": range(number * 20, number * 20 + 20), "part": ["a", "b"] * 10})
        deltic.write(
            uri,
            data,
            partition_by=["part"],
            properties={"delta.enableDeletionVectors": "true"} if number == 0 else None,
        )
    shared = Shared(spark, uri)
    shared.table.delete("id IN (3, 44)")
    before = shared.state()
    shared.table.optimize("part = 'a'")
    assert shared.state() == before
    shared.sql("OPTIMIZE @")
    assert shared.state() == before
    assert shared.table.snapshot().num_files == 2


def skipped(table: Table, columns: list[str]) -> float:
    """The average share of files that a condition on one of the columns skips."""
    shares = []
    for column in columns:
        for low in range(0, 1000, 20):
            plan = table.plan(filter=f"{column} BETWEEN {low} AND {low + 1}")
            shares.append(1 - plan.files_kept / plan.files_total)
    return sum(shares) / len(shares)


def test_curves_skip_as_much_as_those_of_delta_spark(spark: SparkSession, uri: str) -> None:
    """The experiment of the Delta paper: 100 files, four columns, 54 % of the files skipped on average."""
    chance, columns = random.Random(7), ["a", "b", "c", "d"]
    data = pa.table({name: [chance.randrange(1000) for _ in range(40_000)] for name in columns})
    found = {}
    for layout in ("zorder", "hilbert", "delta-spark"):
        at = f"{uri}-{layout}"
        deltic.create(at, data.schema, cluster_by=columns if layout == "hilbert" else None)
        deltic.write(at, data)
        size = pa.table(Table(at).files())["size"].to_pylist()[0] // 100
        if layout == "delta-spark":
            spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(size))
            spark.sql(f"OPTIMIZE delta.`{at}` ZORDER BY ({', '.join(columns)})")
            spark.conf.unset("spark.databricks.delta.optimize.maxFileSize")
        else:
            Table(at).optimize(zorder_by=columns if layout == "zorder" else None, target_file_size=size)
        assert 95 <= Table(at).snapshot().num_files <= 105
        found[layout] = skipped(Table(at), columns)
    print({layout: f"{share:.1%}" for layout, share in found.items()})
    assert min(found["zorder"], found["hilbert"]) >= 0.54
    assert found["zorder"] >= found["delta-spark"] - 0.02, found


def test_delta_rs_reads_and_continues_an_optimized_table(uri: str) -> None:
    for number in range(5):
        deltic.write(uri, pa.table({"id": range(number * 20, number * 20 + 20)}))
    table = Table(uri)
    before = sorted(table.scan().to_arrow()["id"].to_pylist())
    table.optimize()
    table.optimize(zorder_by=["id"], target_file_size=500)
    theirs = deltalake.DeltaTable(uri)
    read = pa.table(deltalake.QueryBuilder().register("t", theirs).execute("SELECT * FROM t"))
    assert sorted(read["id"].to_pylist()) == before
    deltalake.write_deltalake(uri, pa.table({"id": [500]}), mode="append")
    deltalake.DeltaTable(uri).optimize.compact()
    table.optimize()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [*before, 500]


@pytest.mark.parametrize("mapping", ["none", "id"])
def test_rows_are_found_where_delta_spark_moved_them(spark: SparkSession, uri: str, mapping: str) -> None:
    properties = {"columnMapping.mode": mapping, "enableRowTracking": "true", "enableDeletionVectors": "true"}
    shared = made(spark, uri, "", **properties)
    columns = ["id", "value", "_metadata.row_id"]

    def state() -> dict[int, tuple[int, int]]:
        shared.state()
        found = shared.table.scan(columns=columns).to_arrow().to_pylist()
        return {row["id"]: (row["value"], row["_metadata.row_id"]) for row in found}

    expected = state()
    with shared.table.transaction() as tx:
        assert tx.delete("id IN (20, 61, 102)") == 3
        shared.sql("OPTIMIZE @ ZORDER BY (value)", "DELETE FROM @ WHERE id IN (21, 62)")
    for gone in (20, 61, 102, 21, 62):
        expected.pop(gone)
    assert state() == expected
    with shared.table.transaction() as tx:
        tx.update({"value": "value + 1000"}, "id IN (30, 71)")
        shared.sql("OPTIMIZE @ ZORDER BY (id)", "INSERT INTO @ VALUES (2000, 'p0', 5, NULL)")
    for changed in (30, 71):
        expected[changed] = (expected[changed][0] + 1000, expected[changed][1])
    found = state()
    assert {row: found[row] for row in expected} == expected
    source = pa.table({"id": pa.array([41, 81, 3000], pa.int64()), "value": pa.array([1, 2, 3], pa.int32())})
    with shared.table.transaction() as tx:
        merge = tx.merge(source, "source.id = target.id").when_matched_update({"value": "source.value"})
        merge.when_not_matched_insert({"id": "source.id", "value": "source.value"}).execute()
        shared.sql("OPTIMIZE @ ZORDER BY (value)")
    for changed, value in ((41, 1), (81, 2)):
        expected[changed] = (value, expected[changed][1])
    found = state()
    assert {row: found[row] for row in expected} == expected
    assert found.keys() == {*expected, 2000, 3000}
    assert shared.table.check(files=True).ok
    # delta-spark continues to delete and optimize.
    shared.sql("DELETE FROM @ WHERE id = 32", "OPTIMIZE @")
    del found[32]
    assert state() == found
