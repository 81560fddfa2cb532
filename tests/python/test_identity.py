"""Identity columns: generated values, explicit values, and that no value is generated twice."""

import json
import threading
from typing import Any

import pyarrow as pa
import pytest
from log_files import Log, field, metadata, protocol, struct
from sample import adds, log_actions

import deltic
from deltic import _deltic

NAMES = pa.table({"name": ["a", "b", "c"]})


def identity(start: int = 1, step: int = 1, *, always: bool = True, mark: int | None = None) -> dict[str, Any]:
    """The metadata of an identity column."""
    made: dict[str, Any] = {
        "delta.identity.start": start,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": not always,
    }
    return made if mark is None else {**made, "delta.identity.highWaterMark": mark}


def create(uri: str, *more: Any, partition: tuple[str, ...] = (), **column: Any) -> Log:
    """An empty table with the identity column `id` and the column `name`."""
    schema = struct(field("id", "long", False, **identity(**column)), field("name", "string"), *more)
    listed = protocol(1, 7, writerFeatures=["identityColumns"])
    return Log.empty(uri, {"commitInfo": {"operation": "CREATE TABLE"}}, listed, metadata(schema, partition))


def ids(uri: str) -> list[int]:
    return sorted(deltic.Table(uri).scan().to_arrow()["id"].to_pylist())


def mark(uri: str) -> int | None:
    """The high watermark of the newest version, parsed here from the log."""
    latest = deltic.Table(uri).snapshot().version
    versions = (log_actions(uri, version) for version in range(latest, -1, -1))
    found = next(action["metaData"] for actions in versions for action in actions if "metaData" in action)
    (column, *_) = json.loads(found["schemaString"])["fields"]
    known = column["metadata"].get("delta.identity.highWaterMark")
    assert known is None or isinstance(known, int)
    return known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "step", "mark_before", "expected"),
    [(1, 1, None, [1, 2, 3]), (10, -5, None, [10, 5, 0]), (0, 7, 14, [21, 28, 35]), (1, 2, 4, [5, 7, 9])],
)
def test_rows_are_numbered(uri: str, start: int, step: int, mark_before: int | None, expected: list[int]) -> None:
    create(uri, start=start, step=step, mark=mark_before)
    deltic.write(uri, NAMES)
    assert ids(uri) == sorted(expected)
    assert mark(uri) == expected[-1]
    rows = deltic.Table(uri).scan().to_arrow().to_pylist()
    assert [row["id"] for row in sorted(rows, key=lambda row: row["name"])] == expected
    deltic.write(uri, NAMES)
    following = [expected[-1] + step * n for n in (1, 2, 3)]
    assert ids(uri) == sorted(expected + following)
    assert mark(uri) == following[-1]
    (add,) = adds(uri, 2)
    assert add["stats"]["minValues"]["id"] == min(following)
    # After an overwrite the values continue.
    deltic.write(uri, NAMES, mode="overwrite")
    assert ids(uri) == sorted(following[-1] + step * n for n in (1, 2, 3))


def test_explicit_values(uri: str) -> None:
    create(uri)
    given = pa.table({"id": [7], "name": ["x"]})
    for data in (given, given.rename_columns(["ID", "name"]), pa.table({"id": pa.nulls(1, pa.int64()), "name": ["x"]})):
        with pytest.raises(deltic.InvalidInputError, match=r"`id` is GENERATED ALWAYS AS IDENTITY.*drop it"):
            deltic.write(uri, data)
    assert deltic.Table(uri).snapshot().version == 0


def test_explicit_values_do_not_move_the_watermark(uri: str) -> None:
    """As in delta-spark, explicit values do not move the high watermark, and need not be unique."""
    create(uri, always=False)
    deltic.write(uri, pa.table({"id": [7, 2], "name": ["x", "y"]}))
    assert (ids(uri), mark(uri)) == ([2, 7], None)
    deltic.write(uri, NAMES)
    assert (ids(uri), mark(uri)) == ([1, 2, 2, 3, 7], 3)
    with pytest.raises(deltic.InvalidInputError, match="`id` may not be null"):
        deltic.write(uri, pa.table({"id": pa.nulls(1, pa.int64()), "name": ["x"]}))


