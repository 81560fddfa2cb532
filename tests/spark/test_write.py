"""`deltic.spark.write`: files written by tasks, one commit by the driver, also with retries and failures."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sample import EVERY_TYPE, adds, every_type, log_actions, rows

import deltic
import deltic.spark
from deltic.arguments import Compression, Engine, Mode, PartitionOverwrite, SchemaMode


def data_files(uri: str) -> list[Path]:
    return [path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts]


def test_what_spark_writes_python_reads(spark: SparkSession, uri: str) -> None:
    table = every_type(300)
    frame = spark.createDataFrame(table).repartition(3)
    commit = deltic.spark.write(frame, uri)
    assert (commit.version, commit.attempts, commit.num_added_files) == (0, 1, 3)
    assert commit.metrics["numOutputRows"] == 300
    read = deltic.Table(uri).scan().to_arrow()
    assert rows(read) == rows(table)
    assert [field.type for field in read.schema] == [field.type for field in EVERY_TYPE]
    assert all(field.nullable for field in read.schema), "Spark's inferred nullability is not a constraint"


def test_a_table_object_instead_of_its_location(spark: SparkSession, uri: str) -> None:
    table = deltic.Table(uri)
    assert deltic.spark.write(spark.range(4), table).version == 0
    assert deltic.spark.write(spark.range(4), Path(uri)).version == 1
    assert deltic.spark.read(spark, table, filter="id > 1").count() == 4
    # Explicit storage options take precedence.
    with pytest.raises(deltic.InvalidInputError, match="nothing_of_the_kind"):
        deltic.spark.read(spark, table, storage_options={"nothing_of_the_kind": "1"})


def test_every_file_has_statistics(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(100).repartition(4), uri)
    found = adds(uri, 0)
    assert sum(add["stats"]["numRecords"] for add in found) == 100
    assert min(add["stats"]["minValues"]["id"] for add in found) == 0


def test_partitions(spark: SparkSession, uri: str) -> None:
    frame = spark.range(120).select("id", (F.col("id") % 3).alias("part"))
    commit = deltic.spark.write(frame.repartition("part"), uri, partition_by=["part"])
    assert commit.num_added_files == 3
    assert sorted(path.parent.name for path in data_files(uri)) == ["part=0", "part=1", "part=2"]
    assert deltic.spark.read(spark, uri, filter="part = 1").count() == 40


def test_appends_and_overwrites(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(10), uri, user_metadata="first")
    assert deltic.spark.write(spark.range(5), uri).version == 1
    assert deltic.spark.read(spark, uri).count() == 15
    assert deltic.spark.write(spark.range(3), uri, mode="overwrite").version == 2
    assert deltic.spark.read(spark, uri).count() == 3
    assert deltic.Table(uri).history()[-1]["userMetadata"] == "first"


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_missing_partition_column_is_refused(spark: SparkSession, uri: str, mode: Mode) -> None:
    by: Any = iter(["p"])  # An iterator is read once.
    deltic.spark.write(spark.range(3).selectExpr("id", "'x' AS p"), uri, partition_by=by, engine="arrow")
    assert deltic.Table(uri).snapshot().partition_columns == ["p"]
    before = sorted(Path(uri).rglob("*"))
    with pytest.raises(deltic.InvalidInputError, match="no column `p`, by which the table is partitioned"):
        deltic.spark.write(spark.range(3), uri, mode, engine="arrow")
    assert sorted(Path(uri).rglob("*")) == before
    deltic.spark.write(spark.range(3).selectExpr("id", "CAST(NULL AS STRING) AS p"), uri, engine="arrow")
    assert deltic.Table(uri).snapshot().scan(filter="p IS NULL").to_arrow().num_rows == 3


def test_string_choices_have_literal_types() -> None:
    hints = get_type_hints(deltic.spark.write)
    expected = {
        "mode": Mode,
        "partition_overwrite": PartitionOverwrite | None,
        "schema_mode": SchemaMode | None,
        "compression": Compression | None,
        "engine": Engine,
    }
    assert {name: hints[name] for name in expected} == expected
    assert all(get_args(kind) for kind in expected.values())


def test_an_empty_dataframe(spark: SparkSession, uri: str) -> None:
    commit = deltic.spark.write(spark.range(0), uri, properties={"owner": "ops"})
    assert (commit.version, commit.num_added_files) == (0, 0)
    assert deltic.Table(uri).snapshot().properties["owner"] == "ops"


def test_empty_partitions_write_no_files(spark: SparkSession, uri: str) -> None:
    assert deltic.spark.write(spark.range(2).repartition(8), uri).num_added_files <= 2


def test_a_schema_that_does_not_fit_is_refused_before_any_task_runs(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(10), uri)
    before = sorted(Path(uri).rglob("*"))
    ran = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ran.add(1)
        yield from batches

    for schema in ("id string", "id long, extra int", "other long"):
        frame = spark.range(3).mapInArrow(count, "id long")
        for column in [part.split() for part in schema.split(", ")]:
            frame = frame.withColumn(column[0], F.lit("1").cast(column[1]))
        frame = frame.select(*[part.split()[0] for part in schema.split(", ")])
        if schema == "other long":  # `id` missing is filled with null; a column the table lacks is not dropped
            frame = frame.withColumnRenamed("other", "another")
        with pytest.raises(deltic.InvalidInputError):
            deltic.spark.write(frame, uri)
    assert ran.value == 0
    assert sorted(Path(uri).rglob("*")) == before


def test_a_task_that_fails_once_is_retried_and_its_rows_count_once(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    marker = str(tmp_path / "failed once")

    def flaky(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not Path(marker).exists():  # after its rows have been written
            Path(marker).touch()
            raise RuntimeError("this attempt fails")

    commit = deltic.spark.write(spark.range(1000).repartition(4).mapInArrow(flaky, "id long"), uri)
    assert Path(marker).exists()
    assert commit.num_added_files == 4
    assert sorted(row.id for row in deltic.spark.read(spark, uri).collect()) == list(range(1000))
    named = {add["path"] for add in adds(uri, 0)}
    assert len(named) == 4
    assert named <= {path.name for path in data_files(uri)}


@pytest.mark.parametrize("by", ["deltic.spark.write", "the data source"])
@pytest.mark.parametrize("deaths", [1, 1000])
def test_a_killed_worker_leaves_nothing_visible(
    spark: SparkSession, uri: str, tmp_path: Path, by: str, deaths: int
) -> None:
    deltic.spark.register(spark)
    deltic.spark.write(spark.range(10), uri)
    before = set(data_files(uri))

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        for death in range(deaths):  # after its rows have been written
            with contextlib.suppress(FileExistsError):
                (tmp_path / f"death {death}").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)

    def save() -> None:
        # Another task could still write after the job has failed.
        frame = spark.range(10, 5000, 1, 2 if deaths == 1 else 1).mapInArrow(dying, "id long")
        if by == "the data source":
            frame.write.format("deltic").mode("append").option("max_rows_per_file", 500).save(uri)
        else:
            deltic.spark.write(frame, uri, max_rows_per_file=500)

    if deaths == 1:
        save()
        assert (tmp_path / "death 0").exists()
        assert sorted(row.id for row in deltic.spark.read(spark, uri).collect()) == list(range(5000))
        assert deltic.Table(uri).snapshot().version == 1
        return
    # For a dead process Spark raises a Java exception or one of PySpark.
    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        save()
    assert (deltic.Table(uri).snapshot().version, set(data_files(uri))) == (0, before)
    assert deltic.spark.read(spark, uri).count() == 10


def test_a_task_that_always_fails_commits_nothing(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(10), uri)

    def broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column(0)[0].as_py() >= 50:
                raise RuntimeError("no good")
            yield batch

    with pytest.raises(PythonException, match="no good"):
        deltic.spark.write(spark.range(100).mapInArrow(broken, "id long"), uri)
    assert deltic.Table(uri).snapshot().version == 0
    assert deltic.spark.read(spark, uri).count() == 10


def test_a_null_in_a_required_column_commits_nothing(spark: SparkSession, uri: str) -> None:
    deltic.create(uri, pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    deltic.spark.write(spark.range(3), uri)
    frame = spark.sql("SELECT CAST(NULL AS BIGINT) AS id")
    with pytest.raises(PythonException, match="InvalidInputError"):
        deltic.spark.write(frame, uri)
    assert deltic.spark.read(spark, uri).count() == 3


def test_a_speculative_task_adds_nothing(spark: SparkSession, uri: str) -> None:
    # Run the same tasks again and discard the result, as speculative execution does.
    frame = spark.range(100).repartition(2)
    deltic.spark.write(frame, uri)
    written = {path.name for path in data_files(uri)}
    assert {add["path"] for add in adds(uri, 0)} == written
    (Path(uri) / "part-from-a-lost-twin.parquet").write_bytes((Path(uri) / next(iter(written))).read_bytes())
    assert deltic.spark.read(spark, uri).count() == 100


def test_columns_may_have_any_name(spark: SparkSession, uri: str) -> None:
    frame = spark.sql("SELECT 1 AS `a.b`, 2 AS `c``d`, named_struct('x.y', 3) AS s")
    deltic.spark.write(frame, uri)
    deltic.spark.write(frame, uri)
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == [{"a.b": 1, "c`d": 2, "s": {"x.y": 3}}] * 2


def test_timestamps_are_written_as_instants(spark: SparkSession, uri: str) -> None:
    frame = spark.sql("SELECT TIMESTAMP '2026-01-01 00:00:00 UTC' AS at, TIMESTAMP_NTZ '2026-01-01 00:00:00' AS local")
    deltic.spark.write(frame, uri)
    (row,) = deltic.Table(uri).scan().to_arrow().to_pylist()
    assert row["at"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert row["local"].isoformat() == "2026-01-01T00:00:00"


def test_the_commit_names_the_engine(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.range(1), uri)
    deltic.spark.write(spark.range(1), uri, app_id="job", app_version=3)
    (info,) = [action["commitInfo"] for action in log_actions(uri, 1) if "commitInfo" in action]
    assert info["operation"] == "WRITE"
    assert info["isBlindAppend"] is True
    assert [action["txn"]["version"] for action in log_actions(uri, 1) if "txn" in action] == [3]
