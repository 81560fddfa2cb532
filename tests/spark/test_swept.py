"""`deltic.spark.vacuum`: it has the same effects as `Table.vacuum`, also after failures."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import files_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import deltic
import deltic.spark
from deltic import Table, _deltic
from deltic.results.inventory import inventory_rows
from deltic.spark import maintenance
from deltic.spark.delta_table import DeltaTable

MONTH = 30 * 24 * 60 * 60
FORCED = ((0, True), False, False, True, None)


def orphan(uri: str, path: str) -> str:
    """Create a file that no commit names, a month old."""
    place = Path(uri) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"left")
    os.utime(place, (time.time() - MONTH,) * 2)
    return path


def made(uri: str) -> Table:
    """A table with two partitions, each with a removed file, and files of writers that never committed."""
    for number in range(2):
        rows = pa.table({"id": [number, number + 10], "p": ["a%20b", "é"]})
        deltic.write(uri, rows, mode="overwrite", **({} if number else {"partition_by": ["p"]}))
    for path in ("root.parquet", "p=é/left.parquet", "x/y/z %.parquet", "_hidden/a.parquet", "_change_data/c.parquet"):
        orphan(uri, path)
    return Table(uri)


def ended(table: Table) -> tuple[Any, Any]:
    (entry,) = table.history(1)
    assert entry["operation"] == "VACUUM END"
    return entry["operationParameters"]["status"], entry["operationMetrics"]


def random_table(uri: str, draw: random.Random) -> tuple[dict[int, list[str]], int]:
    """A table with random versions; return the rows of each version, and the version before a pause."""
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4"}
    if draw.random() < 0.5:
        properties["delta.enableChangeDataFeed"] = "true"
    table, partition_by = Table(uri), ["p"] if draw.random() < 0.7 else None
    versions: dict[int, list[str]] = {}
    chosen, pause = 0, draw.randrange(3, 9)
    for step in range(10):
        time.sleep(0.01)
        choice = draw.random() if step else 0.0
        if choice < 0.5:
            values = ["a b", "50%", "é", "x/y", "file:", None]
            rows = [{"id": draw.randrange(20), "p": draw.choice(values)} for _ in range(5)]
            given = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.int64()), ("p", pa.string())]))
            mode = "overwrite" if draw.random() < 0.3 else "append"
            deltic.write(
                uri, given, mode=mode, **({} if step else {"partition_by": partition_by, "properties": properties})
            )
        elif choice < 0.8:
            table.delete(f"id % 3 = {draw.randrange(3)}")
        else:
            orphan(uri, draw.choice(["p=é/", "q/r/", "", "p=50%25/"]) + f"left {step}.parquet")
        versions[table.snapshot().version] = sorted_rows(table.snapshot())
        if step == pause:
            chosen = table.snapshot().version
            time.sleep(2)
    return versions, chosen


def sorted_rows(snapshot: deltic.Snapshot) -> list[str]:
    return sorted(map(str, snapshot.scan().to_arrow().to_pylist()))


@pytest.mark.parametrize("mode", ["full", "lite"])
@pytest.mark.parametrize("seed", range(3))
def test_it_has_the_same_result_as_the_table_method(spark: SparkSession, tmp_path: Path, seed: int, mode: Any) -> None:
    draw = random.Random(seed)
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    versions, chosen = random_table(here, draw)
    shutil.copytree(here, there)  # keeps modification times
    committed = {entry["version"]: entry["timestamp"] for entry in Table(here).history()}[chosen]
    retention = timedelta(milliseconds=time.time() * 1000 - committed - 500)
    found = [
        Table(here).vacuum(retention, mode=mode, force=True, dry_run=True),
        deltic.spark.vacuum(spark, there, retention, mode=mode, force=True, dry_run=True),
    ]
    same = ("files_seen", "files_deleted", "bytes_deleted", "dry_run")
    values = [[getattr(result, name) for name in same] for result in found]
    assert values[0] == values[1]
    assert files_of(here) == files_of(there), "a dry run deletes nothing"
    paths = [sorted(result.files["path"].to_pylist()) for result in found if result.files is not None]
    assert paths[0] == paths[1]
    retention = timedelta(milliseconds=time.time() * 1000 - committed - 500)
    local = Table(here).vacuum(retention, mode=mode, force=True)
    retention = timedelta(milliseconds=time.time() * 1000 - committed - 500)
    done = deltic.spark.vacuum(spark, there, retention, mode=mode, force=True)
    assert [getattr(done, name) for name in same] == [getattr(local, name) for name in same]
    assert files_of(here) == files_of(there)
    assert ended(Table(here)) == ended(Table(there))
    for version, rows in versions.items():
        if version >= chosen:
            assert sorted_rows(Table(there).snapshot(version)) == rows


def test_nested_tables_are_kept(spark: SparkSession, uri: str) -> None:
    made(uri)
    for number in range(2):
        deltic.write(f"{uri}/x/inner", pa.table({"id": [number]}), mode="overwrite")
    for path in Path(uri, "x/inner").glob("*.parquet"):
        os.utime(path, (time.time() - MONTH,) * 2)
    planned = deltic.spark.vacuum(spark, uri, dry_run=True)
    done = deltic.spark.vacuum(spark, uri)
    assert (planned.files_deleted, done.files_deleted, done.nested_tables) == (4, 4, ("x/inner",))
    assert "x/y/z %.parquet" not in files_of(uri)
    inner = Table(f"{uri}/x/inner")
    assert [inner.snapshot(version).scan().to_arrow()["id"].to_pylist() for version in (0, 1)] == [[0], [1]]


def test_an_inventory(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    before = files_of(uri)
    rows = [(path, 4, False, 0) for path in before if "left" in path or "root" in path]
    listed = spark.createDataFrame(rows, "path string, length long, isDir boolean, modificationTime long")
    assert deltic.spark.vacuum(spark, uri, inventory=listed).files_deleted == 2
    assert files_of(uri) == before - {path for path, *_ in rows}
    assert table.scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("time", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("where", ["executors", "driver"])
def test_times_of_an_inventory_are_instants(spark: SparkSession, uri: str, where: str, time: str) -> None:
    """The session's time zone is eight hours from UTC."""
    table = made(uri)
    old, young = sorted(path for path in files_of(uri) if "left" in path or "root" in path)[:2]
    now = datetime.now(timezone.utc)
    ages = {old: timedelta(days=7, hours=3), young: timedelta(days=7, hours=-3)}
    for path, age in ages.items():
        os.utime(Path(uri, path), ((now - age).timestamp(),) * 2)
    rows = [(path, "4", False, now - age) for path, age in ages.items()]
    rows.append((None, "no number", True, None))  # a folder
    listed = spark.createDataFrame(rows, "path string, length string, isDir boolean, modificationTime timestamp")
    listed = listed.withColumn("modificationTime", listed["modificationTime"].cast(time))
    before = files_of(uri)
    if where == "driver":
        table.vacuum(inventory=listed)
    else:
        deltic.spark.vacuum(spark, uri, inventory=listed)
    assert files_of(uri) == before - {old}


