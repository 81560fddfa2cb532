"""Tables and snapshots: locations, versions, times, history, pickling."""

import os
import pickle
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltic


@pytest.fixture
def three_versions(uri: str) -> deltic.Table:
    for version in range(3):
        deltic.write(uri, pa.table({"v": [version]}), user_metadata=f"commit {version}")
    return deltic.Table(uri)


def test_a_table_does_no_io_until_asked() -> None:
    table = deltic.Table("/nowhere/at/all")
    assert not any(table.request_counts().values())
    assert "nowhere" in repr(table)


def test_exists(uri: str) -> None:
    table = deltic.Table(uri)
    assert not table.exists()
    deltic.write(uri, pa.table({"a": [1]}))
    assert table.exists()


@pytest.mark.parametrize("form", [str, Path, lambda uri: Path(uri).as_uri(), lambda uri: uri + "/"])
def test_locations_of_every_form_name_the_same_table(uri: str, form) -> None:  # type: ignore[no-untyped-def]
    deltic.write(uri, pa.table({"a": [1]}))
    assert deltic.Table(form(uri)).scan().to_arrow().num_rows == 1
    assert deltic.Table(form(uri)) == deltic.Table(uri)


def test_a_location_with_spaces_and_percent_signs(tmp_path: Path) -> None:
    uri = str(tmp_path / "a b %20 ünï#?")
    deltic.write(uri, pa.table({"a": [1]}))
    assert Path(uri, "_delta_log").is_dir()
    assert deltic.Table(uri).scan().to_arrow().num_rows == 1


def test_a_relative_location_stays_where_it_was(uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(Path(uri).parent)
    deltic.write("table", pa.table({"a": [1]}))
    table = deltic.Table("table")
    monkeypatch.chdir("/")
    assert table.exists()
    assert pickle.loads(pickle.dumps(table)).exists()


def test_memory_tables_live_in_the_process() -> None:
    deltic.write("memory://kept/here", pa.table({"a": [1]}))
    assert deltic.Table("memory://kept/here").scan().to_arrow().num_rows == 1
    assert not deltic.Table("memory://kept/there").exists()


def test_snapshot_attributes(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.date32())])
    properties = {"delta.checkpointInterval": "7", "owner": "ops"}
    deltic.create(uri, schema, partition_by=["day"], properties=properties, name="n", description="d")
    snapshot = deltic.Table(uri).snapshot()
    assert snapshot.version == 0
    assert snapshot.schema.equals(schema)
    assert snapshot.partition_columns == ["day"]
    assert snapshot.properties == properties
    assert snapshot.num_files == 0
    assert (snapshot.metadata["name"], snapshot.metadata["description"]) == ("n", "d")
    assert snapshot.protocol["minReaderVersion"] >= 1
    assert "version=0" in repr(snapshot)


def test_a_snapshot_is_immutable(three_versions: deltic.Table) -> None:
    snapshot = three_versions.snapshot()
    deltic.write(three_versions.uri, pa.table({"v": [3]}))
    assert snapshot.version == 2
    assert snapshot.scan().to_arrow().num_rows == 3
    assert three_versions.snapshot().version == 3


def test_versions(three_versions: deltic.Table) -> None:
    for version in range(3):
        rows = three_versions.snapshot(version).scan().to_arrow()["v"].to_pylist()
        assert sorted(rows) == list(range(version + 1))


def test_timestamps(three_versions: deltic.Table) -> None:
    times = {entry["version"]: entry["timestamp"] for entry in three_versions.history()}
    log = Path(three_versions.uri, "_delta_log")
    for version in range(3):  # a second apart, so that every form of a time distinguishes them
        times[version] = 1_700_000_000_000 + version * 1000
        os.utime(log / f"{version:020}.json", (times[version] / 1000, times[version] / 1000))
    for version in range(3):
        at = datetime.fromtimestamp(times[version] / 1000, timezone.utc)
        assert three_versions.snapshot(timestamp=at).version == version
        assert three_versions.snapshot(timestamp=at.isoformat()).version == version
        assert three_versions.snapshot(timestamp=at.strftime("%Y-%m-%dT%H:%M:%SZ")).version == version
        assert three_versions.snapshot(timestamp=at.replace(tzinfo=None)).version == version, "no offset means UTC"
        east = at.astimezone(timezone(timedelta(hours=9)))
        assert three_versions.snapshot(timestamp=east.isoformat()).version == version
    assert three_versions.snapshot(timestamp=at - timedelta(milliseconds=1)).version == 1
    assert three_versions.snapshot(timestamp=at + timedelta(days=1)).version == 2
    with pytest.raises(deltic.VersionNotFoundError):
        three_versions.snapshot(timestamp="1999-01-01")


@pytest.mark.parametrize("timestamp", ["yesterday", "2013-13-01", 3])
def test_invalid_timestamps(three_versions: deltic.Table, timestamp: object) -> None:
    with pytest.raises(deltic.InvalidInputError, match="ISO 8601"):
        three_versions.snapshot(timestamp=timestamp)  # type: ignore[arg-type]


