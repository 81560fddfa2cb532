"""VACUUM in Python: deleted and kept files, and the result."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import unprivileged
from changed_rows import files_of
from log_files import Log
from sample import log_actions

import deltic
from deltic.cli import main
from deltic.results.vacuum import VacuumMode

DAY = 24 * 60 * 60


def files(table: deltic.Table) -> set[str]:
    return files_of(table.uri)


def rows(table: deltic.Table, version: int | None = None) -> list[dict[str, Any]]:
    return table.snapshot(version).scan().to_arrow().sort_by("id").to_pylist()


def sorted_rows(snapshot: deltic.Snapshot) -> list[str]:
    return sorted(map(str, snapshot.scan().to_arrow().to_pylist()))


def age(table: deltic.Table, *paths: str) -> None:
    """Set the modification times of files to a month ago."""
    for path in paths:
        os.utime(Path(table.uri) / path, (time.time() - 30 * DAY,) * 2)


def orphan(table: deltic.Table, path: str) -> str:
    place = Path(table.uri) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"left")
    age(table, path)
    return path


@pytest.fixture
def table(uri: str) -> deltic.Table:
    for value in range(3):
        deltic.write(uri, pa.table({"id": [value]}), mode="overwrite")
    return deltic.Table(uri)


def test_files_of_the_newest_version_are_kept(table: deltic.Table) -> None:
    before = files(table)
    found = table.vacuum(0, force=True, dry_run=True)
    assert files(table) == before
    assert (found.dry_run, found.files_deleted) == (True, 2)
    assert found.files is not None
    going = set(found.files["path"].to_pylist())
    assert found.bytes_deleted == sum((Path(table.uri) / path).stat().st_size for path in going)
    done = table.vacuum(0, force=True)
    assert (done.dry_run, done.files_deleted, done.bytes_deleted) == (False, 2, found.bytes_deleted)
    assert files(table) == before - going
    assert rows(table) == [{"id": 2}]
    with pytest.raises(deltic.CorruptTableError, match="if VACUUM removed it"):
        rows(table, 0)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_vacuum_that_is_not_in_the_history(table: deltic.Table, mode: VacuumMode) -> None:
    before, version = files(table), table.snapshot().version
    planned = table.vacuum(0, force=True, mode=mode, dry_run=True)
    done = table.vacuum(0, force=True, mode=mode, log=False)
    assert done.files_deleted == planned.files_deleted == 2
    assert planned.files is not None
    assert before - files(table) == set(planned.files["path"].to_pylist())
    assert deltic.Table(table.uri).snapshot().version == version
    # The next lite vacuum begins after the commits that this one has handled.
    assert table.vacuum(0, force=True, mode="lite", dry_run=True).files_seen == 0


def test_history_records_start_and_end(table: deltic.Table) -> None:
    table.vacuum(0, force=True)
    end, start = table.history(2)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    parameters = {
        "retentionCheckEnabled": False,
        "specifiedRetentionMillis": 0,
        "defaultRetentionMillis": 7 * DAY * 1000,
    }
    assert start["operationParameters"] == parameters
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"] == {"numDeletedFiles": "2", "numVacuumedDirectories": "1"}


def test_young_and_hidden_files_are_kept(table: deltic.Table) -> None:
    kept = {orphan(table, path) for path in ("_hidden/a.parquet", ".hidden/b.parquet", "_c", "p=1/.d.crc")}
    gone = {orphan(table, path) for path in ("a.parquet", "p=1/b.parquet", "x/y/é %.parquet", "_change_data/c.parquet")}
    (Path(table.uri) / "young.parquet").write_bytes(b"")
    before = files(table)
    assert table.vacuum().files_deleted == len(gone)
    assert files(table) == before - gone
    assert kept <= files(table)


def test_nested_tables_are_kept(table: deltic.Table, capsys: pytest.CaptureFixture[str]) -> None:
    inner = deltic.write(f"{table.uri}/archive/old", pa.table({"id": [7]}))
    deltic.write(f"{table.uri}/archive/old", pa.table({"id": [8]}), mode="overwrite")
    age(table, *(path for path in files(table) if path.startswith("archive/old/") and path.endswith(".parquet")))
    gone = orphan(table, "archive/gone.parquet")
    orphan(table, "archive/old/left.parquet")
    unfinished = orphan(table, f"archive/old/.tmp-{uuid.uuid4()}")
    planned = table.vacuum(dry_run=True)
    assert (planned.files_deleted, planned.nested_tables) == (1, ("archive/old",))
    assert main(["vacuum", table.uri]) == 0
    assert "archive/old is a Delta table of its own" in capsys.readouterr().err
    assert gone not in files(table)
    assert Path(table.uri, unfinished).exists()
    again = table.vacuum()
    assert (again.files_deleted, again.nested_tables) == (0, ("archive/old",))
    assert "archive/old" in repr(again)
    nested = deltic.Table(f"{table.uri}/archive/old")
    assert [rows(nested, version) for version in (0, 1)] == [[{"id": 7}], [{"id": 8}]]
    assert inner.version == 0
    nested.vacuum()
    assert "archive/old/left.parquet" not in files(table)


def test_a_nested_table_in_a_partition_folder_is_kept(uri: str) -> None:
    deltic.write(uri, pa.table({"day": ["a"], "x": [1]}), partition_by="day")
    deltic.write(f"{uri}/archive/day=b", pa.table({"x": [1]}))
    table = deltic.Table(uri)
    age(table, *(path for path in files(table) if path.startswith("archive/") and path.endswith(".parquet")))
    assert table.vacuum().nested_tables == ("archive/day=b",)
    assert deltic.Table(f"{uri}/archive/day=b").scan().count() == 1


INTERRUPTED = """
import os, signal, sys, threading
import deltic

