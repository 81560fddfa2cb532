"""`format("deltic")`: the data source and its options."""

import contextlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from time import sleep
from uuid import uuid4

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter
from sample import every_type, rows

import deltic
import deltic.spark
from deltic.spark.data_source.source import DelticDataSource


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    deltic.spark.register(spark)


def load(spark: SparkSession, uri: str, **options: object) -> DataFrame:
    reader = spark.read.format("deltic")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(uri)


def test_rows_are_those_python_reads(spark: SparkSession, uri: str) -> None:
    table = every_type(300)
    deltic.write(uri, table)
    assert rows(load(spark, uri).toArrow()) == rows(table)


FILTERS = [
    "id = 3",
    "id > 3 AND id <= 50",
    "id IN (1, 2, 3, 999)",
    "id NOT IN (1, 2)",
    "NOT (id = 3)",
    "integer IS NULL",
    "integer IS NOT NULL",
    "integer <=> 5000",
    "NOT (integer <=> 5000)",
    "boolean",
    "NOT boolean",
    "string = 'row 7'",
    "string LIKE 'row 1%'",
    "date >= DATE '2013-02-01'",
    "timestamp < TIMESTAMP '2013-01-01 01:00:00 UTC'",
    "decimal = 1.25",
    "decimal > 10",
    "big_decimal < 0.5",
    "double > 1.5",
    "float <= 2.0",
    "binary = X'3137'",
    "byte = -128",
    "struct.x > 5",
    "struct.inner.name = 'deep'",
    "struct IS NULL",
    "id = 3 OR integer IS NULL",
    "long = 9223372036854775807",
]


@pytest.mark.parametrize("filter", FILTERS)
def test_the_option_filter_means_what_spark_means(spark: SparkSession, uri: str, filter: str) -> None:
    table = every_type(60)
    for part in (table.slice(0, 20), table.slice(20, 20), table.slice(40)):
        deltic.write(uri, part)
    expected = {row.id for row in spark.createDataFrame(table).where(filter).select("id").collect()}
    assert {row.id for row in load(spark, uri, filter=filter).select("id").collect()} == expected
    assert {row.id for row in load(spark, uri).where(filter).select("id").collect()} == expected


def test_floats_compare_as_spark_compares_them(spark: SparkSession, uri: str) -> None:
    table = pa.table({"id": [1, 2, 3, 4, 5], "x": [float("nan"), -0.0, 0.0, float("inf"), None]})
    deltic.write(uri, table)
    frame = spark.createDataFrame(table)
    for filter in ("x = 0.0", "x > 1.0", "x >= 0.0", "x < 0.0", "NOT (x = 0.0)", "x <= -0.0", "x IN (0.0, 1.0)"):
        expected = {row.id for row in frame.where(filter).collect()}
        assert {row.id for row in load(spark, uri, filter=filter).collect()} == expected, filter


def test_decimals_of_many_digits_are_compared_exactly(spark: SparkSession, uri: str) -> None:
    near = ["12345678901234567890123456789012345678", "12345678901234567890123456790000000000"]
    table = pa.table({"id": [0, 1], "d": pa.array(list(map(Decimal, near)), pa.decimal128(38, 0))})
    deltic.write(uri, table)
    for filter in (f"d = {near[0]}", f"d < {near[1]}", f"d <> {near[0]}", f"d IN ({near[0]}, 7)"):
        expected = {row.id for row in spark.createDataFrame(table).where(filter).collect()}
        assert {row.id for row in load(spark, uri, filter=filter).collect()} == expected, filter


def test_the_filter_option(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(10), uri)
    frame = load(spark, uri, filter="id < 3 OR id > 7")
    assert frame.count() == 5
    assert frame.where("id > 1").count() == 3


def test_time_travel(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(10), uri)
    deltic.spark.write(spark.range(10), uri)
    assert load(spark, uri).count() == 20
    assert load(spark, uri, version=0).count() == 10
    frame = load(spark, uri)
    deltic.spark.write(spark.range(10), uri)
    assert frame.count() == 20, "the version is fixed by load()"
    assert load(spark, uri, partitions=1).rdd.getNumPartitions() == 1


