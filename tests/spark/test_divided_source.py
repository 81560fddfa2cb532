"""Merges of a large DataFrame, whose rows are distributed to tasks: compared with merges in one process."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import COPIES_AND_VECTORS, FEED, IDS, MAPPED, VECTORS
from killed_tasks import dying
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltic
import deltic.dml.merge_source
import deltic.spark
from deltic import Table
from deltic.spark.dml import frame_source, rows

Clauses = Callable[["deltic.Merge[deltic.Commit]"], "deltic.Merge[deltic.Commit]"]

SOURCE = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("s", pa.struct([("x", pa.int64())])),
        ("n", pa.float64()),
        ("a.b", pa.string()),
    ]
)
COLUMNS = "id long, part string, s struct<x: long>, n double, `a.b` string"


@pytest.fixture(autouse=True)
def divided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make every source count as large and every file as worth a task; record the number of tasks of each merge."""
    monkeypatch.setattr(rows, "BYTES_PER_TASK", 1)
    monkeypatch.setattr(rows, "LARGE_SOURCE", 0)
    monkeypatch.setattr(frame_source, "KEPT_BYTES", 0)
    counted: list[int] = []
    plain = frame_source.StoredSource.change

    def change(self: frame_source.StoredSource, tasks: Any, *others: Any) -> list[bytes]:
        counted.append(len(tasks))
        return plain(self, tasks, *others)

    monkeypatch.setattr(frame_source.StoredSource, "change", change)
    return counted


def made(uri: str, properties: dict[str, str] | None = None) -> Table:
    """Three files in each of two partitions; some ids are NULL, some occur twice."""
    for file in range(3):
        ids = [*range(20 * file, 20 * file + 18), 5 if file == 1 else None, None]
        data = pa.table({"id": ids, "part": ["a", "b"] * 10, "s": [{"x": n} for n in range(20)], "n": [1.5] * 20})
        created: dict[str, Any] = {"properties": properties, "partition_by": ["part"]} if file == 0 else {}
        deltic.write(uri, data, **created)
    return Table(uri)


def source_rows(count: int = 90) -> list[tuple[Any, ...]]:
    ids = [None if n % 10 == 9 else n * 2 - 30 for n in range(count)]
    return [(id, "ab"[n % 2], {"x": n} if n % 3 else None, n / 4, f"row {n}") for n, id in enumerate(ids)]


def both(spark: SparkSession, given: list[tuple[Any, ...]]) -> tuple[pa.Table, DataFrame]:
    table = pa.Table.from_pylist([dict(zip(SOURCE.names, row, strict=True)) for row in given], SOURCE)
    return table, spark.createDataFrame(given, COLUMNS).repartition(3)


def state(table: Table) -> list[str]:
    """Rows and changes, without the ids of inserted rows, which depend on the number of files."""
    found = [repr(row) for row in table.scan().to_arrow().to_pylist()]
    snapshot = table.snapshot()
    if snapshot.properties.get("delta.enableChangeDataFeed") == "true":
        feed = table.changes(start=snapshot.version).to_arrow().drop_columns(["_commit_timestamp"])
        found += [repr(row) for row in feed.to_pylist()]
    if snapshot.properties.get("delta.enableRowTracking") == "true":
        ids = table.scan(columns=["id", "_metadata.row_id"], filter="n <> 0.25").to_arrow()
        assert len(set(ids.column("_metadata.row_id").to_pylist())) == ids.num_rows
    return sorted(found)


def counts(commit: deltic.Commit) -> dict[str, int]:
    return {name: count for name, count in commit.metrics.items() if "Rows" in name}


def compared(
    tmp_path: Path, before: Table, sources: tuple[pa.Table, DataFrame], on: str, clauses: Clauses
) -> dict[str, int]:
    """The metrics of a merge, which must have the same result in one process and with tasks."""
    spark, results = sources[1].sparkSession, []
    for name in ("one", "other"):
        place = tmp_path / f"{len(list(tmp_path.iterdir()))} {name}"
        shutil.copytree(before.uri, place)
        table = Table(str(place))
        one = table.merge(sources[0], on) if name == "one" else deltic.spark.merge(spark, table, sources[1], on)
        commit = clauses(one).execute()
        assert table.check(files=True).ok
        results.append((counts(commit), state(table)))
    assert results[0] == results[1]
    return results[1][0]


