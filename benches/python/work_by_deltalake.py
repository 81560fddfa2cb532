"""Writes, row changes and maintenance by deltalake, which has only copy-on-write."""

from collections.abc import Iterator

import deltalake
import pyarrow as pa
import work_job as work
from deltalake.exceptions import CommitFailedError
from job import Answer, Job

PROPERTIES = deltalake.WriterProperties(compression="ZSTD", compression_level=work.LEVEL)


def _write(job: Job, partition_by: list[str]) -> Iterator[Answer | None]:
    rows, uri = work.rows(job), str(job.scratch / "written")
    deltalake.DeltaTable.create(uri, rows.schema, partition_by=partition_by)
    yield None
    deltalake.write_deltalake(uri, rows, mode="append", writer_properties=PROPERTIES)
    yield None
    yield work.written_answer(uri)


def write_flat(job: Job) -> Iterator[Answer | None]:
    yield from _write(job, [])


def write_parts(job: Job) -> Iterator[Answer | None]:
    yield from _write(job, ["part"])


# --- changes ---


def _merge(job: Job, *, spread: bool) -> Iterator[Answer | None]:
    _, _, source = work.merged(job, spread=spread)
    uri = work.table_of(job)
    yield None
    table = deltalake.DeltaTable(uri)
    # Not streamed, so that it can use the bounds of the source's keys.
    merge = table.merge(
        *(source, "source.id = target.id", "source", "target"), streamed_exec=False, writer_properties=PROPERTIES
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    yield None
    yield work.keyed_answer(uri)


def merge_clustered(job: Job) -> Iterator[Answer | None]:
    yield from _merge(job, spread=False)


def merge_spread(job: Job) -> Iterator[Answer | None]:
    yield from _merge(job, spread=True)


def update_rewritten(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    table = deltalake.DeltaTable(uri)
    table.update({"value": str(work.UPDATED_TO)}, predicate=work.UPDATED, writer_properties=PROPERTIES)
    yield None
    yield work.keyed_answer(uri)


def update_marked(job: Job) -> Iterator[Answer | None]:
    yield from update_rewritten(job)


def delete_day(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    deltalake.DeltaTable(uri).delete(f"day = {work.DAY}")
    yield None
    yield work.after_partition(uri)


def delete_row(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    deltalake.DeltaTable(uri).delete(f"id = {work.the_row(job)}", writer_properties=PROPERTIES)
    yield None
    yield work.after_row(job, uri)


def delete_row_by_handle(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    table = deltalake.DeltaTable(uri)
    yield None
    table.delete(f"id = {work.the_row(job)}", writer_properties=PROPERTIES)
    yield None
    yield work.after_row(job, uri)


def update_one(uri: str, id: int) -> bool:
    """Update one row; return False if another writer wins."""
    try:
        deltalake.DeltaTable(uri).update({"value": "-1"}, predicate=f"id = {id}", writer_properties=PROPERTIES)
    except CommitFailedError:
        return False
    return True


def update_together(job: Job) -> Iterator[Answer | None]:
    yield from work.contend(work.table_of(job), update_one)


# --- maintenance ---


def compact(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    deltalake.DeltaTable(uri).optimize.compact(target_size=work.FILE_BYTES, writer_properties=PROPERTIES)
    yield None
    yield work.wide_answer(uri)


def zorder(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    optimizer = deltalake.DeltaTable(uri).optimize
    optimizer.z_order(work.CURVE, target_size=work.FILE_BYTES, writer_properties=PROPERTIES)
    yield None
    yield work.wide_answer(uri)


def _vacuum(job: Job, *, full: bool) -> Iterator[Answer | None]:
    uri = work.removed_files(job)
    yield None
    deltalake.DeltaTable(uri).vacuum(dry_run=False, full=full)
    yield None
    yield work.after_vacuum(job, uri)


def vacuum_full(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum(job, full=True)


def vacuum_lite(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum(job, full=False)


def _vacuum_store(job: Job, *, full: bool) -> Iterator[Answer | None]:
    import work_store

    with work_store.served(job) as store:
        yield None
        deltalake.DeltaTable(store.uri, storage_options=store.options).vacuum(dry_run=False, full=full)
        yield None
        yield store.after_vacuum(job)


def vacuum_full_store(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum_store(job, full=True)


def vacuum_lite_store(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum_store(job, full=False)


def convert(job: Job) -> Iterator[Answer | None]:
    uri = work.files_alone(job)
    days = deltalake.Schema.from_arrow(pa.schema([("day", pa.int32())]))
    yield None
    deltalake.convert_to_deltalake(uri, partition_by=days, partition_strategy="hive")
    yield None
    yield work.after_convert(uri)
