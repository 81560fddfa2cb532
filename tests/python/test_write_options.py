"""Options of a write: effects on the table and its files; wrong options are refused without a write."""

import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample import adds, log_actions

import deltic

ROW = pa.table({"n": [1], "p": ["a"]})


def files(uri: str) -> list[Path]:
    return sorted(path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts)


def info(uri: str, version: int) -> dict[str, Any]:
    return next(action["commitInfo"] for action in log_actions(uri, version) if "commitInfo" in action)


def test_ignore_makes_a_table_and_leaves_one_alone(uri: str) -> None:
    made = deltic.write(uri, ROW, mode="ignore")
    assert (made.version, made.attempts, made.num_added_files) == (0, 1, 1)
    deltic.write(uri, ROW)
    before = files(uri)

    def unread() -> Iterator[pa.RecordBatch]:
        raise AssertionError("the data is read")
        yield

    for target in (uri, deltic.Table(uri)):
        rows = pa.RecordBatchReader.from_batches(pa.schema([("other", pa.string())]), unread())
        left = deltic.write(target, rows, mode="ignore")
        assert (left.version, left.attempts, left.num_added_files) == (1, 0, 0)
    assert files(uri) == before
    assert info(uri, 0)["operationParameters"]["mode"] == "Ignore"


@pytest.mark.parametrize("mode", ["ignore", "error"])
def test_one_of_two_writers_creates_the_table(uri: str, mode: Any) -> None:
    """The second writer begins before the first commits, and notices it at its own commit."""
    begun = threading.Event()
    over = threading.Event()

    def rows(n: int) -> Iterator[pa.RecordBatch]:
        begun.set()
        assert over.wait(60)
        yield pa.record_batch({"n": [n]})

    late: list[Any] = []
    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), rows(2))

    def write() -> None:
        try:
            late.append(deltic.write(uri, reader, mode=mode))
        except deltic.DelticError as error:
            late.append(type(error))

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(60)
    deltic.write(uri, pa.table({"n": [1]}), mode=mode)
    over.set()
    thread.join()
    (outcome,) = late
    if mode == "ignore":
        assert (outcome.version, outcome.attempts) == (0, 0)
    else:
        assert outcome is deltic.TableExistsError
    assert deltic.Table(uri).scan().to_arrow()["n"].to_pylist() == [1]
    assert len(files(uri)) == 1, "the loser's file is deleted"


OPTIONS = inspect.signature(deltic.write).parameters.keys() - {"uri_or_table", "data", "storage_options"}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_is_passed_on(uri: str, option: str) -> None:
    """An option that was not passed on would not be refused."""
    with pytest.raises(deltic.InvalidInputError, match=option):
        deltic.write(uri, ROW, **{option: object()})
    assert not deltic.Table(uri).exists()


def test_a_single_column_name_instead_of_a_list(uri: str) -> None:
    deltic.write(uri, ROW, partition_by="p", sort_by="n")
    assert deltic.Table(uri).snapshot().partition_columns == ["p"]
    deltic.write(uri, ROW, partition_by="p")
    with pytest.raises(deltic.InvalidInputError, match=r"partitioned by \[p\], not by \[n\]"):
        deltic.write(uri, ROW, partition_by="n")


def by_partition(uri: str) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for row in deltic.Table(uri).scan().to_arrow().to_pylist():
        found.setdefault(row["p"], []).append(row["n"])
    return {partition: sorted(numbers) for partition, numbers in found.items()}


@pytest.mark.slow
def test_only_the_partitions_of_the_data_are_replaced(uri: str) -> None:
    deltic.write(uri, pa.table({"p": ["a", "a", "b", None, "c d"], "n": [1, 2, 3, 4, 5]}), partition_by="p")
    deltic.write(uri, pa.table({"p": ["a", "b"], "n": [6, 7]}))

    def replace(data: pa.Table, **options: Any) -> deltic.Commit:
        return deltic.write(uri, data, mode="overwrite", partition_overwrite="dynamic", **options)

    commit = replace(pa.table({"p": ["a", "e"], "n": [8, 9]}))
    assert commit.metrics["numRemovedFiles"] == 2
    assert by_partition(uri) == {"a": [8], "b": [3, 7], None: [4], "c d": [5], "e": [9]}
    replace(pa.table({"p": pa.array([None, "c d"], pa.string()), "n": [10, 11]}))
    assert by_partition(uri) == {"a": [8], "b": [3, 7], None: [10], "c d": [11], "e": [9]}
    assert replace(pa.table({"p": pa.array([], pa.string()), "n": pa.array([], pa.int64())})).num_added_files == 0
    assert sum(map(len, by_partition(uri).values())) == 6


