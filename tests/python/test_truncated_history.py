"""`drop_feature` with `truncate_history`: the log of versions with traces is deleted, and nothing before it may be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from log_files import Log

import deltic
from deltic import InvalidInputError, Table, VersionNotFoundError

DAY = 24 * 60 * 60
VECTORS = {"delta.enableDeletionVectors": "true"}
CLASSIC_V2 = {"delta.checkpointPolicy": "v2"}


def age(uri: str, days: float, upto: int | None = None) -> None:
    """Make the files of the log older, those of versions after `upto` excepted."""
    for path in Path(uri, "_delta_log").iterdir():
        if path.name[0].isdigit() and (upto is None or int(path.name[:20]) <= upto):
            modified = path.stat().st_mtime - days * DAY
            os.utime(path, (modified, modified))


def commits(uri: str) -> list[int]:
    return sorted(int(path.stem) for path in Path(uri, "_delta_log").glob("*.json") if path.stem.isdigit())


def contents(uri: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(uri).rglob("*") if path.is_file()}


def features(table: Table) -> set[str]:
    protocol = table.snapshot().protocol
    return set(protocol.get("writerFeatures", [])) | set(protocol.get("readerFeatures", []))


def ids(table: Table) -> list[int]:
    found: list[int] = sorted(table.scan().to_arrow()["a"].to_pylist())
    return found


def with_vector(uri: str) -> Table:
    """Version 2: a file with a deletion vector."""
    deltic.write(uri, pa.table({"a": [1, 2, 3]}), properties=VECTORS)
    table = Table(uri)
    deltic.write(table, pa.table({"a": [4]}))
    table.delete("a = 2")
    return table


def refused(table: Table, feature: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        table.drop_feature(feature, truncate_history=True)


def test_a_feature_is_dropped_once_versions_with_traces_are_old(uri: str) -> None:
    table = with_vector(uri)
    # The property goes at version 3, the vector at 4; the commit that removes the file with the vector has it, too.
    refused(table, "deletionVectors", r"versions before 5 have traces .*delta\.dropFeatureTruncateHistory")
    assert table.snapshot().version == 5
    assert "deletionVectors" in features(table)
    assert (ids(table), commits(uri)) == ([1, 3, 4], [0, 1, 2, 3, 4, 5])

    untouched = contents(uri)
    age(uri, 0.9)
    refused(table, "deletionVectors", "versions before 5")
    assert contents(uri) == untouched

    deltic.write(table, pa.table({"a": [5]}))
    age(uri, 0.2, upto=5)
    commit = table.drop_feature("deletionVectors", truncate_history=True)
    assert commit.version == 7
    assert features(table).isdisjoint({"deletionVectors", "checkpointProtection"})
    assert table.snapshot().protocol["minReaderVersion"] == 1
    assert "delta.requireCheckpointProtectionBeforeVersion" not in table.snapshot().properties
    entry = table.history(1)[0]
    assert entry["operation"] == "DROP FEATURE"
    assert entry["operationParameters"] == {"featureName": "deletionVectors", "truncateHistory": True}
    # Versions from the first without traces on remain, older ones are gone.
    assert commits(uri) == [5, 6, 7]
    assert table.snapshot(version=5).scan().to_arrow().num_rows == 3
    with pytest.raises(VersionNotFoundError):
        table.snapshot(version=4)
    deltic.write(table, pa.table({"a": [6]}))
    assert ids(table) == [1, 3, 4, 5, 6]
    assert table.check(files=True).ok


def test_the_retention_is_a_property(uri: str) -> None:
    table = with_vector(uri)
    table.set_properties({"delta.dropFeatureTruncateHistory.retentionDuration": "interval 2 days"})
    refused(table, "deletionVectors", "versions before 6")
    age(uri, 1.5)
    refused(table, "deletionVectors", "versions before 6")
    age(uri, 0.6)
    assert table.drop_feature("deletionVectors", truncate_history=True).version == 7
    assert commits(uri) == [6, 7]


@pytest.mark.parametrize(
    ("feature", "enable"),
    [
        ("columnMapping", lambda t: t.set_properties({"delta.columnMapping.mode": "name"})),
        ("v2Checkpoint", lambda t: t.set_properties(CLASSIC_V2)),
    ],
)
def test_metadata_and_checkpoints_are_traces(uri: str, feature: str, enable: Callable[[Table], object]) -> None:
    deltic.write(uri, pa.table({"a": [1, 2]}))
    table = Table(uri)
    enable(table)
    deltic.write(table, pa.table({"a": [3]}))
    table.checkpoint()
    refused(table, feature, "versions before 3")
    age(uri, 1.1)
    commit = table.drop_feature(feature, truncate_history=True)
    assert commits(uri) == list(range(3, commit.version + 1))
    assert feature not in features(table)
    assert table.snapshot().properties == {}
    assert ids(table) == [1, 2, 3]
    assert table.check(files=True).ok


@pytest.mark.parametrize("feature", ["vacuumProtocolCheck", "typeWidening", "deletionVectors"])
def test_a_feature_without_traces_is_dropped_at_once(uri: str, feature: str) -> None:
    deltic.write(uri, pa.table({"a": [1, 2]}))
    table = Table(uri)
    table.add_feature(feature)
    assert table.drop_feature(feature, truncate_history=True).version == 2
    assert feature not in features(table)
    assert commits(uri) == [0, 1, 2]


def test_features_that_need_no_truncation(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}), properties={"delta.enableChangeDataFeed": "true"})
    table = Table(uri)
    table.add_feature("domainMetadata")
    before = contents(uri)
    refused(table, "domainMetadata", "leave truncate_history out")
    assert contents(uri) == before


def test_the_tail_of_metadata_with_traces_counts(uri: str) -> None:
    """Commits without traces under metadata that have the feature enabled are traces all the same."""
    table = with_vector(uri)
    table.purge()
    for number in (10, 11):
        deltic.write(table, pa.table({"a": [number]}))
    assert table.snapshot().version == 5
    refused(table, "deletionVectors", "versions before 6")


def test_protected_checkpoints_are_deleted_at_once_or_not_at_all(uri: str) -> None:
    table = with_vector(uri)
    table.add_feature("vacuumProtocolCheck")
    protected = table.drop_feature("deletionVectors").version
    assert "checkpointProtection" in features(table)
    with pytest.raises(InvalidInputError, match="truncate_history=True"):
        table.drop_feature("checkpointProtection")
    # Nothing before the protected version has traces of the other feature.
    table.drop_feature("vacuumProtocolCheck", truncate_history=True)
    assert commits(uri)[0] == 0

    table.set_properties({"delta.columnMapping.mode": "name"})
    refused(table, "columnMapping", rf"versions before {protected + 3}")
    refused(table, "checkpointProtection", rf"versions before {protected} ")
    age(uri, 1.1, upto=protected - 1)
    refused(table, "checkpointProtection", rf"versions before {protected} ")
    assert commits(uri)[0] == 0
    age(uri, 1.1)
    dropped = table.drop_feature("checkpointProtection", truncate_history=True)
    assert commits(uri) == list(range(protected, dropped.version + 1))
    assert "checkpointProtection" not in features(table)
    assert "delta.requireCheckpointProtectionBeforeVersion" not in table.snapshot().properties
    table.drop_feature("columnMapping", truncate_history=True)
    assert commits(uri)[0] == protected + 3
    assert table.check(files=True).ok


def test_versions_that_are_still_to_come_can_be_protected(uri: str) -> None:
    """Of such a table no version is made, since it would take many."""
    table = with_vector(uri)
    version = table.drop_feature("deletionVectors").version
    log = Log(uri)
    metadata = next(action for action in log.read(version) if "metaData" in action)
    metadata["metaData"]["configuration"]["delta.requireCheckpointProtectionBeforeVersion"] = "100"
    log.commit(version + 1, [metadata])
    age(uri, 3)
    untouched = contents(uri)
    for _ in range(2):
        refused(
            Table(uri), "checkpointProtection", rf"before version 100 are protected .*newest version is {version + 1}"
        )
    assert contents(uri) == untouched


def test_older_traces_than_protected_checkpoints(uri: str) -> None:
    """The log is kept from the protected version on, though traces end before it."""
    deltic.write(uri, pa.table({"a": [1]}))
    table = Table(uri)
    table.set_properties({"delta.columnMapping.mode": "name", **VECTORS})
    refused(table, "columnMapping", "versions before 2 ")
    protected = table.drop_feature("deletionVectors").version
    refused(table, "columnMapping", rf"versions before {protected} ")
    age(uri, 1.1)
    table.drop_feature("columnMapping", truncate_history=True)
    assert commits(uri)[0] == protected
    assert "checkpointProtection" in features(table)
    assert table.check(files=True).ok


def test_a_crash_is_repeated(uri: str) -> None:
    """Log files are deleted oldest first; if a process dies meanwhile, the next call goes on."""
    table = with_vector(uri)
    refused(table, "deletionVectors", "versions before 5")
    age(uri, 1.1)
    for version in range(4):
        Path(uri, "_delta_log", f"{version:020}.json").unlink()
    assert ids(Table(uri)) == [1, 3, 4]
    assert table.drop_feature("deletionVectors", truncate_history=True).version == 6
    assert commits(uri) == [5, 6]


def test_a_crash_before_the_empty_commit_is_repeated(uri: str) -> None:
    table = with_vector(uri)
    table.unset_properties("delta.enableDeletionVectors")
    table.purge()
    assert table.snapshot().version == 4
    age(uri, 3)
    # The commit that removes the file with the vector is the newest one: the log can only be cut after it.
    refused(table, "deletionVectors", "versions before 5")
    assert table.snapshot().version == 5
    age(uri, 1.1)
    assert table.drop_feature("deletionVectors", truncate_history=True).version == 6


def test_a_damaged_checkpoint_keeps_the_log(uri: str) -> None:
    table = with_vector(uri)
    refused(table, "deletionVectors", "versions before 5")
    age(uri, 1.1)
    Path(uri, "_delta_log", f"{5:020}.checkpoint.parquet").write_bytes(b"PAR1 damaged PAR1")
    table.drop_feature("deletionVectors", truncate_history=True)
    assert commits(uri) == [5, 6]
    assert ids(table) == [1, 3, 4]
    assert table.check(files=True).ok


def test_in_commit_timestamps_decide(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}), properties={**VECTORS, "delta.enableInCommitTimestamps": "true"})
    table = Table(uri)
    refused(table, "deletionVectors", "versions before 1 ")
    age(uri, 30)
    refused(table, "deletionVectors", "versions before 1 ")


def test_a_log_with_a_gap_is_not_truncated(uri: str) -> None:
    """A compaction may have the missing commit; a checkpoint of one of its versions would make it unused."""
    table = with_vector(uri)
    table.purge()
    table.unset_properties(["delta.enableDeletionVectors"])
    for value in range(3):
        deltic.write(table, pa.table({"a": [value]}))
    age(uri, 3)
    log = Path(uri, "_delta_log")
    version = table.snapshot().version
    paths = [log / f"{number:020}.json" for number in range(version - 2, version + 1)]
    adds = [line for path in paths for line in path.read_text().splitlines() if line.startswith('{"add"')]
    (log / f"{version - 2:020}.{version:020}.compacted.json").write_text("\n".join(adds) + "\n")
    paths[1].unlink()
    assert ids(Table(uri)) == [0, 1, 1, 2, 3, 4]
    before = contents(uri)
    with pytest.raises(deltic.UnsupportedFeatureError, match=f"lacks the commit of version {version - 1}"):
        table.drop_feature("deletionVectors", truncate_history=True)
    assert contents(uri) == before
