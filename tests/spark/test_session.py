"""Settings of the session: its mode of overwrites, as in delta-spark, and its time zone, which SQL must not need."""

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from delta_spark import session_settings
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import deltic
import deltic.spark
from deltic.spark import DeltaTable

ZONE, MODE = "spark.sql.session.timeZone", "spark.sql.sources.partitionOverwriteMode"
REFUSED = r"may depend on the time zone of the session: .*America/Los_Angeles"
NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, {ZONE: "America/Los_Angeles", MODE: str(spark.conf.get(MODE))}):
        yield


@pytest.fixture
def parts(spark: SparkSession, uri: str) -> str:
    deltic.spark.write(frame(spark, ("a", 1), ("b", 2)), uri, partition_by=["p"])
    return uri


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), "p string, n long")


def rows(uri: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in deltic.Table(uri).scan().to_arrow().to_pylist())


def saved(df: DataFrame, uri: str, **options: str) -> None:
    df.write.format("deltic").mode("overwrite").options(**options).save(uri)


def written(df: DataFrame, uri: str, **options: str) -> None:
    arguments: dict[str, Any] = {"partitionOverwriteMode": "partition_overwrite", "replaceWhere": "replace_where"}
    deltic.spark.write(df, uri, "overwrite", **{arguments[name]: value for name, value in options.items()})


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("write", [saved, written])
def test_the_mode_of_the_session_overwrites_partitions(
    spark: SparkSession, parts: str, write: Callable[..., None]
) -> None:
    spark.conf.set(MODE, "dynamic")
    write(frame(spark, ("b", 3)), parts)
    assert rows(parts) == [("a", 1), ("b", 3)]
    write(frame(spark, ("c", 4)), parts, replaceWhere="p = 'a' OR p = 'c'")
    assert rows(parts) == [("b", 3), ("c", 4)]
    write(frame(spark, ("c", 5)), parts, partitionOverwriteMode="static")
    assert rows(parts) == [("c", 5)]
    deltic.spark.write(frame(spark, ("c", 6)), parts)
    assert rows(parts) == [("c", 5), ("c", 6)]
    spark.conf.set(MODE, "STATIC")
    write(frame(spark, ("d", 7)), parts, partitionOverwriteMode="dynamic")
    assert rows(parts) == [("c", 5), ("c", 6), ("d", 7)]
    write(frame(spark, ("d", 8)), parts)
    assert rows(parts) == [("d", 8)]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("write", [saved, written])
def test_the_mode_of_the_session_and_a_table_without_partitions(
    spark: SparkSession, uri: str, write: Callable[..., None]
) -> None:
    spark.conf.set(MODE, "DYNAMIC")
    for number in (1, 2):
        write(frame(spark, ("a", number)), uri)
        assert rows(uri) == [("a", number)]
    deltic.spark.write(frame(spark, ("b", 3)), uri, "overwrite", schema_mode="overwrite")
    assert rows(uri) == [("b", 3)]


def test_the_mode_of_the_session_and_new_columns(spark: SparkSession, parts: str) -> None:
    spark.conf.set(MODE, "dynamic")
    more = frame(spark, ("b", 3)).selectExpr("*", "1 AS x")
    with pytest.raises(
        deltic.InvalidInputError, match=r'partitionOverwriteMode is dynamic.*partition_overwrite="static"'
    ):
        deltic.spark.write(more, parts, "overwrite", schema_mode="overwrite")
    with pytest.raises(deltic.InvalidInputError, match="partitionOverwriteMode is dynamic"):
        deltic.spark.write(more, parts + "_new", "overwrite", "p", schema_mode="overwrite")
    deltic.spark.write(more, parts, "overwrite", schema_mode="merge")
    assert rows(parts) == [("a", 1, None), ("b", 3, 1)]
    deltic.spark.write(more, parts, "overwrite", schema_mode="overwrite", partition_overwrite="static")
    assert rows(parts) == [("b", 3, 1)]


def test_a_data_source_knows_no_mode_of_the_session(spark: SparkSession, parts: str) -> None:
    """As `docs/spark.md` says."""
    spark.conf.set(MODE, "dynamic")
    saved(frame(spark, ("b", 3)), parts, partitionOverwriteMode="dynamic")
    assert rows(parts) == [("a", 1), ("b", 3)]
    saved(frame(spark, ("b", 4)), parts)
    assert rows(parts) == [("b", 4)]


