"""Writes: the rows are read back, and the log follows the protocol."""

import json
import os
import pickle
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample import EVERY_TYPE, NTZ, adds, every_type, log_actions, rows

import deltic


def data_files(uri: str) -> list[Path]:
    return [path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts]


def test_every_type_round_trips(uri: str) -> None:
    table = every_type(200)
    commit = deltic.write(uri, table)
    assert (commit.version, commit.attempts, commit.num_added_files) == (0, 1, 1)
    assert commit.metrics["numOutputRows"] == 200
    assert commit.metrics["numOutputBytes"] == sum(path.stat().st_size for path in data_files(uri))
    read = deltic.Table(uri).scan().to_arrow()
    assert read.schema.equals(EVERY_TYPE)
    assert rows(read) == rows(table)


@pytest.mark.slow
def test_tables_of_many_chunks_and_streams_that_fail_are_written_whole_or_not_at_all(uri: str) -> None:
    batches = [pa.record_batch({"n": [at]}) for at in range(200)]
    chunks = pa.Table.from_batches(batches)
    deltic.write(uri, chunks)
    table = deltic.Table(uri)
    for data in (chunks, chunks.to_reader(), chunks.slice(3, 0)):
        deltic.write(table, data)
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == sorted([*range(200)] * 3)

    def fails() -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("the source is gone")

    for target in (uri, table):
        with pytest.raises(deltic.InvalidInputError, match="the source is gone"):
            deltic.write(target, pa.RecordBatchReader.from_batches(chunks.schema, fails()))
    assert table.scan().to_arrow().num_rows == 600


def test_errors_of_a_scan_that_is_written_keep_their_class(uri: str, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    deltic.write(source, pa.table({"n": [1, 2]}))
    deltic.write(uri, deltic.Table(source).scan())
    table = deltic.Table(uri)
    assert deltic.write(table, deltic.Table(source).scan(filter="n > 1")).version == 1
    assert deltic.write(table, deltic.Table(source).scan(filter="n > 2")).num_added_files == 0
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2, 2]

    scan = deltic.Table(source).scan()
    for file in data_files(source):
        file.unlink()
    for target in (uri, table):
        with pytest.raises(deltic.CorruptTableError, match="gone"):
            deltic.write(target, scan)
    with pytest.raises(deltic.CorruptTableError, match="gone"), table.transaction() as transaction:
        transaction.append(scan)
    assert table.scan().to_arrow().num_rows == 3


def test_a_secret_in_the_url_reaches_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []

    def step(name: str, result: Any) -> Callable[..., Any]:
        def called(table: Any, *arguments: Any) -> Any:
            seen.append((name, table.uri, table.storage_options))
            return result

        return called

    outcome = '{"version": 0, "attempts": 1, "num_added_files": 0, "metrics": {}}'
    transaction = SimpleNamespace(
        uses_cached_state=lambda: False,
        replayed=lambda: None,
        append=lambda *arguments: 1,
        commit=lambda attempts: (outcome, None),
    )
    core = SimpleNamespace(plan_write=step("plan_write", transaction), create=step("create", outcome))
    monkeypatch.setattr(sys.modules["deltic.write"], "_deltic", core)
    clean, secret = "https://account.blob.core.windows.net/c/t", "sv=1&sig=hunter2"
    found = {"azure_storage_sas_token": secret}
    deltic.write(f"{clean}?{secret}", pa.table({"n": [1]}))
    deltic.create(f"{clean}?{secret}", pa.schema([("n", pa.int64())]))
    assert seen == [("plan_write", clean, found), ("create", clean, found)]
    table = deltic.Table(f"{clean}?{secret}")
    assert (table.uri, table.storage_options) == (clean, found)
    assert pickle.loads(pickle.dumps(table)).storage_options == found


@pytest.mark.parametrize("value", [True, 3, None, ["a"]])
def test_properties_that_are_not_strings_are_named(uri: str, value: Any) -> None:
    rows = pa.table({"n": [1]})
    with pytest.raises(deltic.InvalidInputError, match=r"delta\.appendOnly"):
        deltic.write(uri, rows, properties={"delta.appendOnly": value})
    with pytest.raises(deltic.InvalidInputError, match=r"delta\.appendOnly"):
        deltic.create(uri, rows.schema, properties={"delta.appendOnly": value})
    deltic.write(uri, rows)
    with (
        pytest.raises(deltic.InvalidInputError, match=r"delta\.appendOnly"),
        deltic.Table(uri).transaction() as transaction,
    ):
        transaction.set_properties({"delta.appendOnly": value})


def test_an_application_and_its_version_belong_together(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    for target in (uri, deltic.Table(uri)):
        for half in ({"app_version": 3}, {"app_id": "mine"}):
            with pytest.raises(deltic.InvalidInputError, match="belong together"):
                deltic.write(target, pa.table({"n": [2]}), **half)
    assert deltic.Table(uri).snapshot().version == 0


def test_timestamps_without_zone_round_trip_and_raise_the_protocol(uri: str) -> None:
    table = pa.table({"id": [1, 2], "at": [datetime(2026, 3, 29, 2, 30), None]}, schema=NTZ)
    deltic.write(uri, table)
    snapshot = deltic.Table(uri).snapshot()
    assert snapshot.scan().to_arrow().equals(table)
    assert "timestampNtz" in snapshot.protocol["readerFeatures"]


def test_a_table_without_new_types_needs_no_features(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}))
    protocol = deltic.Table(uri).snapshot().protocol
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (1, 2)


