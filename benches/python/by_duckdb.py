"""The cases by DuckDB's delta extension, which plans with delta-kernel-rs. EXPLAIN plans and reads no data."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import duckdb_extension_delta
from job import Answer, Job, Question, add_a_commit, copy_of_log

CONNECTION = duckdb.connect(config={"allow_unsigned_extensions": "true"})
CONNECTION.load_extension(str(next(Path(duckdb_extension_delta.__path__[0]).rglob("delta.duckdb_extension"))))


def _plan(relation: str, filter: str) -> None:
    query = f"EXPLAIN (FORMAT json) SELECT event_id FROM {relation} WHERE {filter}"
    (node,) = json.loads(CONNECTION.execute(query).fetchall()[0][1])
    assert node["name"] == "DELTA_SCAN", node


def _kept(job: Job, relation: str, question: Question) -> Answer:
    """Plan again with the log that has the number of kept files. It lists all files too, which takes much longer, so
    this is done in one run only."""
    if not job.is_asked:
        return {}
    CONNECTION.execute("CALL enable_logging(level = 'info')")
    _plan(relation, question.sql)
    lines = "SELECT parse_delta_filter_logline(message) FROM duckdb_logs WHERE type = 'delta.FilterPushdown'"
    return {"files": CONNECTION.execute(lines).fetchall()[-1][0]["files_after"]}


def open_table(job: Job) -> Iterator[Answer | None]:
    yield None
    CONNECTION.execute(f"ATTACH '{job.uri}' AS events (TYPE delta, PIN_SNAPSHOT)")
    columns = CONNECTION.execute("DESCRIBE events").fetchall()
    yield {"columns": len(columns)}


def list_files(job: Job) -> Iterator[Answer | None]:
    yield None
    query = f"SELECT data_file, partitions['p_date'] AS day FROM delta_list_files('{job.uri}')"
    yield {"files": CONNECTION.execute(query).to_arrow_table().num_rows}  # without sizes


def plan(job: Job) -> Iterator[Answer | None]:
    yield None
    _plan(f"delta_scan('{job.uri}')", job.question.sql)
    yield None
    yield _kept(job, f"delta_scan('{job.uri}')", job.question)


def plan_again(job: Job) -> Iterator[Answer | None]:
    CONNECTION.execute(f"ATTACH '{job.uri}' AS events (TYPE delta, PIN_SNAPSHOT)")
    _plan("events", job.question.sql)
    yield None
    _plan("events", job.other_question.sql)
    yield None
    yield _kept(job, "events", job.other_question)


def refresh(job: Job) -> Iterator[Answer | None]:
    uri = copy_of_log(job)
    CONNECTION.execute(f"ATTACH '{uri}' AS events (TYPE delta)")
    _plan("events", job.question.sql)
    add_a_commit(uri, job)
    yield None
    _plan("events", job.question.sql)  # there is no refresh without a plan
    yield None
    yield _kept(job, "events", job.question)
