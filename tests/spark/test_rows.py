"""`deltic.spark.delete`, `update` and `merge` on executors: compared with one process; failing tasks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import COPIES_AND_VECTORS, FEED, IDS, MAPPED, VECTORS
from killed_tasks import dying
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import deltic
import deltic.spark
from deltic import Table
from deltic.spark import DeltaTable
from deltic.spark.dml import rows

Ran = list[int]


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Make every file worth a task; record the number of tasks of each job."""
    monkeypatch.setattr(rows, "BYTES_PER_TASK", 1)
    counted: Ran = []
    plain = rows.run_tasks

    def run(*arguments: Any) -> list[bytes]:
        counted.append(len(arguments[1]))
        return plain(*arguments)

    monkeypatch.setattr(rows, "run_tasks", run)
    return counted


def made(uri: str, properties: dict[str, str] | None = None) -> Table:
    """Three files in each of two partitions."""
    for file in range(3):
        ids = range(20 * file, 20 * file + 20)
        data = pa.table({"id": ids, "part": ["a", "b"] * 10, "s": [{"x": n} for n in ids], "n": [1.5] * 20})
        created = {"properties": properties, "partition_by": ["part"]}
        deltic.write(uri, data, **(created if file == 0 else {}))
    return Table(uri)


def tracked(table: Table) -> list[str]:
    columns = ["id", "part", "s", "n"]
    if table.snapshot().properties.get("delta.enableRowTracking") == "true":
        columns += ["_metadata.row_id", "_metadata.row_commit_version"]
    return sorted(repr(row) for row in table.scan(columns=columns).to_arrow().to_pylist())


def changes(table: Table) -> list[str]:
    if table.snapshot().properties.get("delta.enableChangeDataFeed") != "true":
        return []
    feed = table.changes(start=table.snapshot().version).to_arrow().drop_columns(["_commit_timestamp"])
    return sorted(map(repr, feed.to_pylist()))


def data_files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def counts(commit: deltic.Commit) -> dict[str, int]:
    """The metrics that do not depend on time or the number of written files."""
    varies = ("Ms", "Bytes", "AddedFiles", "FilesAdded", "ChangeFiles")
    return {name: value for name, value in commit.metrics.items() if not any(word in name for word in varies)}


def source(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "part": ["a"] * len(ids), "s": [{"x": -n} for n in ids], "n": [2.5] * len(ids)})


@pytest.mark.parametrize("properties", [{}, FEED | IDS, VECTORS | FEED | IDS | MAPPED], ids=str)
def test_it_has_the_same_result_as_one_process(
    spark: SparkSession, tmp_path: Path, ran: Ran, properties: dict[str, str]
) -> None:
    ids = [0, 1, 2, 41, 100, 101]
    columns = "id long, part string, s struct<x: long>, n double"
    news = spark.createDataFrame(source(ids).to_pandas(), columns)

    def upsert(merge: deltic.Merge[deltic.Commit]) -> deltic.Commit:
        merge = merge.when_matched_delete("target.id = 41")
        merge = merge.when_matched_update({"s.x": "source.s.x", "n": deltic.lit(7)})
        merge = merge.when_not_matched_insert_all("source.id <> 101")
        return merge.when_not_matched_by_source_update({"n": "target.n + 1"}, "target.id % 10 = 3").execute()

    on, some, set = "source.id = target.id", "id % 7 = 3", {"n": "n * id", "s": deltic.lit({"x": 5})}
    steps: dict[str, tuple[Callable[[Table], deltic.Commit], Callable[[Table], deltic.Commit]]] = {
        "delete": (lambda one: one.delete(some), lambda other: deltic.spark.delete(spark, other, some)),
        "update": (lambda one: one.update(set, some), lambda other: deltic.spark.update(spark, other, set, some)),
        "merge": (
            lambda one: upsert(one.merge(source(ids), on)),
            lambda other: upsert(deltic.spark.merge(spark, other, news, on)),
        ),
        "all": (lambda one: one.update(set), lambda other: deltic.spark.update(spark, other, set)),
        "nothing": (
            lambda one: one.delete("id % 20 = 7"),
            lambda other: deltic.spark.delete(spark, other, "id % 20 = 7"),
        ),
    }
    # Physical names of columns are random, and ids depend on them.
    before = made(str(tmp_path / "before"), properties)
    before.delete("id % 20 = 7")
    for step, how in steps.items():
        results = []
        for name, change in zip(("one", "other"), how, strict=True):
            place = tmp_path / step / name
            shutil.copytree(before.uri, place)
            table = Table(str(place))
            commit = change(table)
            assert table.check(files=True).ok
            entry = {
                key: table.history(1)[0].get(key) for key in ("operation", "operationParameters", "isolationLevel")
            }
            results.append((commit.version, counts(commit), tracked(table), changes(table), entry))
        assert results[0] == results[1], step
    assert ran == [6 if "delta.enableDeletionVectors" in properties else 4] * 5


