"""Statistics of files that deltic writes, compared with those that a simple model computes from the rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from sample import adds, log_actions

import deltic

NOTHING = (None, None)
"""The bounds of a column without bounds."""

LAST = "\U0010ffff"
"""The greatest Unicode character."""


class Kind(NamedTuple):
    """A type, a strategy for its values, and a function for the bounds of non-null values."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    bounds: Callable[[list[Any], int], tuple[Any, Any]]


def exact(values: list[Any], _: int) -> tuple[Any, Any]:
    return min(values), max(values)


def unbounded(_values: list[Any], _: int) -> tuple[Any, Any]:
    return NOTHING


def of_floats(values: list[float], _: int) -> tuple[Any, Any]:
    """No bounds if readers disagree about them: with NaN or infinities. A zero bound includes both zeros."""
    if not all(map(math.isfinite, values)):
        return NOTHING
    low, high = min(values), max(values)
    return -0.0 if low == 0 else low, 0.0 if high == 0 else high


def of_strings(values: list[str], prefix: int) -> tuple[Any, Any]:
    """Truncated. The maximum gets the greatest character appended, cut where both orders of strings agree."""
    low, high = min(values), max(values)
    for cut in range(prefix, min(len(high), 2 * prefix + 1)):
        if high[cut] != LAST and not "\ue000" <= high[cut] <= "\uffff":
            return low[:prefix], high[:cut] + LAST
    return (low[:prefix], high) if len(high) <= 2 * prefix + 1 else NOTHING


def of_dates(values: list[date], _: int) -> tuple[Any, Any]:
    return min(values).isoformat(), max(values).isoformat()


def of_instants(values: list[datetime], _: int) -> tuple[Any, Any]:
    """Milliseconds, rounded down and up, except for the greatest timestamp."""
    low, high = min(values), max(values)
    low = low.replace(microsecond=low.microsecond // 1000 * 1000)
    floor = high.replace(microsecond=high.microsecond // 1000 * 1000)
    if high != floor and floor.replace(tzinfo=None) != datetime(9999, 12, 31, 23, 59, 59, 999000):
        floor += timedelta(milliseconds=1)
    zone = "Z" if high.tzinfo else ""
    return tuple(at.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone for at in (low, floor))


CHARACTERS = st.sampled_from(["a", "b", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", LAST, "\x00", '"', "\\"])
INSTANTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))
EDGES = st.sampled_from([datetime(9999, 12, 31, 23, 59, 59, n) for n in (998001, 999000, 999001, 999999)])


def whole(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(low, high) | st.sampled_from([low, high, 0, -1])


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    numbers = st.integers(-largest, largest) | st.sampled_from([-largest, largest, 0, 1])
    return numbers.map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))


def floats(width: int) -> st.SearchStrategy[float]:
    return st.floats(width=width) | st.sampled_from([0.0, -0.0]) | st.floats(-4, 4, width=width)


STRINGS = Kind(
    pa.string(),
    st.text(CHARACTERS, max_size=9) | st.text("a\uffff" + LAST, max_size=9) | st.text(max_size=70),
    of_strings,
)
KINDS = [
    *(Kind(getattr(pa, f"int{bits}")(), whole(bits), exact) for bits in (8, 16, 32, 64)),
    Kind(pa.float32(), floats(32), of_floats),
    Kind(pa.float64(), floats(64), of_floats),
    *(Kind(pa.decimal128(p, s), decimals(p, s), exact) for p, s in ((1, 0), (9, 2), (18, 18), (38, 10))),
    STRINGS,
    Kind(pa.date32(), st.dates(), of_dates),
    Kind(pa.timestamp("us"), INSTANTS | EDGES, of_instants),
    Kind(pa.timestamp("us", "UTC"), (INSTANTS | EDGES).map(lambda at: at.replace(tzinfo=timezone.utc)), of_instants),
    Kind(pa.bool_(), st.booleans(), unbounded),
    Kind(pa.binary(), st.binary(max_size=40), unbounded),
    Kind(pa.list_(pa.field("element", pa.int64())), st.lists(st.none() | whole(64), max_size=2), unbounded),
    Kind(pa.map_(pa.string(), pa.int32()), st.lists(st.tuples(st.text(max_size=2), whole(32)), max_size=1), unbounded),
]
"""Every type of a column except structs."""

NAMES = st.text("abé._-`'\"\\🐎", min_size=1, max_size=4)


def shapes(leaves: list[Kind]) -> st.SearchStrategy[Any]:
    """A strategy for the columns of a table by name: each is a `Kind`, or a dict for a struct."""
    fields = lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3)  # noqa: E731
    return fields(st.recursive(st.sampled_from(leaves), fields, max_leaves=6))


