"""CLONE from Python: the clone equals the table, has its files in the right folder, and changes independently."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import shutil
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed_rows import FEED, IDS, MAPPED, PROPERTIES, SCHEMA, TIMES, VECTORS, Changed, ids, key, label, same
from log_files import Log, add, field, metadata, protocol, struct
from object_store import object_store

import deltic
from deltic.cli import main


def adds(table: deltic.Table, version: int) -> list[dict[str, Any]]:
    return Log(table.uri).of(version, "add")


def files(uri: str) -> dict[str, int]:
    """All files below the table except the log, with modification times."""
    found = {}
    for path in Path(uri).rglob("*"):
        # A copy in the background may be renamed after the listing.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and "_delta_log" not in path.parts:
                found[path.relative_to(uri).as_posix()] = path.stat().st_mtime_ns
    return found


@pytest.fixture
def table(tmp_path: Path) -> deltic.Table:
    """A table with two versions, special characters in names and a deletion vector."""
    uri = str(tmp_path / "a source %20ü[1]")
    rows = pa.table({"id": range(6), "p": ["a b", "50%", "x/y"] * 2})
    deltic.write(uri, rows, partition_by=["p"], properties=VECTORS, name="mine", description="of mine")
    table = deltic.Table(uri)
    table.delete("id = 3")
    return table


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "target")


def everything(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [True, False])
@pytest.mark.parametrize("mode", ["error", "replace", "update"])
def test_a_dry_run_has_the_numbers_of_the_clone(table: deltic.Table, target: str, shallow: bool, mode: Any) -> None:
    if mode != "error":
        table.clone(target, shallow=shallow)
        deltic.write(target, pa.table({"id": [99], "p": ["a b"]}))
        deltic.write(table, pa.table({"id": [50], "p": ["50%"]}))
    before = everything(target)
    planned = table.clone(target, shallow=shallow, mode=mode, dry_run=True)
    assert everything(target) == before
    done = table.clone(target, shallow=shallow, mode=mode)
    assert (planned.attempts, done.attempts) == (0, 1)
    assert (planned.version, planned.num_added_files, planned.metrics) == (
        done.version,
        done.num_added_files,
        done.metrics,
    )
    if mode == "update":
        planned = table.clone(target, shallow=shallow, mode=mode, dry_run=True)
        assert (planned.version, planned.num_added_files, planned.metrics) == (done.version, 0, {})


def test_a_dry_run_is_refused_as_the_clone_is(table: deltic.Table, target: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match="above or below"):
        table.clone(table.uri + "/below", dry_run=True)
    for path in Path(table.uri).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.unlink()
    with pytest.raises(deltic.CorruptTableError, match="names a file that is gone"):
        table.clone(target, shallow=False, dry_run=True)
    assert not Path(target).exists()
    deltic.create(target, pa.schema([("id", pa.int64())]))
    with pytest.raises(deltic.TableExistsError):
        table.clone(target, dry_run=True)


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [True, False])
def test_the_clone_equals_the_table(table: deltic.Table, target: str, shallow: bool) -> None:
    commit = table.clone(target, shallow=shallow, user_metadata="copy")
    clone = deltic.Table(target)
    size = sum(batch["size"][i].as_py() for batch in table.files() for i in range(len(batch)))
    (vector,) = Path(table.uri).glob("deletion_vector_*.bin")
    copied = {"numCopiedFiles": 0, "copiedFilesSize": 0}
    if not shallow:
        copied = {"numCopiedFiles": 4, "copiedFilesSize": size + vector.stat().st_size}
    counts = {"sourceTableSize": size, "sourceNumOfFiles": 3, "numRemovedFiles": 0, "removedFilesSize": 0, **copied}
    assert commit == deltic.Commit(0, 1, 3, counts)
    assert ids(clone) == [0, 1, 2, 4, 5]
    entry = clone.history()[0]
    assert (entry["operation"], entry["userMetadata"], entry["isBlindAppend"]) == ("CLONE", "copy", False)
    parameters = entry["operationParameters"]
    assert (parameters["sourceVersion"], parameters["isShallow"]) == (1, shallow)
    assert parameters["source"].startswith("delta.`file:/")
    mine, theirs = clone.snapshot().metadata, table.snapshot().metadata
    assert mine["id"] != theirs["id"]
    assert (mine.get("name"), mine.get("description")) == (None, None)
    assert {k: v for k, v in mine.items() if k != "id"} == {
        k: v for k, v in theirs.items() if k not in ("id", "name", "description")
    }
    assert clone.snapshot().protocol == table.snapshot().protocol
    assert clone.check(files=True).ok
    assert all(a["dataChange"] for a in adds(clone, 0))
    for a in adds(clone, 0):
        assert a["path"].startswith("file:/") == shallow
        if vector := a.get("deletionVector"):
            assert vector["storageType"] == ("p" if shallow else "u")
            assert vector["pathOrInlineDv"].startswith("file:/") == shallow
    assert files(target).keys() == (set() if shallow else files(table.uri).keys())


def test_absolute_paths_are_uris_that_java_takes(table: deltic.Table, target: str) -> None:
    table.clone(target)
    for a in adds(deltic.Table(target), 0):
        assert "/a%20source%20%2520%C3%BC%5B1%5D/" in a["path"]
        assert not set(a["path"]) & set(' []"<>\\^`{|}')


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [True, False])
def test_clone_and_source_are_independent(table: deltic.Table, target: str, shallow: bool) -> None:
    table.clone(target, shallow=shallow)
    clone = deltic.Table(target)
    before = files(table.uri)
    clone.delete("id IN (0, 4)")
    deltic.write(clone, pa.table({"id": [9], "p": ["new"]}))
    assert clone.optimize().metrics["numRemovedFiles"] > 0
    assert (ids(clone), ids(table)) == ([1, 2, 5, 9], [0, 1, 2, 4, 5])
    deltic.write(table, pa.table({"id": [7], "p": ["a b"]}))
    assert ids(clone) == [1, 2, 5, 9]
    assert before.keys() < files(table.uri).keys()
    # A vacuum of the clone does not delete files of the source.
    for path in [*Path(target).rglob("*.parquet"), *Path(table.uri).rglob("*.parquet"), *Path(table.uri).glob("*.bin")]:
        os.utime(path, (time.time() - 10**7,) * 2)
    clone.vacuum(0, force=True)
    assert before.keys() < files(table.uri).keys()
    assert (ids(clone), ids(table)) == ([1, 2, 5, 9], [0, 1, 2, 4, 5, 7])
    if shallow:
        clone.restore(0)
        assert ids(clone) == [0, 1, 2, 4, 5]


def test_older_versions(table: deltic.Table, target: str) -> None:
    table.clone(target, version=0, shallow=False)
    assert ids(deltic.Table(target)) == [0, 1, 2, 3, 4, 5]
    table.clone(target + "2", timestamp="2999-01-01")
    assert ids(deltic.Table(target + "2")) == [0, 1, 2, 4, 5]
    with pytest.raises(deltic.VersionNotFoundError):
        table.clone(target + "3", version=5)
    assert not deltic.Table(target + "3").exists()


def test_an_existing_target(table: deltic.Table, target: str) -> None:
    deltic.write(target, pa.table({"other": [1.5]}), name="theirs", properties={"delta.appendOnly": "false"})
    clone = deltic.Table(target)
    id_before = clone.snapshot().metadata["id"]
    with pytest.raises(deltic.TableExistsError):
        table.clone(target)
    commit = table.clone(clone, mode="replace")
    assert (commit.version, commit.metrics["numRemovedFiles"]) == (1, 1)
    assert ids(clone) == [0, 1, 2, 4, 5]
    assert clone.scan().to_arrow().schema == table.scan().to_arrow().schema
    assert clone.snapshot().metadata["id"] == id_before
    assert clone.snapshot().metadata["name"] == "theirs"
    assert clone.snapshot(0).scan().to_arrow().to_pylist() == [{"other": 1.5}]
    # Again: a commit without file actions.
    commit = table.clone(clone, mode="replace")
    assert (commit.version, commit.metrics["numRemovedFiles"], commit.num_added_files) == (2, 0, 0)
    assert clone.check(files=True).ok


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [True, False])
def test_updates_commit_only_what_changed(table: deltic.Table, target: str, shallow: bool) -> None:
    table.clone(target, shallow=shallow, mode="update")
    clone = deltic.Table(target)
    assert table.clone(clone, shallow=shallow, mode="update").attempts == 0
    assert clone.snapshot().version == 0
    before = files(target)
    deltic.write(table, pa.table({"id": [8], "p": ["a b"]}))
    table.delete("id = 1")
    commit = table.clone(clone, shallow=shallow, mode="update")
    assert (commit.version, commit.num_added_files, commit.metrics["numRemovedFiles"]) == (1, 2, 1)
    assert commit.metrics["numCopiedFiles"] == (0 if shallow else 2)
    assert ids(clone) == [0, 2, 4, 5, 8]
    assert before.items() <= files(target).items(), "existing files are not copied again"
    table.set_properties({"mine": "1"})
    assert table.clone(clone, shallow=shallow, mode="update").num_added_files == 0
    assert clone.snapshot().properties["mine"] == "1"
    # An update removes rows that were written to the clone.
    clone.delete("id = 0")
    assert table.clone(clone, shallow=shallow, mode="update").num_added_files == 1
    assert ids(clone) == [0, 2, 4, 5, 8]
    assert clone.check(files=True).ok


@pytest.mark.slow
def test_a_failed_deep_clone_can_be_continued(table: deltic.Table, target: str) -> None:
    paths = sorted(files(table.uri))
    lost = next(path for path in paths if path.endswith(".parquet"))
    away = Path(table.uri, lost).rename(Path(table.uri).parent / "away")
    with pytest.raises(deltic.CorruptTableError):
        table.clone(target, shallow=False)
    assert not deltic.Table(target).exists()
    # Copies that were running when another failed end in the background. Each is complete or absent.
    before, ends = None, time.monotonic() + 60
    while (found := files(target)) != before or any("/.tmp-" in f"/{path}" for path in found):
        assert time.monotonic() < ends, found
        before = found
        time.sleep(0.5)
    assert before is not None
    away.rename(Path(table.uri, lost))
    commit = table.clone(target, shallow=False)
    assert commit.metrics["numCopiedFiles"] == 4 - len(before)
    assert before.items() <= files(target).items()
    assert ids(deltic.Table(target)) == [0, 1, 2, 4, 5]


def test_an_empty_copy_is_made_again(table: deltic.Table, target: str) -> None:
    path = next(path for path in files(table.uri) if path.endswith(".parquet"))
    Path(target, path).parent.mkdir(parents=True)
    Path(target, path).touch()
    assert table.clone(target, shallow=False).metrics["numCopiedFiles"] == 4
    assert Path(target, path).read_bytes() == Path(table.uri, path).read_bytes()


def test_a_different_file_is_not_taken_for_the_copy(tmp_path: Path, target: str, table: deltic.Table) -> None:
    path = Path(target, next(path for path in files(table.uri) if path.endswith(".parquet")))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"shorter")
    with pytest.raises(deltic.InvalidInputError, match="there is a file of this name already, which may be different"):
        table.clone(target, shallow=False)
    # Another table may use the same file name: the log of the clone tells which file was copied.
    schema = struct(field("id", "long"))
    one, two = (Log.empty(tmp_path / name, protocol(), metadata(schema)) for name in ("one", "two"))
    for log, value in ((one, 1), (two, 2)):
        log.append([log.file("part-00000.parquet", pa.table({"id": [value]}), modificationTime=value)])
    one.table.clone(target + "2", shallow=False)
    assert one.table.clone(target + "2", shallow=False, mode="update").attempts == 0
    with pytest.raises(deltic.InvalidInputError, match="has another file of this name"):
        two.table.clone(target + "2", shallow=False, mode="replace")


@pytest.mark.parametrize("where", ["", "inside", ".."])
def test_no_clone_is_inside_of_a_table(table: deltic.Table, where: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match="its own folder"):
        table.clone(Path(table.uri) / where)


@pytest.mark.parametrize("link", ["target", "folder"])
def test_no_clone_is_inside_of_a_table_by_a_symbolic_link(table: deltic.Table, target: str, link: str) -> None:
    os.symlink(table.uri, target)
    with pytest.raises(deltic.InvalidInputError, match="its own folder"):
        table.clone(Path(target, "inside") if link == "folder" else target, shallow=False, mode="replace")
    assert not Path(table.uri, "inside").exists()
    inner = deltic.write(f"{table.uri}-2/inner", pa.table({"id": [1]}))
    assert inner.version == 0
    os.symlink(f"{table.uri}-2/inner", target + "2")
    with pytest.raises(deltic.InvalidInputError, match="its own folder"):
        deltic.Table(target + "2").clone(f"{table.uri}-2", shallow=False)


def test_no_clone_is_inside_of_a_table_by_an_encoded_name(table: deltic.Table) -> None:
    uri = "file://" + quote(table.uri) + "/x%2Ay"
    with pytest.raises(deltic.InvalidInputError, match="its own folder"):
        table.clone(uri, shallow=False)


@pytest.mark.slow
@pytest.mark.parametrize("link", [False, True])
def test_a_clone_back_keeps_relative_paths(table: deltic.Table, target: str, link: bool) -> None:
    """Files of the table keep their relative paths: no commit adds and removes the same file by two paths."""
    table.clone(target)
    clone = deltic.Table(target)
    deltic.write(clone, pa.table({"id": [9], "p": ["new"]}))
    table.delete("id = 5")
    back = table
    if link:
        os.symlink(table.uri, target + "-link")
        back = deltic.Table(target + "-link")
    commit = clone.clone(back, mode="replace")
    added, removed = adds(table, commit.version), Log(table.uri).of(commit.version, "remove")
    own = [a for a in added if not a["path"].startswith("file:")]
    assert (len(added), len(own), len(removed)) == (2, 1, 1)
    assert "deletionVector" not in own[0]
    assert removed[0]["path"] == own[0]["path"]
    assert removed[0]["deletionVector"]["storageType"] == "u"
    assert ids(table) == [0, 1, 2, 4, 5, 9]
    for path in [*Path(table.uri).rglob("*.parquet"), *Path(table.uri).glob("*.bin")]:
        os.utime(path, (time.time() - 10**7,) * 2)
    table.vacuum(0, force=True)
    assert table.check(files=True).ok
    assert ids(table) == [0, 1, 2, 4, 5, 9]
    assert clone.clone(back, mode="update").attempts == 0
    # A deep clone has copies, which vacuum keeps.
    clone.clone(back, shallow=False, mode="replace")
    table.vacuum(0, force=True)
    assert (ids(table), table.check(files=True).ok) == ([0, 1, 2, 4, 5, 9], True)


def test_a_clone_back_of_a_renamed_vector_file_is_refused(table: deltic.Table, target: str) -> None:
    table.clone(target)
    (vector,) = Path(table.uri).glob("deletion_vector_*.bin")
    vector.rename(vector.with_name("mine.bin"))
    log = Path(target, "_delta_log", f"{0:020}.json")
    log.write_text(log.read_text().replace(vector.name, "mine.bin"))
    for path in [*log.parent.glob("*.crc"), *log.parent.glob("*.checkpoint*")]:
        path.unlink()
    clone = deltic.Table(target)
    assert ids(clone) == [0, 1, 2, 4, 5]
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"`mine.bin` is not named as the protocol requires"):
        clone.clone(table, mode="replace")
    assert table.snapshot().version == 1


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [True, False])
def test_an_updated_clone_gets_the_row_ids_of_the_source(table: deltic.Table, target: str, shallow: bool) -> None:
    def rows(table: deltic.Table) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            table.scan(columns=["id", "_metadata.row_id"]).to_arrow().sort_by("id").to_pylist()
        )
        return found

    table.clone(target, shallow=shallow)
    clone = deltic.Table(target)
    table.enable_row_tracking()
    for mode in ("update", "replace"):
        commit = table.clone(clone, shallow=shallow, mode=mode)  # type: ignore[arg-type]
        assert commit.metrics["numCopiedFiles"] == commit.metrics["numRemovedFiles"] == 0
        assert rows(clone) == rows(table)
        assert None not in [row["_metadata.row_id"] for row in rows(clone)]
    assert not any(a["dataChange"] for a in adds(clone, 1)), "no rows are added"
    assert (len(adds(clone, 1)), len(adds(clone, 2))) == (3, 0)
    versions = clone.scan(columns=["_metadata.row_commit_version"]).to_arrow()
    assert set(versions["_metadata.row_commit_version"].to_pylist()) == {1}, "version 1 adds all files again"
    assert table.clone(clone, shallow=shallow, mode="update").attempts == 0
    assert clone.check(files=True).ok
    deltic.write(clone, pa.table({"id": [9], "p": ["new"]}))
    ids = [row["_metadata.row_id"] for row in rows(clone)]
    assert len(set(ids)) == len(ids) == 6
    assert clone.check(files=True).ok


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [True, False])
def test_a_clone_with_row_ids_of_its_own(table: deltic.Table, target: str, shallow: bool) -> None:
    def ids() -> dict[int, int]:
        rows = clone.scan(columns=["id", "_metadata.row_id"]).to_arrow()
        given = dict(zip(rows["id"].to_pylist(), rows["_metadata.row_id"].to_pylist(), strict=True))
        assert None not in given.values()
        assert len(set(given.values())) == len(given)
        return given

    clone = deltic.Table(target)
    table.clone(clone, shallow=shallow)
    for _ in range(2):
        table.clone(clone, shallow=shallow, mode="update", properties=IDS)
    assert clone.snapshot().version == 1
    before, named = ids(), clone.snapshot().metadata["configuration"]
    deltic.write(table, pa.table({"id": [8], "p": ["a b"]}))
    table.clone(clone, shallow=shallow, mode="update", properties=IDS)
    after = ids()
    assert after.keys() == before.keys() | {8}
    assert before.items() <= after.items()
    assert clone.snapshot().metadata["configuration"] == named
    # Once the source has row ids, the clone takes them.
    table.enable_row_tracking()
    table.clone(clone, shallow=shallow, mode="update", properties=IDS)
    rows = table.scan(columns=["id", "_metadata.row_id"]).to_arrow().sort_by("id")
    assert dict(zip(rows["id"].to_pylist(), rows["_metadata.row_id"].to_pylist(), strict=True)) == ids()
    assert clone.check(files=True).ok


def test_a_uuid_in_a_folder_name_does_not_identify_a_file(tmp_path: Path, target: str) -> None:
    path = f"d={uuid.uuid4()}/part-0.parquet"
    for name in ("one", "two"):
        Path(tmp_path, name, path).parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [{"one": 1, "two": 2}[name]]}), Path(tmp_path, name, path))
        deltic.convert(tmp_path / name, partition_schema={"d": "string"})
    # A file that an interrupted clone of the first table would leave.
    Path(target, path).parent.mkdir(parents=True)
    shutil.copy(tmp_path / "one" / path, Path(target, path))
    with pytest.raises(deltic.InvalidInputError, match="may be different"):
        deltic.Table(tmp_path / "two").clone(target, shallow=False)
    assert not deltic.Table(target).exists()


PATHS = [
    "_delta_log/x.json",
    "./_delta_log/x.json",
    "a/../_delta_log/x.json",
    "%5Fdelta_log/x.json",
    "_delta_log%2Fx.json",
    "_delta_log//x.json",
    "_DELTA_LOG/x.json",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_copy_is_written_into_a_log(tmp_path: Path, target: str, path: str) -> None:
    log = Log.empty(tmp_path / "t", protocol(), metadata(struct(field("id", "long"))))
    source = log.folder / "x.json"
    source.write_text(json.dumps({"txn": {"appId": "theirs", "version": 1}}) + "\n")
    log.append([add(path, source.stat().st_size)])
    with pytest.raises(deltic.CorruptTableError, match="would lie in the log of the clone"):
        log.table.clone(target, shallow=False)
    assert not Path(target).exists()


def test_no_copy_of_a_vector_is_written_into_a_log(table: deltic.Table, target: str) -> None:
    (vector,) = Path(table.uri).glob("deletion_vector_*.bin")
    vector.rename(Path(table.uri, "_delta_log", vector.name))
    log = Log(table.uri)

    def into_the_log(add: dict[str, Any]) -> None:
        place = add["deletionVector"]
        place["pathOrInlineDv"] = "_delta_log" + place["pathOrInlineDv"]

    log.edit(1, "add", into_the_log)
    for path in [*log.folder.glob("*.crc"), *log.folder.glob("*.checkpoint*")]:
        path.unlink()
    with pytest.raises(deltic.CorruptTableError, match="would lie in the log of the clone"):
        deltic.Table(table.uri).clone(target, shallow=False)
    assert not Path(target).exists()


@pytest.mark.parametrize("change", [-20, 20])
def test_a_file_of_another_size_is_not_copied(tmp_path: Path, target: str, change: int) -> None:
    log = Log.empty(tmp_path / "t", protocol(), metadata(struct(field("id", "long"))))
    action = log.file("part-0.parquet", pa.table({"id": [1]}))
    size = action["add"]["size"]
    action["add"]["size"] += change
    log.append([action])
    message = rf"the file has {size + change} bytes, and it has {size} .*part-0\.parquet"
    with pytest.raises(deltic.CorruptTableError, match=message):
        log.table.clone(target, shallow=False)
    assert not deltic.Table(target).exists()
    assert files(target) == {}


@pytest.mark.slow
def test_a_version_whose_files_are_gone_is_not_cloned(tmp_path: Path, target: str) -> None:
    table = deltic.Table(tmp_path / "t")
    deltic.write(table, pa.table({"id": [1, 2]}), properties=VECTORS)
    time.sleep(0.01)
    table.delete("id = 1")
    for _ in range(12):
        deltic.write(table, pa.table({"id": [3]}))
    before = table.snapshot()
    (vector,) = Path(table.uri).glob("*.bin")
    deltic.write(table, pa.table({"id": [4]}), mode="overwrite")
    table.vacuum(0, force=True)
    assert not vector.exists()
    with pytest.raises(deltic.InvalidInputError, match=r"14 of its files do not exist any more, .* and 4 others"):
        table.clone(target, version=before.version)
    with pytest.raises(deltic.InvalidInputError, match="1 of its files do not exist any more"):
        table.clone(target, version=0)
    assert not deltic.Table(target).exists()
    table.clone(target, version=table.snapshot().version)
    assert ids(deltic.Table(target)) == [4]


@pytest.mark.slow
def test_a_clone_of_a_clone(table: deltic.Table, target: str) -> None:
    table.clone(target)
    middle = deltic.Table(target)
    middle.delete("id = 0")
    deltic.write(middle, pa.table({"id": [7], "p": ["a b"]}))
    middle.clone(target + "2")
    middle.clone(target + "3", shallow=False)
    for uri in (target + "2", target + "3"):
        assert ids(deltic.Table(uri)) == [1, 2, 4, 5, 7]
        assert deltic.Table(uri).check(files=True).ok
    assert not any(a["path"].startswith("file:") for a in adds(deltic.Table(target + "3"), 0))
    # All files are in its own folder.
    for path in Path(table.uri).rglob("*.*"):
        if "_delta_log" not in path.parts and path.is_file():
            path.unlink()
    assert ids(deltic.Table(target + "3")) == [1, 2, 4, 5, 7]
    assert middle.clone(target + "3", shallow=False, mode="update").attempts == 0


def test_properties(table: deltic.Table, target: str) -> None:
    table.clone(target, properties={"delta.enableChangeDataFeed": "true", "mine": "1"})
    clone = deltic.Table(target)
    assert clone.snapshot().properties == {**VECTORS, **FEED, "mine": "1"}
    clone.delete("id = 2")
    assert clone.changes(1).to_arrow()["id"].to_pylist() == [2]
    with pytest.raises(deltic.InvalidInputError):
        table.clone(target + "2", properties={"delta.enableChangeDataFeed": "perhaps"})
    assert table.clone(clone, mode="update", properties={**FEED, "mine": "1"}).version == 2


def test_a_clone_enables_in_commit_timestamps_from_its_first_version(tmp_path: Path, target: str) -> None:
    deltic.write(tmp_path / "t", pa.table({"id": [1]}))
    table = deltic.Table(tmp_path / "t")
    table.set_properties(TIMES)
    table.clone(target)
    clone = deltic.Table(target)
    assert clone.snapshot().properties == TIMES
    assert "inCommitTimestamp" in Log(clone.uri).of(0, "commitInfo")[0]
    deltic.write(target + "2", pa.table({"id": [1]}))
    table.clone(target + "2", mode="replace")
    assert deltic.Table(target + "2").snapshot().properties["delta.inCommitTimestampEnablementVersion"] == "1"
    assert deltic.Table(target + "2").check().ok


def test_a_target_with_another_mapping_mode_is_refused(tmp_path: Path, target: str) -> None:
    deltic.write(tmp_path / "t", pa.table({"id": [1]}), properties=MAPPED)
    deltic.write(target, pa.table({"id": [1]}))
    with pytest.raises(deltic.InvalidInputError, match=r"mapped by `name` .* and by `none`"):
        deltic.Table(tmp_path / "t").clone(target, mode="replace")


def test_a_clone_has_clustering_columns_but_no_application_transactions(tmp_path: Path, target: str) -> None:
    schema = pa.schema([("id", pa.int64())])
    deltic.create(tmp_path / "t", schema, cluster_by=["id"])
    deltic.write(tmp_path / "t", pa.table({"id": [1]}), app_id="stream", app_version=3)
    deltic.Table(tmp_path / "t").clone(target)
    clone = deltic.Table(target)
    assert clone.detail().clustering_columns == ["id"]
    assert clone.snapshot().transaction_version("stream") is None
    plain = str(tmp_path / "plain")
    deltic.write(plain, pa.table({"id": [1]}))
    deltic.Table(plain).clone(target, mode="replace")
    assert clone.detail().clustering_columns == []


def test_an_append_only_table_is_not_replaced(table: deltic.Table, target: str) -> None:
    deltic.write(target, pa.table({"id": [1]}), properties={"delta.appendOnly": "true"})
    with pytest.raises(deltic.InvalidInputError, match="append-only"):
        table.clone(target, mode="replace")


def test_arguments(table: deltic.Table, target: str) -> None:
    for arguments, message in (
        ({"mode": "overwrite"}, "mode must be"),
        ({"shallow": 1}, "shallow must be"),
        ({"version": 0, "timestamp": "2020-01-01"}, "not both"),
        ({"properties": {"a": 1}}, "property 'a' must be a string"),
    ):
        with pytest.raises(deltic.InvalidInputError, match=message):
            table.clone(target, **arguments)  # type: ignore[arg-type]
    with pytest.raises(deltic.InvalidInputError, match="leave them out"):
        table.clone(deltic.Table(target), storage_options={})
    with pytest.raises(deltic.TableNotFoundError):
        deltic.Table(target).clone(target + "2")


def test_a_shallow_clone_in_another_store_needs_foreign_paths(table: deltic.Table, target: str) -> None:
    memory = deltic.Table(f"memory://{Path(target).parent.name}/t")
    with pytest.raises(deltic.UnsupportedFeatureError, match="allow_foreign_paths"):
        table.clone(memory)
    assert table.clone(memory, shallow=False).metrics["numCopiedFiles"] == 4
    assert ids(memory) == [0, 1, 2, 4, 5]
    with pytest.raises(deltic.UnsupportedFeatureError, match="allow_foreign_paths"):
        memory.clone(target)
    memory.clone(target, storage_options={"allow_foreign_paths": "true"})
    clone = deltic.Table(target, {"allow_foreign_paths": "true"})
    assert ids(clone) == [0, 1, 2, 4, 5]
    with pytest.raises(deltic.UnsupportedFeatureError, match="local disk"):
        table.clone("s3://bucket/t", storage_options={"allow_foreign_paths": "true", "aws_region": "x"})


@pytest.mark.slow
@pytest.mark.parametrize("properties", PROPERTIES, ids=label)
def test_clones_follow_random_histories(tmp_path: Path, target: str, properties: dict[str, str]) -> None:
    """Random changes of the source and updates of clones: rows, row ids, and later writes to the clone."""
    rng = random.Random(str(properties))
    properties = properties if rng.random() < 0.5 else {**properties, **TIMES}
    changed = Changed.create(str(tmp_path / "source"), properties, partitioned=rng.random() < 0.5)
    table = deltic.Table(changed.uri)
    columns = ["n", "_metadata.row_id"]
    for step in range(6):
        changed.append(rng, rng.randrange(1, 9))
        k = rng.randrange(9)
        table.delete(f"k = {k}")
        changed.rows = {n: row for n, row in changed.rows.items() if row["k"] != k}
        if step % 2:
            table.optimize()
        for name, shallow in (("shallow", True), ("deep", False)):
            clone = deltic.Table(f"{target}-{name}")
            table.clone(clone, shallow=shallow, mode="update")
            rows = Counter(map(key, changed.rows.values()))
            same(Counter(map(key, clone.scan().to_arrow().to_pylist())), rows)
            assert clone.check(files=True).ok
            if "delta.enableRowTracking" in properties:
                ids = [sorted(map(str, t.scan(columns=columns).to_arrow().to_pylist())) for t in (table, clone)]
                assert ids[0] == ids[1]
                greatest = max((row["row_id"] for row in _ids(clone)), default=-1)
            new = changed.new_rows(rng, 3)
            deltic.write(clone, pa.Table.from_pylist(list(new.values()), SCHEMA))
            if "delta.enableRowTracking" in properties:
                assert min(row["row_id"] for row in _ids(clone) if row["n"] in new) > greatest


def _ids(table: deltic.Table) -> list[dict[str, Any]]:
    rows = table.scan(columns=["n", "_metadata.row_id"]).to_arrow().to_pylist()
    return [{"n": row["n"], "row_id": row["_metadata.row_id"]} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("answer", [200, 403, 501])
def test_files_are_copied_within_the_store(answer: int, caplog: pytest.LogCaptureFixture) -> None:
    with object_store() as store:
        options = store.options
        deltic.write("s3://bucket/source", pa.table({"id": [1]}), storage_options=options)
        source = deltic.Table("s3://bucket/source", storage_options=options)
        name = next(path for path in store.files if path.endswith(".parquet")).rsplit("/", 1)[1]
        store.copies_with = answer
        read: list[str] = []
        store.before = lambda method, path: read.append(path) if method == "GET" else None
        caplog.set_level(logging.DEBUG, logger="deltic")
        source.clone("s3://bucket/target", shallow=False)
        assert store.files[f"bucket/target/{name}"][0] == store.files[f"bucket/source/{name}"][0]
        assert (f"bucket/source/{name}" in read) == (answer != 200), (
            "the client reads the bytes only if the store refuses the copy"
        )
        lines = [record.getMessage() for record in caplog.records if "instead" in record.getMessage()]
        assert len(lines) == (answer != 200)
        assert all(f"bytes of `source/{name}` instead" in text and "test" not in text for text in lines), lines
        assert deltic.Table("s3://bucket/target", storage_options=options).scan().to_arrow()["id"].to_pylist() == [1]


def test_the_command_line(table: deltic.Table, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clone", table.uri, target]) == 0
    assert "version 0 of" in capsys.readouterr().out
    assert main(["clone", table.uri, target]) == 1
    assert "there is a table already" in capsys.readouterr().err
    assert main(["clone", table.uri, target, "--mode", "update"]) == 0
    assert "nothing differs" in capsys.readouterr().out
    assert main(["clone", table.uri, target + "2", "--deep", "--version", "0", "--property", "mine=1", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["version"], output["metrics"]["numCopiedFiles"]) == (0, 3)
    assert deltic.Table(target + "2").snapshot().properties["mine"] == "1"
