"""Spark's types: written and read back, or refused; metadata of columns."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from log_files import Log, field
from pyspark.errors import PySparkException
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import deltic
import deltic.spark

WKB = "X'0101000000000000000000F03F0000000000000040'"


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    deltic.spark.register(spark)


def save(frame: DataFrame, uri: str) -> None:
    frame.write.format("deltic").mode("append").save(uri)


def fields(uri: str) -> list[dict[str, Any]]:
    """The fields of a table's schema in the log."""
    found: list[dict[str, Any]] = json.loads(deltic.Table(uri).snapshot().metadata["schemaString"])["fields"]
    return found


REFUSED = {
    "geometry": (f"ST_GeomFromWKB({WKB})", r"geometry\(.*ST_AsBinary", deltic.UnsupportedFeatureError),
    "geography": (f"ST_GeogFromWKB({WKB})", r"geography\(.*ST_AsBinary", deltic.UnsupportedFeatureError),
    "collation": ("'a' COLLATE UTF8_LCASE", "string collate UTF8_LCASE.*UTF8_BINARY", deltic.UnsupportedFeatureError),
    "void": ("NULL", "void.*cast it", deltic.InvalidInputError),
    "time": ("TIME'12:00:00'", r"time\(6\).*cast it to a string", deltic.InvalidInputError),
    "days": ("INTERVAL 1 DAY", r"interval day.*store its seconds, CAST\(CAST", deltic.InvalidInputError),
    "months": ("INTERVAL 1 MONTH", r"interval month.*store its months, CAST\(CAST", deltic.InvalidInputError),
}
PLACES = {"c": "{}", "c.x": "named_struct('x', {})", "c.element": "array({})", "c.value": "map('k', {})"}


def made(spark: SparkSession, expression: str) -> DataFrame:
    try:
        return spark.range(2).select("id", F.expr(expression).alias("c"))
    except PySparkException as error:
        pytest.skip(f"this pyspark has no such type: {str(error).splitlines()[0]}")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_type_that_is_not_on_the_list_is_refused(spark: SparkSession, uri: str, kind: str, place: str) -> None:
    expression, message, error = REFUSED[kind]
    frame = made(spark, PLACES[place].format(expression))
    with pytest.raises(error, match=f"column `{place}` has the Spark type {message}"):
        deltic.spark.write(frame, uri)
    assert not Path(uri).exists()


@pytest.mark.parametrize("kind", ["geometry", "collation", "void", "days"])
def test_the_data_source_refuses_such_types_too(spark: SparkSession, uri: str, kind: str) -> None:
    expression, message, error = REFUSED[kind]
    with pytest.raises(PySparkException, match=f"{error.__name__}.*column `c` has the Spark type {message}"):
        save(made(spark, expression), uri)
    assert not Path(uri).exists()


def test_the_advice_for_intervals_stores_them_completely(spark: SparkSession, uri: str) -> None:
    made = (
        "INTERVAL '-178956970-8' YEAR TO MONTH AS y, INTERVAL '-3' YEAR AS z, "
        "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND AS d, INTERVAL '5' HOUR AS h"
    )
    frame = spark.sql(f"SELECT {made}")
    months, seconds = "CAST(CAST({} AS INTERVAL MONTH) AS INT)", "CAST(CAST({} AS INTERVAL SECOND) AS DECIMAL(19, 6))"
    parts = [f"{(months if name in 'yz' else seconds).format(name)} AS {name}" for name in "yzdh"]
    deltic.spark.write(frame.selectExpr(*parts), uri)
    again = [f"{name} * INTERVAL '1' {'MONTH' if name in 'yz' else 'SECOND'} AS {name}" for name in "yzdh"]
    found = deltic.spark.read(spark, uri).selectExpr(*again)
    assert found.crossJoin(frame.toDF("a", "b", "c", "e")).where("y = a AND z = b AND d = c AND h = e").count() == 1


def test_a_user_defined_type_is_refused(spark: SparkSession, uri: str) -> None:
    frame = spark.createDataFrame([(1, Vectors.dense([1.0]))], ["id", "c"])
    message = "column `c` has the Spark type vector.*vector_to_array"
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.spark.write(frame, uri)
    with pytest.raises(deltic.InvalidInputError, match=r"column `s\.element\.c` has the Spark type vector"):
        deltic.spark.write(frame.select(F.array(F.struct("c")).alias("s")), uri)
    with pytest.raises(PySparkException, match=f"InvalidInputError.*{message}"):
        save(frame, uri)
    assert not Path(uri).exists()


def test_spark_data_in_deltic_write_is_refused_with_advice(spark: SparkSession, uri: str) -> None:
    frame = made(spark, f"named_struct('g', ST_GeomFromWKB({WKB}))")
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"`c\.g` is a geometry in the Arrow form.*ST_AsBinary"):
        deltic.write(uri, frame.toArrow())
    with pytest.raises(deltic.InvalidInputError, match=r"Spark DataFrame: write it with deltic\.spark\.write"):
        deltic.write(uri, spark.range(3))