@pytest.fixture
def times(spark: SparkSession, uri: str) -> str:
    """Rows at the hours around midnight in Los Angeles, 8:00 UTC."""
    made = [(n, NOON.replace(hour=n), date(2024, 1, 1), str(n)) for n in range(6, 11)]
    deltic.spark.write(spark.createDataFrame(made, "id long, ts timestamp, day date, s string"), uri)
    return uri


def ids(uri: str) -> list[int]:
    return sorted(deltic.Table(uri).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def test_deletes_in_another_zone(spark: SparkSession, times: str) -> None:
    table = DeltaTable.forPath(spark, times)
    for condition in ("ts < '2024-01-01 08:00:00'", "CAST(ts AS DATE) = day", "id = 6 AND year(ts) = 2024", "day = ts"):
        with pytest.raises(deltic.InvalidInputError, match=REFUSED):
            table.delete(condition)
        with pytest.raises(deltic.InvalidInputError, match=REFUSED):
            deltic.spark.delete(spark, times, condition)
    assert ids(times) == [6, 7, 8, 9, 10]
    table.delete("id = 6 AND s = '6' AND day = DATE '2024-01-01'")
    table.delete("ts < TIMESTAMP '2024-01-01 00:00:00-08:00'")
    assert ids(times) == [8, 9, 10]
    deltic.spark.delete(spark, times, "ts >= '2024-01-01T10:00:00Z' OR ts IS NULL")
    assert ids(times) == [8, 9]
    spark.conf.set(ZONE, "Etc/UTC")
    table.delete("ts < '2024-01-01 09:00:00'")
    assert ids(times) == [9]
    table.delete()
    assert ids(times) == []


def test_updates_in_another_zone(spark: SparkSession, times: str) -> None:
    table = DeltaTable.forPath(spark, times)
    for column, value in {"s": "ts", "day": "ts", "ts": "day"}.items():
        with pytest.raises(deltic.InvalidInputError, match=f"the value of column `{column}` {REFUSED}"):
            table.update("id = 6", {column: value})
    with pytest.raises(deltic.InvalidInputError, match=f"the condition {REFUSED}"):
        table.update("ts < '2024-01-01'", {"s": "'x'"})
    naive = deltic.lit(datetime(2024, 1, 1))
    with pytest.raises(deltic.InvalidInputError, match="column `ts` has the type timestamp"):
        deltic.spark.update(spark, times, {"s": "'x'", "ts": naive})
    assert deltic.Table(times).snapshot().version == 0
    table.update("id = 6", {"ts": "TIMESTAMP '2024-01-01 12:00:00Z'", "s": "upper(s) || '!'"})
    deltic.spark.update(spark, times, {"s": "'late'", "ts": deltic.lit(NOON)}, "ts > '2024-01-01T09:00:00+00:00'")
    found = {row["id"]: row for row in deltic.Table(times).scan().to_arrow().to_pylist()}
    assert [found[n]["s"] for n in (6, 9, 10)] == ["late", "9", "late"]
    assert [found[n]["ts"] for n in (6, 9, 10)] == [NOON, NOON.replace(hour=9), NOON]


def test_merges_in_another_zone(spark: SparkSession, times: str) -> None:
    table = DeltaTable.forPath(spark, times).alias("t")
    news = spark.createDataFrame(
        [
            (6, NOON, date(2024, 1, 2), "new"),
            (7, NOON.replace(hour=1), date(2024, 1, 2), "old"),
            (11, NOON, None, "more"),
        ],
        "id long, ts timestamp, day date, s string",
    ).alias("s")
    for condition in ("t.id = s.id AND s.day = t.ts", "t.id = s.id AND t.ts > '2024-01-01 00:00:00'"):
        with pytest.raises(deltic.InvalidInputError, match=f"the merge condition {REFUSED}"):
            table.merge(news, condition).whenMatchedDelete().execute()
    with pytest.raises(deltic.InvalidInputError, match=f"a clause for rows that are not matched {REFUSED}"):
        table.merge(news, "t.id = s.id").whenNotMatchedInsertAll("hour(s.ts) = 1").execute()
    with pytest.raises(deltic.InvalidInputError, match=f"the value of column `ts` {REFUSED}"):
        table.merge(news, "t.id = s.id").whenMatchedUpdate(set={"ts": "s.day"}).execute()
    dates = news.selectExpr("id", "day AS ts", "day", "s").alias("s")
    with pytest.raises(deltic.InvalidInputError, match="column `ts` has the type date32"):
        table.merge(dates, "t.id = s.id").whenMatchedUpdateAll().execute()
    assert deltic.Table(times).snapshot().version == 0
    merge = table.merge(news, "t.id = s.id").whenMatchedUpdateAll("s.ts > t.ts").whenNotMatchedInsertAll()
    assert merge.execute().first()["num_affected_rows"] == 2  # type: ignore[index]
    found = {row["id"]: row for row in deltic.Table(times).scan().to_arrow().to_pylist()}
    assert [(found[n]["s"], found[n]["ts"].hour) for n in (6, 7, 11)] == [("new", 12), ("7", 7), ("more", 12)]


def test_rows_are_replaced_in_another_zone(spark: SparkSession, times: str) -> None:
    df = deltic.spark.read(spark, times).where("id = 8")
    with pytest.raises(deltic.InvalidInputError, match=f"replace_where {REFUSED}"):
        deltic.spark.write(df, times, "overwrite", replace_where="ts >= '2024-01-01 08:00:00'")
    with pytest.raises(PySparkException, match=r"does not tell a Python data source.*deltic\.spark\.install"):
        saved(df, times, replaceWhere="ts >= '2024-01-01 08:00:00'")
    assert ids(times) == [6, 7, 8, 9, 10]
    saved(df, times, replaceWhere="ts >= '2024-01-01T08:00:00Z' AND id < 10")
    assert ids(times) == [6, 7, 8, 10]
    deltic.spark.write(df, times, "overwrite", replace_where="ts >= TIMESTAMP '2024-01-01 00:00:00-08:00'")
    assert ids(times) == [6, 7, 8]
    spark.conf.set(ZONE, "UTC")
    deltic.spark.write(df, times, "overwrite", replace_where="ts >= '2024-01-01 07:00:00'")
    assert ids(times) == [6, 8]


@pytest.mark.usefixtures("installed")
def test_a_save_with_install_knows_the_zone(spark: SparkSession, times: str) -> None:
    df = deltic.spark.read(spark, times).where("id = 8")
    with pytest.raises(deltic.InvalidInputError, match=f"replace_where {REFUSED}"):
        saved(df, times, replaceWhere="ts >= '2024-01-01 08:00:00'")
    spark.conf.set(ZONE, "+00:00")
    saved(df, times, replaceWhere="ts >= '2024-01-01 08:00:00'")
    assert ids(times) == [6, 7, 8]


def test_times_without_offset_are_in_the_zone_of_the_session(spark: SparkSession, times: str) -> None:
    table = DeltaTable.forPath(spark, times)
    first = deltic.Table(times).history()[0]["timestamp"]
    table.delete()
    local = spark.sql(f"SELECT date_format(timestamp_millis({first}), 'yyyy-MM-dd HH:mm:ss.SSS')").first()[0]  # type: ignore[index]
    assert ids(times) == []
    assert table.cloneAtTimestamp(local, times + "_clone").toDF().count() == 5
    table.restoreToTimestamp(local)
    assert ids(times) == [6, 7, 8, 9, 10]
    # In UTC this would be an hour of the future, when the table exists.
    before = datetime.fromtimestamp(first / 1000, timezone.utc) - timedelta(hours=9)
    with pytest.raises(deltic.DelticError):
        table.restoreToTimestamp(before.replace(tzinfo=None).isoformat())
    with pytest.raises(deltic.InvalidInputError, match="ISO 8601"):
        table.restoreToTimestamp("yesterday")
    with pytest.raises(deltic.InvalidInputError, match="timestamp must be a string"):
        table.restoreToTimestamp(before)  # type: ignore[arg-type]
