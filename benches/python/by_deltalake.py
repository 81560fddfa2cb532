"""The cases by deltalake (delta-rs), each in the fastest documented way."""

from collections.abc import Iterator

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import writers
from deltalake.exceptions import CommitFailedError
from job import Answer, Job, add_a_commit, copy_of_log


def open_table(job: Job) -> Iterator[Answer | None]:
    yield None
    table = deltalake.DeltaTable(job.uri)
    yield {"version": table.version(), "columns": len(table.schema().fields)}


def list_files(job: Job) -> Iterator[Answer | None]:
    yield None
    actions = pa.table(deltalake.DeltaTable(job.uri).get_add_actions(flatten=True))
    assert "partition.p_date" in actions.schema.names
    yield {"files": actions.num_rows, "bytes": pc.sum(actions["size_bytes"]).as_py()}


def _kept(table: deltalake.DeltaTable, filter: str) -> Answer:
    return {"files": len(table.file_uris(file_pruning_predicate=filter))}


def plan(job: Job) -> Iterator[Answer | None]:
    yield None
    yield _kept(deltalake.DeltaTable(job.uri), job.question.sql)


def plan_again(job: Job) -> Iterator[Answer | None]:
    table = deltalake.DeltaTable(job.uri)
    _kept(table, job.question.sql)
    yield None
    yield _kept(table, job.other_question.sql)


def refresh(job: Job) -> Iterator[Answer | None]:
    uri = copy_of_log(job)
    table = deltalake.DeltaTable(uri)
    add_a_commit(uri, job)
    yield None
    table.update_incremental()
    yield None
    yield _kept(table, job.question.sql)


def checkpoint(job: Job) -> Iterator[Answer | None]:
    uri = writers.log_to_checkpoint(job)
    table = deltalake.DeltaTable(uri)
    yield None
    table.create_checkpoint()
    yield None
    yield writers.written_checkpoint(uri)


def every_column(job: Job) -> Iterator[Answer | None]:
    yield None
    table = deltalake.DeltaTable(job.uri)  # decodes every column of every file
    yield _kept(table, job.question.sql)


# --- rows ---


def read_all(job: Job) -> Iterator[Answer | None]:
    yield None
    yield {"rows": sum(batch.num_rows for batch in deltalake.DeltaTable(job.uri).to_pyarrow_dataset().to_batches())}


def read_some(job: Job) -> Iterator[Answer | None]:
    yield None
    chosen = (ds.field("part") == 3) & (ds.field("place") == "place 42")
    dataset = deltalake.DeltaTable(job.uri).to_pyarrow_dataset()
    yield {"rows": dataset.to_table(columns=["price"], filter=chosen).num_rows}


def write_rows(job: Job) -> Iterator[Answer | None]:
    rows, copy = deltalake.DeltaTable(job.uri).to_pyarrow_table(), str(job.scratch / "copy")
    yield None
    deltalake.write_deltalake(copy, rows, partition_by=["part"])
    yield None
    yield {"rows": deltalake.DeltaTable(copy).to_pyarrow_dataset().count_rows()}


# --- commits ---


def _append(uri: str, rows: pa.Table) -> None:
    deltalake.write_deltalake(uri, rows, mode="append")


def append_by_path(job: Job) -> Iterator[Answer | None]:
    uri = writers.small_table(job)
    yield None
    for _ in range(writers.APPENDS):
        _append(uri, writers.TINY)
    yield None
    yield writers.rows_committed(uri)


def append_by_path_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from append_by_path(job)  # it never syncs


def append_by_handle(job: Job) -> Iterator[Answer | None]:
    uri = writers.small_table(job)
    table = deltalake.DeltaTable(uri)
    yield None
    for _ in range(writers.APPENDS):
        deltalake.write_deltalake(table, writers.TINY, mode="append")
    yield None
    yield writers.rows_committed(uri)


def append_by_handle_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from append_by_handle(job)


def append_long(job: Job) -> Iterator[Answer | None]:
    uri = writers.small_table(job)
    table = deltalake.DeltaTable(uri)
    yield None
    took = writers.timed_appends(lambda: deltalake.write_deltalake(table, writers.TINY, mode="append"))
    yield None
    yield {**writers.rows_committed(uri), **took}


def _append_unless_beaten(uri: str) -> bool:
    try:
        _append(uri, writers.TINY)
    except CommitFailedError:
        return False
    return True


def append_together(job: Job) -> Iterator[Answer | None]:
    yield from writers.contend(job, _append_unless_beaten)


def append_together_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from append_together(job)


def append_to_large(job: Job) -> Iterator[Answer | None]:
    uri = copy_of_log(job)
    yield None
    _append(uri, writers.AN_EVENT)
    yield None
    yield writers.files_of(uri)


def append_to_large_by_handle(job: Job) -> Iterator[Answer | None]:
    uri = copy_of_log(job)
    table = deltalake.DeltaTable(uri)
    deltalake.write_deltalake(table, writers.AN_EVENT, mode="append")
    yield None
    deltalake.write_deltalake(table, writers.AN_EVENT, mode="append")
    yield None
    yield writers.files_of(uri)
