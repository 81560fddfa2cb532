"""An operation that fails has ended: nothing is written or deleted after its error."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import deltic

LARGE = 64 * 1024 * 1024
"""Bytes of a file whose copy takes some time."""


def files(folder: str | Path) -> dict[str, tuple[int, int]]:
    """All files below a folder, with their sizes and times."""
    found = {}
    for path in Path(folder).rglob("*"):
        if path.is_file():
            status = path.stat()
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns)
    return found


def check_ended(folder: str | Path, run: Callable[[], object], error: type[Exception]) -> dict[str, tuple[int, int]]:
    """Run what fails, and return the files that are there at its error. None of them changes later."""
    with pytest.raises(error):
        run()
    ended = files(folder)
    assert not [path for path in ended if ".tmp-" in path], "a file is being written"
    time.sleep(0.5)
    assert files(folder) == ended
    return ended


def named_log(folder: Path, adds: list[tuple[str, str, int]]) -> None:
    """A table of files of zeros, of which the log has partition, name and size."""
    schema = {"type": "struct", "fields": [field("id", "long"), field("p", "string")]}
    metadata = {
        "id": "6f1d7ab4-0b2c-4f3f-9f5e-1f8f5d4b7c11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["p"],
        "configuration": {},
    }
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    for value, name, size in adds:
        path = folder / f"p={value}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
        add = {"path": f"p={value}/{name}", "partitionValues": {"p": value}, "size": size}
        actions.append({"add": {**add, "modificationTime": 0, "dataChange": True}})
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def field(name: str, of: str) -> dict[str, object]:
    return {"name": name, "type": of, "nullable": True, "metadata": {}}


def test_a_clone_that_fails_copies_nothing_afterwards(tmp_path: Path) -> None:
    origin, target = tmp_path / "origin", tmp_path / "target"
    origin.mkdir()
    large = [f"part-{number:05}-6f1d7ab4-0b2c-4f3f-9f5e-1f8f5d4b7c1{number}-c000.parquet" for number in range(4)]
    named_log(origin, [*(("a", name, LARGE) for name in large), ("b", large[0], 10)])
    # The copy of the last file cannot be written, since its folder is a file.
    target.mkdir()
    (target / "p=b").write_bytes(b"")
    table = deltic.Table(origin)
    left = check_ended(target, lambda: table.clone(target, shallow=False), deltic.StorageError)
    # Copies that are whole stay.
    assert set(left) <= {"p=b", *(f"p=a/{name}" for name in large)}
    assert {left[path][0] for path in left if path != "p=b"} <= {LARGE}
    (target / "p=b").unlink()
    table.clone(target, shallow=False)
    assert {path: size for path, (size, _) in files(target).items() if path.endswith(".parquet")} == {
        path: size for path, (size, _) in files(origin).items() if path.endswith(".parquet")
    }


def partitioned(uri: Path, partitions: int, rows: int) -> deltic.Table:
    """Two files in each partition; one of the last partition is gone."""
    texts = random.Random(7)
    for first in range(2):
        ids = [first * rows + id for id in range(rows)] * partitions
        values = [value for value in range(partitions) for _ in range(rows)]
        made = pa.table({"id": ids, "p": values, "t": [texts.randbytes(40).hex() for _ in ids]})
        deltic.write(uri, made, partition_by=["p"])
    next(iter((uri / f"p={partitions - 1}").glob("*.parquet"))).unlink()
    return deltic.Table(uri)


REWRITES: dict[str, Callable[[deltic.Table], object]] = {
    "compaction": lambda table: table.optimize(),
    "z-order": lambda table: table.optimize(zorder_by=["id"]),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_that_fails_has_deleted_its_files(tmp_path: Path, name: str) -> None:
    uri = tmp_path / "table"
    table = partitioned(uri, 60, 300)
    before = files(uri)
    for _ in range(3):
        assert check_ended(uri, lambda: REWRITES[name](table), deltic.DelticError) == before


def test_an_update_that_fails_has_deleted_its_files(tmp_path: Path) -> None:
    """Files of this size get copies of the columns that do not change."""
    uri = tmp_path / "table"
    table = partitioned(uri, 12, 3000)
    before = files(uri)
    assert all(size > 64 * 1024 for path, (size, _) in before.items() if path.endswith(".parquet"))
    for _ in range(3):
        ended = check_ended(uri, lambda: table.update({"id": "id + 1"}, "id >= 0"), deltic.DelticError)
        assert ended == before


def test_manifests_that_fail_are_not_written_afterwards(tmp_path: Path) -> None:
    uri = tmp_path / "table"
    deltic.write(uri, pa.table({"p": range(300), "id": range(300)}), partition_by=["p"])
    manifests = uri / "_symlink_format_manifest"
    manifests.mkdir()
    (manifests / "p=150").write_bytes(b"")
    table = deltic.Table(uri)
    check_ended(uri, table.write_manifests, deltic.StorageError)
    (manifests / "p=150").unlink()
    assert len(table.write_manifests().written) == 300
