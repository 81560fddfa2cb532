"""The tables of the cases for writes, row changes and maintenance: files by pyarrow, and a log written by hand.

A name is a kind, followed by `@` and a scale if it is not 1: `keyed@0.01` has a hundredth of the files. All values of a
row are computed from its number, so that the result of a change can be computed too. Known facts about a table are in
its `_facts.json`.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import built
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from logs import noise

Facts = dict[str, Any]
FACTS = "_facts.json"
# A hash over the columns of wide rows, in DuckDB, that is the same for all writers.
CHECKED = (
    "hash(id::BIGINT, quantity::INTEGER, price::DOUBLE, customer::VARCHAR, shipped::DATE, epoch_us(event_time),"
    " amount::DECIMAL(12, 2), part::INTEGER) % 1000003"
)
PARTS = 1_000
# A fixed time in the past, older than the retention of a vacuum.
LONG_AGO = 1_760_000_000
FOREVER = {"delta.logRetentionDuration": "interval 36500 days"}
TYPES = {
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.decimal128(12, 2): "decimal(12,2)",
}


def kind_of(name: str) -> str:
    return name.partition("@")[0]


def scale_of(name: str) -> float:
    return float(name.partition("@")[2] or 1)


def scaled(name: str, scale: float) -> str:
    """The name of a table with its scale multiplied."""
    whole = scale_of(name) * scale
    return kind_of(name) if whole == 1 else f"{kind_of(name)}@{whole:g}"


def facts_of(path: str | Path) -> Facts:
    return dict(json.loads(Path(path, FACTS).read_text()))


# --- rows ---


def wide_rows(first: int, count: int) -> pa.Table:
    """Eight columns, of most types that have statistics."""
    n = np.arange(first, first + count, dtype=np.uint64)

    def below(most: int, salt: int) -> np.ndarray:
        return (noise(n, salt) % np.uint64(most)).astype(np.int64)

    names = pa.array([f"customer {number:05}" for number in range(50_000)])
    cents = np.zeros((count, 2), np.int64)
    cents[:, 0] = below(10**9, 5)
    milliseconds = 1_640_000_000_000 + n.astype(np.int64) * 37 + below(10_000, 6)
    return pa.table(
        {
            "id": n.astype(np.int64),
            "quantity": pa.array(below(100_000, 1).astype(np.int32)),
            "price": below(10_000_000, 2) / 100,
            "customer": names.take(pa.array(below(50_000, 3))),
            "shipped": pa.array((18_600 + below(2_000, 4)).astype(np.int32)).cast(pa.date32()),
            "event_time": pa.array(milliseconds * 1_000).cast(pa.timestamp("us", "UTC")),
            "amount": pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(cents)]),
            "part": pa.array(below(PARTS, 7).astype(np.int32)),
        }
    )


def keyed_rows(first: int, count: int) -> pa.Table:
    """Even ids in order; `value` is the number of the row modulo 1,000."""
    k = np.arange(first, first + count)
    labels = pa.array([f"item {number}" for number in range(5_000)])
    return pa.table(
        {"id": k * 2, "value": k % 1_000, "label": labels.take(pa.array(k % 5_000)), "price": k * 7_919 % 10_007 / 100}
    )


def sum_of_values(rows: int) -> int:
    whole, rest = divmod(rows, 1_000)
    return whole * 499_500 + rest * (rest - 1) // 2


def keyed_facts(rows: int, **more: int) -> Facts:
    """The facts of a keyed table; `sum` is that of ids and values."""
    return {"rows": rows, "sum": rows * (rows - 1) + sum_of_values(rows), **more}


# --- the log ---


def _text(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        text = value.isoformat()
        # Timestamps of these tables are whole milliseconds.
        return text if "T" not in text else f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1_000:03}Z"
    return float(value) if value.__class__.__name__ == "Decimal" else value


def statistics(rows: pa.Table) -> str:
    least, greatest, nulls = {}, {}, {}
    for name in rows.column_names:
        bounds = pc.min_max(rows[name]).as_py()
        least[name], greatest[name], nulls[name] = _text(bounds["min"]), _text(bounds["max"]), rows[name].null_count
    return json.dumps({"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def add(path: str, size: int, stats: str, partition: dict[str, str] | None = None) -> Facts:
    values = {"partitionValues": partition or {}, "size": size, "modificationTime": LONG_AGO * 1_000}
    return {"path": path, **values, "dataChange": True, "stats": stats}


def definition(
    schema: pa.Schema, partition_by: tuple[str, ...] = (), properties: dict[str, str] | None = None
) -> list[Facts]:
    """The protocol and metadata actions of a table without features."""
    fields = [{"name": f.name, "type": TYPES[f.type], "nullable": True, "metadata": {}} for f in schema]
    metadata = {
        "id": "00000000-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partition_by),
        "configuration": FOREVER | (properties or {}),
        "createdTime": LONG_AGO * 1_000,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def with_vectors(log: Path) -> None:
    """Add a commit that enables deletion vectors."""
    first = [json.loads(line) for line in (log / f"{0:020}.json").open() if line.startswith('{"metaData"')]
    metadata = first[0]["metaData"]
    metadata["configuration"]["delta.enableDeletionVectors"] = "true"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["appendOnly", "invariants"]}  # type: ignore[dict-item]
    protocol["writerFeatures"] += ["deletionVectors"]  # type: ignore[operator]
    newest = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())
    commit(log, newest + 1, [{"protocol": protocol}, {"metaData": metadata}])


def commit(log: Path, version: int, actions: list[Facts] | Iterator[Facts]) -> None:
    log.mkdir(parents=True, exist_ok=True)
    path = log / f"{version:020}.json"
    with path.open("w") as file:
        info = {"timestamp": LONG_AGO * 1_000 + version, "operation": "WRITE", "operationParameters": {}}
        for action in ({"commitInfo": info}, *actions):
            file.write(json.dumps(action, separators=(",", ":")) + "\n")
    os.utime(path, (LONG_AGO + version, LONG_AGO + version))


def put(root: Path, path: str, rows: pa.Table) -> int:
    """Write a data file; return its size."""
    file = root / path
    pq.write_table(rows, file, compression="snappy")
    os.utime(file, (LONG_AGO, LONG_AGO))
    return file.stat().st_size


# --- kinds ---


def checked_sum(source: str, **tables: pa.Table) -> Facts:
    """The number of rows of a table expression in DuckDB, and the sum of their hashes."""
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    rows, total = connection.execute(f"SELECT count(*), sum({CHECKED}) FROM {source}").fetchall()[0]
    return {"rows": rows, "sum": int(total)}


def _wide(root: Path, scale: float) -> Facts:
    """Rows as an Arrow file, the input of writes, and as a table."""
    rows, files = round(20_000_000 * scale), max(4, round(20 * scale))
    adds, step = [], -(-rows // files)
    schema = wide_rows(0, 1).schema
    total: Facts = {"rows": 0, "sum": 0}
    with pa.ipc.new_file(root / "rows.arrow", schema) as sink:
        for number in range(files):
            part = wide_rows(number * step, min(step, rows - number * step))
            sink.write_table(part, max_chunksize=131_072)
            path = f"part-{number:05}.parquet"
            adds.append({"add": add(path, put(root, path, part), statistics(part))})
            known = checked_sum("part", part=part)
            total = {name: total[name] + known[name] for name in total}
    commit(root / "_delta_log", 0, [*definition(schema), *adds])
    return total


def _keyed(root: Path, scale: float) -> Facts:
    files, each = max(10, round(1_000 * scale)), 100_000
    adds = []
    for number in range(files):
        rows, path = keyed_rows(number * each, each), f"part-{number:05}.parquet"
        adds.append({"add": add(path, put(root, path, rows), statistics(rows))})
    commit(root / "_delta_log", 0, [*definition(rows.schema), *adds])
    return keyed_facts(files * each, files=files)


def _fifth(root: Path, scale: float) -> Facts:
    """The first fifth of the keyed table's files."""
    source = Path(table(scaled("keyed", scale)))
    files = facts_of(source)["files"] // 5
    lines = (source / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    adds = [action for action in kept if "add" in action][:files]
    for action in adds:
        os.link(source / action["add"]["path"], root / action["add"]["path"])
    commit(
        root / "_delta_log", 0, [*(action for action in kept if "protocol" in action or "metaData" in action), *adds]
    )
    return keyed_facts(files * 100_000, files=files)


def _marked(root: Path, scale: float) -> Facts:
    """The same table with a thousandth of the rows of each file deleted by deltic's deletion vectors."""
    import deltic

    source = Path(table(scaled("fifth", scale)))
    link(source, root)
    with_vectors(root / "_delta_log")
    deltic.Table(str(root)).delete("value = 7")
    known = facts_of(source)
    gone = known["rows"] // 1_000
    # The deleted ids: twice 7, 1,007, 2,007 and so on.
    ids = 2 * (7 * gone + 1_000 * (gone * (gone - 1) // 2))
    return {**known, "rows": known["rows"] - gone, "sum": known["sum"] - ids - 7 * gone}


def _contended(root: Path, scale: float) -> Facts:
    """A table with one file for all processes, and the table `apart` with one file for each."""
    writers, each = 8, 12_500
    whole, shares = keyed_rows(0, writers * each), root / "apart"
    shares.mkdir()
    one = add("part-0.parquet", put(root, "part-0.parquet", whole), statistics(whole))
    commit(root / "_delta_log", 0, [*definition(whole.schema), {"add": one}])
    adds = []
    for writer in range(writers):
        rows, path = whole.slice(writer * each, each), f"part-{writer}.parquet"
        adds.append({"add": add(path, put(shares, path, rows), statistics(rows))})
    commit(shares / "_delta_log", 0, [*definition(whole.schema), *adds])
    return keyed_facts(writers * each, files=1)


def _small(root: Path, scale: float) -> Facts:
    """Files of about 100 KB."""
    files, each = max(20, round(10_000 * scale)), 2_200
    rows = wide_rows(0, each)
    adds, stats = [], statistics(rows)
    for number in range(files):
        rows = rows.set_column(0, "id", pa.array(np.arange(number * each, (number + 1) * each)))
        path = f"part-{number:05}.parquet"
        stats = stats_with_ids(stats, number * each, each)
        adds.append({"add": add(path, put(root, path, rows), stats)})
    commit(root / "_delta_log", 0, [*definition(rows.schema), *adds])
    return {**checked_sum(f"read_parquet('{root}/*.parquet')"), "files": files}


def stats_with_ids(stats: str, first: int, count: int) -> str:
    parsed = json.loads(stats)
    parsed["minValues"]["id"], parsed["maxValues"]["id"] = first, first + count - 1
    return json.dumps(parsed)


def _many(root: Path, scale: float) -> Facts:
    """Files of a hundred rows in folders by day, in a checkpoint by deltic."""
    import deltic

    each, a_day = 100, 100
    files = max(1_000, round(100_000 * scale))
    days = max(10, files // a_day)
    adds = []
    for number in range(files):
        rows = pa.table({"id": np.arange(number * each, (number + 1) * each), "value": np.arange(each)})
        day = number * days // files
        path = f"day={day}/part-{number:06}.parquet"
        (root / f"day={day}").mkdir(exist_ok=True)
        bounds = [{"id": number * each + edge, "value": edge} for edge in (0, each - 1)]
        stats = {"numRecords": each, "minValues": bounds[0], "maxValues": bounds[1], "nullCount": {"id": 0, "value": 0}}
        adds.append({"add": add(path, put(root, path, rows), json.dumps(stats), {"day": str(day)})})
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("day", pa.int32())])
    commit(root / "_delta_log", 0, [*definition(schema, ("day",)), *adds])
    deltic.Table(str(root)).checkpoint()
    return {"rows": files * each, "files": files, "of_a_day": sum(1 for n in range(files) if n * days // files == 3)}


def _removed(root: Path, scale: float) -> Facts:
    """A log with removed files. The files are created for each run, which deletes them."""
    files, folders, live = round(1_000_000 * scale), 100, 1_000
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32())])

    def action(number: int) -> Facts:
        values = {"p": str(number % folders)}
        if number < live:
            return {"add": add(removed_path(number), 0, '{"numRecords":1}', values)}
        gone = {"path": removed_path(number), "deletionTimestamp": LONG_AGO * 1_000, "dataChange": True}
        return {"remove": {**gone, "extendedFileMetadata": True, "partitionValues": values, "size": 0}}

    commit(root / "_delta_log", 0, [*definition(schema, ("p",)), *map(action, range(live))])
    step = -(-files // 10)
    for place in range(10):
        last = min(files, (place + 1) * step)
        commit(root / "_delta_log", place + 1, map(action, range(live + place * step, live + last)))
    for folder in range(folders):
        seed = root / "seeds" / f"{folder}"
        seed.parent.mkdir(exist_ok=True)
        seed.touch()
        os.utime(seed, (LONG_AGO, LONG_AGO))
    return {"files": live, "removed": files, "folders": folders}


def removed_path(number: int) -> str:
    return f"p={number % 100}/part-{number:07}.snappy.parquet"


KINDS: dict[str, Callable[[Path, float], Facts]] = {
    "wide": _wide,
    "keyed": _keyed,
    "fifth": _fifth,
    "marked": _marked,
    "contended": _contended,
    "small": _small,
    "many": _many,
    "removed": _removed,
}
# Entries of a table's folder that are not part of the table.
ASIDE = (FACTS, "rows.arrow", "seeds", "apart")


def link(source: Path, target: Path, only: Callable[[str], bool] = lambda _: True) -> None:
    """A copy of a table made of links, since files of a table are never modified. `only`: the data files to link."""
    for folder, folders, found in os.walk(source):
        inside = os.path.relpath(folder, source)
        aside = ASIDE if inside == "." else ()
        folders[:] = [name for name in folders if name not in aside]
        names = [name for name in found if name not in aside]
        is_log = inside.startswith("_delta_log")
        os.makedirs(target / inside, exist_ok=True)
        for name in names:
            if is_log or only(os.path.normpath(os.path.join(inside, name))):
                os.link(os.path.join(folder, name), target / inside / name)


def _build(name: str, uri: str) -> None:
    root = Path(uri)
    root.mkdir(parents=True)
    facts = KINDS[kind_of(name)](root, scale_of(name))
    (root / FACTS).write_text(json.dumps({"scale": scale_of(name), **facts}))


def table(name: str) -> str:
    """The location of a table, which is built if needed."""
    return built.table(name, _build, __file__)
