"""Damaged and incomplete logs: stale hints, missing and unknown files, truncated history; history and time travel."""

import json
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from log_files import Log

import deltic

DAY = 24 * 60 * 60 * 1000


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def log(uri: str) -> Log:
    """Versions 0 to 5; version n holds the rows 0 to n."""
    return Log(uri, commits=6)


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- the hint ---


@pytest.mark.slow
def test_a_hint_to_a_checkpoint_that_is_gone(log: Log) -> None:
    log.checkpoint(3)
    log.hint(3)
    assert log.rows() == list(range(6))
    log.path(3, "checkpoint.parquet").unlink()
    assert log.rows() == list(range(6))
    assert log.rows(4) == list(range(5))


@pytest.mark.slow
def test_a_hint_beyond_the_log(log: Log) -> None:
    log.checkpoint(2)
    log.put_hint({"version": 77, "size": 3})
    assert log.table.snapshot().version == 5
    assert log.rows() == list(range(6))


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[3, 4]",
        b"{}",
        b'{"version": "three", "size": 4}',
        b'{"version": -3, "size": 4}',
        b'{"version": 18446744073709551615, "size": 4}',
        b'{"version": 3, "version": 3, "size": 4, "checksum": "0"}',
        b'{"version": 3, "size": 4, "checksum": "00000000000000000000000000000000"}',
        b"\xff\xfe\x00" * 100,
        b'{"a":' * 50_000,
    ],
)
def test_an_invalid_hint(log: Log, content: bytes) -> None:
    log.checkpoint(3)
    (log.folder / "_last_checkpoint").write_bytes(content)
    assert log.rows() == list(range(6))
    found = log.table.check()
    assert [finding.kind for finding in found.findings] == ["last_checkpoint"]


def test_a_hint_saves_listing_what_is_before_it(log: Log) -> None:
    log.checkpoint(4)
    log.hint(4)
    log.remove(0, 1, 2, 3)
    table = log.table
    assert table.snapshot().num_files == 6
    assert table.request_counts()["lists"] == 1
    # For a version before that of the hint, the listing starts at the beginning.
    with pytest.raises(deltic.VersionNotFoundError, match="versions 4 to 5"):
        table.snapshot(2)


def test_a_hint_to_a_two_level_checkpoint(log: Log) -> None:
    path, sidecar = log.two_level_checkpoint(4)
    top = [json.loads(line) for line in path.read_text().splitlines()]
    hint: dict[str, Any] = {
        "version": 4,
        "size": len(top) + 5,
        "sizeInBytes": path.stat().st_size + sidecar.stat().st_size,
        "numOfAddFiles": 5,
        "v2Checkpoint": {
            "path": path.name,
            "sizeInBytes": path.stat().st_size,
            "modificationTime": 0,
            "nonFileActions": [action for action in top if "sidecar" not in action],
            "sidecarFiles": [action["sidecar"] for action in top if "sidecar" in action],
        },
    }
    log.put_hint(hint)
    assert log.rows() == list(range(6))
    assert log.table.check().ok
    log.remove(0, 1, 2, 3, 4)
    assert log.rows() == list(range(6))
    path.unlink()
    with pytest.raises(deltic.CorruptTableError, match="no commit for version 0"):
        log.rows()


def test_a_hint_to_an_older_checkpoint_than_the_newest(log: Log) -> None:
    log.checkpoint(2)
    log.hint(2)
    log.checkpoint(4)
    log.remove(0, 1, 2, 3, 4)
    assert log.rows() == list(range(6))


# --- the folder ---


@pytest.mark.parametrize("content", [None, [], ["_last_checkpoint"], ["notes.txt"], [f"{0:020}.crc"]])
def test_no_log_is_no_table(uri: str, content: list[str] | None) -> None:
    Path(uri).mkdir()
    Path(uri, "data.parquet").write_bytes(b"PAR1")
    if content is not None:
        Path(uri, "_delta_log").mkdir()
        for name in content:
            Path(uri, "_delta_log", name).write_text("{}")
    table = deltic.Table(uri)
    assert not table.exists()
    for read in (
        table.snapshot,
        table.history,
        table.check,
        table.scan,
        lambda: table.snapshot(timestamp="2024-01-01"),
    ):
        with pytest.raises(deltic.TableNotFoundError, match="not a Delta table"):
            read()


