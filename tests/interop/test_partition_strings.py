"""Timestamps without a time zone in partition values, which for Spark are in the zone of its session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from delta_spark import session_settings

import deltic
from deltic import Table

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

ZONE = {
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.databricks.delta.write.utcTimestampPartitionValues": "false",
}


@pytest.fixture
def abroad(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in another zone than UTC, which writes partition values without a zone."""
    with session_settings(spark, ZONE):
        yield spark


def merge(table: Table) -> None:
    source = pa.table({"v": pa.array([1], pa.int32())})
    table.merge(source, "source.v = target.v").when_matched_update({"w": "target.w + 10"}).execute()


CHANGES: dict[str, Callable[[Table], object]] = {
    "delete": lambda table: table.delete("v = 1"),
    "update": lambda table: table.update({"w": "w + 10"}, "v = 1"),
    "merge": merge,
    "optimize": lambda table: table.optimize(),
    "purge": lambda table: table.purge("v = 1"),
}


@pytest.mark.parametrize("vectors", ["false", "true"], ids=["copies", "vectors"])
def test_spark_reads_the_same_timestamps(abroad: SparkSession, tmp_path: Path, vectors: str) -> None:
    for name, change in CHANGES.items():
        uri = str(tmp_path / name)
        properties = f"'delta.enableDeletionVectors' = '{vectors}', 'delta.enableChangeDataFeed' = 'true'"
        abroad.sql(
            f"CREATE TABLE delta.`{uri}` (v INT, w INT, t TIMESTAMP) USING delta PARTITIONED BY (t) "
            f"TBLPROPERTIES ({properties})"
        )
        for rows in ("(1, 1, TIMESTAMP '2020-01-01 00:00:00'), (2, 2, TIMESTAMP '2020-01-01 00:00:00')",
                     "(3, 3, TIMESTAMP '2020-01-01 00:00:00'), (4, 4, TIMESTAMP '2020-06-01 00:00:00')"):  # fmt: skip
            abroad.sql(f"INSERT INTO delta.`{uri}` SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
        commit = Path(uri, "_delta_log", f"{1:020}.json").read_text().splitlines()
        values = [json.loads(line)["add"]["partitionValues"] for line in commit if '"add"' in line]
        assert values == [{"t": "2020-01-01 00:00:00"}]

        def read(uri: str = uri) -> dict[int, str]:
            table = abroad.sql(f"SELECT v, CAST(t AS STRING) AS t FROM delta.`{uri}`")
            return {row.v: row.t for row in table.collect()}

        before = read()
        assert before == {v: "2020-06-01 00:00:00" if v == 4 else "2020-01-01 00:00:00" for v in (1, 2, 3, 4)}
        change(deltic.Table(uri))
        kept = {v: t for v, t in before.items() if v != 1 or name not in {"delete", "purge"}}
        assert read() == kept, name
        feed = abroad.sql(f"SELECT v, CAST(t AS STRING) AS t FROM table_changes_by_path('{uri}', 3)")
        assert {row.t for row in feed.collect()} <= {"2020-01-01 00:00:00"}, name