def type_of(shape: Any) -> pa.DataType:
    return shape.type if isinstance(shape, Kind) else pa.struct([(n, type_of(inner)) for n, inner in shape.items()])


def values_of(shape: Any, nulls: set[int]) -> st.SearchStrategy[Any]:
    """A strategy for values, in which the kinds with these ids are always null."""
    if isinstance(shape, Kind):
        return st.none() if KINDS.index(shape) in nulls else st.none() | shape.values | shape.values
    inner = st.fixed_dictionaries({name: values_of(field, nulls) for name, field in shape.items()})
    return st.none() | inner | inner | inner


def leaves_of(shape: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Kind]]:
    if isinstance(shape, Kind):
        yield path, shape
    else:
        for name, inner in shape.items():
            yield from leaves_of(inner, (*path, name))


def reach(row: Any, path: tuple[str, ...]) -> Any:
    """The value at a path, null below a null."""
    for name in path:
        if row is None:
            return None
        row = row[name]
    return row


def flat(statistics: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, value in statistics.items():
        found |= flat(value, (*path, name)) if isinstance(value, dict) else {(*path, name): value}
    return found


def signed(value: Any) -> Any:
    """A value in a form that distinguishes 0.0 and -0.0."""
    return ("-" if math.copysign(1, value) < 0 else "+", abs(value)) if isinstance(value, float) else value


def expected(rows: list[Any], leaves: list[tuple[tuple[str, ...], Kind]], prefix: int) -> dict[str, Any]:
    """The expected statistics of these leaf columns."""
    low, high, nulls = {}, {}, {}
    for path, kind in leaves:
        values = [value for row in rows if (value := reach(row, path)) is not None]
        nulls[path] = len(rows) - len(values)
        bounds = kind.bounds(values, prefix) if values else NOTHING
        if bounds != NOTHING:
            low[path], high[path] = map(signed, bounds)
    return {"minValues": low, "maxValues": high, "nullCount": nulls}


def written(uri: str, types: dict[tuple[str, ...], pa.DataType]) -> tuple[int, dict[str, Any]]:
    """Row count and statistics of the only file of version 0, with numbers in the types of their columns."""
    (text,) = (action["add"]["stats"] for action in log_actions(uri, 0) if "add" in action)
    # Parse decimals exactly, not as floats.
    found = json.loads(text, parse_float=Decimal, parse_int=Decimal)

    def typed(path: tuple[str, ...], value: Any) -> Any:
        if isinstance(value, Decimal) and not pa.types.is_decimal(types[path]):
            return signed(float(value)) if pa.types.is_floating(types[path]) else int(value)
        return value

    bounds = {
        part: {path: typed(path, value) for path, value in flat(found[part]).items()}
        for part in ("minValues", "maxValues")
    }
    assert found["tightBounds"] is True
    return int(found["numRecords"]), bounds | {"nullCount": flat(found["nullCount"])}


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "prefix"), [(KINDS, None), ([STRINGS], 2)], ids=["every type", "strings"])
@hypothesis.given(data=st.data())
@hypothesis.settings(
    max_examples=60, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_statistics_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[Kind], prefix: int | None, data: st.DataObject
) -> None:
    shape = data.draw(shapes(kinds))
    leaves = list(leaves_of(shape))
    hypothesis.assume(len({tuple(name.lower() for name in path) for path, _ in leaves}) == len(leaves))
    nulls = data.draw(st.sets(st.integers(0, len(KINDS) - 1), max_size=4))
    row = st.fixed_dictionaries({name: values_of(field, nulls) for name, field in shape.items()})
    rows = data.draw(st.lists(row, min_size=1, max_size=6))
    indexed = data.draw(st.sampled_from([None, 0, 1, 3, -1]))
    properties: dict[str, str] = {}
    if prefix is not None:
        properties["delta.dataSkippingStringPrefixLength"] = str(prefix)
    if indexed is not None:
        properties["delta.dataSkippingNumIndexedCols"] = str(indexed)

    uri = str(tmp_path_factory.mktemp("statistics") / "t")
    schema = pa.schema([(name, type_of(field)) for name, field in shape.items()])
    batches = [pa.RecordBatch.from_pylist([row], schema=schema) for row in rows]
    deltic.write(uri, pa.Table.from_batches(batches), properties=properties)
    counted = leaves if indexed == -1 else leaves[: 32 if indexed is None else indexed]
    found = written(uri, {path: kind.type for path, kind in leaves})
    assert found == (len(rows), expected(rows, counted, 32 if prefix is None else prefix))


