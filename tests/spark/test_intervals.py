"""`deltic.spark.optimize` divides large groups of files into intervals of a curve, by Spark's shuffle."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed_rows import IDS, MAPPED, VECTORS
from killed_tasks import dying
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sample import adds, every_type, rows

import deltic
import deltic.spark
from deltic import Table, _deltic
from deltic.spark import intervals, maintenance

VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("k", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("d", pa.decimal128(20, 3)),
        ("inner", pa.struct([("x", pa.float32()), ("y", pa.string())])),
        ("many", pa.list_(pa.struct([("z", pa.int64())]))),
        pa.field("v", VARIANT, metadata={"delta.type": "variant"}),
    ]
)
FILES = 6


def random_rows(seed: int, count: int) -> pa.Table:
    """Rows with nulls, NaN, long strings, and one key that a third of the rows have."""
    choose = random.Random(seed)
    start = datetime(2020, 1, 1, tzinfo=timezone.utc)

    def or_null(value: Any) -> Any:
        return None if choose.random() < 0.1 else value

    def row(n: int) -> dict[str, Any]:
        time = start + timedelta(microseconds=choose.randrange(10**15))
        return {
            "n": n,
            "k": or_null(7 if choose.random() < 0.3 else choose.randrange(-1000, 1000)),
            "f": or_null(choose.choice([float("nan"), float("inf"), -0.0, 0.0, choose.gauss(0, 10)])),
            "s": or_null(choose.choice(["", "ž", "x" * 300]) + str(choose.randrange(50))),
            "t": or_null(time),
            "local": or_null(time.replace(tzinfo=None)),
            "d": or_null(Decimal(choose.randrange(-(10**9), 10**9)) / 1000),
            "inner": or_null({"x": or_null(choose.choice([1.5, float("nan")])), "y": or_null("y")}),
            "many": or_null([or_null({"z": n})] * choose.randrange(3)),
        }

    without_variants = pa.schema([field for field in SCHEMA if field.name != "v"])
    table = pa.Table.from_pylist([row(n) for n in range(count)], schema=without_variants)
    variants = [or_null(json.dumps({"n": n})) for n in range(count)]
    return table.append_column("v", pa.array(variants, pa.string()))


def made(uri: str, count: int = 3000, properties: dict[str, str] | None = None, **options: Any) -> Table:
    """A table of six files of random rows; with deletion vectors some of the rows are deleted."""
    deltic.create(uri, SCHEMA, properties=properties, **options)
    given = random_rows(count, count)
    for file in range(FILES):
        deltic.write(uri, given.slice(file * count // FILES, count // FILES))
    if properties and VECTORS.items() <= properties.items():
        Table(uri).delete("n % 7 = 3")
    return Table(uri)


def contents(table: Table) -> Any:
    columns = SCHEMA.names
    if table.snapshot().properties.get("delta.enableRowTracking") == "true":
        columns = [*columns, "_metadata.row_id", "_metadata.row_commit_version"]
    return rows(table.scan(columns=columns).to_arrow())


def data_files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


@pytest.fixture
def intervals_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[set[str]]]]:
    """For each division the number of its split tasks, and the paths of the files of each interval. Tasks are small."""
    monkeypatch.setattr(intervals, "BYTES_PER_TASK", 1024)
    seen: list[tuple[int, list[set[str]]]] = []
    plain_spread, plain_collect = intervals.spread, intervals.collect
    tasks: list[int] = []

    def spread(spark: Any, given: Any, partitions: int) -> Any:
        tasks.append(partitions)
        return plain_spread(spark, given, partitions)

    def collect(*arguments: Any) -> list[bytes]:
        written = plain_collect(*arguments)
        ordered = sorted(map(json.loads, written), key=lambda result: result["body"]["of"]["Interval"])
        paths = [{file["add"]["path"] for file in result["body"]["files"]} for result in ordered]
        seen.append((tasks.pop(), paths))
        return written

    monkeypatch.setattr(intervals, "spread", spread)
    monkeypatch.setattr(intervals, "collect", collect)
    return seen


@pytest.mark.parametrize("zorder_by", [["k"], ["s", "f"], ["t", "d", "inner.x"], ["local", "k"]], ids=str)
@pytest.mark.parametrize("properties", [{}, IDS | VECTORS, MAPPED | IDS | VECTORS], ids=str)
def test_rows_and_ids_stay(
    spark: SparkSession, uri: str, properties: dict[str, str], zorder_by: list[str], intervals_of: Any
) -> None:
    table = made(uri, properties=properties)
    before, version = contents(table), table.snapshot().version
    result = deltic.spark.optimize(spark, uri, zorder_by=zorder_by, target_file_size=20_000, max_tasks=1000)
    assert (result.versions, result.layout) == ([version + 1], "zorder")
    assert result.metrics["numRemovedFiles"] == FILES
    assert (result.metrics["numDeletionVectorsRemoved"] > 0) == bool(properties)
    ((split_tasks, found),) = intervals_of
    assert split_tasks > 1
    assert len(found) > 3
    new = adds(uri, version + 1)
    assert sorted(path for paths in found for path in paths) == sorted(add["path"] for add in new)
    assert contents(table) == before
    assert not any(add["dataChange"] or "deletionVector" in add for add in new)
    assert table.check(files=True).ok


def test_files_of_different_intervals_do_not_overlap(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    table = made(uri)
    deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    ((_, found),) = intervals_of
    by_path = {add["path"]: add for add in adds(uri, table.snapshot().version)}
    end = None
    for paths in found:
        stats = [by_path[path]["stats"] for path in paths]
        least = min(each["minValues"]["k"] for each in stats)
        # NULL comes first.
        assert end is None or (least > end and all(each["nullCount"]["k"] == 0 for each in stats))
        end = max(each["maxValues"]["k"] for each in stats)
    # A third of the rows have one key, which is in one interval.
    (with_key,) = [paths for paths in found if any(has_key(by_path[path]["stats"]) for path in paths)]
    assert sum(pq.read_table(Path(uri, path)).column("k").to_pylist().count(7) for path in with_key) > 600


def has_key(stats: dict[str, Any]) -> bool:
    return bool(stats["minValues"]["k"] <= 7 <= stats["maxValues"]["k"])


def test_every_type_travels(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    given = every_type(2000)
    for file in range(4):
        deltic.write(uri, given.slice(500 * file, 500))
    for column in ["string", "binary", "boolean", "date", "big_decimal", "float", "byte"]:
        deltic.spark.optimize(spark, uri, zorder_by=[column, "struct.x"], target_file_size="20 kB", max_tasks=1000)
        assert rows(Table(uri).scan().to_arrow()) == rows(given), column
    assert all(len(found) > 1 for _, found in intervals_of)
    assert len(intervals_of) == 7


def test_widened_columns(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    properties = {"delta.enableTypeWidening": "true"}
    deltic.write(uri, pa.table({"k": pa.array(range(3000), pa.int16())}), properties=properties)
    Table(uri).alter_column("k", type="long")
    more = [2**40 + n for n in range(3000)] + [None] * 10
    deltic.write(uri, pa.table({"k": pa.array(more, pa.int64())}))
    deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=5000, max_tasks=1000)
    assert rows(Table(uri).scan().to_arrow()) == rows(pa.table({"k": [*range(3000), *more]}))
    assert len(intervals_of[0][1]) > 1


def test_a_clustered_table(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    table = made(uri, cluster_by=["k", "s"])
    before = contents(table)
    result = deltic.spark.optimize(spark, uri, target_file_size=20_000, max_tasks=1000)
    assert (result.layout, len(result.versions), len(intervals_of[0][1]) > 1) == ("hilbert", 1, True)
    new = adds(uri, result.versions[0])
    assert {add["clusteringProvider"] for add in new} == {"liquid"}
    assert len({add["tags"]["ZCUBE_ID"] for add in new}) == 1, "it is one cube"
    assert contents(table) == before
    assert deltic.spark.optimize(spark, uri, target_file_size=20_000, max_tasks=1000).versions == [], (
        "no rows were added"
    )


def test_only_large_partitions_are_divided(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    for file in range(4):
        large = pa.table({"p": ["large"] * 5000, "k": random.Random(file).sample(range(10**6), 5000)})
        deltic.write(uri, pa.concat_tables([large, pa.table({"p": ["small"], "k": [file]})]), partition_by=["p"])
    before = rows(Table(uri).scan().to_arrow())
    result = deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    assert (len(result.versions), result.metrics["numRemovedFiles"]) == (1, 8)
    ((_, found),) = intervals_of
    new = {add["path"]: add["partitionValues"]["p"] for add in adds(uri, result.versions[0])}
    assert {new[path] for paths in found for path in paths} == {"large"}
    assert sorted(new.values()).count("small") == 1
    assert rows(Table(uri).scan().to_arrow()) == before


def test_max_tasks(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    table = made(uri)
    before = contents(table)
    deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=2)
    ((split_tasks, found),) = intervals_of
    assert (split_tasks, len(found)) == (2, 2)
    assert all(len(paths) > 1 for paths in found)
    deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1)
    assert len(intervals_of) == 1, "one task rewrites all"
    deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000)
    assert len(intervals_of) == 1, "nothing is divided on one machine"
    assert contents(table) == before


def test_the_session_stays(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    made(uri)
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    assert (spark.conf.get(name), len(intervals_of)) == (before, 1)
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active.conf.get(name) == before


def test_partitions_with_several_intervals(
    spark: SparkSession, uri: str, intervals_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Spark 4.1, which has no `repartitionById`."""
    monkeypatch.delattr("pyspark.sql.classic.dataframe.DataFrame.repartitionById")
    monkeypatch.delattr("pyspark.sql.dataframe.DataFrame.repartitionById")
    table = made(uri, properties=IDS)
    before = contents(table)
    deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=10_000, max_tasks=1000)
    assert len(intervals_of[0][1]) > 3
    assert contents(table) == before


