"""`USING deltic` in SQL and with Spark's catalog: it works, or fails with advice and without a write."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

import deltic
import deltic.spark

NO_CATALOG = r"(?s)InvalidInputError.*table of Spark's catalog does not work.*create_view.*CREATE TEMPORARY VIEW"


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> Iterator[None]:
    deltic.spark.register(spark)
    yield
    spark.sql("DROP TABLE IF EXISTS t")
    spark.sql("DROP VIEW IF EXISTS t")


@pytest.fixture
def table(uri: str) -> str:
    deltic.write(uri, pa.table({"id": [1, 2, 3]}))
    return uri


def test_a_temporary_view(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW t USING deltic OPTIONS (path '{table}', filter 'id > 1')")
    assert spark.sql("SELECT * FROM t").count() == 2
    assert spark.sql("SELECT * FROM t WHERE id > 2").count() == 1
    assert spark.sql("SELECT * FROM t a JOIN t b USING (id)").count() == 2


def test_a_temporary_view_stays_at_its_version(spark: SparkSession, table: str) -> None:
    """Checks docs/spark.md."""
    create = f"CREATE OR REPLACE TEMPORARY VIEW t USING deltic OPTIONS (path '{table}')"
    spark.sql(create)
    deltic.write(table, pa.table({"id": [4]}))
    assert spark.table("t").count() == 3
    spark.sql(create)
    assert spark.table("t").count() == 4


@pytest.mark.parametrize("options", ["LOCATION '{}'", "OPTIONS (path '{}')", "TBLPROPERTIES ('path' = '{}')"])
def test_a_table_of_the_catalog_is_refused(spark: SparkSession, table: str, options: str) -> None:
    with pytest.raises(PySparkException, match=NO_CATALOG):
        spark.sql("CREATE TABLE t USING deltic " + options.format(table))
    assert not spark.catalog.tableExists("t")


def test_create_table_of_the_api_is_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(PySparkException, match=NO_CATALOG):
        spark.catalog.createTable("t", path=table, source="deltic")
    assert not spark.catalog.tableExists("t")


def test_a_catalog_table_fails_when_it_is_used(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE TABLE t (id BIGINT) USING deltic LOCATION '{table}'")
    with pytest.raises(PySparkException, match=NO_CATALOG):
        spark.sql("SELECT * FROM t").collect()
    with pytest.raises(PySparkException, match=NO_CATALOG):
        spark.sql("INSERT INTO t VALUES (4)")
    spark.sql("DROP TABLE t")
    assert deltic.Table(table).snapshot().version == 0
    assert deltic.Table(table).scan().to_arrow().num_rows == 3


def test_spark_does_not_tell_a_source_which_table_of_the_catalog_is_used(spark: SparkSession, tmp_path: Path) -> None:
    """Why catalog tables are refused. If this fails, Spark passes the table now, and they can be supported.

    Also what `deltic.spark.create_view` relies on: Spark passes the options after `WITH`. It uses those of the first
    mention of a table for all of a query, so that each view needs a table of its own.
    """

    class Reader(DataSourceReader):
        def __init__(self, passed: str) -> None:
            self.passed = passed

        def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
            yield (self.passed,)

    class Echo(DataSource):
        """A source whose only row is what Spark passes to a reader; a write fails with what Spark passes."""

        @classmethod
        def name(cls) -> str:
            return "echo"

        def schema(self) -> StructType:
            return StructType([StructField("passed", StringType(), metadata={"of": self.options["location"]})])

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader(f"{dict(self.options)} {schema['passed'].metadata}")

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            raise ValueError(f"to write: {dict(self.options)} {schema['passed'].metadata}")

    spark.dataSource.register(Echo)
    try:
        spark.sql(f"CREATE TABLE t USING echo LOCATION '{tmp_path / 'one'}'")
        spark.sql(f"CREATE TABLE t2 (passed STRING) USING echo OPTIONS (a '1') LOCATION '{tmp_path / 'two'}'")
        of_t = f"{{'of': 'file:{tmp_path / 'one'}'}}"
        assert spark.sql("SELECT * FROM t").collect() == [(f"{{}} {of_t}",)]
        assert spark.sql("SELECT * FROM t2").collect() == [("{} {}",)]
        spark.sql(f"ALTER TABLE t SET LOCATION '{tmp_path / 'other'}'")
        assert spark.sql("SELECT * FROM t").collect() == [(f"{{}} {of_t}",)]
        first, second = (f"SELECT * FROM t2 WITH (path = '{path}')" for path in ("/a", "/b"))
        assert spark.sql(second).collect() == [("{'path': '/b'} {}",)]
        assert spark.sql(f"{first} UNION ALL {second}").collect() == [("{'path': '/a'} {}",)] * 2
        with pytest.raises(PySparkException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
            spark.sql("SELECT * FROM echo.`/a`")
        # Column metadata does not help: in an INSERT it is that of the source table.
        with pytest.raises(PySparkException, match=re.escape(f"to write: {{}} {of_t}")):
            spark.sql("INSERT INTO t2 SELECT * FROM t")
    finally:
        spark.sql("DROP TABLE IF EXISTS t2")


@pytest.mark.parametrize("location", ["", "LOCATION '{}'"])
def test_a_table_from_a_query_is_refused_before_anything_is_written(
    spark: SparkSession, uri: str, location: str
) -> None:
    with pytest.raises(PySparkException, match=NO_CATALOG):
        spark.sql(f"CREATE TABLE t USING deltic {location.format(uri)} AS SELECT 1L AS id")
    assert not spark.catalog.tableExists("t")
    assert list(Path(uri).rglob("*.parquet")) == []
    with pytest.raises(PySparkException, match=NO_CATALOG):
        spark.range(3).write.format("deltic").saveAsTable("t")
    assert not spark.catalog.tableExists("t")


def test_save_as_table_writes_the_path_and_says_how_to_read_it(spark: SparkSession, uri: str) -> None:
    """Checks docs/spark.md: deltic cannot distinguish it from `save(uri)`."""
    for version in range(2):
        spark.range(3).write.format("deltic").mode("append").option("path", uri).saveAsTable("t")
        assert deltic.Table(uri).snapshot().version == version
    with pytest.raises(PySparkException, match=NO_CATALOG):
        spark.table("t").collect()
    assert spark.read.format("deltic").load(uri).count() == 6
    spark.sql("DROP TABLE t")
    assert spark.read.format("deltic").load(uri).count() == 6


def test_partition_by_of_spark_writes_nothing(spark: SparkSession, uri: str) -> None:
    frame = spark.range(3).selectExpr("id", "id AS value")
    with pytest.raises(PySparkException, match="do not match the existing table's"):
        frame.write.format("deltic").mode("append").partitionBy("id").save(uri)
    assert not Path(uri).exists()
    frame.write.format("deltic").mode("append").option("partition_by", "id").save(uri)
    assert deltic.Table(uri).snapshot().partition_columns == ["id"]
