"""UPDATE in Python: updated rows, refused updates, and the table after a failure."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import (
    COPIES_AND_VECTORS,
    FEED,
    PROPERTIES,
    VECTORS,
    Changed,
    Row,
    files_of,
    label,
    made,
    stock,
)

import deltic
from deltic import InvalidInputError, Table


@COPIES_AND_VECTORS
def test_updated_rows_have_their_new_values(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    commit = table.update({"left": "left * 10", "item": deltic.lit("NUT")}, "item = 'nut'", user_metadata={"t": 1})
    assert (commit.version, commit.attempts, commit.metrics["numUpdatedRows"]) == (1, 1, 2)
    expected = [("a", "NUT", 0), ("a", "bolt", 1), ("b", "NUT", 20), ("b", "gear", 3), ("c", "bolt", 4)]
    assert stock(table) == expected
    info = table.history(limit=1)[0]
    assert (info["operation"], info["operationParameters"]) == ("UPDATE", {"predicate": "[\"item = 'nut'\"]"})
    assert (info["userMetadata"], info["isBlindAppend"]) == ('{"t": 1}', False)
    assert table.update({"left": "0"}).metrics["numUpdatedRows"] == 5
    assert [row[2] for row in stock(table)] == [0] * 5
    assert stock(table.snapshot(1)) == expected, "older versions are unchanged"
    assert table.check(files=True).ok


def test_metrics_have_the_names_of_delta_spark(uri: str) -> None:
    metrics = made(uri).update({"left": "9"}, "left IN (0, 4)").metrics
    assert set(metrics) == {
        "executionTimeMs",
        "numAddedBytes",
        "numAddedChangeFiles",
        "numAddedFiles",
        "numCopiedRows",
        "numDeletionVectorsAdded",
        "numDeletionVectorsRemoved",
        "numDeletionVectorsUpdated",
        "numRemovedBytes",
        "numRemovedFiles",
        "numUpdatedRows",
        "rewriteTimeMs",
        "scanTimeMs",
    }
    counts = ("numRemovedFiles", "numAddedFiles", "numCopiedRows", "numUpdatedRows")
    assert [metrics[name] for name in counts] == [2, 2, 1, 2]


@COPIES_AND_VECTORS
def test_assignments_see_the_row_as_it_was(uri: str, properties: dict[str, str]) -> None:
    deltic.write(uri, pa.table({"a": [1, 2], "b": [10, 20]}), properties=properties)
    table = Table(uri)
    table.update({"a": "b", "B": "a"}, "a = 1")
    assert stock(table) == [(10, 1), (2, 20)]


@pytest.mark.slow
@COPIES_AND_VECTORS
def test_rows_move_to_the_partition_that_they_are_set_to(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    assert table.update({"shop": "concat(shop, '2')"}, "left < 3").metrics["numUpdatedRows"] == 3
    assert stock(table) == [
        ("a2", "bolt", 1),
        ("a2", "nut", 0),
        ("b", "gear", 3),
        ("b2", "nut", 2),
        ("c", "bolt", 4),
    ]
    assert len(table.snapshot().plan(filter="shop = 'a2'").tasks) == 1
    # An empty partition value is null.
    table.update({"shop": "''"}, "shop = 'c'")
    assert table.scan(filter="shop IS NULL").to_arrow()["left"].to_pylist() == [4]
    assert table.check(files=True).ok


NESTED = pa.table(
    {
        "id": [1, 2, 3],
        "place": pa.array(
            [{"x": 1, "deep": {"y": "a"}}, None, {"x": None, "deep": None}],
            pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))]),
        ),
    }
)


@pytest.mark.slow
@COPIES_AND_VECTORS
def test_fields_of_structs_are_set_alone(uri: str, properties: dict[str, str]) -> None:
    deltic.write(uri, NESTED, properties=properties)
    table = Table(uri)
    table.update({"place.deep.y": "concat('n', id)", "place.x": "place.x + 1"})
    assert [row[1] for row in stock(table)] == [
        {"x": 2, "deep": {"y": "n1"}},
        {"x": None, "deep": {"y": "n2"}},
        {"x": None, "deep": {"y": "n3"}},
    ]
    table.update({"place": deltic.lit({"x": 9, "deep": {"y": None}})}, "id = 1")
    table.update({"place": deltic.lit(None)}, "id = 2")
    assert [row[1] for row in stock(table)][:2] == [{"x": 9, "deep": {"y": None}}, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("set", "message"),
    [
        ({}, "nothing is to be set"),
        ({"lft": "1"}, "cannot set `lft`: there is no column `lft`; the nearest is left"),
        ({"left": "lft"}, "there is no column `lft`"),
        ({"left": "1", "LEFT": "2"}, "`LEFT` is set twice"),
        ({"left": "'many'"}, "'many' cannot be cast to long, which the column `left` is"),
        ({"left": "item"}, "'nut' cannot be cast to long"),
        ({"left": "DATE '2020-12-31'"}, "of type date cannot be stored in the column `left` of type long"),
        ({"left": "left + "}, "cannot set `left`: expression, character 8: expected a column or a value"),
        ({"left": "left +"}, "expected"),
        ({"left": "left / 0"}, "row 0: division by zero"),
        ({"left": "left + 9223372036854775807"}, "row 1: "),
        ({"left": "CAST(item AS INT)"}, "'nut'"),
        ({"left": "upper("}, "expected"),
        ({"left": deltic.lit(1.5)}, "only whole numbers"),
        ({"left": deltic.lit("x")}, "left"),
        ({"left": deltic.lit(object())}, "cannot be converted to Arrow"),
        ({"left": 3}, "write deltic.lit(3)"),
        ({"left": timedelta(minutes=2)}, "lengths of time: give a number, in seconds deltic.lit(120.0)"),
        ({"left": deltic.lit(timedelta(minutes=2))}, "in seconds deltic.lit(120.0)"),
        ({3: "left"}, "must be a string"),
        ([("left", "1")], "set must be a dict"),
        ("left = 1", "set must be a dict"),
    ],
)
def test_what_does_not_fit_is_refused(uri: str, set: Any, message: str) -> None:
    table = made(uri)
    before = files_of(uri)
    with pytest.raises(InvalidInputError) as refused:
        table.update(set, "shop = 'a'")
    assert message in str(refused.value)
    assert (table.snapshot().version, files_of(uri)) == (0, before)


def test_numbers_that_do_not_fit_are_refused_with_their_row(uri: str) -> None:
    deltic.write(uri, pa.table({"b": pa.array([1, 2], pa.int8()), "m": pa.array([Decimal("1.5")] * 2)}))
    table = Table(uri)
    table.update({"b": "b + 100", "m": "m + 1"})
    for set, message in (({"b": "b + 26"}, "row 1: "), ({"m": "m * 100"}, "row 0: "), ({"b": "1000"}, "1000")):
        with pytest.raises(InvalidInputError, match=message) as refused:
            table.update(set)
        assert "`" + next(iter(set)) + "`" in str(refused.value)
        assert ".parquet" in str(refused.value)
    assert stock(table) == [(101, Decimal("2.5")), (102, Decimal("2.5"))]


def test_null_is_refused_in_required_columns(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    deltic.create(uri, schema)
    deltic.write(uri, pa.table({"id": [1, 2], "v": [None, 7]}, schema))
    table = Table(uri)
    for set in ({"id": "v"}, {"id": "NULL"}, {"id": deltic.lit(None)}, {"id": "DEFAULT"}):
        with pytest.raises(InvalidInputError, match=r"row 0: the column id is not nullable, and would be NULL"):
            table.update(set)
    assert table.update({"id": "v"}, "v IS NOT NULL").metrics["numUpdatedRows"] == 1
    assert stock(table) == [(1, None), (7, 7)]


FIELDS = [
    pa.field("id", pa.int64()),
    pa.field("day", pa.date32(), metadata={"CURRENT_DEFAULT": "DATE '2024-02-29'"}),
    pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "id * 2"}),
    pa.field("year", pa.int32(), metadata={"delta.generationExpression": "year(day)"}),
]


@pytest.mark.slow
@COPIES_AND_VECTORS
def test_rules_hold_for_rows_that_are_updated(uri: str, properties: dict[str, str]) -> None:
    checked = {"delta.constraints.small": "id < 100", **properties}
    deltic.create(uri, pa.schema(FIELDS), partition_by=["year"], properties=checked)
    deltic.write(uri, pa.table({"id": [1, 2], "day": [date(1999, 1, 1), date(2000, 1, 1)]}))
    table = Table(uri)
    before = files_of(uri)
    for set, message in (
        ({"id": "id + 98"}, r"CHECK constraint `small` \(id < 100\) is violated by row 0 .* id = 100"),
        ({"id": "NULL"}, r"`small` .* id = NULL"),
        ({"twice": "5"}, r"row 0 .* another value than the expression of the generated column `twice`"),
        ({"twice": "DEFAULT"}, "the table computes the column"),
    ):
        with pytest.raises(InvalidInputError, match=message) as refused:
            table.update(set, "id = 2")  # type: ignore[arg-type]
        assert (table.snapshot().version, files_of(uri)) == (0 + 1, before), refused.value
    # Generated columns are recomputed, and rows move to the partitions of their new values.
    table.update({"day": "DEFAULT", "id": "id + 10"}, "id = 2")
    table.update({"twice": "2"}, "id = 1")
    assert stock(table) == [(1, date(1999, 1, 1), 2, 1999), (12, date(2024, 2, 29), 24, 2024)]
    assert table.scan(filter="year = 2024").count() == 1


def test_append_only_tables_refuse_updates(uri: str) -> None:
    table = made(uri, {"delta.appendOnly": "true"})
    for where in ("left = 0", None, "left = 9"):
        with pytest.raises(InvalidInputError, match=r"delta\.appendOnly"):
            table.update({"left": "0"}, where)
    assert [row[2] for row in stock(table)] == [1, 0, 3, 2, 4]


def test_nothing_is_committed_if_no_row_matches(uri: str) -> None:
    table = made(uri)
    before = files_of(uri)
    for where in ("left = 9", "shop = 'z'", "left IS NULL"):
        assert table.update({"left": "1"}, where) == deltic.Commit(0, 0, 0, {"numUpdatedRows": 0})
    assert (table.snapshot().version, files_of(uri)) == (0, before)
    assert table.update({"left": "1"}, "left = 9", app_id="job", app_version=1).version == 1
    assert table.update({"left": "1"}, "left = 0", app_id="job", app_version=1).attempts == 0


@pytest.mark.slow
@pytest.mark.parametrize("properties", PROPERTIES[:8], ids=label)
def test_a_transaction_sees_what_it_updated(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    with table.transaction() as tx:
        assert tx.update({"left": "left + 10"}, "shop = 'a'") == 2
        assert tx.append(pa.table({"shop": ["b"], "item": ["cog"], "left": [9]})) == 1
        assert [row[2] for row in stock(tx)] == [11, 10, 9, 3, 2, 4]
        # With a change data feed, existing rows can be changed once, and new rows any number of times.
        assert tx.update({"item": "upper(item)"}, "left = 9") == 1
        assert tx.delete("shop = 'c'") == 1
        if "delta.enableChangeDataFeed" in properties:
            with pytest.raises(deltic.UnsupportedFeatureError, match="commit first"):
                tx.update({"left": "0"}, "left = 10")
        else:
            assert tx.update({"left": "left + 1"}, "left = 10") == 1
        assert [row[2] for row in stock(table)] == [1, 0, 3, 2, 4]
    final = 10 if "delta.enableChangeDataFeed" in properties else 11
    assert sorted(row[2] for row in stock(table)) == sorted([11, final, 9, 3, 2])
    if "delta.enableChangeDataFeed" in properties:
        changes = table.changes(1, columns=["left", "_change_type"]).to_arrow().to_pylist()
        assert sorted((row["left"], row["_change_type"]) for row in changes) == [
            (0, "update_preimage"),
            (1, "update_preimage"),
            (4, "delete"),
            (9, "insert"),
            (10, "update_postimage"),
            (11, "update_postimage"),
        ]
    assert table.check(files=True).ok


def test_previews_say_what_an_update_does(uri: str) -> None:
    table = made(uri, VECTORS)
    on_disk = files_of(uri)
    preview = table.update_preview({"left": "0"}, "item = 'nut' AND shop <> 'c'")
    assert (preview.version, preview.files_total, preview.skipped_by_partition) == (0, 3, 1)
    assert (preview.files_marked, preview.files_rewritten, preview.files_removed, preview.rows) == (2, 0, 0, 2)
    whole = table.update_preview({"left": "0"}, "shop = 'b'")
    assert (whole.files_rewritten, whole.rows, whole.rows_copied) == (1, 2, 0)
    assert whole.bytes_written > 0
    with pytest.raises(InvalidInputError, match="no column `lft`"):
        table.update_preview({"lft": "0"})
    assert (files_of(uri), table.snapshot().version) == (on_disk, 0)


@pytest.mark.slow
def test_concurrent_updates_of_one_file_succeed_with_deletion_vectors(uri: str) -> None:
    rows = pa.table({"shop": ["a"] * 40, "item": ["nut"] * 40, "left": range(40)})
    made(uri, {**VECTORS, **FEED}, rows)

    def update(writer: int) -> None:
        for row in range(writer, 32, 4):
            Table(uri).update({"left": "left + 1000"}, f"left = {row}", max_attempts=1000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(update, range(4)))
    table = Table(uri)
    assert table.snapshot().version == 32
    assert sorted(row[2] for row in stock(table)) == [*range(32, 40), *range(1000, 1032)]
    changes = table.changes(1).to_arrow().to_pylist()
    assert sorted(row["left"] for row in changes) == [*range(32), *range(1000, 1032)]
    assert table.check(files=True).ok


@pytest.mark.slow
def test_concurrent_updates_of_one_row_conflict(uri: str) -> None:
    for properties in ({}, VECTORS):
        table = made(uri + str(len(properties)), properties)
        other = Table(table.uri)
        with pytest.raises(deltic.CommitConflictError), table.transaction() as tx:
            tx.update({"left": "left + 1"}, "left = 0")
            other.update({"left": "left + 10"}, "left = 0")
        assert sorted(row[2] for row in stock(table)) == [1, 2, 3, 4, 10]
        # A concurrently added row that matches.
        with pytest.raises(deltic.ConcurrentAppendError), table.transaction() as tx:
            tx.update({"left": "0"}, "left = 1")
            deltic.write(table.uri, pa.table({"shop": ["a"], "item": ["new"], "left": [1]}))


def test_a_missing_data_file_leaves_no_new_files(uri: str) -> None:
    table = made(uri, FEED)
    before = files_of(uri)
    victim = next(path for path in sorted(before) if path.startswith("shop=b"))
    with pytest.raises(deltic.CorruptTableError, match="file that is gone"), table.transaction() as tx:
        assert tx.update({"left": "0"}, "left = 1") == 1
        Path(uri, victim).unlink()
        tx.update({"left": "0"}, "left = 2")
    assert (files_of(uri), table.snapshot().version) == (before - {victim}, 0)


Step = tuple[dict[str, Any], Callable[[Row], Row]]


def inside(row: Row, **values: Any) -> Row:
    return {**row, "s": {**(row["s"] or {"x": None, "y": None}), **values}}


STEPS: list[Step] = [
    ({"k": "k + 1"}, lambda row: {**row, "k": None if row["k"] is None else row["k"] + 1}),
    ({"p": deltic.lit("c"), "d": deltic.lit(float("nan"))}, lambda row: {**row, "p": "c", "d": float("nan")}),
    ({"p": "NULL"}, lambda row: {**row, "p": None}),
    ({"s.x": "k", "k": "7"}, lambda row: {**inside(row, x=row["k"]), "k": 7}),
    ({"s": "NULL", "l": deltic.lit(["z", None])}, lambda row: {**row, "s": None, "l": ["z", None]}),
    ({"d": "coalesce(d, 0.25)"}, lambda row: {**row, "d": 0.25 if row["d"] is None else row["d"]}),
    ({"s.y": "coalesce(p, 'none')"}, lambda row: inside(row, y="none" if row["p"] is None else row["p"])),
]
CONDITIONS: list[tuple[str, Callable[[Row], bool]]] = [
    ("k = 3", lambda row: row["k"] == 3),
    ("p = 'a'", lambda row: row["p"] == "a"),
    ("p IS NULL OR k > 6", lambda row: row["p"] is None or (row["k"] or 0) > 6),
    ("s.x = 1", lambda row: bool(row["s"]) and row["s"]["x"] == 1),
    ("n % 3 = 0", lambda row: row["n"] % 3 == 0),
    ("d = CAST('NaN' AS DOUBLE)", lambda row: row["d"] is not None and row["d"] != row["d"]),
    ("true", lambda row: True),
]


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("properties", PROPERTIES, ids=label)
def test_random_changes_match_a_model(uri: str, properties: dict[str, str], partitioned: bool) -> None:
    rng = random.Random(f"{properties} {partitioned}")
    model = Changed.create(uri, properties, partitioned)
    for _ in range(3):
        model.append(rng, 12)
    for _ in range(8):
        (set, become), (where, keep) = rng.choice(STEPS), rng.choice(CONDITIONS)
        hit = {n for n, row in model.rows.items() if keep(row)}
        if rng.random() < 0.2:
            commit = deltic.Table(uri).delete(where)
            after, updated, count = (
                {n: row for n, row in model.rows.items() if n not in hit},
                hit - hit,
                "numDeletedRows",
            )
        else:
            commit = deltic.Table(uri).update(set, where)
            after = {n: become(row) if n in hit else row for n, row in model.rows.items()}
            updated, count = hit, "numUpdatedRows"
        assert commit.metrics[count] == len(hit)
        if hit:
            model.check(after, updated)
        if not model.rows:
            model.append(rng, 12)


def test_dates_and_strings_are_stored_as_spark_stores_them(uri: str) -> None:
    deltic.write(uri, pa.table({"at": [date(2024, 2, 29)], "text": ["x"], "n": [1]}))
    table = Table(uri)
    table.update({"at": "TIMESTAMP '2025-03-01 12:00:00'", "text": "n + 1"})
    assert stock(table) == [(date(2025, 3, 1), "2", 1)]
