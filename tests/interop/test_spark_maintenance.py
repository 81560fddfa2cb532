"""delta-spark reads the results of `deltic.spark.optimize` and `deltic.convert`, also of Iceberg tables."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_spark import check_checksum
from pyspark.sql import SparkSession
from sample import rows

import deltic
import deltic.spark
from deltic.spark import intervals

pytestmark = pytest.mark.usefixtures("validating")


def in_delta_spark(spark: SparkSession, uri: str, *columns: str) -> Counter[Any]:
    read = spark.read.format("delta").load(uri)
    return rows((read.select(*columns) if columns else read).toArrow())


@pytest.mark.parametrize("layout", ["compact", "zorder", "clustered"])
def test_delta_spark_reads_what_the_executors_wrote(spark: SparkSession, uri: str, layout: str) -> None:
    by = "CLUSTER BY (id)" if layout == "clustered" else "PARTITIONED BY (part)"
    features = {"enableRowTracking": "true", "enableDeletionVectors": "true", "columnMapping.mode": "name"}
    properties = ", ".join(f"'delta.{name}' = '{value}'" for name, value in features.items())
    at = f"delta.`{uri}`"
    spark.sql(f"CREATE TABLE {at} (id BIGINT, part STRING) USING delta {by} TBLPROPERTIES ({properties})")
    for first in (0, 20, 40):
        spark.sql(f"INSERT INTO {at} SELECT id, concat('p', id % 2) FROM range({first}, {first + 20}, 1, 1)")
    spark.sql(f"DELETE FROM {at} WHERE id % 9 = 4")
    tracked = ("id", "_metadata.row_id", "_metadata.row_commit_version")
    before, ids = in_delta_spark(spark, uri), in_delta_spark(spark, uri, *tracked)
    result = deltic.spark.optimize(spark, uri, zorder_by="id" if layout == "zorder" else None)
    assert len(result.versions) == 1
    assert result.metrics["numDeletionVectorsRemoved"] > 0
    assert in_delta_spark(spark, uri) == before == rows(deltic.Table(uri).scan().to_arrow())
    assert in_delta_spark(spark, uri, *tracked) == ids
    check_checksum(spark, uri, needed=False)
    # delta-spark continues the table.
    spark.sql(f"INSERT INTO {at} SELECT 1000, 'p0'")
    spark.sql(f"OPTIMIZE {at}")
    assert rows(deltic.Table(uri).scan().to_arrow()) == in_delta_spark(spark, uri)
    assert deltic.Table(uri).check(files=True).ok


@pytest.mark.parametrize("layout", ["zorder", "clustered"])
def test_delta_spark_reads_intervals(
    spark: SparkSession, uri: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large group, whose rows several tasks sort and write."""
    monkeypatch.setattr(intervals, "BYTES_PER_TASK", 1024)
    features = {"enableRowTracking": "true", "enableDeletionVectors": "true", "columnMapping.mode": "name"}
    properties = ", ".join(f"'delta.{name}' = '{value}'" for name, value in features.items())
    at, by = f"delta.`{uri}`", "CLUSTER BY (k)" if layout == "clustered" else ""
    spark.sql(f"CREATE TABLE {at} (id BIGINT, k INT, s STRING) USING delta {by} TBLPROPERTIES ({properties})")
    for first in range(0, 8000, 2000):
        values = "id, int(nullif(hash(id) % 1000, 7)), repeat(string(hash(id, 1)), 3)"
        spark.sql(f"INSERT INTO {at} SELECT {values} FROM range({first}, {first + 2000}, 1, 1)")
    spark.sql(f"DELETE FROM {at} WHERE id % 9 = 4")
    tracked = ("id", "_metadata.row_id", "_metadata.row_commit_version")
    before, ids = in_delta_spark(spark, uri), in_delta_spark(spark, uri, *tracked)
    zorder_by = ["k", "s"] if layout == "zorder" else None
    result = deltic.spark.optimize(spark, uri, zorder_by=zorder_by, target_file_size=20_000, max_tasks=1000)
    assert (len(result.versions), result.metrics["numRemovedFiles"]) == (1, 4)
    assert result.metrics["numAddedFiles"] > 4
    assert in_delta_spark(spark, uri) == before == rows(deltic.Table(uri).scan().to_arrow())
    assert in_delta_spark(spark, uri, *tracked) == ids
    check_checksum(spark, uri, needed=False)
    spark.sql(f"UPDATE {at} SET s = 'new' WHERE id = 1")
    assert rows(deltic.Table(uri).scan().to_arrow()) == in_delta_spark(spark, uri)
    assert deltic.Table(uri).check(files=True).ok


@pytest.mark.parametrize("executors", [False, True], ids=["driver", "executors"])
def test_delta_spark_reads_an_iceberg_table(spark: SparkSession, tmp_path: Path, executors: bool) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.types import LongType

    catalog = SqlCatalog("tests", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("n")
    nested = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.string())])))])
    schema = pa.schema([("id", pa.int64()), ("old", pa.string()), ("day", pa.date32()), ("s", nested)])
    table = catalog.create_table("n.t", schema)
    with table.update_spec() as update:
        update.add_identity("day")
    struct = [{"x": 1, "y": [{"z": "p"}, None]}, None]
    days = pa.array([date(2020, 1, 1), None], pa.date32())
    table.append(pa.table({"id": [1, 2], "old": ["a", None], "day": days, "s": struct}, schema=schema))
    with table.update_schema() as evolve:
        evolve.rename_column("old", "new")
        evolve.rename_column(("s", "x"), "n")
    with table.update_schema() as again:
        again.add_column("old", LongType())  # a new column with the former name
    later = table.schema().as_arrow()
    days = pa.array([date(1960, 5, 5), None], pa.date32())
    more = [{"n": 3, "y": []}, None]
    columns: dict[str, Any] = {"id": [3, 4], "new": ["b", "c"], "day": days, "s": more, "old": [30, 40]}
    table.append(pa.table({name: columns[name] for name in later.names}, schema=later))
    uri = table.location().removeprefix("file://")
    expected = rows(table.scan().to_arrow().select(["id", "new", "day", "s", "old"]))
    if executors:
        deltic.spark.convert(spark, uri)
    else:
        deltic.convert(uri)
    assert rows(deltic.Table(uri).scan().to_arrow()) == expected == in_delta_spark(spark, uri)
    where = spark.read.format("delta").load(uri).where("day = DATE '1960-05-05' AND new = 'b' AND s.n = 3")
    assert [row["old"] for row in where.collect()] == [30]
    # delta-spark continues the table: schema changes, updates and rewritten files.
    at = f"delta.`{uri}`"
    spark.sql(f"ALTER TABLE {at} ADD COLUMN more STRING")
    spark.sql(f"INSERT INTO {at} (id, new, more) VALUES (5, 'd', 'm')")
    spark.sql(f"UPDATE {at} SET new = 'changed' WHERE id = 1")
    spark.sql(f"OPTIMIZE {at}")
    found = rows(deltic.Table(uri).scan().to_arrow())
    assert (found, sum(found.values())) == (in_delta_spark(spark, uri), 5)
    assert deltic.Table(uri).check(files=True).ok
