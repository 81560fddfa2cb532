"""Recovery: the versions after the last readable one are moved out of the log, or the log stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from log_files import Log
from object_store import ObjectStore, object_store

import deltic
from deltic import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    StorageError,
    Table,
    UnsupportedFeatureError,
    cli,
)

HINT = "_last_checkpoint"
TORN = b'{"commitInfo":{"operation":"WRITE"}}\n{"add":{"path":"part-0'


@pytest.fixture
def log(uri: str) -> Log:
    """Versions 0 to 6, one row each, with checksums and without a checkpoint."""
    for version in range(7):
        deltic.write(uri, pa.table({"v": [version]}))
    return Log(uri)


def files_below(uri: str) -> dict[str, bytes]:
    return {p.relative_to(uri).as_posix(): p.read_bytes() for p in Path(uri).rglob("*") if p.is_file()}


def missing_in_the_middle(log: Log) -> None:
    log.remove(4)


def torn_in_the_middle(log: Log) -> None:
    log.path(4).write_bytes(TORN)


def torn_last(log: Log) -> None:
    log.path(6).write_bytes(TORN)


def empty_last(log: Log) -> None:
    log.path(6).write_bytes(b"")


def zeros_last(log: Log) -> None:
    log.path(6).write_bytes(bytes(log.path(6).stat().st_size))


def latin_last(log: Log) -> None:
    log.path(6).write_bytes('{"commitInfo":{"operation":"é"}}'.encode("latin-1"))


def list_last(log: Log) -> None:
    log.path(6).write_bytes(b'[{"commitInfo":{}}]\n')


@pytest.mark.parametrize(
    ("damage", "last", "reason", "lost"),
    [
        (missing_in_the_middle, 3, "the commit of version 4 is missing", "0 torn and 1 missing commits, and 2 that"),
        (torn_in_the_middle, 3, "damaged: line 2 is not a JSON object", "1 torn and 0 missing commits, and 2 that"),
        (torn_last, 5, "the commit of version 6 is damaged: line 2", "Version 6 is lost: 1 torn and 0 missing"),
        (empty_last, 5, "version 6 has 0 bytes and no action", "1 torn"),
        (zeros_last, 5, "version 6 is damaged: line 1", "1 torn"),
        (latin_last, 5, "version 6 is not text in UTF-8", "1 torn"),
        (list_last, 5, "version 6 is damaged: line 1", "1 torn"),
    ],
)
def test_the_last_readable_version_becomes_the_newest(
    log: Log, damage: Callable[[Log], None], last: int, reason: str, lost: str
) -> None:
    damage(log)
    before = files_below(log.uri)
    with pytest.raises(CorruptTableError, match=f"recover_to={last} moves the later versions out"):
        log.table.repair()
    with pytest.raises(CorruptTableError):
        log.table.scan().to_arrow()

    planned = log.table.repair(recover_to=last)
    assert (planned.version, planned.moved_to, planned.ok) == (last, None, True)
    (step,) = planned.steps
    assert step.kind == "log"
    assert reason in step.message
    assert lost in step.message
    assert files_below(log.uri) == before

    done = log.table.repair(dry_run=False, recover_to=last)
    assert done.moved_to is not None
    assert (done.version, done.steps) == (last, planned.steps)
    later = {f"_delta_log/{v:020}.{kind}" for v in range(last + 1, 7) for kind in ("json", "crc")} & before.keys()
    assert set(step.paths) == later
    after = files_below(log.uri)
    moved = {f"{done.moved_to}/{Path(path).name}.unreadable": before[path] for path in later}
    assert after == {path: content for path, content in before.items() if path not in later} | moved

    assert log.rows() == list(range(last + 1))
    assert log.table.check(files=True).ok
    assert deltic.write(log.uri, pa.table({"v": [100]})).version == last + 1
    assert log.rows() == [*range(last + 1), 100]
    assert log.table.check(files=True).ok


def test_commits_are_deleted_last_from_the_newest_on(log: Log) -> None:
    log.remove(4)
    (step,) = log.table.repair(recover_to=3).steps
    names = [Path(path).name for path in step.paths]
    assert [name for name in names if name.endswith(".json")] == [f"{v:020}.json" for v in (6, 5)] == names[-2:]


def test_another_version_is_refused(log: Log) -> None:
    with pytest.raises(InvalidInputError, match=r"version 6, the newest, can be read.*`restore` makes"):
        log.table.repair(dry_run=False, recover_to=3)
    log.remove(4)
    before = files_below(log.uri)
    for version in (2, 4, 6):
        with pytest.raises(InvalidInputError, match=f"last version that can be read is 3, not {version}"):
            log.table.repair(dry_run=False, recover_to=version)
    assert files_below(log.uri) == before


def test_a_sound_log_stays(log: Log) -> None:
    before = files_below(log.uri)
    result = log.table.repair(dry_run=False, recover_to=6)
    assert (result.version, result.steps, result.moved_to) == (6, (), None)
    assert files_below(log.uri) == before


def test_an_empty_commit_before_others_is_not_torn_for_other_clients(log: Log) -> None:
    log.path(4).write_bytes(b"\n")
    log.path(4, "crc").unlink(missing_ok=True)
    before = files_below(log.uri)
    with pytest.raises(deltic.UnsupportedFeatureError, match="has no action, and other clients may read"):
        log.table.repair(dry_run=False, recover_to=3)
    assert files_below(log.uri) == before


def test_a_second_recovery_has_a_folder_of_its_own(log: Log) -> None:
    folders = set()
    for last in (5, 4):
        log.path(last + 1).write_bytes(TORN)
        log.path(last + 1, "crc").unlink(missing_ok=True)
        folders.add(log.table.repair(dry_run=False, recover_to=last).moved_to)
        assert log.table.repair(dry_run=False, recover_to=last).steps == ()
    deltic.write(log.uri, pa.table({"v": [50]}))
    log.path(5).write_bytes(b"")
    folders.add(log.table.repair(dry_run=False, recover_to=4).moved_to)
    assert len(folders) == 3
    kept = sorted(path.read_bytes() for path in log.folder.glob(f"_unreadable/*/{5:020}.json.unreadable"))
    assert kept == [b"", TORN]
    assert log.rows() == list(range(5))


@pytest.mark.parametrize("damage", [missing_in_the_middle, torn_in_the_middle])
def test_a_later_checkpoint_makes_the_damage_harmless(log: Log, damage: Callable[[Log], None]) -> None:
    log.table.checkpoint()
    deltic.write(log.uri, pa.table({"v": [7]}))
    damage(log)
    before = files_below(log.uri)
    result = log.table.repair(dry_run=False, recover_to=7)
    assert (result.version, result.moved_to) == (7, None)
    if damage is missing_in_the_middle:
        (step,) = result.steps
        assert not step.mends
        assert "version 4 is missing. Newer versions are read from the checkpoint of version 6" in step.message
    assert files_below(log.uri) == before
    assert log.rows() == list(range(8))


def test_a_torn_checkpoint_does_not_help(log: Log) -> None:
    log.table.checkpoint()
    checkpoint = log.path(6, "checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:50])
    log.remove(4)
    done = log.table.repair(dry_run=False, recover_to=3)
    assert not checkpoint.exists()
    assert not (log.folder / HINT).exists()
    assert log.folder.joinpath(Path(str(done.moved_to)).relative_to("_delta_log"), f"{HINT}.unreadable").exists()
    assert log.rows() == [0, 1, 2, 3]
    deltic.write(log.uri, pa.table({"v": [4]}))
    assert log.table.repair().ok


def test_it_starts_from_a_checkpoint_whose_commits_are_gone(log: Log) -> None:
    log.checkpoint(3)
    log.remove(0, 1, 2)
    log.path(5).write_bytes(TORN)
    log.hint(3)
    log.table.repair(dry_run=False, recover_to=4)
    assert (log.folder / HINT).exists()
    assert log.rows() == list(range(5))


def test_a_compaction_that_covers_the_damage_is_enough(log: Log) -> None:
    compaction = log.folder / f"{3:020}.{5:020}.compacted.json"
    compaction.write_text("".join(json.dumps(action) + "\n" for v in (3, 4, 5) for action in log.read(v)[1:]))
    log.path(4).write_bytes(TORN)
    before = files_below(log.uri)
    assert log.table.repair(dry_run=False, recover_to=6).steps == ()
    assert log.rows() == list(range(7))
    assert files_below(log.uri) == before
    # If the compaction is torn as well, it is moved: it would hide new commits of its versions.
    compaction.write_bytes(compaction.read_bytes()[:100])
    log.table.repair(dry_run=False, recover_to=3)
    assert not compaction.exists()
    for version in range(4, 8):
        deltic.write(log.uri, pa.table({"v": [version * 10]}))
    assert log.rows() == [0, 1, 2, 3, 40, 50, 60, 70]


def test_a_compaction_that_readers_do_not_use_is_not_moved(log: Log) -> None:
    log.checkpoint(3)
    compaction = log.folder / f"{2:020}.{5:020}.compacted.json"
    compaction.write_text("".join(json.dumps(action) + "\n" for v in range(2, 6) for action in log.read(v)[1:]))
    log.path(5).write_bytes(TORN)
    before = files_below(log.uri)
    with pytest.raises(UnsupportedFeatureError, match=r"holds versions 2 to 5.*checkpoint of version 3"):
        log.table.repair(dry_run=False, recover_to=4)
    assert files_below(log.uri) == before


def test_a_log_of_which_nothing_can_be_read(log: Log) -> None:
    log.path(0).write_bytes(TORN)
    with pytest.raises(CorruptTableError, match="no version can be read"):
        log.table.repair(recover_to=0)


def test_what_deltic_does_not_understand_is_not_moved(log: Log) -> None:
    log.commit(6, [{"commitInfo": {"operation": "WRITE"}}, {"add": 5}])
    log.path(6, "crc").unlink()
    before = files_below(log.uri)
    for version in (5, 6):
        with pytest.raises(CorruptTableError, match="line 2 of the commit is not a readable action"):
            log.table.repair(dry_run=False, recover_to=version)
    assert files_below(log.uri) == before


def test_missing_data_files_are_reported_and_stay(log: Log) -> None:
    torn_last(log)
    path = Path(log.uri, log.of(2, "add")[0]["path"])
    path.unlink()
    result = log.table.repair(dry_run=False, recover_to=5)
    assert [(step.kind, step.mends) for step in result.steps] == [("log", True), ("data_file", False)]
    assert "repair the table again afterwards" in result.steps[1].message
    assert not result.ok
    assert log.table.repair(dry_run=False).committed == 6
    assert log.rows() == [0, 1, 3, 4, 5]


def test_tables_whose_versions_are_decided_elsewhere_are_refused(log: Log) -> None:
    def refused(match: str) -> None:
        before = files_below(log.uri)
        with pytest.raises(UnsupportedFeatureError, match=match):
            log.table.repair(dry_run=False, recover_to=3)
        assert files_below(log.uri) == before

    log.path(4).write_bytes(TORN)
    staged = log.folder / "_staged_commits" / f"{7:020}.0b6f6f1c-30d2-4b3e-9d8a-5d6a2f1f7b01.json"
    staged.parent.mkdir()
    staged.write_bytes(b"{}")
    refused("through its catalog")
    staged.unlink()
    temporary = log.folder / ".tmp" / f"{7:020}.json.1"
    temporary.parent.mkdir()
    temporary.write_bytes(b"{}")
    refused("DynamoDB")
    temporary.unlink()
    first = log.path(0).read_bytes()
    managed = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]}
    commit = log.path(5).read_bytes()
    log.commit(5, [{"protocol": {**managed, "writerFeatures": ["catalogManaged"]}}])
    refused("catalogManaged")
    log.path(5).write_bytes(commit)
    log.edit(0, "protocol", lambda p: p.update(minReaderVersion=1, minWriterVersion=7, writerFeatures=["unheard"]))
    for version in range(4):
        log.path(version, "crc").unlink()
    refused("unheard")
    log.path(0).write_bytes(first)
    assert log.table.repair(dry_run=False, recover_to=3).version == 3


def test_hadoops_checksum_files_are_moved(log: Log) -> None:
    log.remove(4)
    stale = [log.folder / f".{v:020}.json.crc" for v in (4, 5)]
    kept = log.folder / f".{3:020}.json.crc"
    for path in [*stale, kept]:
        path.write_bytes(b"crc\0")
    log.table.repair(dry_run=False, recover_to=3)
    assert not any(path.exists() for path in stale)
    assert kept.exists()


@pytest.fixture
def remote() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


def torn_on(store: ObjectStore) -> Table:
    table = Table("s3://bucket/table", store.options)
    for version in range(5):
        deltic.write(table, pa.table({"v": [version]}))
    store.put(f"bucket/table/_delta_log/{3:020}.json", TORN, False)
    return table


@pytest.mark.parametrize("at", ["PUT", "DELETE"])
def test_a_commit_that_is_restored_meanwhile_stays(remote: ObjectStore, at: str) -> None:
    table = torn_on(remote)
    path, body = f"bucket/table/_delta_log/{3:020}.json", b'{"commitInfo":{"operation":"RESTORED"}}'

    def before(method: str, key: str) -> None:
        if method == at and "_delta_log" in key and remote.files[path][0] != body:
            remote.put(path, body, False)

    remote.before = before
    with pytest.raises(CommitConflictError, match="the log changed while it was repaired"):
        table.repair(dry_run=False, recover_to=2)
    remote.before = None
    assert remote.files[path][0] == body


def test_a_commit_that_is_made_meanwhile_stays(remote: ObjectStore) -> None:
    table = torn_on(remote)
    before, path = dict(remote.files), f"bucket/table/_delta_log/{5:020}.json"

    def commit(method: str, key: str) -> None:
        if method == "PUT":
            remote.put(path, b"{}", True)

    remote.before = commit
    with pytest.raises(CommitConflictError, match="the log changed while it was repaired"):
        table.repair(dry_run=False, recover_to=2)
    remote.before = None
    assert remote.files.pop(path)[0] == b"{}"
    assert {key: file for key, file in remote.files.items() if "/_unreadable/" not in key} == before


def test_a_commit_after_the_last_look_is_reported(remote: ObjectStore) -> None:
    table = torn_on(remote)
    path = f"bucket/table/_delta_log/{5:020}.json"

    def before(method: str, key: str) -> None:
        if method == "DELETE":
            remote.put(path, b'{"commitInfo":{"operation":"X"}}', True)

    remote.before = before
    with pytest.raises(CommitConflictError, match=r"changed.*moved are in `_delta_log/_unreadable/"):
        table.repair(dry_run=False, recover_to=2)
    remote.before = None
    assert path in remote.files
    with pytest.raises(CorruptTableError):
        table.scan().to_arrow()
    table.repair(dry_run=False, recover_to=2)
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [0, 1, 2]


def test_a_store_that_refuses_is_no_damage(remote: ObjectStore) -> None:
    table = torn_on(remote)
    before = dict(remote.files)
    remote.busy = lambda method, key: key.endswith(f"{2:020}.json") and method == "GET"
    with pytest.raises(StorageError):
        table.repair(dry_run=False, recover_to=1)
    assert remote.files == before


def test_on_the_command_line(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    torn_last(log)
    assert cli.main(["repair", log.uri]) == 1
    assert "--recover-to=5 moves" in capsys.readouterr().err
    assert cli.main(["repair", log.uri, "--recover-to", "4"]) == 1
    assert "last version that can be read is 5, not 4" in capsys.readouterr().err
    assert cli.main(["repair", log.uri, "--recover-to", "5", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "would mend" in printed
    assert f"_delta_log/{6:020}.json" in printed
    assert cli.main(["repair", log.uri, "--recover-to", "5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["version"], result["ok"], result["steps"][0]["kind"]) == (5, True, "log")
    assert result["moved_to"].startswith("_delta_log/_unreadable/")
    assert log.rows() == list(range(6))
