"""VACUUM of a bucket keeps data and change files, however the log spells their paths.

On a disk a file is also kept if another one of its name is needed. In a bucket the whole path decides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pytest
from object_store import ObjectStore, object_store

import deltic

ROOT = "bucket/table/"
MONTH = 30 * 24 * 60 * 60


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        store.now = time.time() - 3600
        yield store


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as written": lambda path: path,
    "absolute": lambda path: f"s3://{ROOT}{path}",
    # A path is decoded once: `%` of the name of a directory is `%25` already.
    "letters encoded": lambda path: path.replace("p", "%70").replace(".", "%2e"),
    "absolute and encoded": lambda path: f"s3://{ROOT}" + path.replace("part-", "%70art-"),
}


def respell(store: ObjectStore, spell: Callable[[str], str]) -> None:
    """Spell the paths of all commits anew, and delete other files of the log."""
    for name in [name for name in store.files if name.startswith(f"{ROOT}_delta_log/")]:
        body, modified = store.files[name]
        if not name.endswith(".json"):
            del store.files[name]
            continue
        actions = [json.loads(line) for line in body.splitlines()]
        for action in actions:
            for kind in ("add", "remove", "cdc"):
                if kind in action:
                    action[kind]["path"] = spell(action[kind]["path"])
        store.files[name] = "".join(json.dumps(action) + "\n" for action in actions).encode(), modified


def data_files(store: ObjectStore) -> set[str]:
    return {name for name in store.files if name.startswith(ROOT) and "/_delta_log/" not in name}


def rows(table: deltic.Table, version: int) -> list[dict[str, Any]]:
    return table.snapshot(version).scan().to_arrow().sort_by("id").to_pylist()


def feed(table: deltic.Table) -> list[str]:
    changes = table.changes(start=0).to_arrow()
    return sorted(str({"id": row["id"], "_change_type": row["_change_type"]}) for row in changes.to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("mode", ["full", "lite"])
def test_files_are_kept_in_any_spelling(store: ObjectStore, spelling: str, mode: Literal["full", "lite"]) -> None:
    table = deltic.Table("s3://bucket/table", store.options)
    data = pa.table({"id": range(6), "p": ["é 50%", "b#"] * 3})
    deltic.write(table, data, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"})
    table.update({"id": "id + 10"}, "id < 2")
    expected = [rows(table, version) for version in (0, 1)]
    changes = feed(table)
    live = {ROOT + path for path in map(unquote, pa.table(table.files())["path"].to_pylist())}
    respell(store, SPELLINGS[spelling])
    store.put(f"{ROOT}p=b/left.parquet", b"left", False)
    kept = data_files(store)
    assert any("/_change_data/" in name for name in kept)
    assert live < kept
    for name in kept:
        # Only the log is young: its versions are within the retention.
        body, modified = store.files[name]
        store.files[name] = (body, modified - MONTH)
    table = deltic.Table("s3://bucket/table", store.options)
    assert table.vacuum(mode=mode).files_deleted == (1 if mode == "full" else 0)
    assert data_files(store) >= kept - {f"{ROOT}p=b/left.parquet"}
    assert [rows(table, version) for version in (0, 1)] == expected
    assert feed(table) == changes
    table.vacuum(0, mode=mode, force=True)
    assert {name for name in data_files(store) if not name.endswith("/left.parquet")} == live
    assert rows(table, 1) == expected[1]