CLAUSES: dict[str, Clauses] = {
    "upsert": lambda merge: merge.when_matched_update(
        {"n": "source.n", "s.x": "source.s.x"}
    ).when_not_matched_insert_all(except_columns=None),
    "some": lambda merge: (
        merge.when_matched_delete("source.id % 3 = 0")
        .when_matched_update({"n": "target.n + source.n"}, "source.n > 3")
        .when_not_matched_insert({"id": "source.id", "part": "source.part"}, "source.id % 4 = 0")
        .when_not_matched_insert({"id": "source.id", "n": deltic.lit(0.25)}, "source.id % 4 = 2")
    ),
    "by source": lambda merge: (
        merge.when_matched_update({"n": deltic.lit(7)})
        .when_not_matched_by_source_update({"n": "target.n + 1"}, "target.id % 5 = 0")
        .when_not_matched_by_source_delete("target.id % 5 = 1")
    ),
    "insert": lambda merge: merge.when_not_matched_insert({"id": "source.id", "part": "source.part"}),
    "delete": lambda merge: merge.when_matched_delete(),
}


@pytest.mark.parametrize("properties", [{}, VECTORS | FEED, FEED | IDS | MAPPED], ids=str)
@pytest.mark.parametrize("clauses", CLAUSES)
def test_it_has_the_same_result_as_one_process(
    spark: SparkSession, tmp_path: Path, divided: list[int], properties: dict[str, str], clauses: str
) -> None:
    before = made(str(tmp_path / "before"), properties)
    sources = both(spark, source_rows())

    def chosen(merge: deltic.Merge[deltic.Commit]) -> deltic.Merge[deltic.Commit]:
        return CLAUSES[clauses](merge.with_schema_evolution() if clauses == "upsert" else merge)

    metrics = compared(tmp_path, before, sources, "source.id = target.id", chosen)
    assert metrics["numSourceRows"] == 90
    assert len(divided) == 1
    assert divided[0] >= 4


@pytest.mark.parametrize(
    "on",
    [
        "source.id = target.id AND source.part = target.part",
        "source.id <=> target.id AND source.n > 1",
        "source.id + 2 = target.id AND target.part = 'a'",
        "source.id = target.id AND source.n > target.n",
    ],
)
def test_conditions(spark: SparkSession, tmp_path: Path, divided: list[int], on: str) -> None:
    before = made(str(tmp_path / "before"))
    given = [row for row in source_rows() if row[0] is not None or row[3] == 4.75]
    metrics = compared(tmp_path, before, both(spark, given), on, CLAUSES["insert"])
    assert 0 < metrics["numTargetRowsInserted"] < len(given)
    compared(tmp_path, before, both(spark, given), on, CLAUSES["delete"])
    assert len(divided) == 2


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("date", [datetime.date(2020, 1, day) for day in range(1, 9)]),
        ("timestamp", [datetime.datetime(2020, 1, day, 12, tzinfo=datetime.timezone.utc) for day in range(1, 9)]),
        ("decimal(20,3)", [Decimal(n) / 8 for n in range(8)]),
        ("double", [0.0, -0.0, float("nan"), 1.5, -1.5, float("inf"), 3.0, 4.0]),
        ("binary", [bytes([n]) * n for n in range(8)]),
        ("string", ["", "ä", "'", "a\nb", "z" * 40, "NULL", "\\", "x"]),
        ("boolean", [True, False]),
    ],
)
def test_keys_of_every_type(
    spark: SparkSession, tmp_path: Path, divided: list[int], kind: str, values: list[Any]
) -> None:
    uri = str(tmp_path / "before")
    half = len(values) // 2
    columns = f"k {kind}, n long"
    for chosen in (values[:half], [*values[half:], None]):
        deltic.spark.write(spark.createDataFrame([(value, 1) for value in chosen], columns).coalesce(1), uri)
    frame = spark.createDataFrame([(value, 2) for value in [*values[1:], None]], columns)
    if kind == "double":
        # 0.0 equals -0.0 in the table.
        frame = frame.where("n = 2 AND k <> 0 OR k IS NULL")
    table = frame.toArrow()
    clauses = lambda merge: merge.when_matched_update({"n": "source.n"}).when_not_matched_insert_all()  # noqa: E731
    metrics = compared(tmp_path, Table(uri), (table, frame), "source.k = target.k", clauses)
    assert metrics["numTargetRowsUpdated"] == table.num_rows - 1
    assert metrics["numTargetRowsInserted"] == 1
    assert len(divided) == 1


