"""`deltic.spark.optimize`, `convert` and `vacuum`: tasks, the commits of the driver, and failures."""

from __future__ import annotations

from collections.abc import Callable
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
from sample import adds, log_actions

import deltic
import deltic.spark
from deltic import Table, _deltic
from deltic.spark import DeltaTable, maintenance


def data_files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def made(uri: str, **options: Any) -> Table:
    """Three files, in each of two partitions if the table is partitioned."""
    for file in range(3):
        rows = pa.table({"id": range(20 * file, 20 * file + 20), "part": ["a", "b"] * 10})
        deltic.write(uri, rows, **(options if file == 0 else {}))
    return Table(uri)


def tracked(table: Table) -> list[tuple[Any, ...]]:
    columns = ["id", "part"]
    if table.snapshot().properties.get("delta.enableRowTracking") == "true":
        columns += ["_metadata.row_id", "_metadata.row_commit_version"]
    return sorted(tuple(row.values()) for row in table.scan(columns=columns).to_arrow().to_pylist())


@pytest.mark.parametrize("zorder_by", [None, "id"])
@pytest.mark.parametrize("properties", [{}, IDS | VECTORS, MAPPED | IDS | VECTORS], ids=str)
def test_rows_and_ids_stay(spark: SparkSession, uri: str, properties: dict[str, str], zorder_by: str | None) -> None:
    table = made(uri, properties=properties, partition_by=["part"])
    if properties:  # deletion vectors, so that six files remain
        table.delete("id % 7 = 3")
    before, version = tracked(table), table.snapshot().version
    result = deltic.spark.optimize(spark, uri, zorder_by=zorder_by)
    assert (result.versions, result.layout) == ([version + 1], "zorder" if zorder_by else "compact")
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (6, 2)
    assert (result.metrics["numDeletionVectorsRemoved"] > 0) == bool(properties)
    assert tracked(table) == before
    assert not any(add["dataChange"] or "deletionVector" in add for add in adds(uri, version + 1))
    assert table.check(files=True).ok
    (info,) = [action["commitInfo"] for action in log_actions(uri, version + 1) if "commitInfo" in action]
    assert (info["operation"], info["isolationLevel"]) == ("OPTIMIZE", "SnapshotIsolation")


def test_it_has_the_same_result_as_the_table_method(spark: SparkSession, tmp_path: Path) -> None:
    results = []
    for name in ("here", "there"):
        table = made(str(tmp_path / name), partition_by=["part"])
        where = "part = 'a'"
        optimize: Callable[..., deltic.OptimizeResult] = table.optimize
        if name == "there":
            optimize = lambda where, table=table, **o: deltic.spark.optimize(spark, table, where, **o)  # noqa: E731
        planned, done = optimize(where, dry_run=True), optimize(where, max_tasks=1)
        assert planned.versions == []
        results.append([{k: v for k, v in result.to_dict().items() if "bytes" not in k} for result in (planned, done)])
        assert optimize(where).versions == [], "nothing is left to optimize"
    for result in [*results[0], *results[1]]:
        result["metrics"] = {name: result["metrics"].get(name) for name in ("numRemovedFiles", "numAddedFiles")}
        result["partitions"] = [{k: v for k, v in each.items() if k != "bytes"} for each in result["partitions"]]
    assert results[0] == results[1]


def test_a_clustered_table_is_clustered(spark: SparkSession, uri: str) -> None:
    deltic.create(uri, pa.schema([("id", pa.int64()), ("part", pa.string())]), cluster_by=["id"])
    table = made(uri)
    result = deltic.spark.optimize(spark, uri)
    assert (result.layout, result.columns, result.metrics["numAddedFiles"]) == ("hilbert", ["id"], 1)
    (add,) = adds(uri, result.versions[0])
    assert (add["clusteringProvider"], "ZCUBE_ID" in add["tags"]) == ("liquid", True)
    assert [row[0] for row in tracked(table)] == list(range(60))
    assert deltic.spark.optimize(spark, uri).versions == [], "no rows were added"
    assert len(deltic.spark.optimize(spark, uri, full=True).versions) == 1