def interrupt():
    while len(os.listdir(sys.argv[1])) > 7_500:
        pass
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    deltic.Table(sys.argv[1]).vacuum(0, force=True)
except KeyboardInterrupt as told:
    print(told)
"""


@pytest.mark.slow
def test_an_interrupted_vacuum_stops(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [0]}))
    table = deltic.Table(uri)
    for number in range(8_000):
        orphan(table, f"{number}.parquet")
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED, uri], capture_output=True, text=True, timeout=60)
    left = len([path for path in files(table) if not path.startswith("_delta_log")])
    # The vacuum may have finished before the interrupt.
    if left > 1:
        assert "the files that were deleted are gone, the others stay" in ended.stdout, ended
    else:
        # An interrupt without a text came after the vacuum had returned.
        expected = r"the commit was made, as version 2|not recorded"
        assert re.search(expected, ended.stdout) or (not ended.stdout.strip() and table.snapshot().version == 2), ended
    assert table.vacuum(0, force=True).files_deleted == left - 1
    assert table.scan().count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "lite"])
def test_each_folder_is_counted_once(uri: str, mode: str) -> None:
    for number in range(6):
        deltic.write(uri, pa.table({"p": ["a", "b"], "n": [number, number]}), partition_by="p")
    table = deltic.Table(uri)
    table.delete("n < 5")
    table.vacuum(0, force=True, mode=mode)
    assert table.history()[0]["operationMetrics"] == {"numDeletedFiles": "10", "numVacuumedDirectories": "2"}


def test_partition_folders_with_an_underscore_are_entered(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "_p": ["a"]}), partition_by=["_p"])
    table = deltic.Table(uri)
    orphan(table, "_p=a/x.parquet")
    orphan(table, "_q=a/x.parquet")
    assert table.vacuum().files_deleted == 1
    assert "_q=a/x.parquet" in files(table)
    assert rows(table) == [{"id": 1, "_p": "a"}]


@pytest.mark.slow
@pytest.mark.parametrize("value", ["é", "a b", "a%20b", "x/y", "50%", "#?", "\u65e5\u672c"])
def test_live_paths_are_recognized_in_any_spelling(uri: str, value: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "p": [value]}), partition_by=["p"])
    table = deltic.Table(uri)
    age(table, *files(table))
    assert table.vacuum(0, force=True).files_deleted == 0
    assert rows(table) == [{"id": 1, "p": value}]


def test_absolute_paths_into_the_table_are_kept(table: deltic.Table) -> None:
    Log(table.uri).edit(2, "add", lambda add: add.update(path=f"file://{table.uri}/{add['path']}"))
    link = Path(table.uri).parent / "link"
    link.symlink_to(table.uri)
    for place in (table.uri, str(link)):
        deltic.Table(place).vacuum(0, force=True)
        assert rows(deltic.Table(place)) == [{"id": 2}]


def commit(table: deltic.Table, version: int, *actions: dict[str, Any]) -> None:
    lines = [json.dumps(action) + "\n" for action in ({"commitInfo": {"timestamp": 0, "operation": "x"}}, *actions)]
    (Path(table.uri) / "_delta_log" / f"{version:020}.json").write_text("".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["file:", "file://", "FILE:", "", "/"])
@pytest.mark.parametrize("what", ["remove", "cdc", "vector"])
def test_files_outside_of_the_table_are_not_deleted(uri: str, tmp_path: Path, prefix: str, what: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    victim = tmp_path / "precious"
    victim.write_bytes(b"mine")
    path = f"{prefix}{victim}"
    vector = {"storageType": "p", "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    removed = {"path": "gone.parquet", "deletionTimestamp": 1, "dataChange": True}
    commit(
        table,
        1,
        {
            "remove": {"remove": {**removed, "path": path}},
            "cdc": {"cdc": {"path": path, "partitionValues": {}, "size": 1, "dataChange": False}},
            "vector": {"remove": {**removed, "deletionVector": vector}},
        }[what],
    )
    deltic.write(uri, pa.table({"id": [2]}))
    time.sleep(0.01)
    table.vacuum(0, mode="lite", force=True)
    assert victim.read_bytes() == b"mine"


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["file:", "s3:", "memory:", "http:"])
def test_folders_with_names_like_uris_are_ignored(table: deltic.Table, tmp_path: Path, folder: str) -> None:
    victim = tmp_path / "precious.parquet"
    victim.write_bytes(b"mine")
    left = orphan(table, f"{folder}{victim}")
    os.utime(victim, (0, 0))
    assert table.vacuum(0, force=True).files_deleted == 2
    assert victim.read_bytes() == b"mine"
    assert left.replace("//", "/") in files(table)


def test_files_behind_links_inside_the_table_stay(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2], "p": ["a", "b"]}), partition_by="p")
    table = deltic.Table(uri)
    (Path(uri) / "p=a").rename(Path(uri) / "stash")
    (Path(uri) / "p=a").symlink_to("stash")
    age(table, *files(table))
    table.vacuum(0, force=True)
    assert [row["id"] for row in rows(table)] == [1, 2]


def test_a_file_added_again_before_the_start_is_kept(table: deltic.Table) -> None:
    """A restore after the snapshot and before the vacuum adds a file again."""
    first = Log(table.uri).read(0)
    stale = deltic.Table(table.uri)
    stale.snapshot()
    commit(table, 3, *(line for line in first if "add" in line))
    stale.vacuum(0, force=True)
    assert [row["id"] for row in rows(table)] == [0, 2]


@pytest.mark.slow
def test_deletion_vectors_and_change_files_stay(uri: str) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    deltic.write(uri, pa.table({"id": range(10)}), properties=properties)
    table = deltic.Table(uri)
    table.delete("id = 3")
    middle = table.delete("id = 4").version
    table.update({"id": "id + 100"}, "id = 5")
    expected = rows(table)
    feed = table.changes(start=1).to_arrow().num_rows
    table.vacuum()
    assert table.changes(start=1).to_arrow().num_rows == feed
    age(table, *files(table))
    table.vacuum()
    # Files of any age are kept as long as a version within the retention needs them.
    assert table.changes(start=1).to_arrow().num_rows == feed
    assert rows(table, middle) == [{"id": n} for n in range(10) if n not in (3, 4)]
    table.vacuum(0, force=True)
    assert rows(table) == expected


@pytest.mark.slow
def test_the_command_line(table: deltic.Table, capsys: pytest.CaptureFixture[str]) -> None:
    forced = ["vacuum", table.uri, "--retention", "0", "--force"]
    before = files(table)
    assert main([*forced, "--dry-run", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["dry_run"], output["files_deleted"], len(output["files"])) == (True, 2, 2)
    assert main([*forced, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == output["files"]
    assert files(table) == before
    assert main(["vacuum", table.uri, "--retention", "1"]) == 1
    assert "shorter than the 168 h" in capsys.readouterr().err
    assert main(forced) == 0
    assert "files deleted (" in capsys.readouterr().out
    assert len(files(table)) == 1
    assert main(["vacuum", table.uri, "--lite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files_deleted"] == 0


def test_a_short_retention_is_refused(table: deltic.Table) -> None:
    before = files(table)
    with pytest.raises(deltic.InvalidInputError, match=r"retention of 1 h is shorter than the 168 h"):
        table.vacuum(1)
    table.set_properties({"delta.deletedFileRetentionDuration": "interval 1 hour"})
    assert table.vacuum(timedelta(hours=1)).files_deleted == 0
    assert files(table) == before


@pytest.mark.slow
@pytest.mark.parametrize("retention", [-1, "7 dayz", True, float("nan"), float("inf"), timedelta(days=-1)])
def test_bad_retentions(table: deltic.Table, retention: Any) -> None:
    with pytest.raises(deltic.InvalidInputError, match="retention"):
        table.vacuum(retention, force=True)


@pytest.mark.slow
def test_a_lite_vacuum_reads_the_log(table: deltic.Table) -> None:
    left = orphan(table, "left.parquet")
    assert table.vacuum(0, mode="lite", force=True, dry_run=True).files_deleted == 2
    assert table.vacuum(0, mode="lite", force=True).files_deleted == 2
    assert len(files(table)) == 2
    assert left in files(table)
    deltic.write(table, pa.table({"id": [9]}), mode="overwrite")
    time.sleep(0.01)
    done = table.vacuum(0, mode="lite", force=True)
    assert (done.files_seen, done.files_deleted) == (1, 1)
    assert rows(table) == [{"id": 9}]


def test_lite_needs_the_whole_log(table: deltic.Table) -> None:
    table.checkpoint()
    (Path(table.uri) / "_delta_log" / f"{1:020}.json").unlink()
    time.sleep(0.01)
    with pytest.raises(deltic.InvalidInputError, match="run a full vacuum once"):
        table.vacuum(0, mode="lite", force=True)
    table.vacuum(0, force=True)
    assert table.vacuum(0, mode="lite", force=True).files_deleted == 0


def test_a_log_without_a_commit_of_the_retention_is_refused(table: deltic.Table) -> None:
    deltic.write(table.uri, pa.table({"id": [3]}), mode="overwrite")
    table.checkpoint()
    age(table, f"_delta_log/{0:020}.json")
    orphan(table, "gone.parquet")
    (Path(table.uri) / "_delta_log" / f"{2:020}.json").unlink()
    before = files(table)
    with pytest.raises(deltic.StorageError, match="lacks this commit"):
        table.vacuum()
    assert files(table) == before


def test_an_inventory_replaces_the_listing(table: deltic.Table) -> None:
    old = [orphan(table, path) for path in ("a.parquet", "b.parquet", "c.parquet")]
    known = files(table) - set(old)
    listed = [*old[:2], *known]
    paths = [f"{table.uri}/{path}" if number % 2 else path for number, path in enumerate(listed)]
    assert table.vacuum(inventory=inventory(*paths)).files_deleted == 2
    assert files(table) == known | {"c.parquet"}


def inventory(*paths: str, **columns: Any) -> pa.Table:
    """An inventory of old files of four bytes; `columns` replace its columns."""
    count = len(paths)
    known = {"path": list(paths), "length": [4] * count, "isDir": [False] * count, "modificationTime": [0] * count}
    return pa.table({**known, **columns})


def test_the_latest_time_of_a_file_in_an_inventory_counts(table: deltic.Table) -> None:
    path = orphan(table, "a.parquet")
    now = int(time.time() * 1000)
    for times in ([0, now], [now, 0]):
        twice = inventory(path, path, modificationTime=times)
        assert table.vacuum(inventory=twice).files_deleted == 0


def test_a_folder_is_entered_even_if_its_first_file_is_hidden(uri: str) -> None:
    deltic.write(uri, pa.table({"p": [1], "x": [1]}), partition_by="p")
    table = deltic.Table(uri)
    left = [orphan(table, f"p={n}/.tmp-{uuid.uuid4()}") for n in (1, 2)]
    orphan(table, "p=2/_SUCCESS")
    table.vacuum()
    assert not files(table) & set(left)


def test_a_file_that_an_inventory_has_twice_counts_once(table: deltic.Table) -> None:
    left = orphan(table, "left é.parquet")
    names = [left, f"{table.uri}/{left}", left]
    planned = table.vacuum(inventory=inventory(*names), dry_run=True)
    assert (planned.files_seen, planned.files_deleted, planned.bytes_deleted) == (1, 1, 4)
    assert planned.files is not None
    assert planned.files["path"].to_pylist() == [left]
    done = table.vacuum(inventory=inventory(*names))
    assert (done.files_seen, done.files_deleted, done.bytes_deleted) == (1, 1, 4)
    assert table.history(1)[0]["operationMetrics"]["numDeletedFiles"] == "1"
    assert left not in files(table)


WRONG: dict[str, tuple[pa.Table, str]] = {
    "columns missing": (pa.table({"path": ["a"]}), "the inventory lacks the column 'length'"),
    "column twice": (
        pa.table([["left.parquet"], [4], [False], [0], [True]], [*inventory().column_names, "isDir"]),
        "the inventory has the column 'isDir' twice",
    ),
    "isDir null": (
        inventory("left.parquet", "b.parquet", isDir=[False, None]),
        "the inventory has rows whose isDir is null",
    ),
    "isDir null alone": (inventory("left.parquet", isDir=[None]), "the inventory has rows whose isDir is null"),
    "isDir text": (inventory("left.parquet", isDir=["folder"]), "the inventory does not fit"),
    "isDir list": (inventory("left.parquet", isDir=[[False]]), "the inventory does not fit"),
    "length text": (inventory("left.parquet", length=["four"]), "the inventory does not fit"),
    "length date": (inventory("left.parquet", length=pa.array([0], pa.date32())), "the inventory does not fit"),
    "time text": (inventory("left.parquet", modificationTime=["long ago"]), "the inventory does not fit"),
    "path number": (inventory("left.parquet", path=[[1.5]]), "the inventory does not fit"),
    "path null": (inventory("left.parquet", path=pa.array([None], pa.string())), "path"),
    "elsewhere": (inventory("/etc/passwd"), "not below the table"),
    "scheme": (inventory("file:/etc/passwd"), "not below the table"),
    "dots": (inventory("../other/a.parquet"), "not below the table"),
    "nothing": (inventory(""), "not below the table"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_invalid_inventories_are_refused(table: deltic.Table, what: str) -> None:
    orphan(table, "left.parquet")
    before = files(table)
    wrong, message = WRONG[what]
    with pytest.raises(deltic.InvalidInputError, match=message):
        table.vacuum(inventory=wrong)
    assert files(table) == before


def test_paths_of_an_inventory_outside_of_the_table_are_refused(table: deltic.Table) -> None:
    before = files(table)
    with pytest.raises(deltic.InvalidInputError, match="not below the table"):
        table.vacuum(inventory=inventory(f"{table.uri}//etc/../../x"))
    assert files(table) == before


def test_lite_counts_a_file_of_several_deletion_vectors_once(uri: str) -> None:
    deltic.create(uri, pa.schema([("id", pa.int64())]), properties={"delta.enableDeletionVectors": "true"})
    table = deltic.Table(uri)
    for _ in range(3):
        deltic.write(table, pa.table({"id": range(4)}))
    table.delete("id = 1")
    (first,) = [path for path in files(table) if path.endswith(".bin")]
    table.delete("id = 2")
    removed = [line["remove"] for line in log_actions(uri, 5) if "remove" in line]
    assert len({remove["deletionVector"]["pathOrInlineDv"] for remove in removed}) == 1 < len(removed)
    time.sleep(0.01)
    planned = table.vacuum(0, mode="lite", force=True, dry_run=True)
    # Three data files, which two commits removed and added again with a vector, and the file of vectors.
    assert (planned.files_seen, planned.files_deleted) == (4, 1)
    assert planned.files is not None
    assert planned.files["path"].to_pylist() == [first]
    done = table.vacuum(0, mode="lite", force=True)
    assert (done.files_seen, done.files_deleted) == (4, 1)
    assert first not in files(table)
    assert [row["id"] for row in rows(table)] == [0] * 3 + [3] * 3


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_an_inventory_have_units(table: deltic.Table, unit: str) -> None:
    old, young = orphan(table, "old.parquet"), orphan(table, "young.parquet")
    times = pa.array([int(time.time()) - 30 * DAY, int(time.time())], pa.timestamp("s")).cast(pa.timestamp(unit))
    listed = {"path": [old, young], "length": [1, 1], "isDir": [False, False], "modificationTime": times}
    assert table.vacuum(inventory=pa.table(listed)).files_deleted == 1
    assert young in files(table)


def test_vacuum_info_beyond_the_newest_version_is_ignored(table: deltic.Table) -> None:
    info = Path(table.uri) / "_delta_log" / "_last_vacuum_info"
    info.write_text('{"latestCommitVersionOutsideOfRetentionWindow":99}')
    time.sleep(0.01)
    assert table.vacuum(0, mode="lite", force=True).files_deleted == 2


STUCK = """
import deltic
give_up_rights()
try:
    deltic.Table(sys.argv[1]).vacuum()
