"""The source of a merge in Spark: small ones are collected, the rows of large ones go to the tasks that need them.

Spark computes the source once and stores it (`localCheckpoint`), with a number for each row: a source that gives other
rows the next time would be merged in part. A task needs the rows whose keys are those of some row in its files. The
core computes hashes of the keys of both sides, and Spark joins them. When all tasks are done it is known which rows
match, and a second job writes those that are inserted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, VariantType
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.dml.merge_source import DeferredSource, source_rows
from deltic.errors import DelticError, InvalidInputError, UnsupportedFeatureError
from deltic.monitoring.progress_bars import Work
from deltic.reading.scan import batches
from deltic.spark.tasks import Batches, collect, cores, ipc_bytes, results, spread
from deltic.spark.types.column_types import CHAR_VARCHAR, has_char, has_type, to_arrow, with_binaries
from deltic.spark.types.schema import as_binaries, fit, nullable
from deltic.spark.writing.write import discard, write_batches
from deltic.writing.data import refuse_names

JOB_COLUMNS = ["part", "task", "failure", "number"]
"""The columns before those of the source in the rows of a job: the index of the task; its description, in its first
row; its result, in its second row, if its keys could not be read; the number of the source's row."""

PLACED_COLUMNS = [*JOB_COLUMNS, "file", "position"]
"""The same columns of rows that are each for one row of the table: the index of its file in the task, and its position
there."""

__all__ = [
    "JOB_COLUMNS",
    "PLACED_COLUMNS",
    "FrameSource",
    "StoredSource",
    "carry_out",
    "inserted_rows",
    "inserter",
    "part_changer",
    "placed_reader",
    "task_changer",
]

KEPT_BYTES = 16 * 1024
"""The most bytes of rows of a partition that are collected with its summary: there may be thousands of partitions."""

BYTES_PER_PART = 64 * 1024 * 1024
"""Bytes of rows of a large source for each task, about."""


def _read(sent: bytes) -> pa.Table:
    return pa.ipc.open_stream(sent).read_all()


