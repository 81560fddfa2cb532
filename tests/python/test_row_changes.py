"""DELETE in Python: the resulting table, refused deletes, and the table after a failure."""

from __future__ import annotations

import itertools
import pickle
import random
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import COPIES_AND_VECTORS, FEED, IDS, STOCK, VECTORS, files_of, made
from log_files import Log

import deltic
from deltic import InvalidInputError, Table


def ids(table: Any, filter: str | None = None) -> list[int]:
    return sorted(row["left"] for row in table.scan(filter=filter).to_arrow().to_pylist())


@COPIES_AND_VECTORS
def test_deleted_rows_are_gone(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    commit = table.delete("item = 'nut'", user_metadata={"ticket": 3})
    assert (commit.version, commit.attempts, commit.metrics["numDeletedRows"]) == (1, 1, 2)
    assert ids(table) == [1, 3, 4]
    info = table.history(limit=1)[0]
    assert (info["operation"], info["operationParameters"]) == ("DELETE", {"predicate": "[\"item = 'nut'\"]"})
    assert info["userMetadata"] == '{"ticket": 3}'
    assert not info["isBlindAppend"]
    # A whole partition, then all remaining rows.
    assert table.delete("shop = 'b'").metrics["numDeletedRows"] == 1
    assert table.delete().metrics["numDeletedRows"] == 2
    assert table.scan().count() == 0
    assert ids(table.snapshot(0)) == [0, 1, 2, 3, 4], "older versions are unchanged"
    assert table.check(files=True).ok


def test_metrics_have_the_names_of_delta_spark(uri: str) -> None:
    metrics = made(uri).delete("left IN (0, 4)").metrics
    assert set(metrics) == {
        "executionTimeMs",
        "numAddedBytes",
        "numAddedChangeFiles",
        "numAddedFiles",
        "numCopiedRows",
        "numDeletedRows",
        "numDeletionVectorsAdded",
        "numDeletionVectorsRemoved",
        "numDeletionVectorsUpdated",
        "numRemovedBytes",
        "numRemovedFiles",
        "rewriteTimeMs",
        "scanTimeMs",
    }
    assert (metrics["numRemovedFiles"], metrics["numAddedFiles"], metrics["numCopiedRows"]) == (2, 1, 1)


def test_nothing_is_committed_if_no_row_matches(uri: str) -> None:
    table = made(uri)
    before = files_of(uri)
    for where in ("left = 9", "shop = 'z'", "left = 0 AND shop = 'b'", "left IS NULL"):
        assert table.delete(where) == deltic.Commit(0, 0, 0, {"numDeletedRows": 0})
    assert (table.snapshot().version, files_of(uri)) == (0, before)
    # An application transaction is recorded even if no row matches.
    assert table.delete("left = 9", app_id="job", app_version=1).version == 1
    assert table.delete("left = 0", app_id="job", app_version=1).attempts == 0
    assert ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("lft = 1", "no column `lft`"),
        ("left = 'many'", "'many'"),
        ("left =", "expected"),
        (["left", "=", 1], "where must be a string of SQL"),
        (3, "where must be a string of SQL, not int"),
        ("left", "is not a condition"),
    ],
)
def test_invalid_conditions_are_refused(uri: str, where: Any, message: str) -> None:
    table = made(uri)
    with pytest.raises(InvalidInputError) as refused:
        table.delete(where)
    assert message in str(refused.value)
    assert (table.snapshot().version, ids(table)) == (0, [0, 1, 2, 3, 4])


def test_append_only_tables_refuse_deletes(uri: str) -> None:
    table = made(uri, {"delta.appendOnly": "true"})
    for where in ("left = 0", "shop = 'a'", None, "left = 9"):
        with pytest.raises(InvalidInputError, match=r"delta\.appendOnly"):
            table.delete(where)
    assert ids(table) == [0, 1, 2, 3, 4]


def test_a_missing_table(uri: str) -> None:
    with pytest.raises(deltic.TableNotFoundError):
        Table(uri).delete("left = 0")
    with pytest.raises(InvalidInputError, match="app_id and app_version belong together"):
        made(uri).delete("left = 0", app_id="job")


