"""`deltic.spark.write(engine="native")`: Spark's own Parquet writer writes the files, and the table is the same."""

import contextlib
import json
import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType
from sample import EVERY_TYPE, adds, every_type, log_actions, rows

import deltic
import deltic.spark
from deltic.spark.writing import native as native_write

INSTEAD = "use engine='arrow'"


def entries(uri: str) -> set[str]:
    """Everything in a table's folder except the log."""
    below = (path.relative_to(uri) for path in Path(uri).rglob("*"))
    return {str(path) for path in below if path.parts[0] != "_delta_log"}


def data_files(uri: str) -> set[str]:
    return {name for name in entries(uri) if Path(uri, name).is_file()}


def write(df: DataFrame, uri: str, *arguments: Any, **options: Any) -> deltic.Commit:
    return deltic.spark.write(df, uri, *arguments, engine="native", **options)


def read(uri: str) -> Any:
    return rows(deltic.Table(uri).scan().to_arrow())


def both(df: DataFrame, uri: str, **options: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write with each engine in one task, to separate tables with the same rows; return the add actions."""
    df = df.coalesce(1)
    write(df, uri, **options)
    deltic.spark.write(df, uri + "-arrow", engine="arrow", **options)
    assert read(uri) == read(uri + "-arrow")
    key = lambda add: json.dumps(add["partitionValues"], sort_keys=True)  # noqa: E731
    return sorted(adds(uri, 0), key=key), sorted(adds(uri + "-arrow", 0), key=key)


def test_every_type(spark: SparkSession, uri: str) -> None:
    table = every_type(300)
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    commit = write(spark.createDataFrame(table).repartition(3), uri)
    assert (commit.version, commit.num_added_files, commit.metrics["numOutputRows"]) == (0, 3, 300)
    assert commit.metrics["numOutputBytes"] == sum(add["size"] for add in adds(uri, 0))
    scanned = deltic.Table(uri).scan().to_arrow()
    assert rows(scanned) == rows(table)
    assert [field.type for field in scanned.schema] == [field.type for field in EVERY_TYPE]
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    # Only data files in one folder, no markers or checksums.
    assert {add["path"] for add in adds(uri, 0)} == data_files(uri)
    assert len({Path(name).parts[0] for name in entries(uri)}) == 1
    assert deltic.Table(uri).check(files=True).ok


def test_statistics_are_those_of_the_other_engine(spark: SparkSession, uri: str) -> None:
    ((native,), (arrow,)) = both(spark.createDataFrame(every_type(300)), uri)
    lists = {"array", "map", "array_of_structs", "map_of_arrays"}
    # Parquet footers count nulls of elements.
    nulls = {name: count for name, count in arrow["stats"]["nullCount"].items() if name not in lists}
    assert native["stats"] == {**arrow["stats"], "nullCount": nulls}
    assert native["stats"]["tightBounds"] is True


NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize(
    "values",
    [
        [1.5, -2.5, None],
        [0.0, None],
        [-0.0],
        [NAN],
        [NAN, 1.0, 2.0],
        [1.0, NAN, 2.0],
        [1.0, 2.0, NAN],
        [-1.0, INF],
        [-INF, 3.0],
        [None, None],
        [5e-324, 1.7976931348623157e308],
    ],
    ids=str,
)
def test_columns_with_a_nan_have_no_bounds(spark: SparkSession, uri: str, values: list[float | None]) -> None:
    df = spark.createDataFrame([(value,) for value in values], "d double").select(
        "d", F.col("d").cast("float").alias("f")
    )
    ((native,), (arrow,)) = both(df, uri)
    assert native["stats"] == arrow["stats"]


@pytest.mark.parametrize("length", [31, 32, 33, 64, 65, 200, 5000])
@pytest.mark.parametrize("end", ["a", "é", "\U0010ffff", "\uffff"])
def test_bounds_of_long_strings_hold(spark: SparkSession, uri: str, length: int, end: str) -> None:
    texts = ["b" * length + end, "a" * length + end, end * length]
    ((native,), (arrow,)) = both(spark.createDataFrame([(text,) for text in texts], "s string"), uri)
    low, high = (native["stats"][part].get("s") for part in ("minValues", "maxValues"))
    if length < 1000:
        assert native["stats"] == arrow["stats"]
    # Spark's Parquet writer omits bounds of more than 4 KiB.
    assert (low is None) == (high is None)
    assert low is None or all(low <= text <= high for text in texts)
    for text in texts:
        assert deltic.Table(uri).scan(filter=f"s = '{text}'").count() == 1


def test_bounds_of_times_and_decimals(spark: SparkSession, uri: str) -> None:
    utc = timezone.utc
    instants = [
        datetime(1, 1, 2, tzinfo=utc),
        datetime(1582, 10, 4, 12, tzinfo=utc),
        datetime(9999, 12, 30, 1, 2, 3, 456789, utc),
    ]
    days = [date(1, 1, 1), date(1582, 10, 4), date(9999, 12, 31)]
    prices = [Decimal("-99999.99"), Decimal("0.01"), None]
    table = pa.table(
        {
            "at": pa.array(instants, pa.timestamp("us", "UTC")),
            "local": pa.array([at.replace(tzinfo=None) for at in instants], pa.timestamp("us")),
            "day": days,
            "d7": pa.array(prices, pa.decimal128(7, 2)),
            "d18": pa.array(prices, pa.decimal128(18, 2)),
            "d38": pa.array(prices, pa.decimal128(38, 2)),
            "s": pa.array(
                [{"at": at, "d": price} for at, price in zip(instants, prices, strict=True)],
                pa.struct([("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(9, 2))]),
            ),
        }
    )
    deltic.write(uri, table)
    schema = spark.createDataFrame(table).schema
    schema["local"].dataType = TimestampNTZType()
    df = spark.createDataFrame(table, schema)
    write(df.coalesce(1), uri)
    (before,), (after,) = adds(uri, 0), adds(uri, 1)
    assert after["stats"] == before["stats"]
    assert read(uri) == rows(pa.concat_tables([table, table]))


STRINGS = [
    "a",
    "A",
    "",
    None,
    "é",
    "日本 🐎",
    "100%",
    "%C3%A9",
    "a b/c=d{x}",
    "+",
    "?",
    'it\'s "so"',
    "a\nb",
    "\x7f",
    ".",
    "..",
    "__HIVE_DEFAULT_PARTITION__",
    " ",
    "trailing ",
    "x" * 100,
    "~",
    "a\\b",
]


def test_partition_values_of_strings(spark: SparkSession, uri: str) -> None:
    df = spark.createDataFrame([(n, text) for n, text in enumerate(STRINGS)], "id long, `pé/x%` string")
    native, arrow = both(df, uri, partition_by=["pé/x%"])
    assert [add["partitionValues"] for add in native] == [add["partitionValues"] for add in arrow]
    assert [add["stats"] for add in native] == [add["stats"] for add in arrow]
    assert all(name.isascii() for name in entries(uri))
    assert deltic.Table(uri).scan(filter="`pé/x%` = '日本 🐎'").count() == 1
    found = deltic.spark.read(spark, uri).collect()
    assert {row["id"]: row["pé/x%"] for row in found} == {n: text or None for n, text in enumerate(STRINGS)}


PARTITIONS = {
    "boolean": "id % 2 = 0",
    "byte": "CAST(id - 5 AS BYTE)",
    "integer": "CAST(id * -100000 AS INT)",
    "long": "id * 1000000000000",
    "date": "DATE '1582-10-04' + CAST(id * 4000 AS INT)",
    "decimal(20,8)": "CAST(id * 0.00000001 AS DECIMAL(20,8))",
    "decimal(38,0)": "CAST(id AS DECIMAL(38,0)) * -1",
    # An hour that occurs twice in the time zone of Los Angeles.
    "timestamp": "timestamp_micros(1762070400000000L + id * 1800000001L)",
    "timestamp far": "timestamp_micros(-62135596800000000L + id * 1000001L)",
    "timestamp_ntz": "TIMESTAMP_NTZ '2025-03-09 02:30:00' + make_dt_interval(0, 0, 0, id * 0.000001)",
    "double": "IF(id = 0, CAST('NaN' AS DOUBLE), IF(id = 1, -0.0D, IF(id = 2, 0.0D, id * 1e100)))",
    "float": "CAST(id / 3 AS FLOAT)",
    "null": "CAST(IF(id % 3 = 0, NULL, id) AS INT)",
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values_of_every_type(spark: SparkSession, uri: str, name: str) -> None:
    df = spark.range(12).select("id", F.expr(PARTITIONS[name]).alias("p"), F.lit("x").alias("q"))
    native, arrow = both(df, uri, partition_by=["q", "p"])
    values = [{tuple(add["partitionValues"].items()) for add in engine} for engine in (native, arrow)]
    assert values[0] == values[1]


def test_partition_values_that_no_log_holds_are_refused(spark: SparkSession, uri: str) -> None:
    for value in (
        "timestamp_micros(253402300800000000L)",
        "DATE '9999-12-31' + 1",
        "timestamp_micros(9000000000000000000L)",
    ):
        df = spark.range(1).select("id", F.expr(value).alias("p"))
        with pytest.raises(deltic.InvalidInputError, match="partition column `p`"):
            write(df, uri, partition_by="p")
        assert not entries(uri)
    with pytest.raises(deltic.UnsupportedFeatureError, match=f"the partition column `p` is binary; {INSTEAD}"):
        write(spark.range(1).select("id", F.expr("x'41'").alias("p")), uri, partition_by="p")


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns(spark: SparkSession, uri: str, mode: str) -> None:
    df = spark.sql(
        "SELECT id, CAST(id % 2 AS STRING) AS part,"
        " named_struct('x y', id, 'deep', array(named_struct('z', 'a'))) AS s,"
        " map(named_struct('k', id), named_struct('v', 1.5D)) AS m, CAST(id AS DOUBLE) / 2 AS d FROM range(10)"
    )
    properties = {"delta.columnMapping.mode": mode}
    native, arrow = both(df, uri, partition_by="part", properties=properties)

    def logical(table: str, stats: dict[str, Any]) -> str:
        """The statistics by logical names, without those of lists."""
        text = json.dumps({part: stats[part] for part in ("minValues", "maxValues")}, sort_keys=True)
        fields = json.loads(next(a["metaData"]["schemaString"] for a in log_actions(table, 0) if "metaData" in a))[
            "fields"
        ]
        for field in [*fields, *fields[2]["type"]["fields"]]:
            text = text.replace(field["metadata"]["delta.columnMapping.physicalName"], field["name"])
        return json.dumps(json.loads(text), sort_keys=True)

    assert sorted(logical(uri, add["stats"]) for add in native) == sorted(
        logical(uri + "-arrow", add["stats"]) for add in arrow
    )
    schemas = [
        pq.read_schema(Path(table, add["path"]))
        for table, files in ((uri, native), (uri + "-arrow", arrow))
        for add in files[:1]
    ]
    ids = lambda schema: [field.metadata[b"PARQUET:field_id"] for field in [*schema, *schema.field(1).type]]  # noqa: E731
    assert ids(schemas[0]) == ids(schemas[1])
    assert all(name.startswith("col-") for name in schemas[0].names)
    # A renamed column is read by its physical name.
    with deltic.Table(uri).transaction() as transaction:
        transaction.rename_column("id", "number")
    write(df.withColumnRenamed("id", "number"), uri)
    assert deltic.Table(uri).scan(columns=["number"], filter="number = 7").count() == 2


def test_modes(spark: SparkSession, uri: str) -> None:
    df = spark.range(6).select("id", (F.col("id") % 3).alias("part"))
    assert write(df, uri, "error", "part", user_metadata="first", name="t").version == 0
    with pytest.raises(deltic.TableExistsError):
        write(df, uri, "error")
    assert write(df, uri, "ignore").num_added_files == 0
    assert write(df, uri, app_id="job", app_version=1).version == 1
    before = data_files(uri)
    assert write(df, uri, app_id="job", app_version=1).num_added_files == 0
    assert data_files(uri) == before
    assert deltic.Table(uri).scan().count() == 12
    only = spark.range(100, 102).select("id", F.lit(1).cast("long").alias("part"))
    assert write(only, uri, "overwrite", partition_overwrite="dynamic").metrics["numRemovedFiles"] == len(
        [add for version in (0, 1) for add in adds(uri, version) if add["partitionValues"]["part"] == "1"]
    )
    assert deltic.Table(uri).scan(filter="part = 1").count() == 2
    assert write(only, uri, "overwrite").version == 3
    assert sorted(row["id"] for row in deltic.Table(uri).scan().to_arrow().to_pylist()) == [100, 101]
    history = deltic.Table(uri).history()
    assert history[-1]["userMetadata"] == "first"
    assert [entry["operation"] for entry in history] == ["WRITE", "WRITE", "WRITE", "CREATE TABLE AS SELECT"]


def test_columns_are_found_by_name_and_added(spark: SparkSession, uri: str) -> None:
    deltic.spark.write(spark.sql("SELECT 1L AS id, 'a' AS name, named_struct('a.b', 1, 'c`d', 2) AS `s.t`"), uri)
    write(spark.sql("SELECT named_struct('a.b', 3, 'c`d', 4) AS `s.t`, 2L AS ID"), uri)
    write(spark.sql("SELECT 3L AS id, 1.5D AS more"), uri, schema_mode="merge")
    found = sorted(deltic.Table(uri).scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [
        {"id": 1, "name": "a", "s.t": {"a.b": 1, "c`d": 2}, "more": None},
        {"id": 2, "name": None, "s.t": {"a.b": 3, "c`d": 4}, "more": None},
        {"id": 3, "name": None, "s.t": None, "more": 1.5},
    ]
    assert adds(uri, 1)[0]["stats"]["nullCount"]["name"] == 1
    write(spark.sql("SELECT 'only' AS text"), uri, "overwrite", schema_mode="overwrite")
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == [{"text": "only"}]


def test_empty_dataframes_and_empty_partitions_add_no_files(spark: SparkSession, uri: str) -> None:
    for df in (spark.range(0), spark.createDataFrame([], "id long"), spark.range(5).where("id > 7")):
        assert write(df, uri).num_added_files == 0
    assert write(spark.range(2).repartition(8), uri).num_added_files <= 2
    assert {add["path"] for add in adds(uri, 3)} == data_files(uri)
    assert deltic.Table(uri).scan().count() == 2


def test_options_of_files(spark: SparkSession, uri: str) -> None:
    df = spark.range(100).coalesce(1)
    assert write(df, uri, max_rows_per_file=30).num_added_files == 4
    for codec, called in [
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("lz4", "LZ4"),
        ("uncompressed", "UNCOMPRESSED"),
        (None, "ZSTD"),
    ]:
        version = write(df, uri, compression=codec).version
        footer = pq.read_metadata(Path(uri, adds(uri, version)[0]["path"]))
        assert footer.row_group(0).column(0).compression == called
    write(df, uri, compression="zstd", compression_level=9)
    assert deltic.Table(uri).scan().count() == 700


def test_a_table_with_row_ids_and_a_change_feed(spark: SparkSession, uri: str) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"}
    write(spark.range(4), uri, properties=properties)
    write(spark.range(10, 12), uri, "overwrite")
    write(spark.range(20, 22), uri)
    ids = deltic.Table(uri).scan(columns=["id", "_metadata.row_id"]).to_arrow()
    assert len(set(ids.column(1).to_pylist())) == 4
    changes = deltic.Table(uri).changes(1, 2).to_arrow()
    assert sorted(zip(changes["id"].to_pylist(), changes["_change_type"].to_pylist(), strict=True)) == [
        *((n, "delete") for n in range(4)),
        *((n, "insert") for n in (10, 11, 20, 21)),
    ]


GEOMETRY = pa.field("g", pa.binary(), metadata={"delta.type": "geometry(OGC:CRS84)"})
REFUSED: dict[str, tuple[Callable[[str], object], dict[str, Any], str]] = {
    "a constraint": (
        lambda uri: deltic.create(uri, pa.schema([("id", pa.int64())]), constraints={"small": "id < 9"}),
        {},
        "the table has the CHECK constraint `small`",
    ),
    "a generated column": (
        lambda uri: deltic.create(
            uri, pa.schema([("id", pa.int64()), deltic.field("twice", pa.int64(), generated="id * 2")])
        ),
        {},
        "the column `twice` is a generated column",
    ),
    "an identity column": (
        lambda uri: deltic.create(uri, pa.schema([("id", pa.int64()), deltic.field("n", pa.int64(), identity={})])),
        {},
        "the column `n` is an identity column",
    ),
    "a default": (
        lambda uri: deltic.create(uri, pa.schema([("id", pa.int64()), deltic.field("d", pa.int64(), default="5")])),
        {},
        "the rows lack the column `d`, which has a default",
    ),
    "a length": (
        lambda uri: deltic.create(
            uri,
            pa.schema(
                [("id", pa.int64()), pa.field("s", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(4)"})]
            ),
        ),
        {},
        "the strings of the column `s` have a length",
    ),
    "NOT NULL inside": (
        lambda uri: deltic.create(
            uri, pa.schema([("id", pa.int64()), ("s", pa.struct([pa.field("x", pa.int32(), nullable=False)]))])
        ),
        {},
        "`s.x` inside a column is NOT NULL",
    ),
    "NOT NULL elements": (
        lambda uri: deltic.create(
            uri, pa.schema([("id", pa.int64()), ("l", pa.list_(pa.field("element", pa.int32(), nullable=False)))])
        ),
        {},
        "`l.element` inside a column is NOT NULL",
    ),
    "a geometry": (
        lambda uri: deltic.create(uri, pa.schema([("id", pa.int64()), GEOMETRY])),
        {},
        "the column `g` has the type geometry(OGC:CRS84)",
    ),
    "another type": (
        lambda uri: deltic.create(uri, pa.schema([("id", pa.int32())])),
        {},
        "the column `id` is bigint, and int in the table; cast it, or ",
    ),
    "replace_where": (
        lambda uri: deltic.create(uri, pa.schema([("id", pa.int64())])),
        {"mode": "overwrite", "replace_where": "id < 9"},
        "replace_where must be TRUE for each row",
    ),
    "data_change": (
        lambda uri: deltic.create(uri, pa.schema([("id", pa.int64())])),
        {"mode": "overwrite", "data_change": False},
        "rows are only moved to other files",
    ),
    "sort_by": (lambda uri: None, {"sort_by": "id"}, "rows are to be sorted by sort_by"),
    "column_options": (lambda uri: None, {"column_options": {"id": {"dictionary": False}}}, "column_options say how"),
    "compression_level": (lambda uri: None, {"compression": "gzip", "compression_level": 3}, "a compression level"),
    "target_file_size": (lambda uri: None, {"target_file_size": "1 MB"}, "it has no target_file_size"),
    "row_group_rows": (lambda uri: None, {"row_group_rows": 10}, "it has no row_group_rows"),
    "pages": (
        lambda uri: deltic.create(
            uri, pa.schema([("id", pa.int64())]), properties={"delta.parquet.format.version": "2.12.0"}
        ),
        {},
        "the table requires pages of version 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_features_of_the_native_engine_are_refused(spark: SparkSession, uri: str, name: str) -> None:
    prepare, options, message = REFUSED[name]
    prepare(uri)
    before = entries(uri)
    ran = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ran.add(1)
        yield from batches

    df = spark.range(3).mapInArrow(count, "id long")
    with pytest.raises(deltic.UnsupportedFeatureError) as caught:
        write(df, uri, **options)
    assert message in str(caught.value)
    assert str(caught.value).rstrip(")").count(INSTEAD) == 1
    assert caught.value.features[0].startswith("engine 'native' with ")
    assert (ran.value, entries(uri)) == (0, before)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_missing_partition_column_is_refused(spark: SparkSession, uri: str, mode: str) -> None:
    deltic.create(uri, pa.schema([("id", pa.int64()), ("p", pa.string())]), partition_by="p")
    write(spark.sql("SELECT 1L AS id, 'x' AS p"), uri)
    before = sorted(Path(uri).rglob("*"))
    with pytest.raises(deltic.InvalidInputError, match="no column `p`, by which the table is partitioned"):
        write(spark.range(3), uri, mode)
    assert sorted(Path(uri).rglob("*")) == before
    write(spark.sql("SELECT 2L AS id, CAST(NULL AS STRING) AS p"), uri)
    assert deltic.Table(uri).scan(filter="p IS NULL").to_arrow()["id"].to_pylist() == [2]


def test_a_null_in_a_required_column_commits_nothing(spark: SparkSession, uri: str) -> None:
    deltic.create(uri, pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", pa.string())]), partition_by="p")
    df = spark.sql("SELECT IF(id = 3, NULL, id) AS id, 'x' AS p FROM range(5)")
    write(df.where("id IS NOT NULL"), uri)
    before = entries(uri)
    with pytest.raises(deltic.InvalidInputError, match="rows have no value in the column `id`, which is NOT NULL"):
        write(df, uri)
    assert (entries(uri), deltic.Table(uri).snapshot().version) == (before, 1)
    strict = uri + "-strict"
    deltic.create(strict, pa.schema([("id", pa.int64()), pa.field("p", pa.string(), nullable=False)]), partition_by="p")
    with pytest.raises(deltic.InvalidInputError, match="`p`"):
        write(spark.sql("SELECT 1L AS id, '' AS p"), strict)
    assert not entries(strict)


def test_a_retried_task_counts_once(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    marker = tmp_path / "died once"

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        with contextlib.suppress(FileExistsError):  # after its rows have gone to the writer
            marker.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)

    write(spark.range(10), uri)
    commit = write(spark.range(10, 5000, 1, 2).mapInArrow(dying, "id long"), uri, max_rows_per_file=500)
    assert marker.exists()
    assert commit.metrics["numOutputRows"] == 4990
    assert {add["path"] for version in (0, 1) for add in adds(uri, version)} == data_files(uri)
    assert sorted(row.id for row in deltic.spark.read(spark, uri).collect()) == list(range(5000))


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, uri: str) -> None:
    write(spark.range(10), uri)
    before = entries(uri)

    def broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column(0)[0].as_py() >= 50:
                raise RuntimeError("no good")
            yield batch

    df = spark.range(0, 100, 1, 1).repartition(4).mapInArrow(broken, "id long")
    with pytest.raises(PySparkException, match="no good"):
        write(df, uri)
    assert (entries(uri), deltic.Table(uri).snapshot().version) == (before, 0)


def test_a_commit_that_is_refused_leaves_nothing(spark: SparkSession, uri: str) -> None:
    write(spark.range(10), uri)
    before = entries(uri)

    def meanwhile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        deltic.create(uri, pa.schema([("other", pa.string())]), mode="replace")

    with pytest.raises(deltic.CommitConflictError):
        write(spark.range(10, 20, 1, 1).mapInArrow(meanwhile, "id long"), uri)
    assert data_files(uri) == {name for name in before if Path(uri, name).is_file()}


def test_jobs_at_the_same_time_do_not_see_each_other(spark: SparkSession, uri: str) -> None:
    write(spark.range(0), uri)
    errors: list[BaseException] = []

    def job(number: int) -> None:
        try:
            write(spark.range(number * 100, number * 100 + 100, 1, 2), uri)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=job, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert deltic.Table(uri).snapshot().version == 4
    assert sorted(row.id for row in deltic.spark.read(spark, uri).collect()) == list(range(400))


def test_files_in_another_folder_commit_nothing(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(native_write, "_hadoop_location", lambda uri: f"file://{elsewhere}")
    with pytest.raises(
        deltic.InvalidInputError, match=r"Spark wrote 3 rows.* have 0; Spark may have written to another"
    ):
        write(spark.range(3), uri)
    assert not list(elsewhere.rglob("*.parquet"))
    assert not Path(uri).exists()


def test_unexpected_files_commit_nothing(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take = native_write._deltic.take_external

    def with_a_stray(plan: bytes, options: Any, number: int) -> Any:
        (one,) = Path(uri).rglob("*.parquet")
        one.with_name("stray.parquet").write_bytes(one.read_bytes())
        return take(plan, options, number)

    monkeypatch.setattr(native_write._deltic, "take_external", with_a_stray)
    with pytest.raises(deltic.InvalidInputError, match=r"Spark wrote 3 rows, and the files in .* have 6"):
        write(spark.range(3).coalesce(1), uri)
    assert not entries(uri)


@pytest.mark.parametrize("setting", native_write._SETTINGS)
def test_session_settings_have_no_effect_and_are_not_changed(
    spark: SparkSession, uri: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"TIMESTAMP_MICROS": "INT96", "CORRECTED": "LEGACY", "false": "true", "true": "false"}
    value = other[native_write._SETTINGS[setting]]
    before = spark.conf.get(setting)
    spark.conf.set(setting, value)
    df = spark.sql(
        "SELECT DATE '1500-01-01' AS day, TIMESTAMP '1500-01-01 00:00:00 UTC' AS at, 1.5BD AS d, array(1) AS l"
    )
    try:
        write(df, uri, properties={"delta.columnMapping.mode": "id"})
        assert spark.conf.get(setting) == value
        assert read(uri) == rows(df.toArrow())
        if setting == "spark.sql.parquet.writeLegacyFormat":
            return
        # With a wrong setting the written file is refused.
        monkeypatch.setitem(native_write._SETTINGS, setting, value)
        files = data_files(uri)
        with pytest.raises(deltic.DelticError, match=INSTEAD):
            write(df, uri)
        assert data_files(uri) == files
    finally:
        spark.conf.set(setting, before)


def test_the_engine_is_logged(spark: SparkSession, uri: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="deltic")
    for engine in ("arrow", "native", "auto"):
        deltic.spark.write(spark.range(3), uri, engine=engine)  # type: ignore[arg-type]
    lines = [record.getMessage() for record in caplog.records if "rows are" in record.getMessage()]
    assert [line.split(": ", 1)[1].split(" (")[0] for line in lines] == [
        "rows are written by the engine 'arrow'",
        "rows are written by the engine 'native'",
        "rows are written by the engine 'arrow'",
    ]
    with pytest.raises(deltic.InvalidInputError, match="engine must be 'auto', 'arrow' or 'native', not 'java'"):
        deltic.spark.write(spark.range(3), uri, engine="java")  # type: ignore[arg-type]


def test_the_option_engine(spark: SparkSession, uri: str) -> None:
    deltic.spark.register(spark)
    writer = lambda engine: spark.range(3).write.format("deltic").mode("append").option("engine", engine)  # noqa: E731
    writer("arrow").save(uri)
    writer("AUTO").save(uri)
    with pytest.raises(PySparkException, match=r"needs deltic\.spark\.install"):
        writer("native").save(uri)
    with pytest.raises(PySparkException, match="option 'engine' must be 'auto', 'arrow' or 'native'"):
        writer("java").save(uri)
    deltic.spark.install(spark)
    try:
        writer("native").save(uri)
    finally:
        deltic.spark.uninstall(spark)
    assert [Path(add["path"]).parent.name == "" for version in range(3) for add in adds(uri, version)[:1]] == [
        True,
        True,
        False,
    ]
    assert deltic.Table(uri).scan().count() == 9


@pytest.mark.parametrize("location", ["s3://bucket/table", "abfss://c@a.dfs.core.windows.net/t", "az://c/t"])
def test_a_store_that_spark_cannot_reach_is_refused(
    spark: SparkSession, location: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The location is checked after the snapshot, and nothing is read for it.
    monkeypatch.setattr(
        native_write, "_hadoop_location", lambda _uri, real=native_write._hadoop_location: real(location)
    )
    with pytest.raises(deltic.UnsupportedFeatureError, match=f"{location.partition(':')[0]}.*{INSTEAD}") as caught:
        write(spark.range(3), uri)
    assert "bucket" not in str(caught.value)
    assert not Path(uri).exists()


def test_the_table_can_be_continued(spark: SparkSession, uri: str) -> None:
    rng = random.Random(7)
    df = spark.range(200).select("id", F.lit(rng.random()).alias("x"), (F.col("id") % 2).alias("p"))
    write(df, uri, partition_by="p")
    table = deltic.Table(uri)
    table.delete("id < 10")
    table.optimize()
    assert table.scan().count() == 190
    table.vacuum(timedelta(0), force=True)
    assert table.scan().count() == 190
    assert len([name for name in data_files(uri) if name.endswith(".parquet")]) == 2
