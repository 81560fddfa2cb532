"""Copies, changes and checks that the cases for writes, row changes and maintenance share.

DuckDB reads the answers back. It is not measured itself, except for plain Parquet files.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import plain
import pyarrow as pa
import work_tables
from job import Answer, Job

# The same for all engines: the default level of the parquet crate.
CODEC, LEVEL = "zstd", 1
# The target file size of writes and of OPTIMIZE.
FILE_BYTES = 128 * 2**20
WRITERS, CHANGES_EACH = 8, 50
# Processes of a run whose memory does not count for the engine.
UNCOUNTED: list[int] = []
# An UPDATE changes a thousandth of the rows, some in each file.
UPDATED, UPDATED_TO = "value = 7", 1_007
CURVE = ["quantity", "event_time"]
DAY = 3


def table_of(job: Job, *, vectors: bool = False, part: str = "", only: Callable[[str], bool] = lambda _: True) -> str:
    """A copy for one run, made of links. `vectors`: enable deletion vectors; `only`: the data files that it gets."""
    target = job.scratch / "table"
    work_tables.link(Path(job.uri, part), target, only)
    if vectors:
        work_tables.with_vectors(target / "_delta_log")
    return str(target)


def complete(job: Job, uri: str) -> None:
    """Add the missing data files of a copy, before all of it is read."""
    for path in Path(job.uri).glob("*.parquet"):
        if not (link := Path(uri, path.name)).exists():
            link.hardlink_to(path)


def files_alone(job: Job) -> str:
    """The data files of a table, without its log."""
    uri = table_of(job)
    shutil.rmtree(Path(uri, "_delta_log"))
    return uri


def rows(job: Job) -> pa.Table:
    """The rows to write, in memory."""
    with pa.OSFile(str(Path(job.uri, "rows.arrow"))) as file:
        return pa.ipc.open_file(file).read_all()


# --- a few rows of many ---


def sorted_range(job: Job) -> tuple[int, int]:
    """First and end of a range of ids with a thousandth of the rows, in a file in the middle."""
    rows = int(work_tables.facts_of(job.uri)["rows"])
    return rows * 2 // 5 + rows // 100, rows * 2 // 5 + rows // 100 + rows // 1_000


def sorted_filter(job: Job) -> str:
    low, high = sorted_range(job)
    return f"id >= {low} AND id < {high}"


# Quantities are random numbers below 100,000.
RANDOM_FILTER = "quantity < 100"


def picked_answer(picked: pa.Table) -> Answer:
    """The number of rows, and the sum of the hashes of their values."""
    return work_tables.checked_sum("picked", picked=picked)


def after_reading_sorted(job: Job) -> Answer:
    low, high = sorted_range(job)
    return picked_answer(work_tables.wide_rows(low, high - low))


def after_reading_random(job: Job) -> Answer:
    """The expected answer, from all rows as they were generated, in pieces."""
    import pyarrow.compute as pc

    rows, step = int(work_tables.facts_of(job.uri)["rows"]), 1_000_000
    pieces = (work_tables.wide_rows(first, min(step, rows - first)) for first in range(0, rows, step))
    return picked_answer(pa.concat_tables([piece.filter(pc.field("quantity") < 100) for piece in pieces]))


# --- a merge ---


def merged(job: Job, *, spread: bool) -> tuple[np.ndarray, np.ndarray, pa.Table]:
    """The numbers of the rows that a merge updates, their new values, and the source. Nine of ten rows are updates.

    The keys are spread over all files, or are a hundred rows apart, so that about ten files have all of them.
    """
    facts = work_tables.facts_of(job.uri)
    count = max(100, round(10_000 * facts["scale"]))
    step = facts["rows"] // count if spread else 100
    first = 0 if spread else facts["rows"] * 2 // 5
    numbers = first + np.arange(count) * step
    is_new = np.arange(count) % 10 == 9
    ids, values = numbers * 2 + is_new, 5_000 + np.arange(count) % 10
    source = pa.table({"id": ids, "value": values, "label": ["merged"] * count, "price": np.full(count, 1.5)})
    return numbers[~is_new], is_new, source


def kept_by_bounds(job: Job, source: pa.Table) -> Callable[[str], bool]:
    """A predicate for the files of the keyed table that may have keys of a merge, by their bounds."""
    ids = np.asarray(source["id"])
    names = set()
    for line in Path(job.uri, "_delta_log", f"{0:020}.json").read_text().splitlines():
        if (added := json.loads(line).get("add")) is not None:
            low, high = plain.bounds_of(added["stats"], "id")
            if ((ids >= low) & (ids <= high)).any():
                names.add(added["path"])
    return lambda path: path in names


def after_merge(job: Job, *, spread: bool) -> Answer:
    facts = work_tables.facts_of(job.uri)
    updated, is_new, source = merged(job, spread=spread)
    ids, values = np.asarray(source["id"]), np.asarray(source["value"])
    total = facts["sum"] + int(values.sum()) - int((updated % 1_000).sum()) + int(ids[is_new].sum())
    return {"rows": facts["rows"] + int(is_new.sum()), "sum": total}


def after_update(job: Job) -> Answer:
    facts = work_tables.facts_of(job.uri)
    return {"rows": facts["rows"], "sum": facts["sum"] + facts["rows"] // 1_000 * (UPDATED_TO - 7)}


def the_row(job: Job) -> int:
    """The id of the row to delete, in the middle of a file in the middle."""
    return int(work_tables.facts_of(job.uri)["files"]) // 2 * 100 + 50


# --- answers ---


def duck_connection() -> Any:
    """A connection to DuckDB with its delta extension."""
    import duckdb
    import duckdb_extension_delta

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    extension = next(Path(duckdb_extension_delta.__path__[0]).rglob("delta.duckdb_extension"))
    connection.load_extension(str(extension))
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def duck(sql: str) -> Any:
    """The first row of a query in DuckDB."""
    return duck_connection().execute(sql).fetchall()[0]


def keyed_answer(uri: str) -> Answer:
    count, total = duck(f"SELECT count(*), sum(id) + sum(value) FROM delta_scan('{uri}')")
    return {"rows": count, "sum": int(total)}


def wide_answer(uri: str) -> Answer:
    """The number of rows of a Delta table, and the sum of the hashes of their values."""
    count, total = duck(f"SELECT count(*), sum({work_tables.CHECKED}) FROM delta_scan('{uri}')")
    return {"rows": count, "sum": int(total)}


def parquet_answer(folder: str) -> Answer:
    """The same for a folder of Parquet files."""
    source = f"read_parquet('{folder}/**/*.parquet', hive_partitioning = true)"
    count, total = duck(f"SELECT count(*), sum({work_tables.CHECKED}) FROM {source}")
    return {"rows": count, "sum": int(total)}


def written_answer(uri: str) -> Answer:
    """`wide_answer` of a written table, whose files must have statistics of all columns."""
    for action in actions(uri):
        if "add" in action:
            stats = json.loads(action["add"]["stats"])
            columns = set(stats["minValues"]) | set(action["add"]["partitionValues"])
            assert "numRecords" in stats, f"no statistics: {stats}"
            assert len(columns) == 8, f"statistics of {columns}"
            assert set(stats["minValues"]) == set(stats["maxValues"]), f"not all statistics: {stats}"
    return wide_answer(uri)


def actions(uri: str) -> Iterator[dict[str, Any]]:
    """The actions of all commits."""
    for path in sorted(Path(uri, "_delta_log").glob("*.json")):
        if path.stem.isdigit():
            yield from map(json.loads, path.read_text().splitlines())


def files_added(uri: str) -> int:
    return sum("add" in action for action in actions(uri))


def live_files(uri: str) -> int:
    table, tail = plain.replay(uri)
    return table.num_rows + len(tail)


def after_partition(uri: str) -> Answer:
    """The number of live files, and the rows of three days of which one was deleted."""
    near = f"SELECT count(*) FROM delta_scan('{uri}') WHERE day BETWEEN {DAY - 1} AND {DAY + 1}"
    return {"files": live_files(uri), "rows": duck(near)[0]}


def after_row(job: Job, uri: str) -> Answer:
    """The number of live files, and the rows of the file of which one row was deleted."""
    first = the_row(job) - 50
    within = f"SELECT count(*) FROM delta_scan('{uri}') WHERE id BETWEEN {first} AND {first + 99}"
    return {"files": live_files(uri), "rows": duck(within)[0]}


def after_convert(uri: str) -> Answer:
    """The number of files in the log of a conversion, and of rows in their statistics."""
    adds = [action["add"] for action in actions(uri) if "add" in action]
    return {"files": len(adds), "rows": sum(json.loads(add["stats"])["numRecords"] for add in adds)}


# --- rows that Spark generates ---

SPARK_ROWS = (
    "id",
    "cast(id % 100000 as int) as quantity",
    "cast(id * 7919 % 10000000 as double) / 100 as price",
    "concat('customer ', id % 50000) as customer",
    "date_add(date '2020-12-04', cast(id % 2000 as int)) as shipped",
    "timestamp_millis(1640000000000 + id * 37) as event_time",
    "cast(cast(id * 31 % 1000000000 as decimal(12, 0)) / 100 as decimal(12, 2)) as amount",
    "cast(id % 1000 as int) as part",
)


def spark_rows(job: Job) -> int:
    return int(work_tables.facts_of(job.uri)["rows"])


def spark_answer(source: str) -> Answer:
    """The number of rows, and a sum over all columns except the price. `source` is DuckDB's table expression."""
    day = "date_diff('day', DATE '2020-12-04', shipped)"
    total = f"id + quantity + length(customer) + {day} + epoch_ms(event_time) + amount * 100 + part"
    count, found = duck(f"SELECT count(*), sum({total}) FROM {source}")
    return {"rows": count, "sum": int(found)}


