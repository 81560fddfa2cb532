"""The tables that benchmarks read, built by name into a folder and kept there: the same name is the same table."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import deltic


def _log_of_files(uri: str, files: int) -> None:
    """A table of `files` files that exist only in its log, in commits of 10,000, partitioned by day."""
    log = Path(uri, "_delta_log")
    log.mkdir(parents=True)
    fields = [("day", "date"), ("id", "long"), ("price", "decimal(12,2)"), ("note", "string")]
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    metadata = {
        "id": "00000000-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": ["day"],
        "configuration": {},
        "createdTime": 0,
    }
    opening = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for version, start in enumerate(range(0, files, 10_000)):
        with (log / f"{version:020}.json").open("w") as commit:
            for action in opening if version == 0 else []:
                commit.write(json.dumps(action) + "\n")
            for i in range(start, min(start + 10_000, files)):
                day = f"2025-{i * 12 // files + 1:02}-{i % 28 + 1:02}"
                stats = {
                    "numRecords": 1000,
                    "minValues": {"id": i * 1000, "price": i % 97, "note": f"note {i:09}"},
                    "maxValues": {"id": i * 1000 + 999, "price": i % 97 + 100, "note": f"note {i:09} zzz"},
                    "nullCount": {"id": 0, "price": i % 3, "note": 0},
                }
                add = {
                    "path": f"day={day}/part-{i:09}-1b4e28ba-2fa1-41d2-883f-0016d3cca427.c000.snappy.parquet",
                    "partitionValues": {"day": day},
                    "size": 10_000_000 + i,
                    "modificationTime": 0,
                    "dataChange": True,
                    "stats": json.dumps(stats),
                }
                commit.write(json.dumps({"add": add}) + "\n")
    deltic.Table(uri).checkpoint()


def rows(count: int) -> pa.Table:
    """Rows with numbers, text and a partition column, the same each time."""
    random = np.random.default_rng(7)
    return pa.table(
        {
            "part": pa.array(np.arange(count) * 8 // count, pa.int32()),
            "id": np.arange(count),
            "price": random.normal(100, 25, count).round(2),
            "place": pa.array(np.char.add("place ", random.integers(0, 5000, count).astype(str))),
        }
    )


def _table_of_rows(uri: str, count: int) -> None:
    table = rows(count)
    step = -(-count // 16)
    for start in range(0, count, step):
        deltic.write(uri, table.slice(start, step), partition_by=["part"])


TABLES: dict[str, Callable[[str], None]] = {
    "files_10k": lambda uri: _log_of_files(uri, 10_000),
    "files_100k": lambda uri: _log_of_files(uri, 100_000),
    "files_1m": lambda uri: _log_of_files(uri, 1_000_000),
    "rows_100k": lambda uri: _table_of_rows(uri, 100_000),
    "rows_5m": lambda uri: _table_of_rows(uri, 5_000_000),
}


def table(name: str, folder: Path) -> str:
    """Location of a table, built if it is not there in full."""
    path, done = folder / name, folder / f"{name}.built"
    if not done.exists():
        shutil.rmtree(path, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        TABLES[name](str(path))
        done.touch()
    return str(path)
