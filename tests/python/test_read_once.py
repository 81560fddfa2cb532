"""A reader, stream or iterator that was read is refused when it comes back; it would seem to have no rows."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import deltic

ROWS = pa.table({"id": [5, 500]})
READ_ONCE = "was read already, at least in part"


@pytest.fixture
def table(uri: str) -> deltic.Table:
    """A table with a row that an overwrite would remove."""
    deltic.create(uri, pa.schema([("id", pa.int64())]), constraints={"small": "id < 100"})
    deltic.write(uri, pa.table({"id": [1]}))
    return deltic.Table(uri)


def ids(table: deltic.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


class Wrapped:
    """Data of a class that deltic does not know, read by each call of `make`."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.make().__arrow_c_stream__(requested_schema)


def reader(rows: pa.Table) -> pa.RecordBatchReader:
    return rows.to_reader(max_chunksize=1)


def scanned(rows: pa.Table, where: str) -> pa.RecordBatchReader:
    deltic.write(where, rows)
    return deltic.Table(where).scan().to_reader()


STREAMS: dict[str, Callable[[pa.Table, str], Any]] = {
    "reader": lambda rows, where: reader(rows),
    "scan": scanned,
    "duckdb": lambda rows, where: duckdb.from_arrow(rows).to_arrow_reader(),
    "generator": lambda rows, where: (batch for batch in reader(rows)),
    "map": lambda rows, where: map(pl.from_arrow, reader(rows)),
    "list iterator": lambda rows, where: iter(rows.to_batches(max_chunksize=1)),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_failed_is_not_read_again(kind: str, table: deltic.Table, uri: str) -> None:
    rows = STREAMS[kind](ROWS, uri + "_source")
    with pytest.raises(deltic.InvalidInputError, match="small"):
        deltic.write(table, rows)
    for mode in ("append", "overwrite"):
        with pytest.raises(deltic.InvalidInputError, match=READ_ONCE):
            deltic.write(table, rows, mode)  # type: ignore[arg-type]
    assert (ids(table), table.snapshot().version) == ([1], 1)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_was_written_empties_no_table(kind: str, table: deltic.Table, uri: str) -> None:
    rows = STREAMS[kind](pa.table({"id": [7, 8]}), uri + "_source")
    deltic.write(table, rows)
    with pytest.raises(deltic.InvalidInputError, match=READ_ONCE):
        deltic.write(table, rows, "overwrite")
    with pytest.raises(deltic.InvalidInputError, match=READ_ONCE):
        table.merge(rows, "source.id = target.id").when_not_matched_by_source_delete().execute()
    with pytest.raises(deltic.InvalidInputError, match=READ_ONCE), table.transaction("T") as tx:
        tx.append(rows)
    assert ids(table) == [1, 7, 8]


def test_what_a_merge_or_a_transaction_has_read_is_refused(table: deltic.Table) -> None:
    merged, appended = reader(pa.table({"id": [7]})), reader(pa.table({"id": [8]}))
    table.merge(merged, "source.id = target.id").when_not_matched_insert_all().execute()
    with table.transaction("T") as tx:
        tx.append(appended)
    for rows in (merged, appended):
        with pytest.raises(deltic.InvalidInputError, match=READ_ONCE):
            deltic.write(table, rows, "overwrite")
    assert ids(table) == [1, 7, 8]


def test_readers_in_a_list_are_read_once_too(table: deltic.Table) -> None:
    rows = reader(pa.table({"id": [7]}))
    deltic.write(table, [rows])
    with pytest.raises(deltic.InvalidInputError, match=READ_ONCE):
        deltic.write(table, [rows], "overwrite")
    assert ids(table) == [1, 7]


def test_a_reader_of_which_nothing_was_read_can_be_given_again(table: deltic.Table, uri: str) -> None:
    wide = reader(pa.table({"id": [7], "more": [1]}))
    assert deltic.write(table, wide, "ignore").attempts == 0
    deltic.write(uri + "_app", pa.table({"id": [0]}), app_id="a", app_version=3)
    assert deltic.write(uri + "_app", reader(ROWS), app_id="a", app_version=3).attempts == 0
    with pytest.raises(deltic.InvalidInputError, match="more"):
        deltic.write(table, wide)
    with pytest.raises(deltic.InvalidInputError, match="more"), table.transaction("T") as tx:
        tx.append(wide)
    deltic.write(table, wide, schema_mode="merge")
    assert ids(table) == [1, 7]


@pytest.mark.parametrize(
    "make",
    [
        lambda rows, table: rows,
        lambda rows, table: rows.to_batches(),
        lambda rows, table: pl.from_arrow(rows),
        lambda rows, table: pl.from_arrow(rows).lazy(),
        lambda rows, table: rows.to_pandas(),
        lambda rows, table: duckdb.from_arrow(rows),
        lambda rows, table: pa.dataset.dataset(rows),
        lambda rows, table: table.scan(),
        lambda rows, table: Wrapped(lambda: rows),
    ],
    ids=["table", "list", "polars", "lazy", "pandas", "duckdb", "dataset", "scan", "another class"],
)
def test_data_that_can_be_read_again_is_accepted_again(make: Callable[[pa.Table, Any], Any], table: Any) -> None:
    rows = make(pa.table({"id": [1]}), table)
    for _ in range(2):
        deltic.write(table, rows, "overwrite")
        assert ids(table) == [1]


def test_an_object_of_another_class_may_not_have_lost_its_rows(table: deltic.Table) -> None:
    once = reader(pa.table({"id": [7]}))
    rows = Wrapped(lambda: once)
    deltic.write(table, rows)
    with pytest.raises(deltic.InvalidInputError, match="Wrapped was read already, and has no rows now"):
        deltic.write(table, rows, "overwrite")
    assert ids(table) == [1, 7]
    none = Wrapped(lambda: pa.table({"id": pa.array([], pa.int64())}))
    for _ in range(2):
        deltic.write(table, none)


def test_a_new_reader_is_accepted_even_where_an_old_one_was_in_memory(table: deltic.Table) -> None:
    old: set[int] = set()
    for number in range(2, 12):
        rows = reader(pa.table({"id": [number]}))
        old.add(id(rows))
        deltic.write(table, rows)
        del rows
    gc.collect()
    # Readers that are kept fill the gaps in memory until one has the place of an old one.
    kept = []
    for _ in range(10_000):
        kept.append(reader(pa.table({"id": [12]})))
        if id(kept[-1]) in old:
            break
    assert id(kept[-1]) in old, "no id was used again, so the test proves nothing"
    deltic.write(table, kept[-1])
    assert ids(table) == list(range(1, 13))


def test_a_spent_iterator_that_deltic_did_not_read_has_no_columns(table: deltic.Table) -> None:
    def none() -> Iterator[pa.RecordBatch]:
        yield from ()

    with pytest.raises(deltic.InvalidInputError, match="no batch"):
        deltic.write(table, none(), "overwrite")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("data", [pd.DataFrame(), pa.table({}), pl.DataFrame(), []], ids=repr)
def test_data_without_columns_is_refused(data: Any, mode: Any, table: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError, match=r"no columns|which columns it has"):
        deltic.write(table, data, mode)
    assert (ids(table), table.snapshot().version) == ([1], 1)


@pytest.mark.parametrize(
    ("column", "how"),
    [
        (pl.Series("a", [1]), r"a polars Series, which is one column: .*to_frame"),
        (pa.array([1]), r"an Int64Array, which is one column: .*pa\.table"),
        (pa.chunked_array([[1]]), r"a ChunkedArray, which is one column: .*pa\.table"),
    ],
    ids=["polars", "array", "chunked"],
)
def test_one_column_is_not_a_table(column: Any, how: str, table: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError, match=how):
        deltic.write(table, column)