def test_the_driver_executes_a_single_task(
    spark: SparkSession, uri: str, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(uri)
    assert deltic.spark.delete(spark, uri, "id = 0").metrics["numDeletedRows"] == 1  # statistics skip all files but one
    monkeypatch.setattr(rows, "BYTES_PER_TASK", 1 << 20)
    assert deltic.spark.update(spark, uri, {"n": "0"}, "id % 2 = 1").metrics["numUpdatedRows"] == 30
    assert deltic.spark.delete(spark, uri).metrics["numDeletedRows"] == 59  # without reading files
    assert ran == []


def test_the_class_of_delta_spark_uses_the_executors(spark: SparkSession, uri: str, ran: Ran) -> None:
    made(uri)
    table = DeltaTable.forPath(spark, uri)
    table.delete("id % 20 = 0")
    table.update("id % 20 = 1", {"n": "9"})
    news = spark.createDataFrame([(5,), (25,), (105,)], "id long")
    merge = (
        table.merge(news, "source.id = target.id").whenMatchedDelete().whenNotMatchedInsert(values={"id": "source.id"})
    )
    row = merge.execute().first()
    assert row is not None
    assert (row["num_deleted_rows"], row["num_inserted_rows"]) == (2, 1)
    assert len(ran) == 3
    assert table.toDF().count() == 60 - 3 - 2 + 1


def test_rules_of_the_table_hold(spark: SparkSession, uri: str, ran: Ran) -> None:
    columns = [
        deltic.field("number", pa.int64(), identity={"start": 10, "step": 5}),
        deltic.field("id", pa.int64()),
        deltic.field("double", pa.int64(), generated="id * 2"),
        deltic.field("state", pa.string(), default="'new'"),
    ]
    deltic.create(uri, pa.schema(columns), properties=VECTORS)
    table = Table(uri)
    table.add_constraint("small", "id < 100")
    for file in range(3):
        deltic.write(table, pa.table({"id": [3 * file, 3 * file + 1, 3 * file + 2]}))
    assert deltic.spark.update(spark, table, {"id": "id + 10"}, "id % 3 = 1").metrics["numUpdatedRows"] == 3
    with pytest.raises(deltic.InvalidInputError, match="small"):
        deltic.spark.update(spark, table, {"id": "id + 90"}, "id % 3 = 2")
    news = spark.createDataFrame([(0,), (3,), (50,), (51,)], "id long")
    merge = deltic.spark.merge(spark, table, news, "source.id = target.id")
    merge = merge.when_matched_update({"state": "'seen'"}).when_not_matched_insert({"id": "source.id"})
    assert merge.execute().metrics["numTargetRowsInserted"] == 2
    assert len(ran) == 3
    found = table.scan().to_arrow().sort_by("id").to_pydict()
    assert found["id"] == [0, 2, 3, 5, 6, 8, 11, 14, 17, 50, 51]
    assert found["double"] == [2 * id for id in found["id"]]
    assert (found["state"].count("seen"), found["state"].count("new")) == (2, 9)
    assert len(set(found["number"])) == 11
    assert max(found["number"]) == 10 + 5 * 10


@COPIES_AND_VECTORS
def test_an_error_in_a_task_is_an_error_of_deltic(
    spark: SparkSession, uri: str, ran: Ran, properties: dict[str, str]
) -> None:
    table = made(uri, properties | FEED)
    before, files = tracked(table), data_files(uri)
    twice = spark.createDataFrame([(1,), (21,), (41,), (41,)], "id long")
    merge = deltic.spark.merge(spark, uri, twice, "source.id = target.id").when_matched_update({"n": "0"})
    with pytest.raises(deltic.InvalidInputError, match=r"\(id is 41\).* matched by several rows"):
        merge.execute()
    with pytest.raises(deltic.InvalidInputError, match="row"):
        deltic.spark.update(spark, uri, {"n": "1 div (id - 31)"}, "id % 10 = 1")
    assert len(ran) == 2
    assert (tracked(table), data_files(uri), table.snapshot().version) == (before, files, 2)
    # After a fix of the rows it can be executed again.
    table.delete("id = 41")
    assert merge.execute().metrics["numTargetRowsUpdated"] == 2


def test_bad_arguments_are_refused_before_any_task_runs(spark: SparkSession, uri: str, ran: Ran) -> None:
    made(uri)
    news = spark.createDataFrame([(1,)], "id long")
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: deltic.spark.delete(spark, uri, "nothing = 1"), "nothing"),
        (lambda: deltic.spark.update(spark, uri, {"nothing": "1"}), "nothing"),
        (lambda: deltic.spark.merge(spark, uri, news, "source.id = target.id").execute(), "without clauses"),
        (
            lambda: deltic.spark.merge(spark, uri, news, "source.id = target.nothing").when_matched_delete().execute(),
            "nothing",
        ),
        (lambda: deltic.spark.delete(spark, "memory://table"), "memory"),
        (lambda: deltic.spark.delete(None, uri), "SparkSession"),  # type: ignore[arg-type]
    ]
    for call, message in calls:
        with pytest.raises(deltic.InvalidInputError, match=message):
            call()
    assert (ran, Table(uri).snapshot().version) == ([], 2)


