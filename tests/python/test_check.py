"""`Table.check`: redundant facts, as in checksums, checkpoints and commits, are compared; differences are reported."""

import json
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, ENTRIES, for_each
from log_files import Action, Log

import deltic

HINT = "_delta_log/_last_checkpoint"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Versions 0 to 5, with a complete and correct checksum, checkpoint and hint."""
    log = Log(str(tmp_path / "table"), commits=5)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    add = next(action["add"] for action in log.read(2) if "add" in action)
    removed = next(action["add"] for action in log.read(1) if "add" in action)
    remove = {"path": removed["path"], "dataChange": True, "deletionTimestamp": 4_000_000_000_000}
    replaced = {"path": add["path"], "dataChange": True, "deletionTimestamp": 4_000_000_000_000}
    log.append(
        [
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features("deletionVectors")}},
            {"add": {**add, "deletionVector": vector, "size": add["size"]}},
            {"remove": remove},
            {"remove": replaced},
            {"txn": {"appId": "stream", "version": 4, "lastUpdated": 1}},
            {"domainMetadata": {"domain": "mine", "configuration": "{}", "removed": False}},
        ]
    )
    log.checksum(5)
    log.checkpoint(5)
    log.hint(5)
    return log


def features(*names: str) -> dict[str, list[str]]:
    return {"readerFeatures": list(names), "writerFeatures": list(names)}


def found(log: Log, version: int | None = None, *, files: bool = False) -> list[tuple[str, str, str | None]]:
    checked = log.table.check(version, files=files)
    assert checked.ok == (not checked.findings)
    return [(finding.kind, finding.message, finding.path) for finding in checked.findings]


@pytest.mark.slow
def test_a_sound_table_has_no_findings(log: Log) -> None:
    checked = log.table.check()
    assert checked == deltic.Check(version=5, ok=True, findings=())
    assert repr(checked) == "Check(version=5, ok=True)"
    for version in range(6):
        assert log.table.check(version, files=True).ok
    before = log.table.snapshot().num_files
    assert before == 4
    counted = log.table
    counted.check(files=True)
    assert counted.request_counts()["heads"] == 4
    assert counted.request_counts()["puts"] == 0


def test_findings_can_be_read(log: Log) -> None:
    log.checksum(5, numFiles=9)
    checked = log.table.check()
    path = f"_delta_log/{5:020}.crc"
    finding = deltic.Finding("checksum", "`numFiles` is 9 in the checksum and 4 in the log", path)
    assert checked == deltic.Check(5, False, (finding,))
    assert repr(checked) == f"Check(version=5, ok=False, findings=1)\n  checksum: {path}: {finding.message}"
    with pytest.raises(AttributeError):
        checked.version = 6  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "messages"),
    [
        ({"numFiles": 5}, ["`numFiles`"]),
        ({"tableSizeBytes": 1}, ["`tableSizeBytes` is 1"]),
        ({"numDeletedRecordsOpt": 5}, ["`numDeletedRecordsOpt` is 5 in the checksum and 6 in the log"]),
        ({"numDeletionVectorsOpt": 0}, ["`numDeletionVectorsOpt`"]),
        ({"inCommitTimestampOpt": 1}, ["`inCommitTimestampOpt` is 1 in the checksum and null in the log"]),
        ({"setTransactions": []}, ["the transaction `stream` is in the log but not in the checksum"]),
        ({"domainMetadata": []}, ["the domain `mine` is in the log but not in the checksum"]),
        (
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7}},
            ["minReader", "readerFeatures", "writerFeatures"],
        ),
        ({"allFiles": []}, ["not in allFiles"] * 4),
        ({"allFiles": [1]}, ["the list allFiles of the version checksum cannot be read"]),
        ({"numMetadata": 2}, ["numMetadata is 2, it must be 1"]),
        (
            {"fileSizeHistogram": {"sortedBinBoundaries": [0], "fileCounts": [4], "totalBytes": [0]}},
            ["`fileSizeHistogram.totalBytes` of the bin from 0"],
        ),
        ({"fileSizeHistogram": {"sortedBinBoundaries": [7]}}, ["cannot be read"]),
        (
            {
                "fileSizeHistogram": None,
                "histogramOpt": {"sortedBinBoundaries": [0, 1], "fileCounts": [1, 3], "totalBytes": [0, 0]},
            },
            ["fileCounts", "fileCounts", "totalBytes"],
        ),
        (
            {"deletedRecordCountsHistogramOpt": {"deletedRecordCounts": [4, *[0] * 9]}},
            ["deletedRecordCountsHistogramOpt"],
        ),
    ],
)
def test_checksums(log: Log, members: dict[str, Any], messages: list[str]) -> None:
    log.checksum(5, **members)
    findings = found(log)
    assert [kind for kind, *_ in findings] == ["checksum"] * len(messages)
    for (_, message, _), part in zip(findings, messages, strict=True):
        assert part in message


def test_the_metadata_in_a_checksum(log: Log) -> None:
    metadata = next(action["metaData"] for action in log.read(0) if "metaData" in action)
    log.checksum(5, metadata={**metadata, "id": "other", "configuration": {"delta.appendOnly": "true"}})
    messages = [message for _, message, _ in found(log)]
    assert len(messages) == 2
    assert '`metadata.id` is "other"' in messages[0]
    assert '`metadata.configuration.delta.appendOnly` is "true" in the checksum and null in the log' in messages[1]


def test_the_protocol_is_not_taken_from_the_checksum(log: Log) -> None:
    # A snapshot may take the protocol from the checksum, the check must not.
    log.checksum(
        5, protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features("deletionVectors", "v2Checkpoint")}
    )
    assert {"readerFeatures", "writerFeatures"} <= {m.split("`")[1].split(".")[1] for _, m, _ in found(log)}


@pytest.mark.slow
def test_a_checksum_of_an_old_writer(log: Log) -> None:
    path = log.checksum(5)
    checksum = json.loads(path.read_text())
    path.write_text(
        json.dumps({key: checksum[key] for key in ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol")})
    )
    assert log.table.check().ok
    path.write_text("{")
    assert "cannot be read" in found(log)[0][1]
    path.unlink()
    assert log.table.check().ok


@pytest.mark.slow
def test_hints(log: Log) -> None:
    log.hint(5, size=3, numOfAddFiles=2, sizeInBytes=1)
    messages = [message for kind, message, path in found(log) if (kind, path) == ("last_checkpoint", HINT)]
    size = log.path(5, "checkpoint.parquet").stat().st_size
    assert messages == [
        "`size` is 3, the checkpoint has 10 actions",
        f"`sizeInBytes` is 1, the checkpoint has {size} bytes",
        "`numOfAddFiles` is 2, the checkpoint has 4 add actions",
    ]
    path = log.hint(5)
    path.write_text(path.read_text().replace('"version": 5', '"version": 4'))
    assert found(log) == [
        ("last_checkpoint", "the hint is ignored: the checksum of _last_checkpoint does not match its contents", HINT)
    ]
    log.put_hint({"version": 3, "size": 2})
    assert [message for _, message, _ in found(log)] == [
        "the hint is stale: it names version 3, the newest checkpoint is 5",
        "it names the checkpoint of version 3, which is not in the log",
    ]
    path.unlink()
    assert log.table.check().ok


@pytest.mark.slow
def test_hints_to_several_parts(log: Log) -> None:
    log.path(5, "checkpoint.parquet").unlink()
    parts = log.checkpoint(5, parts=3)
    log.hint(5)
    assert log.table.check().ok
    parts[1].unlink()
    assert found(log) == [
        ("last_checkpoint", "2 of the 3 parts of the checkpoint of version 5 exist", HINT),
        ("last_checkpoint", "it names the checkpoint of version 5, which is not in the log", HINT),
        ("checkpoint", "2 of the 3 parts of a checkpoint of version 5 exist; readers skip it", None),
    ]


def test_hints_to_two_levels(log: Log) -> None:
    log.path(5, "checkpoint.parquet").unlink()
    path, sidecar = log.two_level_checkpoint(5)
    sidecars = [json.loads(line)["sidecar"] for line in path.read_text().splitlines() if line.startswith('{"sidecar"')]
    assert sidecars
    hint: dict[str, Any] = {
        "version": 5,
        "size": 12,
        "sizeInBytes": path.stat().st_size + sidecar.stat().st_size,
        "numOfAddFiles": 4,
        "v2Checkpoint": {"path": path.name, "sizeInBytes": path.stat().st_size, "modificationTime": 0},
    }
    log.put_hint(hint)
    assert log.table.check().ok
    hint["v2Checkpoint"]["sidecarFiles"] = sidecars
    log.put_hint(hint)
    assert log.table.check().ok
    hint["v2Checkpoint"].update(sizeInBytes=1, sidecarFiles=[{**sidecars[0], "sizeInBytes": 1}])
    log.put_hint(hint)
    assert [message for _, message, _ in found(log)] == [
        f"`v2Checkpoint.sizeInBytes` is 1, the file has {path.stat().st_size} bytes",
        f"`v2Checkpoint.sidecarFiles` are not those that {path.name} names",
    ]
    hint["v2Checkpoint"] = {"path": "other.json", "sizeInBytes": 1, "modificationTime": 0}
    log.put_hint(hint)
    assert [message for _, message, _ in found(log)] == ["the checkpoint other.json that it names is not in the log"]


def test_checkpoints_against_commits(log: Log) -> None:
    state = log.state(5)
    adds = [action["add"] for action in state if "add" in action]

    def changed(action: Action) -> Action | None:
        if "add" in action and action["add"]["path"] == adds[0]["path"]:
            return None
        if "add" in action and action["add"]["path"] == adds[1]["path"]:
            return {"add": {**action["add"], "size": 1}}
        if "txn" in action:
            return {"txn": {**action["txn"], "version": 5}}
        if "metaData" in action:
            return {"metaData": {**action["metaData"], "name": "other"}}
        return action

    log.checkpoint(5, actions=[new for action in state if (new := changed(action)) is not None])
    log.hint(5)
    path = f"_delta_log/{5:020}.checkpoint.parquet"
    # The version is read from the checkpoint, so its checksum differs too.
    expected = {
        ("checkpoint", '`metadata.name` is "other" in the checkpoint and null in the commits', path),
        ("checkpoint", "the version of the transaction `stream` is 5 in the checkpoint and 4 in the commits", path),
        ("checkpoint", "the file is live in the commits but not in the checkpoint", adds[0]["path"]),
        (
            "checkpoint",
            f"the file has 1 bytes in the checkpoint and {adds[1]['size']} bytes in the commits",
            adds[1]["path"],
        ),
    }
    findings = found(log)
    assert expected == {finding for finding in findings if finding[0] == "checkpoint"}
    assert any(kind == "checksum" for kind, *_ in findings)
    # Without the commits the checkpoint cannot be compared.
    log.path(5, "crc").unlink()
    log.remove(0)
    assert log.table.check().ok


@pytest.mark.slow
def test_checkpoints_against_an_older_one(log: Log) -> None:
    log.checkpoint(3)
    log.remove(0, 1, 2, 3)
    assert log.table.check().ok
    log.edit(4, "add", lambda add: add.update({"path": "other"}))
    assert {message for _, message, _ in found(log)} == {
        "the file is live in the commits but not in the checkpoint",
        "the file is live in the checkpoint but not in the commits",
    }
    log.path(4).write_text("{")
    (finding,) = found(log)
    assert finding[1].startswith("the checkpoint cannot be compared with the commits before it: line 1")


def test_data_files(log: Log) -> None:
    adds = [action["add"] for action in log.state(5) if "add" in action]
    Path(log.uri, adds[0]["path"]).unlink()
    Path(log.uri, adds[1]["path"]).write_bytes(b"short")
    assert log.table.check().ok
    assert found(log, files=True) == [
        ("data_file", "the file is not there", adds[0]["path"]),
        ("data_file", f"the file has 5 bytes, the log says {adds[1]['size']}", adds[1]["path"]),
    ]


def test_deletion_vectors(log: Log) -> None:
    vectors = [
        {"storageType": "i", "pathOrInlineDv": "wi5b", "sizeInBytes": 40, "cardinality": 6},
        {
            "storageType": "u",
            "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": 4,
            "sizeInBytes": 40,
            "cardinality": 6,
        },
        {
            "storageType": "p",
            "pathOrInlineDv": f"file://{log.uri}/v.bin",
            "offset": 1,
            "sizeInBytes": 40,
            "cardinality": 6,
        },
        {"storageType": "x", "pathOrInlineDv": "", "sizeInBytes": 40, "cardinality": 6},
    ]
    adds = [next(a["add"] for a in log.read(version) if "add" in a) for version in (0, 1, 3, 4)]
    changed = [{"add": {**add, "deletionVector": vector}} for add, vector in zip(adds, vectors, strict=True)]
    log.append([*changed, *[{"remove": {"path": add["path"], "dataChange": True}} for add in adds]])
    Path(log.uri, "v.bin").write_bytes(b"0" * 48)
    findings = [(message, path) for kind, message, path in found(log, files=True) if kind == "deletion_vector"]
    assert findings == [
        ("a deletion vector is damaged: its inline string is not Z85", adds[0]["path"]),
        ("a deletion vector is damaged: its storage type is `x`, not u, i or p", adds[3]["path"]),
        ("the file is not there", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("the file has 48 bytes, the log's deletion vectors need 49", f"file://{log.uri}/v.bin"),
    ]


def test_many_findings_are_counted(log: Log) -> None:
    missing = {"partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    log.append([{"add": {"path": f"gone-{i}", **missing}} for i in range(250)])
    checked = log.table.check(files=True)
    assert len(checked.findings) == 101
    assert checked.findings[-1].message == "150 more findings of this kind"


def test_what_cannot_be_read_raises(log: Log) -> None:
    with pytest.raises(deltic.VersionNotFoundError, match="no version 9"):
        log.table.check(9)
    log.path(5, "checkpoint.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(deltic.CorruptTableError):
        log.table.check()
    log.path(5, "checkpoint.parquet").unlink()
    assert not log.table.check().ok
    log.path(3).write_text("{")
    with pytest.raises(deltic.CorruptTableError, match="line 1"):
        log.table.check()


EXPECTED = {
    # Expected findings in tables of other writers, besides missing files.
    "golden/corrupted-last-checkpoint-kernel": {"last_checkpoint"},
    "kernel/v2-classic-checkpoint-parquet": {"last_checkpoint"},
    "deltars/issue_1374": {"last_checkpoint"},
    "deltars/data_err_logs__table_g": {"last_checkpoint"},
}
MISSING = {"data-file-missing": "data_file", "dv-file-missing": "deletion_vector"}


@pytest.mark.slow
@for_each("entry", ENTRIES, [entry["id"] for entry in ENTRIES])
def test_tables_written_by_others(entry: dict[str, Any]) -> None:
    table = deltic.Table(str(CORPUS / entry["table_path"]))
    try:
        checked = table.check(files=True)
    except deltic.UnsupportedFeatureError:
        pytest.skip("not read today")
    except deltic.DelticError:
        assert entry["expect_snapshot"] == "error"
        return
    kinds = {finding.kind for finding in checked.findings}
    missing = {kind for cause, kind in MISSING.items() if (entry["expect_error"] or "").startswith(cause)}
    assert kinds - missing == EXPECTED.get(entry["id"], set())
    # If one action spells the path with `file:`, deltic recognizes it, and the file is not live.
    assert missing <= kinds or table.snapshot().num_files == 0