def test_version_and_timestamp_together_are_refused(three_versions: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError):
        three_versions.snapshot(version=1, timestamp="2030-01-01")


def test_history(three_versions: deltic.Table) -> None:
    history = three_versions.history()
    assert [entry["version"] for entry in history] == [2, 1, 0]
    assert [entry["userMetadata"] for entry in history] == ["commit 2", "commit 1", "commit 0"]
    assert all(isinstance(entry["timestamp"], int) and "operation" in entry for entry in history)
    assert len(three_versions.history(limit=2)) == 2
    assert three_versions.history(limit=0) == []


def test_history_reads_only_as_many_commits_as_its_limit(three_versions: deltic.Table) -> None:
    def gets(limit: int | None) -> int:
        table = deltic.Table(three_versions.uri)
        table.history(limit)
        return table.request_counts()["gets"]

    assert gets(1) < gets(None)


def test_checkpoint(three_versions: deltic.Table) -> None:
    assert three_versions.checkpoint() == 2
    log = Path(three_versions.uri.removeprefix("file://"), "_delta_log")
    assert (log / f"{2:020}.checkpoint.parquet").is_file()
    assert (log / "_last_checkpoint").is_file()
    (log / f"{0:020}.json").unlink()
    assert three_versions.scan().to_arrow().num_rows == 3


def test_a_checkpoint_is_written_at_the_interval(uri: str) -> None:
    deltic.create(uri, pa.schema([("v", pa.int64())]), properties={"delta.checkpointInterval": "3"})
    for version in range(1, 8):
        assert deltic.write(uri, pa.table({"v": [version]})).version == version
    found = sorted(path.name for path in Path(uri, "_delta_log").glob("*.checkpoint.parquet"))
    assert found == [f"{3:020}.checkpoint.parquet", f"{6:020}.checkpoint.parquet"]
    assert deltic.Table(uri).scan().to_arrow().num_rows == 7


def test_the_interval_is_ten_unless_a_property_says_otherwise(uri: str) -> None:
    for version in range(12):
        deltic.write(uri, pa.table({"v": [version]}))
    found = [path.name for path in Path(uri, "_delta_log").glob("*.checkpoint.parquet")]
    assert found == [f"{10:020}.checkpoint.parquet"]
    assert deltic.Table(uri).scan().to_arrow().num_rows == 12
    assert deltic.Table(uri).snapshot(11).num_files == 12


def test_pickles(three_versions: deltic.Table) -> None:
    table = pickle.loads(pickle.dumps(three_versions))
    assert table == three_versions
    assert table.snapshot().version == 2
    snapshot = pickle.loads(pickle.dumps(three_versions.snapshot(1)))
    assert snapshot.version == 1
    assert snapshot.scan().to_arrow().num_rows == 2


def test_credentials_stay_out_of_sight() -> None:
    options = {"aws_access_key_id": "AKIAVISIBLE", "aws_secret_access_key": "hunter2", "aws_region": "eu-west-1"}
    table = deltic.Table("s3://bucket/table", options)
    assert "hunter2" not in repr(table)
    assert "AKIAVISIBLE" not in repr(table)
    again = pickle.loads(pickle.dumps(table))
    assert again.storage_options == options


def test_a_signature_in_a_url_is_pickled_but_not_shown() -> None:
    clean, signature = "https://account.blob.core.windows.net/c/t", "sv=1&sig=hunter2"
    table = deltic.Table(f"{clean}?{signature}", {"timeout": "5s"})
    again = pickle.loads(pickle.dumps(table))
    assert again == table
    for handle in (table, again):
        assert handle.uri == clean
        assert handle.storage_options == {"timeout": "5s", "azure_storage_sas_token": signature}
        assert "hunter2" not in repr(handle)
    with pytest.raises(deltic.InvalidInputError, match="name and password") as caught:
        deltic.Table("https://me:hunter2@example.com/t")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", [-1, True, 1.5, "1", 1 << 70])
def test_numbers_that_the_core_cannot_take(uri: str, value: Any) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    table = deltic.Table(uri)
    for call, argument in (
        (lambda: table.snapshot(value), "version"),
        (lambda: table.check(value), "version"),
        (lambda: table.history(value), "limit"),
        (lambda: table.compact_log(value, 1), "start"),
        (lambda: table.compact_log(0, value), "end"),
        (lambda: table.plan().task_groups(value), "n"),
        (lambda: table.scan().to_reader(value), "batch_size"),
    ):
        with pytest.raises(deltic.InvalidInputError, match=f"^{argument} must be a whole number"):
            call()
    with pytest.raises(deltic.InvalidInputError, match="batch_size must be a whole number from 1"):
        table.scan().to_reader(0)


def test_opening_costs_the_same_for_one_file_and_for_many(tmp_path: Path) -> None:
    counts = []
    for files in (1, 40):
        uri = str(tmp_path / str(files))
        rows = pa.table({"part": list(range(files)), "v": [0] * files})
        deltic.write(uri, rows, partition_by=["part"])
        table = deltic.Table(uri)
        table.snapshot()
        counts.append({kind: count for kind, count in table.request_counts().items() if not kind.startswith("bytes")})
    assert counts[0] == counts[1]
