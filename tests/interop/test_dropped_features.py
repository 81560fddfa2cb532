"""Features that deltic drops with their history: delta-spark continues the tables, and completes what deltic began."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from delta_spark import check_checksum
from sample import rows

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

if TYPE_CHECKING:
    import duckdb

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


def mapped(uri: str, partition_by: str | None) -> deltic.Table:
    """Files of several schemas: nested columns, renamed and dropped ones, a name that is used again."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
            ("tags", pa.list_(pa.struct([("k", pa.string())]))),
            ("sizes", pa.map_(pa.string(), pa.struct([("n", pa.int64())]))),
            ("extra", pa.string()),
            ("part", pa.string()),
        ]
    )
    made = [
        {
            "id": n,
            "place": {"city": f"c{n}", "zip": n} if n % 2 else None,
            "tags": [{"k": f"t{n}"}],
            "sizes": [("a", {"n": n})],
            "extra": "gone",
            "part": [None, "x", "a b/c=d%"][n % 3],
        }
        for n in range(6)
    ]
    properties = {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}
    deltic.write(uri, pa.Table.from_pylist(made, schema=schema), partition_by=partition_by, properties=properties)
    table = deltic.Table(uri)
    for column, name in (("id", "number"), ("place.zip", "code"), ("tags.element.k", "key"), ("part", "half")):
        table.rename_column(column, name)
    table.drop_columns(["extra", "place.city"])
    table.add_columns([deltic.field("extra", "long")])
    deltic.write(table, pa.table({"number": [10], "extra": [7], "half": ["x"]}))
    table.delete("number = 2")
    return table


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("partition_by", [None, "part"])
def test_engines_read_the_same_rows_without_column_mapping(
    spark: SparkSession,
    connection: duckdb.DuckDBPyConnection,
    uri: str,
    partition_by: str | None,
    truncates: bool,
) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = mapped(uri, partition_by)
    expected = rows(table.scan().to_arrow())
    assert rows(spark.read.format("delta").load(uri).toArrow()) == expected
    if truncates:
        with pytest.raises(deltic.InvalidInputError, match="call it again"):
            table.drop_feature("columnMapping", truncate_history=True)
        age(uri)
    table.drop_feature("columnMapping", truncate_history=truncates)
    assert rows(table.scan().to_arrow()) == expected
    assert rows(pa.table(deltalake.DeltaTable(uri).to_pyarrow_table())) == expected
    assert rows(connection.execute(f"SELECT * FROM delta_scan('{uri}')").to_arrow_table()) == expected
    check_checksum(spark, uri, needed=False)
    assert rows(spark.read.format("delta").load(uri).toArrow()) == expected
    for filter, count in (("number = 3", 1), ("half = 'x'", 3), ("place.code > 3", 1), ("half IS NULL", 2)):
        assert spark.read.format("delta").load(uri).where(filter).count() == count, filter
        assert table.scan(filter=filter).to_arrow().num_rows == count, filter
        sql = f"SELECT count(*) FROM delta_scan('{uri}') WHERE {filter}"
        assert connection.execute(sql).fetchone() == (count,), filter
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()
    assert "columnMapping" not in detail["tableFeatures"]
    spark.sql(f"UPDATE delta.`{uri}` SET extra = 8 WHERE number = 10")
    check_checksum(spark, uri)
    assert rows(spark.read.format("delta").load(uri).toArrow()) == rows(table.scan().to_arrow())
    assert table.check(files=True).ok


def test_the_history_and_the_schema_are_those_of_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for engine in ("deltic", "delta-spark"):
        uri = str(tmp_path / engine)
        table = mapped(uri, None)
        expected = rows(table.scan().to_arrow())
        if engine == "deltic":
            table.drop_feature("columnMapping")
        else:
            spark.sql(f"ALTER TABLE delta.`{uri}` DROP FEATURE columnMapping")
        assert rows(table.scan().to_arrow()) == expected
        history = [(entry["operation"], entry["operationParameters"]) for entry in table.history(5)]
        (removal,) = [entry for entry in table.history() if entry["operation"] == "REMOVE COLUMN MAPPING"]
        assert int(removal["operationMetrics"]["numOutputBytes"]) > 0
        snapshot = table.snapshot()
        schema, features = json.loads(snapshot.metadata["schemaString"]), set(snapshot.protocol["writerFeatures"])
        found.append((history, schema, set(snapshot.properties), features))
    assert found[0] == found[1]
