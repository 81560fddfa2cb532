"""The planning cases as plain SQL over the files of the log, which a specialised reader must beat.

No protocol checks, no deletion vectors, no decoding of paths; it assumes one checkpoint in one file.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.compute as pc
from job import Answer, Job, Question

CONNECTION = duckdb.connect()
ADD = 'STRUCT(path VARCHAR, "partitionValues" MAP(VARCHAR, VARCHAR), size BIGINT, stats VARCHAR)'


def _tail(log: Path, after: int) -> str:
    """A query for the newest action of each file in the commits."""
    paths = [str(path) for path in sorted(log.glob("*.json")) if int(path.stem) > after]
    columns = f"{{'add': '{ADD}', 'remove': 'STRUCT(path VARCHAR)'}}"
    return f"""tail AS MATERIALIZED (
        SELECT coalesce(add.path, remove.path) AS path, arg_max(add IS NOT NULL, filename) AS live,
            arg_max(add, filename) FILTER (add IS NOT NULL) AS add
        FROM read_json({paths}, columns = {columns}, format = 'newline_delimited', filename = true)
        WHERE add IS NOT NULL OR remove IS NOT NULL GROUP BY 1)"""


def _condition(question: Question | None, typed: bool) -> str:
    if question is None:
        return "true"
    if question.column == "p_date":
        return f"add.partitionValues['p_date'] = '{question.low}'"
    if typed:
        low, high = (f"add.stats_parsed.{side}.{question.column}" for side in ("minValues", "maxValues"))
    else:
        low, high = (
            f"CAST(json_extract_string(add.stats, '$.{side}.{question.column}') AS BIGINT)"
            for side in ("minValues", "maxValues")
        )
    return f"coalesce({low} <= {question.high} AND {high} >= {question.low}, true)"


def _kept(job: Job, question: Question | None) -> Answer:
    log = Path(job.uri, "_delta_log")
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    after = int(checkpoints[-1].name[:20]) if checkpoints else -1
    sources = [f"SELECT add.path, add.size FROM tail WHERE live AND {_condition(question, False)}"]
    if checkpoints:
        condition = f"add.path IS NOT NULL AND {_condition(question, job.typed)}"
        kept = f"SELECT add.path, add.size FROM read_parquet('{checkpoints[-1]}') WHERE {condition}"
        sources.append(f"{kept} AND add.path NOT IN (SELECT path FROM tail)")
    query = f"WITH {_tail(log, after)} {' UNION ALL '.join(sources)}"
    found = CONNECTION.execute(query).to_arrow_table()
    return {"files": found.num_rows, "bytes": pc.sum(found["size"]).as_py()}


def list_files(job: Job) -> Iterator[Answer | None]:
    yield None
    yield _kept(job, None)


def plan(job: Job) -> Iterator[Answer | None]:
    yield None
    yield _kept(job, job.question)