def test_a_schema_chooses_columns(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, every_type(5))
    frame = spark.read.format("deltic").schema("string string, id long").load(uri)
    assert frame.columns == ["string", "id"]
    assert frame.count() == 5


def test_a_schema_chooses_nested_fields_in_any_case(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, every_type(60))
    given = "ID long, STRUCT struct<INNER: struct<Name: string>>, ARRAY_of_structs array<struct<V: long, k: string>>"
    frame = spark.read.format("deltic").schema(given).load(uri)
    assert frame.columns == ["ID", "STRUCT", "ARRAY_of_structs"]
    (row,) = frame.where("STRUCT.INNER.Name = 'n7'").collect()
    assert row.asDict(True) == {
        "ID": 7,
        "STRUCT": {"INNER": {"Name": "n7"}},
        "ARRAY_of_structs": [{"V": 7, "k": "a"}],
    }
    assert frame.where("STRUCT IS NULL").select("ID").collect() == [(0,)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nope long", "`nope`, and the table does not"),
        ("struct struct<x: int, y: int>", r"`struct.y`, and the table does not; `struct` has x, inner"),
        ("array_of_structs array<struct<q: long>>", r"`array_of_structs.element.q`"),
        ("id int", "`id` is int in the given schema and bigint in the table"),
        ("string int", "`string` is int .* cast it after load"),
        ("id string", "`id` is string"),
        ("timestamp timestamp_ntz", "`timestamp` is timestamp_ntz"),
        ("decimal decimal(12,2)", r"`decimal` is decimal\(12,2\)"),
        ("struct struct<x: long>", r"`struct.x` is bigint"),
        ("map map<string, float>", r"`map.value` is float"),
        ("array string", "`array` is string in the given schema and array<int>"),
        ("struct struct<x: int, X: int>", r"`struct.X` twice"),
    ],
)
def test_a_schema_that_is_not_the_tables_is_refused(spark: SparkSession, uri: str, given: str, message: str) -> None:
    deltic.write(uri, every_type(5))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(PySparkException, match=rf"(?s)InvalidInputError.*{message}"):
            spark.read.format("deltic").schema(given).load(uri).collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_schema_may_ask_for_the_ids_of_rows(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2]}), properties={"delta.enableRowTracking": "true"})
    frame = spark.read.format("deltic").schema("`_metadata.row_id` long, id long").load(uri)
    assert sorted(tuple(row) for row in frame.collect()) == [(0, 1), (1, 2)]


def test_nothing_to_read(spark: SparkSession, uri: str) -> None:
    deltic.create(uri, every_type(0).schema)
    assert load(spark, uri).count() == 0
    assert load(spark, uri, filter="id = 1").collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mergeSchema": "true"}, "unknown option"),
        ({"version": "latest"}, "whole number"),
        ({"version": 99}, "VersionNotFoundError"),
        ({"filter": "nope = 1"}, "nope"),
        ({"timestamp": "soon"}, "ISO 8601"),
        ({"pushdown": "true"}, "no option 'pushdown': give the filter itself, in the option 'filter'"),
        ({"pushdown": "false"}, "no option 'pushdown'"),
        ({"partitions": 0}, "'partitions' must be a whole number from 1, not 0"),
        ({"partitions": -1}, "'partitions' must be a whole number from 1"),
        ({"partitions": "many"}, "'partitions' must be a whole number"),
    ],
)
def test_wrong_options(spark: SparkSession, uri: str, options: dict[str, object], message: str) -> None:
    deltic.write(uri, every_type(5))
    with pytest.raises(PySparkException, match=message):
        load(spark, uri, **options).count()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_missing_partition_column_is_refused(spark: SparkSession, uri: str, mode: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "p": ["x"]}), partition_by="p")
    before = sorted(Path(uri).rglob("*"))
    message = "InvalidInputError.*no column `p`, by which the table is partitioned"
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        spark.range(3).write.format("deltic").mode(mode).save(uri)
    assert sorted(Path(uri).rglob("*")) == before


