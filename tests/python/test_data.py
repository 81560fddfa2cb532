"""All data of a frame is written (columns, names, a named index), or the write is refused."""

import decimal
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import deltic

FRAME = pd.DataFrame({"k": ["a", "b", "a"], "j": ["x", "y", "y"], "v": [1, 2, 4]})


def stored(uri: str, data: Any) -> tuple[list[str], list[dict[str, Any]]]:
    deltic.write(uri, data)
    rows = deltic.Table(uri).scan().to_arrow()
    return rows.schema.names, sorted(rows.to_pylist(), key=str)


@pytest.mark.parametrize(
    ("frame", "names", "rows"),
    [
        (FRAME.groupby("k")[["v"]].sum(), ["k", "v"], [("a", 5), ("b", 2)]),
        (
            FRAME.groupby(["k", "j"])[["v"]].sum(),
            ["k", "j", "v"],
            [("a", "x", 1), ("a", "y", 4), ("b", "y", 2)],
        ),
        (FRAME[["v"]].set_index("v"), ["v"], [(1,), (2,), (4,)]),
        (FRAME[["v"]].rename_axis("row"), ["row", "v"], [(0, 1), (1, 2), (2, 4)]),
        (FRAME[["v"]][1:], ["v"], [(2,), (4,)]),
        (FRAME[FRAME.v > 1].reset_index(drop=True)[["v"]], ["v"], [(2,), (4,)]),
        (
            FRAME.astype({"k": "category"}).groupby("k", observed=True)[["v"]].sum(),
            ["k", "v"],
            [("a", 5), ("b", 2)],
        ),
        (
            FRAME[["v"]].set_index(pd.DatetimeIndex(["2026-01-01"] * 3, name="day", tz="UTC"))[:1],
            ["day", "v"],
            [(pd.Timestamp("2026-01-01", tz="UTC"), 1)],
        ),
        (FRAME[FRAME.v > 9][["v"]], ["v"], []),
    ],
    ids=[
        "one key",
        "two keys",
        "only an index",
        "named row numbers",
        "row numbers",
        "dropped",
        "categories",
        "times",
        "none",
    ],
)
def test_a_named_index_becomes_columns(uri: str, frame: pd.DataFrame, names: list[str], rows: list[Any]) -> None:
    assert stored(uri, frame) == (names, [dict(zip(names, row, strict=True)) for row in rows])


def test_a_transaction_keeps_a_named_index(uri: str) -> None:
    deltic.create(uri, pa.schema([("k", pa.string()), ("v", pa.int64())]))
    table = deltic.Table(uri)
    with table.transaction() as tx:
        assert tx.append(FRAME.groupby("k")[["v"]].sum()) == 2
    assert sorted(table.scan(columns=["k"]).to_arrow()["k"].to_pylist()) == ["a", "b"]