def test_concurrent_writes_to_replaced_partitions_conflict(uri: str) -> None:
    deltic.write(uri, pa.table({"p": ["a", "b"], "n": [1, 2]}), partition_by="p")

    def with_others(theirs: pa.Table) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"p": ["a"], "n": [3]})
        deltic.write(uri, theirs)

    def replace(theirs: pa.Table) -> deltic.Commit:
        rows = pa.RecordBatchReader.from_batches(
            pa.schema([("p", pa.string()), ("n", pa.int64())]), with_others(theirs)
        )
        return deltic.write(uri, rows, mode="overwrite", partition_overwrite="dynamic")

    assert replace(pa.table({"p": ["b"], "n": [4]})).attempts == 2
    assert by_partition(uri) == {"a": [3], "b": [2, 4]}
    before = len(files(uri))
    with pytest.raises(deltic.ConcurrentAppendError):
        replace(pa.table({"p": ["a"], "n": [5]}))
    assert by_partition(uri) == {"a": [3, 5], "b": [2, 4]}
    assert len(files(uri)) == before + 1, "the loser's files are deleted"


def test_rearranged_rows_are_no_data_change(uri: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match="data_change=False needs an existing table"):
        deltic.write(uri, ROW, data_change=False)
    assert not deltic.Table(uri).exists()
    deltic.write(uri, ROW, properties={"delta.enableChangeDataFeed": "true"})
    deltic.write(uri, ROW)
    deltic.write(uri, deltic.Table(uri).scan(), mode="overwrite", data_change=False)
    actions = [action for action in log_actions(uri, 2) if "add" in action or "remove" in action]
    assert [next(iter(action.values()))["dataChange"] for action in actions] == [False] * 3
    assert info(uri, 2)["isolationLevel"] == "SnapshotIsolation"
    assert deltic.Table(uri).changes(start=1).to_arrow().num_rows == 1
    assert deltic.Table(uri).scan().to_arrow().num_rows == 2


def test_limits_of_rows_in_files_and_row_groups(uri: str) -> None:
    deltic.write(uri, pa.table({"n": range(100)}), max_rows_per_file=40, row_group_rows=15)
    found = [pq.ParquetFile(file).metadata for file in files(uri)]
    assert sorted(file.num_rows for file in found) == [20, 40, 40]
    groups = [[file.row_group(at).num_rows for at in range(file.num_row_groups)] for file in found]
    assert sorted(groups) == [[15, 5], [15, 15, 10], [15, 15, 10]]
    assert sorted(deltic.Table(uri).scan().to_arrow()["n"].to_pylist()) == list(range(100))


def test_rows_are_sorted_in_each_file(uri: str) -> None:
    numbers = [at * 7919 % 1009 for at in range(1000)]
    table = pa.table({"n": [None if n % 10 == 0 else n for n in numbers], "p": [n % 3 for n in numbers]})
    deltic.write(uri, table.to_reader(max_chunksize=37), partition_by="p", sort_by=["n"])
    for file in files(uri):
        found = pq.read_table(file, partitioning=None)["n"].to_pylist()
        assert found == sorted(found, key=lambda n: (n is not None, n))
    assert deltic.Table(uri).scan().to_arrow().num_rows == 1000


def test_columns_are_encoded_as_chosen(uri: str) -> None:
    rows = pa.table({"n": range(1000), "s": [{"a": f"x{n % 5}", "b": n} for n in range(1000)]})
    chosen = {
        "n": {"encoding": "delta_binary_packed", "bloom_filter": True},
        "s.a": {"dictionary": False, "compression": "gzip", "compression_level": 9},
        "s.b": {"bloom_filter": {"fpp": 0.1, "ndv": 50}},
    }
    deltic.write(uri, rows, column_options=chosen, compression="snappy")
    (file,) = files(uri)
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at).to_dict() for at in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["n"]["encodings"]
    assert "RLE_DICTIONARY" not in columns["s.a"]["encodings"]
    assert [columns[name]["compression"] for name in ("n", "s.a", "s.b")] == ["SNAPPY", "GZIP", "SNAPPY"]
    assert deltic.Table(uri).scan(filter="n = 7").to_arrow().to_pylist() == [{"n": 7, "s": {"a": "x2", "b": 7}}]
    stats = adds(uri, 0)[0]["stats"]
    assert (stats["minValues"], stats["maxValues"]["s"]) == ({"n": 0, "s": {"a": "x0", "b": 0}}, {"a": "x4", "b": 999})


def test_commit_info_has_the_members_of_the_caller(uri: str) -> None:
    members = {"job_id": "nightly", "rows": [1, 2.5, None], "from": {"file": Path("in")}, "userName": "ann"}
    deltic.write(uri, ROW, commit_info=members)
    kept = {**members, "from": {"file": "in"}}
    assert {name: info(uri, 0)[name] for name in members} == kept
    assert deltic.Table(uri).history()[0]["job_id"] == "nightly"
    with deltic.Table(uri).transaction(commit_info={"job_id": 2}) as tx:
        tx.append(ROW)
    assert info(uri, 1)["job_id"] == 2