def test_an_empty_table_and_an_empty_source(spark: SparkSession, tmp_path: Path, divided: list[int]) -> None:
    before = made(str(tmp_path / "before"))
    assert (
        compared(tmp_path, before, both(spark, []), "source.id = target.id", CLAUSES["by source"])["numSourceRows"] == 0
    )
    before.delete()
    metrics = compared(tmp_path, before, both(spark, source_rows()), "source.id = target.id", CLAUSES["insert"])
    assert metrics["numTargetRowsInserted"] == 90
    assert divided == [6, 0]


def test_the_rules_of_the_table_hold(spark: SparkSession, uri: str, divided: list[int]) -> None:
    columns = [
        deltic.field("number", pa.int64(), identity={"start": 10, "step": 5}),
        deltic.field("id", pa.int64()),
        deltic.field("double", pa.int64(), generated="id * 2"),
        deltic.field("state", pa.string(), default="'new'"),
    ]
    deltic.create(uri, pa.schema(columns), properties=VECTORS)
    table = Table(uri)
    table.add_constraint("small", "id < 1000")
    deltic.write(table, pa.table({"id": [0, 1, 2]}))
    deltic.write(table, pa.table({"id": [3, 4, 5]}))
    news = spark.range(0, 40, numPartitions=4)
    merge = deltic.spark.merge(spark, table, news, "source.id = target.id").when_matched_update({"state": "'seen'"})
    merge = merge.when_not_matched_insert({"id": "source.id"}, "source.id % 2 = 0")
    merge = merge.when_not_matched_insert({"id": "source.id", "state": "'odd'"}, "source.id < 30")
    assert merge.execute().metrics["numTargetRowsInserted"] == 29
    found = table.scan().to_arrow().sort_by("id").to_pydict()
    assert found["double"] == [2 * id for id in found["id"]]
    assert (found["state"].count("seen"), found["state"].count("odd"), found["state"].count("new")) == (6, 12, 17)
    assert len(set(found["number"])) == 35
    files, version = set(Path(uri).rglob("*.parquet")), table.snapshot().version
    for value, message in (("source.id + 990", "small"), ("1 DIV (source.id - 35)", "zero")):
        merge = deltic.spark.merge(spark, table, news, "source.id = target.id")
        with pytest.raises((deltic.InvalidInputError, PySparkException), match=message):
            merge.when_not_matched_insert({"id": value}).execute()
    assert (set(Path(uri).rglob("*.parquet")), table.snapshot().version) == (files, version)


@COPIES_AND_VECTORS
def test_errors(spark: SparkSession, uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties | FEED)
    before, files = state(table), set(Path(uri).rglob("*.parquet"))
    twice = spark.createDataFrame([(1,), (21,), (41,), (41,)], "id long").repartition(2)
    merge = deltic.spark.merge(spark, uri, twice, "source.id = target.id").when_matched_update({"n": "0"})
    with pytest.raises(
        deltic.InvalidInputError, match=r"\(id is 41\) of the target is matched by several rows of the source, so"
    ):
        merge.execute()
    for on, message in (
        ("1 DIV (source.id - 21) = target.id", r"the source, in one of its partitions: .*zero"),
        ("source.id = 1 DIV (target.id - 40)", r"zero"),
    ):
        key = deltic.spark.merge(spark, uri, twice, on).when_matched_delete()
        with pytest.raises(deltic.InvalidInputError, match=message):
            key.execute()
    assert (state(table), set(Path(uri).rglob("*.parquet")), table.snapshot().version) == (before, files, 2)