def test_options_of_commits_are_those_of_transactions(uri: str) -> None:
    table = made(uri)
    for options in ({"isolation": "none"}, {"max_attempts": 0}, {"user_metadata": 3}):
        with pytest.raises(InvalidInputError, match=next(iter(options)).split("_")[0]):
            table.delete("left = 0", **options)  # type: ignore[arg-type]
    assert table.delete("left = 0", isolation="WriteSerializable", max_attempts=1).version == 1


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS, {**IDS, **FEED}, {**VECTORS, **IDS, **FEED}])
def test_a_transaction_sees_what_it_deleted(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, properties)
    with table.transaction() as tx:
        assert tx.delete("left = 0") == 1
        assert ids(tx) == [1, 2, 3, 4]
        assert tx.append(pa.table({"shop": ["a"], "item": ["cog"], "left": [9]})) == 1
        assert tx.delete("shop = 'b'") == 2
        assert (ids(tx), ids(tx, "item = 'nut'")) == ([1, 4, 9], [])
        assert ids(table) == [0, 1, 2, 3, 4]
    assert ids(table) == [1, 4, 9]
    if properties.keys() & FEED.keys():
        changed = table.changes(1, columns=["left", "_change_type"]).to_arrow().to_pylist()
        expected = {(0, "delete"), (2, "delete"), (3, "delete"), (9, "insert")}
        assert {tuple(row.values()) for row in changed} == expected
        assert len(changed) == 4
    with pytest.raises(ZeroDivisionError), table.transaction() as tx:
        tx.delete()
        raise ZeroDivisionError
    assert ids(table) == [1, 4, 9]
    assert table.check(files=True).ok


def test_with_a_change_feed_a_file_is_changed_once_in_a_transaction(uri: str) -> None:
    table = made(uri, FEED)
    with table.transaction() as tx:
        tx.delete("left = 0")
        with pytest.raises(deltic.UnsupportedFeatureError, match="commit first") as refused:
            tx.delete("left = 1")
        assert refused.value.features == ("changeDataFeed",)
        with pytest.raises(InvalidInputError, match="change files"):
            tx.remove("shop = 'a'")
        tx.delete("left = 2")
    assert ids(table) == [1, 3, 4]


def test_a_missing_file_midway_leaves_no_new_files(uri: str) -> None:
    """A data file is deleted before the second delete of a transaction reads it."""
    for properties in ({}, VECTORS, FEED):
        table = made(uri, properties)
        before = files_of(uri)
        victim = next(path for path in sorted(before) if path.startswith("shop=b"))
        with pytest.raises(deltic.CorruptTableError, match="file that is gone"), table.transaction() as tx:
            assert tx.delete("left = 0") == 1
            Path(uri, victim).unlink()
            tx.delete("left = 2")
        assert files_of(uri) == before - {victim}
        assert table.snapshot().version == 0
        assert ids(table, "shop <> 'b'") == [0, 1, 4]
        shutil.rmtree(uri)


def test_copy_on_write_deletes_of_one_file_conflict(uri: str) -> None:
    table, other = made(uri), Table(uri)
    with pytest.raises(deltic.CommitConflictError), table.transaction() as tx:
        tx.delete("left = 0")
        other.delete("left = 1")
    assert ids(table) == [0, 2, 3, 4]
    # Deletes of different files do not conflict, even if the winner changed a file that was read without a match.
    with table.transaction() as tx:
        tx.delete("left = 0 AND item = 'nut'")
        other.delete("left = 3")
        other.delete("left = 2")
    assert ids(table) == [4]


def test_deletes_with_vectors_conflict_only_for_the_same_row(uri: str) -> None:
    table, other = made(uri, VECTORS, STOCK.set_column(0, "shop", pa.array(["a"] * 5))), Table(uri)
    table.delete("left = 4")
    with table.transaction() as tx:
        tx.delete("left = 0")
        other.delete("left = 1")
        other.delete("left = 2")
    assert tx.committed is not None
    assert (tx.committed.version, ids(table)) == (4, [3])
    names = {path for path in files_of(uri) if path.endswith(".bin")}
    assert len(names) == 4, "vectors of lost attempts are deleted"
    deltic.write(uri, STOCK.set_column(0, "shop", pa.array(["a"] * 5)))
    # Two deletes of the same row conflict.
    with pytest.raises(deltic.ConcurrentDeleteDeleteError, match="row") as conflict, table.transaction() as tx:
        tx.delete("left IN (0, 1)")
        other.delete("left IN (1, 2)")
    assert "left IN (1, 2)" not in str(conflict.value)
    assert ids(table) == [0, 3, 3, 4]
    assert table.check(files=True).ok