def test_unknown_files_in_the_log_are_ignored(log: Log) -> None:
    names = [
        ".00000000000000000000.json.crc",
        f"{9:020}.json.tmp",
        f".{9:020}.json",
        "9.json",
        f"{9:021}.json",
        f"{9:020}.JSON",
        f"{9:020}.checkpoint.parquet.tmp",
        f"{9:020}.checkpoint.notauuid.json",
        f"{9:020}.{9:020}.compacted.json",
        f"{9:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        "99999999999999999999.json",
        "zzz",
        "ünïcödé",
    ]
    for name in names:
        (log.folder / name).write_text("junk")
    for name in ("_staged_commits", "_sidecars", "tmp", f"{9:020}.json", f"{8:020}.checkpoint.parquet"):
        (log.folder / name).mkdir()
        (log.folder / name / f"{9:020}.json").write_text("junk")
    assert log.table.snapshot().version == 5
    assert log.rows() == list(range(6))
    assert len(log.table.history()) == 6
    assert log.table.check(files=True).ok


def test_a_version_before_the_oldest(log: Log) -> None:
    log.checkpoint(3)
    log.remove(0, 1)
    assert log.rows(3) == [0, 1, 2, 3]
    for version in (0, 1, 2):
        with pytest.raises(deltic.VersionNotFoundError, match="versions 3 to 5") as caught:
            log.table.snapshot(version)
        assert f"version {version} " in str(caught.value)
    with pytest.raises(deltic.VersionNotFoundError, match="no version 6; it has versions 3 to 5"):
        log.table.snapshot(6)


def test_a_gap_names_the_missing_version(log: Log) -> None:
    log.remove(3)
    assert log.rows(2) == [0, 1, 2]
    for version in (None, 4, 5):
        with pytest.raises(deltic.CorruptTableError, match="no commit for version 3"):
            log.table.snapshot(version)


def test_an_incomplete_checkpoint_is_ignored(log: Log) -> None:
    parts = log.checkpoint(3, parts=2)
    log.hint(3)
    assert log.rows() == list(range(6))
    parts[1].unlink()
    assert log.rows() == list(range(6))
    log.remove(1)
    with pytest.raises(deltic.CorruptTableError, match="no commit for version 1"):
        log.rows()


@pytest.mark.slow
def test_only_checkpoints_are_left(log: Log) -> None:
    log.checkpoint(5)
    log.remove(*range(6))
    assert log.rows() == list(range(6))
    assert log.table.history() == []
    with pytest.raises(deltic.VersionNotFoundError, match="no commit is left"):
        log.table.snapshot(timestamp="2024-01-01")


# --- history ---


def test_history_includes_versions_before_the_checkpoint(log: Log) -> None:
    log.checkpoint(4)
    log.hint(4)
    assert [entry["version"] for entry in log.table.history()] == [5, 4, 3, 2, 1, 0]
    log.remove(0, 1)
    assert [entry["version"] for entry in log.table.history()] == [5, 4, 3, 2]
    assert [entry["version"] for entry in log.table.history(limit=3)] == [5, 4, 3]
    assert {entry["operation"] for entry in log.table.history()} == {"WRITE"}


@pytest.mark.slow
def test_history_has_the_times_that_time_travel_uses(log: Log) -> None:
    log.modified({version: 1_000_000 + version * 1000 for version in range(6)})
    log.modified({3: 500_000})
    for entry in log.table.history():
        at = datetime.fromtimestamp(entry["timestamp"] / 1000, timezone.utc)
        assert log.table.snapshot(timestamp=at).version == entry["version"]
    assert log.table.history()[2]["timestamp"] == 1_002_001


