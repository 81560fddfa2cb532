"""A driver of Spark that is killed while it writes and merges: each table has the old version or the whole commit.

One driver writes to several tables in threads of its own. Each stops at a moment that its folder names, and leaves
there the id of the process that stops; then all are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from changed_rows import files_of
from pyspark.sql import DataFrame, SparkSession

import deltic
import deltic.spark

OLD = 10
NEW = 4000
MOMENTS = ["task", "before commit", "after commit", "merge"]
DRIVER = """
import os, signal, sys, threading, traceback
from pathlib import Path
from pyspark.sql import SparkSession
import deltic.spark
from deltic.spark.data_source.source import DelticDataSource
from deltic.spark.dml import rows
import test_killed_driver as tests

root = Path(sys.argv[1])

def stop(moment):
    (root / moment / f"stopped {os.getpid()}").touch()
    signal.pause()

class Stopping(DelticDataSource):
    @classmethod
    def name(cls):
        return "stopping"

    def writer(self, schema, overwrite):
        made, moment = super().writer(schema, overwrite), Path(self.options["path"]).parent.name
        commit, write = made.commit, made.write

        def stopping_in_task(batches):
            def some():
                for batch in batches:
                    yield from (batch.slice(first, 500) for first in range(0, len(batch), 500))
                stop(moment)

            return write(some())

        def stopping(messages):
            if moment == "after commit":
                commit(messages)
            stop(moment)

        if moment == "task":
            made.write = stopping_in_task
        made.commit = stopping
        return made

def changer(*arguments):
    change = plain(*arguments)

    def stopping(tasks):
        done = list(change(tasks))
        if done:
            stop("merge")
        yield from done

    return stopping

plain, rows._changer = rows._changer, changer
# A task for each file.
rows.BYTES_PER_TASK = 1
builder = SparkSession.builder.master("local[8]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Stopping)
works = {
    **dict.fromkeys(tests.MOMENTS, lambda place: tests.write(tests.news(spark), place, "stopping")),
    "merge": lambda place: tests.merge(spark, place),
}

def run(moment):
    try:
        # Spark looks up a data source in the session of the thread.
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        works[moment](f"{root}/{moment}/table")
        print("not stopped:", moment, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    os._exit(1)

for moment in works:
    threading.Thread(target=run, args=(moment,)).start()
"""


def news(spark: SparkSession) -> DataFrame:
    return spark.range(OLD, NEW, 1, 1)


def write(frame: DataFrame, place: str, format: str = "deltic") -> None:
    options = {"max_rows_per_file": "500", "app_id": "nightly", "app_version": "1"}
    frame.write.format(format).mode("append").options(**options).save(place)


def merge(spark: SparkSession, place: str) -> None:
    builder = deltic.spark.merge(spark, place, news(spark), "source.id - 10 = target.id")
    builder.when_matched_update({"id": "target.id + 10000"}).when_not_matched_insert_all().execute()


def named_files(place: str) -> set[str]:
    return set(deltic.Table(place).plan().tasks["path"].to_pylist())


def ids(place: str) -> list[int]:
    return sorted(deltic.Table(place).scan().to_arrow()["id"].to_pylist())


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until(is_so: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "the driver does not come so far"
        time.sleep(0.05)
        if driver.poll() not in (None, -signal.SIGKILL):
            pytest.fail("the driver has ended")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables of a driver that was killed."""
    root = tmp_path_factory.mktemp("killed")
    for moment in MOMENTS:
        deltic.write(root / moment / "table", pa.table({"id": range(OLD)}), max_rows_per_file=5)
    command = [sys.executable, "-c", DRIVER, str(root)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    driver = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        wait_until(lambda: all(list((root / moment).glob("stopped *")) for moment in MOMENTS), driver)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    stopped = [int(path.name.split()[1]) for path in root.glob("*/stopped *")]
    # The processes of tasks are not in the group of the driver. They end when their parents are gone.
    wait_until(lambda: all(map(is_gone, stopped)), driver)
    return root


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_driver_leaves_the_old_version_or_the_whole_commit(
    spark: SparkSession, killed: Path, moment: str
) -> None:
    place = str(killed / moment / "table")
    is_committed = moment == "after commit"
    assert deltic.Table(place).check(files=True).ok
    assert deltic.Table(place).snapshot().version == int(is_committed)
    assert ids(place) == list(range(NEW if is_committed else OLD))
    orphans = files_of(place) - named_files(place)
    assert bool(orphans) == (not is_committed)
    if moment == "merge":
        merge(spark, place)
        assert ids(place) == [*range(2 * OLD, NEW), *range(10_000, 10_000 + OLD)]
    else:
        deltic.spark.register(spark)
        write(news(spark), place)
        assert ids(place) == list(range(NEW))
    assert deltic.Table(place).snapshot().version == 1
    assert orphans <= files_of(place), "a vacuum takes them"
    deltic.Table(place).vacuum(0, force=True)
    assert files_of(place) == named_files(place)
    assert deltic.Table(place).check(files=True).ok