@pytest.mark.parametrize("properties", [{}, FEED])
def test_rows_that_optimize_moved_are_changed_in_its_files(uri: str, properties: dict[str, str]) -> None:
    rows = [pa.table({"shop": ["a"] * 4, "item": ["nut"] * 4, "left": range(n, n + 4)}) for n in (0, 4, 8)]
    table, other = made(uri, {**VECTORS, **IDS, **properties}, rows[0]), Table(uri)
    for more in rows[1:]:
        deltic.write(uri, more)

    def row_ids() -> dict[int, int]:
        found = table.scan(["left", "_metadata.row_id"]).to_arrow().to_pylist()
        return {row["left"]: row["_metadata.row_id"] for row in found}

    expected = row_ids()
    source = pa.table({"left": pa.array([1, 6, 30], pa.int64()), "item": ["cog", "pin", "nut"]})
    with table.transaction() as tx:
        assert ids(tx, "item = 'nut'") == list(range(12))
        merge = tx.merge(source, "source.left = target.left").when_matched_update({"left": "target.left + 100"})
        merge.when_not_matched_insert({"left": "source.left", "item": "source.item"}).execute()
        other.optimize()
    for row in (1, 6):
        expected[row + 100] = expected.pop(row)
    found = row_ids()
    assert found.pop(30) not in expected.values()
    assert found == expected
    with table.transaction() as tx:
        tx.delete("left IN (2, 9)")
        other.optimize(zorder_by=["left"])
        other.delete("left = 3")
    assert set(row_ids()) == {*expected, 30} - {2, 3, 9}
    if properties:
        changes = table.changes(3, columns=["left", "_change_type"]).to_arrow().to_pylist()
        assert Counter(tuple(row.values()) for row in changes) == Counter(
            [
                (row, f"update_{image}")
                for row, image in ((1, "preimage"), (6, "preimage"), (101, "postimage"), (106, "postimage"))
            ]
            + [(30, "insert"), (2, "delete"), (9, "delete"), (3, "delete")]
        )
    assert table.check(files=True).ok


@pytest.mark.slow
def test_concurrent_deletes_with_vectors_of_one_file_succeed(uri: str) -> None:
    rows = pa.table({"shop": ["a"] * 64, "item": ["nut"] * 64, "left": range(64)})
    made(uri, VECTORS, rows)

    def delete(writer: int) -> None:
        for row in range(writer, 56, 8):
            Table(uri).delete(f"left = {row}", max_attempts=1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(delete, range(8)))
    table = Table(uri)
    assert (table.snapshot().version, ids(table)) == (56, list(range(56, 64)))
    assert table.check(files=True).ok


def test_previews_match_the_delete(uri: str) -> None:
    table = made(uri, VECTORS)
    on_disk = files_of(uri)
    preview = table.delete_preview("item = 'nut' AND shop <> 'c'")
    assert (preview.version, preview.files_total, preview.skipped_by_partition) == (0, 3, 1)
    assert (preview.files_read, preview.files_marked, preview.files_removed, preview.files_rewritten) == (2, 2, 0, 0)
    assert (preview.rows, preview.rows_copied) == (2, 0)
    assert preview.bytes_read > 0
    whole = table.delete_preview("shop = 'b'")
    assert (whole.files_read, whole.files_removed, whole.rows, whole.bytes_read, whole.bytes_written) == (0, 1, 2, 0, 0)
    nothing = table.delete_preview("left = 9")
    assert (nothing.skipped_by_statistics, nothing.files_read, nothing.rows) == (3, 0, 0)
    assert (files_of(uri), table.snapshot().version) == (on_disk, 0)
    commit = table.delete("item = 'nut' AND shop <> 'c'")
    assert commit.metrics["numDeletionVectorsAdded"] == preview.files_marked
    assert table.delete_preview("left = 1").version == 1
    with pytest.raises(InvalidInputError, match="no column `lft`"):
        table.delete_preview("lft = 1")


def test_concurrently_added_rows_that_match_conflict_with_a_delete(uri: str) -> None:
    table = made(uri)
    with pytest.raises(deltic.ConcurrentAppendError), table.transaction() as tx:
        tx.delete("left = 0")
        deltic.write(uri, pa.table({"shop": ["z"], "item": ["nut"], "left": [0]}))
    with table.transaction() as tx:
        tx.delete("left = 0")
        deltic.write(uri, pa.table({"shop": ["z"], "item": ["nut"], "left": [7]}))
    assert ids(table) == [1, 2, 3, 4, 7]


class Model:
    """The expected rows, each with its row id and commit version."""

    def __init__(self, rng: random.Random, uri: str) -> None:
        self.rng, self.uri = rng, uri
        self.rows: list[dict[str, Any]] = []
        self.changes: list[Counter[tuple[Any, ...]]] = []

    def some(self, count: int) -> list[dict[str, Any]]:
        def value(choices: Any) -> Any:
            return None if self.rng.random() < 0.1 else self.rng.choice(choices)

        def row() -> dict[str, Any]:
            deep = {"n": value(range(4)), "s": value(["x", "ÿ", "long " * 20])}
            doubles = [0.0, 1.5, float("nan"), -0.0, float("inf")]
            return {"p": value("abc"), "k": value(range(9)), "d": value(doubles), "deep": value([deep, deep])}

        return [row() for _ in range(count)]


SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("k", pa.int64()),
        ("d", pa.float64()),
        ("deep", pa.struct([("n", pa.int32()), ("s", pa.string())])),
    ]
)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """A comparable form of a row, in which NaN equals NaN."""
    return tuple(map(repr, (row["p"], row["k"], row["d"], row["deep"] and tuple(row["deep"].values()))))