class FrameSource(DeferredSource):
    """A DataFrame as the source of a merge."""

    def __init__(self, frame: DataFrame) -> None:
        """Check the columns.

        Raises the errors of `write` for columns of types that deltic does not write, and `UnsupportedFeatureError` for
        those of type CHAR, which Spark pads with blanks when it reads them: no string of the table would be equal to
        them.
        """
        if not hasattr(frame, "toArrow"):
            raise InvalidInputError(f"source must be a Spark DataFrame, not {type(frame).__name__}")
        self.schema: pa.Schema = to_arrow(nullable(frame.schema), voids=True, binaries=True)
        if not self.schema.names:
            raise InvalidInputError("the source has no columns: select those that the merge needs")
        refuse_names(self.schema)
        for column in self.schema:
            declared = (column.metadata or {}).get(CHAR_VARCHAR.encode(), b"").decode()
            if has_char(declared):
                message = (
                    f"the source's column `{column.name}` is of type {declared}, whose values Spark pads with blanks"
                )
                hint = f"take them away, as by source.withColumn({column.name!r}, F.rtrim({column.name!r}))"
                raise UnsupportedFeatureError(f"{message}, and deltic compares and stores strings as they are: {hint}")
        self._frame = frame
        self._numbered: DataFrame | None = None

    @property
    def columns(self) -> StructType:
        """Its columns in Spark, all nullable."""
        return nullable(self._frame.schema)

    @property
    def numbered(self) -> DataFrame:
        """The rows with a number each, as Spark stores them: computed by the first use, until `release`."""
        if self._numbered is None:
            self._numbered = self._computed()
        return self._numbered

    def release(self) -> None:
        """Forget the stored rows, and free their memory."""
        numbered, self._numbered = self._numbered, None
        if numbered is not None and not is_remote():
            # With Connect, Spark frees them when this object is gone; here, when its garbage collector runs.
            with suppress(Exception):
                numbered._jdf.queryExecution().analyzed().rdd().unpersist(False)

    def _computed(self) -> DataFrame:
        frame = self._frame
        if has_type(frame.schema, VariantType):
            # As plain structs, since `toArrow` fails if a variant is null.
            frame = frame.mapInArrow(_binaries, with_binaries(frame.schema))  # type: ignore[arg-type]
        # Spark looks up columns by name, and takes a dot in a name for a path into a struct.
        named = frame.toDF(*(f"c{at}" for at in range(len(self.schema))))
        # At once: until a checkpoint is complete, a retried task could compute other rows, or number them otherwise.
        return named.withColumn("number", F.monotonically_increasing_id()).localCheckpoint(eager=True)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use the stored rows. After an error of Spark, which may have lost them, the next use computes them again."""
        try:
            yield
        except DelticError:
            raise
        except BaseException:
            self.release()
            raise

    def read(self) -> pa.Table:
        """All rows."""
        with self.used():
            return StoredSource(self, None).collected()


def _binaries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch(list(map(as_binaries, batch.columns, batch.schema)), names=batch.schema.names)


class _Rows:
    """Takes the rows of a source out of Spark's batches, whose first columns are those of the source."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._conformer = _deltic.SourceConformer(schema, None)
        self.conformed_schema = pa.schema(self._conformer.schema)

    def table(self, batch: pa.RecordBatch, first: int = 0) -> pa.Table:
        """The rows in the types of the source; its columns begin with the one at `first`."""
        columns = batch.columns[first : first + len(self._schema)]
        return pa.Table.from_arrays(columns, names=self._schema.names).cast(self._schema)

    def conformed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in the types of a table."""
        for piece in self.table(batch).to_batches():
            yield from map(pa.record_batch, self._conformer.conform(piece))


class StoredSource:
    """The rows of a source as Spark stores them, each with a number."""

    def __init__(self, source: FrameSource, keys: bytes | None) -> None:
        """Look at all rows. `keys`: see `_deltic.merge_keys`; None if no equality joins the sides."""
        self.schema = source.schema
        self._keys = keys
        self._memory_limit = source.memory_limit
        # Before Spark computes anything.
        _deltic.SourceConformer(self.schema, self._memory_limit)
        self.frame = source.numbered
        self._columns = self.frame.columns[:-1]
        # Each partition gives its summary and, if they are few, its rows.
        seen = collect(self.frame, _summarizer(self.schema, keys), Work("MERGE", "rows"))
        summaries, self._kept = seen[::2], seen[1::2]
        for summary, message in zip(summaries, self._kept, strict=True):
            if not summary:
                raise InvalidInputError(message.decode())
        empty_summary = pa.record_batch(_deltic.SourceSummary(keys).to_batch())
        self.summaries: pa.Table = pa.concat_tables([pa.Table.from_batches([empty_summary]), *map(_read, summaries)])
        self.num_bytes = int(pc.sum(self.summaries.column("bytes")).as_py())

    def collected(self) -> pa.Table:
        """All rows."""
        if all(self._kept):
            kept = pa.concat_tables([_Rows(self.schema).conformed_schema.empty_table(), *map(_read, self._kept)])
            return source_rows(kept.to_reader(), self._memory_limit)
        rows: pa.Table = self.frame.select(*self._columns).toArrow()
        return source_rows(rows.rename_columns(self.schema.names).cast(self.schema).to_reader(), self._memory_limit)

    def change(
        self, tasks: Sequence[bytes], settings: dict[str, str] | None, merge: tuple[str, pa.Table]
    ) -> list[bytes]:
        """Carry out the tasks of a merge, each with the rows that can match in its files, and return their results.

        `merge`: the request, and the values that columns are set to.
        """
        assert self._keys is not None
        if not tasks:
            return []
        spark = self.frame.sparkSession
        hasher = _task_hasher(settings, self._keys)
        hashes = spread(spark, tasks, len(tasks)).mapInArrow(hasher, "part int, hash long, failure binary").distinct()
        hashed_schema = StructType([*nullable(self.frame.schema).fields, StructField("hash", LongType())])
        hashed = self.frame.mapInArrow(_source_hasher(self.schema, self._keys), hashed_schema)
        # A row that joins with the failures of tasks.
        failure_rows = spark.createDataFrame([(_deltic.FAILED_HASH,)], "hash long")
        rows = hashed.where("hash IS NOT NULL").unionByName(failure_rows, allowMissingColumns=True)
        needed = rows.join(hashes, "hash").withColumn("task", F.lit(None).cast("binary"))
        # A task without rows of the source may change rows that none matches. Each begins with its description.
        described = spark.createDataFrame(list(enumerate(map(bytes, tasks))), "part int, task binary")
        parts = described.unionByName(needed.drop("hash"), allowMissingColumns=True)
        # Before Spark 4.1 some partitions have several tasks, and others none.
        divide = getattr(parts, "repartitionById", parts.repartition)
        ordered = (
            divide(len(tasks), F.col("part"))
            .select(*JOB_COLUMNS, *self._columns)
            .sortWithinPartitions("part", F.col("task").isNull(), F.col("failure").isNull())
        )
        changer = part_changer(self.schema, settings, merge, self._memory_limit, JOB_COLUMNS)
        return collect(ordered, changer, Work("MERGE", "tasks", len(tasks)))

    def insert(
        self, plan: bytes, settings: dict[str, str] | None, merge: tuple[str, pa.Table], inserts: tuple[bytes, int]
    ) -> list[bytes]:
        """Write the inserted rows of a schema, and return the files.

        `inserts`: what `_deltic.MergeInserter` needs, and which schema.
        """
        # Few new rows should not be in as many files as the source has partitions.
        writers = max(cores(self.frame.sparkSession), self.num_bytes // BYTES_PER_PART)
        insert = inserter(self.schema, plan, settings, merge, inserts)
        return collect(self.frame.coalesce(writers), insert, Work("MERGE", "rows"))


def carry_out(
    core: _deltic.Transaction,
    planned: _deltic.DistributedRowChange,
    change: Callable[[Sequence[bytes]], list[bytes]],
    insert: Callable[[bytes, tuple[bytes, int]], list[bytes]] | None,
    settings: dict[str, str] | None,
) -> dict[str, Any]:
    """Carry out a planned row change: `change` runs tasks, and `insert` writes the inserted rows. Return the counts.

    `insert` gets the plan by which it writes them, and what `_deltic.MergeInserter` needs. It is None if the core
    writes them, or there are none. After an error all files of the tasks are deleted.
    """
    inserted: list[bytes] = []
    plan = None
    try:
        results = change(planned.tasks())
        inserts = None if insert is None else planned.inserts(core, results)
        if insert is not None and inserts is not None:
            for schema in range(planned.num_insert_schemas()):
                plan = planned.plan_inserts(core, schema, inserted)
                inserted += insert(plan, (inserts, schema))
    except BaseException:
        with suppress(DelticError):
            planned.discard(core)
        _discard(plan, settings)
        raise
    try:
        done: dict[str, Any] = json.loads(planned.apply(core, results, inserted))
    except BaseException:
        _discard(plan, settings)
        raise
    return done


def _discard(plan: bytes | None, settings: dict[str, str] | None) -> None:
    """Delete the files with inserted rows; in all plans of a transaction their names begin in the same way."""
    if plan is not None:
        discard(plan, settings)


def _summarizer(schema: pa.Schema, keys: bytes | None) -> Batches:
    """A function that summarises the rows of a partition, and returns them with the summary if they are few.

    For rows that cannot be merged it returns an empty summary and the reason.
    """

    def summarize(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        summary, rows, count, size = _deltic.SourceSummary(keys), _Rows(schema), 0, 0
        kept: list[pa.RecordBatch] = []
        try:
            for batch in batches:
                for conformed in rows.conformed(batch):
                    summary.add(conformed)
                    count += conformed.num_rows
                    size += conformed.nbytes
                    kept = [*kept, conformed] if size <= KEPT_BYTES else []
        except InvalidInputError as error:
            message = f"the source, in one of its partitions: {str(error).removeprefix('the source: ')}"
            yield results([b"", message.encode()], [0, 0])
            return
        few = pa.Table.from_batches(kept, rows.conformed_schema) if size <= KEPT_BYTES else None
        few_bytes = b"" if few is None else ipc_bytes(few)
        yield results([ipc_bytes(pa.record_batch(summary.to_batch())), few_bytes], [count, 0])

    return summarize


def _task_hasher(settings: dict[str, str] | None, keys: bytes) -> Batches:
    """A function that returns the hashes of the keys in the files of tasks, or the result of a task that fails."""

    def hash_tasks(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in chain.from_iterable(batch.column(0) for batch in tasks):
            part, hashes = _deltic.key_hashes(task.as_py(), settings, keys)
            while (batch := hashes.read_next()) is not None:
                of_part = pa.record_batch(batch)
                parts = pa.repeat(pa.scalar(part, pa.int32()), len(of_part))
                yield pa.record_batch([parts, *of_part.columns], ["part", *of_part.schema.names])

    return hash_tasks


def _source_hasher(schema: pa.Schema, keys: bytes) -> Batches:
    """A function that adds the hashes of their keys to rows of the source."""

    def hash_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        merge_keys, rows = _deltic.MergeKeys(keys), _Rows(schema)
        for batch in batches:
            pieces = [pa.record_batch(merge_keys.hashes(piece)).column(0) for piece in rows.conformed(batch)]
            hashes = pa.concat_arrays(pieces) if pieces else pa.array([], pa.int64())
            yield pa.record_batch([*batch.columns, hashes], [*batch.schema.names, "hash"])

    return hash_rows


def _task_runner(
    schema: pa.Schema,
    settings: dict[str, str] | None,
    merge: tuple[str, pa.Table],
    memory_limit: int | None,
    columns: Sequence[str],
) -> Callable[[], Callable[[bytes, Iterator[pa.RecordBatch]], bytes]]:
    """A function for executors, which returns one that runs a task with its part of the source.

    `columns`: those before the source's in the rows of the part, `JOB_COLUMNS` or `PLACED_COLUMNS`.
    """
    request, sent = merge[0], ipc_bytes(merge[1])
    first, numbers = len(columns), list(columns[JOB_COLUMNS.index("number") :])
    numbered = schema
    for number in numbers:
        numbered = numbered.append(pa.field(_unused(number, numbered), pa.int64()))

    def task_runner() -> Callable[[bytes, Iterator[pa.RecordBatch]], bytes]:
        values, rows = _read(sent), _Rows(schema)

        def of_part(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for piece in pieces:
                table = rows.table(piece, first)
                arrays = [*table.columns, *(piece.column(number) for number in numbers)]
                yield from pa.Table.from_arrays(arrays, names=numbered.names).cast(numbered).to_batches()

        def run_task(task: bytes, pieces: Iterator[pa.RecordBatch]) -> bytes:
            part = source_rows(pa.RecordBatchReader.from_batches(numbered, of_part(pieces)), memory_limit)
            of_task = ("merge", request, values, part.select(range(len(schema))))
            which = part.select(range(len(schema), len(numbered)))
            if len(numbers) > 1:
                return _deltic.change_rows(task, settings, of_task, places=which)
            return _deltic.change_rows(task, settings, of_task, which)

        return run_task

    return task_runner


def placed_reader(settings: dict[str, str] | None, names: list[str], schema: StructType) -> Batches:
    """A function that reads the rows of tasks: the index of the task, the file, the position, and these columns.

    `schema`: all of them.
    """
    columns = StructType(schema.fields[3:])
    variants = to_arrow(columns, voids=True) if has_type(columns, VariantType) else None

    def read(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in chain.from_iterable(batch.column(0) for batch in tasks):
            part, rows = _deltic.task_rows(task.as_py(), settings, names)
            for batch in batches(rows):
                position, file = batch.columns[len(names) :]
                found = batch.select(range(len(names)))
                if variants is not None:
                    found = fit(found, variants, variants)
                parts = pa.repeat(pa.scalar(part, pa.int32()), len(batch))
                yield pa.RecordBatch.from_arrays([parts, file, position, *found.columns], names=schema.names)

    return read


def part_changer(
    schema: pa.Schema,
    settings: dict[str, str] | None,
    merge: tuple[str, pa.Table],
    memory_limit: int | None,
    columns: Sequence[str],
) -> Batches:
    """A function that runs tasks, each with its part of the source, which begins with the task."""
    task_runner = _task_runner(schema, settings, merge, memory_limit, columns)

    def change(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run_task = task_runner()
        for task, failure, pieces in _by_part(batches):
            yield results([run_task(task, pieces) if failure is None else failure], [1])

    return change


def task_changer(
    schema: pa.Schema, settings: dict[str, str] | None, merge: tuple[str, pa.Table], tasks: Sequence[bytes]
) -> Batches:
    """A function that runs the task of each partition with the partition's rows, which have places."""
    task_runner, sent = _task_runner(schema, settings, merge, None, PLACED_COLUMNS), [bytes(task) for task in tasks]

    def change(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "it runs in an executor"
        yield results([task_runner()(sent[context.partitionId()], batches)], [1])

    return change


def _by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[bytes, bytes | None, Iterator[pa.RecordBatch]]]:
    """Each task, its result if it has failed already, and its rows, from batches that are ordered by task."""
    runs = chain.from_iterable(map(_runs, batches))
    for _part, of_part in groupby(runs, key=lambda run: run[0]):
        pieces = (rows for _, rows in of_part)
        first = next(pieces)
        task, rest = first.column("task")[0].as_py(), chain([first.slice(1)], pieces)
        start = next((piece for piece in rest if len(piece)), None)
        failure = None if start is None else start.column("failure")[0].as_py()
        yield task, failure, rest if start is None else chain([start], rest)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a batch by task."""
    encoded = pc.run_end_encode(batch.column("part"))
    start = 0
    for part, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        yield part, batch.slice(start, end - start)
        start = end


def _unused(name: str, schema: pa.Schema) -> str:
    """A name that no column has."""
    taken = {column.lower() for column in schema.names}
    while name in taken:
        name += "_"
    return name


def inserted_rows(schema: pa.Schema, merge: tuple[str, pa.Table], inserts: tuple[bytes, int]) -> Batches:
    """A function that computes the inserted ones of the rows of a partition."""
    request, sent = merge[0], ipc_bytes(merge[1])

    def inserted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        core = _deltic.MergeInserter(inserts[0], schema, request, _read(sent), inserts[1])
        rows = _Rows(schema)
        for batch in batches:
            given = rows.table(batch).combine_chunks().to_batches()
            for piece in given:
                new = core.rows(piece, batch.select(["number"]))
                while (some := new.read_next()) is not None:
                    yield pa.record_batch(some)

    return inserted


def inserter(
    schema: pa.Schema,
    plan: bytes,
    settings: dict[str, str] | None,
    merge: tuple[str, pa.Table],
    inserts: tuple[bytes, int],
) -> Batches:
    """A function that writes those of the rows of a partition that are inserted."""
    inserted = inserted_rows(schema, merge, inserts)

    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in batches:
                count += batch.num_rows
                yield batch

        files = write_batches(plan, settings, inserted(counted()))
        yield results(files, [count if at == 0 else 0 for at in range(len(files))])

    return insert
