"""What a frame holds reaches the table: columns, names and the labels of rows that were named, or an error."""

from collections.abc import Callable
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
    "frame.collect()": lambda: pl.DataFrame({"v": [1]}).lazy(),
    "polars type Object": lambda: pl.DataFrame([pl.Series("v", [object()], dtype=pl.Object)]),
    "an InMemoryDataset: pass dataset.scanner()": lambda: pyarrow.dataset.dataset(pa.table({"v": [1]})),
    "a str as rows: the location goes before them, deltic.write(uri, data)": lambda: "flights",
    "a dict: make a table of it, with pa.table(": lambda: {"v": [1]},
    "a list of rows: make a table of it, with pa.Table.from_pylist(": lambda: [{"v": 1}],
    "name its columns": lambda: np.zeros((2, 2)),
    "connection.sql('...')": lambda: duckdb.connect(),
    "table.scan()": lambda: deltic.Table("memory://none"),
    "cannot write an int: pass Arrow data": lambda: 5,
    "too large": lambda: pd.DataFrame({"v": [2**70]}),
    "surrogates": lambda: pd.DataFrame({"v": ["\ud800"]}),
    "Sparse": lambda: pd.DataFrame({"v": pd.arrays.SparseArray([1, 0])}),
}


@pytest.mark.parametrize("told", UNCLEAR)
def test_what_is_unclear_is_refused(uri: str, told: str) -> None:
    deltic.create(uri, pa.schema([("v", pa.int64()), ("k", pa.string()), ("j", pa.string())]))
    with pytest.raises(deltic.InvalidInputError) as caught:
        deltic.write(uri, UNCLEAR[told]())
    assert told in str(caught.value)
    assert deltic.Table(uri).snapshot().version == 0


def test_a_scan_without_columns_is_no_data(uri: str, tmp_path: Any) -> None:
    deltic.write(uri, pa.table({"v": [1, 2]}))
    with pytest.raises(deltic.InvalidInputError, match="the data has no columns"):
        deltic.write(str(tmp_path / "copy"), deltic.Table(uri).scan(columns=[]))


def test_frames_of_others_arrive_whole(uri: str) -> None:
    frame = pl.DataFrame({"n": [1, 2]}).with_columns(
        c=pl.Series(["a", "b"], dtype=pl.Categorical), e=pl.Series(["x", "y"], dtype=pl.Enum(["y", "x"]))
    )
    expected = [{"n": 1, "c": "a", "e": "x"}, {"n": 2, "c": "b", "e": "y"}]
    assert stored(uri, frame) == (["n", "c", "e"], expected)
    assert stored(uri + "2", duckdb.sql("SELECT 1 AS n, 'a' AS c, 'x'::ENUM('y', 'x') AS e")) == (
        ["n", "c", "e"],
        expected[:1],
    )


def test_a_pandas_without_arrow_streams(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pd.DataFrame, "__arrow_c_stream__", raising=False)
    assert stored(uri, FRAME.groupby("k")[["v"]].sum()) == (["k", "v"], [{"k": "a", "v": 5}, {"k": "b", "v": 2}])
