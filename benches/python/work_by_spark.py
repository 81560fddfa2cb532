"""Writes, row changes and maintenance by delta-spark, each after the same statement on a tiny table as a warm-up."""

from collections.abc import Callable, Iterator

import pyarrow.parquet as pq
import work_job as work
import work_spark
from job import Answer, Job

COLUMNS = "id LONG, value LONG, label STRING, price DOUBLE, day INT"
WARM = f"CREATE TABLE delta.`{{}}` ({COLUMNS}) USING delta PARTITIONED BY (day)"
FILLED = "INSERT INTO delta.`{}` SELECT id, id % 10, 'x', 1.5, cast(id % 5 AS INT) FROM range(100)"


def _run(
    job: Job,
    uri: str,
    statement: str,
    warm_up: str,
    answer: Callable[[], Answer],
    *,
    source: object = None,
) -> Iterator[Answer | None]:
    """Run a statement, in which `{}` stands for the table, first on a table of a hundred rows as a warm-up."""
    warm = job.scratch / "warm"
    if source is not None:
        pq.write_table(source, job.scratch / "source.parquet")
    with work_spark.session(job) as spark:
        if source is not None:
            spark.read.parquet(str(job.scratch / "source.parquet")).createOrReplaceTempView("source")
        spark.sql(WARM.format(f"{warm}"))
        spark.sql(FILLED.format(f"{warm}"))
        spark.sql(warm_up.format(f"delta.`{warm}`")).collect()
        yield None
        spark.sql(statement.format(f"delta.`{uri}`")).collect()
        yield None
    yield answer()


def write_from_spark(job: Job) -> Iterator[Answer | None]:
    yield from work_spark.write(job, "delta", "delta_scan('{}')")


def _merge(job: Job, *, spread: bool) -> Iterator[Answer | None]:
    _, _, source = work.merged(job, spread=spread)
    uri = work.table_of(job, vectors=True)
    head = "MERGE INTO {} target USING source ON source.id = target.id "
    merge = head + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    columns = ("id", "value", "label", "price")
    warm = head + f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{name} = source.{name}' for name in columns)}"
    yield from _run(job, uri, merge, warm, lambda: work.keyed_answer(uri), source=source)


def merge_clustered(job: Job) -> Iterator[Answer | None]:
    yield from _merge(job, spread=False)


def merge_spread(job: Job) -> Iterator[Answer | None]:
    yield from _merge(job, spread=True)


def _update(job: Job, *, vectors: bool) -> Iterator[Answer | None]:
    uri = work.table_of(job, vectors=vectors)
    update = f"UPDATE {{}} SET value = {work.UPDATED_TO} WHERE {work.UPDATED}"
    yield from _run(job, uri, update, update, lambda: work.keyed_answer(uri))


def update_marked(job: Job) -> Iterator[Answer | None]:
    yield from _update(job, vectors=True)


def update_rewritten(job: Job) -> Iterator[Answer | None]:
    yield from _update(job, vectors=False)


def delete_day(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    delete = f"DELETE FROM {{}} WHERE day = {work.DAY}"
    yield from _run(job, uri, delete, delete, lambda: work.after_partition(uri))


def delete_row(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job, vectors=True)
    delete = f"DELETE FROM {{}} WHERE id = {work.the_row(job)}"
    yield from _run(job, uri, delete, "DELETE FROM {} WHERE id = 7", lambda: work.after_row(job, uri))


# --- maintenance ---


def compact(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    yield from _run(job, uri, "OPTIMIZE {}", "OPTIMIZE {}", lambda: work.wide_answer(uri))


def zorder(job: Job) -> Iterator[Answer | None]:
    uri = work.table_of(job)
    statement = f"OPTIMIZE {{}} ZORDER BY ({', '.join(work.CURVE)})"
    yield from _run(job, uri, statement, "OPTIMIZE {} ZORDER BY (id, value)", lambda: work.wide_answer(uri))


def _vacuum(job: Job, mode: str) -> Iterator[Answer | None]:
    uri = work.removed_files(job)
    statement = f"VACUUM {{}} {mode}"
    yield from _run(job, uri, statement, "VACUUM {} FULL", lambda: work.after_vacuum(job, uri))


def vacuum_full(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum(job, "FULL")


def vacuum_lite(job: Job) -> Iterator[Answer | None]:
    yield from _vacuum(job, "LITE")


def convert(job: Job) -> Iterator[Answer | None]:
    uri = work.files_alone(job)
    other = job.scratch / "other"
    with work_spark.session(job) as spark:
        spark.range(100).write.parquet(str(other))
        spark.sql(f"CONVERT TO DELTA parquet.`{other}`").collect()
        yield None
        spark.sql(f"CONVERT TO DELTA parquet.`{uri}` PARTITIONED BY (day INT)").collect()
        yield None
    yield work.after_convert(uri)
