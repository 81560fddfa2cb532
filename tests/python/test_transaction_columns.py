"""Changes of columns in a transaction that reads and changes rows too: later steps see the columns as they are then.

What a transaction commits is compared with the same steps as commits of their own.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from changed_rows import COPIES_AND_VECTORS, FEED, IDS, MAPPED, VECTORS, files_of, label, made, stock

import deltic
from deltic import CommitConflictError, InvalidInputError, Table

WIDENS = {"delta.enableTypeWidening": "true"}
ROWS = pa.table(
    {"shop": ["a", "a", "b"], "item": pa.array([1, 2, 3], pa.int16()), "left": pa.array([10, 20, 30], pa.int8())}
)
ON = "source.item = target.item"

Steps: TypeAlias = Table | deltic.Transaction
Row: TypeAlias = dict[str, Any]


def upsert(target: Steps, source: pa.Table) -> None:
    """Update and insert the rows of a source, with its columns."""
    merge = target.merge(source, ON).with_schema_evolution()
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def append(target: Steps, rows: pa.Table) -> None:
    if isinstance(target, Table):
        deltic.write(target, rows)
    else:
        target.append(rows)


def rows_of(target: Steps, where: str | None = None) -> list[Row]:
    return sorted(target.scan(filter=where).to_arrow().to_pylist(), key=repr)


@COPIES_AND_VECTORS
def test_a_merge_adds_columns_after_an_append(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties, ROWS)
    with table.transaction() as tx:
        tx.append(pa.table({"shop": ["n", "n"], "item": [8, 9], "left": [80, 90]}))
        source = pa.table({"item": [2, 9, 11], "left": [21, 91, 111], "extra": ["x", "y", "z"]})
        merge = tx.merge(source, ON).with_schema_evolution()
        merge.when_matched_update_all(except_columns=["shop"]).when_not_matched_insert_all(except_columns=["shop"])
        assert merge.preview().rows == 2
        done = merge.execute()
        assert (done["numTargetRowsUpdated"], done["numTargetRowsInserted"]) == (2, 1)
        expected = [
            ("a", 1, 10, None),
            ("a", 2, 21, "x"),
            ("b", 3, 30, None),
            ("n", 8, 80, None),
            ("n", 9, 91, "y"),
            (None, 11, 111, "z"),
        ]
        assert stock(tx) == expected
        assert tx.scan(["item"], "extra > 'x'").to_arrow()["item"].sort().to_pylist() == [9, 11]
        assert tx.scan(filter="extra IS NULL").count() == 3
        assert tx.snapshot.schema.names == ["shop", "item", "left"]
        # Each later step has the new column: a change of rows, an append of dicts, another merge that adds one.
        assert tx.update({"extra": "'new'"}, "extra IS NULL AND left < 50") == 2
        assert tx.delete("extra = 'z'") == 1
        assert tx.append([{"shop": "d", "item": 12, "left": 1, "extra": "dict"}]) == 1
        upsert(tx, pa.table({"shop": ["d"], "item": [12], "left": [2], "extra": [None], "more": [1.5]}))
    assert table.snapshot().schema.names == ["shop", "item", "left", "extra", "more"]
    assert stock(table) == [
        ("a", 1, 10, "new", None),
        ("a", 2, 21, "x", None),
        ("b", 3, 30, "new", None),
        ("d", 12, 2, None, 1.5),
        ("n", 8, 80, None, None),
        ("n", 9, 91, "y", None),
    ]
    assert table.snapshot().version == 1
    assert [action["operation"] for action in table.history()] == ["TRANSACTION", "CREATE TABLE AS SELECT"]
    assert table.check(files=True).ok


@pytest.mark.parametrize("properties", [{}, VECTORS, {**MAPPED, **IDS}], ids=label)
def test_types_are_widened_after_rows_were_written(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, {**WIDENS, **properties}, ROWS)
    with table.transaction() as tx:
        tx.append(pa.table({"shop": ["n"], "item": pa.array([7], pa.int16()), "left": pa.array([70], pa.int8())}))
        tx.update({"left": "left + 1"}, "item = 1")
        wider = pa.table({"shop": ["b", "z"], "item": [3, 70_000], "left": pa.array([300, 5], pa.int16())})
        upsert(tx, wider)
        assert [str(field.type) for field in tx.scan().to_arrow().schema] == ["string", "int64", "int16"]
        expected = [("a", 1, 11), ("a", 2, 20), ("b", 3, 300), ("n", 7, 70), ("z", 70_000, 5)]
        assert stock(tx) == expected
        assert tx.scan(["item"], "left > 100 OR item > 40000").to_arrow()["item"].sort().to_pylist() == [3, 70_000]
    assert stock(table) == expected
    assert table.check(files=True).ok


def test_a_merge_that_fails_or_changes_nothing_leaves_the_columns(uri: str) -> None:
    table = made(uri, None, ROWS)
    with table.transaction() as tx:
        tx.append(pa.table({"shop": ["n"], "item": [9], "left": [90]}))
        twice = pa.table({"item": [9, 9], "left": [1, 2], "extra": [1, 2]})
        with pytest.raises(InvalidInputError, match="several"):
            tx.merge(twice, ON).with_schema_evolution().when_matched_update_all(except_columns=["shop"]).execute()
        none = pa.table({"item": [77], "left": [1], "extra": [1]})
        tx.merge(none, ON).with_schema_evolution().when_matched_update_all(except_columns=["shop"]).execute()
        assert tx.scan().to_arrow().schema.names == ["shop", "item", "left"]
        with pytest.raises(InvalidInputError, match="extra"):
            tx.scan(filter="extra = 1")
    assert stock(table) == [("a", 1, 10), ("a", 2, 20), ("b", 3, 30), ("n", 9, 90)]
    before = files_of(uri)

    def evolve_and_fail() -> None:
        with table.transaction() as tx:
            tx.append(pa.table({"shop": ["n"], "item": [10], "left": [90]}))
            upsert(tx, pa.table({"shop": ["n"], "item": [10], "left": [91], "extra": ["x"]}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evolve_and_fail()
    assert (files_of(uri), table.snapshot().schema.names) == (before, ["shop", "item", "left"])


@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=label)
def test_the_feed_has_the_new_columns(uri: str, vectors: dict[str, str]) -> None:
    table = made(uri, {**FEED, **vectors}, ROWS)
    with table.transaction() as tx:
        tx.append(pa.table({"shop": ["n", "n"], "item": [8, 9], "left": [80, 90]}))
        tx.update({"left": "0"}, "item = 3")
        upsert(tx, pa.table({"shop": ["a", "n"], "item": [2, 9], "left": [21, 91], "extra": ["x", "y"]}))
        # A file can be changed once, as without new columns.
        if not vectors:
            with pytest.raises(deltic.UnsupportedFeatureError, match="commit first"):
                upsert(tx, pa.table({"shop": ["b"], "item": [3], "left": [1], "extra": ["z"]}))
    changes = table.changes(1, 1).to_arrow().to_pylist()
    found = sorted((row["_change_type"], row["item"], row["left"], row["extra"]) for row in changes)
    assert found == [
        ("insert", 8, 80, None),
        ("insert", 9, 91, "y"),
        ("update_postimage", 2, 21, "x"),
        ("update_postimage", 3, 0, None),
        ("update_preimage", 2, 20, None),
        ("update_preimage", 3, 30, None),
    ]
    assert table.check(files=True).ok


@COPIES_AND_VECTORS
def test_rows_are_changed_after_the_columns(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, {**MAPPED, **properties}, ROWS)
    with table.transaction() as tx:
        tx.rename_column("left", "stock")
        tx.add_columns([pa.field("left", pa.string())])
        tx.drop_columns(["item"])
        assert stock(tx) == [("a", 10, None), ("a", 20, None), ("b", 30, None)]
        assert tx.update({"left": "concat('n', cast(stock AS string))"}, "stock >= 20") == 2
        assert tx.delete("left = 'n30'") == 1
        assert tx.remove("shop = 'b'") == 0
        upsert_by_stock = tx.merge(pa.table({"stock": [10]}), "source.stock = target.stock")
        upsert_by_stock.when_matched_update({"left": "'ten'"}).execute()
        with pytest.raises(InvalidInputError, match="item"):
            tx.delete("item = 1")
        assert stock(tx) == [("a", 10, "ten"), ("a", 20, "n20")]
    assert stock(table) == [("a", 10, "ten"), ("a", 20, "n20")]
    assert table.check(files=True).ok


def test_rules_of_the_transaction_hold_for_its_later_steps(uri: str) -> None:
    table = made(uri, None, ROWS)
    with table.transaction() as tx:
        tx.add_constraint("small", "left < 100")
        with pytest.raises(InvalidInputError, match="small"):
            tx.update({"left": "101"}, "item = 1")
        tx.set_properties({"delta.appendOnly": "true", **FEED})
        with pytest.raises(InvalidInputError, match=r"delta\.appendOnly"):
            tx.delete("item = 1")
    with table.transaction() as tx:
        tx.set_properties({"delta.appendOnly": "false", **VECTORS})
        assert tx.update({"left": "11"}, "item = 1") == 1
    assert stock(table) == [("a", 1, 11), ("a", 2, 20), ("b", 3, 30)]
    changes = table.changes(2, 2, columns=["left", "_change_type"]).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in changes) == [(10, "update_preimage"), (11, "update_postimage")]


def test_a_damaged_checkpoint_does_not_lose_the_new_columns(uri: str) -> None:
    """A version that is read without its checkpoint is read with the transaction's columns, too."""
    table = made(uri, None, ROWS)
    table.checkpoint()
    [checkpoint] = Path(uri, "_delta_log").glob("*.checkpoint*.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    with Table(uri).transaction() as tx:
        tx.add_columns([pa.field("extra", pa.string())])
        assert stock(tx) == [("a", 1, 10, None), ("a", 2, 20, None), ("b", 3, 30, None)]
        assert tx.update({"extra": "'x'"}, "item = 1") == 1
    assert stock(Table(uri)) == [("a", 1, 10, "x"), ("a", 2, 20, None), ("b", 3, 30, None)]


def test_another_writer_may_append_and_may_not_change_the_columns(uri: str) -> None:
    table = made(uri, None, ROWS)

    def change(other: Callable[[], object]) -> None:
        with table.transaction() as tx:
            tx.append(pa.table({"shop": ["n"], "item": [9], "left": [90]}))
            upsert(tx, pa.table({"shop": ["n"], "item": [9], "left": [91], "extra": ["x"]}))
            other()

    with pytest.raises(deltic.MetadataChangedError):
        change(lambda: Table(uri).add_columns([pa.field("theirs", pa.string())]))
    with pytest.raises(deltic.ConcurrentAppendError):
        change(lambda: deltic.write(uri, pa.table({"shop": ["n"], "item": [9], "left": [0]})))
    table.delete("item = 9")
    change(lambda: deltic.write(uri, pa.table({"shop": ["n"], "item": [10], "left": [0]})))
    assert [(row["item"], row["extra"]) for row in rows_of(table, "shop = 'n'")] == [(10, None), (9, "x")]


def swap(tx: deltic.Transaction, one: str, other: str) -> None:
    """Exchange the names of two columns."""
    for old, name in ((one, "between"), (other, one), ("between", other)):
        tx.rename_column(old, name)


def _scan_and_delete_after_a_swap(tx: deltic.Transaction) -> None:
    tx.scan(filter="a = 1").to_arrow()
    swap(tx, "a", "b")
    tx.delete("a > 100")


def _scan_and_delete_after_a_column_was_made_anew(tx: deltic.Transaction) -> None:
    tx.scan(filter="a = 1").to_arrow()
    tx.drop_columns(["a"])
    tx.add_columns([pa.field("a", pa.int64())])
    tx.delete("a IS NULL AND b = 20")


def _merge_and_update_by_a_new_column(tx: deltic.Transaction) -> None:
    merge = tx.merge(pa.table({"a": [2], "n": [5]}), "source.a = target.a").with_schema_evolution()
    merge.when_matched_update({"n": "source.n"}).execute()
    tx.update({"s": "'u'"}, "n = 5")


def _scan_and_update_after_a_type_was_widened(tx: deltic.Transaction) -> None:
    tx.scan(filter="b = 10").to_arrow()
    tx.alter_column("a", type=pa.decimal128(25, 2))
    tx.update({"s": "'u'"}, "a = 1.5")


def _scan_and_delete_after_a_partition_column_was_swapped(tx: deltic.Transaction) -> None:
    tx.scan(filter="a = 1").to_arrow()
    swap(tx, "s", "b")
    tx.delete("b = 'x'")


@pytest.mark.parametrize(
    ("steps", "added", "is_conflict"),
    [
        (_scan_and_delete_after_a_swap, (5, 500, "w"), True),
        (_scan_and_delete_after_a_swap, (1, 5, "w"), True),
        (_scan_and_delete_after_a_swap, (20, 5, "w"), False),
        (_scan_and_delete_after_a_column_was_made_anew, (5, 20, "w"), True),
        (_scan_and_delete_after_a_column_was_made_anew, (5, 21, "w"), False),
        (_merge_and_update_by_a_new_column, (9, 9, "w"), False),
        (_merge_and_update_by_a_new_column, (2, 9, "w"), True),
        (_scan_and_update_after_a_type_was_widened, (5, 5, "w"), False),
        (_scan_and_update_after_a_type_was_widened, (5, 10, "w"), True),
        (_scan_and_delete_after_a_partition_column_was_swapped, (9, 9, "x"), True),
        (_scan_and_delete_after_a_partition_column_was_swapped, (9, 9, "k"), False),
        (_scan_and_delete_after_a_partition_column_was_swapped, (1, 9, "k"), True),
    ],
)
def test_each_step_conflicts_by_its_own_columns(
    uri: str, steps: Callable[[deltic.Transaction], None], added: tuple[int, int, str], is_conflict: bool
) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": [10, 20, 30], "s": ["x", "y", "z"]})
    partition_by = "s" if steps is _scan_and_delete_after_a_partition_column_was_swapped else None
    properties = WIDENS if steps is _scan_and_update_after_a_type_was_widened else MAPPED
    deltic.write(uri, rows, partition_by=partition_by, properties=properties)
    winner = pa.table({name: [value] for name, value in zip(rows.column_names, added, strict=True)})
    transaction = Table(uri).transaction()
    with contextlib.ExitStack() as expected:
        if is_conflict:
            expected.enter_context(pytest.raises(CommitConflictError, match="ConcurrentAppend"))
        with transaction as tx:
            steps(tx)
            deltic.write(uri, winner)


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS, MAPPED, {**VECTORS, **IDS, **MAPPED}], ids=label)
@pytest.mark.parametrize("seed", range(6))
def test_random_steps_give_what_they_give_as_commits(uri: str, properties: dict[str, str], seed: int) -> None:
    rng = random.Random(f"{properties} {seed}")
    one, many = made(f"{uri}/one", {**WIDENS, **properties}, ROWS), made(f"{uri}/many", {**WIDENS, **properties}, ROWS)

    def some_rows(names: list[str], widest: int) -> pa.Table:
        items = rng.sample(range(1, 30), rng.randrange(1, 5))
        types = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
        columns: dict[str, pa.Array] = {
            "shop": pa.array([rng.choice("abc") for _ in items]),
            "item": pa.array(items, rng.choice(types[1:])),
            "left": pa.array([rng.randrange(100) for _ in items], types[rng.randrange(widest)]),
        }
        columns |= {name: pa.array([rng.choice([None, "x", "y", "z"]) for _ in items], pa.string()) for name in names}
        return pa.table(columns)

    for version in (1, 2):
        with one.transaction() as tx:
            for _ in range(6):
                names = many.snapshot().schema.names[3:]
                step = rng.choice(["append", "merge", "merge", "evolve", "delete", "update"])
                rows = some_rows(
                    [*names, f"c{len(names)}"] if step == "evolve" else names, 4 if step == "evolve" else 1
                )
                item, name = rng.randrange(30), rng.choice([*names, "shop"])
                for target in (tx, many):
                    if step == "append":
                        append(target, rows.set_column(1, "item", rows["item"].cast(pa.int16())))
                    elif step in {"merge", "evolve"}:
                        upsert(target, rows)
                    elif step == "delete":
                        target.delete(f"item % 7 = {item % 7} AND ({name} IS NULL OR {name} <> 'y')")
                    else:
                        target.update({name: "'b'"}, f"item > {item} AND {name} IS NOT NULL")
                assert rows_of(tx) == rows_of(many)
                where = f"{rng.choice([*many.snapshot().schema.names[3:], 'shop'])} > 'a' AND left < {item * 4}"
                assert rows_of(tx, where) == rows_of(many, where)
        assert rows_of(one) == rows_of(many)
        assert one.snapshot().schema == many.snapshot().schema
        assert one.snapshot().version == version
        assert one.check(files=True).ok