def test_a_write_gives_up_after_so_many_attempts(uri: str) -> None:
    deltic.write(uri, ROW)
    table = deltic.Table(uri)
    assert table.snapshot().version == 0

    def rows() -> Iterator[pa.RecordBatch]:
        deltic.write(uri, ROW)
        yield pa.record_batch(ROW.to_batches()[0])

    reader = pa.RecordBatchReader.from_batches(ROW.schema, rows())
    with pytest.raises(deltic.StorageError, match="attempts"):
        deltic.write(table, reader, max_attempts=1)
    assert table.snapshot().version == 1


REFUSED: dict[str, dict[str, Any]] = {
    "mode must be 'append', 'overwrite', 'error' or 'ignore', not 'upsert'": {"mode": "upsert"},
    "mode must be 'append', 'overwrite', 'error' or 'ignore', not None": {"mode": None},
    "partition_overwrite must be 'static' or 'dynamic', not 'all'": {
        "mode": "overwrite",
        "partition_overwrite": "all",
    },
    'partition_overwrite="dynamic" is for mode="overwrite"': {"partition_overwrite": "dynamic"},
    "data_change must be True or False, not str": {"data_change": "no"},
    "partition_by must be a list of names, not int": {"partition_by": 5},
    "sort_by[0] must be a string": {"sort_by": [1]},
    "sort_by names `q`": {"sort_by": ["q"]},
    "max_rows_per_file must be a whole number from 1, not 0": {"max_rows_per_file": 0},
    "row_group_rows must be a whole number from 1, not 0": {"row_group_rows": 0},
    "memory_limit must be at least 1 MB (1048576 bytes)": {"memory_limit": "1023 KB"},
    "memory_limit must be a number of bytes or": {"memory_limit": "all"},
    "compression_level must be a whole number, not 'high'": {"compression_level": "high"},
    "compression_level of zstd is a number up to 22, not 23": {"compression_level": 23},
    "snappy has no levels": {"compression": "snappy", "compression_level": 1},
    "compression must be a string, not int": {"compression": 5},
    "column_options must be a mapping of options by name, not list": {"column_options": ["n"]},
    "column_options['n'] must be a mapping of options by name, not str": {"column_options": {"n": "plain"}},
    "column_options['n'] has no option 'codec'; there are encoding": {"column_options": {"n": {"codec": "zstd"}}},
    "column_options['n']['dictionary'] must be True or False": {"column_options": {"n": {"dictionary": 1}}},
    "column_options['n']['bloom_filter'] must be True or False or a mapping": {
        "column_options": {"n": {"bloom_filter": 0.1}}
    },
    "column_options['n']['bloom_filter']['fpp'] must be a number, not 'x'": {
        "column_options": {"n": {"bloom_filter": {"fpp": "x"}}}
    },
    "column_options of `n`: fpp of a bloom filter is between 0 and 1, not 2": {
        "column_options": {"n": {"bloom_filter": {"fpp": 2}}}
    },
    "column_options names `q`": {"column_options": {"q": {}}},
    "a name in column_options must be a string": {"column_options": {1: {}}},
    "commit_info must be a mapping, not str": {"commit_info": "job"},
    "a name in commit_info must be a string": {"commit_info": {1: 2}},
    "commit_info cannot be stored as JSON: a object has no JSON form": {"commit_info": {"a": object()}},
    "commit_info cannot be stored as JSON: Out of range float": {"commit_info": {"a": float("nan")}},
    "commit_info cannot have `operation`": {"commit_info": {"operation": "DELETE"}},
    "commit_info cannot have `TXNID`": {"commit_info": {"TXNID": "x"}},
    "`userName` in commit_info is a string": {"commit_info": {"userName": 5}},
    "max_attempts must be a whole number from 1, not 0": {"max_attempts": 0},
}


@pytest.mark.slow
@pytest.mark.parametrize("message", REFUSED)
def test_a_wrong_option_is_named_and_nothing_is_written(uri: str, message: str) -> None:
    for exists in (False, True):
        if exists:
            deltic.write(uri, ROW)
        before = files(uri)
        with pytest.raises(deltic.InvalidInputError) as caught:
            deltic.write(uri, ROW, **REFUSED[message])
        assert message in str(caught.value)
        assert files(uri) == before
        assert deltic.Table(uri).exists() is exists


@pytest.mark.slow
def test_a_source_that_fails_midway_leaves_the_table_alone(uri: str) -> None:
    deltic.write(uri, ROW)

    def fails() -> Iterator[pa.RecordBatch]:
        for at in range(100):
            yield pa.record_batch({"n": range(1000), "p": [str(at % 10)] * 1000})
        raise RuntimeError("the source is gone")

    for options in (
        {},
        {"mode": "overwrite"},
        {"sort_by": "n"},
        {"max_rows_per_file": 100},
        {"data_change": False, "mode": "overwrite"},
    ):
        reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64()), ("p", pa.string())]), fails())
        with pytest.raises(deltic.InvalidInputError, match="the source is gone"):
            deltic.write(uri, reader, **options)
        assert len(files(uri)) == 1
        assert deltic.Table(uri).snapshot().version == 0