def test_bad_arguments_are_refused_before_any_task_runs(spark: SparkSession, uri: str) -> None:
    made(uri, partition_by=["part"])
    before = data_files(uri)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"where": "id = 1"}, "`id` is not one"),
        ({"zorder_by": []}, "names no column"),
        ({"zorder_by": "nothing"}, "no column `nothing`"),
        ({"full": True}, "no clustering columns"),
        ({"max_tasks": 0}, "max_tasks"),
        ({"target_file_size": 0}, "target_file_size"),
    ]
    for arguments, message in bad:
        with pytest.raises(deltic.InvalidInputError, match=message):
            deltic.spark.optimize(spark, uri, **arguments)
    with pytest.raises(deltic.InvalidInputError, match="SparkSession"):
        deltic.spark.optimize(None, uri)  # type: ignore[arg-type]
    with pytest.raises(deltic.InvalidInputError, match="memory"):
        deltic.spark.optimize(spark, "memory://table")
    with pytest.raises(deltic.TableNotFoundError):
        deltic.spark.optimize(spark, uri + "_missing")
    assert (data_files(uri), Table(uri).snapshot().version) == (before, 2)


def test_a_killed_task_is_repeated(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri, partition_by=["part"], properties=IDS)
    before, files = tracked(table), data_files(uri)
    monkeypatch.setattr(maintenance, "_rewriter", dying(maintenance._rewriter, tmp_path, 1))
    result = deltic.spark.optimize(spark, uri)
    assert (tmp_path / "death 0").exists()
    assert (result.versions, result.metrics["numAddedFiles"]) == ([3], 2)
    assert tracked(table) == before
    named = {Path(uri) / add["path"] for add in adds(uri, 3)}
    assert named < data_files(uri) - files, "no commit names the files of the killed task"


def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri, properties=IDS)
    before, files = tracked(table), data_files(uri)
    monkeypatch.setattr(maintenance, "_rewriter", dying(maintenance._rewriter, tmp_path, 1000))
    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        deltic.spark.optimize(spark, uri)
    assert (table.snapshot().version, data_files(uri), tracked(table)) == (2, files, before)


def test_a_task_reports_a_missing_file(spark: SparkSession, uri: str) -> None:
    made(uri)
    min(data_files(uri)).unlink()
    files = data_files(uri)
    with pytest.raises(PySparkException, match=r"deltic\.errors"):
        deltic.spark.optimize(spark, uri)
    assert (Table(uri).snapshot().version, data_files(uri)) == (2, files)


def test_groups_changed_by_other_writers_are_left_out(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri, partition_by=["part"])
    plain = maintenance.run_tasks

    def overtaken(*arguments: Any) -> list[bytes]:
        written = plain(*arguments)
        table.delete("part = 'a' AND id = 4")
        deltic.write(uri, pa.table({"id": [1000], "part": ["b"]}))
        return written

    monkeypatch.setattr(maintenance, "run_tasks", overtaken)
    result = deltic.spark.optimize(spark, uri)
    assert (result.files_lost, result.metrics["numRemovedFiles"]) == (3, 3)
    assert [row[0] for row in tracked(table)] == [id for id in range(60) if id != 4] + [1000]
    assert table.check(files=True).ok