def test_no_table(spark: SparkSession, uri: str) -> None:
    with pytest.raises(AnalysisException, match="TableNotFoundError"):
        load(spark, uri)


def test_writing(spark: SparkSession, uri: str) -> None:
    table = every_type(100)
    frame = spark.createDataFrame(table).repartition(2)
    writer = frame.write.format("deltic").mode("append").option("properties", '{"delta.checkpointInterval": "7"}')
    writer.option("partition_by", "boolean, date").option("user_metadata", "why").save(uri)
    snapshot = deltic.Table(uri).snapshot()
    assert snapshot.version == 0
    assert snapshot.partition_columns == ["boolean", "date"]
    assert snapshot.properties == {"delta.checkpointInterval": "7"}
    assert deltic.Table(uri).history()[0]["userMetadata"] == "why"
    assert rows(snapshot.scan().to_arrow()) == rows(table)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("properties", "{x", "option 'properties' must be a JSON object"),
        ("properties", "[1]", "properties must be a mapping of strings, not list"),
        ("properties", '{"a": 1}', "property 'a' must be a string"),
        ("target_file_size", "0", "target_file_size'? must be a number of bytes or"),
        ("app_version", "x", "option 'app_version' must be a whole number"),
    ],
)
def test_wrong_options_of_a_write(spark: SparkSession, uri: str, option: str, value: str, message: str) -> None:
    writer = spark.range(3).write.format("deltic").mode("append").option(option, value)
    with pytest.raises(PySparkException, match=f"InvalidInputError.*{message}"):
        writer.save(uri)


def test_append_and_overwrite(spark: SparkSession, uri: str) -> None:
    for mode, count in [("append", 10), ("append", 20), ("overwrite", 10)]:
        spark.range(10).write.format("deltic").mode(mode).save(uri)
        assert load(spark, uri).count() == count
    with pytest.raises(AnalysisException, match="Append"):
        spark.range(10).write.format("deltic").save(uri)


def test_a_schema_that_does_not_fit(spark: SparkSession, uri: str) -> None:
    spark.range(10).write.format("deltic").mode("append").save(uri)
    with pytest.raises(PySparkException, match="InvalidInputError"):
        spark.range(10).select(F.col("id").cast("string")).write.format("deltic").mode("append").save(uri)
    assert deltic.Table(uri).snapshot().version == 0


