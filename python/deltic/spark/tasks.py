"""Sends tasks to executors as bytes, and collects their results as bytes, in one job.

If there is a listener to progress, another thread waits for the job, and the thread that called deltic makes the
reports. A task with several attempts counts once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark import Accumulator, InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from deltic.monitoring.progress_bars import BETWEEN_REPORTS, Work

__all__ = ["Batches", "collect", "copied", "cores", "each", "ipc_bytes", "planned_in", "results", "run_tasks", "spread"]

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function that Spark calls in an executor with batches of tasks."""

_RESULTS = "result binary, done bigint"


def cores(spark: SparkSession) -> int:
    """How many tasks the cluster runs at a time; unknown in Spark Connect, where 32 is assumed."""
    if is_remote():
        return 32
    return int(spark.sparkContext.defaultParallelism)


def copied(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session with the settings, the functions and the views of another one, and with these settings."""
    copy = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    for name, value in settings.items():
        copy.conf.set(name, value)
    return copy


def planned_in(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The same rows, whose jobs have the settings of a session. The active session stays."""
    dataset: Any = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(session._jsparkSession, frame._jdf.logicalPlan()), session)


def ipc_bytes(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Rows in Arrow's IPC format, which Spark can broadcast with a function."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    sent: bytes = sink.getvalue().to_pybytes()
    return sent


def spread(spark: SparkSession, tasks: Sequence[bytes], partitions: int) -> DataFrame:
    """A DataFrame of one column, with a row for each task, in this many partitions."""
    rows = [(bytes(task),) for task in tasks]
    if is_remote():
        # A client cannot choose partitions: spread the rows, so that most partitions have one task.
        return spark.createDataFrame(rows, "task binary").repartition(partitions)
    divided = spark.sparkContext.parallelize(rows, partitions)
    return spark.createDataFrame(divided, "task binary", verifySchema=False)


def results(given: list[bytes], done: list[int]) -> pa.RecordBatch:
    """Results in the form in which an executor returns them, with how much of the work each of them is."""
    return pa.record_batch([pa.array(given, pa.binary()), pa.array(done, pa.int64())], names=["result", "done"])


def each(carry_out: Callable[[bytes, dict[str, str] | None], bytes], settings: dict[str, str] | None) -> Batches:
    """A function that carries out each task of batches of tasks."""

    def carry_out_all(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tasks:
            for task in batch.column(0):
                yield results([carry_out(task.as_py(), settings)], [1])

    return carry_out_all


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[bytes],
    carry_out: Batches,
    operation: str,
    max_tasks: int | None = None,
) -> list[bytes]:
    """Carry out tasks on the executors, one in each of at most `max_tasks` Spark tasks, and return the result of each.

    `operation`: its name in reports of progress.
    """
    partitions = min(len(tasks), max_tasks or len(tasks))
    return collect(spread(spark, tasks, partitions), carry_out, Work(operation, "tasks", len(tasks)))


def collect(rows: DataFrame, carry_out: Batches, work: Work) -> list[bytes]:
    """Carry out a job on the rows of a DataFrame, and return the results in the order of its partitions."""
    with work:
        if not work.is_watched:
            return _collected(rows.mapInArrow(carry_out, _RESULTS))
        job: _ClassicJob | _ConnectJob = _ConnectJob(rows, carry_out) if is_remote() else _ClassicJob(rows, carry_out)
        try:
            return _run_beside(rows.sparkSession, job, work)
        finally:
            work.done = job.done


def _collected(frame: DataFrame) -> list[bytes]:
    given: list[bytes] = frame.toArrow().column(0).to_pylist()
    return given


class _ClassicJob:
    """A job whose tasks add to an accumulator. Spark takes the value of the first attempt that ended successfully."""

    def __init__(self, rows: DataFrame, carry_out: Batches) -> None:
        context = rows.sparkSession.sparkContext
        self.tag: Callable[[str], object] = context.addJobTag
        self.cancel: Callable[[str], object] = context.cancelJobsWithTag
        self._done: Accumulator[int] = context.accumulator(0)
        self._frame = rows.mapInArrow(_counting(carry_out, self._done), _RESULTS)

    @property
    def done(self) -> int:
        return self._done.value

    def run(self) -> list[bytes]:
        return _collected(self._frame)


def _counting(carry_out: Batches, done: Accumulator[int]) -> Batches:
    def carry_out_all(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in carry_out(rows):
            done.add(sum(batch.column("done").to_pylist()))
            yield batch

    return carry_out_all


class _ConnectJob:
    """A job whose results are counted as they arrive, in the order of the partitions: Connect has no accumulators."""

    def __init__(self, rows: DataFrame, carry_out: Batches) -> None:
        self.tag: Callable[[str], object] = rows.sparkSession.addTag
        self.cancel: Callable[[str], object] = rows.sparkSession.interruptTag
        self.done = 0
        self._frame = rows.mapInArrow(carry_out, _RESULTS)

    def run(self) -> list[bytes]:
        given: list[bytes] = []
        # This is one job here. Classic Spark would begin a job for each partition.
        for result, done in self._frame.toLocalIterator():
            given.append(bytes(result))
            self.done += done
        return given


def _run_beside(spark: SparkSession, job: _ClassicJob | _ConnectJob, work: Work) -> list[bytes]:
    """Run a job in a thread, and report until it ends. An exception in a report cancels the job."""
    tag = f"deltic-{uuid.uuid4()}"
    outcome: Future[list[bytes]] = Future()

    def run() -> None:
        try:
            job.tag(tag)
            outcome.set_result(job.run())
        except BaseException as error:
            outcome.set_exception(error)

    thread = InheritableThread(run, session=spark, daemon=True)

    def is_over() -> bool:
        # Not `join`: before Python 3.13 a thread whose `join` was interrupted appears to have ended.
        wait([outcome], BETWEEN_REPORTS)
        return outcome.done() or not thread.is_alive()

    thread.start()
    try:
        while not is_over():
            work.done = job.done
            work.report()
    except BaseException:
        while not is_over():
            # Repeated, since the job may not have begun yet.
            job.cancel(tag)
        raise
    finally:
        thread.join()
    # A thread that ended without an outcome is an error, too.
    return outcome.result(timeout=0)
