"""Control cases: the same work by deltic without the aspect that is measured."""

from collections.abc import Iterator
from dataclasses import replace

import built
import work_by_deltic
import work_job as work
import work_tables
from job import Answer, Job


def update_together(job: Job) -> Iterator[Answer | None]:
    """Each process updates its own file."""
    yield from work.contend(work.table_of(job, vectors=True, part="apart"), work_by_deltic.update_one)


def scan_marked(job: Job) -> Iterator[Answer | None]:
    """The same files without deletion vectors."""
    name = work_tables.scaled("fifth", work_tables.facts_of(job.uri)["scale"])
    plain = replace(job, uri=str(built.FOLDER / name))
    yield None
    found = work_by_deltic.totals(plain.uri)
    yield None
    facts = work_tables.facts_of(plain.uri)
    assert found == {"rows": facts["rows"], "sum": facts["sum"]}, found
    yield {}