def test_the_builder_of_delta_spark_uses_the_executors(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(uri, partition_by=["part"])
    ran: list[int] = []
    plain = maintenance.run_tasks

    def counted(*arguments: Any) -> list[bytes]:
        ran.append(len(arguments[1]))
        return plain(*arguments)

    monkeypatch.setattr(maintenance, "run_tasks", counted)
    table = DeltaTable.forPath(spark, uri)
    row = table.optimize().where("part = 'a'").executeCompaction().first()
    assert row is not None
    assert (row["numRemovedFiles"], row["numAddedFiles"]) == (3, 1)
    table.optimize().executeZOrderBy("id")
    assert ran == [1, 2]


def folder(place: Path, files: int) -> str:
    for number in range(files):
        (place / f"p={number % 2}").mkdir(parents=True, exist_ok=True)
        columns: dict[str, Any] = {"id": [number, number + 100], "s": [{"x": number}, None]}
        if number == files - 1:
            columns["more"] = ["a", None]
        pq.write_table(pa.table(columns), place / f"p={number % 2}" / f"{number:03}.parquet")
    return str(place)


def test_a_conversion_equals_that_of_one_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "FILES_PER_TASK", 3)
    ran: list[int] = []
    plain = maintenance.run_tasks

    def counted(*arguments: Any) -> list[bytes]:
        ran.append(len(arguments[1]))
        return plain(*arguments)

    monkeypatch.setattr(maintenance, "run_tasks", counted)
    here, there = folder(tmp_path / "here", 7), folder(tmp_path / "there", 7)
    options: dict[str, Any] = {"partition_schema": {"p": "integer"}, "name": "converted"}
    planned = deltic.convert(here, **options)
    assert deltic.spark.convert(spark, there, dry_run=True, **options).version is None
    assert not Path(there, "_delta_log").exists()
    assert ran == [7], "the maximum number of tasks"
    done = deltic.spark.convert(spark, there, max_tasks=2, **options)
    assert ran == [7, 2, 1]
    assert (done, done.num_files, done.num_rows) == (planned, 7, 14)
    for kind in ("add", "metaData", "protocol", "commitInfo"):
        varying = {"modificationTime", "id", "createdTime", "txnId", "timestamp"}
        one, other = (
            [
                {k: v for k, v in action[kind].items() if k not in varying}
                for action in log_actions(uri, 0)
                if kind in action
            ]
            for uri in (here, there)
        )
        assert sorted(map(repr, one)) == sorted(map(repr, other))
    assert deltic.spark.read(spark, there).count() == 14
    with pytest.raises(deltic.TableExistsError):
        deltic.spark.convert(spark, there)


def test_bad_files_and_arguments_convert_nothing(spark: SparkSession, tmp_path: Path) -> None:
    uri = folder(tmp_path / "folder", 2)
    with pytest.raises(deltic.InvalidInputError, match="no partition columns"):
        deltic.spark.convert(spark, uri)
    with pytest.raises(deltic.TableNotFoundError):
        deltic.spark.convert(spark, tmp_path / "nothing")
    with pytest.raises(deltic.InvalidInputError, match="SparkSession"):
        deltic.spark.convert("spark", uri)  # type: ignore[arg-type]
    (tmp_path / "folder" / "p=0" / "bad.parquet").write_text("no Parquet")
    with pytest.raises(PySparkException, match=r"InvalidInputError.*cannot be read as Parquet[\s\S]*bad\.parquet"):
        deltic.spark.convert(spark, uri, partition_schema={"p": "integer"})
    (tmp_path / "folder" / "p=0" / "bad.parquet").unlink()
    pq.write_table(pa.table({"id": ["text"]}), tmp_path / "folder" / "p=0" / "other.parquet")
    with pytest.raises(deltic.InvalidInputError, match=r"`id` has the type"):
        deltic.spark.convert(spark, uri, partition_schema={"p": "integer"})
    assert not Path(uri, "_delta_log").exists()