def after_spark(job: Job) -> Answer:
    n = np.arange(spark_rows(job))
    lengths = 9 + np.char.str_len((np.arange(50_000)).astype(str))
    columns = [n, n % 100_000, lengths[n % 50_000], n % 2_000, 1_640_000_000_000 + n * 37, n * 31 % 10**9, n % 1_000]
    # In halves, since the total exceeds 64 bits.
    return {"rows": len(n), "sum": sum(int(half.sum()) for column in columns for half in np.array_split(column, 64))}


# --- VACUUM ---


def removed_files(job: Job) -> str:
    """A copy of the log, with its live and removed files, all of them empty and old."""
    import os

    facts, uri = work_tables.facts_of(job.uri), table_of(job)
    for folder in range(facts["folders"]):
        os.makedirs(f"{uri}/p={folder}")
    seeds = [f"{job.uri}/seeds/{folder}" for folder in range(facts["folders"])]
    for number in range(facts["files"] + facts["removed"]):
        os.link(seeds[number % facts["folders"]], f"{uri}/{work_tables.removed_path(number)}")
    return uri


def after_vacuum(job: Job, uri: str) -> Answer:
    """The number of files on disk, among which all files of the table must be."""
    left = {str(path.relative_to(uri)) for path in Path(uri).glob("p=*/*")}
    live = {work_tables.removed_path(number) for number in range(work_tables.facts_of(job.uri)["files"])}
    assert live <= left, f"{len(live - left)} files of the table were deleted"
    return {"files": len(left)}


