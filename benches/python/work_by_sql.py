"""Writes by DuckDB's COPY as Parquet files without a log."""

from collections.abc import Iterator

import duckdb
import work_job as work
from job import Answer, Job

CONNECTION = duckdb.connect(config={"preserve_insertion_order": "false"})


def _copy(job: Job, options: str) -> Iterator[Answer | None]:
    CONNECTION.register("given", work.rows(job))
    folder = str(job.scratch / "written")
    codec = f"FORMAT parquet, COMPRESSION {work.CODEC}, COMPRESSION_LEVEL {work.LEVEL}"
    yield None
    CONNECTION.execute(f"COPY given TO '{folder}' ({codec}, {options})")
    yield None
    yield work.parquet_answer(folder)


def write_flat(job: Job) -> Iterator[Answer | None]:
    yield from _copy(job, "PER_THREAD_OUTPUT true")


def write_parts(job: Job) -> Iterator[Answer | None]:
    yield from _copy(job, "PARTITION_BY (part)")
