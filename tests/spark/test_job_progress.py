"""Progress of Spark jobs: tasks and rows are counted once, and the calling thread makes the reports."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed_tasks import dying
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import deltic
import deltic.spark
from deltic import Progress, Table
from deltic.spark import maintenance, tasks
from deltic.spark.dml import rows

Tasks = Iterator[pa.RecordBatch]
CarriesOut = Callable[[Tasks], Tasks]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    threads = set(threading.enumerate())
    yield
    deltic.progress(False)
    left = {thread for thread in set(threading.enumerate()) - threads if "InheritableThread" in type(thread).__name__}
    assert left == set(), "no thread is left after a call"


def made(uri: str, files: int = 2, parts: int = 3) -> Table:
    for _ in range(files):
        columns = {"id": list(range(parts)), "part": list(range(parts))}
        deltic.write(uri, pa.table(columns), partition_by=["part"])
    return Table(uri)


def data_files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def reported(work: Callable[[], object]) -> list[Progress]:
    reports: list[Progress] = []
    with deltic.progress(reports.append):
        work()
    return reports


def ends(reports: list[Progress], operation: str) -> list[tuple[str, int, int | None]]:
    """Unit, count and total of the last report of each piece of work, whose counts must not decrease."""
    found: dict[int, list[Progress]] = {}
    for report in reports:
        if report.operation == operation:
            found.setdefault(report.id, []).append(report)
    for of_it in found.values():
        assert [report.done for report in of_it] == sorted(report.done for report in of_it)
        assert [report.ended for report in of_it] == [False] * (len(of_it) - 1) + [True]
    return [(of_it[-1].unit, of_it[-1].done, of_it[-1].total) for of_it in found.values()]


def slowed(plain: Callable[..., CarriesOut], seconds: float) -> Callable[..., CarriesOut]:
    """Delay the start of each task."""

    def changed(*arguments: Any) -> CarriesOut:
        carry_out = plain(*arguments)

        def slowly(tasks: Tasks) -> Tasks:
            time.sleep(seconds)
            yield from carry_out(tasks)

        return slowly

    return changed


@pytest.mark.parametrize("engine", ["arrow", "native"])
def test_a_write_counts_rows(spark: SparkSession, uri: str, engine: Any) -> None:
    frame = spark.range(100).repartition(4)
    reports = reported(lambda: deltic.spark.write(frame, uri, engine=engine, max_rows_per_file=10))
    assert ends(reports, "WRITE") == [("rows", 100, None)]
    assert Table(uri).scan().count() == 100
    assert ends(reported(lambda: deltic.spark.write(frame.where("id < 0"), uri, engine=engine)), "WRITE") == [
        ("rows", 0, None)
    ]


def test_maintenance_counts_tasks(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    made(uri)
    reports = reported(lambda: deltic.spark.optimize(spark, uri))
    assert ends(reports, "OPTIMIZE") == [("tasks", 3, 3)]
    reports = reported(lambda: deltic.spark.optimize(spark, uri, zorder_by="id", max_tasks=1))
    assert ends(reports, "OPTIMIZE") == [("tasks", 3, 3)], "one Spark task executes them all"
    assert reported(lambda: deltic.spark.optimize(spark, uri, zorder_by="id", dry_run=True)) == []
    (unit, done, total) = ends(reported(lambda: deltic.spark.vacuum(spark, uri, 0, force=True)), "VACUUM")[0]
    assert (unit, done) == ("tasks", total)
    folder = tmp_path / "parquet"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), folder / f"{number}.parquet")
    reports = reported(lambda: deltic.spark.convert(spark, folder, max_tasks=3))
    assert ends(reports, "CONVERT") == [("tasks", 3, 3)]


def test_changes_of_rows_count_tasks(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BYTES_PER_TASK", 1)
    made(uri, files=1)
    reports = reported(lambda: deltic.spark.update(spark, uri, {"id": "id + 10"}, "id >= 0"))
    assert ends(reports, "UPDATE") == [("tasks", 3, 3)]
    news = spark.createDataFrame([(10, 0), (11, 1), (20, 5), (21, 5)], "id long, part long")

    def merge() -> None:
        merge = deltic.spark.merge(spark, uri, news, "source.id = target.id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    of_source = ("rows", 4, None)
    assert ends(reported(merge), "MERGE") == [of_source, ("tasks", 2, 2), ("rows", 2, 2)], "the driver inserts rows"
    found = ends(reported(lambda: deltic.spark.delete(spark, uri, "id % 2 = 0 AND id < 20")), "DELETE")
    assert found == [("tasks", 3, 3)]
    monkeypatch.setattr(rows, "BYTES_PER_TASK", 1 << 30)
    found = ends(reported(lambda: deltic.spark.update(spark, uri, {"id": "0"}, "id > 0")), "UPDATE")
    assert [unit for unit, _, _ in found] == ["files", "rows"], "work of the driver is counted as without Spark"


def test_a_job_reports_while_it_runs(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(uri, parts=6)
    monkeypatch.setattr(maintenance, "_rewriter", slowed(maintenance._rewriter, 0.7))
    reports: list[tuple[Progress, float, threading.Thread]] = []
    with deltic.progress(lambda report: reports.append((report, time.monotonic(), threading.current_thread()))):
        deltic.spark.optimize(spark, table)
    reports = [each for each in reports if each[0].operation == "OPTIMIZE"]
    assert {thread for _, _, thread in reports} == {threading.current_thread()}
    counts = [report.done for report, _, _ in reports]
    assert ends([report for report, _, _ in reports], "OPTIMIZE") == [("tasks", 6, 6)]
    assert counts[0] == 0, "there is a report before the first task ends"
    assert set(counts) - {0, 6}, "there are reports between the tasks"
    times = [at for report, at, _ in reports if not report.ended]
    assert all(later - earlier > 0.09 for earlier, later in itertools.pairwise(times))


def test_a_failed_attempt_counts_nothing(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri)
    plain, marker = maintenance._rewriter, tmp_path / "failed once"

    def flaky(*arguments: Any) -> CarriesOut:
        carry_out = plain(*arguments)

        def fails(tasks: Tasks) -> Tasks:
            yield from carry_out(tasks)
            if not marker.exists():  # after its result
                marker.touch()
                raise RuntimeError("this attempt fails")

        return fails

    monkeypatch.setattr(maintenance, "_rewriter", flaky)
    assert ends(reported(lambda: deltic.spark.optimize(spark, table, max_tasks=1)), "OPTIMIZE") == [("tasks", 3, 3)]
    assert marker.exists()
    monkeypatch.setattr(maintenance, "_rewriter", dying(plain, tmp_path, 1))
    reports = reported(lambda: deltic.spark.optimize(spark, table, zorder_by="id"))
    assert (tmp_path / "death 0").exists()
    assert ends(reports, "OPTIMIZE") == [("tasks", 3, 3)]


def test_a_failed_job_ends_its_reports(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri)
    files = data_files(uri)
    monkeypatch.setattr(maintenance, "_rewriter", dying(maintenance._rewriter, tmp_path, 1000))
    reports: list[Progress] = []
    with (
        deltic.progress(reports.append),
        pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"),
    ):
        # One Spark task, since another could still write after the job has failed.
        deltic.spark.optimize(spark, table, max_tasks=1)
    assert ends(reports, "OPTIMIZE") == [("tasks", 0, 3)]
    assert (table.snapshot().version, data_files(uri)) == (1, files)


def test_a_function_that_raises_disturbs_nothing(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(uri)
    monkeypatch.setattr(maintenance, "_rewriter", slowed(maintenance._rewriter, 0.5))
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: raised.append((error.exc_type, str(error.exc_value))))

    def broken(report: Progress) -> None:
        raise ValueError(report.operation)

    with deltic.progress(broken):
        assert deltic.spark.optimize(spark, table).versions == [2]
    assert raised == [(ValueError, "OPTIMIZE")], "it is not called again"


@pytest.mark.parametrize("at", ["the beginning", "the end", "Ctrl-C"])
def test_a_function_stops_the_job_as_ctrl_c_does(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    table = made(uri)
    files, began = data_files(uri), time.monotonic()
    if at != "the end":
        monkeypatch.setattr(maintenance, "_rewriter", slowed(maintenance._rewriter, 60))

    def stop(report: Progress) -> None:
        if at != "Ctrl-C" and report.ended == (at == "the end"):
            raise KeyboardInterrupt

    if at == "Ctrl-C":
        threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with deltic.progress(stop), pytest.raises(KeyboardInterrupt):
        deltic.spark.optimize(spark, table)
    assert time.monotonic() - began < 50
    assert (table.snapshot().version, data_files(uri)) == (1, files)
    for _ in range(100):
        if not (active := spark.sparkContext.statusTracker().getActiveJobsIds()):
            break
        time.sleep(0.1)
    assert active == []


def test_a_listener_may_use_deltic(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    table = made(uri)
    log, operations = str(tmp_path / "log"), []

    def record(report: Progress) -> None:
        operations.append(report.operation)
        deltic.write(log, pa.table({"done": [report.done]}))
        deltic.spark.write(spark.range(1), log + "_of_spark")

    with deltic.progress(record):
        deltic.spark.optimize(spark, table)
    assert set(operations) == {"OPTIMIZE"}
    assert max(Table(log).scan().to_arrow()["done"].to_pylist()) == 3


def test_without_a_listener_there_is_no_thread(spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "InheritableThread", None)
    table = made(uri)
    with deltic.progress(False):
        assert deltic.spark.optimize(spark, table).versions == [2]


def test_tasks_see_the_local_properties_of_the_calling_thread(spark: SparkSession, uri: str) -> None:
    def seen(batches: Tasks) -> Tasks:
        context = TaskContext.get()
        for batch in batches:
            yield pa.record_batch([pa.array([context.getLocalProperty("ours")] * batch.num_rows)], names=["ours"])

    frame = spark.range(3).mapInArrow(seen, "ours string")
    spark.sparkContext.setLocalProperty("ours", "here")
    try:
        reported(lambda: deltic.spark.write(frame, uri))
    finally:
        spark.sparkContext.setLocalProperty("ours", None)
    assert set(Table(uri).scan().to_arrow()["ours"].to_pylist()) == {"here"}


CONNECT = """
import sys
import time
import pyarrow as pa
from pyspark.sql import SparkSession
import deltic, deltic.spark
from deltic.spark import maintenance

