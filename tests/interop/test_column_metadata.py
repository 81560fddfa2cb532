"""Column comments and string lengths in DataFrames of deltic and delta-spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import deltic
import deltic.spark

NAMED = "__CHAR_VARCHAR_TYPE_STRING"
OWN = {"unit": "km", "pii": True, "bounds": [1, 2], "owner": {"team": "é", "since": 2024}, "share": 0.5}
DEFINES = {"delta.generationExpression": "id", "CURRENT_DEFAULT": "1"}


def described(spark: SparkSession, name: str) -> dict[str, tuple[str, str | None]]:
    """Type and comment of each column, by DESCRIBE."""
    found = spark.sql(f"DESCRIBE {name}").select("col_name", "data_type", "comment").collect()
    return {row.col_name: (row.data_type, row.comment or None) for row in found}


def test_delta_spark_describes_what_deltic_wrote(spark: SparkSession, uri: str) -> None:
    schema = T.StructType(
        [
            T.StructField("id", T.LongType(), True, {"comment": "the key, ключ"}),
            T.StructField("name", T.StringType(), True, {NAMED: "varchar(4)", "comment": "short"}),
            T.StructField("s", T.StructType([T.StructField("x", T.IntegerType(), True, {"comment": "inside", **OWN})])),
            T.StructField("own", T.LongType(), True, {**OWN, **DEFINES}),
        ]
    )
    deltic.spark.write(spark.createDataFrame([(1, "ab", (2,), 3)], schema), uri)
    columns = described(spark, f"delta.`{uri}`")
    assert columns["id"] == ("bigint", "the key, ключ")
    assert columns["name"][1] == "short"
    theirs = spark.read.format("delta").load(uri)
    assert theirs.schema["name"].metadata == {NAMED: "varchar(4)", "comment": "short"}
    assert theirs.schema["s"].dataType.fields[0].metadata == {"comment": "inside", **OWN}  # type: ignore[attr-defined]
    assert theirs.schema["own"].metadata == deltic.spark.read(spark, uri).schema["own"].metadata == OWN
    with pytest.raises(Exception, match=r"EXCEED_CHAR_VARCHAR_LIMIT|EXCEED_LIMIT_LENGTH"):
        spark.sql(f"INSERT INTO delta.`{uri}` VALUES (2, 'too long', NULL, NULL)")
    spark.sql(f"INSERT INTO delta.`{uri}` VALUES (2, 'cd', NULL, NULL)")
    assert sorted(row.name for row in deltic.spark.read(spark, uri).collect()) == ["ab", "cd"]


def test_deltic_describes_what_delta_spark_made(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT COMMENT 'the key, ключ', name VARCHAR(4), "
        "code CHAR(3) COMMENT 'padded', s STRUCT<x: INT COMMENT 'inside'>, codes ARRAY<VARCHAR(2)>) USING delta"
    )
    spark.sql(f"INSERT INTO delta.`{uri}` VALUES (1, 'ab', 'c', named_struct('x', 2), array('d'))")
    theirs = spark.read.format("delta").load(uri)
    deltic.spark.register(spark)
    spark.sql(f"CREATE TEMPORARY VIEW described USING deltic OPTIONS (path '{uri}')")
    for frame in (spark.read.format("deltic").load(uri), spark.table("described")):
        assert frame.schema == theirs.schema
        assert frame.collect() == theirs.collect()
        assert frame.where("code = 'c'").count() == theirs.where("code = 'c'").count() == 1
    # `deltic.spark.read` returns the CHAR as a STRING, which Spark does not pad.
    ours = deltic.spark.read(spark, uri)
    assert ours.schema["code"].metadata == {"comment": "padded"}
    assert [field for field in ours.schema if field.name != "code"] == [
        field for field in theirs.schema if field.name != "code"
    ]
    assert ours.where("code = 'c'").count() == 1
    assert [row.code.rstrip() for row in ours.collect()] == ["c"]
    # A copy written by deltic has the same description.
    copy = str(tmp_path / "copy")
    deltic.spark.write(spark.read.format("deltic").load(uri), copy)
    assert described(spark, f"delta.`{copy}`") == described(spark, f"delta.`{uri}`")
    spark.sql("DROP VIEW described")