def test_an_application_changes_rows_once(spark: SparkSession, uri: str, ran: Ran) -> None:
    made(uri)
    for version in (3, 3, 2):
        done = deltic.spark.update(spark, uri, {"n": "n + 1"}, "id % 20 = 0", app_id="nightly", app_version=version)
        assert done.version == 3
    assert (len(ran), Table(uri).scan(filter="n = 2.5").count()) == (1, 3)


@COPIES_AND_VECTORS
def test_a_killed_task_is_counted_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    one = made(str(tmp_path / "one"), properties | IDS | FEED)
    other = Table(shutil.copytree(one.uri, tmp_path / "other"))
    files = data_files(other.uri)
    monkeypatch.setattr(rows, "_changer", dying(rows._changer, tmp_path, 1))
    news = spark.createDataFrame([(1,), (21,), (41,), (71,)], "id long")
    merge = deltic.spark.merge(spark, other, news, "source.id = target.id").when_matched_update({"n": "0"})
    theirs = merge.when_not_matched_insert({"id": "source.id"}).execute()
    assert (tmp_path / "death 0").exists()
    merge = one.merge(pa.table({"id": [1, 21, 41, 71]}), "source.id = target.id").when_matched_update({"n": "0"})
    mine = merge.when_not_matched_insert({"id": "source.id"}).execute()
    assert counts(mine) == counts(theirs)
    assert (tracked(one), changes(one)) == (tracked(other), changes(other))
    assert len(data_files(other.uri) - files) > theirs.num_added_files


@COPIES_AND_VECTORS
def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    table = made(uri, properties | FEED)
    before, files = tracked(table), data_files(uri)
    monkeypatch.setattr(rows, "_changer", dying(rows._changer, tmp_path, 1000))
    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        deltic.spark.update(spark, uri, {"n": "0"}, "id % 10 = 1")
    assert (table.snapshot().version, data_files(uri), tracked(table)) == (2, files, before)


def test_a_missing_file_is_reported(spark: SparkSession, uri: str) -> None:
    made(uri)
    min(data_files(uri)).unlink()
    files = data_files(uri)
    with pytest.raises(deltic.DelticError, match="file that is gone"):
        deltic.spark.update(spark, uri, {"n": "0"}, "id % 10 < 5")
    assert (Table(uri).snapshot().version, data_files(uri)) == (2, files)


@COPIES_AND_VECTORS
def test_a_concurrent_commit_has_the_same_effect_as_with_one_process(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    table = made(uri, properties)
    plain = rows.run_tasks

    def overtaken(*arguments: Any) -> list[bytes]:
        done = plain(*arguments)
        table.delete("id = 2")
        return done

    monkeypatch.setattr(rows, "run_tasks", overtaken)
    if properties:
        assert deltic.spark.update(spark, uri, {"n": "0"}, "id % 10 = 4").attempts == 2
        assert (table.scan().count(), table.scan(filter="n = 0").count()) == (59, 6)
    else:
        files = data_files(uri)
        with pytest.raises(deltic.CommitConflictError):
            deltic.spark.update(spark, uri, {"n": "0"}, "id % 10 = 4")
        assert (table.scan().count(), table.scan(filter="n = 0").count()) == (59, 0)
        assert len(data_files(uri) - files) == 1, "only the other writer's file is new"


CONNECT = """
import sys
from pyspark.sql import SparkSession
import pyarrow as pa
import deltic, deltic.spark
from deltic.spark.dml import rows

uri = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
rows.BYTES_PER_TASK = 1
ran = []
plain = rows.run_tasks
rows.run_tasks = lambda *arguments: ran.append(len(arguments[1])) or plain(*arguments)
for file in range(3):
    deltic.write(uri, pa.table({"id": [file, file + 10], "n": [0, 0]}))
assert deltic.spark.update(spark, uri, {"n": "id"}, "id < 10").metrics["numUpdatedRows"] == 3
news = spark.createDataFrame([(0,), (11,), (20,)], "id long")


def merged():
    merge = deltic.spark.merge(spark, uri, news, "source.id = target.id").when_matched_update({"n": "n + 1"})
    done = merge.when_not_matched_insert({"id": "source.id"}, "source.id < 0").execute()
    return done.metrics["numTargetRowsUpdated"]


assert merged() == 2
assert ran == [3, 3], ran
limit, rows.LONGEST_MESSAGE = rows.LONGEST_MESSAGE, 1
assert merged() == 2
assert ran == [3, 3], ran
# The rows of a large source go to the tasks that need them, in one job with others.
rows.LARGE_SOURCE, rows.LONGEST_MESSAGE = 0, limit
assert merged() == 2
more = deltic.spark.merge(spark, uri, spark.range(30, 40), "source.id = target.id")
more = more.when_matched_delete().when_not_matched_insert({"id": "source.id"}).execute()
assert more.metrics["numTargetRowsInserted"] == 10, more.metrics
assert ran == [3, 3], ran
spark.stop()
"""


def test_spark_connect(in_connect: Callable[[str, str], None], uri: str) -> None:
    in_connect(CONNECT, uri)
    found = Table(uri).scan().to_arrow()["n"]
    assert (sorted(found.drop_null().to_pylist()), found.null_count) == ([0, 0, 1, 2, 3, 3], 10)
