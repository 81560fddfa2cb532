"""Repair of a log whose newest versions cannot be read, because a commit is missing or damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from log_files import Log

import deltic
from deltic import CorruptTableError, Table


@pytest.fixture
def log(uri: str) -> Log:
    """Versions 0 to 13, with a checkpoint at 10."""
    for version in range(14):
        deltic.write(uri, pa.table({"v": [version]}))
    return Log(uri)


def missing(path: Path) -> None:
    path.unlink()


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def not_json(path: Path) -> None:
    path.write_bytes(b"\x00" * 100)


def set_aside(log: Log) -> set[str]:
    return {path.name for path in Path(log.uri, "_delta_log", "_unreadable").glob("*")}


FAULTS: list[Callable[[Path], None]] = [missing, torn, not_json]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("version", [11, 12, 13])
def test_versions_after_a_damaged_commit_are_set_aside(
    log: Log, fault: Callable[[Path], None], version: int
) -> None:
    if fault is missing and version == 13:
        pytest.skip("the newest version is 12 then")
    log.path(13, "crc").unlink(missing_ok=True)
    before = {path.name: path.read_bytes() for path in Path(log.uri, "_delta_log").glob("*.*")}
    fault(log.path(version))
    with pytest.raises(CorruptTableError):
        Table(log.uri).scan().to_arrow()
    planned = Table(log.uri).repair()
    assert not set_aside(log)
    assert (planned.version, planned.steps[0].kind, planned.steps[0].mends) == (version - 1, "commit", True)
    assert f"version {version}" in planned.steps[0].message
    done = Table(log.uri).repair(dry_run=False)
    assert done.ok
    assert done.steps == planned.steps
    assert sorted(Table(log.uri).scan().to_arrow()["v"].to_pylist()) == list(range(version))
    gone = {name for name in before if name[:20].isdigit() and int(name[:20]) >= version}
    assert set_aside(log) == gone - ({f"{version:020}.json"} if fault is missing else set())
    kept = {path.name for path in Path(log.uri, "_delta_log").glob("*.json")}
    assert not kept & gone
    assert Table(log.uri).repair().steps == ()
    # The table goes on from there.
    assert deltic.write(log.uri, pa.table({"v": [100]})).version == version
    assert Table(log.uri).check(files=True).ok


def test_a_gap_before_the_checkpoint_is_no_damage(log: Log) -> None:
    log.path(7).unlink()
    result = Table(log.uri).repair(dry_run=False)
    assert all(step.kind != "commit" for step in result.steps)
    assert not set_aside(log)
    assert Table(log.uri).scan().count() == 14


def test_an_older_version_is_found_below_a_damaged_checkpoint(log: Log) -> None:
    log.path(10, "checkpoint.parquet").write_bytes(b"PAR1")
    log.path(8).unlink()
    done = Table(log.uri).repair(dry_run=False)
    assert (done.version, done.ok) == (7, True)
    assert Table(log.uri).scan().count() == 8
    assert f"{10:020}.checkpoint.parquet" in set_aside(log)


def test_a_table_without_a_readable_version_is_left_as_it_is(log: Log) -> None:
    log.path(10, "checkpoint.parquet").write_bytes(b"PAR1")
    log.path(0).unlink()
    for dry_run in (True, False):
        with pytest.raises(CorruptTableError):
            Table(log.uri).repair(dry_run=dry_run)
    assert not set_aside(log)
