"""Tables of delta-spark with constraints, defaults and generated columns: deltic applies them in Python and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import deltic
import deltic.spark

Write = Callable[[str, DataFrame], Any]


def from_python(uri: str, frame: DataFrame) -> None:
    deltic.write(uri, frame.toArrow())


def from_spark(uri: str, frame: DataFrame) -> None:
    deltic.spark.write(frame, uri)


@pytest.fixture(params=[from_python, from_spark], ids=["python", "spark"])
def write(request: pytest.FixtureRequest) -> Write:
    found: Write = request.param
    return found


def rows(spark: SparkSession, uri: str, order: str) -> list[dict[str, Any]]:
    """The rows, which both clients must read alike."""
    theirs: list[dict[str, Any]] = spark.read.format("delta").load(uri).orderBy(order).toArrow().to_pylist()
    assert deltic.Table(uri).scan().to_arrow().sort_by(order).to_pylist() == theirs
    return theirs


def data_files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def refused(uri: str, write: Write, frame: DataFrame, message: str) -> None:
    """Check that a write is refused with this message, commits nothing and leaves no files."""
    version, files = deltic.Table(uri).snapshot().version, data_files(uri)
    with pytest.raises(Exception, match=message):
        write(uri, frame)
    assert deltic.Table(uri).snapshot().version == version
    assert data_files(uri) == files


def test_check_constraints(spark: SparkSession, uri: str, write: Write) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, `odd name` STRING, at TIMESTAMP) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    for name, sql in {
        "positive": "id > 0 AND id % 7 <> 3",
        "named": "`odd name` IN (\"it's\", 'b\\\\c') OR length(`odd name`) = 1",
        "recent": "year(at) >= 2000 OR at IS NULL",
    }.items():
        spark.sql(f"ALTER TABLE delta.`{uri}` ADD CONSTRAINT {name} CHECK ({sql})")
    good = spark.sql(
        "SELECT * FROM VALUES (1L, \"it's\", TIMESTAMP '2024-01-01 00:00:00'), (2L, 'b\\\\c', NULL) "
        "AS t(id, `odd name`, at)"
    )
    write(uri, good)
    assert [row["id"] for row in rows(spark, uri, "id")] == [1, 2]
    for values, message in {
        "10L, 'x', NULL": r"`positive`.*row 0.*id = 10",
        "NULL, 'x', NULL": r"`positive`.*id = NULL",
        "1L, 'xy', NULL": r"`named`.*`odd name` = 'xy'",
        "1L, NULL, NULL": r"`named`.*`odd name` = NULL",
        "1L, 'x', TIMESTAMP '1999-12-31 12:00:00'": r"`recent`.*at = 1999-12-31",
    }.items():
        frame = spark.sql(f"SELECT * FROM VALUES ({values}) AS t(id, `odd name`, at)").selectExpr(
            "CAST(id AS BIGINT) AS id", "CAST(`odd name` AS STRING) AS `odd name`", "CAST(at AS TIMESTAMP) AS at"
        )
        with pytest.raises(Exception, match="CHECK constraint"):
            frame.write.format("delta").mode("append").save(uri)
        refused(uri, write, frame, message)
    spark.sql(f"INSERT INTO delta.`{uri}` VALUES (4, 'z', NULL)")
    assert [row["id"] for row in rows(spark, uri, "id")] == [1, 2, 4]


def test_generated_columns(spark: SparkSession, uri: str, write: Write) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, day DATE, name STRING, twice BIGINT GENERATED ALWAYS AS (id * 2), "
        "label STRING GENERATED ALWAYS AS (concat(upper(substring(name, 1, 2)), '-', CAST(id AS STRING))), "
        "year INT GENERATED ALWAYS AS (year(day))) USING delta PARTITIONED BY (year)"
    )
    some = "SELECT 1L AS id, DATE '2024-02-29' AS day, 'abc' AS name UNION ALL SELECT 2L, NULL, NULL"
    write(uri, spark.sql(some))
    spark.sql(some.replace("1L", "11L").replace("2L", "12L")).write.format("delta").mode("append").save(uri)
    found = rows(spark, uri, "id")
    for ours, theirs in zip(found[:2], found[2:], strict=True):
        label = None if theirs["label"] is None else theirs["label"].replace("11", "1")
        assert ours | {"label": label} == theirs | {"id": ours["id"], "twice": ours["id"] * 2, "label": label}
        assert ours["twice"] == ours["id"] * 2
    assert [row["year"] for row in found] == [2024, None, 2024, None]
    assert [row["label"] for row in found[:2]] == ["AB-1", None]
    given = spark.sql(
        "SELECT 3L AS id, DATE '2023-01-01' AS day, 'x' AS name, 6L AS twice, 'X-3' AS label, 2023 AS year"
    )
    write(uri, given)
    wrong = given.selectExpr("id", "day", "name", "twice", "label", "2024 AS year")
    with pytest.raises(Exception, match="CHECK constraint Generated Column"):
        wrong.write.format("delta").mode("append").save(uri)
    refused(
        uri, write, wrong, r"row 0.*generated column `year` \(.*year\(day\).*\) gives: year = 2024, day = 2023-01-01"
    )
    assert len(rows(spark, uri, "id")) == 5


def test_defaults(spark: SparkSession, uri: str, write: Write) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, n INT DEFAULT 1 + 2 * 3, s STRING DEFAULT 'it''s', "
        "d DECIMAL(10,2) DEFAULT 1.5, "
        "day DATE DEFAULT DATE '2024-02-29', at TIMESTAMP DEFAULT current_timestamp(), p STRING DEFAULT \"q\", "
        "nothing INT DEFAULT NULL) "
        "USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.sql(f"INSERT INTO delta.`{uri}` (id) VALUES (1)")
    write(uri, spark.sql("SELECT 2L AS id UNION ALL SELECT 3L"))
    write(uri, spark.sql("SELECT 4L AS id, CAST(NULL AS INT) AS n, CAST(NULL AS STRING) AS p"))
    theirs, *ours, nulls = rows(spark, uri, "id")
    at = {row.pop("at") for row in ours}
    assert len(at) == 1, "one timestamp for each write"
    started = theirs.pop("at")
    assert 0 <= (at.pop() - started).total_seconds() < 600
    for row in ours:
        assert row | {"id": 1} == theirs
    assert (nulls["n"], nulls["p"], nulls["s"]) == (None, None, "it's")


def test_invariants(spark: SparkSession, uri: str, write: Write) -> None:
    def invariant(sql: str) -> dict[str, str]:
        return {"delta.invariants": json.dumps({"expression": {"expression": sql}})}

    inner = T.StructType([T.StructField("x", T.IntegerType(), True, invariant("s.x < 10"))])
    schema = T.StructType([T.StructField("a", T.LongType(), True, invariant("a > 3")), T.StructField("s", inner)])
    spark.createDataFrame([(4, (1,))], schema).write.format("delta").save(uri)
    assert "delta.invariants" in json.dumps(deltic.Table(uri).snapshot().metadata["schemaString"])
    plain = "a bigint, s struct<x:int>"
    write(uri, spark.createDataFrame([(5, (2,))], plain))
    for row, message in [
        ((1, (1,)), r"invariant of column `a` \(a > 3\).*a = 1"),
        ((5, (10,)), r"`s.x` \(s.x < 10\).*s.x = 10"),
    ]:
        frame = spark.createDataFrame([row], plain)
        with pytest.raises(Exception, match="violated"):
            frame.write.format("delta").mode("append").save(uri)
        refused(uri, write, frame, message)
    assert rows(spark, uri, "a") == [{"a": 4, "s": {"x": 1}}, {"a": 5, "s": {"x": 2}}]


def test_what_deltic_does_not_evaluate_refuses_the_write(spark: SparkSession, uri: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{uri}` (id BIGINT, list ARRAY<INT>) USING delta")
    spark.sql(f"ALTER TABLE delta.`{uri}` ADD CONSTRAINT few CHECK (size(array_distinct(list)) < 3)")
    frame = spark.sql("SELECT 1L AS id, array(1) AS list")
    with pytest.raises(
        deltic.UnsupportedFeatureError, match=r"`few` \(size.*\): there is no function array_distinct"
    ) as caught:
        from_python(uri, frame)
    assert tuple(caught.value.features) == ("function array_distinct",)
    assert deltic.Table(uri).scan().to_arrow().num_rows == 0


def test_spark_evaluates_what_deltic_does_not(spark: SparkSession, uri: str) -> None:
    """Both writers write the same DataFrames to tables of their own: rows and refusals are the same."""
    places = [f"{uri}_{name}" for name in ("theirs", "ours")]
    for place in places:
        spark.sql(
            f"CREATE TABLE delta.`{place}` (id BIGINT, name STRING, begun TIMESTAMP, ended TIMESTAMP, "
            "p STRUCT<n: STRING>, hash STRING GENERATED ALWAYS AS (base64(encode(name, 'UTF-8'))), "
            "month DATE GENERATED ALWAYS AS (CAST(date_trunc('MONTH', begun) AS DATE)), "
            "code STRING DEFAULT base64(encode('de', 'UTF-8'))) USING delta PARTITIONED BY (code) "
            "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
        )
        for name, sql in {
            "distinct_letters": "size(array_distinct(split(name, ''))) > 1",
            "a_day": "ended < begun + INTERVAL 1 DAY OR ended IS NULL",
            "escaped": "url_encode(p.n) = p.n OR p IS NULL",
            "code": "crc32(encode(code, 'UTF-8')) <> 0 OR code IS NULL",
        }.items():
            spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT {name} CHECK ({sql})")

    def outcome(write: Write, place: str, frame: DataFrame) -> str | None:
        before = data_files(place)
        try:
            write(place, frame)
        except Exception as error:
            assert deltic.Table(place).snapshot().version == SPARK_VERSIONS + len(written)
            assert write is to_delta or data_files(place) == before
            named = [name for name in NAMES if name in str(error)]
            return named[0] if named else str(error)
        return None

    def to_delta(place: str, frame: DataFrame) -> None:
        frame.write.format("delta").mode("append").save(place)

    all_columns = ("id", "name", "begun", "ended", "p")
    begun, some = "TIMESTAMP '2024-02-28 12:00:00'", "named_struct('n', 'abc')"
    day_later = "TIMESTAMP '2024-02-29 12:00:00'"
    rows_of = [
        (("1L", "'abc'", begun, begun, some), None),
        (("2L", "'abd'", begun, "CAST(NULL AS TIMESTAMP)", "NULL"), None),
        (("3L", "'aaa'", begun, begun, some), "distinct_letters"),
        (("4L", "CAST(NULL AS STRING)", begun, begun, some), "distinct_letters"),
        (("5L", "'abc'", begun, day_later, some), "a_day"),
        (("6L", "'abc'", "CAST(NULL AS TIMESTAMP)", begun, some), "a_day"),
        (("7L", "'abc'", begun, begun, "named_struct('n', 'a b')"), "escaped"),
        (("8L", "'abc'", begun, begun, some, "'x' AS code"), None),
        (("9L", "'abc'", begun, begun, some, "'' AS code"), None),
        (("10L", "'abc'", begun, begun, some, "'YWJj' AS hash"), None),
        (("11L", "'abc'", begun, begun, some, "'wrong' AS hash"), "hash"),
    ]
    written: list[int] = []
    for values, expected in rows_of:
        named = [f"{value} AS {name}" for name, value in zip(all_columns, values, strict=False)]
        frame = spark.sql("SELECT " + ", ".join([*named, *values[5:]]))
        frame = frame.withColumn("p", frame["p"].cast("struct<n: string>"))
        found = [outcome(to_delta, places[0], frame), outcome(from_spark, places[1], frame)]
        assert found == [expected, expected], values
        if expected is None:
            written.append(len(written))
    theirs, ours = (rows(spark, place, "id") for place in places)
    assert ours == theirs
    assert [row["id"] for row in ours] == [1, 2, 8, 9, 10]


NAMES = ("distinct_letters", "a_day", "escaped", "hash")
SPARK_VERSIONS = 4
"""The version of the table after its four constraints."""


def test_delta_spark_applies_the_rules_of_a_table_of_deltic(spark: SparkSession, uri: str) -> None:
    """delta-spark applies the rules of a table that deltic created."""
    fields = [
        pa.field("id", pa.int64()),
        pa.field("g", pa.int64(), metadata={"delta.generationExpression": "id + 1"}),
    ]
    deltic.create(uri, pa.schema(fields), properties={"delta.constraints.small": "id < 10"})
    deltic.write(uri, pa.table({"id": [1, 2]}))
    spark.sql("SELECT 3L AS id").write.format("delta").mode("append").save(uri)
    with pytest.raises(Exception, match="CHECK constraint small"):
        spark.sql("SELECT 10L AS id").write.format("delta").mode("append").save(uri)
    assert rows(spark, uri, "id") == [{"id": n, "g": n + 1} for n in (1, 2, 3)]
