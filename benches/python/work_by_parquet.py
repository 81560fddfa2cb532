"""Writes by Spark as plain Parquet files."""

from collections.abc import Iterator

import work_spark
from job import Answer, Job


def write_from_spark(job: Job) -> Iterator[Answer | None]:
    yield from work_spark.write(job, "parquet", "read_parquet('{}/*.parquet')")