except deltic.StorageError as error:
    print(error)
"""


@pytest.mark.slow
def test_files_that_cannot_be_deleted_are_reported_and_others_are_deleted() -> None:
    with unprivileged.open_folder() as root:
        table = deltic.Table(root / "table")
        deltic.write(table, pa.table({"id": [1]}))
        orphan(table, "stuck/a.parquet")
        orphan(table, "b.parquet")
        for folder in ("", "_delta_log"):
            Path(table.uri, folder).chmod(0o777)
        Path(table.uri, "stuck").chmod(0o555)
        assert "files that could not be deleted: 1;" in unprivileged.run(STUCK, table.uri)
        assert table.history(1)[0]["operationParameters"] == {"status": "FAILED"}
        assert "b.parquet" not in files(table)
        Path(table.uri, "stuck").chmod(0o755)
        assert table.vacuum().files_deleted == 1


def test_a_table_that_cannot_be_written_is_not_vacuumed(table: deltic.Table) -> None:
    commit = Path(table.uri) / "_delta_log" / f"{3:020}.json"
    commit.write_text(
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":["new"]}}\n'
    )
    before = files(table)
    with pytest.raises(deltic.UnsupportedFeatureError, match="new"):
        table.vacuum(0, force=True)
    assert files(table) == before


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "lite"])
@pytest.mark.parametrize("seed", range(6))
def test_versions_within_the_retention_can_be_read(uri: str, seed: int, mode: Any) -> None:
    """A random history: after a vacuum, versions within the retention still have their rows."""
    draw = random.Random(seed)
    properties = {"delta.checkpointInterval": "3", "delta.enableDeletionVectors": str(draw.random() < 0.5).lower()}
    if draw.random() < 0.5:
        properties["delta.enableChangeDataFeed"] = "true"
    if draw.random() < 0.5:
        properties["delta.enableInCommitTimestamps"] = "true"
    table = deltic.Table(uri)
    partition_by = ["p"] if draw.random() < 0.5 else None
    history: dict[int, list[dict[str, Any]]] = {}
    for step in range(14):
        time.sleep(0.02)
        choice = draw.random() if step else 0.0
        if choice < 0.45:
            new = [{"id": draw.randrange(20), "p": draw.choice(["a", "b", None])} for _ in range(draw.randrange(1, 6))]
            given = pa.Table.from_pylist(new, schema=pa.schema([("id", pa.int64()), ("p", pa.string())]))
            how = "overwrite" if draw.random() < 0.3 else "append"
            deltic.write(uri, given, mode=how, partition_by=partition_by, properties=None if step else properties)
        elif choice < 0.8:
            table.delete(f"id % 3 = {draw.randrange(3)}")
        elif choice < 0.9:
            table.checkpoint()
        else:
            orphan(table, f"p=a/orphan-{step}.parquet")
        version = table.snapshot().version
        history[version] = sorted_rows(table.snapshot())
        if step > 5 and draw.random() < 0.3:
            chosen = draw.choice(sorted(history)[-5:])
            committed = {entry["version"]: entry["timestamp"] for entry in table.history()}[chosen]
            # A version is current until the next commit, so its files are kept until the retention after that.
            table.vacuum(timedelta(milliseconds=max(time.time() * 1000 - committed, 0)), mode=mode, force=True)
            kept = {version: rows for version, rows in history.items() if version >= chosen}
            for version, expected in kept.items():
                assert sorted_rows(table.snapshot(version)) == expected, (version, chosen)
            history = kept
    assert sorted_rows(table.snapshot()) == history[max(history)]
