"""The memory and the types of an inventory of a vacuum."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltic

LARGE = """
import resource
import sys
import time

import pyarrow as pa

import deltic

uri, batches, rows = sys.argv[1], int(sys.argv[2]), 10_000
now = int(time.time() * 1000)
schema = pa.schema({"path": pa.string(), "length": pa.int64(), "isDir": pa.bool_(), "modificationTime": pa.int64()})


def made():
    for number in range(batches):
        # Short names, since the strings of Python are not what is measured.
        names = [f"p={'x' * 200}/{number}-{row}.parquet" for row in range(rows)]
        yield pa.record_batch([names, [1] * rows, [False] * rows, [now] * rows], schema=schema)


table = deltic.Table(uri)
table.vacuum(dry_run=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = table.vacuum(inventory=pa.RecordBatchReader.from_batches(schema, made()))
print(result.files_seen, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_an_inventory_is_read_in_bounded_memory(uri: str) -> None:
    """A million paths of 220 bytes are 220 MB; their hashes are 8 MB."""
    deltic.write(uri, pa.table({"id": [1]}))
    run = subprocess.run([sys.executable, "-c", LARGE, uri, "100"], capture_output=True, text=True, check=True)
    seen, grown_mb = map(int, run.stdout.split())
    assert seen == 1_000_000
    assert grown_mb < 80


def orphan(folder: str, name: str) -> str:
    Path(folder, name).write_bytes(b"old!")
    return name


def stream(batches: list[dict[str, Any]], error: Exception | None = None) -> pa.RecordBatchReader:
    """An inventory that can be read once; at its end it may fail."""
    made = [pa.RecordBatch.from_pydict(batch) for batch in batches]

    def each() -> Iterator[pa.RecordBatch]:
        yield from made
        if error is not None:
            raise error

    return pa.RecordBatchReader.from_batches(made[0].schema, each())


def listed(*paths: str, time_ms: int = 0) -> dict[str, Any]:
    count = len(paths)
    return {
        "path": list(paths),
        "length": [4] * count,
        "isDir": [False] * count,
        "modificationTime": [time_ms] * count,
    }


def test_the_latest_time_counts_across_batches(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    old, young, twice = (orphan(uri, f"{name}.parquet") for name in ("old", "young", "twice"))
    now = int(time.time() * 1000)
    batches = [listed(old, young, twice), listed(twice), listed(f"{table.uri}/{young}", time_ms=now)]
    result = table.vacuum(inventory=stream(batches))
    assert (result.files_seen, result.files_deleted) == (3, 2)
    assert {path.name for path in Path(uri).glob("*.parquet")} & {old, young, twice} == {young}


def test_no_file_is_deleted_if_an_inventory_is_wrong_at_its_end(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    left = [orphan(uri, f"{number}.parquet") for number in range(5)]
    with pytest.raises(deltic.InvalidInputError, match="not below the table"):
        table.vacuum(inventory=stream([listed(*left), listed("/elsewhere/a.parquet")]))
    with pytest.raises(deltic.InvalidInputError, match="the data could not be read: ZeroDivisionError"):
        table.vacuum(inventory=stream([listed(*left)], ZeroDivisionError()))
    with pytest.raises(deltic.InvalidInputError, match="row 5 of the inventory lacks its path"):
        table.vacuum(inventory=stream([listed(*left), {**listed("a"), "path": pa.array([None], pa.string())}]))
    assert all(Path(uri, name).exists() for name in left)
    assert table.vacuum(inventory=stream([listed(*left)])).files_deleted == 5


def test_of_folders_nothing_is_looked_at(uri: str) -> None:
    """Their values need not be numbers, nor times in milliseconds."""
    deltic.write(uri, pa.table({"id": [1]}))
    name = orphan(uri, "left.parquet")
    files = {
        "path": [None, name, "folder", "p=1"],
        "length": ["-", "4", "none", None],
        "isDir": ["true", "false", "1", "true"],
        "modificationTime": [None, 0, 1_500_000_000, None],
    }
    assert deltic.Table(uri).vacuum(inventory=pa.table(files)).files_deleted == 1
    missing = pa.table({**files, "path": [None, name, "folder", None], "isDir": [True, False, True, False]})
    with pytest.raises(deltic.InvalidInputError, match="row 3 of the inventory lacks its path"):
        deltic.Table(uri).vacuum(inventory=missing.set_column(1, "length", [[None, "4", None, "1"]]))


NUMBERS = {
    "small": pa.array([0, 0], pa.int32()),
    "fractions": pa.array([0.0, None], pa.float64()),
    "decimals": pa.array([0, 0], pa.decimal128(20, 0)),
    "strings": pa.array(["0", "0"]),
    "dictionary": pa.array(["0", "0"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_columns_of_other_types_are_converted(uri: str, kind: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    paths = [orphan(uri, "a.parquet"), orphan(uri, "b.parquet")]
    numbers = NUMBERS[kind]
    inventory = {**listed(*paths), "length": numbers, "path": pa.array(paths, pa.large_string())}
    inventory["modificationTime"] = pa.array([0, 0]) if numbers.null_count else numbers
    inventory["isDir"] = pa.array([0, 1])
    assert table.vacuum(inventory=pa.table(inventory)).files_deleted == 1
    assert not Path(uri, "a.parquet").exists()
    assert Path(uri, "b.parquet").exists()


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1795878404]),
        pa.array([1795878404.0]),
        pa.array([1795878404.35]),
        pa.array([Decimal("1795878404.35")], pa.decimal128(20, 2)),
        pa.array([1795878404350.5]),
    ],
    ids=str,
)
def test_times_in_seconds_are_refused(uri: str, times: pa.Array) -> None:
    """As milliseconds they would be in 1970, so young files would be deleted."""
    deltic.write(uri, pa.table({"id": [1]}))
    orphan(uri, "a.parquet")
    inventory = pa.table({"path": ["a.parquet"], "length": [4], "isDir": [False], "modificationTime": times})
    with pytest.raises(deltic.InvalidInputError, match=r"milliseconds|fractions"):
        deltic.Table(uri).vacuum(inventory=inventory)
    assert Path(uri, "a.parquet").exists()


def test_a_purge_needs_no_temporary_folder(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deltic.write(uri, pa.table({"id": [1, 2]}))
    monkeypatch.setenv("TMPDIR", str(Path(uri, "missing")))
    table = deltic.Table(uri)
    table.purge(where="id = 1")
    assert table.scan().to_arrow().column("id").to_pylist() == [2]
