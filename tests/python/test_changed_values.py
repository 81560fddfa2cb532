"""UPDATE and MERGE store a value or refuse it, and never store NULL instead; a failed merge can be repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import COPIES_AND_VECTORS
from log_files import Log, field, metadata, protocol, struct

import deltic
from deltic import InvalidInputError, Table

ON = "source.id = target.id"

SHAPES: dict[str, Callable[[pa.Array], pa.Array]] = {
    "plain": lambda values: values,
    "list": lambda values: pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), values),
    "struct": lambda values: pa.StructArray.from_arrays([values], ["f"]),
    "map": lambda values: pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), values),
    "deep": lambda values: SHAPES["list"](SHAPES["struct"](values)),
}

BYTE, CENTS = pa.array([1], pa.int8()), pa.array([Decimal("1.50")], pa.decimal128(5, 2))
DAY, LOCAL = pa.array([date(2026, 1, 1)]), pa.array([datetime(2026, 1, 1)], pa.timestamp("us"))
INSTANT = pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc)], pa.timestamp("us", "UTC"))
TEXT = pa.array(["a"])

UNFIT: dict[str, tuple[pa.Array, pa.Array]] = {
    "byte from long": (BYTE, pa.array([300])),
    "byte from double": (BYTE, pa.array([1e300])),
    "byte from text": (BYTE, pa.array(["x"])),
    "decimal from long": (CENTS, pa.array([2**40])),
    "decimal from decimal": (CENTS, pa.array([Decimal("12345.5")])),
    "decimal from NaN": (CENTS, pa.array([float("nan")])),
    "date from text": (DAY, pa.array(["2026-02-30"])),
    "local from seconds": (LOCAL, pa.array([2**60], pa.timestamp("s"))),
    "local from nanoseconds": (LOCAL, pa.array([1], pa.timestamp("ns"))),
    "instant from milliseconds": (INSTANT, pa.array([2**62], pa.timestamp("ms", "UTC"))),
    "text from bytes": (TEXT, pa.array([b"\xff\xfe"])),
}


def held(uri: str, values: pa.Array, properties: dict[str, str]) -> Table:
    deltic.write(uri, pa.table({"id": [1], "v": values}), properties=properties)
    return Table(uri)


def changes(table: Table, value: pa.Array) -> dict[str, Callable[[], Any]]:
    """All operations that assign a value to a column."""
    source = pa.table({"id": [1], "v": value})
    new = pa.table({"id": [2], "v": value})
    return {
        "update": lambda: table.update({"v": deltic.lit(value[0])}, "id = 1"),
        "set": lambda: table.merge(source, ON).when_matched_update({"v": "source.v"}).execute(),
        "set literal": lambda: table.merge(source, ON).when_matched_update({"v": deltic.lit(value[0])}).execute(),
        "set all": lambda: table.merge(source, ON).when_matched_update_all().execute(),
        "insert": lambda: table.merge(new, ON).when_not_matched_insert({"id": "id", "v": "source.v"}).execute(),
        "insert all": lambda: table.merge(new, ON).when_not_matched_insert_all().execute(),
        "set where none matched": lambda: (
            table.merge(new, ON).when_not_matched_by_source_update({"v": deltic.lit(value[0])}).execute()
        ),
    }


@pytest.mark.slow
@COPIES_AND_VECTORS
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", UNFIT)
def test_a_value_that_does_not_fit_is_refused_and_nothing_is_committed(
    uri: str, case: str, shape: str, properties: dict[str, str]
) -> None:
    old, new = (SHAPES[shape](values) for values in UNFIT[case])
    table = held(uri, old, properties)
    before = table.scan().to_arrow()
    for name, change in changes(table, new).items():
        with pytest.raises(InvalidInputError, match="`v"):
            change()
        assert table.snapshot().version == 0, name
    assert table.scan().to_arrow().equals(before)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BYTE, pa.array([-128])),
        (CENTS, pa.array([Decimal("-999.99")], pa.decimal128(38, 2))),
        (LOCAL, pa.array([datetime(2026, 1, 2)], pa.timestamp("s"))),
        (INSTANT, pa.array([datetime(2026, 1, 2, tzinfo=timezone.utc)], pa.timestamp("ns", "Europe/Berlin"))),
        (DAY, pa.array([date(2026, 1, 2)], pa.date64())),
        (TEXT, pa.array(["ü"], pa.large_string())),
        (TEXT, pa.array(["ü"]).dictionary_encode()),
    ],
    ids=["byte", "decimal", "local", "instant", "date", "text", "dictionary"],
)
def test_a_value_that_fits_is_stored_whatever_its_arrow_type(
    uri: str, old: pa.Array, new: pa.Array, shape: str
) -> None:
    table = held(uri, SHAPES[shape](old), {})
    given = SHAPES[shape](new)
    wanted = SHAPES[shape](new.cast(old.type)).to_pylist()[0]
    for name, change in changes(table, given).items():
        change()
        found = table.scan().to_arrow().to_pylist()
        assert wanted in [row["v"] for row in found], name
        table.delete("true")
        deltic.write(table, pa.table({"id": [1], "v": SHAPES[shape](old)}))


def test_values_below_a_null_struct_are_ignored(uri: str) -> None:
    """In Arrow fields of a NULL struct have values. They are ignored, even 300 for a byte."""
    hidden = pa.StructArray.from_arrays([pa.array([300])], ["f"], mask=pa.array([True]))
    table = held(uri, SHAPES["struct"](BYTE), {})
    changes(table, hidden)["set all"]()
    changes(table, hidden)["insert all"]()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": None}, {"id": 2, "v": None}]
    # In a filter it is NULL too.
    assert table.scan(filter="v.f IS NULL").count() == 2


def test_a_refused_clause_leaves_the_merge_unchanged(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2], "v": ["a", "b"], "w": ["c", "d"]}))
    table = Table(uri)
    merge = table.merge(pa.table({"id": [1, 9]}), ON)
    wrong = {"v": deltic.lit("wrong"), "w": deltic.lit("wrong")}
    for refused in (
        lambda: merge.when_matched_update(wrong, 3),  # type: ignore[arg-type]
        lambda: merge.when_matched_update({"v": deltic.lit("wrong"), "w": 3}),  # type: ignore[dict-item]
        lambda: merge.when_matched_update_all(except_columns=3),  # type: ignore[arg-type]
        lambda: merge.when_not_matched_insert(wrong, ["id = 9"]),  # type: ignore[arg-type]
        lambda: merge.when_not_matched_by_source_update(wrong, False),  # type: ignore[arg-type]
        lambda: merge.when_matched_delete(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInputError):
            refused()
        assert repr(merge).endswith("clauses=[])")
    merge.when_matched_update({"v": deltic.lit("matched")})
    with pytest.raises(InvalidInputError):
        merge.when_not_matched_insert(wrong, 3)  # type: ignore[arg-type]
    merge.when_not_matched_insert({"id": "id", "w": deltic.lit("new")})
    merge.when_not_matched_by_source_update({"w": deltic.lit("alone"), "v": deltic.lit(None)}).execute()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "v": "matched", "w": "c"},
        {"id": 2, "v": None, "w": "alone"},
        {"id": 9, "v": None, "w": "new"},
    ]


def test_a_merge_can_be_executed_again_after_a_failure(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "v": [1]}))
    table = Table(uri)
    table.add_constraint("small", "v < 10")
    source = pa.table({"id": [1, 2], "v": [20, 30]})
    read = []

    def batches() -> Any:
        for batch in source.to_batches(1):
            read.append(batch)
            yield batch

    merge = table.merge(batches(), ON).when_matched_update({"v": "source.v"}).when_not_matched_insert_all()
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="CHECK constraint `small`"):
            merge.execute()
    assert table.snapshot().version == 1
    table.drop_constraint("small")
    assert merge.execute().version == 3
    assert table.scan().to_arrow().sort_by("id").equals(source)
    assert len(read) == source.num_rows, "the source is read once"
    with pytest.raises(InvalidInputError, match="executed already"):
        merge.execute()


LENGTHS = {"plain": "{}", "struct": "struct<f:{}>", "list": "array<{}>"}


@pytest.mark.slow
@COPIES_AND_VECTORS
@pytest.mark.parametrize("kind", ["varchar(4)", "char(4)"])
@pytest.mark.parametrize("shape", LENGTHS)
def test_a_string_that_is_too_long_is_refused_and_nothing_is_committed(
    uri: str, shape: str, kind: str, properties: dict[str, str]
) -> None:
    def column(text: str) -> pa.Array:
        return SHAPES[shape](pa.array([text]))

    metadata = {"__CHAR_VARCHAR_TYPE_STRING": LENGTHS[shape].format(kind)}
    schema = pa.schema([("id", pa.int64()), pa.field("v", column("").type, metadata=metadata)])
    deltic.write(uri, pa.table({"id": [1], "v": column("four")}, schema=schema), properties=properties)
    table = Table(uri)
    before = table.scan().to_arrow()
    for name, change in changes(table, column("fives")).items():
        with pytest.raises(InvalidInputError, match=re.escape(kind)):
            change()
        assert table.snapshot().version == 0, name
    assert table.scan().to_arrow().equals(before)
    for change in changes(table, column("ü" * 4)).values():
        change()
    assert column("ü" * 4).to_pylist()[0] in table.scan().to_arrow()["v"].to_pylist()


@COPIES_AND_VECTORS
@pytest.mark.parametrize("feed", [False, True], ids=["", "feed"])
def test_existing_strings_that_are_too_long_can_be_moved_and_replaced(
    uri: str, properties: dict[str, str], feed: bool
) -> None:
    properties = {**properties, "delta.enableChangeDataFeed": str(feed).lower()}
    log = Log(uri)
    for ids, texts in (([1, 2], ["four", "eleven long"]), ([3], ["abc"])):
        deltic.write(uri, pa.table({"id": ids, "s": texts}), properties=properties if ids[0] == 1 else None)
    # Add Spark's metadata for the length, without checking existing rows.
    short = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(4)"}
    table = Table(uri)
    kept = {key: value for key, value in table.snapshot().metadata.items() if key != "schemaString"}
    schema = struct(field("id", "long"), field("s", "string", **short))
    log.append([{"metaData": {**kept, "schemaString": json.dumps(schema)}}])
    table.delete("id = 1")
    table.optimize()
    table.update({"id": "id * 10"}, "id = 3")
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == [
        {"id": 2, "s": "eleven long"},
        {"id": 30, "s": "abc"},
    ]
    for change in (lambda: table.update({"id": "20"}, "id = 2"), lambda: table.update({"s": "'fives'"}, "id = 30")):
        with pytest.raises(InvalidInputError, match=r"`s` is varchar\(4\), and row [01]"):
            change()
    table.update({"s": "substring(s, 1, 4)"}, "id = 2")
    assert sorted(table.scan().to_arrow()["s"].to_pylist()) == ["abc", "elev"]


@pytest.mark.parametrize("shape", LENGTHS)
def test_lengths_become_longer_and_not_shorter(uri: str, shape: str) -> None:
    def schema(kind: str | None, *more: pa.Field) -> pa.Schema:
        metadata = None if kind is None else {"__CHAR_VARCHAR_TYPE_STRING": LENGTHS[shape].format(kind)}
        column = SHAPES[shape](pa.array(["a"]))
        return pa.schema([pa.field("id", pa.int64()), pa.field("v", column.type, metadata=metadata), *more])

    deltic.create(uri, schema("varchar(4)"))
    table = Table(uri)
    for shorter in ("varchar(3)", "char(3)"):
        with pytest.raises(InvalidInputError, match="`v` may have longer strings already"):
            table.replace_columns(schema(shorter))
    table.replace_columns(schema("varchar(9)"))
    new = pa.field("w", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(1)"})
    table.replace_columns(schema("varchar(9)", new))
    free = f"{uri}-free"
    deltic.create(free, schema(None))
    with pytest.raises(InvalidInputError, match="`v` may have longer strings already"):
        Table(free).replace_columns(schema("varchar(9)"))


@pytest.mark.slow
@COPIES_AND_VECTORS
def test_long_constants_do_not_overflow_a_batch(uri: str, properties: dict[str, str]) -> None:
    rows = 70_000
    deltic.write(uri, pa.table({"id": range(rows), "doc": [""] * rows}), properties=properties)
    table = Table(uri)
    assert table.update({"doc": "'" + "x" * 10_000 + "'"}).metrics["numUpdatedRows"] == rows
    assert table.update({"doc": deltic.lit("y" * 40_000)}).metrics["numUpdatedRows"] == rows
    merge = table.merge(pa.table({"id": range(rows, 2 * rows)}), ON)
    merge.when_not_matched_insert({"id": "id", "doc": deltic.lit("z" * 40_000)}).execute()
    found = table.scan(columns=["doc"], filter="id % 10000 = 7").to_arrow()["doc"].to_pylist()
    assert sorted({(text[0], len(text)) for text in found}) == [("y", 40_000), ("z", 40_000)]


def test_a_wrong_row_count_allocates_no_memory(uri: str) -> None:
    log = Log.empty(uri, protocol(), metadata(struct(field("x", "long"))))
    stats = {"numRecords": 9_000_000_000_000_000_000}
    log.append([log.file("part-0.parquet", pa.table({"x": [1, 2]}), stats=stats)])
    with pytest.raises(deltic.CorruptTableError, match="9000000000000000000 rows"):
        log.table.update({"x": "1"})


def test_a_struct_inside_a_struct_is_set_where_columns_are_mapped(uri: str) -> None:
    inner = pa.struct([("x", pa.int64())])
    schema = pa.schema([("s", pa.struct([("inner", inner)])), ("t", inner)])
    deltic.create(uri, schema, properties={"delta.columnMapping.mode": "name"})
    deltic.write(uri, pa.table({"s": [{"inner": {"x": 1}}], "t": [{"x": 2}]}, schema=schema))
    Table(uri).update({"s.inner": "t"})
    assert Table(uri).scan().to_arrow()["s"].to_pylist() == [{"inner": {"x": 2}}]
