"""Paths of files in unusual partitions, also as older writers spelled them in the log."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from log_files import Log

import deltic

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.mark.parametrize("spelled", ["p=%C3%A9", "p=é", "p=%25C3%25A9"])
def test_every_spelling_of_a_path_is_read(tmp_path: Path, spelled: str) -> None:
    uri = tmp_path / "table"
    deltic.write(str(uri), pa.table({"p": ["é"], "id": [1]}), partition_by=["p"])
    (folder,) = (path for path in uri.iterdir() if path.name != "_delta_log")
    assert folder.name == "p=%C3%A9"
    if spelled != "p=%25C3%25A9":
        folder.rename(uri / "p=é")
    log = Log(str(uri))
    lines = log.read(0)
    for line in lines:
        if "add" in line:
            written, name = line["add"]["path"].split("/")
            assert written == "p=%25C3%25A9"
            line["add"]["path"] = f"{spelled}/{name}"
    log.commit(0, lines, ascii=False)
    table = deltic.Table(str(uri))
    assert table.check(files=True).ok
    assert table.scan().to_arrow().to_pylist() == [{"p": "é", "id": 1}]
    deltic.write(table, pa.table({"p": ["é"], "id": [2]}))
    assert sorted(deltic.Table(str(uri)).scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert table.check(files=True).ok


def test_a_transaction_removes_a_file_of_which_it_has_deleted_rows(uri: str) -> None:
    rows = pa.table({"p": ["b é", "b é", "50%", "50%"], "id": [1, 2, 3, 4]})
    deltic.write(uri, rows, partition_by=["p"], properties=VECTORS)
    with deltic.Table(uri).transaction() as tx:
        tx.delete("id IN (1, 3)")
        tx.delete("id IN (2, 3)")
    assert deltic.Table(uri).scan().to_arrow()["id"].to_pylist() == [4]
    lines = Log(uri).read(1)
    partitions = {
        kind: sorted(line[kind]["partitionValues"]["p"] for line in lines if kind in line) for kind in ("add", "remove")
    }
    assert partitions == {"add": ["50%"], "remove": ["50%", "b é"]}


@pytest.mark.parametrize("condition", ["id = 1", "id > 0"])
def test_a_change_takes_the_row_ids_of_a_concurrent_backfill(uri: str, condition: str) -> None:
    """A file loses a row, or all of them, while another writer gives it row ids."""
    deltic.write(uri, pa.table({"p": ["b é", "b é"], "id": [1, 2]}), partition_by=["p"], properties=VECTORS)
    table, log = deltic.Table(uri), Log(uri)
    table.set_properties({"delta.feature.rowTracking": "supported"})
    (added,) = [line["add"] for line in log.read(0) if "add" in line]
    with table.transaction() as tx:
        tx.delete(condition)
        backfilled = {**added, "dataChange": False, "baseRowId": 0, "defaultRowCommitVersion": 2}
        watermark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":1}', "removed": False}
        operation = {"timestamp": 1, "operation": "ROW TRACKING BACKFILL"}
        log.commit(2, [{"commitInfo": operation}, {"domainMetadata": watermark}, {"add": backfilled}])
    files = [line.get("add") or line.get("remove") for line in log.read(3)]
    ids = [(file["baseRowId"], file["defaultRowCommitVersion"]) for file in files if file]
    assert ids == [(0, 2)] * (2 if condition == "id = 1" else 1)


def test_random_prefixes_are_followed_by_every_write(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    properties = {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "4"}
    rows = pa.table({"p": [1, 2], "x": [1, 2]})
    deltic.write(uri, rows, partition_by=["p"], properties=properties)
    deltic.write(uri, rows)
    deltic.write(deltic.Table(uri), rows)
    with deltic.Table(uri).transaction() as tx:
        tx.append(rows)
    paths = deltic.Table(uri).files().read_all()["path"].to_pylist()
    assert len(paths) == 8
    assert {len(path.split("/")[0]) for path in paths} == {4}
    with pytest.raises(deltic.InvalidInputError, match=r"delta.randomPrefixLength.*1 to 255"):
        deltic.create(str(tmp_path / "other"), rows.schema, properties={"delta.randomPrefixLength": "256"})


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_random_prefixes_are_followed_by_every_change(tmp_path: Path, vectors: str) -> None:
    properties = {
        "delta.randomizeFilePrefixes": "true",
        "delta.randomPrefixLength": "4",
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": vectors,
    }
    table = deltic.Table(tmp_path / "table")
    rows = pa.table({"p": [1, 1, 2, 2], "x": [1, 2, 3, 4]})
    deltic.write(table, rows, partition_by=["p"], properties=properties)
    table.update({"x": "x + 10"}, "x = 1")
    table.delete("x = 2")
    merge = table.merge(pa.table({"p": [2, 3], "x": [3, 9]}), "source.x = target.x")
    merge.when_matched_update({"x": "source.x + 20"}).when_not_matched_insert_all().execute()
    deltic.write(table, pa.table({"p": [1], "x": [5]}))
    table.optimize()
    table.delete("x = 4")
    table.purge()
    added, changed = set(), set()
    for path in sorted(Path(table.uri, "_delta_log").glob("*.json")):
        for line in map(json.loads, path.read_text().splitlines()):
            added |= {line["add"]["path"]} if "add" in line else set()
            changed |= {line["cdc"]["path"]} if "cdc" in line else set()
    assert len(added) > 6
    assert changed
    assert {path.count("/") for path in added} == {1}
    assert {len(path.split("/")[0]) for path in added} == {4}
    assert {path.split("/")[0] for path in changed} == {"_change_data"}
    assert not any("p=" in path for path in added | changed), "random prefixes replace the folders of partitions"
    assert sorted(table.scan().to_arrow()["x"].to_pylist()) == [5, 9, 11, 23]
    assert table.check(files=True).ok
