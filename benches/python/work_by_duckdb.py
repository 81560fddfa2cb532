"""Scans of a Delta table by DuckDB's delta extension."""

from collections.abc import Iterator

import work_job as work
from job import Answer, Job


def _read(job: Job, filter: str) -> Iterator[Answer | None]:
    connection = work.duck_connection()
    yield None
    picked = connection.execute(f"SELECT * FROM delta_scan('{job.uri}') WHERE {filter}").to_arrow_table()
    yield None
    yield work.picked_answer(picked)


def read_sorted(job: Job) -> Iterator[Answer | None]:
    yield from _read(job, work.sorted_filter(job))


def read_random(job: Job) -> Iterator[Answer | None]:
    yield from _read(job, work.RANDOM_FILTER)


def scan_marked(job: Job) -> Iterator[Answer | None]:
    yield None
    yield work.keyed_answer(job.uri)
