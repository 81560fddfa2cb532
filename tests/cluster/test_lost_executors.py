"""Executors of a cluster are killed: a statement succeeds on another one, or fails and leaves the table as it was."""

from __future__ import annotations

import random
import re
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from conftest import ALL_CASES, EXECUTOR_KILLS, LONGEST_DELAY, SUCCEEDING, report
from killed_tasks import dying, own_executor
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from standalone import kill_an_executor, wait_for_executors
from statements import (
    COLUMNS,
    FIRST,
    STATEMENTS,
    Rows,
    Through,
    changes_of,
    data_files,
    made,
    named_files,
    rows_of,
    same,
    upsert,
    upserted,
)

from deltic import Table
from deltic.spark import maintenance
from deltic.spark.dml import frame_source, rows
from deltic.spark.writing import write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="executors are found in /proc")

SOAK = pytest.mark.skipif(not ALL_CASES, reason="takes long: DELTIC_CASES=all")
SEED = 20261128
OF_SPARK = (PySparkException, Py4JJavaError)
JOBS = {
    "_changer": rows,
    "part_changer": frame_source,
    "inserter": frame_source,
    "_summarizer": frame_source,
    "_task_hasher": frame_source,
    "_source_hasher": frame_source,
    "_writer": write,
    "_rewriter": maintenance,
}
"""The modules of the functions that make the tasks of a job."""


def killing(monkeypatch: pytest.MonkeyPatch, job: str, marker: Path, deaths: int) -> Through:
    """Let tasks of a job kill their executors when their work is done; `source`: those that compute Spark's rows."""
    marker.mkdir()
    if job != "source":
        monkeypatch.setattr(JOBS[job], job, dying(getattr(JOBS[job], job), marker, deaths, own_executor))
        return same
    passed = dying(lambda: iter, marker, deaths, own_executor)()
    return lambda frame: frame.mapInArrow(passed, COLUMNS)


def killed(marker: Path) -> int:
    return len(list(marker.iterdir()))


def check_rows(table: Table, expected: Rows) -> None:
    assert rows_of(table) == sorted(expected)
    assert table.check(files=True).ok


def run_again(spark: SparkSession, table: Table, name: str, before: Rows) -> None:
    """The statement succeeds, and names no file that was there without being named."""
    left = data_files(table.uri) - named_files(table.uri)
    wait_for_executors(spark)
    STATEMENTS[name].run(spark, table.uri, same)
    check_rows(table, STATEMENTS[name].model(before))
    assert not left & named_files(table.uri)


@pytest.mark.parametrize(("name", "job"), SUCCEEDING)
def test_another_executor_does_the_work(
    spark: SparkSession,
    uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    locally: dict[str, tuple[Rows, list[str]]],
    name: str,
    job: str,
) -> None:
    table, statement = made(uri), STATEMENTS[name]
    with monkeypatch.context() as patched:
        through = killing(patched, job, tmp_path / "deaths", 1)
        statement.run(spark, uri, through)
    assert killed(tmp_path / "deaths") == 1
    assert table.snapshot().version == 3, "one commit"
    after = statement.model(FIRST)
    check_rows(table, after)
    assert (rows_of(table), changes_of(table)) == locally[name]
    run_again(spark, table, name, after)


STORED_ROWS_ARE_READ = ["part_changer"]
if ALL_CASES:
    STORED_ROWS_ARE_READ += ["inserter", "_summarizer", "_task_hasher", "_source_hasher"]


@pytest.mark.parametrize("job", STORED_ROWS_ARE_READ)
def test_a_merge_fails_if_rows_of_its_source_are_lost(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    table = made(uri)
    with monkeypatch.context() as patched:
        killing(patched, job, tmp_path / "deaths", 1)
        try:
            STATEMENTS["divided merge"].run(spark, uri, same)
        except OF_SPARK as lost:
            if not re.search("Checkpoint block .* not found", str(lost)):
                raise
            version, rows = 2, FIRST
        else:
            assert job != "part_changer"
            # No task that ran later needed the lost rows.
            version, rows = 3, STATEMENTS["divided merge"].model(FIRST)
    assert table.snapshot().version == version
    check_rows(table, rows)
    run_again(spark, table, "divided merge", rows)


@SOAK
def test_a_merge_is_executed_again_after_the_loss_of_its_source(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    merge = upsert(spark, uri, same)
    assert merge.preview().rows > 0
    kill_an_executor(spark, random.Random(SEED))
    wait_for_executors(spark)
    with pytest.raises(OF_SPARK, match=r"Checkpoint block .* not found"):
        merge.execute()
    check_rows(table, FIRST)
    merge.execute()
    assert table.snapshot().version == 3
    check_rows(table, upserted(FIRST))


@SOAK
@pytest.mark.parametrize(("name", "job"), SUCCEEDING)
def test_a_job_fails_if_each_executor_is_lost(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, job: str
) -> None:
    table = made(uri)
    with monkeypatch.context() as patched:
        through = killing(patched, job, tmp_path / "deaths", 1000)
        with pytest.raises(OF_SPARK, match="ExecutorLostFailure"):
            STATEMENTS[name].run(spark, uri, through)
    assert killed(tmp_path / "deaths") >= 2
    assert table.snapshot().version == 2
    check_rows(table, FIRST)
    run_again(spark, table, name, FIRST)


@pytest.mark.skipif(EXECUTOR_KILLS == 0, reason="DELTIC_EXECUTOR_KILLS is 0")
def test_executors_are_killed_at_random_moments(spark: SparkSession, tmp_path: Path) -> None:
    chosen, ended = random.Random(SEED), Counter[str]()
    for number in range(EXECUTOR_KILLS):
        table, name = made(str(tmp_path / f"table {number}")), chosen.choice(sorted(STATEMENTS))
        wait_for_executors(spark)
        killer = threading.Timer(chosen.uniform(0, LONGEST_DELAY), kill_an_executor, (spark, chosen))
        killer.start()
        try:
            STATEMENTS[name].run(spark, table.uri, same)
            after, version = STATEMENTS[name].model(FIRST), 3
        except OF_SPARK:
            after, version = FIRST, 2
        killer.join()
        assert table.snapshot().version == version, name
        check_rows(table, after)
        run_again(spark, table, name, after)
        ended["succeeded" if version == 3 else "failed"] += 1
    report(f"{EXECUTOR_KILLS} executors killed during statements, of which {dict(ended)}")