def keep(row: dict[str, Any], where: tuple[str, Any]) -> bool:
    """Evaluate a condition on a row in Python."""
    column, value = where
    found = row["deep"] and row["deep"]["n"] if column == "deep.n" else row[column]
    return found is not None and found == value if value is not None else found is None


def sql(where: tuple[str, Any]) -> str:
    column, value = where
    if value is None:
        return f"{column} IS NULL"
    return f"{column} = '{value}'" if isinstance(value, str) else f"{column} = {value}"


PROPERTIES = [
    dict(itertools.chain(*(p.items() for p in chosen)))
    for n in range(4)
    for chosen in itertools.combinations([VECTORS, FEED, IDS], n)
]


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize(
    "properties", PROPERTIES, ids=lambda p: "-".join(name.removeprefix("delta.enable") for name in p) or "plain"
)
@pytest.mark.parametrize("seed", range(2))
def test_random_changes_match_a_model(uri: str, seed: int, properties: dict[str, str], partitioned: bool) -> None:
    """Random steps, one or several in a commit; rows, changes and row ids are compared after each commit."""
    rng = random.Random(f"{seed} {properties} {partitioned}")
    model = Model(rng, uri)
    deltic.write(
        uri, pa.Table.from_pylist([], SCHEMA), partition_by=["p"] if partitioned else None, properties=properties
    )
    table = Table(uri)
    ids: dict[int, tuple[Any, ...]] = {}
    for _ in range(8):
        before = list(model.rows)
        changed: Counter[tuple[Any, ...]] = Counter()
        version = table.snapshot().version
        with table.transaction() as tx:
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                if rng.random() < 0.5 or not model.rows:
                    new = model.some(rng.randrange(1, 12))
                    tx.append(pa.Table.from_pylist(new, SCHEMA))
                    model.rows += new
                    continue
                where = rng.choice(
                    [
                        ("k", rng.choice([None, *range(9)])),
                        ("p", rng.choice([None, *"abc"])),
                        ("deep.n", rng.choice([None, *range(4)])),
                    ]
                )
                gone = [row for row in model.rows if keep(row, where)]
                try:
                    assert tx.delete(sql(where)) == len(gone)
                except deltic.UnsupportedFeatureError as error:
                    if "a transaction can change a row only once" not in str(error):
                        raise
                    assert FEED.keys() <= properties.keys()
                    continue
                model.rows = [row for row in model.rows if not keep(row, where)]
            assert Counter(map(key, tx.scan().to_arrow().to_pylist())) == Counter(map(key, model.rows))
        found = table.scan().to_arrow().to_pylist()
        assert Counter(map(key, found)) == Counter(map(key, model.rows))
        assert table.check(files=True).ok
        if "delta.enableChangeDataFeed" in properties and tx.committed is not None:
            was, now = Counter(map(key, before)), Counter(map(key, model.rows))
            for row in table.changes(version + 1, version + 1).to_arrow().to_pylist():
                changed[(*key(row), row["_change_type"])] += 1
            # Equal rows may have been added and deleted, so only the net change is compared.
            balance = Counter(dict.fromkeys(was | now, 0))
            for (*row, kind), count in changed.items():
                balance[tuple(row)] += count if kind == "insert" else -count
            assert {row: n for row, n in balance.items() if n} == {
                row: now[row] - was[row] for row in was | now if now[row] != was[row]
            }
        if "delta.enableRowTracking" in properties:
            columns = [*SCHEMA.names, "_metadata.row_id", "_metadata.row_commit_version"]
            tracked = table.scan(columns=columns).to_arrow().to_pylist()
            seen = {row["_metadata.row_id"]: (*key(row), row["_metadata.row_commit_version"]) for row in tracked}
            assert len(seen) == len(tracked), "row ids are unique"
            assert all(ids[row_id] == row for row_id, row in seen.items() if row_id in ids), "a row keeps its row id"
            fresh = seen.keys() - ids.keys()
            assert all(row_id > max(ids, default=-1) for row_id in fresh), "new rows get new row ids"
            ids |= seen
    assert Log(uri).read(0)


def test_a_table_whose_rows_are_changed_in_another_way_is_the_same_table(uri: str) -> None:
    """As with Spark, whose executors change them."""
    deltic.write(uri, pa.table({"n": [1, 2, 3]}))
    table = deltic.Table(uri, cache_bytes=1 << 20)
    changed: list[object] = []

    def counted(core: Any) -> Any:
        changed.append(core)
        return core

    other = table._with_row_changes(counted)
    assert other.delete("n = 1").version == 1
    assert table.delete("n = 2").version == 2
    assert len(changed) == 1
    assert pickle.loads(pickle.dumps(other)) == other == table
    assert other.snapshot().scan().to_arrow()["n"].to_pylist() == [3]
