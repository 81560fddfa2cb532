"""Writes, row changes and maintenance by deltic."""

from collections.abc import Iterator

import pyarrow as pa
import work_job as work
from job import Answer, Job

import deltic

# Without fsync, like the peers.
UNSYNCED = {"deltic.durability": "none"}
CODEC = {"compression": work.CODEC, "compression_level": work.LEVEL}


def _write(job: Job, options: dict[str, str], partition_by: list[str]) -> Iterator[Answer | None]:
    rows, uri = work.rows(job), str(job.scratch / "written")
    deltic.create(uri, rows.schema, partition_by)
    yield None
    deltic.write(uri, rows, storage_options=options, **CODEC)
    yield None
    if partition_by:
        assert work.files_added(uri) == 1_000, f"{work.files_added(uri)} files for 1,000 partitions"
    yield work.written_answer(uri)


def write_flat(job: Job) -> Iterator[Answer | None]:
    yield from _write(job, UNSYNCED, [])


def write_flat_synced(job: Job) -> Iterator[Answer | None]:
    yield from _write(job, {}, [])


def write_parts(job: Job) -> Iterator[Answer | None]:
    yield from _write(job, UNSYNCED, ["part"])


def write_from_spark(job: Job) -> Iterator[Answer | None]:
    import work_spark

    import deltic.spark

    uri = str(job.scratch / "written")
    with work_spark.session(job) as spark:
        deltic.spark.register(spark)
        work_spark.frame(spark, 1_000).write.format("deltic").mode("append").save(str(job.scratch / "warm"))
        frame = work_spark.frame(spark, work.spark_rows(job))
        yield None
        write = frame.write.format("deltic").mode("append").option("compression", work.CODEC)
        write.option("compression_level", str(work.LEVEL)).option("storage.deltic.durability", "none").save(uri)
        yield None
    yield work.spark_answer(f"delta_scan('{uri}')")


# --- changes ---


def _merge(job: Job, *, spread: bool) -> Iterator[Answer | None]:
    _, _, source = work.merged(job, spread=spread)
    # Files that the bounds of the keys exclude do not exist, which proves that they are not read.
    uri = work.table_of(job, vectors=True, only=work.kept_by_bounds(job, source))
    yield None
    merge = deltic.Table(uri, UNSYNCED).merge(source, "source.id = target.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    yield None
    work.complete(job, uri)
    yield work.keyed_answer(uri)


def merge_clustered(job: Job) -> Iterator[Answer | None]:
    yield from _merge(job, spread=False)


def merge_spread(job: Job) -> Iterator[Answer | None]:
    yield from _merge(job, spread=True)


def _update(job: Job, *, vectors: bool) -> Iterator[Answer | None]:
    uri = work.table_of(job, vectors=vectors)
    yield None
    deltic.Table(uri, UNSYNCED).update({"value": deltic.lit(work.UPDATED_TO)}, work.UPDATED)
    yield None
    yield work.keyed_answer(uri)


def update_marked(job: Job) -> Iterator[Answer | None]:
    yield from _update(job, vectors=True)


def update_rewritten(job: Job) -> Iterator[Answer | None]:
    yield from _update(job, vectors=False)


def delete_day(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    deltic.Table(uri, UNSYNCED).delete(f"day = {work.DAY}")
    yield None
    yield work.after_partition(uri)


def _of_the_row(job: Job) -> str:
    """A table in which only the file with the row exists."""
    name = f"/part-{work.the_row(job) // 100:06}.parquet"
    return work.table_of(job, vectors=True, only=lambda path: path.endswith(name))


def delete_row(job: Job) -> Iterator[Answer | None]:
    uri = _of_the_row(job)
    yield None
    deltic.Table(uri, UNSYNCED).delete(f"id = {work.the_row(job)}")
    yield None
    yield work.after_row(job, uri)


def delete_row_by_handle(job: Job) -> Iterator[Answer | None]:
    uri = _of_the_row(job)
    table = deltic.Table(uri, UNSYNCED)
    assert table.delete_preview("id = -1").rows == 0
    yield None
    table.delete(f"id = {work.the_row(job)}")
    yield None
    yield work.after_row(job, uri)


_TABLES: dict[str, deltic.Table] = {}


def update_one(uri: str, id: int) -> bool:
    """Update one row on a handle that the process keeps; return False if another writer wins."""
    table = _TABLES.setdefault(uri, deltic.Table(uri, UNSYNCED))
    try:
        table.update({"value": deltic.lit(-1)}, f"id = {id}")
    except deltic.CommitConflictError:
        return False
    return True


def update_together(job: Job) -> Iterator[Answer | None]:
    yield from work.contend(work.table_of(job, vectors=True), update_one)


def totals(uri: str) -> Answer:
    """The number of rows of a scan, and the sum of two columns."""
    import pyarrow.compute as pc

    rows, total = 0, 0
    for batch in deltic.Table(uri).scan().to_reader():
        rows += batch.num_rows
        total += sum(pc.sum(batch[name]).as_py() for name in ("id", "value"))
    return {"rows": rows, "sum": total}


def _read(job: Job, filter: str) -> Iterator[Answer | None]:
    yield None
    picked = deltic.Table(job.uri).scan(filter=filter).to_arrow()
    yield None
    yield work.picked_answer(picked)


def read_sorted(job: Job) -> Iterator[Answer | None]:
    yield from _read(job, work.sorted_filter(job))


def read_random(job: Job) -> Iterator[Answer | None]:
    yield from _read(job, work.RANDOM_FILTER)


def scan_marked(job: Job) -> Iterator[Answer | None]:
    yield None
    yield totals(job.uri)


# --- maintenance ---


def compact(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    deltic.Table(uri, UNSYNCED).optimize(target_file_size=work.FILE_BYTES)
    yield None
    yield work.wide_answer(uri)


def zorder(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield None
    deltic.Table(uri, UNSYNCED).optimize(zorder_by=work.CURVE, target_file_size=work.FILE_BYTES)
    yield None
    yield work.wide_answer(uri)


def _vacuum(job: Job, mode: str) -> Iterator[Answer | None]:
    uri = work.removed_files(job)
    yield None
    deltic.Table(uri, UNSYNCED).vacuum(mode=mode)  # type: ignore[arg-type]
    yield None
    yield work.after_vacuum(job, uri)


def vacuum_full(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum(job, "full")


def vacuum_lite(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum(job, "lite")


def _vacuum_store(job: Job, mode: str) -> Iterator[Answer | None]:
    import work_store

    with work_store.served(job) as store:
        yield None
        deltic.Table(store.uri, store.options | UNSYNCED).vacuum(mode=mode)  # type: ignore[arg-type]
        yield None
        yield store.after_vacuum(job)


def vacuum_full_store(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum_store(job, "full")


def vacuum_lite_store(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum_store(job, "lite")


def vacuum_simulated_store(job: Job) -> Iterator[Answer | None]:
    import simulated_store

    with simulated_store.served(job) as store:
        yield None
        deltic.Table(store.uri, store.options | UNSYNCED).vacuum()
        yield None
        yield store.after_vacuum(job)


def convert(job: Job) -> Iterator[Answer | None]:
    uri = work.files_alone(job)
    yield None
    deltic.convert(uri, partition_schema=pa.schema([("day", pa.int32())]), storage_options=UNSYNCED)
    yield None
    yield work.after_convert(uri)
