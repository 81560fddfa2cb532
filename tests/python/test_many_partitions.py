"""Writes to many partitions: one file for each partition, bounded memory, no temporary file left."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sample import adds, open_files

import deltic
from deltic import _deltic
from deltic.write import commit_core
from deltic.writing.options import core_options

PARTITIONS = 700
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.int64()), ("t", pa.string())])


def partitions(count: int) -> list[int]:
    return random.Random(7).choices(range(PARTITIONS), k=count)


def batches(of_rows: list[int]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(of_rows), 1000):
        numbers = list(range(first, first + 1000))
        strings = [f"{n:0>100}" for n in numbers]
        yield pa.record_batch([numbers, of_rows[first : first + 1000], strings], schema=SCHEMA)


def files(uri: str) -> list[Path]:
    return [path for path in Path(uri).rglob("*") if path.is_file() and "_delta_log" not in path.parts]


@pytest.mark.slow
def test_each_partition_has_one_file(uri: str, temporary: Path) -> None:
    of_rows = partitions(40_000)
    seen: list[int] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches(of_rows):
            seen.append(open_files(temporary))
            yield batch

    reader = pa.RecordBatchReader.from_batches(SCHEMA, watched())
    commit = deltic.write(uri, reader, partition_by="p", memory_limit="1 MB")
    assert commit.num_added_files == len(set(of_rows)) == PARTITIONS
    assert max(seen) == 1
    assert open_files(temporary) == 0
    assert list(temporary.iterdir()) == []
    assert len({add["partitionValues"]["p"] for add in adds(uri, 0)}) == PARTITIONS
    read = deltic.Table(uri).scan().to_arrow()
    assert sorted(read["n"].to_pylist()) == list(range(40_000))
    assert [of_rows[n] for n in read["n"].to_pylist()] == read["p"].to_pylist()
    for partition in (0, 1, PARTITIONS - 1):
        rows = deltic.Table(uri).scan(filter=f"p = {partition}").to_arrow()
        # In the order of the input.
        assert rows["n"].to_pylist() == [n for n, of_row in enumerate(of_rows) if of_row == partition]
        assert rows["t"].to_pylist() == [f"{n:0>100}" for n in rows["n"].to_pylist()]


@pytest.mark.slow
def test_a_source_that_fails_leaves_nothing(uri: str, temporary: Path) -> None:
    def fails() -> Iterator[pa.RecordBatch]:
        yield from batches(partitions(20_000))
        assert open_files(temporary) == 1
        raise RuntimeError("the source is gone")

    with pytest.raises(deltic.InvalidInputError, match="the source is gone"):
        deltic.write(uri, pa.RecordBatchReader.from_batches(SCHEMA, fails()), partition_by="p", memory_limit=1 << 20)
    assert not deltic.Table(uri).exists()
    assert files(uri) == []
    assert open_files(temporary) == 0
    assert list(temporary.iterdir()) == []


FULL = """
import resource, sys
import deltic
sys.path[:0] = sys.argv[2:]
from test_many_partitions import SCHEMA, batches, partitions
import pyarrow as pa
deltic.write(sys.argv[1], pa.table({"n": [1], "p": [1], "t": ["a"]}), partition_by="p")
# What the system says of a file that is too long: data files are not.
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
try:
    rows = pa.RecordBatchReader.from_batches(SCHEMA, batches(partitions(40_000)))
    deltic.write(sys.argv[1], rows, memory_limit="1 MB")
except deltic.StorageError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_full_disk_is_an_error(uri: str, temporary: Path) -> None:
    arguments = [sys.executable, "-c", FULL, uri, str(Path(__file__).parent), str(Path(__file__).parents[1])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "TMPDIR" in done.stdout, done.stdout + done.stderr
    assert str(temporary) in done.stdout
    assert "File too large" in done.stdout
    assert deltic.Table(uri).snapshot().version == 0
    assert len(files(uri)) == 1
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_task_has_one_file_for_each_partition(uri: str, temporary: Path) -> None:
    """The same for a task of a Spark executor."""
    deltic.create(uri, SCHEMA, partition_by="p")
    of_rows = partitions(30_000)
    transaction = _deltic.plan_write(deltic.Table(uri)._core, SCHEMA, core_options("append", {"memory_limit": "1 MB"}))
    rows = pa.RecordBatchReader.from_batches(SCHEMA, batches(of_rows))
    written = _deltic.write_files(transaction.write_plan(SCHEMA), None, rows, task=0)
    assert len(written) == len(set(of_rows)) == PARTITIONS
    transaction.append_files(written)
    commit_core(transaction, None)
    assert open_files(temporary) == 0
    assert sorted(deltic.Table(uri).scan().to_arrow()["n"].to_pylist()) == list(range(30_000))