def test_an_inventory_is_read_partition_by_partition(spark: SparkSession, tmp_path: Path) -> None:
    marks = str(tmp_path)

    def marked(batches: Any) -> Any:
        for batch in batches:
            Path(marks, str(batch.column(0)[0].as_py())).touch()
            yield batch

    numbered = spark.range(0, 400, 1, 4).mapInArrow(marked, "id long")
    expressions = ["concat('f', id) AS path", "id AS length", "false AS isDir", "id AS modificationTime", "id AS other"]
    reader = inventory_rows(numbered.selectExpr(*expressions))
    assert reader.schema.names == ["path", "length", "isDir", "modificationTime"]
    assert os.listdir(marks) == []
    first = reader.read_next_batch()
    assert (first.num_rows, os.listdir(marks)) == (100, ["0"])
    rest = reader.read_all()
    assert sorted(os.listdir(marks)) == ["0", "100", "200", "300"]
    assert [*first.column(1).to_pylist(), *rest.column(1).to_pylist()] == list(range(400))


def test_an_inventory_without_a_column_is_refused(spark: SparkSession, uri: str) -> None:
    made(uri)
    before = files_of(uri)
    for columns, message in [("path string, length long", "lacks the column"), ("other long", "lacks the column")]:
        with pytest.raises(deltic.InvalidInputError, match=message):
            deltic.spark.vacuum(spark, uri, inventory=spark.createDataFrame([], columns))
    listed = spark.sql("SELECT 'x' AS path, 'y' AS path, 1 AS length, false AS isDir, 1 AS modificationTime")
    with pytest.raises(deltic.InvalidInputError, match="'path' twice"):
        deltic.spark.vacuum(spark, uri, inventory=listed)
    failing = spark.sql("SELECT raise_error('no list') AS path, 1 AS length, false AS isDir, 1 AS modificationTime")
    with pytest.raises(deltic.InvalidInputError, match="could not be read"):
        deltic.spark.vacuum(spark, uri, inventory=failing)
    assert files_of(uri) == before


