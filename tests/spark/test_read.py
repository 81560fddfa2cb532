"""`deltic.spark.read`: the driver prunes files, mapInArrow reads rows in Rust."""

import doctest
import importlib
from pathlib import Path

import pyarrow as pa
import pytest
from delta_spark import session_settings
from log_files import Log, add, field
from pages import python_of
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sample import every_type, rows

import deltic
import deltic.spark


@pytest.fixture
def months(uri: str) -> str:
    for month in range(1, 7):
        columns = {"month": [month] * 100, "km": list(range(100)), "carrier": ["UA", "AA"] * 50}
        deltic.write(uri, pa.table(columns), partition_by=["month"])
    return uri


def test_rows_are_those_python_reads(spark: SparkSession, uri: str) -> None:
    table = every_type(300)
    deltic.write(uri, table)
    frame = deltic.spark.read(spark, uri)
    read = frame.toArrow()
    assert rows(read) == rows(table)
    assert read.schema.names == table.schema.names


def test_timestamps_are_instants_whatever_the_session_says(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, every_type(4))
    frame = deltic.spark.read(spark, uri, columns=["id", "timestamp"])
    assert dict(frame.dtypes)["timestamp"] == "timestamp"
    seconds = frame.where("id = 2").select(F.unix_micros("timestamp")).collect()[0][0]
    assert seconds == 2147483647999999
    assert frame.where("id = 2").select(F.hour("timestamp")).collect()[0][0] == 19, "shown in the session's zone"


def test_timestamps_without_zone_stay_as_they_are(spark: SparkSession, uri: str) -> None:
    from datetime import datetime

    deltic.write(uri, pa.table({"at": [datetime(2026, 3, 29, 2, 30)]}))
    frame = deltic.spark.read(spark, uri)
    assert dict(frame.dtypes)["at"] == "timestamp_ntz"
    assert frame.collect()[0]["at"] == datetime(2026, 3, 29, 2, 30)


def test_columns_and_filter(spark: SparkSession, months: str) -> None:
    frame = deltic.spark.read(spark, months, columns=["km", "month"], filter="month IN (2, 3) AND km >= 90")
    assert frame.columns == ["km", "month"]
    assert frame.count() == 20
    assert {row.month for row in frame.collect()} == {2, 3}


def test_partitions(spark: SparkSession, months: str) -> None:
    assert deltic.spark.read(spark, months).rdd.getNumPartitions() == 2
    assert deltic.spark.read(spark, months, partitions=5).rdd.getNumPartitions() <= 5
    frame = deltic.spark.read(spark, months, partitions=50)
    assert frame.rdd.getNumPartitions() == 6
    assert frame.count() == 600


def test_nothing_to_read(spark: SparkSession, months: str) -> None:
    frame = deltic.spark.read(spark, months, filter="month = 12")
    assert frame.columns == ["month", "km", "carrier"]
    assert frame.count() == 0


def test_the_version_is_fixed_when_read_is_called(spark: SparkSession, months: str) -> None:
    frame = deltic.spark.read(spark, months)
    deltic.write(months, pa.table({"month": [9], "km": [1], "carrier": ["UA"]}))
    assert frame.count() == 600
    assert deltic.spark.read(spark, months).count() == 601
    assert deltic.spark.read(spark, months, version=1).count() == 200


def test_a_dataframe_is_used_as_any_other(spark: SparkSession, months: str) -> None:
    frame = deltic.spark.read(spark, months, filter="km < 10")
    spring, autumn = frame.where("month < 3"), frame.where("month > 3")
    assert spring.union(autumn).count() == 50
    assert spring.join(autumn, "km").count() == 20 * 3
    assert frame.groupBy("carrier").count().orderBy("carrier").collect()[0]["count"] == 30


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"filter": "nope = 1"}, deltic.InvalidInputError),
        ({"columns": ["nope"]}, deltic.InvalidInputError),
        ({"version": 77}, deltic.VersionNotFoundError),
        ({"version": 1, "timestamp": "2030-01-01"}, deltic.InvalidInputError),
        ({"partitions": 0}, deltic.InvalidInputError),
        ({"partitions": -1}, deltic.InvalidInputError),
    ],
)
def test_wrong_calls_fail_on_the_driver(spark: SparkSession, months: str, arguments: dict, error: type) -> None:  # type: ignore[type-arg]
    with pytest.raises(error):
        deltic.spark.read(spark, months, **arguments)


def test_a_wrong_number_of_partitions_is_named(spark: SparkSession, months: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match=r"^partitions must be a whole number from 1, not -1"):
        deltic.spark.read(spark, months, partitions=-1)


def test_no_table(spark: SparkSession, uri: str) -> None:
    with pytest.raises(deltic.TableNotFoundError):
        deltic.spark.read(spark, uri)


def with_columns(uri: str, *types: object) -> None:
    """Add columns of these types to the newest version; no file has them."""
    newest = deltic.Table(uri).snapshot().version
    Log(uri).add_columns(newest, [field(f"v{i}", kind) for i, kind in enumerate(types)], "variantType")


def test_a_struct_in_the_form_of_a_variant_is_refused(spark: SparkSession, uri: str) -> None:
    binary = [{"name": name, "type": "binary", "nullable": False, "metadata": {}} for name in ("value", "metadata")]
    binary[1]["metadata"] = {"variant": "true"}
    deltic.write(uri, pa.table({"id": [1]}))
    with_columns(uri, {"type": "struct", "fields": binary})
    deltic.spark.register(spark)
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"`v0` is a variant.*outside of Spark") as caught:
        deltic.spark.read(spark, uri, columns=["id", "v0"])
    assert caught.value.features == ("variantType",)
    source = spark.read.format("deltic")
    with pytest.raises(PySparkException, match=r"UnsupportedFeatureError.*`v0` is a variant"):
        source.load(uri)
    for given in ("struct<metadata: binary, value: binary>", "variant"):
        with pytest.raises(PySparkException, match=r"UnsupportedFeatureError.*`v0` is a variant"):
            source.schema(f"id long, v0 {given}").load(uri).collect()
    assert deltic.spark.read(spark, uri, columns=["id"]).collect() == [(1,)]
    assert spark.read.format("deltic").schema("id long").load(uri).collect() == [(1,)]


