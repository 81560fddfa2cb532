"""`deltic.spark.install`: every save mode and `partitionBy` for `format("deltic")`; other formats do not change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
from pyspark.sql.streaming import DataStreamReader
from sample import adds

import deltic
import deltic.spark
from deltic.spark.data_source.install import _OF_READERS, _OF_STREAMS, _OF_WRITERS

METHODS: list[tuple[type, str]] = [
    *((DataFrameWriter, name) for name in _OF_WRITERS),
    *((DataFrameReader, name) for name in _OF_READERS),
    *((DataStreamReader, name) for name in _OF_STREAMS),
]


@pytest.fixture
def df(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1), ("b", 2)], "p string, n long")


def rows(uri: str) -> list[Any]:
    return sorted(tuple(row.values()) for row in deltic.Table(uri).scan().to_arrow().to_pylist())


def test_install_is_idempotent_and_can_be_undone(spark: SparkSession, df: DataFrame, uri: str) -> None:
    before = [getattr(cls, name) for cls, name in METHODS]
    deltic.spark.install(spark)
    wrapped = [getattr(cls, name) for cls, name in METHODS]
    assert not any(one is other for one, other in zip(before, wrapped, strict=True))
    deltic.spark.install(spark)
    assert [getattr(cls, name) for cls, name in METHODS] == wrapped
    assert [method.__doc__ for method in wrapped] == [method.__doc__ for method in before]
    for _ in range(2):
        deltic.spark.uninstall(spark)
        assert [getattr(cls, name) for cls, name in METHODS] == before
    with pytest.raises(PySparkException):
        df.write.format("deltic").partitionBy("p").save(uri)
    assert not Path(uri).exists()


@pytest.mark.usefixtures("installed")
def test_a_stream_is_refused_when_it_is_loaded(spark: SparkSession, df: DataFrame, uri: str, tmp_path: Path) -> None:
    deltic.spark.write(df, uri)
    for load in (
        lambda: spark.readStream.format("deltic").load(uri),
        lambda: spark.readStream.load(uri, format="DELTIC"),
    ):
        with pytest.raises(deltic.UnsupportedFeatureError, match=r"Table\.changes"):
            load()
    (tmp_path / "in").mkdir()
    assert spark.readStream.schema("id long").json(str(tmp_path / "in")).isStreaming
    assert spark.readStream.format("rate").load().isStreaming


@pytest.mark.usefixtures("installed")
def test_messages_name_sparks_options(df: DataFrame, uri: str) -> None:
    df.write.format("deltic").save(uri)
    with pytest.raises(deltic.InvalidInputError, match="the option overwriteSchema"):
        df.write.format("deltic").mode("overwrite").partitionBy("p").save(uri)
    wide = df.selectExpr("*", "1 AS more")
    with pytest.raises(deltic.InvalidInputError, match=r"the option mergeSchema.*overwriteSchema"):
        wide.write.format("deltic").mode("overwrite").save(uri)
    with pytest.raises(deltic.InvalidInputError, match="the option mergeSchema") as refused:
        wide.write.format("deltic").mode("append").save(uri)
    assert "overwriteSchema" not in str(refused.value)
    wide.write.format("deltic").mode("overwrite").option("overwriteSchema", True).partitionBy("p").save(uri)
    assert deltic.Table(uri).snapshot().partition_columns == ["p"]


@pytest.mark.usefixtures("installed")
def test_every_save_mode(df: DataFrame, uri: str) -> None:
    once, twice = [("a", 1), ("b", 2)], [("a", 1), ("a", 1), ("b", 2), ("b", 2)]
    df.write.format("deltic").save(uri)
    assert rows(uri) == once
    for mode in (None, "error", "errorifexists", "ErrorIfExists", "default"):
        with pytest.raises(deltic.TableExistsError):
            df.write.format("deltic").mode(mode).save(uri)
    df.write.mode("ignore").format("DELTIC").save(uri)
    assert (rows(uri), deltic.Table(uri).snapshot().version) == (once, 0)
    df.write.format("deltic").mode("append").save(uri)
    assert rows(uri) == twice
    df.write.save(uri, format="deltic", mode="overwrite")
    assert (rows(uri), deltic.Table(uri).snapshot().version) == (once, 2)


@pytest.mark.usefixtures("installed")
def test_a_writer_can_save_several_times(df: DataFrame, uri: str) -> None:
    writer = df.write.format("deltic").mode("append")
    for place in (uri, uri, uri + "_other"):
        writer.save(place)
    assert [deltic.Table(place).snapshot().version for place in (uri, uri + "_other")] == [1, 0]
    with pytest.raises(deltic.InvalidInputError, match="no path"):
        writer.save()
    assert rows(uri) == [("a", 1), ("a", 1), ("b", 2), ("b", 2)]


@pytest.mark.usefixtures("installed")
def test_an_unknown_mode_is_refused(df: DataFrame, uri: str) -> None:
    with pytest.raises((PySparkException, deltic.InvalidInputError), match=r"(?i)save mode"):
        df.write.format("deltic").mode("upsert").save(uri)
    assert not Path(uri).exists()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("how", ["method", "list", "argument", "option"])
def test_partition_by(df: DataFrame, uri: str, how: str) -> None:
    writer = df.write.format("deltic")
    if how == "method":
        writer.partitionBy("p").save(uri)
    elif how == "list":
        writer.partitionBy(["p"]).save(uri)
    elif how == "argument":
        writer.save(uri, partitionBy="p")
    else:
        writer.option("partition_by", "p").save(uri)
    snapshot = deltic.Table(uri).snapshot()
    assert (snapshot.partition_columns, snapshot.version) == (["p"], 0)
    df.write.format("deltic").partitionBy("p").mode("append").save(uri)
    with pytest.raises(deltic.InvalidInputError, match="is partitioned by"):
        df.write.format("deltic").partitionBy("n").mode("append").save(uri)
    with pytest.raises(deltic.InvalidInputError, match=r"'partition_by' and \.partitionBy\(\) both"):
        df.write.format("deltic").option("partition_by", "p").partitionBy("p").mode("append").save(uri)
    assert deltic.Table(uri).snapshot().version == 1


@pytest.mark.usefixtures("installed")
def test_options_are_those_of_the_data_source(spark: SparkSession, df: DataFrame, uri: str) -> None:
    df.write.format("deltic").options(userMetadata="why", maxRecordsPerFile=1).option("optimizeWrite", True).save(uri)
    assert deltic.Table(uri).history()[0]["userMetadata"] == "why"
    assert len(adds(uri, 0)) == 2, "one row for each file"
    more = spark.createDataFrame([("b", 9, 1.5)], "p string, n long, x double").write.format("deltic").mode("overwrite")
    more.save(uri, replaceWhere="n > 1 AND p = 'b'", mergeSchema=True)
    assert rows(uri) == [("a", 1, None), ("b", 9, 1.5)]


@pytest.mark.usefixtures("installed")
def test_wrong_uses_are_refused_by_name(df: DataFrame, uri: str) -> None:
    writes = {
        "unknown option 'bogus'": lambda: df.write.format("deltic").option("bogus", 1).save(uri),
        "option 'mergeSchema' must be true or false": lambda: df.write.format("deltic").save(uri, mergeSchema="x"),
        r"does not take \.bucketBy\(\): use partitionBy": lambda: df.write.format("deltic").bucketBy(2, "n").save(uri),
        r"does not take \.clusterBy\(\)": lambda: df.write.format("deltic").clusterBy("n").save(uri),
        "no path": lambda: df.write.format("deltic").save(),
        r"save\(path\) both say": lambda: df.write.format("deltic").option("path", uri).save(uri),
        r"saveAsTable\('t'\).*no option 'path'": lambda: df.write.format("deltic").saveAsTable("t"),
        "one process": lambda: df.write.format("deltic").save("memory://spark/installed"),
        "unknown option 'mode'": lambda: df.write.format("deltic").options(mode="append").save(uri),
    }
    for message, write in writes.items():
        with pytest.raises(deltic.InvalidInputError, match=message):
            write()
    assert not Path(uri).exists()


@pytest.mark.usefixtures("installed")
def test_save_as_table_writes_to_the_path_and_makes_no_entry(spark: SparkSession, df: DataFrame, uri: str) -> None:
    with pytest.warns(UserWarning, match=r"saveAsTable\('by_path'\) wrote the Delta table at .* no entry") as warned:
        df.write.format("deltic").option("path", uri).partitionBy("p").saveAsTable("by_path")
    assert deltic.Table(uri).snapshot().partition_columns == ["p"]
    assert not spark.catalog.tableExists("by_path")
    call = f"deltic.spark.create_view(spark, 'by_path', {uri!r})"
    assert str(warned[0].message).endswith(call)
    exec(call, {"deltic": deltic, "spark": spark})
    assert spark.table("by_path").count() == 2
    spark.sql("DROP VIEW by_path")
    spark.sql("DROP TABLE by_path_columns")


@pytest.mark.usefixtures("installed")
def test_other_formats_are_unchanged(spark: SparkSession, df: DataFrame, tmp_path: Path) -> None:
    where = str(tmp_path / "plain")
    df.write.format("parquet").partitionBy("p").option("compression", "gzip").save(where)
    assert sorted(path.name for path in Path(where).iterdir() if path.is_dir()) == ["p=a", "p=b"]
    with pytest.raises(PySparkException, match="already exists"):
        df.write.parquet(where)
    df.write.mode("ignore").save(where)
    df.write.save(where, format="json", mode="overwrite")
    assert spark.read.format("json").load(where).count() == 2
    assert spark.read.load(where, format="json", schema="n long").columns == ["n"]
    df.write.format("parquet").bucketBy(2, "n").sortBy("n").mode("overwrite").saveAsTable("bucketed")
    assert spark.table("bucketed").count() == 2
    spark.sql("DROP TABLE bucketed")
    # A writer whose format is changed.
    df.write.format("deltic").format("parquet").save(str(tmp_path / "turned"))
    assert not (tmp_path / "turned" / "_delta_log").exists()


@pytest.mark.usefixtures("installed")
def test_the_default_format(spark: SparkSession, df: DataFrame, uri: str) -> None:
    spark.conf.set("spark.sql.sources.default", "deltic")
    try:
        df.write.partitionBy("p").save(uri)
    finally:
        spark.conf.unset("spark.sql.sources.default")
    assert deltic.Table(uri).snapshot().partition_columns == ["p"]


@pytest.mark.usefixtures("installed")
def test_times_are_in_the_sessions_time_zone(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}), properties={"delta.enableChangeDataFeed": "true"})
    deltic.write(uri, pa.table({"n": [2]}))
    first = deltic.Table(uri).history()[1]["timestamp"]
    local = spark.sql(f"SELECT date_format(timestamp_millis({first}), 'yyyy-MM-dd HH:mm:ss.SSS')").first()[0]  # type: ignore[index]
    assert [row.n for row in spark.read.format("deltic").option("timestampAsOf", local).load(uri).collect()] == [1]
    assert [row.n for row in spark.read.load(uri, "deltic", timestampAsOf=local).collect()] == [1]
    feed = spark.read.format("deltic").options(readChangeFeed=True, startingTimestamp=local).load(uri)
    assert sorted(row.n for row in feed.collect()) == [1, 2]
    with pytest.raises(PySparkException, match="startingTimestamp"):
        spark.read.format("deltic").option("startingTimestamp", local).load(uri)
    with pytest.raises(deltic.InvalidInputError, match="ISO 8601"):
        spark.read.format("deltic").option("timestampAsOf", "soon").load(uri)


CONNECT = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
import deltic, deltic.spark

uri = sys.argv[1]
builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.session.timeZone", "America/Los_Angeles").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
deltic.spark.install(spark)
deltic.spark.install(spark)
df = spark.createDataFrame([("a", 1), ("b", 2)], "p string, n long")
df.write.format("deltic").partitionBy("p").option("userMetadata", "why").save(uri)
try:
    df.write.format("deltic").save(uri)
except deltic.TableExistsError:
    pass
else:
    raise AssertionError("there is a table")
df.write.format("deltic").mode("ignore").save(uri)
try:
    df.write.format("deltic").mode("upsert").save(uri)
except deltic.InvalidInputError as error:
    assert "save mode 'upsert'" in str(error), error
else:
    raise AssertionError("there is no such mode")
more = spark.createDataFrame([("b", 9)], "p string, n long")
more.write.format("deltic").mode("overwrite").save(uri, replaceWhere="p = 'b'", optimizeWrite=True)
assert deltic.Table(uri).snapshot().version == 1
assert sorted(row.n for row in spark.read.format("deltic").load(uri).collect()) == [1, 9]
assert spark.read.format("deltic").option("timestampAsOf", "2999-01-01").load(uri).count() == 2
df.write.format("parquet").partitionBy("p").save(uri + ".plain")
deltic.spark.create_view(spark, "by_name", uri)
assert sorted(row.n for row in spark.table("by_name").collect()) == [1, 9]
deltic.spark.uninstall(spark)
df.write.format("deltic").mode("append").save(uri)
assert spark.table("by_name").count() == 4
assert spark.read.format("deltic").load(uri).count() == 4
try:
    df.write.format("deltic").mode("ignore").save(uri)
except PySparkException as error:
    assert "TableExists" not in str(error)
else:
    raise AssertionError("Spark itself does not take this mode")
spark.stop()
"""


def test_spark_connect(in_connect: Callable[[str, str], None], uri: str) -> None:
    in_connect(CONNECT, uri)
    assert rows(uri) == [("a", 1), ("a", 1), ("b", 2), ("b", 9)]
