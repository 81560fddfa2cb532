"""What deltic's results are held against: the same by deltic, without what the case is about."""

from collections.abc import Iterator
from dataclasses import replace

import tables
import work_by_deltic
import work_job as work
import work_tables
from job import Answer, Job


def update_together(job: Job) -> Iterator[Answer | None]:
    """Each process has a file of its own."""
    yield from work.contend(work.table_of(job, vectors=True, part="apart"), work_by_deltic.update_one)


def scan_marked(job: Job) -> Iterator[Answer | None]:
    """The same files, no rows of which are deleted."""
    name = work_tables.scaled("fifth", work_tables.facts_of(job.uri)["scale"])
    plain = replace(job, uri=str(tables.FOLDER / name))
    yield None
    found = work_by_deltic.totals(plain.uri)
    yield None
    facts = work_tables.facts_of(plain.uri)
    assert found == {"rows": facts["rows"], "sum": facts["sum"]}, found
    yield {}
