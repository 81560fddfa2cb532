"""`deltic.spark.create_view`: a name in Spark's catalog for a table, with its present rows and columns or an error."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from delta_spark import JAVA_OPTIONS, session_settings
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from sample import every_type, rows

import deltic
import deltic.spark
from deltic.spark import create_view


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> Iterator[None]:
    deltic.spark.register(spark)
    yield
    removed(spark)


def removed(spark: SparkSession) -> None:
    spark.sql("DROP VIEW IF EXISTS flights")
    spark.sql("DROP TABLE IF EXISTS flights_columns")


def ids(spark: SparkSession, query: str = "SELECT id FROM flights") -> list[int]:
    return sorted(row[0] for row in spark.sql(query).collect())


def test_each_query_reads_the_latest_version(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2], "name": ["a", "b"]}))
    create_view(spark, "flights", uri)
    assert ids(spark) == [1, 2]
    deltic.write(uri, pa.table({"id": [3], "name": ["c"]}))
    assert ids(spark) == [row.id for row in spark.table("flights").sort("id").collect()] == [1, 2, 3]
    assert ids(spark, "SELECT a.id FROM flights a JOIN flights b USING (id) WHERE a.name > 'a'") == [2, 3]
    deltic.Table(uri).delete("id = 1")
    assert ids(spark) == [2, 3]
    described = spark.sql("DESCRIBE flights").collect()
    assert [(row.col_name, row.data_type) for row in described] == [("id", "bigint"), ("name", "string")]
    other = spark.newSession()
    deltic.spark.register(other)
    assert ids(other) == [2, 3]
    active = spark.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(spark._jsparkSession)


def test_all_types_and_names(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / 'it\'s ${HOME} \\a {b} "c"')
    table = every_type(50).append_column("a.`b c", pa.array(range(50)))
    nested = pa.array([{"x y": 1, "z`": [{"Q": "q"}]}] * 50)
    table = table.append_column("nested", nested)
    deltic.write(uri, table, properties={"delta.columnMapping.mode": "name"})
    with session_settings(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        create_view(spark, "flights", uri)
    assert rows(spark.table("flights").toArrow()) == rows(spark.read.format("deltic").load(uri).toArrow())


def test_comments_and_nullability(spark: SparkSession, uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False, {"comment": "it's the key"}), pa.field("code", pa.string())])
    deltic.create(uri, schema)
    create_view(spark, "flights", uri)
    assert [tuple(row) for row in spark.sql("DESCRIBE flights").collect()] == [
        ("id", "bigint", "it's the key"),
        ("code", "string", None),
    ]
    deltic.Table(uri).alter_column("id", nullable=True)
    deltic.write(uri, pa.table({"id": pa.array([None, 4], pa.int64()), "code": ["a", "b"]}))
    assert spark.sql("SELECT code FROM flights WHERE id IS NULL").collect() == [("a",)]


CHANGES: list[Callable[[str], object]] = [
    lambda uri: deltic.write(uri, pa.table({"id": [3], "more": [1]}), schema_mode="merge"),
    lambda uri: deltic.write(uri, pa.table({"id": ["x"]}), "overwrite", schema_mode="overwrite"),
    lambda uri: deltic.write(uri, pa.table({"ID": [3]}), "overwrite", schema_mode="overwrite"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_other_columns_are_refused_until_the_view_is_made_again(
    spark: SparkSession, uri: str, change: Callable[[str], object]
) -> None:
    deltic.write(uri, pa.table({"id": [1, 2]}))
    create_view(spark, "flights", uri)
    change(uri)
    with pytest.raises(PySparkException, match=r"InvalidInputError: the table has the columns .*struct<id:bigint> are"):
        ids(spark, "SELECT 1 FROM flights")
    removed(spark)
    create_view(spark, "flights", uri)
    assert spark.table("flights").schema.names == deltic.Table(uri).snapshot().schema.names
    assert spark.table("flights").count() == deltic.Table(uri).scan().to_arrow().num_rows


def test_a_schema_of_all_columns(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "n": [2]}), properties={"delta.enableChangeDataFeed": "true"})
    reader = spark.read.format("deltic").option("all_columns", "true")
    assert reader.load(uri).collect() == reader.schema("id long, n long").load(uri).collect() == [(1, 2)]
    for schema in ("id long", "n long, id long", "id int, n long"):
        with pytest.raises(PySparkException, match="InvalidInputError: the table has the columns"):
            reader.schema(schema).load(uri).collect()
    feed = spark.read.format("deltic").options(all_columns="true", readChangeFeed="true", startingVersion="0")
    assert feed.load(uri).count() == 1


def test_what_the_catalog_has_stays(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    spark.range(7).write.saveAsTable("flights_columns")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        create_view(spark, "flights", uri)
    assert spark.table("flights_columns").count() == 7
    spark.sql("DROP TABLE flights_columns")
    spark.sql("CREATE VIEW flights AS SELECT 5 AS id")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        create_view(spark, "flights", uri)
    assert ids(spark) == [5]
    assert not spark.catalog.tableExists("flights_columns")


def test_dropping_leaves_the_delta_table(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    spark.sql("CREATE DATABASE IF NOT EXISTS `d_b`")
    create_view(spark, "`d_b`.`2_flights`", uri)
    assert ids(spark, "SELECT id FROM `d_b`.`2_flights`") == [1]
    with pytest.raises(PySparkException, match="no path"):
        spark.sql("SELECT * FROM `d_b`.`2_flights_columns`").collect()
    with pytest.raises(AnalysisException, match="EXPECT_TABLE_NOT_VIEW"):
        spark.sql("INSERT INTO `d_b`.`2_flights` VALUES (1)")
    spark.sql("DROP DATABASE `d_b` CASCADE")
    assert deltic.Table(uri).scan().to_arrow().num_rows == 1


def test_refusals(spark: SparkSession, uri: str) -> None:
    with pytest.raises(deltic.TableNotFoundError):
        create_view(spark, "flights", uri)
    deltic.write(uri, pa.table({"id": [1]}))
    with pytest.raises(deltic.InvalidInputError, match="everyone who reads Spark's catalog would see them"):
        create_view(spark, "flights", deltic.Table(uri, {"timeout": "30s"}))
    with pytest.raises(deltic.InvalidInputError, match="memory of one process"):
        create_view(spark, "flights", "memory://spark/view")
    with pytest.raises(deltic.InvalidInputError, match="must be a SparkSession"):
        create_view("flights", uri, uri)  # type: ignore[arg-type]
    assert not spark.catalog.tableExists("flights_columns")


def test_the_advice_of_a_refused_table_works(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2]}))
    with pytest.raises(PySparkException) as refused:
        spark.sql(f"CREATE TABLE flights USING deltic LOCATION '{uri}'")
    call = re.search(r"deltic\.spark\.create_view\(spark, 'my_table', '.*?'\)", str(refused.value))
    statement = re.search(r"CREATE TEMPORARY VIEW my_table USING deltic OPTIONS \(path '.*?'\)", str(refused.value))
    assert call is not None
    assert statement is not None
    try:
        exec(call[0], {"deltic": deltic, "spark": spark})
        assert ids(spark, "SELECT id FROM my_table") == [1, 2]
        spark.sql(statement[0])
        assert ids(spark, "SELECT id FROM my_table") == [1, 2]
    finally:
        spark.catalog.dropTempView("my_table")
        spark.sql("DROP VIEW IF EXISTS my_table")
        spark.sql("DROP TABLE IF EXISTS my_table_columns")


HIVE = """
import sys
from pyspark.sql import SparkSession
import pyarrow as pa, deltic, deltic.spark

uri, place = sys.argv[1:]
for turn in range(2):
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").enableHiveSupport()
    builder = builder.config("spark.sql.warehouse.dir", place + "/warehouse")
    url = "jdbc:derby:;databaseName=" + place + "/metastore;create=true"
    spark = builder.config("spark.hadoop.javax.jdo.option.ConnectionURL", url).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    deltic.spark.register(spark)
    deltic.write(uri, pa.table({"id": [turn], "Name": ["x"]}))
    if turn == 0:
        deltic.spark.create_view(spark, "flights", uri)
    assert spark.conf.get("spark.sql.catalogImplementation") == "hive"
    assert spark.sql("SELECT id, Name FROM flights").count() == turn + 1
    spark.stop()
"""


def test_a_catalog_of_hive_keeps_the_view(uri: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HIVE, uri, str(tmp_path)]
    settings = {**os.environ, "SPARK_SUBMIT_OPTS": f"{JAVA_OPTIONS} -Dderby.stream.error.file={tmp_path}/derby.log"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=settings)
    assert done.returncode == 0, done.stderr[-4000:]
