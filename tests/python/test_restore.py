"""RESTORE from Python: the table equals the older version, and ids assigned since are not assigned again."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import FEED, IDS, PROPERTIES, TIMES, VECTORS, Changed, ids, key, label, same
from log_files import Log

import deltic
from deltic.cli import main


@pytest.fixture
def table(uri: str) -> deltic.Table:
    """Versions 0 to 2, each with a different row."""
    for value in range(3):
        deltic.write(uri, pa.table({"id": [value]}), mode="overwrite")
    return deltic.Table(uri)


def test_the_version_is_restored_and_recorded(table: deltic.Table) -> None:
    sizes = [next(table.snapshot(v).files())["size"][0].as_py() for v in range(3)]
    planned = table.restore(0, dry_run=True)
    assert (planned.dry_run, planned.version, table.snapshot().version) == (True, None, 2)
    result = table.restore(0, user_metadata="back", commit_info={"job_name": "night"})
    assert (result.version, result.restored_version, result.missing) == (3, 0, [])
    assert ids(table) == [0]
    assert ids(table.snapshot(2)) == [2]
    entry = table.history(1)[0]
    assert (entry["operation"], entry["userMetadata"], entry["job_name"]) == ("RESTORE", "back", "night")
    assert entry["operationParameters"] == {"version": 0, "timestamp": None}
    expected = {
        "numRestoredFiles": 1,
        "restoredFilesSize": sizes[0],
        "numRemovedFiles": 1,
        "removedFilesSize": sizes[2],
        "numOfFilesAfterRestore": 1,
        "tableSizeAfterRestore": sizes[0],
    }
    assert {name: int(count) for name, count in entry["operationMetrics"].items()} == expected
    assert planned.to_dict() == {**result.to_dict(), "dry_run": True, "version": None}
    files = [file for kind in ("add", "remove") for file in Log(table.uri).of(3, kind)]
    assert all(file["dataChange"] for file in files)
    assert table.check(files=True).ok


def test_a_version_by_its_time(table: deltic.Table) -> None:
    times = [entry["timestamp"] for entry in reversed(table.history())]
    with pytest.raises(deltic.VersionNotFoundError):
        table.restore(timestamp="1999-01-01")
    result = table.restore(timestamp=pa.scalar(times[1], pa.timestamp("ms", "UTC")).as_py())
    assert (result.restored_version, ids(table)) == (1, [1])
    shown = pa.scalar(times[1], pa.timestamp("ms")).as_py().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    assert table.history(1)[0]["operationParameters"] == {"version": None, "timestamp": shown}


def test_the_newest_version_is_nothing_to_restore(table: deltic.Table) -> None:
    before = table.files().read_all()
    planned = table.restore(2, dry_run=True)
    for result in (table.restore(2), table.restore(timestamp="2999-01-01")):
        assert (result.version, result.restored_version) == (None, 2)
        assert (result.num_restored_files, result.num_removed_files) == (0, 0)
        assert result.num_of_files_after_restore == len(before) == planned.num_of_files_after_restore
        assert "nothing: this is the newest version" in repr(result)
    assert planned.version is None
    assert table.snapshot().version == 2
    assert table.restore(2, app_id="a", app_version=1).version == 3
    assert table.snapshot().transaction_version("a") == 1
    assert table.files().read_all() == before


def test_invalid_versions_are_refused(table: deltic.Table) -> None:
    with pytest.raises(deltic.VersionNotFoundError):
        table.restore(7)
    with pytest.raises(deltic.InvalidInputError, match="give the version to restore, or a timestamp"):
        table.restore()
    with pytest.raises(deltic.InvalidInputError, match="give the version to restore, or a timestamp"):
        table.restore(0, "2020-01-01")
    with pytest.raises(deltic.InvalidInputError, match="dry_run must be"):
        table.restore(0, dry_run="yes")  # type: ignore[arg-type]
    with pytest.raises(deltic.TableNotFoundError):
        deltic.Table(table.uri + "x").restore(0)
    assert table.snapshot().version == 2


@pytest.mark.slow
def test_missing_files_are_reported_before_the_restore(uri: str) -> None:
    for value in range(15):
        deltic.write(uri, pa.table({"id": [value]}))
    table = deltic.Table(uri)
    paths = [path.as_py() for batch in table.files() for path in batch["path"]]
    table.delete()
    for path in paths[:12]:
        (Path(uri) / path).unlink()
    before = table.snapshot().version
    with pytest.raises(
        deltic.InvalidInputError, match=r"12 of its files do not exist any more, such as .* and 2 others"
    ):
        table.restore(before - 1)
    assert table.snapshot().version == before
    planned = table.restore(before - 1, dry_run=True)
    assert sorted(planned.missing) == sorted(paths[:12])
    assert planned.refused
    assert "would be: refused" in repr(planned)
    assert not table.restore(before - 1, ignore_missing_files=True, dry_run=True).refused
    assert main(["restore", uri, "--version", str(before - 1), "--dry-run"]) == 1
    assert (planned.num_restored_files, planned.num_of_files_after_restore) == (3, 3)
    result = table.restore(before - 1, ignore_missing_files=True)
    assert (result.num_restored_files, sorted(result.missing)) == (3, sorted(paths[:12]))
    assert len(ids(table)) == 3
    assert table.check(files=True).ok


def test_live_files_are_not_looked_up(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    deltic.write(uri, pa.table({"id": [2]}))
    table = deltic.Table(uri)
    (path,) = (path.as_py() for batch in table.snapshot(0).files() for path in batch["path"])
    (Path(uri) / path).unlink()
    assert table.restore(0).num_restored_files == 0


def test_a_missing_deletion_vector_is_noticed(uri: str) -> None:
    deltic.write(uri, pa.table({"id": range(10)}), properties=VECTORS)
    table = deltic.Table(uri)
    table.delete("id = 3")
    (vector,) = Path(uri).glob("deletion_vector_*.bin")
    table.delete("id = 4")
    vector.unlink()
    with pytest.raises(deltic.InvalidInputError, match=vector.name):
        table.restore(1)
    assert table.restore(1, dry_run=True).missing == [vector.name]
    assert table.restore(0).num_restored_files == 1
    assert ids(table) == list(range(10))


def test_one_path_with_two_vectors_is_two_files(uri: str) -> None:
    deltic.write(uri, pa.table({"id": range(10)}), properties={**VECTORS, **FEED})
    table = deltic.Table(uri)
    table.delete("id = 3")
    table.delete("id = 4")
    result = table.restore(1)
    assert (result.num_restored_files, result.num_removed_files) == (1, 1)
    assert ids(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    changes = table.changes(3, 3).to_arrow().to_pylist()
    assert [(row["id"], row["_change_type"]) for row in changes] == [(4, "insert")]
    assert table.check(files=True).ok


def test_schema_properties_and_partitioning_are_back(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "p": ["a"]}), properties={"delta.checkpointInterval": "7"})
    table = deltic.Table(uri)
    before = table.snapshot().metadata
    deltic.write(uri, pa.table({"id": [2], "q": [1.5]}), mode="overwrite", schema_mode="overwrite")
    table.set_properties({"delta.checkpointInterval": "9", "mine": "1"})
    table.set_name("later")
    table.restore(0)
    assert table.snapshot().metadata == before
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "p": "a"}]


def test_column_ids_are_not_assigned_again(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}), properties={"delta.columnMapping.mode": "name"})
    table = deltic.Table(uri)
    table.add_columns([deltic.field("a", pa.int64()), deltic.field("b", pa.int64())])
    table.restore(0)
    assert table.snapshot().properties["delta.columnMapping.maxColumnId"] == "3"
    table.add_columns([deltic.field("c", pa.int64())])
    fields = json.loads(table.snapshot().metadata["schemaString"])["fields"]
    assert [field["metadata"]["delta.columnMapping.id"] for field in fields] == [1, 4]


def test_renamed_columns_have_their_names_and_rows_back(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "v": ["x"]}), properties={"delta.columnMapping.mode": "name"})
    table = deltic.Table(uri)
    table.rename_column("v", "w")
    deltic.write(uri, pa.table({"id": [2], "w": ["y"]}))
    table.drop_columns(["w"])
    table.restore(1)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "w": "x"}]
    table.restore(0)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": "x"}]


def test_the_protocol_is_lowered_only_if_that_is_allowed(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    old = table.snapshot().protocol
    table.set_properties(VECTORS)
    deltic.write(uri, pa.table({"id": [2]}))
    new = table.snapshot().protocol
    assert new != old
    table.restore(0)
    assert table.snapshot().protocol == new
    assert "delta.enableDeletionVectors" not in table.snapshot().properties
    table.restore(2)
    table.restore(0, protocol_downgrade_allowed=True)
    assert table.snapshot().protocol == old
    # The dropped feature comes back with the version that uses it.
    table.restore(2)
    assert (table.snapshot().protocol, ids(table)) == (new, [1, 2])


@pytest.mark.slow
def test_checkpoints_stay_protected_where_the_protocol_is_lowered(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    table.set_properties(VECTORS)
    deltic.write(uri, pa.table({"id": [2, 3]}))
    table.delete("id = 2")
    table.purge()
    table.drop_feature("deletionVectors")
    key = "delta.requireCheckpointProtectionBeforeVersion"
    before = table.snapshot().properties[key]
    table.restore(0, protocol_downgrade_allowed=True)
    after = table.snapshot()
    assert after.protocol["writerFeatures"] == ["appendOnly", "checkpointProtection", "invariants"]
    assert after.properties == {key: before}
    assert ids(table) == [1]


def test_in_commit_timestamps_increase(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    table.set_properties(TIMES)
    provenance = {k: v for k, v in table.snapshot().properties.items() if k.startswith("delta.inCommitTimestamp")}
    assert len(provenance) == 2
    deltic.write(uri, pa.table({"id": [2]}))
    table.restore(0)
    assert {k: v for k, v in table.snapshot().properties.items() if "ommitTimestamp" in k} == {**TIMES, **provenance}
    times = [Log(table.uri).of(v, "commitInfo")[0]["inCommitTimestamp"] for v in range(1, 4)]
    assert times == sorted(set(times))
    table.set_properties({"delta.enableInCommitTimestamps": "false"})
    table.restore(2)
    # In-commit timestamps are enabled again, from the version of this commit on.
    properties = table.snapshot().properties
    assert properties["delta.enableInCommitTimestamps"] == "true"
    assert properties["delta.inCommitTimestampEnablementVersion"] == str(table.snapshot().version)


def test_clustering_columns_are_those_of_the_version(uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    deltic.create(uri, schema, cluster_by=["id"])
    table = deltic.Table(uri)
    deltic.write(uri, pa.table({"id": [1], "v": [2]}))
    table.cluster_by(["v"])
    table.restore(1)
    assert table.detail().clustering_columns == ["id"]
    assert table.restore(0).version == 4
    assert Log(table.uri).of(4, "domainMetadata") == []
    table.restore(2)
    assert table.detail().clustering_columns == ["v"]


def test_applications_and_domains_of_users_stay(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    table.add_feature("domainMetadata")
    with table.transaction(app_id="stream", app_version=5) as tx:
        tx.set_domain("mine", "{}")
    table.restore(0)
    snapshot = table.snapshot()
    assert snapshot.transaction_version("stream") == 5
    result = table.restore(2, app_id="stream", app_version=5)
    assert (result.version, table.snapshot().version) == (3, 3)


def test_an_append_only_table_loses_no_file(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}), properties={"delta.appendOnly": "true"})
    deltic.write(uri, pa.table({"id": [2]}))
    table = deltic.Table(uri)
    with pytest.raises(deltic.InvalidInputError, match="append-only"):
        table.restore(0)
    table.set_properties({"mine": "1"})
    assert table.restore(1).num_removed_files == 0
    assert "mine" not in table.snapshot().properties


def test_a_version_before_row_tracking_was_dropped_is_refused(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}), properties=IDS)
    table = deltic.Table(uri)
    table.drop_feature("rowTracking")
    with pytest.raises(deltic.InvalidInputError, match="row tracking was dropped"):
        table.restore(0)
    deltic.write(table, pa.table({"id": [2, 3]}))
    table.enable_row_tracking()
    with pytest.raises(deltic.InvalidInputError, match="have other ids now"):
        table.restore(0)
    # It is allowed if no row with ids is left.
    table.delete()
    table.restore(0)
    deltic.write(table, pa.table({"id": [4]}))
    rows = table.scan(columns=["id", "_metadata.row_id"]).to_arrow().sort_by("id")
    first, new = rows["_metadata.row_id"].to_pylist()
    assert first == 0 < new
    assert table.check(files=True).ok


def test_row_ids_differ_after_a_version_without_them_was_restored(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    table = deltic.Table(uri)
    table.enable_row_tracking()
    tracked = table.snapshot().version
    table.delete()
    table.restore(0)
    table.enable_row_tracking()
    with pytest.raises(deltic.InvalidInputError, match=r"have other ids now.* a version without it was restored"):
        table.restore(tracked)
    assert table.scan(columns=["_metadata.row_id"]).to_arrow()["_metadata.row_id"].to_pylist() == [1]


def test_after_a_vacuum_what_is_left_can_be_restored(table: deltic.Table) -> None:
    table.vacuum(0, force=True)
    with pytest.raises(deltic.InvalidInputError, match="1 of its files do not exist any more"):
        table.restore(1)
    assert table.restore(2).num_restored_files == 0


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("properties", PROPERTIES, ids=label)
def test_any_version_can_be_restored(uri: str, properties: dict[str, str], partitioned: bool) -> None:
    """Random histories: rows, changes and row ids after each restore, and later writes."""
    rng = random.Random(f"{properties} {partitioned}")
    properties = properties if rng.random() < 0.5 else {**properties, **TIMES}
    changed = Changed.create(uri, properties, partitioned)
    table = deltic.Table(uri)
    was: dict[int, tuple[dict[int, dict[str, Any]], dict[int, Any], Any]] = {}

    def ids() -> dict[int, Any]:
        if "delta.enableRowTracking" not in properties:
            return {}
        columns = ["n", "_metadata.row_id", "_metadata.row_commit_version"]
        rows = table.scan(columns=columns).to_arrow().to_pylist()
        return {row["n"]: (row["_metadata.row_id"], row["_metadata.row_commit_version"]) for row in rows}

    for step in range(9):
        kind = (
            rng.choice(["append", "delete", "optimize", "checkpoint", "restore", "restore"]) if step > 2 else "append"
        )
        if kind == "append":
            changed.append(rng, rng.randrange(1, 9))
        elif kind == "delete":
            gone = rng.choice(["a", "b", "c"]) if rng.random() < 0.3 else rng.randrange(9)
            column = "p" if isinstance(gone, str) else "k"
            table.delete(f"{column} = {gone!r}")
            left = {n: row for n, row in changed.rows.items() if row[column] != gone}
            if table.snapshot().version not in was:
                changed.check(left, set())
        elif kind == "optimize":
            table.optimize()
        elif kind == "checkpoint":
            table.checkpoint()
        else:
            version = rng.choice(sorted(was)[:-1])
            before = Counter(map(key, changed.rows.values()))
            result = table.restore(version)
            rows, row_ids, schema = was[version]
            same(Counter(map(key, table.scan().to_arrow().to_pylist())), Counter(map(key, rows.values())))
            assert table.snapshot().schema == schema
            assert ids() == row_ids
            assert table.check(files=True).ok
            if "delta.enableChangeDataFeed" in properties:
                for row in table.changes(result.version, result.version).to_arrow().to_pylist():
                    before[key(row)] += 1 if row["_change_type"] == "insert" else -1
                same(+before, Counter(map(key, rows.values())))
            changed.rows = rows
        was[table.snapshot().version] = (changed.rows, ids(), table.snapshot().schema)


def test_the_command_line(table: deltic.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", table.uri, "--version", "1", "--dry-run"]) == 0
    assert "would add" in capsys.readouterr().out
    assert main(["restore", table.uri, "--version", "1", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["version"], output["restored_version"], output["missing"]) == (3, 1, [])
    assert ids(table) == [1]
    assert main(["restore", table.uri]) == 1
    assert "give the version to restore" in capsys.readouterr().err
    assert main(["restore", table.uri, "--version", "9"]) == 1
    assert main(["restore", table.uri, "--timestamp", "2999-01-01"]) == 0
