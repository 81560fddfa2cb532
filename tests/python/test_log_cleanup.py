"""Log cleanup concurrent with checkpoints of other writers: no sidecar of a remaining checkpoint is deleted."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import ObjectStore, object_store

import deltic

LOG = "bucket/t/_delta_log/"
SIDECARS = f"{LOG}_sidecars/"
LONG = 60


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    """A store whose clock is years behind, with a table that has a checkpoint of version 1."""
    with object_store() as store:
        properties = {"delta.checkpointPolicy": "v2", "delta.enableExpiredLogCleanup": "false"}
        deltic.write(table(store), pa.table({"id": [1, 2]}), properties=properties)
        deltic.write(table(store), pa.table({"id": [3]}))
        assert table(store).checkpoint() == 1
        yield store


def table(store: ObjectStore) -> deltic.Table:
    return deltic.Table("s3://bucket/t", store.options)


def checkpoints(store: ObjectStore) -> list[str]:
    return [path for path in store.files if path.startswith(LOG) and ".checkpoint." in path]


def sidecars(store: ObjectStore) -> set[str]:
    return {path for path in store.files if path.startswith(SIDECARS)}


def named(store: ObjectStore) -> set[str]:
    """The sidecars of existing checkpoints."""
    found: set[str] = set()
    for path in checkpoints(store):
        rows = pq.read_table(io.BytesIO(store.files[path][0])).column("sidecar").to_pylist()
        found |= {SIDECARS + row["path"] for row in rows if row is not None and row["path"] is not None}
    return found


def expire_log(store: ObjectStore) -> None:
    """Make commits and checkpoints years old, but not sidecars."""
    for path, (content, _) in list(store.files.items()):
        if path.startswith(LOG) and not path.startswith(SIDECARS):
            store.files[path] = (content, 1_700_000_000.0)


def rewrite_all(store: ObjectStore) -> None:
    """Overwrite the table, and write a checkpoint that shares no sidecar with the first."""
    version = deltic.write(table(store), pa.table({"id": [7, 8, 9]}), mode="overwrite").version
    assert table(store).checkpoint() == version


@pytest.mark.slow
def test_a_concurrent_checkpoint_of_deltic_keeps_its_sidecars(store: ObjectStore) -> None:
    """The checkpoint is put after cleanup has started and before cleanup deletes sidecars."""
    deltic.write(table(store), pa.table({"id": [4]}))
    store.now = time.time()
    about_to_delete, written, cleaned = threading.Event(), threading.Event(), threading.Event()
    began = threading.Lock()

    def clean() -> None:
        table(store).clean_log()
        cleaned.set()
        about_to_delete.set()

    def before(method: str, path: str) -> None:
        if method == "PUT" and ".checkpoint." in path and began.acquire(blocking=False):
            rewrite_all(store)
            expire_log(store)
            threading.Thread(target=clean).start()
            assert about_to_delete.wait(LONG)
        if began.locked() and method == "DELETE" and path.startswith(SIDECARS):
            about_to_delete.set()
            assert written.wait(LONG)

    store.before = before
    assert table(store).checkpoint() == 2
    written.set()
    assert cleaned.wait(LONG)
    store.before = None
    assert sorted(path[len(LOG) :][:20] for path in checkpoints(store)) == [f"{2:020}", f"{3:020}"]
    assert named(store) <= sidecars(store)
    assert sorted(table(store).snapshot(2).scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]
    assert sorted(table(store).scan().to_arrow().column("id").to_pylist()) == [7, 8, 9]


@pytest.mark.slow
@pytest.mark.parametrize("moment", [["_delta_log", "_sidecars"], ["_sidecars", "_delta_log"]], ids=" then ".join)
def test_a_concurrent_checkpoint_of_other_writers_keeps_its_sidecars(store: ObjectStore, moment: list[str]) -> None:
    (first,) = checkpoints(store)
    content, old = store.files[first][0], sidecars(store)
    rewrite_all(store)
    late = f"{LOG}{1:020}.checkpoint.00000000-0000-0000-0000-000000000001.parquet"
    listed: list[str] = []

    def after_listing(prefix: str) -> None:
        listed.append(prefix.rstrip("/").rpartition("/")[2])
        if listed[-2:] == moment:
            store.put(late, content, only_new=True)

    store.after_listing = after_listing
    table(store).clean_log()
    assert late in store.files
    assert old <= named(store) <= sidecars(store)
    assert sorted(table(store).snapshot(1).scan().to_arrow().column("id").to_pylist()) == [1, 2, 3]
