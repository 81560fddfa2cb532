"""Reads and writes by polars as Parquet files without a log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import work_job as work
from job import Answer, Job


def _sink(job: Job, target: Any) -> Iterator[Answer | None]:
    frame = pl.from_arrow(work.rows(job))
    assert isinstance(frame, pl.DataFrame)
    yield None
    frame.lazy().sink_parquet(target, compression="zstd", compression_level=work.LEVEL, statistics=True, mkdir=True)
    yield None
    yield work.parquet_answer(str(job.scratch / "written"))


def write_flat(job: Job) -> Iterator[Answer | None]:
    yield from _sink(job, Path(job.scratch, "written", "rows.parquet"))


def write_parts(job: Job) -> Iterator[Answer | None]:
    yield from _sink(job, pl.PartitionBy(job.scratch / "written", key="part", include_key=False))


def _read(job: Job, condition: pl.Expr) -> Iterator[Answer | None]:
    yield None
    picked = pl.scan_parquet(Path(job.uri, "*.parquet")).filter(condition).collect().to_arrow()
    yield None
    yield work.picked_answer(picked)


def read_sorted(job: Job) -> Iterator[Answer | None]:
    low, high = work.sorted_range(job)
    yield from _read(job, (pl.col("id") >= low) & (pl.col("id") < high))


def read_random(job: Job) -> Iterator[Answer | None]:
    yield from _read(job, pl.col("quantity") < 100)