def test_without_equality_all_rows_are_collected(spark: SparkSession, tmp_path: Path, divided: list[int]) -> None:
    before = made(str(tmp_path / "before"))
    compared(tmp_path, before, both(spark, source_rows(9)), "source.id > target.id + 50", CLAUSES["insert"])
    assert divided == []


def test_a_source_is_computed_once(spark: SparkSession, uri: str, divided: list[int]) -> None:
    """The source is random: a second computation would have other rows."""
    table = Table(uri)
    deltic.write(table, pa.table({"id": list(range(0, 100_000, 2)), "n": [0.0] * 50_000}), max_rows_per_file=10_000)
    news = spark.range(1000, numPartitions=5).select((F.rand() * 100_000).cast("long").alias("id"), F.rand().alias("n"))
    merge = deltic.spark.merge(spark, table, news.dropDuplicates(["id"]), "source.id = target.id")
    metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute().metrics
    assert metrics["numTargetRowsUpdated"] + metrics["numTargetRowsInserted"] == metrics["numSourceRows"] > 900
    ids = table.scan(columns=["id"]).to_arrow().column("id").to_pylist()
    assert len(ids) == len(set(ids)) == 50_000 + metrics["numTargetRowsInserted"]
    assert table.scan(filter="n > 0").count() == metrics["numSourceRows"]
    assert divided == [5]


def test_rows_beyond_the_limit_are_spilled(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch, divided: list[int]
) -> None:
    """By executors, and by the driver for a merge without an equality condition."""
    table = Table(uri)
    deltic.write(table, pa.table({"id": list(range(0, 60_000, 2)), "text": ["old"] * 30_000}))
    news = spark.range(60_000, numPartitions=2).selectExpr("id", "repeat('new', 40) AS text", "NULL AS nothing")
    mapped = []
    spill_file = deltic.dml.merge_source._SpillFile
    plain = spill_file.mapped

    def counted(file: deltic.dml.merge_source._SpillFile) -> pa.Table:
        mapped.append(file)
        return plain(file)

    monkeypatch.setattr(spill_file, "mapped", counted)
    on = "target.id < 10 AND source.id > target.id + 59990"
    merge = deltic.spark.merge(spark, table, news.drop("nothing"), on, memory_limit="1 MiB")
    assert merge.when_matched_delete().preview().rows == 5
    assert len(mapped) == 1
    merge = deltic.spark.merge(spark, table, news, "source.id = target.id", memory_limit="1 MiB")
    merge = merge.when_matched_update({"text": "source.text"}).when_not_matched_insert({"text": "source.text"})
    metrics = merge.execute().metrics
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (30_000, 30_000)
    assert table.scan(filter="text = 'old'").count() == 0
    assert (len(mapped), divided) == (1, [1])


def test_a_merge_can_be_repeated_after_a_conflict(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch, divided: list[int]
) -> None:
    table = made(uri)
    news = spark.range(60).select("id", F.rand().alias("n"))
    merge = deltic.spark.merge(spark, table, news, "source.id = target.id").when_matched_update({"n": "source.n"})
    seen: list[pa.Table] = []
    plain = frame_source.StoredSource.change

    def overtaken(self: frame_source.StoredSource, *arguments: Any) -> list[bytes]:
        seen.append(self.collected())
        done = plain(self, *arguments)
        if len(seen) == 1:
            table.update({"n": "n + 1"})
        return done

    monkeypatch.setattr(frame_source.StoredSource, "change", overtaken)
    with pytest.raises(deltic.CommitConflictError):
        merge.execute()
    assert merge.execute().metrics["numTargetRowsUpdated"] == 55
    assert seen[0].sort_by("id") == seen[1].sort_by("id")
    assert len(divided) == 2


