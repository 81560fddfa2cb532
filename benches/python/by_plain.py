"""The cases by the plain replay, whose answers every engine must give."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from job import Answer, Job, add_a_commit, copy_of_log
from plain import commits, kept, last_checkpoint, replay, total


def open_table(job: Job) -> Iterator[Answer | None]:
    yield None
    log = Path(job.uri, "_delta_log")
    version = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())
    checkpoint, paths = last_checkpoint(log)
    found = [action["metaData"] for action in commits(log, checkpoint) if "metaData" in action]
    for path in paths:
        found = found or pq.ParquetFile(path).read(["metaData.schemaString"])["metaData"].drop_null().to_pylist()
    fields = json.loads(found[0]["schemaString"])["fields"]
    yield {"version": version, "columns": len(fields)}


def list_files(job: Job) -> Iterator[Answer | None]:
    yield None
    table, tail = replay(job.uri)
    yield {"files": table.num_rows + len(tail), "bytes": total(table["size"]) + sum(add["size"] for add in tail)}


def plan(job: Job) -> Iterator[Answer | None]:
    yield None
    yield kept(job.uri, job.question, job.typed)


def plan_again(job: Job) -> Iterator[Answer | None]:
    yield None
    yield kept(job.uri, job.other_question, job.typed)


def refresh(job: Job) -> Iterator[Answer | None]:
    uri = copy_of_log(job)
    add_a_commit(uri, job)
    yield None
    yield kept(uri, job.question, job.typed)