def test_a_late_task_does_not_delete_young_files(uri: str) -> None:
    table = made(uri)
    work = _deltic.vacuum_distributed(table._core, *FORCED)
    tasks = work.next_tasks(4)
    while tasks:
        old = tasks
        results = [_deltic.sweep_files(task, None) for task in tasks]
        again = [_deltic.sweep_files(task, None) for task in tasks]
        assert len(again) == len(results)
        work.take(results)
        tasks = work.next_tasks(4)
    work.end()
    time.sleep(0.01)
    deltic.write(uri, pa.table({"id": [7], "p": ["é"]}))
    (Path(uri) / "p=é" / "young.parquet").write_bytes(b"not committed yet")
    for task in old:
        _deltic.sweep_files(task, None)
    assert (Path(uri) / "p=é" / "young.parquet").exists()
    assert table.scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("log", [True, False])
def test_a_task_that_reaches_another_table_deletes_nothing(uri: str, tmp_path: Path, log: bool) -> None:
    made(uri)
    work = _deltic.vacuum_distributed(Table(uri)._core, (0, True), False, False, log, None)
    shutil.move(uri, tmp_path / "elsewhere")
    made(uri)
    before = files_of(uri)
    while tasks := work.next_tasks(4):
        work.take([_deltic.sweep_files(task, None) for task in tasks])
    with pytest.raises(deltic.DelticError, match="another store than the driver"):
        work.end()
    assert {path for path in before if "_delta_log" not in path} <= files_of(uri)


