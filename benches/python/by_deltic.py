"""The cases by deltic."""

from collections.abc import Iterator

import writers
from job import Answer, Job, add_a_commit, copy_of_log

import deltic


def _plan(snapshot: deltic.Snapshot, filter: str | None) -> Answer:
    """A plan, and its files as an Arrow table as a reader would use them."""
    plan = snapshot.plan(filter=filter)
    assert plan.tasks.num_rows == plan.files_kept
    return {"files": plan.files_kept, "bytes": plan.bytes_kept}


def open_table(job: Job) -> Iterator[Answer | None]:
    yield None
    snapshot = deltic.Table(job.uri).snapshot()
    yield {"version": snapshot.version, "columns": len(snapshot.schema)}


def list_files(job: Job) -> Iterator[Answer | None]:
    yield None
    yield _plan(deltic.Table(job.uri).snapshot(), None)


def plan(job: Job) -> Iterator[Answer | None]:
    yield None
    yield _plan(deltic.Table(job.uri).snapshot(), job.question.sql)


def plan_uncached(job: Job) -> Iterator[Answer | None]:
    yield None
    yield _plan(deltic.Table(job.uri, cache_bytes=0).snapshot(), job.question.sql)


def plan_again(job: Job) -> Iterator[Answer | None]:
    snapshot = deltic.Table(job.uri).snapshot()
    _plan(snapshot, job.question.sql)
    yield None
    yield _plan(snapshot, job.other_question.sql)


def refresh(job: Job) -> Iterator[Answer | None]:
    table = deltic.Table(copy_of_log(job))
    _plan(table.snapshot(), job.question.sql)
    add_a_commit(table.uri.removeprefix("file://"), job)
    yield None
    snapshot = table.snapshot()
    yield None
    assert snapshot.num_files == snapshot.plan().files_total
    yield _plan(snapshot, job.question.sql)


def checkpoint(job: Job) -> Iterator[Answer | None]:
    uri = writers.log_to_checkpoint(job)
    yield None
    deltic.Table(uri).checkpoint()
    yield None
    yield writers.written_checkpoint(uri)


def every_column(job: Job) -> Iterator[Answer | None]:
    yield None
    snapshot = deltic.Table(job.uri).snapshot()
    for nothing in writers.NOTHING:
        assert snapshot.plan(filter=nothing).files_kept == 0
    yield _plan(snapshot, job.question.sql)


# --- rows ---


def read_all(job: Job) -> Iterator[Answer | None]:
    yield None
    yield {"rows": sum(batch.num_rows for batch in deltic.Table(job.uri).scan().to_reader())}


def read_some(job: Job) -> Iterator[Answer | None]:
    yield None
    scan = deltic.Table(job.uri).scan(columns=["price"], filter="part = 3 AND place = 'place 42'")
    yield {"rows": scan.to_arrow().num_rows}


def write_rows(job: Job) -> Iterator[Answer | None]:
    rows, copy = deltic.Table(job.uri).scan().to_arrow(), str(job.scratch / "copy")
    yield None
    deltic.write(copy, rows, partition_by=["part"])
    yield None
    yield {"rows": deltic.Table(copy).scan().to_arrow().num_rows}


# --- commits ---

# Without fsync, like the peers.
UNSYNCED = {"deltic.durability": "none"}


def _by_path(job: Job, options: dict[str, str] | None) -> Iterator[Answer | None]:
    uri = writers.small_table(job)
    yield None
    for _ in range(writers.APPENDS):
        deltic.write(uri, writers.TINY, storage_options=options)
    yield None
    yield writers.rows_committed(uri)


def append_by_path(job: Job) -> Iterator[Answer | None]:
    yield from _by_path(job, None)


def append_by_path_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from _by_path(job, UNSYNCED)


def _by_handle(job: Job, options: dict[str, str] | None) -> Iterator[Answer | None]:
    uri = writers.small_table(job)
    table = deltic.Table(uri, options)
    yield None
    for _ in range(writers.APPENDS):
        deltic.write(table, writers.TINY)
    yield None
    yield writers.rows_committed(uri)


def append_by_handle(job: Job) -> Iterator[Answer | None]:
    yield from _by_handle(job, None)


def append_by_handle_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from _by_handle(job, UNSYNCED)


def append_long(job: Job) -> Iterator[Answer | None]:
    uri = writers.small_table(job)
    table = deltic.Table(uri)
    yield None
    took = writers.timed_appends(lambda: deltic.write(table, writers.TINY))
    yield None
    yield {**writers.rows_committed(uri), **took}


def _append_unless_beaten(uri: str) -> bool:
    try:
        deltic.write(uri, writers.TINY)
    except deltic.CommitConflictError:
        return False
    return True


def _append_unsynced_unless_beaten(uri: str) -> bool:
    try:
        deltic.write(uri, writers.TINY, storage_options=UNSYNCED)
    except deltic.CommitConflictError:
        return False
    return True


def append_together(job: Job) -> Iterator[Answer | None]:
    yield from writers.contend(job, _append_unless_beaten)


def append_together_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from writers.contend(job, _append_unsynced_unless_beaten)


def append_to_large(job: Job) -> Iterator[Answer | None]:
    uri = copy_of_log(job)
    yield None
    deltic.write(uri, writers.AN_EVENT)
    yield None
    yield writers.files_of(uri)


def append_to_large_by_handle(job: Job) -> Iterator[Answer | None]:
    uri = copy_of_log(job)
    table = deltic.Table(uri)
    deltic.write(table, writers.AN_EVENT)
    yield None
    deltic.write(table, writers.AN_EVENT)
    yield None
    yield writers.files_of(uri)