# --- concurrent changes of one table ---


def _writer(uri: str, writer: int, change: Callable[[str, int], bool], ready: Any, results: Any) -> None:
    change(uri, -1)
    ready.wait()
    outcomes = []
    for number in range(CHANGES_EACH):
        began = time.perf_counter()
        outcomes.append((change(uri, row_of(writer, number)), time.perf_counter() - began))
    results.put(outcomes)


def row_of(writer: int, number: int) -> int:
    """The id of a row for one writer, in the range of that writer's own file."""
    return 2 * (writer * 12_500 + number * 200)


def contend(uri: str, change: Callable[[str, int], bool]) -> Iterator[Answer | None]:
    """Concurrent processes that change rows of one table. Failed changes are counted and not retried.

    Each process begins with a change that matches no row, as a warm-up.
    """
    spawn = get_context("spawn")
    ready, results = spawn.Barrier(WRITERS + 1), spawn.Queue()
    writers = [
        spawn.Process(target=_writer, args=(uri, writer, change, ready, results), daemon=True)
        for writer in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    ready.wait(120)
    yield None
    outcomes = [outcome for _ in writers for outcome in results.get(timeout=600)]
    yield None
    for writer in writers:
        writer.join()
    took = sorted(seconds for succeeded, seconds in outcomes if succeeded)
    sql = f"SELECT count(*), count(*) FILTER (value = -1) FROM delta_scan('{uri}')"
    count, changed = duck(sql)
    assert changed == len(took), f"{len(took)} changes succeeded, but {changed} rows are changed"
    slow = round(took[len(took) * 99 // 100] * 1e6) if took else 0
    yield {"done": len(took), "failed": len(outcomes) - len(took), "p99_us": slow, "rows": count}


# --- expected answers ---


def _facts(*names: str) -> Callable[[Job], Answer]:
    return lambda job: {name: work_tables.facts_of(job.uri)[name] for name in names}


def _without_a_day(job: Job) -> Answer:
    facts = work_tables.facts_of(job.uri)
    return {"files": facts["files"] - facts["of_a_day"], "rows": 2 * facts["of_a_day"] * 100}


def _without_a_row(job: Job) -> Answer:
    return {"files": work_tables.facts_of(job.uri)["files"], "rows": 99}


RIGHT: dict[str, Callable[[Job], Answer]] = {
    "read_sorted": after_reading_sorted,
    "read_random": after_reading_random,
    "write_flat": _facts("rows", "sum"),
    "write_flat_synced": _facts("rows", "sum"),
    "write_parts": _facts("rows", "sum"),
    "write_from_spark": after_spark,
    "merge_clustered": lambda job: after_merge(job, spread=False),
    "merge_spread": lambda job: after_merge(job, spread=True),
    "update_marked": after_update,
    "update_rewritten": after_update,
    "delete_day": _without_a_day,
    "delete_row": _without_a_row,
    "delete_row_by_handle": _without_a_row,
    "update_together": _facts("rows"),
    "scan_marked": _facts("rows", "sum"),
    "compact": _facts("rows", "sum"),
    "zorder": _facts("rows", "sum"),
    "vacuum_full": _facts("files"),
    "vacuum_lite": _facts("files"),
    "vacuum_full_store": _facts("files"),
    "vacuum_lite_store": _facts("files"),
    "vacuum_simulated_store": _facts("files"),
    "convert": _facts("rows", "files"),
}
