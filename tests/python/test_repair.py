"""Repair: each kind of damage is found and described, and repaired if possible."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed_rows import VECTORS
from log_files import Log

import deltic
from deltic import CorruptTableError, StorageError, Table, cli

HINT = "_delta_log/_last_checkpoint"


@pytest.fixture
def log(uri: str) -> Log:
    """Versions 0 to 13, with a checkpoint at 10 and a deletion vector in the last."""
    deltic.write(uri, pa.table({"v": [0]}), properties=VECTORS)
    for version in range(1, 12):
        deltic.write(uri, pa.table({"v": [version]}))
    deltic.write(uri, pa.table({"v": range(100, 110)}))
    Table(uri).delete("v = 105")
    assert Table(uri).check(files=True).ok
    return Log(uri)


ROWS = [*range(12), *(v for v in range(100, 110) if v != 105)]


def data_file(log: Log, version: int) -> Path:
    path = next(action["add"]["path"] for action in log.read(version) if "add" in action)
    return Path(log.uri) / unquote(path)


def vector_file(log: Log) -> Path:
    return next(Path(log.uri).glob("deletion_vector_*.bin"))


def checkpoint(log: Log) -> Path:
    return log.path(10, "checkpoint.parquet")


def torn_checkpoint(log: Log) -> None:
    checkpoint(log).write_bytes(checkpoint(log).read_bytes()[:99])


def wrong_checkpoint(log: Log) -> None:
    rows = pq.read_table(checkpoint(log))
    adds = [row for row in range(rows.num_rows) if rows["add"][row].as_py() is not None]
    pq.write_table(rows.take([row for row in range(rows.num_rows) if row != adds[3]]), checkpoint(log))


def checkpoint_with_bad_pages(log: Log) -> None:
    data = bytearray(checkpoint(log).read_bytes())
    data[20 : len(data) // 2] = bytes(len(data) // 2 - 20)
    checkpoint(log).write_bytes(data)


def no_hint(log: Log) -> None:
    (Path(log.uri) / HINT).unlink()


def torn_hint(log: Log) -> None:
    (Path(log.uri) / HINT).write_bytes(b'{"version":1')


def hint_to_nothing(log: Log) -> None:
    (Path(log.uri) / HINT).write_bytes(b'{"version":12,"size":3}')


def no_checksum(log: Log) -> None:
    log.path(13, "crc").unlink()


def torn_checksum(log: Log) -> None:
    log.path(13, "crc").write_bytes(b'{"numFiles"')


def wrong_checksum(log: Log) -> None:
    checksum = json.loads(log.path(13, "crc").read_text())
    log.path(13, "crc").write_text(json.dumps({**checksum, "setTransactions": [{"appId": "nobody", "version": 1}]}))


def no_data_file(log: Log) -> None:
    data_file(log, 4).unlink()


def no_vector_file(log: Log) -> None:
    vector_file(log).unlink()


def short_vector_file(log: Log) -> None:
    vector_file(log).write_bytes(vector_file(log).read_bytes()[:-1])


FAULTS: list[tuple[Callable[[Log], None], str, str]] = [
    (torn_checkpoint, "checkpoint", "damaged: it cannot be read"),
    (checkpoint_with_bad_pages, "checkpoint", "damaged: it cannot be read"),
    (wrong_checkpoint, "checkpoint", "the checkpoint of version 10 is damaged"),
    (no_hint, "last_checkpoint", "is not there"),
    (torn_hint, "last_checkpoint", "is wrong: the hint is ignored"),
    (hint_to_nothing, "last_checkpoint", "version 12"),
    (no_checksum, "checksum", "has no checksum"),
    (torn_checksum, "checksum", "is wrong"),
    (wrong_checksum, "checksum", "is wrong"),
    (no_data_file, "data_file", "1 data files do not exist"),
    (no_vector_file, "deletion_vector", "it is unknown which rows"),
    (short_vector_file, "deletion_vector", "and the log's vectors need"),
]


def left(*faults: Callable[[Log], None]) -> list[int]:
    gone = {4} if no_data_file in faults else set()
    if no_vector_file in faults or short_vector_file in faults:
        gone |= set(range(100, 110))
    return sorted(v for v in ROWS if v not in gone)


def files_below(uri: str) -> dict[str, bytes]:
    return {p.relative_to(uri).as_posix(): p.read_bytes() for p in Path(uri).rglob("*") if p.is_file()}


def is_sound(log: Log) -> bool:
    """Whether the table passes the check, and has a checksum and a hint."""
    checked = log.table.check(files=True)
    newest = log.table.snapshot().version
    hint = Path(log.uri) / HINT
    named = json.loads(hint.read_text())["version"] if hint.exists() else None
    return checked.ok and log.path(newest, "crc").exists() and named is not None


@pytest.mark.slow
def test_a_sound_table_is_not_changed(log: Log) -> None:
    before = files_below(log.uri)
    result = log.table.repair(dry_run=False)
    assert (result.ok, result.steps, result.committed, result.version) == (True, (), None, 13)
    assert files_below(log.uri) == before
    assert "nothing that is wrong" in repr(result)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "kind", "message"), FAULTS, ids=[fault.__name__ for fault, _, _ in FAULTS])
def test_each_fault_is_repaired(log: Log, fault: Callable[[Log], None], kind: str, message: str) -> None:
    fault(log)
    before = files_below(log.uri)
    plan = log.table.repair()
    assert files_below(log.uri) == before, "a dry run writes nothing"
    assert (plan.dry_run, plan.committed, plan.ok) == (True, None, True)
    assert [step.kind for step in plan.steps if step.kind == kind] == [kind]
    step = next(step for step in plan.steps if step.kind == kind)
    assert message in step.message
    assert step.paths
    done = log.table.repair(dry_run=False)
    assert done.steps == plan.steps
    assert (done.committed is None) == (kind not in ("data_file", "deletion_vector"))
    assert is_sound(log)
    assert log.rows() == left(fault)
    again = log.table.repair(dry_run=False)
    assert (again.steps, again.committed) == ((), None)
    if done.committed is not None:
        entry = log.table.history(1)[0]
        assert (entry["operation"], entry["operationMetrics"]["files_removed"]) == ("FSCK", "1")
    deltic.write(log.uri, pa.table({"v": [1000]}))
    assert log.rows() == [*left(fault), 1000]
    assert log.table.check(files=True).ok


PAIRS = [(a[0], b[0]) for a, b in itertools.combinations(FAULTS, 2) if a[1] != b[1]]


@pytest.mark.slow
@pytest.mark.parametrize("faults", PAIRS, ids=lambda pair: "-".join(fault.__name__ for fault in pair))
def test_several_faults_are_repaired_together(log: Log, faults: tuple[Callable[[Log], None], ...]) -> None:
    for fault in faults:
        fault(log)
    assert log.table.repair(dry_run=False).ok
    assert is_sound(log)
    assert log.rows() == left(*faults)


@pytest.mark.slow
def test_the_only_way_to_a_version_is_not_deleted(log: Log) -> None:
    for version in range(10):
        log.path(version).unlink()
    before = files_below(log.uri)
    assert log.table.repair(dry_run=False).ok
    assert files_below(log.uri) == before
    torn_checkpoint(log)
    before = files_below(log.uri)
    for dry_run in (True, False):
        with pytest.raises(CorruptTableError):
            log.table.repair(dry_run=dry_run)
    assert files_below(log.uri) == before


@pytest.mark.slow
def test_a_damaged_checkpoint_is_rewritten_from_an_older_one(log: Log) -> None:
    for version in range(14, 21):
        deltic.write(log.uri, pa.table({"v": [version]}))
    for version in range(10):
        log.path(version).unlink()
    newest = log.path(20, "checkpoint.parquet")
    newest.write_bytes(b"PAR1")
    result = log.table.repair(dry_run=False)
    assert [step.kind for step in result.steps] == ["checkpoint", "last_checkpoint"]
    assert is_sound(log)
    assert pq.read_metadata(newest).num_rows > 0
    assert log.rows() == sorted([*ROWS, *range(14, 21)])


def miscount(log: Log, version: int) -> None:
    checksum = json.loads(log.path(version, "crc").read_text())
    log.path(version, "crc").write_text(json.dumps({**checksum, "numFiles": checksum["numFiles"] + 1}))


def lost_add(log: Log, version: int) -> None:
    log.commit(version, [action for action in log.read(version) if "add" not in action])


def assert_left_alone(log: Log, kind: str, message: str) -> None:
    """Check that repair changes nothing, and describes the contradiction."""
    before, rows = files_below(log.uri), log.rows()
    for dry_run in (True, False):
        result = log.table.repair(dry_run=dry_run)
        assert not result.ok
        step = next(step for step in result.steps if step.kind == kind)
        assert not step.mends
        assert message in step.message
        assert not any(step.mends for step in result.steps)
    assert files_below(log.uri) == before
    assert log.rows() == rows


@pytest.mark.slow
def test_a_right_checkpoint_is_kept_if_a_commit_lost_an_action(log: Log) -> None:
    lost_add(log, 4)
    assert_left_alone(log, "checkpoint", "the checksum of version 10 agrees with the checkpoint")
    assert log.rows() == ROWS


@pytest.mark.slow
def test_a_right_checkpoint_is_kept_if_an_older_one_is_wrong(log: Log) -> None:
    for version in range(14, 21):
        deltic.write(log.uri, pa.table({"v": [version]}))
    wrong_checkpoint(log)
    for version in range(10):
        log.path(version).unlink()
        log.path(version, "crc").unlink()
    no_hint(log)
    data_file(log, 12).unlink()
    before = files_below(log.uri)
    result = log.table.repair(dry_run=False)
    assert not result.ok
    assert not any(step.mends for step in result.steps)
    assert {step.kind for step in result.steps} == {"checkpoint", "last_checkpoint", "data_file"}
    assert files_below(log.uri) == before


@pytest.mark.slow
def test_contradictions_without_a_checksum_are_not_repaired(log: Log) -> None:
    wrong_checkpoint(log)
    for version in range(14):
        log.path(version, "crc").unlink()
    assert_left_alone(log, "checkpoint", "no checksum says which is right")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [lost_add, miscount])
def test_a_checksum_that_may_be_right_is_kept(log: Log, fault: Callable[[Log, int], None]) -> None:
    deltic.write(log.uri, pa.table({"v": [14]}))
    fault(log, 14)
    assert_left_alone(log, "checksum", "One of them is wrong")


@pytest.mark.slow
def test_no_checkpoint_is_written_from_a_log_that_lost_files(log: Log) -> None:
    wrong_checkpoint(log)
    for version in range(10):
        log.path(version).unlink()
        log.path(version, "crc").unlink()
    assert_left_alone(log, "last_checkpoint", "disagree about files")
    assert_left_alone(log, "checksum", "One of them is wrong")


@pytest.mark.slow
def test_a_checksum_contradicted_by_commits_and_checkpoint_is_rewritten(log: Log) -> None:
    for version in range(14, 21):
        deltic.write(log.uri, pa.table({"v": [version]}))
    miscount(log, 20)
    result = log.table.repair(dry_run=False)
    assert [(step.kind, step.mends) for step in result.steps] == [("checksum", True)]
    assert log.table.check().ok


@pytest.mark.slow
def test_a_sidecar_that_is_overwritten_is_damage(uri: str) -> None:
    properties = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
    for version in range(11):
        deltic.write(uri, pa.table({"v": [version]}), properties=properties if version == 0 else None)
    old = {p.name for p in Path(uri, "_delta_log").glob("*.checkpoint.*")}
    for sidecar in Path(uri, "_delta_log", "_sidecars").iterdir():
        sidecar.write_bytes(b"x" * 100)
    result = Table(uri).repair(dry_run=False)
    assert result.ok
    assert [step.kind for step in result.steps][:1] == ["checkpoint"]
    kept = {p.name for p in Path(uri, "_delta_log").glob("*.checkpoint.*")}
    assert kept
    assert not kept & old
    assert Table(uri).repair().steps == ()
    assert Table(uri).check().ok
    assert Log(uri).rows() == list(range(11))


def test_a_damaged_checkpoint_is_deleted_if_the_new_one_has_another_name(uri: str) -> None:
    properties = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
    for value in range(2):
        deltic.write(uri, pa.table({"x": [value]}), properties=None if value else properties)
    table = deltic.Table(uri)
    table.checkpoint()
    (made,) = Path(uri, "_delta_log").glob("*.checkpoint.*-*.parquet")
    classic = made.with_name(f"{1:020}.checkpoint.parquet")
    made.rename(classic)
    os.truncate(classic, 100)
    assert "checkpoint" in {step.kind for step in table.repair(dry_run=False).steps}
    assert not classic.exists()
    assert table.check().ok


def test_missing_source_files_of_a_clone_are_kept_in_the_log(tmp_path: Path) -> None:
    source, place = tmp_path / "mounted" / "source", tmp_path / "mounted"
    for version in range(3):
        deltic.write(str(source), pa.table({"v": [version]}))
    clone = str(tmp_path / "clone")
    Table(str(source)).clone(clone)
    deltic.write(clone, pa.table({"v": [99]}))
    place.rename(tmp_path / "unmounted")
    result = Table(clone).repair(dry_run=False)
    assert (result.ok, result.committed) == (False, None)
    assert [(step.kind, step.mends, len(step.paths)) for step in result.steps] == [("data_file", False, 3)]
    assert "that is not mounted" in result.steps[0].message
    (tmp_path / "unmounted").rename(place)
    assert Log(clone).rows() == [0, 1, 2, 99]


def test_a_table_that_cannot_be_written_is_not_repaired(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1]}))
    log = Log(uri)
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["unknownThing"]}}
    log.path(0).write_text("\n".join(json.dumps(protocol if "protocol" in a else a) for a in log.read(0)) + "\n")
    log.path(0, "crc").unlink()
    data_file(log, 0).unlink()
    before = files_below(uri)
    for dry_run in (True, False):
        result = Table(uri).repair(dry_run=dry_run)
        assert [(step.kind, step.mends) for step in result.steps] == [("checksum", False), ("data_file", False)]
        assert all("unknownThing" in step.message for step in result.steps)
    assert files_below(uri) == before


@pytest.mark.slow
def test_a_file_without_permission_stops_the_repair(log: Log) -> None:
    no_data_file(log)
    no_checksum(log)
    hidden = data_file(log, 6)
    hidden.unlink()
    os.symlink(hidden.name, hidden)
    for dry_run in (True, False):
        with pytest.raises(StorageError, match=hidden.name):
            log.table.repair(dry_run=dry_run)
    assert log.table.snapshot().version == 13


@pytest.mark.slow
def test_a_file_of_another_size_is_reported(log: Log) -> None:
    place = data_file(log, 6)
    place.write_bytes(place.read_bytes() + b"more")
    before = files_below(log.uri)
    result = log.table.repair(dry_run=False)
    assert not result.ok
    assert [(step.kind, step.mends, step.paths) for step in result.steps] == [("data_file", False, [place.name])]
    assert "the log says" in result.steps[0].message
    assert files_below(log.uri) == before


@pytest.mark.slow
def test_rows_of_an_append_only_table_stay(log: Log) -> None:
    log.table.set_properties({"delta.appendOnly": "true"})
    no_data_file(log)
    plan = log.table.repair()
    result = log.table.repair(dry_run=False)
    assert plan.steps == result.steps
    assert not result.ok
    assert "append-only" in result.steps[0].message
    assert log.table.snapshot().version == 14


@pytest.mark.slow
def test_command_line(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["repair", log.uri]) == 0
    assert "nothing that is wrong" in capsys.readouterr().out
    no_data_file(log)
    assert cli.main(["repair", log.uri, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "would mend" in out
    assert data_file(log, 4).name in out
    assert cli.main(["repair", log.uri, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["committed"], output["ok"], [step["kind"] for step in output["steps"]]) == (14, True, ["data_file"])
    data_file(log, 6).write_bytes(b"")
    assert cli.main(["repair", log.uri]) == 1
    assert "cannot mend" in capsys.readouterr().out
    assert cli.main(["repair", log.uri + "-none"]) == 1
