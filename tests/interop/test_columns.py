"""Every reader returns the values that `deltic.write` accepted; values that a table cannot store exactly are refused.

Columns are random (`columns`): every Arrow type and layout, nullable and required at every level, with extreme values.
Each run prints its seed, and `DELTIC_SEED` repeats it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pyarrow as pa
import pytest
from columns import Kind, kinds, read
from filters import Filters
from hypothesis import strategies as st
from pyspark.sql.types import StructType

import deltic

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

SEED = int(os.environ.get("DELTIC_SEED") or random.randrange(2**32))
NAMES = ["a", "é日本", "a.b", 'quo"te', "tick`", "_x", "UPPER", "0"]
CHECKS = (hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow)


def bounded(examples: int) -> Any:
    seeded = hypothesis.seed(SEED)
    chosen = hypothesis.settings(
        max_examples=examples, deadline=None, database=None, print_blob=True, suppress_health_check=[*CHECKS]
    )
    return lambda test: seeded(chosen(test))


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Iterator[str]]:
    """New paths for tables."""
    print(f"DELTIC_SEED={SEED}")
    yield (str(tmp_path / f"table{number}") for number in itertools.count())
    shutil.rmtree(tmp_path, ignore_errors=True)


class Rows:
    """A random table, and the rows that must be read back."""

    def __init__(self, draw: st.DrawFn, most: int = 3) -> None:
        names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique=True))
        self.kinds: dict[str, Kind] = {name: draw(kinds()) for name in names}
        count = draw(st.integers(0, 6))
        values = {name: [draw(kind.some()) for _ in range(count)] for name, kind in self.kinds.items()}
        # The arrays may be slices with an offset.
        skipped = draw(st.integers(0, 1))
        arrays = [kind.build([kind.zero] * skipped + values[name])[skipped:] for name, kind in self.kinds.items()]
        numbers = pa.array(range(count), pa.int64())
        schema = pa.schema([pa.field("id", pa.int64()), *(kind.field(name) for name, kind in self.kinds.items())])
        self.data = pa.Table.from_arrays([numbers, *arrays], schema=schema)
        kept = [[kind.keep(value) for value in values[name]] for name, kind in self.kinds.items()]
        self.expected = spell([list(range(count)), *kept])

    def names(self) -> list[str]:
        return list(self.data.schema.names)


def spell(columns: list[list[Any]]) -> Counter[str]:
    return Counter(map(repr, zip(*columns, strict=True)))


def spelled(table: pa.Table, names: list[str]) -> Counter[str]:
    return spell([read(table.column(name)) for name in names])


def written(draw: st.DrawFn, uri: str, rows: Rows) -> None:
    """Write the rows in two parts: the first creates the table, the second is appended."""
    cut = draw(st.integers(0, rows.data.num_rows))
    for part in (rows.data.slice(0, cut), rows.data.slice(cut)):
        deltic.write(uri, part)


@st.composite
def rows_of(draw: st.DrawFn) -> Rows:
    return Rows(draw)


@bounded(50)
@hypothesis.given(data=st.data())
def test_what_is_written_is_read_back(
    places: Iterator[str], connection: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    deltalake = pytest.importorskip("deltalake")
    rows, uri = data.draw(rows_of()), next(places)
    written(data.draw, uri, rows)
    table = deltic.Table(uri)
    assert spelled(table.scan().to_arrow(), rows.names()) == rows.expected
    assert spelled(pa.table(deltalake.DeltaTable(uri).to_pyarrow_table()), rows.names()) == rows.expected
    theirs = connection.execute(f"SELECT * FROM delta_scan('{uri}')").to_arrow_table()
    assert spelled(theirs, rows.names()) == rows.expected
    # Write the scanned rows again.
    deltic.write(uri, table.scan(), mode="overwrite")
    assert spelled(table.scan().to_arrow(), rows.names()) == rows.expected


@bounded(30)
@hypothesis.given(data=st.data())
def test_statistics_lose_no_row(places: Iterator[str], data: st.DataObject) -> None:
    rows = data.draw(rows_of())
    with_statistics, without = next(places), next(places)
    cut = data.draw(st.integers(0, rows.data.num_rows))
    for uri, properties in ((with_statistics, None), (without, {"delta.dataSkippingNumIndexedCols": "0"})):
        deltic.create(uri, rows.data.schema, properties=properties)
        for part in (rows.data.slice(0, cut), rows.data.slice(cut)):
            deltic.write(uri, part)
    tables = [deltic.Table(uri) for uri in (with_statistics, without)]
    whole = tables[0].scan().to_arrow()
    filters = Filters(whole, str(data.draw(st.integers(0, 2**32))))
    for filter in [text.ours for text in filters.make(12)]:
        found = [table.scan(columns=["id"], filter=filter).to_arrow()["id"].to_pylist() for table in tables]
        assert sorted(found[0]) == sorted(found[1]), filter


PARTITIONED = [
    pa.string(),
    pa.int64(),
    pa.int8(),
    pa.date32(),
    pa.bool_(),
    pa.float64(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.decimal128(38, 10),
    pa.binary(),
]


@bounded(20)
@hypothesis.given(data=st.data())
def test_partition_values_are_read_back(
    places: Iterator[str], connection: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    deltalake = pytest.importorskip("deltalake")
    kind = data.draw(kinds().filter(lambda kind: kind.type in PARTITIONED and kind.metadata is None))
    values = data.draw(st.lists(kind.some(), max_size=5))
    table = pa.table({"id": pa.array(range(len(values)), pa.int64()), "p": kind.build(values)})
    uri = next(places)
    try:
        deltic.write(uri, table, partition_by=["p"])
    except deltic.InvalidInputError as error:
        assert pa.types.is_binary(kind.type)
        assert "partition column `p`" in str(error)  # noqa: PT017
        return
    # As a partition value an empty string is null.
    stored: dict[object, None] = {"": None, b"": None}
    kept = [stored.get(value, value) for value in map(kind.keep, values)]
    expected = spell([list(range(len(values))), kept])
    assert spelled(deltic.Table(uri).scan().to_arrow(), ["id", "p"]) == expected
    assert spelled(pa.table(deltalake.DeltaTable(uri).to_pyarrow_table()), ["id", "p"]) == expected
    theirs = connection.execute(f"SELECT id, p FROM delta_scan('{uri}')").to_arrow_table()
    assert spelled(theirs, ["id", "p"]) == expected


REFUSED = st.sampled_from(
    [
        pa.array([1], pa.uint64()),
        pa.array([None], pa.null()),
        pa.array([1], pa.time32("s")),
        pa.array([1], pa.time64("ns")),
        pa.array([1], pa.duration("us")),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([1], pa.decimal256(40, 0)),
        pa.array([100], pa.decimal128(10, -2)),
        pa.array([1], pa.int64()).cast(pa.timestamp("ns")),
        pa.array([1], pa.int64()).cast(pa.date64(), safe=False),
        pa.array([10**20], pa.decimal128(38, 0)).cast(pa.decimal128(5, 0), safe=False),
        pa.array([1], pa.bool8()),
        pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
        pa.FixedShapeTensorArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [1]), pa.array([[1]], pa.list_(pa.int8(), 1))
        ),
    ]
)


def nest(array: pa.Array, how: str) -> pa.Array:
    one = pa.array([0, 1], pa.int32())
    field = pa.field("x", array.type)
    if how == "list":
        return pa.ListArray.from_arrays(one, array, type=pa.list_(field))
    if how == "struct":
        return pa.StructArray.from_arrays([array], fields=[field])
    if how == "map":
        return pa.MapArray.from_arrays(one, pa.array(["k"]), array)
    if how == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), array)
    return pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), array)


@bounded(30)
@hypothesis.given(
    array=REFUSED, levels=st.lists(st.sampled_from(["list", "struct", "map", "dictionary", "runs"]), max_size=3)
)
def test_what_no_table_can_hold_is_refused(places: Iterator[str], array: pa.Array, levels: list[str]) -> None:
    uri = next(places)
    for level in levels:
        try:
            array = nest(array, level)
        except (pa.ArrowException, TypeError, ValueError):
            hypothesis.reject()
    with pytest.raises((deltic.InvalidInputError, deltic.UnsupportedFeatureError), match="`c"):
        deltic.write(uri, pa.table({"c": array}))
    assert not deltic.Table(uri).exists()


class Batch:
    """Many tables for one Spark session, which is slow to start."""

    def __init__(self, places: Iterator[str]) -> None:
        self.places = places
        self.made: list[tuple[str, Rows]] = []

    def make(self, examples: int) -> None:
        @bounded(examples)
        @hypothesis.given(data=st.data())
        def make(data: st.DataObject) -> None:
            rows, uri = data.draw(rows_of()), next(self.places)
            written(data.draw, uri, rows)
            self.made.append((uri, rows))

        make()


def nullable(schema: StructType) -> StructType:
    """The schema with nulls allowed at every level."""
    text = schema.json()
    for key in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{key}":false', f'"{key}":true')
    return StructType.fromJson(json.loads(text))


def test_delta_spark_reads_the_same(places: Iterator[str], spark: SparkSession) -> None:
    batch = Batch(places)
    batch.make(20)
    for uri, rows in batch.made:
        frame = spark.read.format("delta").load(uri)
        # toArrow() of PySpark fails for a null struct with required fields.
        theirs = pa.table(frame.to(nullable(frame.schema)).toArrow())
        assert spelled(theirs, rows.names()) == rows.expected, uri