def batches(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for value in (1, 2):
        yield pa.record_batch([pa.array([value])], schema=schema)


class OnlyAStream:
    """A minimal object that can be written."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


A = pa.schema([("a", pa.int64())])


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        lambda: pa.table({"a": [1, 2]}),
        lambda: pa.record_batch({"a": [1, 2]}),
        lambda: pa.RecordBatchReader.from_batches(A, batches(A)),
        lambda: OnlyAStream(pa.table({"a": [1, 2]})),
        lambda: polars.DataFrame({"a": [1, 2]}),
        lambda: pandas.DataFrame({"a": [1, 2]}),
        lambda: pandas.DataFrame({"a": [0, 1, 2]})[1:],
        lambda: pa.chunked_array([[{"a": 1}, {"a": 2}]]),
    ],
    ids=[
        "Table",
        "RecordBatch",
        "reader",
        "stream",
        "polars",
        "pandas",
        "pandas with other row numbers",
        "array of structs",
    ],
)
def test_any_object_with_an_arrow_stream_may_be_written(uri: str, data: Any) -> None:
    deltic.write(uri, data())
    assert deltic.Table(uri).scan().to_arrow().sort_by("a").to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize("data", [{"a": [1]}, "a", None, 7])
def test_data_without_an_arrow_stream_is_refused(uri: str, data: Any) -> None:
    with pytest.raises(deltic.InvalidInputError, match=r"^cannot write"):
        deltic.write(uri, data)
    assert not deltic.Table(uri).exists()


def test_a_scan_may_be_written(uri: str) -> None:
    deltic.write(uri, every_type(20))
    deltic.write(uri + "2", deltic.Table(uri).scan(filter="id > 10"))
    assert deltic.Table(uri + "2").scan().to_arrow().num_rows == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.large_list(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s", "Europe/Prague"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "+02:00"), pa.timestamp("us", "UTC")),
        (pa.decimal128(7, 3), pa.decimal128(7, 3)),
    ],
    ids=str,
)
def test_arrow_layouts_are_stored_as_their_value_type(uri: str, given: pa.DataType, kept: pa.DataType) -> None:
    values: dict[Any, list[Any]] = {
        pa.timestamp("us", "UTC"): [datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), None],
        pa.string(): ["a", None],
        pa.binary(): [b"a", None],
        pa.decimal128(7, 3): [Decimal("1.125"), None],
    }
    chosen = values.get(kept, [[1, 2], None])
    deltic.write(uri, pa.table({"v": pa.array(chosen, given)}))
    read = deltic.Table(uri).scan().to_arrow()
    assert read.schema.field("v").type == kept
    assert [None if v is None else v for v in read["v"].to_pylist()] == chosen


def private(storage: pa.Array, name: str) -> pa.Table:
    field = pa.field("v", storage.type, metadata={"ARROW:extension:name": name})
    return pa.table([storage], schema=pa.schema([field]))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (lambda: pandas.DataFrame({"v": pandas.period_range("2026-01", periods=2, freq="M")}), "pandas.period"),
        (lambda: pandas.DataFrame({"v": pandas.interval_range(0, 2)}), "pandas.interval"),
        (lambda: polars.DataFrame({"v": polars.Series([object()], dtype=polars.Object)}), "Object"),
        (lambda: pa.table({"v": pa.array([1, 0], pa.bool8())}), "arrow.bool8"),
        (lambda: private(pa.array([1]), "mine"), "mine"),
    ],
    ids=["period", "interval", "object", "bool8", "private"],
)
def test_private_extension_types_are_not_stored_as_their_storage_type(uri: str, data: Any, name: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match=f"column `v` .*{name}.*cast it"):
        deltic.write(uri, data())
    assert not deltic.Table(uri).exists()
    deltic.write(uri, pa.table({"v": [1]}))
    with pytest.raises(deltic.InvalidInputError, match=f"column `v` .*{name}.*cast it"):
        deltic.write(uri, data())


def of(outer: str, inner: pa.Array) -> pa.Array:
    """Nest an array in an array of one value."""
    field = pa.field("x", inner.type)
    if outer == "list":
        return pa.ListArray.from_arrays(pa.array([0, len(inner)], pa.int32()), inner, type=pa.list_(field))
    if outer == "struct":
        return pa.StructArray.from_arrays([inner.slice(0, 1)], fields=[field])
    if outer == "map":
        return pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), inner.slice(0, 1))
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), inner)


@pytest.mark.slow
@pytest.mark.parametrize("outers", [["list"], ["struct"], ["map"], ["dictionary"], ["dictionary", "struct", "list"]])
def test_private_extension_types_are_refused_at_every_depth(uri: str, outers: list[str]) -> None:
    inner = pa.array([1, 0], pa.bool8())
    for outer in outers:
        inner = of(outer, inner)
    for _ in range(2):
        with pytest.raises(deltic.InvalidInputError, match=r"column `v.*arrow\.bool8.*cast it"):
            deltic.write(uri, pa.table({"v": inner}))
        deltic.write(uri, pa.table({"v": [1]}))


@pytest.mark.parametrize("outer", ["", "list", "struct", "map", "dictionary"])
@pytest.mark.parametrize(
    ("kind", "new", "stored"),
    [
        (pa.duration("ms"), "duration.*cast it to long or string", "duration.*cast it to the table's type"),
        (
            pa.month_day_nano_interval(),
            "month.*store its parts",
            "month.*pass its months, days or nanoseconds as numbers",
        ),
    ],
    ids=["duration", "interval"],
)
def test_times_that_delta_has_no_type_for(uri: str, kind: pa.DataType, new: str, stored: str, outer: str) -> None:
    """Neither as a new column, nor in one that the table has."""
    nest = (lambda values: of(outer, values)) if outer else lambda values: values
    rows = pa.table({"v": nest(pa.array([None], kind))})
    for write in (deltic.write, lambda uri, rows: deltic.create(uri, rows.schema)):
        with pytest.raises(deltic.InvalidInputError, match=f"column `v[.x]*` has the Arrow type {new}"):
            write(uri, rows)
    assert not deltic.Table(uri).exists()
    deltic.write(uri, pa.table({"w": [1]}))
    with pytest.raises(deltic.InvalidInputError, match=f"column `v[.x]*` has the Arrow type {new}"):
        deltic.write(uri, pa.table({"w": [1], "v": rows["v"]}), schema_mode="merge")
    numbers = pa.table({"v": nest(pa.array([1]))})
    deltic.write(uri, numbers, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(deltic.InvalidInputError, match=f"column `v.*{stored}"):
        deltic.write(uri, rows)
    assert deltic.Table(uri).snapshot().version == 1


def test_categories_of_pandas_are_written_unless_their_values_are_private(uri: str) -> None:
    periods = pandas.Series(pandas.period_range("2026-01", periods=2, freq="M"))
    for private_values in (periods.astype("category"), pandas.Series(pandas.cut([1, 2], [0, 1, 2]))):
        with pytest.raises(deltic.InvalidInputError, match=r"column `v` .*pandas\."):
            deltic.write(uri, pandas.DataFrame({"v": private_values}))
    deltic.write(uri, pandas.DataFrame({"v": pandas.Series(["a", "b", "a"]).astype("category")}))
    assert deltic.Table(uri).scan().to_arrow()["v"].to_pylist() == ["a", "b", "a"]


DECIMALS = [
    ("99999999999.99", (13, 2), (5, 2)),
    ("1000.00", (6, 2), (5, 2)),
    ("-" + "9" * 22 + ".99", (24, 2), (18, 2)),
    ("9" * 30 + ".99", (38, 2), (25, 2)),
]


@pytest.mark.parametrize(("digits", "wide", "narrow"), DECIMALS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_decimals_with_more_digits_than_their_type_are_refused(
    uri: str, digits: str, wide: tuple[int, int], narrow: tuple[int, int], partitioned: bool
) -> None:
    values = pa.array([None, Decimal(digits)], pa.decimal128(*wide)).cast(pa.decimal128(*narrow), safe=False)
    columns = {"id": pa.array([1, 2]), "d": values}
    with pytest.raises(deltic.InvalidInputError, match=r"`d` is decimal.* row 1 \(the first is 0\).*" + digits):
        deltic.write(uri, pa.table(columns), partition_by=["d"] if partitioned else None)
    assert not deltic.Table(uri).exists()
    inner = pa.ListArray.from_arrays(pa.array([0, 0, 2], pa.int32()), values)
    with pytest.raises(deltic.InvalidInputError, match=r"`l\.element` is decimal.* row 1 \(the first is 0\)"):
        deltic.write(uri, pa.table({"l": inner}))


EXACT = [
    (pa.int64(), pa.float64(), [2**53, None, -1], [2.0**53, None, -1.0]),
    (pa.float64(), pa.int64(), [1.0, None, -0.0], [1, None, 0]),
    (pa.float64(), pa.float32(), [0.5, None, float("inf")], [0.5, None, float("inf")]),
    (pa.float64(), pa.decimal128(10, 2), [0.25, None], [Decimal("0.25"), None]),
    (pa.decimal128(10, 2), pa.decimal128(5, 1), [Decimal("1.50")], [Decimal("1.5")]),
    (pa.decimal128(10, 2), pa.int32(), [Decimal("7.00")], [7]),
    (pa.uint64(), pa.int64(), [2**63 - 1], [2**63 - 1]),
    (pa.string(), pa.date32(), ["2024-02-29", None], [date(2024, 2, 29), None]),
    (
        pa.string_view(),
        pa.timestamp("us", "UTC"),
        ["1970-01-01T01:00:00+01:00"],
        [datetime(1970, 1, 1, tzinfo=timezone.utc)],
    ),
    (pa.timestamp("ns"), pa.date32(), [datetime(1970, 1, 2)], [date(1970, 1, 2)]),
    (pa.dictionary(pa.int8(), pa.int64()), pa.int8(), [7, 7, None], [7, 7, None]),
]
INEXACT = [
    (pa.int64(), pa.float64(), 2**53 + 1, "digits would be lost"),
    (pa.float64(), pa.int64(), float("nan"), "has NaN"),
    (pa.float64(), pa.int64(), 0.5, "only whole numbers"),
    (pa.float64(), pa.float32(), 0.1, "digits would be lost"),
    (pa.float64(), pa.decimal128(10, 2), 0.1, r"cast the column to decimal\(10, 2\)"),
    (pa.decimal128(10, 2), pa.decimal128(5, 1), Decimal("1.25"), "no more digits"),
    (pa.int64(), pa.int8(), 128, "only whole numbers"),
    (pa.string(), pa.date32(), "2023-02-29", "only strings like"),
    (pa.timestamp("ns"), pa.timestamp("us"), pa.scalar(1, pa.timestamp("ns")), "only whole microseconds"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("given", "kept", "values", "expected"), EXACT)
def test_values_that_are_exact_in_the_columns_type_are_stored(
    uri: str, given: pa.DataType, kept: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    deltic.create(uri, pa.schema([("v", kept)]))
    deltic.write(uri, pa.table({"v": pa.array(values, given)}))
    assert deltic.Table(uri).scan().to_arrow()["v"].to_pylist() == expected


@pytest.mark.slow
@pytest.mark.parametrize(("given", "kept", "value", "message"), INEXACT)
def test_values_that_are_not_exact_are_refused_by_their_row(
    uri: str, given: pa.DataType, kept: pa.DataType, value: Any, message: str
) -> None:
    deltic.create(uri, pa.schema([("v", kept)]))
    column = pa.array([None] * 70_000 + [value], given)
    with pytest.raises(
        deltic.InvalidInputError, match=r"`v` is .* row 70000 \(the first is 0\) of the data.*" + message
    ):
        deltic.write(uri, pa.table({"v": column}))
    assert data_files(uri) == []


def test_a_missing_partition_column_is_refused(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "p": ["x"]}), partition_by=["p"])
    with pytest.raises(deltic.InvalidInputError, match="no column `p`, by which the table is partitioned"):
        deltic.write(uri, pa.table({"id": [2]}))
    with pytest.raises(deltic.InvalidInputError, match="no column `p`"):
        deltic.write(deltic.Table(uri), pa.table({"id": [2]}), mode="overwrite")
    deltic.write(uri, pa.table({"id": [2], "p": pa.array([None], pa.string())}))
    assert deltic.Table(uri).scan(filter="p IS NULL").to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    "value",
    [0, -1, 10**37, 10**38 - 1, 1 - 10**38, 10**38, -(10**38), 2**127 - 1, -(2**127)],
)
def test_a_hugeint_of_duckdb_is_stored_exactly_or_refused(uri: str, value: int) -> None:
    """DuckDB exports them as decimal(38, 0), though the largest have 39 digits."""
    relation = duckdb.sql(f"SELECT '{value}'::HUGEINT AS v")
    if abs(value) < 10**38:
        deltic.write(uri, relation)
        assert deltic.Table(uri).scan().to_arrow()["v"].to_pylist() == [value]
        return
    with pytest.raises(deltic.InvalidInputError, match="`v`"):
        deltic.write(uri, relation)
    assert not Path(uri).exists()


DEFINES = ["delta.columnMapping.id", "delta.typeChanges", "delta.generationExpression", "CURRENT_DEFAULT", "delta.new"]


@pytest.mark.parametrize("key", DEFINES)
def test_metadata_in_data_does_not_define_columns(uri: str, key: str) -> None:
    of_x = {"comment": "counts", "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    of_s = {"comment": "counts", "__CHAR_VARCHAR_TYPE_STRING": "struct<x:varchar(3)>"}
    inner = pa.field("x", pa.string(), metadata={key: "1", "mine": "2", **of_x})
    field = pa.field("s", pa.struct([inner]), metadata={key: "1", "mine": "2", **of_s})
    schema = pa.schema([field])
    deltic.write(uri, pa.table({"s": [{"x": "abc"}]}, schema=schema))
    stored = json.loads(deltic.Table(uri).snapshot().metadata["schemaString"])["fields"][0]
    assert [stored["metadata"], stored["type"]["fields"][0]["metadata"]] == [of_s, of_x]
    # In a schema it is refused: a struct is no number, and only top-level columns can be generated.
    refused = (deltic.UnsupportedFeatureError, deltic.InvalidInputError)
    with pytest.raises(refused, match="column `s"):
        deltic.create(uri + "2", schema)
    with deltic.Table(uri).transaction() as tx, pytest.raises(refused, match="column `s"):
        tx.set_metadata(schema=schema)


def test_a_scan_has_descriptive_metadata_and_a_snapshot_all(uri: str) -> None:
    field = pa.field("a", pa.int64(), metadata={"comment": "counts", "mine": "2"})
    deltic.create(uri, pa.schema([field]))
    table = deltic.Table(uri)
    assert table.snapshot().schema.field("a").metadata == {b"comment": b"counts", b"mine": b"2"}
    assert table.scan().schema.field("a").metadata == {b"comment": b"counts"}
    assert table.scan().to_arrow().schema.field("a").metadata == {b"comment": b"counts"}
    deltic.write(uri + "2", table.scan())
    assert deltic.Table(uri + "2").snapshot().schema.field("a").metadata == {b"comment": b"counts"}


NUL = [
    pa.table({"a\0b": [1]}),
    pa.table({"s": [[{"a\0b": 1}]]}),
    polars.DataFrame({"a\0b": [1]}),
    polars.DataFrame({"s": [[{"a\0b": 1}]]}),
    pandas.DataFrame({"a\0b": [1]}),
]


@pytest.mark.parametrize("data", NUL, ids=["pyarrow", "inside", "polars", "inside polars", "pandas"])
def test_names_with_a_nul_are_refused(uri: str, data: Any) -> None:
    with pytest.raises(deltic.InvalidInputError, match=r"a\\x00b.* NUL character|NUL character.*rename it"):
        deltic.write(uri, data)
    with pytest.raises(deltic.InvalidInputError, match="NUL"):
        deltic.create(uri, pa.schema([("a\0b", pa.int64())]))
    assert not deltic.Table(uri).exists()


@pytest.mark.parametrize(
    ("names", "message"), [(["a", "A"], "rename one"), (["", "a"], "no name"), (["x y", "a"], "has the character ' '")]
)
def test_names_that_no_table_has_are_refused_at_every_depth(uri: str, names: list[str], message: str) -> None:
    flat = pa.schema([(name, pa.int64()) for name in names])
    nested = pa.schema([("l", pa.list_(pa.struct(list(flat))))])
    for schema in (flat, nested):
        with pytest.raises(deltic.InvalidInputError, match=message):
            deltic.create(uri, schema)
        with pytest.raises(deltic.InvalidInputError, match=message):
            deltic.write(uri, schema.empty_table())
    assert not deltic.Table(uri).exists()


NO_YEAR = r"partition column `p`: .*years from 1 to 9999"


@pytest.mark.parametrize(
    ("day", "of_timestamp"),
    [
        (-719_163, NO_YEAR),
        (2_932_897, NO_YEAR),
        (2**31 - 1, r"column `p` .*row 0 .*only whole microseconds in the range of 64 bits"),
    ],
)
def test_years_beyond_python_are_stored_but_not_as_partition_values(uri: str, day: int, of_timestamp: str) -> None:
    days = pa.array([day, 0], pa.int32()).cast(pa.date32())
    deltic.write(uri, pa.table({"d": days}))
    assert sorted(deltic.Table(uri).scan().to_arrow()["d"].cast(pa.int32()).to_pylist()) == sorted([day, 0])
    for column, message in [(days, NO_YEAR), (days.cast(pa.timestamp("s")), of_timestamp)]:
        with pytest.raises(deltic.InvalidInputError, match=message):
            deltic.write(uri + "2", pa.table({"id": [1, 2], "p": column}), partition_by=["p"])


def test_partition_columns_may_have_dots(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2], "a.b": ["x", "y"]}), partition_by=["a.b"])
    table = deltic.Table(uri)
    assert table.scan(filter="`a.b` = 'y'").to_arrow().to_pylist() == [{"id": 2, "a.b": "y"}]
    assert table.plan(filter="`a.b` = 'y'").files_kept == 1


def test_a_table_keeps_names_that_no_new_one_may_have(uri: str) -> None:
    deltic.write(uri, pa.table({"Order_ID": [1], "a_b": ["x"]}))
    log = Path(uri, "_delta_log", f"{0:020}.json")
    log.write_text(log.read_text().replace("Order_ID", "Order ID").replace("a_b", "a,b;(c)="))
    log.with_suffix(".crc").unlink(missing_ok=True)
    table = deltic.Table(uri)
    with table.transaction() as tx:
        tx.set_metadata(name="orders", properties={"delta.checkpointInterval": "20"})
    assert table.snapshot().metadata["name"] == "orders"
    deltic.write(table, pa.table({"Order ID": [2], "a,b;(c)=": ["y"]}))
    assert table.scan(filter="`Order ID` = 2").to_arrow().to_pylist() == [{"Order ID": 2, "a,b;(c)=": "y"}]
    schema = table.snapshot().schema
    with table.transaction() as tx:
        tx.set_metadata(schema=schema.append(pa.field("plain", pa.int64())))
    with table.transaction() as tx, pytest.raises(deltic.InvalidInputError, match="`new one` has the character ' '"):
        tx.set_metadata(schema=schema.append(pa.field("new one", pa.int64())))
    assert table.enable_row_tracking() > 0
    assert table.snapshot().properties["delta.enableRowTracking"] == "true"
    new = pa.table({"Order ID": [3], "a,b;(c)=": ["z"], "plain": [4]})
    deltic.write(table, new, mode="overwrite")
    assert table.scan().to_arrow().to_pylist() == new.to_pylist()
    with pytest.raises(deltic.InvalidInputError, match="`new one` has the character ' '"):
        deltic.write(table, new.append_column("new one", [[5]]), mode="overwrite", schema_mode="merge")
    assert table.scan().to_arrow().to_pylist() == new.to_pylist()


def test_known_extension_types_are_written(uri: str) -> None:
    one = uuid.uuid4()
    given = pa.table({"u": pa.array([one.bytes], pa.uuid()), "j": pa.array(['{"a":1}'], pa.json_())})
    deltic.write(uri, given)
    deltic.write(uri, given)
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == [{"u": one.bytes, "j": '{"a":1}'}] * 2


NESTED = pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string())]))])


def test_statistics_in_the_log(uri: str) -> None:
    table = pa.table(
        {
            "i": pa.array([3, None, -7], pa.int32()),
            "s": ["b", "a" * 100, None],
            "long": ["z" * 100, None, None],
            "t": pa.array([datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=timezone.utc), None, None]),
            "d": pa.array([date(2026, 1, 1), None, None]),
            "n": pa.array([{"x": 1, "deep": {"y": None}}, None, {"x": 5, "deep": None}], NESTED),
            "f": pa.array([float("nan"), 1.0, 2.0]),
            "l": pa.array([[1], [], None]),
        }
    )
    deltic.write(uri, table)
    (add,) = adds(uri, 0)
    stats = add["stats"]
    assert stats["numRecords"] == 3
    assert stats["nullCount"]["i"] == 1
    assert stats["nullCount"]["n"]["x"] == 1
    assert stats["minValues"]["i"] == -7
    assert stats["maxValues"]["i"] == 3
    assert stats["minValues"]["s"] == "a" * 32
    assert stats["maxValues"]["s"] == "b"
    assert stats["minValues"]["long"] == "z" * 32
    assert stats["maxValues"]["long"] > "z" * 100, "a truncated maximum must not be less than the value"
    assert stats["minValues"]["t"] <= "2026-01-01T00:00:00.001Z"
    assert stats["minValues"]["d"] == stats["maxValues"]["d"] == "2026-01-01"
    assert stats["minValues"]["n"] == {"x": 1}
    assert stats["maxValues"]["n"] == {"x": 5}
    assert "l" not in stats["minValues"]
    assert stats["maxValues"].get("f") in (None, "NaN"), "a maximum below NaN would lose rows"
    assert add["size"] == (Path(uri) / add["path"]).stat().st_size
    assert add["dataChange"] is True
    for filter, count in [("s > 'b'", 0), ("s >= 'aaa'", 2), ("long LIKE 'zzz%'", 1), ("n.x = 5", 1), ("f > 5", 1)]:
        assert deltic.Table(uri).scan(filter=filter).to_arrow().num_rows == count, filter


def test_statistics_of_the_first_32_leaves_only(uri: str) -> None:
    deltic.write(uri, pa.table({f"c{i}": [i] for i in range(40)}))
    (add,) = adds(uri, 0)
    assert set(add["stats"]["minValues"]) == {f"c{i}" for i in range(32)}
    assert deltic.Table(uri).scan(filter="c39 = 39").to_arrow().num_rows == 1


def test_partitions(uri: str) -> None:
    values = {
        "s": ["a/b", "a b%20", "ünï 'x'", "", None, "a=b:c?#"],
        "i": [1, 2, 3, 4, None, 6],
        "d": [date(2026, 1, day) for day in range(1, 6)] + [None],
        "v": [1, 2, 3, 4, 5, 6],
    }
    table = pa.table(values)
    deltic.write(uri, table, partition_by=["s", "i", "d"])
    found = adds(uri, 0)
    assert len(found) == 6
    for add in found:
        assert set(add["partitionValues"]) == {"s", "i", "d"}
        assert (Path(uri) / unquote(add["path"])).is_file()
        assert pq.read_schema(Path(uri) / unquote(add["path"])).names == ["v"]
    read = deltic.Table(uri).scan().to_arrow()
    # PROTOCOL.md, "Partition Value Serialization": the empty string stands for null.
    expected = table.set_column(0, "s", pa.array([None if s == "" else s for s in values["s"]]))
    assert rows(read) == rows(expected)
    assert read.schema.names == ["s", "i", "d", "v"]
    plan = deltic.Table(uri).plan(filter="s = 'a/b'")
    assert (plan.files_kept, plan.skipped["partition"]) == (1, 5)


@pytest.mark.slow
def test_partition_columns_of_every_primitive_type(uri: str) -> None:
    table = every_type(12)
    nested = {"array", "map", "struct", "array_of_structs", "map_of_arrays"}
    for name in [name for name in table.schema.names if name not in nested | {"id"}]:
        target = f"{uri}/{name}"
        expected = table.select([name, "id"])
        if name == "binary":  # must be UTF-8 as a partition value: see the next test
            expected = pa.concat_tables([expected.slice(0, 2), expected.slice(3)])
        deltic.write(target, expected, partition_by=[name])
        if name in ("string", "binary"):
            blank = [value or None for value in expected[name].to_pylist()]
            expected = expected.set_column(0, name, pa.array(blank, expected.schema.field(name).type))
        assert rows(deltic.Table(target).scan().to_arrow()) == rows(expected), name


def test_a_partition_value_that_is_not_utf8_is_refused(uri: str) -> None:
    with pytest.raises(deltic.InvalidInputError):
        deltic.write(uri, pa.table({"p": [b"\xff\x00"], "v": [1]}), partition_by=["p"])
    assert not deltic.Table(uri).exists()
    assert data_files(uri) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_strings_that_are_not_utf8_are_refused(uri: str, kind: pa.DataType) -> None:
    text = pa.array([b"caf\xe9 noir"]).cast(pa.string(), safe=False)
    data = pa.table({"n": [1], "t": text.dictionary_encode() if pa.types.is_dictionary(kind) else text.cast(kind)})
    for partition_by in (None, ["t"]):
        with pytest.raises(deltic.InvalidInputError, match=r"column `t` is not valid: .* not UTF-8"):
            deltic.write(uri, data, partition_by=partition_by)
    assert not deltic.Table(uri).exists()
    nested = pa.table({"n": [1], "l": pa.ListArray.from_arrays([0, 1], text)})
    with pytest.raises(deltic.InvalidInputError, match=r"column `l\.element` is not valid: it has strings"):
        deltic.write(uri, nested)
    assert data_files(uri) == []


@pytest.mark.slow
def test_rolling_files(uri: str) -> None:
    table = pa.table({"v": pa.array(os.urandom(8) for _ in range(50_000))})
    commit = deltic.write(uri, table, target_file_size=100_000)
    sizes = [path.stat().st_size for path in data_files(uri)]
    assert commit.num_added_files == len(sizes) > 2
    assert max(sizes) < 400_000
    assert deltic.Table(uri).scan().to_arrow().num_rows == 50_000


@pytest.mark.parametrize("codec", ["zstd", "snappy", "uncompressed"])
def test_compression(uri: str, codec: str) -> None:
    deltic.write(uri, pa.table({"v": ["x" * 1000] * 100}), compression=codec)
    (path,) = data_files(uri)
    found = pq.ParquetFile(path).metadata.row_group(0).column(0).compression
    assert found.lower() == codec


DATA_PAGE, DATA_PAGE_V2 = b"\x15\x00", b"\x15\x06"
"""Thrift encoding of the page type, the first field of a Parquet page header: 0 and 3."""


@pytest.mark.parametrize(
    ("version", "page", "footer"),
    [
        (None, DATA_PAGE, "1.0"),
        ("1.0.0", DATA_PAGE, "1.0"),
        ("2.12.0", DATA_PAGE_V2, "2.6"),
    ],
    ids=["none", "1.0.0", "2.12.0"],
)
def test_pages_have_the_version_that_the_table_asks_for(
    uri: str, version: str | None, page: bytes, footer: str
) -> None:
    data = pa.table({"id": [1, 2], "text": ["a", None], "list": [[1], None], "part": ["x", "y"]})
    properties = {} if version is None else {"delta.parquet.format.version": version}
    deltic.write(uri, data, partition_by=["part"], properties=properties)
    table = deltic.Table(uri)
    deltic.write(table, data)
    table.delete("id = 2")
    table.optimize()
    files = data_files(uri)
    assert len(files) > 4
    for path in files:
        content, metadata = path.read_bytes(), pq.read_metadata(path)
        # pyarrow reports any version above 1 as the newest that it knows.
        assert metadata.format_version == footer
        for at in range(metadata.num_columns):
            start = metadata.row_group(0).column(at).data_page_offset
            assert content[start : start + 2] == page, (path.name, metadata.row_group(0).column(at).path_in_schema)
    assert table.scan().to_arrow()["list"].to_pylist() == [[1], [1]]


def test_an_unknown_codec_is_refused(uri: str) -> None:
    with pytest.raises(deltic.DelticError):
        deltic.write(uri, pa.table({"v": [1]}), compression="pkzip")
    assert not deltic.Table(uri).exists()


def test_commit_info(uri: str) -> None:
    before = datetime.now(timezone.utc).timestamp() * 1000
    deltic.write(uri, pa.table({"a": [1]}))
    deltic.write(uri, pa.table({"a": [2]}), user_metadata="why")
    info = next(action["commitInfo"] for action in log_actions(uri, 1) if "commitInfo" in action)
    assert before <= info["timestamp"] <= before + 60_000
    assert info["operation"] == "WRITE"
    assert info["operationParameters"]["mode"] == "Append"
    assert info["operationMetrics"]["numOutputRows"] == "1"
    assert info["engineInfo"].startswith("deltic/")
    assert info["isBlindAppend"] is True
    assert info["txnId"]
    assert info["userMetadata"] == "why"


def test_an_append_keeps_schema_and_metadata(uri: str) -> None:
    deltic.write(uri, every_type(5))
    deltic.write(uri, every_type(5))
    assert not [action for action in log_actions(uri, 1) if "metaData" in action or "protocol" in action]
    assert deltic.Table(uri).scan().to_arrow().num_rows == 10


def test_columns_may_come_in_any_order(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1], "b": ["x"]}))
    deltic.write(uri, pa.table({"b": ["y"], "a": [2]}))
    assert deltic.Table(uri).scan().to_arrow().sort_by("a").to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_a_missing_column_is_filled_with_nulls(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1], "b": ["x"]}))
    deltic.write(uri, pa.table({"a": [2]}))
    assert deltic.Table(uri).scan(filter="a = 2").to_arrow()["b"].to_pylist() == [None]


def test_files_are_deleted_if_the_commit_is_refused(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}))
    before = data_files(uri)

    def change(**properties: str) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [2]})
        with deltic.Table(uri).transaction() as tx:
            tx.set_properties(properties)

    def replaced() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [2]})
        deltic.write(uri, pa.table({"a": [3]}))

    schema = pa.schema([("a", pa.int64())])
    rows = pa.RecordBatchReader.from_batches(schema, change(**{"delta.dataSkippingNumIndexedCols": "0"}))
    with pytest.raises(deltic.MetadataChangedError):
        deltic.write(uri, rows)
    assert data_files(uri) == before
    with pytest.raises(deltic.ConcurrentAppendError):
        deltic.write(uri, pa.RecordBatchReader.from_batches(schema, replaced()), mode="overwrite")
    assert len(data_files(uri)) == len(before) + 1


def test_files_are_kept_if_the_outcome_of_the_commit_is_unknown(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}))

    def damaged() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [2]})
        # The writer of this commit is unknown: it may be the same writer.
        Path(uri, "_delta_log", f"{1:020}.json").write_text("{")

    rows = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), damaged())
    with pytest.raises(deltic.CorruptTableError):
        deltic.write(uri, rows)
    assert len(data_files(uri)) == 2


def test_an_empty_write_makes_an_empty_table(uri: str) -> None:
    commit = deltic.write(uri, pa.table({"a": pa.array([], pa.int64())}))
    assert (commit.version, commit.num_added_files) == (0, 0)
    assert deltic.Table(uri).scan().to_arrow().schema.names == ["a"]


def test_overwrite(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1, 2]}))
    commit = deltic.write(uri, pa.table({"a": [3]}), mode="overwrite")
    assert commit.version == 1
    table = deltic.Table(uri)
    assert table.scan().to_arrow()["a"].to_pylist() == [3]
    assert sorted(table.snapshot(0).scan().to_arrow()["a"].to_pylist()) == [1, 2]


def test_create_then_append(uri: str) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("p", pa.string())])
    assert deltic.create(uri, schema, partition_by=["p"], name="n").version == 0
    assert deltic.write(uri, pa.table({"a": [1], "p": ["x"]})).version == 1
    assert deltic.write(uri, pa.table({"a": [2], "p": ["y"]}), partition_by=["p"]).version == 2
    (action,) = [action for action in log_actions(uri, 0) if "commitInfo" in action]
    assert action["commitInfo"]["operation"] == "CREATE TABLE"


@pytest.mark.slow
def test_concurrent_appends_all_succeed(uri: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    deltic.create(uri, A)
    with ThreadPoolExecutor(8) as pool:
        commits = list(pool.map(lambda i: deltic.write(uri, pa.table({"a": [i]})), range(24)))
    assert sorted(commit.version for commit in commits) == list(range(1, 25))
    assert any(commit.attempts > 1 for commit in commits)
    assert sorted(deltic.Table(uri).scan().to_arrow()["a"].to_pylist()) == list(range(24))
    ids = {next(a["commitInfo"]["txnId"] for a in log_actions(uri, v) if "commitInfo" in a) for v in range(25)}
    assert len(ids) == 25


def test_the_log_is_json_lines_without_leftovers(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}))
    log = Path(uri, "_delta_log")
    names = sorted(path.name for path in log.iterdir() if not path.name.startswith((".", "_")))
    assert names == [f"{0:020}.crc", f"{0:020}.json"]
    for line in (log / f"{0:020}.json").read_text().splitlines():
        assert len(json.loads(line)) == 1


def test_an_application_transaction_is_written(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}), app_id="loader", app_version=7)
    (action,) = [action for action in log_actions(uri, 0) if "txn" in action]
    assert (action["txn"]["appId"], action["txn"]["version"]) == ("loader", 7)


@pytest.mark.slow
def test_shared_strings_may_exceed_32_bit_offsets(uri: str) -> None:
    """2,300 rows with the same string of 1 MB: 2.3 GB as plain strings, 1 MB in a string view."""
    letters = "x" * 1_000_000
    frame = polars.DataFrame({"n": range(2300)}).with_columns(s=polars.lit(letters))
    assert deltic.write(uri, frame).version == 0
    table = deltic.Table(uri)
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == list(range(2300))
    assert table.scan(columns=["s"], filter="n = 2299").to_arrow()["s"].to_pylist() == [letters]