uri = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
reports = []
with deltic.progress(reports.append):
    deltic.spark.write(spark.range(100).repartition(4), uri, max_rows_per_file=10)
last = [report for report in reports if report.operation == "WRITE"][-1]
assert (last.unit, last.done, last.total, last.ended) == ("rows", 100, None, True), last
for part in range(4):
    deltic.write(uri + "_parts", pa.table({"id": [1], "part": [part]}), partition_by=["part"])
    deltic.write(uri + "_parts", pa.table({"id": [1], "part": [part]}))
plain = maintenance._rewriter


def slowed(*arguments):
    carry_out = plain(*arguments)

    def slowly(tasks):
        for batch in tasks:
            time.sleep(1)
            yield from carry_out(iter([batch]))

    return slowly


maintenance._rewriter = slowed
reports.clear()
with deltic.progress(reports.append):
    assert deltic.spark.optimize(spark, uri + "_parts").metrics["numAddedFiles"] == 4
counts = [report.done for report in reports if report.operation == "OPTIMIZE"]
assert counts == sorted(counts), counts
assert counts[0] == 0 and counts[-1] == 4, counts
deltic.write(uri + "_parts", pa.table({"id": [1], "part": [0]}))


def stop(report):
    raise KeyboardInterrupt


try:
    with deltic.progress(stop):
        deltic.spark.optimize(spark, uri + "_parts")
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("it goes on")
assert deltic.Table(uri + "_parts").snapshot().version == 9
spark.stop()
"""


def test_spark_connect(in_connect: Callable[[str, str], None], uri: str) -> None:
    in_connect(CONNECT, uri)