def test_bad_merges_are_refused_before_the_source_is_computed(spark: SparkSession, uri: str) -> None:
    made(uri)
    failing = spark.range(3).selectExpr("id", "raise_error('computed') AS n")
    merges: list[tuple[Callable[[], Any], str]] = [
        (lambda: deltic.spark.merge(spark, uri, failing, "nothing = 1").when_matched_delete().execute(), "nothing"),
        (
            lambda: (
                deltic.spark.merge(spark, uri, failing, "source.id = target.id")
                .when_matched_update({"nothing": "1"})
                .execute()
            ),
            "nothing",
        ),
        (lambda: deltic.spark.merge(spark, uri, spark.range(3).select(), "true"), "no columns"),
        (
            lambda: deltic.spark.merge(spark, uri, failing, "true", memory_limit=5).when_matched_delete().execute(),
            "memory_limit",
        ),
    ]
    for merge, message in merges:
        with pytest.raises(deltic.InvalidInputError, match=message):
            merge()


def test_a_missing_file_is_reported(spark: SparkSession, uri: str) -> None:
    made(uri)
    min(Path(uri).rglob("part-*.parquet")).unlink()
    files = set(Path(uri).rglob("*.parquet"))
    merge = deltic.spark.merge(spark, uri, spark.range(60), "source.id = target.id").when_matched_delete()
    with pytest.raises((deltic.DelticError, PySparkException), match=r"gone|does not exist"):
        merge.execute()
    assert (Table(uri).snapshot().version, set(Path(uri).rglob("*.parquet"))) == (2, files)


def test_stored_rows_are_released(spark: SparkSession, uri: str) -> None:
    made(uri)
    stored = spark.sparkContext._jsc.getPersistentRDDs()  # type: ignore[union-attr]
    before = set(stored.keySet().toArray())
    for _again in range(2):
        merge = deltic.spark.merge(spark, uri, spark.range(60), "source.id = target.id")
        merge = merge.when_matched_update({"n": "n + 1"})
        assert merge.preview().rows == 55
        merge.execute()
        left = set(spark.sparkContext._jsc.getPersistentRDDs().keySet().toArray())  # type: ignore[union-attr]
        assert left <= before


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_partitions_without_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The source has variants, whose Arrow type differs between Spark and tables."""
    monkeypatch.setattr(frame_source, "KEPT_BYTES", kept)
    monkeypatch.setattr(rows, "LARGE_SOURCE", 1 - kept)
    uri = str(tmp_path / "table")
    deltic.spark.write(spark.range(2).selectExpr("id", "parse_json('[1]') AS v"), uri)
    news = spark.range(1, 3, numPartitions=5).selectExpr("id", "parse_json('2') AS v")
    merge = deltic.spark.merge(spark, uri, news, "source.id = target.id").when_matched_update_all()
    metrics = merge.when_not_matched_insert_all().execute().metrics
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (1, 1)
    found = deltic.spark.DeltaTable.forPath(spark, uri).toDF().selectExpr("id", "to_json(v) AS v").collect()
    assert sorted((row.id, row.v) for row in found) == [(0, "[1]"), (1, "2"), (2, "2")]


@pytest.mark.parametrize("job", ["part_changer", "inserter"])
def test_killed_tasks(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    before = made(str(tmp_path / "before"), VECTORS | FEED)
    (tmp_path / "deaths").mkdir()
    plain = getattr(frame_source, job)
    with monkeypatch.context() as patched:
        patched.setattr(frame_source, job, dying(plain, tmp_path / "deaths", 1))
        upsert: Clauses = lambda merge: merge.when_matched_update({"n": "source.n"}).when_not_matched_insert(  # noqa: E731
            {"id": "source.id"}
        )
        compared(tmp_path, before, both(spark, source_rows()), "source.id = target.id", upsert)
        assert list((tmp_path / "deaths").iterdir())
    files = set(Path(before.uri).rglob("*.parquet"))
    monkeypatch.setattr(frame_source, job, dying(plain, tmp_path / "deaths", 1000))
    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        upsert(deltic.spark.merge(spark, before, both(spark, source_rows())[1], "source.id = target.id")).execute()
    assert (before.snapshot().version, set(Path(before.uri).rglob("*.parquet"))) == (2, files)