UNCLEAR: dict[str, Callable[[], Any]] = {
    "index has no name": lambda: FRAME[FRAME.v > 1],
    "drop them with frame.reset_index": lambda: FRAME.describe()[["v"]],
    "`k` twice": lambda: FRAME.set_index("k", drop=False),
    "a level without a name": lambda: FRAME.set_index(
        pd.MultiIndex.from_arrays([FRAME.k, FRAME.j], names=[None, None])
    ),
    "a level named 5 (int)": lambda: FRAME.rename_axis(5),
    "labelled 7 (int)": lambda: FRAME.rename(columns={"v": 7}),
    "labelled None": lambda: FRAME.rename(columns={"v": None}),
    "2 levels of labels": lambda: FRAME.groupby("k").agg({"v": ["min", "max"]}),
    "no columns and 3 rows": lambda: FRAME[[]],
    "the data has no columns": lambda: pa.table({"a": [1]}).select([]),
    "series.to_frame('name')": lambda: FRAME.v,
    "polars type Object": lambda: pl.DataFrame([pl.Series("v", [object()], dtype=pl.Object)]),
    "a str as rows: the location goes before them, deltic.write(uri, data)": lambda: "flights",
    "a dict: make a table of it, with pa.table(": lambda: {"v": [1]},
    "name its columns": lambda: np.zeros((2, 2)),
    "connection.sql('...')": lambda: duckdb.connect(),
    "table.scan()": lambda: deltic.Table("memory://none"),
    "the data has no batch": list,
    "item 1 (the first is 0) of the data has the columns k: string, and the first has v: long": lambda: (
        pa.record_batch(columns) for columns in ({"v": [1]}, {"k": ["a"]})
    ),
    "item 0 (the first is 0) of the data is a dict: make a list": lambda: (row for row in [{"v": 1}]),
    "item 0 (the first is 0) of the data is an int": lambda: [1, 2],
    "row 1 (the first is 0) of the data is a list, and others are dicts": lambda: [{"v": 1}, ["v"]],
    "row 0 (the first is 0) of the data has a key that is an int": lambda: [{1: 2}],
    "the values of `v` in the data have no type in common": lambda: [{"v": 1}, {"v": "x"}],
    "row 1 (the first is 0) of the data has 1.5": lambda: [{"v": 1.0}, {"v": 1.5}],
    "a column `q` that the table does not have": lambda: [{"v": 1}, {"q": 2}],
    "cannot write an int: pass Arrow data": lambda: 5,
    "too large": lambda: pd.DataFrame({"v": [2**70]}),
    "surrogates": lambda: pd.DataFrame({"v": ["\ud800"]}),
    "Sparse": lambda: pd.DataFrame({"v": pd.arrays.SparseArray([1, 0])}),
}


@pytest.mark.parametrize("message", UNCLEAR)
def test_ambiguous_data_is_refused(uri: str, message: str) -> None:
    deltic.create(uri, pa.schema([("v", pa.int64()), ("k", pa.string()), ("j", pa.string())]))
    with pytest.raises(deltic.InvalidInputError) as caught:
        deltic.write(uri, UNCLEAR[message]())
    assert message in str(caught.value)
    assert deltic.Table(uri).snapshot().version == 0


def test_a_scan_without_columns_is_no_data(uri: str, tmp_path: Any) -> None:
    deltic.write(uri, pa.table({"v": [1, 2]}))
    with pytest.raises(deltic.InvalidInputError, match="the data has no columns"):
        deltic.write(str(tmp_path / "copy"), deltic.Table(uri).scan(columns=[]))


def test_frames_of_other_libraries_are_written(uri: str) -> None:
    frame = pl.DataFrame({"n": [1, 2]}).with_columns(
        c=pl.Series(["a", "b"], dtype=pl.Categorical), e=pl.Series(["x", "y"], dtype=pl.Enum(["y", "x"]))
    )
    expected = [{"n": 1, "c": "a", "e": "x"}, {"n": 2, "c": "b", "e": "y"}]
    assert stored(uri, frame) == (["n", "c", "e"], expected)
    assert stored(uri + "2", duckdb.sql("SELECT 1 AS n, 'a' AS c, 'x'::ENUM('y', 'x') AS e")) == (
        ["n", "c", "e"],
        expected[:1],
    )


def test_pandas_without_an_arrow_stream(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pd.DataFrame, "__arrow_c_stream__", raising=False)
    assert stored(uri, FRAME.groupby("k")[["v"]].sum()) == (["k", "v"], [{"k": "a", "v": 5}, {"k": "b", "v": 2}])


ROWS = pa.table({"n": [1, 2], "s": ["a", "b"]})


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        lambda: ROWS.to_batches(),
        lambda: tuple(ROWS.to_batches()),
        lambda: (batch for batch in ROWS.to_batches(max_chunksize=1)),
        lambda: iter([ROWS.slice(0, 1), ROWS.slice(1)]),
        lambda: [pl.from_arrow(ROWS)],
        lambda: pyarrow.dataset.dataset(ROWS),
        lambda: pyarrow.dataset.dataset(ROWS).scanner(filter=pyarrow.dataset.field("n") > 0),
        lambda: pl.from_arrow(ROWS).lazy().filter(pl.col("n") > 0),
        lambda: duckdb.sql("SELECT * FROM (VALUES (1::BIGINT, 'a'), (2, 'b')) t(n, s)"),
        lambda: ROWS.to_pylist(),
    ],
    ids=["list", "tuple", "generator", "tables", "frames", "dataset", "scanner", "lazy", "relation", "dicts"],
)
def test_collections_are_written(uri: str, data: Callable[[], Any]) -> None:
    assert stored(uri, data()) == (["n", "s"], ROWS.to_pylist())
    table = deltic.Table(uri)
    with table.transaction() as tx:
        assert tx.append(data()) == 2


