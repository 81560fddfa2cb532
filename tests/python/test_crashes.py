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


def fill(store: ObjectStore, clustered: bool = False, vectors: bool = True) -> None:
    """Write a table with several versions, and files in two partitions unless it is clustered, one with a vector."""
    of = table(store)
    properties = PROPERTIES | {"delta.enableDeletionVectors": str(vectors).lower()}
    if clustered:
        columns = pa.schema([("id", pa.int64()), ("p", pa.int64())])
        deltic.create(of, columns, cluster_by=["id"], properties=properties)
    for start in range(0, 40, 10):
        ids = list(range(start, start + 10))
        data = pa.table({"id": ids, "p": [n % 2 for n in ids]})
        if clustered:
            deltic.write(of, data)
        else:
            deltic.write(of, data, partition_by=["p"], properties=properties if start == 0 else None)
    of.delete("id = 3")


def parquet_files(store: ObjectStore) -> None:
    for number in range(3):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [number]}), sink)
        store.put(f"bucket/files/{number}.parquet", sink.getvalue().to_pybytes(), False)


def data_files(store: ObjectStore, name: str = "table") -> set[str]:
    """The files of a table but those of its log."""
    root = f"bucket/{name}/"
    return {path for path in store.files if path.startswith(root) and not path.startswith(root + "_delta_log/")}


def inventory(store: ObjectStore) -> pa.Table:
    paths = sorted(path.removeprefix("bucket/table/") for path in data_files(store))
    count = len(paths)
    return pa.table({"path": paths, "length": [1] * count, "isDir": [False] * count, "modificationTime": [0] * count})


def is_whole(of: deltic.Table) -> bool:
    """Whether the table is sound, except that a crash may leave an outdated `_last_checkpoint`."""
    return all(finding.kind == "last_checkpoint" for finding in of.check(files=True).findings)


def merge(of: deltic.Table) -> object:
    source = pa.table({"id": [1, 5, 100], "p": [7, 7, 7]})
    builder = of.merge(source, "source.id = target.id").when_matched_update_all()
    return builder.when_not_matched_insert_all().execute()


REPLACING = pa.table({"id": [50, 51], "p": [1, 1]})
OPERATIONS: dict[str, Callable[[deltic.Table], object]] = {
    "write": lambda t: deltic.write(t, pa.table({"id": [50], "p": [0]}), app_id="a", app_version=1),
    "overwrite": lambda t: deltic.write(t, pa.table({"id": [50], "p": [0]}), mode="overwrite"),
    "overwrite of some": lambda t: deltic.write(t, REPLACING, mode="overwrite", replace_where="p = 1"),
    "overwrite of partitions": lambda t: deltic.write(t, REPLACING, mode="overwrite", partition_overwrite="dynamic"),
    "delete": lambda t: t.delete("id > 35 OR id = 5"),
    "update": lambda t: t.update({"p": "9"}, "id < 5"),
    "merge": merge,
    "optimize": lambda t: t.optimize(),
    "z-order": lambda t: t.optimize(zorder_by=["id"]),
    "cluster": lambda t: t.optimize(),
    "purge": lambda t: t.purge("id = 7"),
    "restore": lambda t: t.restore(1) if t.snapshot().version < 5 else None,
    "add columns": lambda t: t.add_columns(deltic.field("c", "string")) if "c" not in names(t) else None,
    "drop feature": lambda t: t.drop_feature("deletionVectors") if has(t, "deletionVectors") else None,
    "drop column mapping": lambda t: t.drop_feature("columnMapping") if has(t, "columnMapping") else None,
}


OPERATIONS |= {f"{name} by rewriting": OPERATIONS[name] for name in ("delete", "update", "merge")}


def names(of: deltic.Table) -> list[str]:
    return pa.schema(of.snapshot().schema).names


def has(of: deltic.Table, feature: str) -> bool:
    return feature in (of.snapshot().protocol.get("writerFeatures") or [])