def test_variants_that_no_file_has_are_null(spark: SparkSession, uri: str) -> None:
    types: list[object] = [
        "variant",
        {"type": "array", "elementType": "variant", "containsNull": True},
        {"type": "struct", "fields": [field("x", "variant")]},
    ]
    deltic.write(uri, pa.table({"id": [1]}))
    with_columns(uri, *types)
    deltic.spark.register(spark)
    for frame in (deltic.spark.read(spark, uri), spark.read.format("deltic").load(uri)):
        assert frame.schema.simpleString() == "struct<id:bigint,v0:variant,v1:array<variant>,v2:struct<x:variant>>"
        assert frame.collect() == [(1, None, None, None)]
    with pytest.raises(PySparkException, match=r"`v0` is struct<.*> in the given schema and variant in the table"):
        spark.read.format("deltic").schema("v0 struct<metadata: binary, value: binary>").load(uri).collect()


def test_a_broken_file_fails_the_job_with_its_name(spark: SparkSession, months: str) -> None:
    path = next(path for path in Path(months).rglob("month=3/*.parquet"))
    path.write_bytes(path.read_bytes()[:50])
    frame = deltic.spark.read(spark, months)
    with pytest.raises(PythonException, match="CorruptTableError") as caught:
        frame.count()
    assert path.name in str(caught.value)


SPARK = Path(deltic.spark.__file__).parent
EXAMPLES = [
    ".".join(("deltic", "spark", *path.relative_to(SPARK).with_suffix("").parts))
    for path in sorted(SPARK.rglob("[a-z]*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_docstrings_run(spark: SparkSession, uri: str, name: str) -> None:
    # Import the module by its path, since a function has the same name.
    module = importlib.import_module(name)
    deltic.write(uri, pa.table({"carrier": ["UA", "B6"], "distance": [2475, 733]}))
    try:
        result = doctest.testmod(module, extraglobs={"spark": spark, "uri": uri, "deltic": deltic})
    finally:
        deltic.spark.uninstall(spark)
    assert result.failed == 0
    assert result.attempted > 0


def test_the_spark_page_prints_the_documented_output(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    source, expected = python_of("spark.md")
    exec(compile(source, "spark.md", "exec"), {"__name__": "page"})
    assert spark.getActiveSession() is spark
    assert capsys.readouterr().out.splitlines() == expected


OLD = """values (1, date'0001-01-01', timestamp'0001-01-01 00:00:00'),
(2, date'1000-03-01', timestamp'1000-02-28 23:59:59'), (3, date'1582-10-04', timestamp'1582-10-04 12:00:00.123456'),
(4, date'1582-10-15', timestamp'1582-10-15 00:00:00'),
(5, date'1883-11-18', timestamp'1883-11-18 12:00:00'), (6, date'1899-12-31', timestamp'1899-12-31 23:59:59'),
(7, date'1900-01-01', timestamp'1900-01-02 00:00:00'), (8, date'2024-01-01', timestamp'2024-01-01 00:00:00'),
(9, date'-0044-03-15', timestamp'-0044-03-15 12:00:00'), (10, null, null) as t(id, d, at)"""


@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "TIMESTAMP_MILLIS", "INT96"])
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Europe/Paris", "Asia/Kolkata", "Etc/GMT+5"])
def test_files_of_the_hybrid_calendar_are_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, kind: str, zone: str
) -> None:
    """Spark writes the files in legacy mode, as before version 3.0."""
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": kind,
        "spark.sql.session.timeZone": zone,
    }
    with session_settings(spark, settings):
        frame = spark.sql(f"select id, d, at, array(d) as ds from {OLD}").coalesce(1)
        frame.write.parquet(str(tmp_path / "files"))
        [file] = (tmp_path / "files").glob("*.parquet")
        columns = ["id", "unix_date(d)", "unix_micros(at)", "unix_date(ds[0])"]
        read = spark.read.parquet(str(tmp_path / "files")).selectExpr(*columns)
        expected = sorted(map(tuple, read.collect()))
    uri = str(tmp_path / "table")
    schema = pa.schema(
        {"id": pa.int32(), "d": pa.date32(), "at": pa.timestamp("us", "UTC"), "ds": pa.list_(pa.date32())}
    )
    deltic.create(uri, schema)
    (Path(uri) / "f.parquet").write_bytes(file.read_bytes())
    Log(uri).commit(1, [add("f.parquet", file.stat().st_size)])
    table = deltic.Table(uri).scan().to_arrow().sort_by("id")
    days = table["ds"].combine_chunks().flatten().cast(pa.int32()).to_pylist()
    found = zip(
        table["id"].to_pylist(),
        table["d"].cast(pa.int32()).to_pylist(),
        table["at"].cast(pa.int64()).to_pylist(),
        days,
        strict=True,
    )
    assert list(found) == expected
    for row, day in ((2, "1000-03-01"), (3, "1582-10-04"), (4, "1582-10-15"), (8, "2024-01-01")):
        assert deltic.Table(uri).scan(columns=["id"], filter=f"d = DATE '{day}'").to_arrow()["id"].to_pylist() == [row]
