"""Overwrites with `replace_where`: which rows are replaced, kept and refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import FEED, VECTORS
from log_files import Log

import deltic
from deltic import _deltic
from deltic.writing.options import core_options


def files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*") if path.is_file() and "_delta_log" not in path.parts}


def table(low: int, high: int, p: str = "a") -> pa.Table:
    return pa.table({"p": [p] * (high - low), "n": range(low, high)})


def numbers(uri: str) -> list[int]:
    found: list[int] = sorted(deltic.Table(uri).scan().to_arrow()["n"].to_pylist())
    return found


def replace(uri: str, data: Any, where: str, **options: Any) -> deltic.Commit:
    return deltic.write(uri, data, mode="overwrite", replace_where=where, **options)


def test_whole_files_are_removed_unread(uri: str) -> None:
    deltic.write(uri, table(0, 10))
    deltic.write(uri, table(10, 20))
    covered = next(Path(uri) / add["path"] for add in Log(uri).of(1, "add"))
    covered.write_bytes(b"not to be read")
    replace(uri, table(12, 14), "n >= 10 AND n < 20")
    assert numbers(uri) == [*range(10), 12, 13]
    assert [remove["path"] for remove in Log(uri).of(2, "remove")] == [covered.name]
    info = Log(uri).of(2, "commitInfo")[0]
    assert (info["operationParameters"]["mode"], info["operationParameters"]["predicate"]) == (
        "Overwrite",
        "n >= 10 AND n < 20",
    )
    assert info["isBlindAppend"] is False


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS, FEED, {**VECTORS, **FEED}], ids=["copy", "mark", "feed", "both"])
def test_matching_rows_of_other_files_are_deleted_in_the_same_commit(uri: str, properties: dict[str, str]) -> None:
    deltic.write(uri, table(0, 10), properties=properties)
    replace(uri, pa.table({"p": ["new"] * 2, "n": [5, 6]}), "n BETWEEN 5 AND 7")
    assert numbers(uri) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert deltic.Table(uri).snapshot().version == 1
    if "delta.enableChangeDataFeed" in properties:
        changes = deltic.Table(uri).changes(start=1).to_arrow().select(["p", "n", "_change_type"]).to_pylist()
        gone = [{"p": "a", "n": n, "_change_type": "delete"} for n in (5, 6, 7)]
        come = [{"p": "new", "n": n, "_change_type": "insert"} for n in (5, 6)]
        assert sorted(map(repr, changes)) == sorted(map(repr, gone + come))


def test_partitions_are_replaced(uri: str) -> None:
    deltic.write(uri, pa.concat_tables([table(0, 5, "a"), table(5, 10, "b")]), partition_by="p")
    replace(uri, table(20, 22, "b"), "p = 'b'")
    assert numbers(uri) == [0, 1, 2, 3, 4, 20, 21]
    replace(uri, table(0, 0, "a"), "p = 'a'")
    assert numbers(uri) == [20, 21]


def test_the_condition_applies_to_a_new_table(uri: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match="row 3 "):
        replace(uri, table(0, 10), "n < 3")
    assert not deltic.Table(uri).exists()
    replace(uri, table(0, 3), "n < 3")
    assert numbers(uri) == [0, 1, 2]


def test_a_violating_row_in_the_last_batch_is_named_and_no_file_is_left(uri: str) -> None:
    for properties in ({}, VECTORS):
        target = uri + str(len(properties))
        deltic.write(target, table(0, 100), properties=properties)
        before = files(target)

        def batches() -> Iterator[pa.RecordBatch]:
            for at in range(50):
                yield pa.record_batch({"p": ["x"] * 100, "n": [at % 50] * 100})
            yield pa.record_batch({"p": ["x", "x"], "n": [1, 70]})

        reader = pa.RecordBatchReader.from_batches(table(0, 1).schema, batches())
        message = (
            r"row 5001 \(the first is 0\) of the data is not among the rows that replace_where \(n < 50\).*`n` is 70"
        )
        with pytest.raises(deltic.InvalidInputError, match=message):
            replace(target, reader, "n < 50")
        assert deltic.Table(target).snapshot().version == 0
        assert numbers(target) == list(range(100))
        assert files(target) == before, "all files of the failed write are deleted"


@pytest.mark.parametrize(
    ("data", "where", "message"),
    [
        ({"p": [None], "n": [1]}, "p = 'a'", "`p` is null"),
        ({"p": [""], "n": [1]}, "p = ''", "`p` is null"),
        ({"p": ["b"], "n": [1]}, "p = 'a' AND n = 1", "`p` is b, `n` is 1"),
    ],
)
def test_the_condition_is_evaluated_on_stored_values(
    uri: str, data: dict[str, list[Any]], where: str, message: str
) -> None:
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    deltic.write(uri, table(0, 1), partition_by="p")
    with pytest.raises(deltic.InvalidInputError, match=message):
        replace(uri, pa.table(data, schema=schema), where)
    assert numbers(uri) == [0]


def test_nested_columns_of_a_mapped_table(uri: str) -> None:
    rows = pa.table({"s": [{"x": 1}, {"x": 2}], "n": [1, 2]})
    deltic.write(uri, rows, properties={"delta.columnMapping.mode": "name"})
    replace(uri, pa.table({"s": [{"x": 2}], "n": [3]}), "s.x = 2")
    assert numbers(uri) == [1, 3]
    with pytest.raises(deltic.InvalidInputError, match=r"`s\.x` is 5"):
        replace(uri, pa.table({"s": [{"x": 5}], "n": [4]}), "s.x = 2")


def test_replace_where_may_add_columns(uri: str) -> None:
    deltic.write(uri, table(0, 4))
    replace(uri, pa.table({"p": ["b"], "n": [3], "x": [1.5]}), "n >= 2", schema_mode="merge")
    rows = sorted(deltic.Table(uri).scan().to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [(row["n"], row["x"]) for row in rows] == [(0, None), (1, None), (3, 1.5)]


def test_concurrently_added_rows_that_match_are_a_conflict(uri: str) -> None:
    deltic.write(uri, table(0, 10))

    def batches(low: int) -> Iterator[pa.RecordBatch]:
        yield from table(5, 6).to_batches()
        deltic.write(uri, table(low, low + 1))

    def reader(low: int) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(table(0, 1).schema, batches(low))

    assert replace(uri, reader(50), "n = 5").attempts == 2
    with pytest.raises(deltic.ConcurrentAppendError):
        replace(uri, reader(5), "n = 5")


REFUSED: dict[str, dict[str, Any]] = {
    "replace_where must be a string of SQL, not int": {"replace_where": 5, "mode": "overwrite"},
    'replace_where is for mode="overwrite"': {"replace_where": "n = 1"},
    "both say which rows": {"replace_where": "n = 1", "mode": "overwrite", "partition_overwrite": "dynamic"},
    "replace_where leaves some": {"replace_where": "n = 1", "mode": "overwrite", "schema_mode": "overwrite"},
    "which contradicts data_change=False": {"replace_where": "n = 1", "mode": "overwrite", "data_change": False},
    "q": {"replace_where": "q = 1", "mode": "overwrite"},
    "replace_where: ": {"replace_where": "n = = 1", "mode": "overwrite"},
}


@pytest.mark.slow
@pytest.mark.parametrize("message", REFUSED)
def test_contradictory_arguments_are_refused(uri: str, message: str) -> None:
    deltic.write(uri, table(0, 2))
    before = files(uri)
    with pytest.raises(deltic.InvalidInputError) as caught:
        deltic.write(uri, table(1, 2), **REFUSED[message])
    assert message in str(caught.value)
    assert (numbers(uri), files(uri)) == ([0, 1], before)


def test_append_only_tables_are_not_replaced(uri: str) -> None:
    deltic.write(uri, table(0, 2), properties={"delta.appendOnly": "true"})
    with pytest.raises(deltic.InvalidInputError, match="append-only"):
        replace(uri, table(1, 2), "n = 1")


class Elsewhere:
    """A replacement that is planned, written and committed by different processes, as with Spark."""

    def __init__(self, uri: str, data: pa.Table, **options: Any) -> None:
        chosen = core_options("overwrite", {"replace_where": "n >= 5", **options})
        planned = _deltic.plan_write(deltic.Table(uri)._core, data.schema, chosen)
        self.header = planned.header()
        self.plan = planned.write_plan(data.schema)
        self.files = _deltic.write_files(self.plan, None, data, task=0)

    def commit(self) -> int:
        transaction = _deltic.resume(self.header, None)
        transaction.append_files(self.files)
        done = transaction.commit()
        assert done is not None
        version: int = json.loads(done[0])["version"]
        return version


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS, FEED, {**VECTORS, **FEED}], ids=["copy", "mark", "feed", "both"])
def test_the_committing_process_replaces_the_rows(uri: str, properties: dict[str, str]) -> None:
    deltic.write(uri, table(0, 10), properties=properties)
    planned = Elsewhere(uri, table(7, 12).append_column("x", pa.array([0.5] * 5)), schema_mode="merge")
    assert numbers(uri) == list(range(10))
    # A winner that does not touch these rows.
    deltic.write(uri, table(-3, 0))
    assert planned.commit() == 2
    assert numbers(uri) == [-3, -2, -1, *range(5), *range(7, 12)]
    found = deltic.Table(uri).scan(filter="x = 0.5").to_arrow()
    assert sorted(found["n"].to_pylist()) == list(range(7, 12))
    if FEED.items() <= properties.items():
        changed = deltic.Table(uri).changes(2, columns=["n", "_change_type"]).to_arrow().to_pylist()
        assert sorted(row["n"] for row in changed if row["_change_type"] == "delete") == list(range(5, 10))
    # A second commit with the same header does nothing.
    assert planned.commit() == 2
    assert deltic.Table(uri).snapshot().version == 2


@pytest.mark.slow
@pytest.mark.parametrize("change", ["rows", "columns", "delete"])
def test_concurrent_changes_are_a_conflict(uri: str, change: str) -> None:
    deltic.write(uri, table(0, 10))
    planned = Elsewhere(uri, table(7, 12))
    if change == "rows":
        deltic.write(uri, table(20, 22))
    elif change == "columns":
        deltic.Table(uri).add_columns(pa.schema([("x", pa.int32())]))
    else:
        deltic.Table(uri).delete("n = 9")
    before, written = numbers(uri), files(uri)
    with pytest.raises(deltic.CommitConflictError):
        planned.commit()
    assert (numbers(uri), deltic.Table(uri).snapshot().version) == (before, 1)
    assert files(uri) < written, "no new file is left, and those of the refused write are deleted"


def test_files_of_an_abandoned_write_are_deleted_by_name(uri: str) -> None:
    deltic.write(uri, table(0, 10), partition_by="p")
    kept = files(uri)
    given_up, other = Elsewhere(uri, table(7, 12, "b")), Elsewhere(uri, table(7, 12, "c"))
    assert len(files(uri)) == len(kept) + 2
    _deltic.delete_files(given_up.plan, None)
    assert len(files(uri)) == len(kept) + 1
    assert other.commit() == 1
    assert numbers(uri) == [*range(5), *range(7, 12)]