def test_a_failing_task_commits_nothing_and_a_retried_one_counts_once(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    def failing(times: int, marks: Path):  # type: ignore[no-untyped-def]
        marks.mkdir()

        def flaky(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches
            for time in range(times):
                # Tasks run concurrently, and only one of them may fail for each mark.
                with contextlib.suppress(FileExistsError):
                    (marks / str(time)).touch(exist_ok=False)
                    raise RuntimeError("this attempt fails")

        return flaky

    spark.range(10).write.format("deltic").mode("append").save(uri)
    with pytest.raises(PySparkException, match="this attempt fails"):
        spark.range(100).mapInArrow(failing(1000, tmp_path / "always"), "id long").write.format("deltic").mode(
            "append"
        ).save(uri)
    assert load(spark, uri).count() == 10
    spark.range(100).mapInArrow(failing(1, tmp_path / "once"), "id long").write.format("deltic").mode("append").save(
        uri
    )
    assert [mark.name for mark in (tmp_path / "once").iterdir()] == ["0"]
    assert deltic.Table(uri).snapshot().version == 1
    assert load(spark, uri).count() == 110


def numbers(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream with one batch for each file of the folder."""
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(folder))


def drain(writer: DataStreamWriter, checkpoints: Path) -> None:
    writer.option("checkpointLocation", str(checkpoints)).trigger(availableNow=True).start().awaitTermination()


def test_streams_are_refused_with_what_to_do(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    deltic.spark.write(spark.range(3), uri)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}')
    stream = spark.readStream.format("deltic").load(uri).writeStream.format("noop")
    with pytest.raises(PySparkException, match=r"UnsupportedFeatureError.*Table\.changes") as refused:
        drain(stream, tmp_path / "read")
    assert "UnboundLocalError" not in str(refused.value)
    stream = numbers(spark, tmp_path / "in").writeStream.format("deltic").option("path", uri)
    with pytest.raises(PySparkException, match=r"UnsupportedFeatureError.*foreachBatch.*app_version=batch_id"):
        drain(stream, tmp_path / "write")
    assert deltic.Table(uri).snapshot().version == 0


def test_a_stream_is_written_batch_by_batch_and_each_once(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    def append(df: DataFrame, batch_id: int) -> None:
        for _ in range(2):  # as Spark does after a crash before it recorded the batch
            deltic.spark.write(df, uri, app_id="numbers", app_version=batch_id)

    (tmp_path / "in").mkdir()
    for at in range(3):
        (tmp_path / "in" / f"{at}.json").write_text(f'{{"id": {at}}}')
    drain(numbers(spark, tmp_path / "in").writeStream.foreachBatch(append), tmp_path / "checkpoints")
    assert sorted(row.id for row in deltic.spark.read(spark, uri).collect()) == [0, 1, 2]
    snapshot = deltic.Table(uri).snapshot()
    assert (snapshot.version, snapshot.transaction_version("numbers")) == (2, 2)


def test_a_failed_job_leaves_no_file(spark: SparkSession, uri: str) -> None:
    def broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column(0)[0].as_py() >= 50:
                for _ in range(600):  # wait for the other task
                    if any(Path(uri).rglob("*.parquet")):
                        break
                    sleep(0.1)
                sleep(2)
                Path(uri, "seen").write_text(str(len(list(Path(uri).rglob("*.parquet")))))
                raise RuntimeError("no good")
            yield batch

    frame = spark.range(0, 100, 1, 2).mapInArrow(broken, "id long").selectExpr("id", "id % 2 AS part")
    for write in (
        lambda: frame.write.format("deltic").mode("append").option("partition_by", "part").save(uri),
        lambda: deltic.spark.write(frame, uri, partition_by="part"),
    ):
        with pytest.raises(PySparkException, match="no good"):
            write()
        assert Path(uri, "seen").read_text() == "2", "the other task had written its files"
        assert list(Path(uri).rglob("*.parquet")) == []
    assert not deltic.Table(uri).exists()
    # Files of other writes stay.
    deltic.spark.write(spark.range(0, 50).selectExpr("id", "id % 2 AS part"), uri, partition_by="part")
    with pytest.raises(PySparkException, match="no good"):
        deltic.spark.write(frame, uri)
    assert deltic.spark.read(spark, uri).count() == 50


def test_several_locations_are_refused(spark: SparkSession, uri: str) -> None:
    with pytest.raises(PySparkException, match=r"InvalidInputError.*one table, not several"):
        spark.read.format("deltic").load([uri, uri])


def test_memory_is_refused_on_the_driver(spark: SparkSession) -> None:
    where = "memory://spark/refused"
    deltic.write(where, pa.table({"id": [1]}))
    message = "InvalidInputError.*is in the memory of one process"
    for call in (lambda: deltic.spark.read(spark, where), lambda: deltic.spark.write(spark.range(3), where)):
        with pytest.raises(deltic.InvalidInputError, match=r"memory of one process.*every executor can open"):
            call()
    with pytest.raises(PySparkException, match=message):
        load(spark, where)
    with pytest.raises(PySparkException, match=message):
        spark.read.format("deltic").schema("id long").load(where).collect()
    with pytest.raises(PySparkException, match=message):
        spark.range(3).write.format("deltic").mode("append").save(where)
    assert deltic.Table(where).snapshot().version == 0


def doors() -> dict[str, Callable[[SparkSession, str], object]]:
    """Every call of `deltic.spark` that takes a location."""
    spark, Table = deltic.spark, deltic.spark.DeltaTable
    return {
        "DeltaTable.convertToDelta": lambda session, where: Table.convertToDelta(session, f"parquet.`{where}`"),
        "DeltaTable.forPath": lambda session, where: Table.forPath(session, where),
        "DeltaTable.isDeltaTable": lambda session, where: Table.isDeltaTable(session, where),
        "DelticDataSource": lambda _, where: spark.DelticDataSource({"path": where}).schema(),
        "convert": lambda session, where: spark.convert(session, where),
        "create_view": lambda session, where: spark.create_view(session, "v", where),
        "delete": lambda session, where: spark.delete(session, where),
        "merge": lambda session, where: spark.merge(session, where, session.range(3), "source.id = target.id"),
        "optimize": lambda session, where: spark.optimize(session, where),
        "read": lambda session, where: spark.read(session, where),
        "update": lambda session, where: spark.update(session, where, {"id": "1"}),
        "vacuum": lambda session, where: spark.vacuum(session, where),
        "write": lambda session, where: spark.write(session.range(3), where),
    }


WITHOUT_LOCATION = {"DeltaMergeBuilder", "install", "register", "uninstall"}
"""Functions of `deltic.spark` that take no location."""
CLASS_METHODS = {
    f"DeltaTable.{name}"
    for name, member in vars(deltic.spark.DeltaTable).items()
    if isinstance(member, classmethod) and not name.startswith("_")
}


def test_every_call_that_takes_a_location_is_known() -> None:
    known = {name for name in doors() if "." not in name} | {"DeltaTable"} | WITHOUT_LOCATION
    assert set(deltic.spark.__all__) == known
    refused = {name for name in CLASS_METHODS if name not in doors()}
    for name in refused:
        with pytest.raises(deltic.UnsupportedFeatureError):
            getattr(deltic.spark.DeltaTable, name.partition(".")[2])("x")


@pytest.mark.parametrize("name", doors())
@pytest.mark.parametrize("as_table", [False, True], ids=["location", "table"])
def test_memory_locations_are_refused_by_every_call(spark: SparkSession, name: str, as_table: bool) -> None:
    where = f"memory://spark/{uuid4()}"
    deltic.write(where, pa.table({"id": [1]}))
    takes_text = name in {"DelticDataSource", "DeltaTable.convertToDelta"}
    with pytest.raises(deltic.InvalidInputError, match=r"memory of one process.*every executor can open"):
        doors()[name](spark, deltic.Table(where) if as_table and not takes_text else where)
    assert deltic.Table(where).snapshot().version == 0


def test_reads_are_logged(spark: SparkSession, uri: str, caplog: pytest.LogCaptureFixture) -> None:
    for month in (1, 2, 3):
        deltic.write(uri, pa.table({"month": [month], "km": [month]}), partition_by=["month"])
    source = DelticDataSource({"path": uri, "filter": "month = 2"})
    with caplog.at_level("INFO", logger="deltic.spark"):
        deltic.spark.read(spark, uri, columns=["km"], filter="month > 1")
        source.reader(source.schema()).partitions()
    assert [record.name for record in caplog.records] == ["deltic.spark"] * 2
    first, second = (record.getMessage() for record in caplog.records)
    assert "version 2: reads 2 of 3 files" in first
    assert "filter month > 1, columns km" in first
    assert "reads 1 of 3 files" in second
    assert "filter month = 2, columns month, km" in second


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="collected from 4.1 on")
def test_spark_collects_the_log_of_the_data_source(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(3), uri)
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        assert load(spark, uri).where("id = 1").count() == 1
        lines = [row.msg for row in spark.tvf.python_worker_logs().collect() if row.logger == "deltic.spark"]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert any("files" in line and "no filter given" in line for line in lines), lines