def test_results_of_other_tasks_are_refused(tmp_path: Path) -> None:
    uri = folder(tmp_path / "folder", 2)
    schema = pa.schema([("p", pa.int32())])
    work = _deltic.convert_distributed(Table(uri)._core, schema, "{}", False)
    first, second = work.next_tasks(2, 1)
    read = _deltic.read_footers(first, None)
    for wrong in ([read], [read, read], [first, second]):
        again = _deltic.convert_distributed(Table(uri)._core, schema, "{}", False)
        again.next_tasks(2, 1)
        with pytest.raises(deltic.InvalidInputError):
            again.take(wrong)
    work.take([_deltic.read_footers(second, None), read])
    assert work.next_tasks(2, 1) == []
    work.commit()
    with pytest.raises(deltic.InvalidInputError, match="has ended"):
        work.commit()
    assert Table(uri).scan().to_arrow().num_rows == 4


def test_steps_in_the_wrong_order_convert_nothing(tmp_path: Path) -> None:
    uri = folder(tmp_path / "folder", 3)
    core, schema = Table(uri)._core, pa.schema([("p", pa.int32())])
    work = _deltic.convert_distributed(core, schema, "{}", False)
    with pytest.raises(deltic.InvalidInputError, match="no tasks are under way"):
        work.take([])
    tasks = work.next_tasks(2, 1)
    with pytest.raises(deltic.InvalidInputError, match="pass the results of the previous tasks"):
        work.next_tasks(2, 1)
    for _ in range(2):
        with pytest.raises(deltic.InvalidInputError, match="there may be more files"):
            work.commit()
        if tasks:
            work.take([_deltic.read_footers(task, None) for task in tasks])
            tasks = []
    work.take([_deltic.read_footers(task, None) for task in work.next_tasks(0, 0)])
    assert work.next_tasks(2, 1) == []
    work.commit()
    assert Table(uri).scan().to_arrow().num_rows == 6
    again = _deltic.convert_distributed(Table(folder(tmp_path / "again", 2))._core, schema, "{}", False)
    before = [_deltic.read_footers(task, None) for task in again.next_tasks(1, 1)]
    again.take(before)
    again.next_tasks(1, 1)
    with pytest.raises(deltic.InvalidInputError, match="not the results of the tasks"):
        again.take(before)
    failed = _deltic.convert_distributed(Table(folder(tmp_path / "other", 2))._core, schema, "{}", False)
    failed.next_tasks(1, 1)
    for step in (lambda: failed.take([]), lambda: failed.next_tasks(1, 1), failed.commit):
        with pytest.raises(deltic.InvalidInputError):
            step()
    assert not (tmp_path / "other" / "_delta_log").exists()


def test_an_iceberg_table_is_converted(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("tests", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("n")
    iceberg = catalog.create_table("n.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for number in range(3):
        iceberg.append(pa.table({"id": [number], "v": ["x"]}))
    with iceberg.update_schema() as update:
        update.rename_column("v", "value")
    place = iceberg.location().removeprefix("file://")
    with pytest.raises(deltic.InvalidInputError, match="is no Iceberg table"):
        DeltaTable.convertToDelta(spark, f"iceberg.`{place}/data`")
    table = DeltaTable.convertToDelta(spark, f"iceberg.`{iceberg.metadata_location}`")
    assert table.detail().first()["location"].rstrip("/").endswith(place)  # type: ignore[index]
    assert sorted(tuple(row) for row in table.toDF().select("id", "value").collect()) == [(n, "x") for n in range(3)]


def test_vacuum(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    deltic.spark.optimize(spark, table)
    with pytest.raises(deltic.InvalidInputError, match="force=True"):
        deltic.spark.vacuum(spark, uri, 0)
    assert deltic.spark.vacuum(spark, uri, 0, force=True, dry_run=True).files_deleted == 3
    files = [(str(path), path.stat().st_size, False, 0) for path in data_files(uri)]
    inventory = spark.createDataFrame(files, "path string, length long, isDir boolean, modificationTime long")
    assert deltic.spark.vacuum(spark, uri, 0, force=True, inventory=inventory).files_deleted == 3
    assert deltic.spark.vacuum(spark, uri, 0, force=True).files_deleted == 0
    assert deltic.spark.read(spark, uri).count() == 60