def test_history_of_commits_without_commit_info(log: Log) -> None:
    version = log.append([])
    log.commit(version, [{"txn": {"appId": "a", "version": 1}}])
    newest = log.table.history(limit=1)[0]
    assert newest.keys() == {"version", "timestamp"}
    assert newest["version"] == version


@pytest.mark.slow
def test_history_reads_the_beginning_of_large_commits(log: Log) -> None:
    noise = [{"add": {**action["add"], "path": f"{i}{'x' * 1000}"}} for i in range(2000) for action in log.read(5)[1:]]
    log.commit(5, [log.read(5)[0], *noise])
    table = log.table
    assert table.history(limit=1)[0]["operation"] == "WRITE"
    assert table.request_counts()["bytes_read"] < 100_000
    # Some writers write the commit info last.
    log.commit(5, [*noise, {"commitInfo": {"operation": "LAST"}}])
    assert log.table.history(limit=1)[0]["operation"] == "LAST"


# --- time travel ---


def test_times_of_files_are_made_monotone(log: Log) -> None:
    log.modified({0: 1000, 1: 2000, 2: 1500, 3: 1500, 4: 2001, 5: 9000})
    # The times of 2, 3 and 4 are adjusted to 2001, 2002 and 2003.
    expected = {1000: 0, 1999: 0, 2000: 1, 2001: 2, 2002: 3, 2003: 4, 8999: 4, 9000: 5}
    for at, version in expected.items():
        assert log.table.snapshot(timestamp=iso(at)).version == version, at


def test_a_time_before_the_first_commit_names_the_range(log: Log) -> None:
    log.modified({version: 1_700_000_000_000 + version for version in range(6)})
    words = "2023-11-14T22:13:19.999Z is before the oldest version"
    with pytest.raises(deltic.VersionNotFoundError, match=words) as caught:
        log.table.snapshot(timestamp=iso(1_699_999_999_999))
    assert "from 2023-11-14T22:13:20.000Z (version 0) to 2023-11-14T22:13:20.005Z (version 5)" in str(caught.value)
    assert (caught.value.earliest_version, caught.value.latest_version) == (0, 5)


@pytest.mark.slow
def test_a_time_after_the_newest_commit_means_the_latest_version(log: Log) -> None:
    log.modified({version: 1_700_000_000_000 + version for version in range(6)})
    for after in (iso(1_700_000_000_006), datetime.now(timezone.utc), "9999-12-31"):
        assert log.table.snapshot(timestamp=after).version == 5
    # A version without a commit file has no time.
    log.checkpoint(5)
    log.remove(4, 5)
    assert log.table.snapshot().version == 5
    assert log.table.snapshot(timestamp=iso(1_700_000_000_003)).version == 3
    with pytest.raises(deltic.VersionNotFoundError, match="later versions have no time"):
        log.table.snapshot(timestamp=iso(1_700_000_000_006))


@pytest.mark.slow
def test_time_travel_only_to_versions_that_can_be_read(log: Log) -> None:
    log.modified({version: 1000 + version for version in range(6)})
    log.checkpoint(3)
    log.remove(0)
    # Commits 1 and 2 exist, but no state to which they could be applied.
    assert log.table.snapshot(timestamp=iso(1003)).version == 3
    for at in (1001, 1002):
        with pytest.raises(deltic.VersionNotFoundError, match="before the oldest version that can be read") as caught:
            log.table.snapshot(timestamp=iso(at))
        assert "from 1970-01-01T00:00:01.003Z (version 3)" in str(caught.value)
    assert [entry["version"] for entry in log.table.history()] == [5, 4, 3, 2, 1]


@pytest.mark.slow
def test_a_time_in_a_gap_is_refused(log: Log) -> None:
    log.modified({version: 1000 * version for version in range(6)})
    log.checkpoint(4)
    log.remove(2, 3)
    assert log.table.snapshot(timestamp=iso(500)).version == 0
    assert log.table.snapshot(timestamp=iso(4000)).version == 4
    for at in (1000, 3999):
        with pytest.raises(deltic.VersionNotFoundError, match="lacks the commits between the versions 1 and 4"):
            log.table.snapshot(timestamp=iso(at))