def with_field(uri: str, kind: object, **metadata: object) -> None:
    """Add a column `c` of this type to a table's schema by hand."""
    deltic.write(uri, pa.table({"id": [1]}))
    Log(uri).add_columns(0, [field("c", kind, **metadata)], "geospatial")


@pytest.mark.parametrize(
    ("kind", "metadata", "message"),
    [
        ("geometry(OGC:CRS84)", {}, r"`c` is of the type geometry\(OGC:CRS84\)"),
        ({"type": "array", "elementType": "geography", "containsNull": True}, {}, r"`c\.element` is of the type geo"),
        ("string", {"__COLLATIONS": {"c": "icu.de"}}, "`c` is a string with a collation"),
    ],
)
def test_types_that_spark_cannot_read_are_refused_by_name(
    spark: SparkSession, uri: str, kind: object, metadata: dict[str, object], message: str
) -> None:
    with_field(uri, kind, **metadata)
    with pytest.raises(deltic.UnsupportedFeatureError, match=f"{message}.*give the columns to read without it"):
        deltic.spark.read(spark, uri)
    with pytest.raises(PySparkException, match=f"UnsupportedFeatureError.*{message}"):
        spark.read.format("deltic").load(uri)
    assert deltic.spark.read(spark, uri, columns=["id"]).collect() == [(1,)]
    assert spark.read.format("deltic").schema("id long").load(uri).collect() == [(1,)]


DESCRIBED = T.StructType(
    [
        T.StructField("id", T.LongType(), True, {"comment": 'the "key"'}),
        T.StructField("name", T.StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(4)", "owner": "ops"}),
        T.StructField("s", T.StructType([T.StructField("x", T.IntegerType(), True, {"comment": "inside"})])),
    ]
)


@pytest.mark.parametrize("door", ["deltic.spark", "format"])
def test_metadata_of_columns_is_written_and_read(spark: SparkSession, uri: str, door: str) -> None:
    frame = spark.createDataFrame([(1, "ab", (2,))], DESCRIBED)
    if door == "format":
        save(frame, uri)
        read = spark.read.format("deltic").load(uri)
    else:
        deltic.spark.write(frame, uri)
        read = deltic.spark.read(spark, uri)
    stored = {field["name"]: field for field in fields(uri)}
    assert stored["id"]["metadata"] == {"comment": 'the "key"'}
    assert stored["name"]["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(4)", "owner": "ops"}
    assert stored["s"]["type"]["fields"][0]["metadata"] == {"comment": "inside"}
    assert read.schema["id"].metadata == {"comment": 'the "key"'}
    assert read.schema["name"].metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(4)", "owner": "ops"}
    assert read.schema["s"].dataType.fields[0].metadata == {"comment": "inside"}  # type: ignore[attr-defined]
    assert read.collect() == [(1, "ab", (2,))]
    if door == "format":
        save(read, uri)
    else:
        deltic.spark.write(read, uri)
    assert deltic.Table(uri).snapshot().version == 1
    assert {field["name"]: field for field in fields(uri)} == stored


def test_a_definition_is_not_taken_from_a_dataframe(spark: SparkSession, uri: str) -> None:
    keys = {
        "delta.generationExpression": "1 + 1",
        "delta.columnMapping.physicalName": "col-1",
        "delta.identity.start": 1,
        "CURRENT_DEFAULT": "5",
        "EXISTS_DEFAULT": "5",
        "GENERATION_EXPRESSION": "1",
        "__autoGeneratedAlias": "true",
        "owner": "ops",
        "comment": "kept",
    }
    schema = T.StructType([T.StructField("id", T.LongType(), True, keys)])
    deltic.spark.write(spark.createDataFrame([(1,)], schema), uri)
    assert fields(uri)[0]["metadata"] == {"comment": "kept", "owner": "ops"}


def test_lengths_of_strings_are_kept_when_spark_keeps_them_as_types(spark: SparkSession, uri: str) -> None:
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    try:
        frame = spark.sql("SELECT CAST('a' AS CHAR(3)) AS c, array(CAST('b' AS VARCHAR(2))) AS v")
        deltic.spark.write(frame, uri)
        save(frame, uri)
    finally:
        spark.conf.unset("spark.sql.preserveCharVarcharTypeInfo")
    stored = {field["name"]: (field["type"], field["metadata"]) for field in fields(uri)}
    assert stored["c"] == ("string", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})
    assert stored["v"][1] == {"__CHAR_VARCHAR_TYPE_STRING": "array<varchar(2)>"}
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == [{"c": "a  ", "v": ["b"]}] * 2
    assert deltic.spark.read(spark, uri).where("v[0] = 'b'").count() == 2
