"""Writes by pyarrow as Parquet files without a log."""

from collections.abc import Iterator

import pyarrow.dataset as ds
import work_job as work
from job import Answer, Job


def write_flat(job: Job) -> Iterator[Answer | None]:
    rows, folder = work.rows(job), str(job.scratch / "written")
    options = ds.ParquetFileFormat().make_write_options(compression=work.CODEC, compression_level=work.LEVEL)
    yield None
    ds.write_dataset(rows, folder, format="parquet", file_options=options)
    yield None
    yield work.parquet_answer(folder)


def write_flat_synced(job: Job) -> Iterator[Answer | None]:
    yield from write_flat(job)  # it never syncs