def test_dicts_have_the_columns_of_all_of_them(uri: str) -> None:
    assert stored(uri, [{"a": 1}, {"b": "x", "a": None}, {"a": 3, "c": [1.5]}]) == (
        ["a", "b", "c"],
        [{"a": 1, "b": None, "c": None}, {"a": 3, "b": None, "c": [1.5]}, {"a": None, "b": "x", "c": None}],
    )


def test_dicts_become_the_tables_types_where_that_is_exact(uri: str) -> None:
    fields = [("n", pa.int16()), ("d", pa.decimal128(10, 2)), ("s", pa.struct([("x", pa.float64())]))]
    schema = pa.schema([*fields, ("m", pa.map_(pa.string(), pa.int64())), ("day", pa.date32())])
    deltic.create(uri, schema)
    one = {"N": 1, "d": decimal.Decimal("1.5"), "s": {"x": 2}, "m": {"k": 7}, "day": date(2026, 3, 1)}
    deltic.write(uri, [one, {"d": 2, "m": None}, {"m": {}}])
    rows = deltic.Table(uri).scan().to_arrow().to_pylist()
    wanted = {"n": 1, "d": decimal.Decimal("1.50"), "s": {"x": 2.0}, "m": [("k", 7)], "day": date(2026, 3, 1)}
    assert wanted in rows
    assert sorted(map(repr, (row["m"] for row in rows))) == ["None", "[('k', 7)]", "[]"]
    for wrong, message in (
        ({"n": 70000}, "70000"),
        ({"d": decimal.Decimal("1.555")}, "`d`"),
        ({"m": {"k": 1.5}}, "1.5"),
        ({"day": datetime(2026, 3, 1, 12)}, "`day`"),
    ):
        with pytest.raises(deltic.InvalidInputError) as caught:
            deltic.write(uri, [wrong])
        assert message in str(caught.value)
    deltic.write(uri, [{"n": 2, "more": True}], schema_mode="merge")
    assert deltic.Table(uri).scan(filter="more").to_arrow()["n"].to_pylist() == [2]
    deltic.write(uri, [{"n": "text"}], mode="overwrite", schema_mode="overwrite")
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == [{"n": "text"}]


def test_times_in_dicts_are_not_given_a_zone(uri: str) -> None:
    deltic.create(uri, pa.schema([("at", pa.timestamp("us", "UTC"))]))
    with pytest.raises(deltic.InvalidInputError, match="give it the time zone"):
        deltic.write(uri, [{"at": datetime(2026, 1, 1)}])
    deltic.write(uri, [{"at": datetime(2026, 1, 1, tzinfo=timezone.utc)}, {"at": None}])
    assert deltic.Table(uri).scan().to_arrow().num_rows == 2