NAN = float("nan")
FLOATING = ("f", "d", "s.d", "l.list.element")
"""Parquet paths of the columns that have a NaN in the first row group."""


def with_nan(rows: pa.Table) -> pa.Table:
    """Add floating-point columns with NaN among their first values, and other columns."""
    values = [1.0, NAN, *(float(n) for n in range(2, rows.num_rows))]
    for name, column in {
        "f": pa.array(values, pa.float32()),
        "d": pa.array(values),
        "s": pa.array([{"d": value, "n": at} for at, value in enumerate(values)]),
        "l": pa.array([[value] for value in values]),
        "whole": pa.array([float(n) for n in range(rows.num_rows)]),
        "text": pa.array([str(n) for n in range(rows.num_rows)]),
    }.items():
        rows = rows.append_column(name, column)
    return rows


def bounds_of(path: Path) -> list[dict[str, tuple[Any, Any, int, bool]]]:
    """For each row group and column: minimum, maximum, null count, and whether there is a column index."""
    metadata = pq.read_metadata(path)
    found: list[dict[str, tuple[Any, Any, int, bool]]] = [{} for _ in range(metadata.num_row_groups)]
    # pyarrow ignores bounds with a column order that it does not know.
    query = (
        "SELECT row_group_id, column_id, stats_min_value, stats_max_value, stats_null_count FROM parquet_metadata(?)"
    )
    for group, column, low, high, nulls in duckdb.execute(query, [str(path)]).fetchall():
        chunk = metadata.row_group(group).column(column)
        found[group][chunk.path_in_schema] = (low, high, nulls, chunk.has_column_index)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["write", "update", "merge", "optimize"])
def test_columns_with_nan_have_no_bounds(uri: str, how: str) -> None:
    """Spark orders NaN above all numbers, and would skip row groups by bounds that ignore NaN."""
    rows = with_nan(pa.table({"id": range(6)}))
    table = deltic.Table(uri)
    if how == "write":
        deltic.write(uri, rows, row_group_rows=3)
    elif how == "update":
        deltic.write(uri, rows.set_column(2, "d", pa.array([1.0] * 6)))
        table.update({"d": "CASE WHEN id = 1 THEN CAST('NaN' AS DOUBLE) ELSE id END"})
    elif how == "merge":
        deltic.create(uri, rows.schema)
        table.merge(rows, "source.id = target.id").when_not_matched_insert_all().execute()
    else:
        for start in (0, 3):
            deltic.write(uri, rows.slice(start, 3))
        table.optimize()
    (add,) = adds(uri, table.snapshot().version)
    first, *others = bounds_of(Path(uri) / add["path"])
    last = 2 if how == "write" else 5
    for name in FLOATING:
        assert first[name] == (None, None, 0, False), name
    assert first["id"] == first["s.n"] == ("0", str(last), 0, True)
    assert first["text"] == ("0", str(last), 0, True)
    assert first["whole"] == ("0.0", f"{last}.0", 0, True)
    for group in others:
        assert {group[name] for name in FLOATING} == {("3.0", "5.0", 0, True)}
    low, high = flat(add["stats"]["minValues"]), flat(add["stats"]["maxValues"])
    assert low == {("id",): 0, ("s", "n"): 0, ("whole",): 0.0, ("text",): "0"}
    assert high == {("id",): 5, ("s", "n"): 5, ("whole",): 5.0, ("text",): "5"}
    assert flat(add["stats"]["nullCount"]).keys() == {*low, ("f",), ("d",), ("s", "d"), ("l",)}
    # A filter for NaN returns its rows with every kind of skipping.
    assert table.scan(filter="d > 1e300 AND f > 1e30").to_arrow()["id"].to_pylist() == [1]