def test_a_vacuum_that_is_not_in_the_history(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    history = table.history()
    planned = deltic.spark.vacuum(spark, uri, 0, force=True, dry_run=True)
    done = deltic.spark.vacuum(spark, uri, 0, force=True, log=False)
    assert done.files_deleted == planned.files_deleted > 0
    assert table.history() == history
    assert table.scan().to_arrow().num_rows == 2


def test_a_new_file_in_the_root_is_kept(uri: str) -> None:
    table = made(uri)
    work = _deltic.vacuum_distributed(table._core, *FORCED)
    tasks = work.next_tasks(4)
    time.sleep(0.01)
    (Path(uri) / "root.parquet").write_bytes(b"written anew")
    while tasks:
        work.take([_deltic.sweep_files(task, None) for task in tasks])
        tasks = work.next_tasks(4)
    work.end()
    assert (Path(uri) / "root.parquet").exists()


def test_the_history_records_a_failure_before_the_listing(uri: str) -> None:
    table = made(uri)
    table.checkpoint()
    (Path(uri) / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(deltic.DelticError):
        _deltic.vacuum_distributed(table._core, (0, True), True, False, True, None)
    assert ended(table)[0] == "FAILED"


def test_results_of_other_tasks_are_refused(uri: str) -> None:
    table = made(uri)
    for wrong in (lambda done: [], lambda done: [*done, done[0]], lambda done: done[:-1], lambda done: [b"{}"]):
        work = _deltic.vacuum_distributed(table._core, *FORCED)
        tasks = work.next_tasks(4)
        with pytest.raises(deltic.InvalidInputError, match="pass the results of the previous tasks first"):
            work.next_tasks(4)
        done = [_deltic.sweep_files(task, None) for task in tasks]
        with pytest.raises(deltic.InvalidInputError):
            work.take(wrong(done))
        with pytest.raises(deltic.InvalidInputError):
            work.take(done)
        with pytest.raises(deltic.InvalidInputError, match="failed before"):
            work.end()
        assert ended(table)[0] == "FAILED"
    other = _deltic.vacuum_distributed(table._core, *FORCED)
    other.next_tasks(4)
    with pytest.raises(deltic.InvalidInputError, match="not the results"):
        other.take(done)
    with pytest.raises(deltic.InvalidInputError):
        _deltic.sweep_files(b"{}", None)


Tasks = Iterator[pa.RecordBatch]


def failing(marker: Path, failures: int) -> Callable[[Any], Callable[[Tasks], Tasks]]:
    """Wrap the sweeper: it fails `failures` times, after its work."""
    plain = maintenance._sweeper

    def sweeper(storage_options: Any) -> Callable[[Tasks], Tasks]:
        sweep = plain(storage_options)

        def fails(tasks: Tasks) -> Tasks:
            done = list(sweep(tasks))
            for failure in range(failures):
                try:
                    (marker / f"failure {failure}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                raise OSError("a task that fails")
            yield from done

        return fails

    return sweeper


def test_a_task_that_fails_once_is_harmless(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri)
    monkeypatch.setattr(maintenance, "_sweeper", failing(tmp_path, 1))
    deltic.spark.vacuum(spark, uri, 0, force=True)
    assert (tmp_path / "failure 0").exists()
    assert ended(table)[0] == "COMPLETED"
    assert sorted(path for path in files_of(uri) if not path.startswith("p=")) == ["_hidden/a.parquet"]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 11]


def test_a_job_that_fails_can_be_repeated(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri)
    monkeypatch.setattr(maintenance, "_sweeper", failing(tmp_path, 1000))
    with pytest.raises((PySparkException, Py4JJavaError), match="a task that fails"):
        deltic.spark.vacuum(spark, uri, 0, force=True)
    assert ended(table)[0] == "FAILED"
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 11]
    monkeypatch.undo()
    deltic.spark.vacuum(spark, uri, 0, force=True)
    assert ended(table)[0] == "COMPLETED"
    assert table.vacuum(0, force=True).files_deleted == 0


def test_a_failing_store_is_reported(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    stuck = Path(uri) / "x" / "y"
    stuck.chmod(0o500)
    try:
        if os.access(stuck, os.W_OK):
            pytest.skip("nothing is forbidden to this user")
        with pytest.raises(deltic.StorageError, match="files that could not be deleted: 1;"):
            deltic.spark.vacuum(spark, uri, 0, force=True)
    finally:
        stuck.chmod(0o700)
    assert ended(table)[0] == "FAILED"
    assert deltic.spark.vacuum(spark, uri, 0, force=True).files_deleted == 1


def test_a_failing_listing_is_reported(uri: str) -> None:
    table = made(uri)
    work = _deltic.vacuum_distributed(table._core, *FORCED)
    # A folder with a name that is too long for the disk cannot be listed.
    long = b'"' + b"x" * 300 + b'"'
    while tasks := work.next_tasks(4):
        work.take([_deltic.sweep_files(task.replace(b'"x"', long), None) for task in tasks])
    with pytest.raises(deltic.StorageError, match="list"):
        work.end()
    assert ended(table)[0] == "FAILED"


def test_bad_arguments_are_refused_before_the_start(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    before, version = files_of(uri), table.snapshot().version
    for arguments in ({"retention": 0}, {"mode": "half"}, {"retention": -1, "force": True}):
        with pytest.raises(deltic.InvalidInputError):
            deltic.spark.vacuum(spark, uri, **arguments)  # type: ignore[arg-type]
    with pytest.raises(deltic.InvalidInputError, match="memory"):
        deltic.spark.vacuum(spark, "memory://table")
    with pytest.raises(deltic.InvalidInputError, match="SparkSession"):
        deltic.spark.vacuum(None, uri)  # type: ignore[arg-type]
    assert (files_of(uri), table.snapshot().version) == (before, version)


def test_the_method_of_delta_spark_uses_the_executors(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    shutil.copytree(uri, uri + "-local")
    assert DeltaTable.forPath(spark, uri).vacuum().count() == 0
    assert Table(uri + "-local").vacuum().files_deleted == 4
    assert ended(table) == ended(Table(uri + "-local"))