DAY, PLAIN = date(2026, 1, 1), datetime(2026, 1, 1, 12)
AWARE = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize("kind", [None, pa.date32(), pa.timestamp("us", "UTC")], ids=str)
@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        (DAY, PLAIN, ("dates (row 1: 2026-01-01)", "times without an offset (row 3: 2026-01-01 12:00:00)")),
        (AWARE, DAY, ("times with an offset (row 1: 2026-01-01 12:00:00+00:00)", "dates (row 3: 2026-01-01)")),
        (PLAIN, AWARE, ("times without an offset (row 1: ", "times with an offset (row 3: ")),
    ],
    ids=["dates and times", "offsets and dates", "offsets"],
)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("at", lambda time: time),
        ("at", lambda time: [None, time]),
        ("at.deep", lambda time: {"deep": time, "other": 1}),
        ("at.deep", lambda time: [{"deep": [time]}]),
    ],
    ids=["plain", "list", "struct", "deep"],
)
def test_dates_and_times_of_several_kinds_are_refused_by_column_and_row(
    uri: str, kind: pa.DataType | None, first: Any, second: Any, parts: tuple[str, str], path: str, value: Any
) -> None:
    if kind is not None:
        deltic.create(uri, pa.schema([("id", pa.int64()), ("at", kind)]))
    rows = [{"id": 0}, {"id": 1, "at": value(first)}, {"id": 2, "at": None}, {"id": 3, "at": value(second)}]
    with pytest.raises(deltic.InvalidInputError) as caught:
        deltic.write(uri, rows)
    for part in (f"the values of `{path}` in the data", *parts, "make all of them the same"):
        assert part in str(caught.value)
    if kind is None:
        assert not deltic.Table(uri).exists()
    else:
        assert deltic.Table(uri).snapshot().version == 0


def test_times_with_several_offsets_are_instants(uri: str) -> None:
    east = AWARE.astimezone(timezone(timedelta(hours=5, minutes=30)))
    deltic.write(uri, [{"at": AWARE, "on": DAY}, {"at": east, "on": None}])
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == [{"at": AWARE, "on": DAY}, {"at": AWARE, "on": None}]


def test_a_generator_that_raises_midway_leaves_the_table_alone(uri: str) -> None:
    deltic.write(uri, ROWS)

    def batches() -> Any:
        yield from ROWS.to_batches()
        raise RuntimeError("the source is gone")

    with pytest.raises(deltic.InvalidInputError, match="the source is gone"):
        deltic.write(uri, batches())
    assert deltic.Table(uri).snapshot().version == 0


def test_lists_of_pairs_keep_duplicate_map_keys(uri: str) -> None:
    kind = pa.map_(pa.string(), pa.int64())
    deltic.write(uri, pa.table({"id": [1], "m": pa.array([[("a", 1)]], kind)}))
    deltic.write(uri, [{"id": 2, "m": [("k", 1), ("k", 2)]}, {"id": 3, "m": {"x": 9}}])
    assert deltic.Table(uri).scan().to_arrow().sort_by("id")["m"].to_pylist() == [
        [("a", 1)],
        [("k", 1), ("k", 2)],
        [("x", 9)],
    ]


def test_values_that_are_not_maps_are_refused_by_row(uri: str) -> None:
    deltic.create(uri, pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))
    deltic.write(uri, [{"m": None}, {"m": {}}, {"m": {"a": 1}}, {"m": None}, {"m": None}])
    table = deltic.Table(uri)
    assert table.scan().to_arrow()["m"].to_pylist() == [None, [], [("a", 1)], None, None]
    for value, message in (
        (5, "row 1 (the first is 0) of the data has an int for the map `m`"),
        ({None: 1}, "null key"),
    ):
        with pytest.raises(deltic.InvalidInputError) as caught:
            deltic.write(uri, [{"m": {}}, {"m": value}])
        assert message in str(caught.value)
    with pytest.raises(deltic.InvalidInputError, match="no type in common"):
        deltic.write(uri, [{"m": {"a": 1, "b": "x"}}])


def test_frames_in_a_list_are_checked_like_frames(uri: str) -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    frame = pandas.DataFrame({"a": [1, 2, 3]})
    with pytest.raises(deltic.InvalidInputError, match="index"):
        deltic.write(uri, [frame[frame.a > 1]])
    with pytest.raises(deltic.InvalidInputError, match="labelled 0"):
        deltic.write(uri, [pandas.DataFrame([[1, 2]])])
    deltic.write(uri, [frame, frame])
    deltic.write(uri, [polars.DataFrame({"a": []}, schema={"a": polars.Int64}), polars.DataFrame({"a": [7]})])
    assert deltic.Table(uri).scan().count() == 7
