"""Parts that the cases with writes share: the table, the appended rows, and the expected answers."""

import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import plain
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from job import Answer, Job, copy_of_log

APPENDS = 200
WRITERS, APPENDS_EACH = 4, 50
# Appends of a long log, and the number at its beginning and end that are compared.
LONG, COMPARED = 1_000, 50
TINY = pa.table({"id": pa.array([1, 2, 3]), "name": pa.array(["one", "two", "three"])})
AN_EVENT = pa.table(
    {
        "event_id": pa.array([1]),
        "quantity": pa.array([2], pa.int32()),
        "price": pa.array([3.5]),
        "customer": pa.array(["customer 4"]),
        "shipped": pa.array([18_993], pa.int32()).cast(pa.date32()),
        "event_time": pa.array([1_640_000_000_000_000]).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array([Decimal(6)], pa.decimal128(12, 2)),
        "device": pa.array(
            [{"temperature": 7.5, "model": "eight"}], pa.struct({"temperature": pa.float64(), "model": pa.string()})
        ),
        "p_date": pa.array([18_993], pa.int32()).cast(pa.date32()),
    }
)
# One filter for each column with statistics or partition values. No file matches any of them.
NOTHING = [
    "event_id < 0",
    "quantity < 0",
    "price < 0",
    "customer < 'a'",
    "shipped < DATE '1970-01-01'",
    "event_time < TIMESTAMP '1970-01-01T00:00:00Z'",
    "amount < 0",
    "device.temperature < -300",
    "p_date < DATE '1970-01-01'",
]


def small_table(job: Job) -> str:
    """An empty table with the columns of `TINY`, the same for all engines."""
    import deltic

    uri = str(job.scratch / "small")
    deltic.create(uri, TINY.schema)
    return uri


def files_of(uri: str) -> Answer:
    table, tail = plain.replay(uri)
    return {"files": table.num_rows + len(tail)}


def rows_committed(uri: str) -> Answer:
    """The number of rows in the footers of a table's live files."""
    table, tail = plain.replay(uri)
    paths = [*(table["path"].to_pylist() if table.num_rows else []), *(add["path"] for add in tail)]
    return {"rows": sum(pq.read_metadata(Path(uri, path)).num_rows for path in paths)}


def log_to_checkpoint(job: Job) -> str:
    """A copy whose properties request statistics only as JSON, as some peers always write them, unless `typed`."""
    uri = copy_of_log(job)
    if not job.typed:
        log = Path(uri, "_delta_log")
        _, (checkpoint,) = plain.last_checkpoint(log)
        # In batches, since this memory counts for what is measured afterwards.
        batches = pq.ParquetFile(checkpoint).iter_batches(columns=["metaData"])
        (metadata,) = (row for batch in batches for row in batch["metaData"].drop_null().to_pylist())
        metadata["format"]["options"] = {}
        metadata["configuration"] = {**dict(metadata["configuration"]), "delta.checkpoint.writeStatsAsStruct": "false"}
        newest = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())
        (log / f"{newest + 1:020}.json").write_text(json.dumps({"metaData": metadata}))
    return uri


def written_checkpoint(uri: str) -> Answer:
    """The answer from the newest checkpoint, after which there must be no commit."""
    log = Path(uri, "_delta_log")
    version, paths = plain.last_checkpoint(log)
    parts = [rows for path in paths if (rows := plain.checkpoint_rows(path)) is not None]
    newest = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())
    assert version == newest, f"the newest checkpoint is of version {version}, not {newest}"
    sizes = [int(pc.sum(rows["size"]).as_py()) for rows in parts]
    return {"files": sum(rows.num_rows for rows in parts), "bytes": sum(sizes)}


def timed_appends(append: Callable[[], object]) -> Answer:
    """Many appends to one table: the mean microseconds of the first and the last ones."""
    took = []
    for _ in range(LONG):
        began = time.perf_counter()
        append()
        took.append(time.perf_counter() - began)

    def mean(part: list[float]) -> int:
        return round(sum(part) / len(part) * 1e6)

    return {"first_us": mean(took[:COMPARED]), "last_us": mean(took[-COMPARED:])}


def _writer(uri: str, append: Callable[[str], bool], ready: Any, results: Any) -> None:
    ready.wait()
    outcomes = []
    for _ in range(APPENDS_EACH):
        began = time.perf_counter()
        outcomes.append((append(uri), time.perf_counter() - began))
    results.put(outcomes)


def contend(job: Job, append: Callable[[str], bool]) -> Iterator[Answer | None]:
    """Concurrent processes that append to one table. Failed appends are counted and not retried."""
    uri, spawn = small_table(job), get_context("spawn")
    ready, results = spawn.Barrier(WRITERS + 1), spawn.Queue()
    writers = [spawn.Process(target=_writer, args=(uri, append, ready, results), daemon=True) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    ready.wait(60)
    yield None
    outcomes = [outcome for _ in writers for outcome in results.get(timeout=120)]
    yield None
    for writer in writers:
        writer.join()
    rows = rows_committed(uri)["rows"]
    took = sorted(seconds for succeeded, seconds in outcomes if succeeded)
    assert rows == len(took) * TINY.num_rows, f"{len(took)} appends succeeded, but the table has {rows} rows"
    slow = took[len(took) * 99 // 100]
    yield {"done": len(took), "failed": len(outcomes) - len(took), "p99_us": round(slow * 1e6)}