def enable(log: Log, times: dict[int, int], since: int | None) -> None:
    """Enable in-commit timestamps from version `since` on, and set those of commits."""

    def protocol(action: dict[str, Any]) -> None:
        action.update({"minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]})

    def metadata(action: dict[str, Any]) -> None:
        action["configuration"]["delta.enableInCommitTimestamps"] = "true"
        if since is not None:
            action["configuration"]["delta.inCommitTimestampEnablementVersion"] = str(since)
            action["configuration"]["delta.inCommitTimestampEnablementTimestamp"] = str(times[since])

    first = log.read(0)
    state = [action for action in first if "protocol" in action or "metaData" in action]
    protocol(state[0]["protocol"])
    metadata(state[1]["metaData"])
    if since is None:
        log.commit(0, [first[0], *state, first[-1]])
    else:
        log.commit(since, [*log.read(since), *state])
    for version, time_ms in times.items():
        log.edit(version, "commitInfo", lambda info, at=time_ms: info.update({"inCommitTimestamp": at}))


@pytest.mark.slow
def test_in_commit_times_from_the_beginning(log: Log) -> None:
    enable(log, {version: 1000 * version for version in range(6)}, since=None)
    log.modified(dict.fromkeys(range(6), 77))
    for at, version in {0: 0, 999: 0, 1000: 1, 4999: 4, 5000: 5}.items():
        assert log.table.snapshot(timestamp=iso(at)).version == version, at
    assert log.table.snapshot(timestamp=iso(5001)).version == 5
    with pytest.raises(deltic.VersionNotFoundError, match=r"from 1970-01-01T00:00:00.000Z"):
        log.table.snapshot(timestamp="1969-12-31")
    assert [entry["timestamp"] for entry in log.table.history()] == [5000, 4000, 3000, 2000, 1000, 0]


def test_in_commit_times_from_a_version_on(log: Log) -> None:
    enable(log, {3: 30_000, 4: 40_000, 5: 50_000}, since=3)
    # Modification times are ignored from version 3 on; those before may even be later than its timestamp.
    log.modified({0: 1000, 1: 2000, 2: 35_000, 3: 1, 4: 2, 5: 3})
    expected = {1000: 0, 2000: 1, 29_999: 1, 30_000: 3, 39_999: 3, 40_000: 4, 50_000: 5}
    for at, version in expected.items():
        assert log.table.snapshot(timestamp=iso(at)).version == version, at
    assert [entry["timestamp"] for entry in log.table.history()] == [50_000, 40_000, 30_000, 35_000, 2000, 1000]
    assert log.table.snapshot(timestamp=iso(50_001)).version == 5
    with pytest.raises(
        deltic.VersionNotFoundError, match=r"from 1970-01-01T00:00:01.000Z .version 0. to 1970-01-01T00:00:50"
    ):
        log.table.snapshot(timestamp=iso(999))
    # Without the commits before version 3, earlier times are refused.
    log.checkpoint(3)
    log.remove(0, 1, 2)
    with pytest.raises(deltic.VersionNotFoundError, match=r"from 1970-01-01T00:00:30.000Z .version 3."):
        log.table.snapshot(timestamp=iso(29_999))
    assert log.table.snapshot(timestamp=iso(30_000)).version == 3


def test_in_commit_times_that_are_switched_off_are_not_used(log: Log) -> None:
    enable(log, {version: 1000 * version for version in range(6)}, since=None)
    log.modified({version: 5000 + version for version in range(6)})
    metadata = next(action for action in log.read(0) if "metaData" in action)
    metadata["metaData"]["configuration"]["delta.enableInCommitTimestamps"] = "false"
    log.modified({log.append([metadata]): 6000})
    assert log.table.snapshot(timestamp=iso(5002)).version == 2
    assert [entry["timestamp"] for entry in log.table.history()] == [6000, 5005, 5004, 5003, 5002, 5001, 5000]


def test_a_commit_that_lacks_its_time(log: Log) -> None:
    enable(log, {version: 1000 * version for version in range(5)}, since=None)
    with pytest.raises(deltic.CorruptTableError, match="no inCommitTimestamp") as caught:
        log.table.snapshot(timestamp=iso(4500))
    assert caught.value.version == 5
    assert caught.value.path == f"_delta_log/{5:020}.json"


@pytest.mark.slow
def test_in_commit_times_are_found_by_binary_search(log: Log) -> None:
    for _ in range(6, 200):
        log.append([])
    enable(log, {version: 1000 * version for version in range(200)}, since=None)
    log.checkpoint(199)
    log.hint(199)
    for version in (0, 77, 150, 198):
        table = log.table
        snapshot = table.snapshot(timestamp=iso(1000 * version + 500))
        assert snapshot.version == version
        counts = table.request_counts()
        # One listing, the commits of the binary search, and those that the version is replayed from.
        assert counts["lists"] == 1
        assert counts["gets"] <= 12 + version + 1


# --- transactions and domains ---


@pytest.mark.slow
def test_transactions(log: Log) -> None:
    now = int(time.time() * 1000)
    log.append([{"txn": {"appId": "stream", "version": 3, "lastUpdated": now - 3 * DAY}}])
    log.append([{"txn": {"appId": "stream", "version": 4, "lastUpdated": now - 2 * DAY}}])
    log.append([{"txn": {"appId": "job", "version": -1}}, {"txn": {"appId": "job", "version": 9}}])
    assert log.table.snapshot().transaction_version("stream") == 4
    assert log.table.snapshot(6).transaction_version("stream") == 3
    assert log.table.snapshot(5).transaction_version("stream") is None
    assert log.table.snapshot().transaction_version("job") == 9
    assert log.table.snapshot().transaction_version("other") is None
    log.checkpoint(7)
    assert log.table.snapshot().transaction_version("stream") == 4
    assert log.table.snapshot().transaction_version("job") == 9


@pytest.mark.slow
@pytest.mark.parametrize(("retention", "known"), [("interval 3 days", 4), ("interval 1 day", None), (None, 4)])
def test_transactions_expire(log: Log, retention: str | None, known: int | None) -> None:
    metadata = next(action for action in log.read(0) if "metaData" in action)
    if retention is not None:
        metadata["metaData"]["configuration"]["delta.setTransactionRetentionDuration"] = retention
    then = int(time.time() * 1000) - 2 * DAY
    log.append(
        [
            metadata,
            {"txn": {"appId": "old", "version": 4, "lastUpdated": then}},
            {"txn": {"appId": "ageless", "version": 2}},
        ]
    )
    assert log.table.snapshot().transaction_version("old") == known
    assert log.table.snapshot().transaction_version("ageless") == 2


@pytest.mark.slow
def test_an_invalid_retention(log: Log) -> None:
    metadata = next(action for action in log.read(0) if "metaData" in action)
    metadata["metaData"]["configuration"]["delta.setTransactionRetentionDuration"] = "a while"
    log.append([metadata])
    with pytest.raises(deltic.CorruptTableError, match="setTransactionRetentionDuration"):
        log.table.snapshot().transaction_version("any")


def test_domains(log: Log) -> None:
    def domain(name: str, configuration: str, removed: bool = False) -> dict[str, Any]:
        return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}

    log.append([domain("a", "1"), domain("b", "2")])
    log.append([domain("a", "3"), domain("c", '{"x": "y"}')])
    log.append([domain("b", "", removed=True)])
    assert log.table.snapshot(5).domains() == {}
    assert log.table.snapshot(6).domains() == {"a": "1", "b": "2"}
    assert log.table.snapshot().domains() == {"a": "3", "c": '{"x": "y"}'}
    log.checkpoint(7)
    log.remove(*range(8))
    assert log.table.snapshot().domains() == {"a": "3", "c": '{"x": "y"}'}