@dataclass(frozen=True)
class Crashes:
    """An operation that is repeated from the same state, with a store that fails at each of its requests."""

    store: ObjectStore
    run: Callable[[], object]
    before: dict[str, tuple[bytes, float]]
    requests: int
    stride: int

    @classmethod
    def of(cls, store: ObjectStore, run: Callable[[], object], stride: int = STRIDE) -> Crashes:
        """Run the operation without a failure, and count its requests."""
        before = dict(store.files)
        store.go_away(None)
        run()
        assert store.requests > 0
        return cls(store, run, before, store.requests, stride)

    def __iter__(self) -> Iterator[int]:
        for at in range(0, self.requests, self.stride):
            self.store.files = dict(self.before)
            self.store.go_away(at, does_last=at // self.stride % 2 == 1)
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
    fill(store, clustered=name == "cluster", vectors=not name.endswith("by rewriting"))
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


VACUUMS: dict[str, Callable[[ObjectStore], object]] = {
    "full": lambda store: table(store).vacuum(0, force=True),
    "lite": lambda store: table(store).vacuum(0, mode="lite", force=True),
    "inventory": lambda store: table(store).vacuum(0, force=True, inventory=inventory(store)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VACUUMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_vacuum_that_is_repeated_deletes_what_the_first_left(store: ObjectStore, name: str) -> None:
    store.go_away(None)
    store.files.clear()
    fill(store)
    table(store).optimize()
    before, all_files = rows(table(store)), data_files(store)
    crashes = Crashes.of(store, lambda: VACUUMS[name](store))
    kept = data_files(store)
    assert kept < all_files
    for at in crashes:
        assert kept <= data_files(store) <= all_files, at
        VACUUMS[name](store)
        assert data_files(store) == kept, at
        assert rows(table(store)) == before, at
        assert is_whole(table(store)), at


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_automatic_compaction_is_done_or_not(store: ObjectStore) -> None:
    store.go_away(None)
    store.files.clear()
    compacts = {"delta.autoOptimize.autoCompact": "true"}
    deltic.write(table(store), pa.table({"id": [0]}), properties=compacts)
    with table(store).transaction() as tx:
        for number in range(1, 49):
            tx.append(pa.table({"id": [number]}))

    files = {path.removeprefix("bucket/table/"): file for path, file in store.files.items()}

    def copied(name: str) -> deltic.Table:
        store.files.update({f"bucket/{name}/{path}": file for path, file in files.items()})
        return table(store, name)

    def write(of: deltic.Table) -> object:
        return deltic.write(of, pa.table({"id": [49]}), app_id="a", app_version=1)

    before = rows(table(store))
    whole = copied("whole")
    store.go_away(None)
    write(whole)
    requests = store.requests
    after = rows(whole)
    assert whole.snapshot().num_files == 1
    for at in range(0, requests, STRIDE):
        # A process waits after a failed compaction, but only with that table.
        name = f"at{at}"
        copied(name)
        store.go_away(at, does_last=at // STRIDE % 2 == 1)
        with suppress(deltic.DelticError):
            write(table(store, name))
        store.go_away(None)
        assert rows(table(store, name)) in (before, after), at
        write(table(store, name))
        assert rows(table(store, name)) == after, at
        assert is_whole(table(store, name)), at
        table(store, name).optimize()
        assert table(store, name).snapshot().num_files == 1, at
        assert rows(table(store, name)) == after, at


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_repair_can_be_repeated_and_is_one_commit(store: ObjectStore) -> None:
    store.go_away(None)
    store.files.clear()
    fill(store)
    lost = table(store).scan(filter="id >= 30 AND p = 0").to_arrow()["id"].to_pylist()
    left = [row for row in rows(table(store)) if row[0] not in lost]
    files = table(store).plan(filter="id >= 30 AND p = 0").tasks["path"].to_pylist()
    for path in [*files, "_delta_log/_last_checkpoint", f"_delta_log/{table(store).snapshot().version:020}.crc"]:
        del store.files[f"bucket/table/{path}"]

    def repair() -> object:
        return table(store).repair(dry_run=False)

    for at in Crashes.of(store, repair):
        repair()
        assert rows(table(store)) == left, at
        assert table(store).check(files=True).ok, at
        done = [entry["operation"] for entry in table(store).history()]
        assert done.count("FSCK") == 1, at


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "torn"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_recovery_leaves_the_damaged_log_or_ends_it_and_can_be_repeated(store: ObjectStore, damage: str) -> None:
    store.go_away(None)
    store.files.clear()
    for value in range(7):
        deltic.write(table(store), pa.table({"id": [value]}))
    log = "bucket/table/_delta_log"
    del store.files[f"{log}/{4:020}.json"]
    if damage == "torn":
        store.put(f"{log}/{4:020}.json", b'{"add":{"pa', False)
    for name in (f"{5:020}.checkpoint.parquet", "_last_checkpoint", f"{2:020}.{6:020}.compacted.json"):
        store.put(f"{log}/{name}", b"torn", False)
    # Nothing is left out: each of the few requests counts.
    crashes = Crashes.of(store, lambda: table(store).repair(dry_run=False, recover_to=3), stride=1)
    lost = {
        path: body for path, (body, _) in crashes.before.items() if "/_delta_log/" in path and path not in store.files
    }
    assert len(lost) >= 7
    ends = set()
    for at in crashes:
        kept = {path.rpartition("/")[2]: body for path, (body, _) in store.files.items() if "/_unreadable/" in path}
        for path, body in lost.items():
            # Every file is where it was, or has been copied.
            assert path in store.files or kept[path.rpartition("/")[2] + ".unreadable"] == body, (at, path)
        if any(path in store.files for path in lost if path.endswith(".json") and "compacted" not in path):
            with pytest.raises(deltic.CorruptTableError):
                table(store).scan().to_arrow()
            ends.add("damaged")
        else:
            assert not any(path in store.files for path in lost), at
            assert rows(table(store)) == [(0,), (1,), (2,), (3,)], at
            ends.add("recovered")
        table(store).repair(dry_run=False, recover_to=3)
        for value in range(4, 8):
            deltic.write(table(store), pa.table({"id": [value * 10]}))
        assert rows(table(store)) == [(0,), (1,), (2,), (3,), (40,), (50,), (60,), (70,)], at
        assert is_whole(table(store)), at
    assert ends == {"damaged", "recovered"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_manifests_are_old_or_new_and_can_be_written_again(store: ObjectStore) -> None:
    store.go_away(None)
    store.files.clear()
    deltic.write(table(store), pa.table({"id": range(9), "p": [n % 3 for n in range(9)]}), partition_by=["p"])
    table(store).write_manifests()

    def manifests() -> dict[str, bytes]:
        return {path: content for path, (content, _) in store.files.items() if "/_symlink_format_manifest/" in path}

    old = manifests()
    table(store).delete("p = 0")
    deltic.write(table(store), pa.table({"id": [10, 11], "p": [1, 3]}))
    crashes = Crashes.of(store, lambda: table(store).write_manifests())
    new = manifests()
    assert old.keys() - new.keys()
    assert new.keys() - old.keys()
    for at in crashes:
        for path, content in manifests().items():
            assert content in (old.get(path), new.get(path)), (at, path)
        table(store).write_manifests()
        assert manifests() == new, at


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "shallow"), [("replace", True), ("update", False)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_clone_is_renewed_or_not_and_can_be_repeated(store: ObjectStore, mode: Any, shallow: bool) -> None:
    store.go_away(None)
    store.files.clear()
    fill(store)
    table(store).clone(table(store, "clone"), shallow=shallow)
    deltic.write(table(store, "clone"), pa.table({"id": [99], "p": [1]}))
    before = rows(table(store, "clone"))
    table(store).delete("id > 30 OR id = 5")
    deltic.write(table(store), pa.table({"id": [50], "p": [0]}))
    source = rows(table(store))

    def clone() -> deltic.Commit:
        return table(store).clone(table(store, "clone"), shallow=shallow, mode=mode)

    for at in Crashes.of(store, clone):
        found = rows(table(store, "clone"))
        assert found in (before, source), at
        done = clone()
        assert (done.attempts == 0) == (mode == "update" and found == source), at
        assert rows(table(store, "clone")) == source == rows(table(store)), at
        assert is_whole(table(store, "clone")), at


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