@pytest.mark.parametrize("step", ["_splitter", "_interval_writer"])
def test_a_killed_task_is_repeated(
    spark: SparkSession, uri: str, tmp_path: Path, step: str, intervals_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri, properties=IDS)
    before, files = contents(table), data_files(uri)
    monkeypatch.setattr(intervals, step, dying(getattr(intervals, step), tmp_path, 1))
    result = deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    assert (tmp_path / "death 0").exists()
    assert len(result.versions) == 1
    assert contents(table) == before
    named = {Path(uri) / add["path"] for add in adds(uri, result.versions[0])}
    assert named <= data_files(uri) - files
    # No commit names the files of the killed attempt.
    assert (named < data_files(uri) - files) == (step == "_interval_writer")


@pytest.mark.parametrize("step", ["_splitter", "_interval_writer"])
def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, uri: str, tmp_path: Path, step: str, intervals_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri, properties=IDS)
    before, files, version = contents(table), data_files(uri), table.snapshot().version
    monkeypatch.setattr(intervals, step, dying(getattr(intervals, step), tmp_path, 1000))
    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    assert (table.snapshot().version, data_files(uri), contents(table)) == (version, files, before)


def test_a_missing_interval_commits_nothing(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(uri)
    before, files, version = contents(table), data_files(uri), table.snapshot().version
    plain = intervals.collect
    for lose, message in [(lambda written: written[1:], "missing"), (lambda written: [*written, written[0]], "twice")]:
        monkeypatch.setattr(intervals, "collect", lambda *given, lose=lose: lose(plain(*given)))
        with pytest.raises(deltic.InvalidInputError, match=message):
            deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
        assert (table.snapshot().version, data_files(uri), contents(table)) == (version, files, before)


def test_a_missing_file_is_reported(spark: SparkSession, uri: str) -> None:
    made(uri)
    min(data_files(uri)).unlink()
    files, version = data_files(uri), Table(uri).snapshot().version
    with pytest.raises(PySparkException, match=r"deltic\.errors"):
        deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    assert (Table(uri).snapshot().version, data_files(uri)) == (version, files)


def test_a_group_changed_by_another_writer_is_left_out(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri, properties=VECTORS)
    plain = maintenance.rewrite_intervals

    def overtaken(*arguments: Any) -> list[bytes]:
        written = plain(*arguments)
        table.delete("n = 4")
        return written

    monkeypatch.setattr(maintenance, "rewrite_intervals", overtaken)
    before = contents(table)
    files = data_files(uri)
    result = deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    assert (result.files_lost, result.versions) == (FILES, [])
    assert sum((before - contents(table)).values()) == 1
    assert data_files(uri) == files


def test_appends_do_not_conflict(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(uri)
    plain = maintenance.rewrite_intervals

    def overtaken(*arguments: Any) -> list[bytes]:
        written = plain(*arguments)
        deltic.write(uri, random_rows(1, 10))
        return written

    monkeypatch.setattr(maintenance, "rewrite_intervals", overtaken)
    before = contents(table)
    result = deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    assert (result.files_lost, len(result.versions)) == (0, 1)
    assert sum((contents(table) - before).values()) == 10


def test_progress(spark: SparkSession, uri: str, intervals_of: Any) -> None:
    made(uri)
    reports: list[Any] = []
    with deltic.progress(reports.append):
        deltic.spark.optimize(spark, uri, zorder_by="k", target_file_size=20_000, max_tasks=1000)
    ends = [(report.operation, report.unit, report.done, report.total) for report in reports if report.ended]
    split_tasks, found = intervals_of[0]
    assert ends == [("OPTIMIZE", "tasks", n, n) for n in (split_tasks, len(found))]


def test_tasks_of_another_commit_are_refused(uri: str) -> None:
    options = json.dumps({"zorder_by": ["k"], "target_file_size": 20_000})
    table = made(uri)
    runs = [_deltic.optimize_distributed(table._core, options) for _ in range(2)]
    divisions = []
    for run in runs:
        tasks = run.next_tasks((2, None, 1))
        assert tasks is not None
        divisions.append(run.divide([_deltic.sample_rows(task, None) for task in tasks[1]]))
    with pytest.raises(deltic.InvalidInputError, match="another division"):
        _deltic.split_rows(divisions[0][1][0], divisions[1][0], None)
    with pytest.raises(deltic.InvalidInputError, match="not a split task"):
        _deltic.split_rows(b"{}", divisions[1][0], None)
    with pytest.raises(deltic.InvalidInputError, match="another division"):
        _deltic.write_interval(divisions[0][0], 10**6, pa.table({"rows": pa.array([], pa.binary())}), None)
    with pytest.raises(deltic.InvalidInputError, match="missing"):
        runs[0].divide([])
