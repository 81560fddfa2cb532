"""MERGE in Python: results, refused merges, and the table after a failure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import changed_rows
import pandas as pd
import pyarrow as pa
import pytest
from changed_rows import (
    COPIES_AND_VECTORS,
    FEED,
    IDS,
    PROPERTIES,
    SCHEMA,
    VECTORS,
    Changed,
    files_of,
    label,
    some_row,
    stock,
    table_of,
)

import deltic
from deltic import InvalidInputError, Table

STOCK = pa.table({"shop": ["a", "a", "b", "b", "c"], "item": [1, 2, 3, 4, 5], "left": [10, 20, 30, 40, 50]})
NEWS = pa.table({"shop": ["a", "b", "z"], "item": [2, 3, 9], "left": [21, 31, 91]})
ON = "source.item = target.item"


def made(uri: str, properties: dict[str, str] | None = None) -> Table:
    return changed_rows.made(uri, properties, STOCK)


@COPIES_AND_VECTORS
def test_upserts(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    merge = table.merge(NEWS, ON, user_metadata={"t": 1}).when_matched_update_all().when_not_matched_insert_all()
    commit = merge.execute()
    assert (commit.version, commit.attempts) == (1, 1)
    counts = ("numSourceRows", "numTargetRowsUpdated", "numTargetRowsInserted", "numTargetRowsDeleted")
    assert [commit.metrics[name] for name in counts] == [3, 2, 1, 0]
    assert stock(table) == [("a", 1, 10), ("a", 2, 21), ("b", 3, 31), ("b", 4, 40), ("c", 5, 50), ("z", 9, 91)]
    info = table.history(limit=1)[0]
    assert info["operation"] == "MERGE"
    assert info["operationParameters"] == {
        "predicate": '["source.item = target.item"]',
        "matchedPredicates": '[{"actionType": "update"}]',
        "notMatchedPredicates": '[{"actionType": "insert"}]',
        "notMatchedBySourcePredicates": "[]",
    }
    assert not info["isBlindAppend"]
    assert table.check(files=True).ok
    for again in (merge.execute, merge.preview):
        with pytest.raises(InvalidInputError, match="executed already"):
            again()


@COPIES_AND_VECTORS
def test_the_first_matching_clause_applies(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    source = pa.table({"id": [1, 2, 3, 8, 9], "op": ["delete", "add", "none", "add", "skip"], "n": [5, 6, 7, 8, 9]})
    commit = (
        table.merge(source, "s.id = t.item", source_alias="s", target_alias="t")
        .when_matched_delete("s.op = 'delete'")
        .when_matched_update({"left": "left + s.n", "t.shop": deltic.lit("new")}, "op = 'add'")
        .when_not_matched_insert({"item": "id", "left": "n", "shop": "'x'"}, condition="op = 'add'")
        .when_not_matched_by_source_update({"left": "0"}, "item = 4")
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert stock(table) == [("b", 3, 30), ("b", 4, 0), ("new", 2, 26), ("x", 8, 8)]
    assert {name: n for name, n in commit.metrics.items() if n and "Rows" in name} == {
        "numSourceRows": 5,
        "numOutputRows": 4 if not properties else 3,
        "numTargetRowsInserted": 1,
        "numTargetRowsUpdated": 2,
        "numTargetRowsMatchedUpdated": 1,
        "numTargetRowsNotMatchedBySourceUpdated": 1,
        "numTargetRowsDeleted": 2,
        "numTargetRowsMatchedDeleted": 1,
        "numTargetRowsNotMatchedBySourceDeleted": 1,
    } | ({} if properties else {"numTargetRowsCopied": 1})


def test_null_keys_match_only_with_the_null_safe_operator(uri: str) -> None:
    deltic.write(uri, pa.table({"k": [1, None], "v": ["one", "none"]}))
    table = Table(uri)
    source = pa.table({"k": pa.array([None], pa.int64()), "v": ["new"]})
    assert table.merge(source, "source.k = target.k").when_matched_update_all().execute().attempts == 0
    assert table.merge(source, "source.k <=> target.k").when_matched_update_all().execute().version == 1
    assert stock(table) == [(1, "one"), (None, "new")]
    table.merge(source, "source.k = target.k").when_not_matched_insert_all().execute()
    assert stock(table) == [(1, "one"), (None, "new"), (None, "new")]


def test_floats_are_compared_as_in_sql(uri: str) -> None:
    deltic.write(uri, pa.table({"d": [float("nan"), -0.0, 1.0], "v": [1, 2, 3]}))
    source = pa.table({"d": [0.0, -float("nan")], "w": [20, 10]})
    Table(uri).merge(source, "source.d = target.d").when_matched_update({"v": "w"}).execute()
    assert sorted(row["v"] for row in Table(uri).scan().to_arrow().to_pylist()) == [3, 10, 20]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "pairs"),
    [
        ("source.a = target.a AND source.b = target.b", {1: 1, 2: 2}),
        ("source.a = target.a AND source.b <= target.b", {1: 1, 2: 2}),
        ("source.a + 1 = target.a - 1", {1: 3}),
        ("source.a + 1 < target.a AND target.a = 3", {1: 3}),
        ("target.a = 3 AND source.b = 'x'", {1: 3}),
        ("source.a = target.a AND target.b IN ('x', 'z')", {1: 1}),
        ("source.a = target.a OR source.b = target.b AND target.a = 3", {1: 1, 2: 2}),
        ("source.a = target.c", {1: 2}),
        ("upper(source.b) = upper(target.b) AND source.a = target.a", {1: 1, 2: 2}),
        ("false", {}),
    ],
)
def test_conditions_of_every_kind_are_joined(uri: str, on: str, pairs: dict[int, int]) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": pa.array([9, 1, 8], pa.int8())})
    source = pa.table({"a": [1, 2], "b": ["x", "y"]})
    before = [tuple(row.values()) for row in rows.to_pylist()]
    expected = [(a, b, a + 40 if a in pairs.values() else c) for a, b, c in before]
    expected += [(a, "new", None) for a in (1, 2) if a not in pairs]
    for number, clauses in enumerate(("update", "insert", "both")):
        deltic.write(f"{uri}{number}", rows)
        table = Table(f"{uri}{number}")
        merge = table.merge(source, on)
        if clauses != "insert":
            merge.when_matched_update({"c": "target.a + 40"})
        if clauses != "update":
            merge.when_not_matched_insert({"a": "source.a", "b": "'new'"})
        done = merge.execute().metrics
        counts = (len(pairs) * (clauses != "insert"), (2 - len(pairs)) * (clauses != "update"))
        assert (done["numTargetRowsUpdated"], done["numTargetRowsInserted"]) == counts
        wanted = before[:] if clauses == "insert" else expected[:3]
        assert stock(table) == sorted(wanted + (expected[3:] if clauses != "update" else []), key=repr)


@pytest.mark.slow
@COPIES_AND_VECTORS
def test_a_row_matched_by_several_source_rows_is_refused(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    before = files_of(uri)
    twice = pa.table({"item": [2, 2, 9], "left": [1, 2, 3], "op": ["a", "b", "b"]})
    with pytest.raises(InvalidInputError, match=r"item is 2\) of the target is matched by several rows of the source"):
        table.merge(twice, ON).when_matched_update({"left": "source.left"}).execute()
    with pytest.raises(InvalidInputError, match="several rows"):
        table.merge(twice, ON).when_matched_delete("op > ''").execute()
    assert (table.snapshot().version, files_of(uri)) == (0, before)
    # Source rows that change nothing do not count, and several source rows may delete the same row.
    table.merge(twice, ON).when_matched_update({"left": "source.left"}, "op = 'b'").execute()
    assert ("a", 2, 2) in stock(table)
    assert table.merge(twice, ON).when_matched_delete().execute().metrics["numTargetRowsDeleted"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "clauses", "message"),
    [
        (ON, [], "a merge without clauses does nothing"),
        ("item = 1", [("when_matched_delete", ())], "both sides have a column `item`: write `source.item` or `target"),
        ("source.itm = target.item", [("when_matched_delete", ())], "on: source: there is no column `itm`"),
        ("source.item = target.itm", [("when_matched_delete", ())], "on: target: there is no column `itm`"),
        ("nope = 1", [("when_matched_delete", ())], "there is no column `nope` in target or source"),
        ("source.item", [("when_matched_delete", ())], "on: "),
        ("source.item =", [("when_matched_delete", ())], "expected"),
        (ON, [("when_matched_update", ({"itm": "1"},))], "cannot set `itm`"),
        (ON, [("when_matched_update", ({"left": "source.itm"},))], "source: there is no column `itm`"),
        (ON, [("when_matched_update", ({"left": "left"},))], "both sides have a column `left`"),
        (ON, [("when_matched_update", ({"left": "source.shop"},))], "cannot be cast to long, which the column"),
        (ON, [("when_matched_update", ({},))], "nothing is to be set"),
        (ON, [("when_matched_update", ({"left": "1", "target.left": "2"},))], "is set twice"),
        (ON, [("when_not_matched_insert", ({"left": "target.left"},))], "`target.left` has no value here"),
        (ON, [("when_not_matched_insert", ({"nope": "1"},))], "there is no column `nope`"),
        (ON, [("when_not_matched_by_source_update", ({"left": "source.left"},))], "`source.left` has no value here"),
        (ON, [("when_not_matched_by_source_delete", ("source.left = 1",))], "`source.left` has no value here"),
        (ON, [("when_matched_delete", ()), ("when_matched_update_all", ())], "a clause without a condition takes all"),
        (ON, [("when_matched_delete", ("source.left",))], "is not a condition but a value of type long"),
        (ON, [("when_matched_update_all", (None, ["nope"]))], "no column `nope` in the target to leave out"),
        (ON, [("when_matched_update", ({"left": "source.left / 0"},))], "division by zero"),
        (ON, [("when_not_matched_insert", ({"item": "source.left + 9223372036854775807"},))], "the source's row 2: "),
    ],
)
def test_what_does_not_fit_is_refused(uri: str, on: str, clauses: list[tuple[str, Any]], message: str) -> None:
    table = made(uri)
    before = files_of(uri)
    merge = table.merge(NEWS, on)
    for name, arguments in clauses:
        getattr(merge, name)(*arguments)
    with pytest.raises(InvalidInputError) as refused:
        merge.execute()
    assert message in str(refused.value)
    assert (table.snapshot().version, files_of(uri)) == (0, before)


def test_arguments_are_checked(uri: str) -> None:
    table = made(uri)
    for make, message in (
        (lambda: table.merge(NEWS, 3), "on must be a string"),  # type: ignore[arg-type]
        (
            lambda: table.merge(NEWS, ON, source_alias="t", target_alias="T").when_matched_delete().execute(),
            "both calle",
        ),
        (lambda: table.merge(NEWS, ON, source_alias="").when_matched_delete().execute(), "source_alias is empty"),
        (lambda: table.merge(NEWS, ON).when_matched_update("x"), "set must be a dict"),  # type: ignore[arg-type]
        (lambda: table.merge(NEWS, ON).when_not_matched_insert([1]), "values must be a dict"),  # type: ignore[arg-type]
        (lambda: table.merge(NEWS, ON).when_matched_delete(3), "condition must be"),  # type: ignore[arg-type]
        (lambda: table.merge(7, ON).when_matched_delete().execute(), "cannot write"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            make()
    doubled = pa.table([[1], [2]], names=["item", "ITEM"])
    with pytest.raises(InvalidInputError, match="two columns `ITEM`"):
        table.merge(doubled, "source.left = 1").when_matched_delete().execute()


def test_values_that_do_not_fit_are_refused_with_their_row(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("b", pa.int8())])
    deltic.create(uri, schema)
    deltic.write(uri, pa.table({"id": [1, 2], "b": [1, 2]}, schema))
    table = Table(uri)
    source = pa.table({"k": [2, 7, 8], "v": [300, 1, None]})
    on = "source.k = target.id"
    with pytest.raises(InvalidInputError, match=r"row 1: the long 300 cannot be cast to byte, which the column `b` is"):
        table.merge(source, on).when_matched_update({"b": "v"}).execute()
    with pytest.raises(InvalidInputError, match=r"row 1: the column id is not nullable, and would be NULL"):
        table.merge(source, on).when_matched_update({"id": "NULL"}).execute()
    with pytest.raises(InvalidInputError, match=r"the source's row 2: the column `id` is not nullable"):
        table.merge(source, on).when_not_matched_insert({"id": "v"}).execute()
    with pytest.raises(InvalidInputError, match="id"):
        table.merge(source, on).when_not_matched_insert({"b": "1"}).execute()
    assert stock(table) == [(1, 1), (2, 2)]
    assert len(files_of(uri)) == 1


def test_an_append_only_table_accepts_inserts(uri: str) -> None:
    table = made(uri, {"delta.appendOnly": "true"})
    with pytest.raises(InvalidInputError, match=r"delta\.appendOnly"):
        table.merge(NEWS, ON).when_matched_update_all().when_not_matched_insert_all().execute()
    with pytest.raises(InvalidInputError, match=r"delta\.appendOnly"):
        table.merge(NEWS, ON).when_not_matched_by_source_delete().execute()
    table.merge(NEWS, ON).when_not_matched_insert_all().execute()
    assert [row[1] for row in stock(table)] == [1, 2, 3, 4, 5, 9]


def test_a_source_that_raises_leaves_the_table(uri: str) -> None:
    table = made(uri)
    before = files_of(uri)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from NEWS.to_batches()
        raise ZeroDivisionError("midway")

    merge = table.merge(batches(), ON).when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(ZeroDivisionError, match="midway"):
        merge.execute()
    assert (table.snapshot().version, files_of(uri)) == (0, before)
    # A reader is read once, for both the preview and the merge.
    reader = NEWS.to_reader()
    merge = table.merge(reader, ON).when_matched_update_all().when_not_matched_insert_all()
    assert (merge.preview().rows, merge.preview().rows_inserted) == (2, 1)
    assert merge.execute().metrics["numTargetRowsInserted"] == 1


@pytest.mark.slow
def test_sources_of_every_kind(uri: str) -> None:
    table = made(uri)
    other = uri + "-other"
    deltic.write(other, NEWS)
    frames: list[Any] = [NEWS, NEWS.to_pylist(), NEWS.to_batches(), Table(other).scan(), NEWS.to_pandas()]
    for source in frames:
        merge = table.merge(source, ON).when_matched_update({"left": "target.left + 1"})
        assert merge.execute().metrics["numTargetRowsUpdated"] == 2
    assert [row[2] for row in stock(table)] == [10, 25, 35, 40, 50]


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [None, ["p"]], ids=["whole", "parts"])
def test_columns_with_only_nulls_and_mapped_columns_evolve(uri: str, partition_by: list[str] | None) -> None:
    rows = pa.table({"p": ["a", "b"], "k": [1, 2], "st": [{"x": 1}, None]})
    deltic.write(uri, rows, partition_by=partition_by, properties=PROPERTIES[-1])
    table = Table(uri)
    source = pa.table(
        {"k": [2, 3], "p": [None, None], "st": [{"x": 5, "y": "q"}, None], "new": [1.5, 2.5], "never": [None, None]}
    )
    merge = table.merge(source, "source.k = target.k").with_schema_evolution()
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.snapshot().schema.names == ["p", "k", "st", "new"]
    assert stock(table) == [
        ("a", 1, {"x": 1, "y": None}, None),
        (None, 2, {"x": 5, "y": "q"}, 1.5),
        (None, 3, None, 2.5),
    ]
    changes = table.changes(1, 1).to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["k"], row["new"]) for row in changes) == [
        ("insert", 3, 2.5),
        ("update_postimage", 2, 1.5),
        ("update_preimage", 2, None),
    ]
    assert table.check(files=True).ok


def test_columns_without_values_get_their_defaults(uri: str) -> None:
    fields = [
        pa.field("id", pa.int64()),
        pa.field("size", pa.int64(), metadata={"CURRENT_DEFAULT": "7"}),
        pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "id * 2"}),
    ]
    deltic.create(uri, pa.schema(fields), properties={"delta.constraints.small": "id < 100"})
    deltic.write(uri, pa.table({"id": [1], "size": [3]}))
    table = Table(uri)
    source = pa.table({"id": [1, 2, 3]})
    merge = table.merge(source, "source.id = target.id")
    merge.when_matched_update({"id": "source.id + 10", "size": "DEFAULT"})
    merge.when_not_matched_insert({"id": "id"}, "id = 2").when_not_matched_insert({"id": "id", "size": "id"}).execute()
    assert stock(table) == [(11, 7, 22), (2, 7, 4), (3, 3, 6)]
    before = files_of(uri)
    for merge in (
        table.merge(source, "source.id = target.id").when_matched_update({"id": "source.id + 100"}),
        table.merge(source, "source.id = target.id").when_not_matched_insert({"id": "source.id + 100"}),
        table.merge(source, "source.id = target.id").when_matched_update({"twice": "1"}),
    ):
        with pytest.raises(InvalidInputError, match=r"small|twice"):
            merge.execute()
        assert files_of(uri) == before


def test_missing_columns_of_the_source_are_refused(uri: str) -> None:
    table = made(uri)
    source = pa.table({"item": [2, 9], "left": [0, 0], "extra": ["x", "y"]})
    with pytest.raises(InvalidInputError, match="the source has no column `shop`"):
        table.merge(source, ON).when_matched_update_all().execute()
    with pytest.raises(InvalidInputError, match="the source has no column `shop`"):
        table.merge(source, ON).when_not_matched_insert_all().execute()
    merge = table.merge(source, ON).when_matched_update_all(except_columns=["SHOP"])
    merge.when_not_matched_insert_all(except_columns=["shop"]).execute()
    assert stock(table) == [("a", 1, 10), ("a", 2, 0), ("b", 3, 30), ("b", 4, 40), ("c", 5, 50), (None, 9, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS, FEED, {**VECTORS, **FEED, **IDS}], ids=label)
def test_the_table_gets_the_columns_of_the_source(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    source = pa.table({"item": [2, 9], "left": [0, 1], "extra": ["x", "y"], "more": [{"a": 1}, {"a": 2}]})
    merge = table.merge(source, ON).with_schema_evolution()
    merge.when_matched_update_all().when_not_matched_insert({"item": "source.item", "more": "source.more"}).execute()
    assert table.snapshot().schema.names == ["shop", "item", "left", "extra", "more"]
    assert stock(table) == [
        ("a", 1, 10, None, None),
        ("a", 2, 0, "x", {"a": 1}),
        ("b", 3, 30, None, None),
        ("b", 4, 40, None, None),
        ("c", 5, 50, None, None),
        (None, 9, None, None, {"a": 2}),
    ]
    if FEED.items() <= properties.items():
        changes = table.changes(1, 1).to_arrow().to_pylist()
        assert sorted((row["_change_type"], row["extra"], row["more"]) for row in changes) == [
            ("insert", None, {"a": 2}),
            ("update_postimage", "x", {"a": 1}),
            ("update_preimage", None, None),
        ]
    # Struct fields are added too, but only by a clause that assigns them.
    deeper = pa.table({"item": [9], "more": [{"a": 3, "b": "deep"}], "other": [1]})
    table.merge(deeper, ON).with_schema_evolution().when_matched_update({"more": "source.more"}).execute()
    assert ("other" in table.snapshot().schema.names, stock(table)[-1][4]) == (False, {"a": 3, "b": "deep"})
    with pytest.raises(InvalidInputError, match="cannot set `other`"):
        table.merge(deeper, ON).when_matched_update({"other": "source.other"}).execute()
    assert table.check(files=True).ok


@pytest.mark.parametrize("properties", [{}, VECTORS, {**VECTORS, **FEED, **IDS}], ids=label)
@pytest.mark.parametrize("partition_by", [None, ["v"]], ids=["whole", "parts"])
def test_types_are_widened_if_the_table_allows_it(
    uri: str, properties: dict[str, str], partition_by: list[str] | None
) -> None:
    rows = pa.table(
        {"k": pa.array([1, 2], pa.int16()), "v": pa.array([3, 4], pa.int8()), "f": pa.array([0.5, 1.5], "f4")}
    )
    source = pa.table({"k": pa.array([2, 70_000], pa.int32()), "v": pa.array([300, 5], pa.int16()), "f": [0.1, 2.5]})
    deltic.write(uri, rows, partition_by=partition_by, properties=properties)
    table = Table(uri)
    merge = table.merge(source, "source.k = target.k").with_schema_evolution()
    before = files_of(uri)
    with pytest.raises(InvalidInputError, match=r"300|70000"):
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert files_of(uri) == before
    table.set_properties({"delta.enableTypeWidening": "true"})
    # A computed value does not widen the type.
    table.merge(source, "source.k = target.k").with_schema_evolution().when_matched_update(
        {"v": "source.v - 299"}
    ).execute()
    assert [str(field.type) for field in table.snapshot().schema] == ["int16", "int8", "float"]
    merge = table.merge(source, "source.k = target.k").with_schema_evolution()
    assert merge.when_matched_update_all().when_not_matched_insert_all().preview().rows == 1
    assert [str(field.type) for field in table.snapshot().schema] == ["int16", "int8", "float"]
    commit = merge.execute()
    assert [str(field.type) for field in table.snapshot().schema] == ["int32", "int16", "double"]
    assert stock(table) == [(1, 3, 0.5), (2, 300, 0.1), (70_000, 5, 2.5)]
    assert table.scan(filter="k > 40000 OR v > 200").to_arrow()["k"].sort().to_pylist() == [2, 70_000]
    # Conditions are evaluated with the types before the change.
    wider = pa.table({"k": pa.array([2, 3], pa.int64()), "v": pa.array([400, 9], pa.int32()), "f": [0.3, 0.4]})
    merge = table.merge(wider, "source.k = target.k").with_schema_evolution()
    merge.when_matched_update_all("target.v < source.v AND target.f > 0").when_not_matched_insert_all("source.v < 10")
    merge.when_not_matched_by_source_delete("target.v = 5").execute()
    assert [str(field.type) for field in table.snapshot().schema] == ["int64", "int32", "double"]
    assert stock(table) == [(1, 3, 0.5), (2, 400, 0.3), (3, 9, 0.4)]
    if FEED.items() <= properties.items():
        changes = table.changes(commit.version, commit.version).to_arrow().to_pylist()
        assert sorted((row["_change_type"], row["k"], row["v"]) for row in changes) == [
            ("insert", 70_000, 5),
            ("update_postimage", 2, 300),
            ("update_preimage", 2, 1),
        ]
    assert table.check(files=True).ok


def test_only_files_that_can_match_are_read(uri: str) -> None:
    for part in range(5):
        deltic.write(uri, pa.table({"k": range(part * 10, part * 10 + 10), "v": [0] * 10}))
    table = Table(uri)
    source = pa.table({"k": [12, 15]})
    upsert = table.merge(source, "source.k = target.k").when_matched_update({"v": "1"})
    preview = upsert.when_not_matched_insert({"k": "source.k"}).preview()
    assert (preview.files_total, preview.skipped_by_keys, preview.files_read, preview.rows) == (5, 4, 1, 2)
    many = pa.table({"k": range(21, 1021)})
    assert table.merge(many, "source.k = target.k").when_matched_delete().preview().files_read == 3
    narrowed = table.merge(many, "source.k = target.k AND target.k < 28").when_matched_delete().preview()
    assert (narrowed.files_read, narrowed.rows) == (1, 7)
    assert (narrowed.skipped_by_partition, narrowed.skipped_by_statistics, narrowed.skipped_by_keys) == (0, 2, 2)
    nothing = table.merge(source.slice(0, 0), "source.k = target.k").when_matched_delete().preview()
    assert (nothing.files_read, nothing.skipped_by_keys) == (0, 5)
    every = table.merge(source, "source.k = target.k").when_not_matched_by_source_delete("target.k > 44").preview()
    assert (every.files_read, every.skipped_by_keys, every.rows) == (2, 3, 5)
    assert table.snapshot().version == 4


def test_a_preview_counts_the_row_groups_that_are_not_read(uri: str) -> None:
    # Row groups of three rows: only bloom filters tell the first three apart.
    keys = [0, 9, 30, 0, 12, 30, 0, 15, 30, 100, 110, 120]
    deltic.write(
        uri,
        pa.table({"k": keys, "v": [f"{n:<200}" for n in range(12)]}),
        row_group_rows=3,
        column_options={"k": {"bloom_filter": {"fpp": 0.001, "ndv": 3}}},
    )
    table = Table(uri)

    def counts(preview: deltic.Preview) -> tuple[int, ...]:
        skipped = (preview.row_groups_skipped_by_statistics, preview.row_groups_skipped_by_bloom_filter)
        return preview.files_read, preview.row_groups, *skipped

    source = pa.table({"k": [12, 13], "v": ["new", "other"]})
    merge = table.merge(source, "source.k = target.k").when_matched_update_all().when_not_matched_insert_all()
    preview = merge.preview()
    assert (counts(preview), preview.rows, preview.rows_inserted) == ((1, 4, 1, 2), 1, 1)
    assert counts(table.delete_preview("k = 9")) == (1, 4, 1, 2)
    assert counts(table.update_preview({"v": "'x'"}, "k > 90 AND k < 115")) == (1, 4, 3, 0)
    # Of more keys only the bounds are compared.
    many = pa.table({"k": range(12, 230)})
    assert counts(table.merge(many, "source.k = target.k").when_matched_delete().preview()) == (1, 4, 0, 0)
    read = preview.bytes_read
    merge.execute()
    assert sorted(row["k"] for row in table.scan(filter="v IN ('new', 'other')").to_arrow().to_pylist()) == [12, 13]
    assert read > 0


@pytest.mark.parametrize(
    ("kind", "wide"),
    [
        (pa.decimal128(10, 0), pa.decimal128(38, 0)),
        (pa.decimal128(10, 2), pa.decimal128(12, 4)),
        (pa.decimal128(12, 4), pa.decimal128(10, 2)),
        (pa.int64(), pa.decimal128(38, 0)),
        (pa.decimal128(10, 0), pa.int64()),
    ],
)
def test_numbers_of_two_types_are_joined_by_their_keys(uri: str, kind: pa.DataType, wide: pa.DataType) -> None:
    def keys(numbers: Iterable[int], type: pa.DataType) -> pa.Array:
        return pa.array([Decimal(n) if pa.types.is_decimal(type) else n for n in numbers], type)

    for part in range(5):
        deltic.write(uri, pa.table({"k": keys(range(part * 100, part * 100 + 100), kind), "v": [0] * 100}))
    table, source = Table(uri), pa.table({"k": keys([120, 150, 9999], wide), "v": [1, 2, 3]})
    merge = table.merge(source, "target.k = source.k").when_matched_update({"v": "source.v"})
    preview = merge.preview()
    assert preview.rows == 2
    if pa.types.is_decimal(kind):
        assert (preview.files_read, preview.skipped_by_keys) == (1, 4)
    merge.execute()
    changed = table.scan(filter="v > 0").to_arrow().sort_by("v").to_pylist()
    assert [(int(row["k"]), row["v"]) for row in changed] == [(120, 1), (150, 2)]


@pytest.mark.slow
def test_filters_for_very_long_keys_are_omitted(uri: str) -> None:
    keys = {f"k{n}": [f"{row:03}" + "x" * 6500 for row in range(150)] for n in range(5)}
    deltic.write(uri, pa.table({**keys, "v": [row % 2 for row in range(150)]}))
    on = " AND ".join(f"source.{name} = target.{name}" for name in keys)
    merge = Table(uri).merge(pa.table(keys).slice(0, 100), f"{on} AND target.v = 0").when_matched_update({"v": "7"})
    assert merge.execute().metrics["numTargetRowsUpdated"] == 50
    assert sorted(Table(uri).scan().to_arrow()["v"].to_pylist()).count(7) == 50


def test_a_transaction_merges_into_its_own_changes(uri: str) -> None:
    table = made(uri)
    with table.transaction() as tx:
        tx.append(pa.table({"shop": ["n"], "item": [9], "left": [90]}))
        tx.delete("item = 2")
        done = tx.merge(NEWS, ON).when_matched_update_all().when_not_matched_insert_all().execute()
        assert (done["numTargetRowsUpdated"], done["numTargetRowsInserted"]) == (2, 1)
        assert [row[1] for row in stock(tx)] == [1, 2, 3, 4, 5, 9]
        with pytest.raises(InvalidInputError, match="no column `nope`"):
            tx.merge(NEWS, "source.nope = target.item").when_matched_delete().execute()
    assert stock(table) == [("a", 1, 10), ("a", 2, 21), ("b", 3, 31), ("b", 4, 40), ("c", 5, 50), ("z", 9, 91)]


def test_a_merge_without_changes_commits_nothing(uri: str) -> None:
    table = made(uri)
    before = files_of(uri)
    source = pa.table({"item": [77], "left": [1], "extra": [1]})
    merge = table.merge(source, ON).with_schema_evolution().when_matched_update_all()
    commit = merge.execute()
    assert (commit.version, commit.attempts, commit.metrics["numSourceRows"]) == (0, 0, 1)
    assert (table.snapshot().version, files_of(uri)) == (0, before)
    done = table.merge(NEWS, ON, app_id="job", app_version=1).when_not_matched_insert_all().execute()
    again = table.merge(NEWS, ON, app_id="job", app_version=1).when_matched_delete().execute()
    assert (done.version, again.attempts) == (1, 0)


@pytest.mark.slow
def test_concurrent_merges_of_different_keys_succeed_with_deletion_vectors(uri: str) -> None:
    deltic.write(uri, pa.table({"k": range(32), "v": [0] * 32}), properties=VECTORS)

    def merge(writer: int) -> None:
        for k in range(writer, 24, 4):
            source = pa.table({"k": [k], "v": [k + 100]})
            upsert = Table(uri).merge(source, "source.k = target.k", max_attempts=1000)
            upsert.when_matched_update_all().execute()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(merge, range(4)))
    assert stock(Table(uri)) == sorted([(k, k + 100 if k < 24 else 0) for k in range(32)], key=repr)


def test_a_concurrently_added_row_that_matches_is_a_conflict(uri: str) -> None:
    table = made(uri)
    source = pa.table({"shop": ["b", "z"], "item": [3, 9], "left": [0, 0]})
    with pytest.raises(deltic.ConcurrentAppendError), table.transaction() as tx:
        tx.merge(source, ON).when_not_matched_insert_all().execute()
        deltic.write(uri, pa.table({"shop": ["q"], "item": [9], "left": [0]}))
    table.delete("item = 9")
    # A row that cannot match is no conflict.
    with table.transaction() as tx:
        tx.merge(source, ON).when_not_matched_insert_all().execute()
        deltic.write(uri, pa.table({"shop": ["q"], "item": [100], "left": [0]}))
    table.delete("item = 9")
    # The row because of which nothing was inserted was deleted.
    with pytest.raises(deltic.CommitConflictError), table.transaction() as tx:
        tx.merge(source, ON).when_not_matched_insert_all().execute()
        Table(uri).delete("item = 3")
    assert [row[1] for row in stock(table)] == [1, 2, 4, 5, 100]


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("properties", PROPERTIES, ids=label)
def test_random_changes_match_a_model(uri: str, properties: dict[str, str], partitioned: bool) -> None:
    """Random merges with all clauses, compared with a simple model."""
    rng = random.Random(f"{properties} {partitioned}")
    model = Changed.create(uri, properties, partitioned)
    for _ in range(3):
        model.append(rng, 10)
    for _ in range(7):
        source = {n: some_row(rng, n) for n in rng.sample(sorted(model.rows), min(len(model.rows), rng.randrange(9)))}
        source |= model.new_rows(rng, rng.randrange(4))
        merge = deltic.Table(model.uri).merge(
            table_of(source.values()),
            rng.choice(
                [
                    "source.n = target.n",
                    "source.n <=> target.n",
                    "target.n = source.n AND source.n >= 0",
                    "source.n >= target.n AND target.n >= source.n",
                ]
            ),
        )
        after, updated = dict(model.rows), set()
        clauses = rng.sample(["delete", "set", "all", "insert", "unmatched", "unmatched delete"], rng.randrange(1, 6))
        if "delete" in clauses:
            merge.when_matched_delete("target.k < 3")
        if "set" in clauses:
            merge.when_matched_update({"k": "source.k", "s.y": "target.p", "l": deltic.lit(["m"])}, "source.k = 4")
        if "all" in clauses:
            merge.when_matched_update_all()
        if "insert" in clauses:
            merge.when_not_matched_insert_all("source.p = 'a'").when_not_matched_insert({"n": "n", "d": "1.5"})
        if "unmatched" in clauses:
            merge.when_not_matched_by_source_update({"p": "'u'", "d": "target.k"}, "target.k = 5")
        if "unmatched delete" in clauses:
            merge.when_not_matched_by_source_delete("p = 'c'")
        for n, row in model.rows.items():
            new = source.get(n)
            if new is not None:
                if "delete" in clauses and row["k"] is not None and row["k"] < 3:
                    del after[n]
                elif "set" in clauses and new["k"] == 4:
                    deep = {**(row["s"] or {"x": None}), "y": row["p"]}
                    after[n] = {**row, "k": 4, "s": {"x": deep["x"], "y": deep["y"]}, "l": ["m"]}
                    updated.add(n)
                elif "all" in clauses:
                    after[n] = new
                    updated.add(n)
            elif "unmatched" in clauses and row["k"] == 5:
                after[n] = {**row, "p": "u", "d": 5.0}
                updated.add(n)
            elif "unmatched delete" in clauses and row["p"] == "c":
                del after[n]
        if "insert" in clauses:
            for n in source.keys() - model.rows.keys():
                only = dict.fromkeys(SCHEMA.names) | {"n": n, "d": 1.5}
                after[n] = source[n] if source[n]["p"] == "a" else only
        commit = merge.execute()
        metrics = commit.metrics
        gone, came = model.rows.keys() - after.keys(), after.keys() - model.rows.keys()
        counted = [metrics[f"numTargetRows{what}"] for what in ("Updated", "Deleted", "Inserted")]
        assert counted == [len(updated), len(gone), len(came)]
        assert bool(commit.attempts) == bool(gone or came or updated), "there is a commit only if a row changed"
        if commit.attempts:
            model.check(after, updated)


def feed_of(table: Table, version: int) -> list[tuple[object, ...]]:
    changes = table.changes(version, version).to_arrow().to_pylist()
    return sorted((row["_change_type"], row["id"], row["left"]) for row in changes)


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("last", ["update some", "update the rest", "merge"])
def test_the_feed_has_every_step_of_a_transaction(uri: str, vectors: str, last: str) -> None:
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    deltic.write(uri, pa.table({"id": [1, 2, 3], "left": [10, 20, 30]}), properties=properties)
    table = Table(uri)

    def change() -> int:
        with table.transaction() as tx:
            tx.delete("id = 1")
            if last == "update some":
                tx.update({"left": "0"}, "id = 2")
            elif last == "update the rest":
                tx.update({"left": "0"}, "id >= 2")
            else:
                source = pa.table({"id": [2], "left": [0]})
                tx.merge(source, "source.id = target.id").when_matched_update_all().execute()
        assert tx.committed is not None
        return tx.committed.version

    if vectors == "false":
        # The feed would have to read rows of a file that exists in no version.
        with pytest.raises(deltic.UnsupportedFeatureError, match="has changed rows of the file already"):
            change()
        assert table.snapshot().version == 0
        return
    changed = [(2, 20), (3, 30)] if last == "update the rest" else [(2, 20)]
    expected = [("delete", 1, 10)]
    for id, left in changed:
        expected += [("update_postimage", id, 0), ("update_preimage", id, left)]
    assert feed_of(table, change()) == sorted(expected)


def test_a_key_with_a_cast_skips_no_file(uri: str) -> None:
    deltic.write(uri, pa.table({"id": pa.array([1, 1000], pa.int64()), "v": pa.array([0, 0], pa.int64())}))
    source = pa.table({"k": pa.array([None], pa.int8()), "w": pa.array([7], pa.int64())})
    merge = Table(uri).merge(source, "TRY_CAST(target.id AS TINYINT) <=> source.k")
    merge = merge.when_matched_update({"v": "source.w"}).when_not_matched_insert({"id": "-1", "v": "source.w"})
    merge.execute()
    assert Table(uri).scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": 0}, {"id": 1000, "v": 7}]


def test_a_condition_has_the_same_meaning_with_all_clauses(uri: str) -> None:
    deltic.write(uri, pa.table({"k": [1], "f": [2**53 + 1]}))
    on = "source.k = target.k AND target.f = 9007199254740992e0"
    merge = Table(uri).merge(pa.table({"k": [1], "f": [5]}), on).when_not_matched_insert_all()
    assert merge.execute().metrics["numTargetRowsInserted"] == 0


def test_fields_of_structs_are_not_lost(uri: str) -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    deltic.write(uri, pa.table({"id": [1], "s": pa.array([{"a": 1, "b": 2}], struct)}))
    source = pa.table({"id": [1], "s": pa.array([{"a": 10}], pa.struct([("a", pa.int64())]))})
    merge = Table(uri).merge(source, "source.id = target.id")
    with pytest.raises(InvalidInputError, match=r"cannot be stored in the column `s`"):
        merge.when_matched_update_all().execute()
    with pytest.raises(InvalidInputError, match=r"cannot be stored in the column `s`"):
        Table(uri).merge(source, "source.id = target.id").when_matched_update({"s": "source.s"}).execute()
    Table(uri).merge(source, "source.id = target.id").when_matched_update({"s.a": "source.s.a"}).execute()
    assert Table(uri).scan().to_arrow()["s"].to_pylist() == [{"a": 10, "b": 2}]


def test_a_named_index_of_a_source_is_a_column_of_it(uri: str) -> None:
    table = made(uri)
    source = pd.DataFrame({"shop": ["a", "z"], "item": [2, 9], "left": [21, 91]}).set_index(["shop", "item"])
    table.merge(source, ON).when_matched_update_all().when_not_matched_insert_all().execute()
    assert stock(table)[1] == ("a", 2, 21)
    assert stock(table)[-1] == ("z", 9, 91)
    sums = pd.DataFrame({"item": [1, 1], "left": [3, 4]}).groupby("item").sum()
    table.merge(sums, ON).when_matched_update({"left": "source.left"}).execute()
    assert stock(table)[0] == ("a", 1, 7)
    unclear = source.reset_index()[lambda frame: frame.left > 21]
    with pytest.raises(InvalidInputError, match="index has no name"):
        table.merge(unclear, ON).when_matched_update_all().execute()


LARGE_DECIMALS = pa.table({"id": [1, 2], "z": pa.array([Decimal(1), Decimal(2)], pa.decimal128(38, 0)), "x": ["", ""]})


def merged_with_a_large_decimal(uri: str, on: str, *, also_deletes: bool = False) -> list[tuple[int, str]]:
    deltic.write(uri, LARGE_DECIMALS)
    news = pa.table({"id": [1], "z": pa.array([Decimal(1)], pa.decimal128(38, 0)), "x": ["new"]})
    merge = Table(uri).merge(news, f"t.id = s.id AND {on}", source_alias="s", target_alias="t")
    merge = merge.when_matched_update({"x": "'hit'"}).when_not_matched_insert_all()
    if also_deletes:
        merge = merge.when_not_matched_by_source_update({"x": "'left'"})
    merge.execute()
    return sorted((row["id"], row["x"]) for row in Table(uri).scan().to_arrow().to_pylist())


def test_a_merge_compares_decimals_in_one_way(tmp_path: Path) -> None:
    """Spark has no common type with room for the digits of both, so that 1.25 is 1 beside a `decimal(38,0)`.

    The pre-filter of the target must not compare exactly then: the row would not be read, and be inserted again.
    """
    assert merged_with_a_large_decimal(f"{tmp_path}/a", "t.z = 1.25") == [(1, "hit"), (2, "")]
    assert merged_with_a_large_decimal(f"{tmp_path}/b", "t.z = 1.25", also_deletes=True) == [(1, "hit"), (2, "left")]
    assert merged_with_a_large_decimal(f"{tmp_path}/c", "coalesce(t.z = 1.25, FALSE)") == [(1, "hit"), (2, "")]


@pytest.mark.parametrize("condition", ["target.z = 1.25", "coalesce(target.z = 1.25, FALSE)", "target.z IN (1.25, 7)"])
def test_a_condition_on_decimals_means_the_same_in_each_clause(uri: str, condition: str) -> None:
    deltic.write(uri, LARGE_DECIMALS)
    nothing = LARGE_DECIMALS.slice(0, 0)
    Table(uri).merge(nothing, "source.id = target.id").when_not_matched_by_source_delete(condition).execute()
    assert Table(uri).scan(columns=["id"]).to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize(("column", "spelled"), [("É", "é"), ("Größe", "GRÖßE"), ("V", "v"), ("É", "target.é")])
def test_the_case_of_names_does_not_count_in_any_alphabet(uri: str, column: str, spelled: str) -> None:
    deltic.write(uri, pa.table({"k": [1], column: [1]}))
    news = pa.table({"k": [1, 2], column: [5, 6]})
    merge = Table(uri).merge(news, "target.k = source.k")
    merge = merge.when_matched_update_all(except_columns=[spelled])
    merge.when_not_matched_insert_all(except_columns=[spelled]).execute()
    rows = {row["k"]: row[column] for row in Table(uri).scan().to_arrow().to_pylist()}
    assert rows == {1: 1, 2: None}


def test_the_case_of_aliases_and_new_columns_does_not_count_in_any_alphabet(uri: str) -> None:
    deltic.write(uri, pa.table({"k": [1]}))
    news = pa.table({"k": [1], "Ö": [5]})
    merge = Table(uri).merge(news, "É.k = ö.k", source_alias="é", target_alias="Ö").with_schema_evolution()
    merge.when_matched_update({"ö": "é.`Ö`"}).execute()
    assert Table(uri).scan().to_arrow().to_pylist() == [{"k": 1, "Ö": 5}]


@pytest.mark.parametrize("spelled", ["v", "V", "target.v"])
def test_a_column_that_is_left_out_is_not_widened(uri: str, spelled: str) -> None:
    deltic.write(
        uri, pa.table({"k": [1], "v": pa.array([1], pa.int32())}), properties={"delta.enableTypeWidening": "true"}
    )
    merge = Table(uri).merge(pa.table({"k": [1], "v": [5]}), "target.k = source.k").with_schema_evolution()
    merge.when_matched_update_all(except_columns=[spelled]).execute()
    assert Table(uri).snapshot().schema.field("v").type == pa.int32()