def test_writes_of_one_transaction_continue_the_values(uri: str) -> None:
    create(uri)
    with deltic.Table(uri).transaction() as tx:
        tx.append(NAMES)
        tx.append(pa.table({"name": pa.array([], pa.string())}))
        tx.append(NAMES)
        assert sorted(tx.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert ids(uri) == [1, 2, 3, 4, 5, 6]
    assert [sum("metaData" in action for action in log_actions(uri, version)) for version in (0, 1)] == [1, 1]
    # A handle caches the high watermark of its last commit.
    table = deltic.Table(uri)
    for _ in range(3):
        deltic.write(table, NAMES)
    assert ids(uri) == list(range(1, 16))
    # A write without rows does not change the metadata.
    deltic.write(uri, NAMES.slice(0, 0))
    assert not any("metaData" in action for action in log_actions(uri, 5))


@pytest.mark.parametrize("step", [1, -3])
def test_clauses_of_a_merge_continue_the_values(uri: str, step: int) -> None:
    create(uri, field("size", "long"), start=step, step=step, always=False)
    deltic.write(uri, pa.table({"name": ["a"], "size": [0]}))
    source = pa.table({"name": ["b", "c", "d", "e", "f"]})
    merge = deltic.Table(uri).merge(source, "source.name = target.name")
    merge.when_not_matched_insert({"name": "name"}, "name < 'd'")
    merge.when_not_matched_insert({"name": "name", "id": "7000"}, "name = 'd'")
    merge.when_not_matched_insert({"name": "name", "size": "5"}).execute()
    rows = deltic.Table(uri).scan().to_arrow().sort_by("name").to_pylist()
    assert [row["size"] for row in rows] == [0, None, None, None, 5, 5]
    numbers = [row["id"] for row in rows]
    assert sorted(numbers[:3] + numbers[4:], reverse=step < 0) == [step * (n + 1) for n in range(5)]
    assert (numbers[0], numbers[3], mark(uri)) == (step, 7000, step * 5)
    deltic.write(uri, pa.table({"name": ["g"], "size": [0]}))
    assert step * 6 in ids(uri)


@pytest.mark.slow
def test_many_batches_partitions_and_files(uri: str) -> None:
    create(uri, field("p", "long"), partition=("p",), start=100, step=10)
    count = 50_000
    batches = pa.table({"p": [n % 7 for n in range(count)], "name": [str(n) for n in range(count)]}).to_batches(999)
    deltic.write(uri, pa.RecordBatchReader.from_batches(batches[0].schema, batches), target_file_size=20_000)
    found = deltic.Table(uri).scan().to_arrow()
    assert found.num_rows == count
    assert deltic.Table(uri).snapshot().num_files > 7
    assert all(
        id == 100 + 10 * int(name) for id, name in zip(*found.select(["id", "name"]).to_pydict().values(), strict=True)
    )
    assert mark(uri) == 100 + 10 * (count - 1)


@pytest.mark.parametrize(("step", "last"), [(1, 2**63 - 1), (-1, -(2**63)), (2**62, 2**62 + 2**62 - 1)])
def test_a_write_beyond_the_last_value_is_refused(uri: str, step: int, last: int) -> None:
    create(uri, start=last - 2 * step if abs(step) == 1 else 2**62 - 1, step=step)
    deltic.write(uri, NAMES.slice(0, 2))
    with pytest.raises(deltic.InvalidInputError, match="`id` has no number left"):
        deltic.write(uri, NAMES)
    assert deltic.Table(uri).snapshot().version == 1
    assert deltic.Table(uri).snapshot().num_files == 1
    assert len(list(deltic.Table(uri).scan().to_arrow()["id"])) == 2


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (field("id", "integer", **identity()), "is integer; identity columns are long"),
        (field("id", "long", **identity(step=0)), "delta.identity.step` 0"),
        (field("id", "long", **{**identity(), "delta.identity.start": "1"}), "that is not a long"),
    ],
)
def test_invalid_identity_columns(uri: str, column: Any, message: str) -> None:
    listed = protocol(1, 7, writerFeatures=["identityColumns"])
    Log.empty(uri, {"commitInfo": {}}, listed, metadata(struct(column, field("name", "string"))))
    with pytest.raises(deltic.CorruptTableError, match=message):
        deltic.write(uri, NAMES)


def test_the_loser_of_a_race_gets_a_conflict(uri: str) -> None:
    """Its values are the same as the winner's, so it cannot be rebased."""
    create(uri)
    table = deltic.Table(uri)
    with pytest.raises(deltic.MetadataChangedError), table.transaction() as tx:
        tx.append(NAMES)
        deltic.write(uri, NAMES)
    assert ids(uri) == [1, 2, 3]
    # A transaction without new values can be rebased.
    with table.transaction() as tx:
        tx.remove("name = 'nobody'")
        deltic.write(uri, NAMES)
    assert ids(uri) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_concurrent_writers_generate_no_value_twice(uri: str) -> None:
    create(uri)
    failures: list[BaseException] = []

    def writer() -> None:
        try:
            for _ in range(8):
                while True:
                    try:
                        deltic.write(uri, NAMES)
                        break
                    except deltic.CommitConflictError:
                        continue
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=writer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ids(uri) == list(range(1, 4 * 8 * 3 + 1))


def test_tasks_of_one_plan_generate_different_values(uri: str) -> None:
    create(uri, start=5, step=-3)
    options = json.dumps({"mode": "append"})
    planned = _deltic.plan_write(deltic.Table(uri)._core, NAMES.schema, options)
    plan = planned.write_plan(NAMES.schema)
    with pytest.raises(deltic.InvalidInputError, match="pass `task`"):
        _deltic.write_files(plan, None, NAMES)
    with pytest.raises(deltic.InvalidInputError, match="65536 tasks"):
        _deltic.write_files(plan, None, NAMES, task=65536)
    written = [_deltic.write_files(plan, None, NAMES, task=task) for task in (0, 1, 65535)]
    planned.append_files([file for files in written for file in files])
    planned.commit()
    expected = [5 - 3 * (task + 65536 * row) for task in (0, 1, 65535) for row in range(3)]
    assert ids(uri) == sorted(expected)
    assert mark(uri) == min(expected)
    deltic.write(uri, NAMES)
    assert len(set(ids(uri))) == 12
    assert min(ids(uri)) == min(expected) - 9


def test_a_new_table(uri: str) -> None:
    metadata = {key: json.dumps(value) for key, value in identity(start=3, step=2, always=False).items()}
    schema = pa.schema([pa.field("id", pa.int64(), metadata=metadata), ("name", pa.string())])
    deltic.create(uri, schema)
    assert any(
        "identityColumns" in action["protocol"]["writerFeatures"]
        for action in log_actions(uri, 0)
        if "protocol" in action
    )
    deltic.write(uri, NAMES)
    assert ids(uri) == [3, 5, 7]
