"""If the store fails at any request of an operation, the table still opens, and the operation can be repeated.

An operation runs many times: the store answers the first n requests and refuses all later ones. In every second run it
executes the first refused request, but reports a failure. Every tenth n is tested, all with `DELTIC_CRASHES=all`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import ObjectStore, object_store

import deltic

STRIDE = 1 if os.environ.get("DELTIC_CRASHES") == "all" else 10
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "name",
    "delta.checkpointInterval": "3",
}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


def table(store: ObjectStore, name: str = "table") -> deltic.Table:
    return deltic.Table(f"s3://bucket/{name}", store.options)


def rows(table: deltic.Table) -> list[tuple[Any, ...]]:
    found = table.scan().to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def fill(store: ObjectStore) -> None:
    """Write a table with several versions, and files in two partitions, one with a deletion vector."""
    of = table(store)
    for start in range(0, 40, 10):
        ids = list(range(start, start + 10))
        data = pa.table({"id": ids, "p": [n % 2 for n in ids]})
        deltic.write(of, data, partition_by=["p"], properties=PROPERTIES if start == 0 else None)
    of.delete("id = 3")


def parquet_files(store: ObjectStore) -> None:
    for number in range(3):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [number]}), sink)
        store.put(f"bucket/files/{number}.parquet", sink.getvalue().to_pybytes(), False)


def is_whole(of: deltic.Table) -> bool:
    """Whether the table is sound, except that a crash may leave an outdated `_last_checkpoint`."""
    return all(finding.kind == "last_checkpoint" for finding in of.check(files=True).findings)


def merge(of: deltic.Table) -> object:
    source = pa.table({"id": [1, 5, 100], "p": [7, 7, 7]})
    builder = of.merge(source, "source.id = target.id").when_matched_update_all()
    return builder.when_not_matched_insert_all().execute()


OPERATIONS: dict[str, Callable[[deltic.Table], object]] = {
    "write": lambda t: deltic.write(t, pa.table({"id": [50], "p": [0]}), app_id="a", app_version=1),
    "overwrite": lambda t: deltic.write(t, pa.table({"id": [50], "p": [0]}), mode="overwrite"),
    "delete": lambda t: t.delete("id > 35 OR id = 5"),
    "update": lambda t: t.update({"p": "9"}, "id < 5"),
    "merge": merge,
    "optimize": lambda t: t.optimize(),
    "purge": lambda t: t.purge("id = 7"),
    "restore": lambda t: t.restore(1) if t.snapshot().version < 5 else None,
    "vacuum": lambda t: t.vacuum(0, force=True),
    "add columns": lambda t: t.add_columns(deltic.field("c", "string")) if "c" not in names(t) else None,
    "drop feature": lambda t: t.drop_feature("deletionVectors") if has_vectors(t) else None,
}


def names(of: deltic.Table) -> list[str]:
    return pa.schema(of.snapshot().schema).names


def has_vectors(of: deltic.Table) -> bool:
    return "deletionVectors" in (of.snapshot().protocol.get("writerFeatures") or [])


@dataclass(frozen=True)
class Crashes:
    """An operation that is repeated from the same state, with a store that fails at each of its requests."""

    store: ObjectStore
    run: Callable[[], object]
    before: dict[str, tuple[bytes, float]]
    requests: int

    @classmethod
    def of(cls, store: ObjectStore, run: Callable[[], object]) -> Crashes:
        """Run the operation without a failure, and count its requests."""
        before = dict(store.files)
        store.go_away(None)
        run()
        assert store.requests > 0
        return cls(store, run, before, store.requests)

    def __iter__(self) -> Iterator[int]:
        for at in range(0, self.requests, STRIDE):
            self.store.files = dict(self.before)
            self.store.go_away(at, does_last=at // STRIDE % 2 == 1)
            with suppress(deltic.DelticError):
                self.run()
            self.store.go_away(None)
            yield at


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_operation_is_done_or_not_and_can_be_repeated(store: ObjectStore, name: str) -> None:
    store.go_away(None)
    store.files.clear()
    fill(store)
    operate = OPERATIONS[name]
    before = rows(table(store))
    crashes = Crashes.of(store, lambda: operate(table(store)))
    after = rows(table(store))
    for at in crashes:
        found = rows(table(store))
        # A purge deletes rows in one commit and rewrites files in the next. The state between has the final rows.
        assert found in (before, after), at
        assert is_whole(table(store)), at
        operate(table(store))
        assert rows(table(store)) == after, at
        assert is_whole(table(store)), at


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [True, False], ids=["shallow", "deep"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_clone_is_made_or_not_and_can_be_repeated(store: ObjectStore, shallow: bool) -> None:
    store.go_away(None)
    store.files.clear()
    fill(store)
    source = rows(table(store))

    def clone() -> object:
        return table(store).clone(table(store, "clone"), shallow=shallow)

    for at in Crashes.of(store, clone):
        target = table(store, "clone")
        if not target.exists():
            clone()
        assert rows(target) == source == rows(table(store)), at
        assert is_whole(target), at


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_conversion_is_made_or_not_and_can_be_repeated(store: ObjectStore) -> None:
    store.go_away(None)
    store.files.clear()
    parquet_files(store)

    def convert() -> object:
        return deltic.convert(table(store, "files"))

    for at in Crashes.of(store, convert):
        converted = table(store, "files")
        if not converted.exists():
            convert()
        assert rows(converted) == [(0,), (1,), (2,)], at
        assert is_whole(converted), at
