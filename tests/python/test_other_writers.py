"""Tables of other writers: features in use but not listed, foreign types, truncated files, lenient JSON."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_files import Action, Log, field, metadata, protocol, struct

import deltic

VECTOR: Action = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}


@pytest.fixture
def log(uri: str) -> Log:
    return Log.empty(uri)


# --- features that are in use but not listed in the protocol ---

MAPPED = struct(
    field("k", "string", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-a"}),
    field("n", "long", **{"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-b"}),
)
STATS = {"numRecords": 2, "minValues": {"col-b": 1}, "maxValues": {"col-b": 2}, "nullCount": {"col-a": 0, "col-b": 0}}
ROWS = [{"k": "x", "n": 1}, {"k": "y", "n": 2}]
UNLISTED = [
    protocol(3, 7, readerFeatures=[], writerFeatures=["columnMapping", "icebergCompatV1"]),
    protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"]),
    protocol(1, 2),
]


@pytest.mark.parametrize("unlisted", UNLISTED, ids=["writers", "others", "plain"])
def test_a_mapping_that_the_protocol_does_not_list(log: Log, unlisted: Action) -> None:
    mapping = {"columnMapping.mode": "name", "columnMapping.maxColumnId": "2"}
    rows = pa.table({"col-a": ["x", "y"], "col-b": [1, 2]})
    log.commit(0, [unlisted, metadata(MAPPED, **mapping), log.file("a.parquet", rows, STATS)])
    assert log.table.scan().to_arrow().to_pylist() == ROWS
    assert log.table.scan(filter="n = 2").to_arrow().to_pylist() == ROWS[1:]
    assert log.table.snapshot().plan(filter="n > 2").files_kept == 0
    log.table.checkpoint()
    log.remove(0)
    assert log.table.scan().to_arrow().to_pylist() == ROWS
    with pytest.raises(deltic.UnsupportedFeatureError) as refused:
        deltic.write(log.uri, pa.table({"k": ["z"], "n": [3]}))
    assert "columnMapping" in refused.value.features


@pytest.mark.parametrize(
    ("schema", "mode", "rows"),
    [
        # Files of a writer that ignored the mapping.
        (MAPPED, "name", pa.table({"k": ["x", "y"], "n": [1, 2]})),
        # Files of a writer that used physical names though the mapping is off.
        (MAPPED, "none", pa.table({"col-a": ["x", "y"], "col-b": [1, 2]})),
        # One column has a physical name, the other has none.
        (struct(MAPPED["fields"][0], field("n", "long")), "name", pa.table({"col-a": ["x", "y"], "n": [1, 2]})),
    ],
    ids=["logical", "physical", "mixed"],
)
def test_an_ambiguous_mapping_is_refused(log: Log, schema: Any, mode: str, rows: pa.Table) -> None:
    meta = metadata(schema, **{"columnMapping.mode": mode})
    log.commit(0, [UNLISTED[0], meta, log.file("a.parquet", rows)])
    with pytest.raises(deltic.UnsupportedFeatureError) as refused:
        log.table.scan().to_arrow()
    assert refused.value.features == ("columnMapping",)
    with pytest.raises(deltic.UnsupportedFeatureError):
        log.table.scan(columns=["k"]).to_arrow()


def test_a_mode_without_physical_names_has_no_effect(log: Log) -> None:
    schema = struct(field("k", "string"), field("n", "long"))
    rows = pa.table({"k": ["x", "y"], "n": [1, 2]})
    log.commit(0, [UNLISTED[0], metadata(schema, **{"columnMapping.mode": "name"}), log.file("a.parquet", rows)])
    assert log.table.scan().to_arrow().to_pylist() == ROWS


def test_a_listed_mapping_reads_a_new_column_as_null(log: Log) -> None:
    """A new column with the name of a dropped one: old files have no values of it."""
    listed = protocol(3, 7, readerFeatures=["columnMapping"], writerFeatures=["columnMapping"])
    schema = struct(
        field("k", "string", **{"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-new"}),
        field("n", "long", **{"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "n"}),
    )
    meta = metadata(schema, **{"columnMapping.mode": "name"})
    log.commit(0, [listed, meta, log.file("a.parquet", pa.table({"k": ["old"], "n": [1]}))])
    assert log.table.scan().to_arrow().to_pylist() == [{"k": None, "n": 1}]


def test_an_unlisted_deletion_vector_deletes(log: Log) -> None:
    rows = pa.table({"v": list(range(30))})
    log.commit(
        0, [protocol(), metadata(struct(field("v", "long"))), log.file("a.parquet", rows, deletionVector=VECTOR)]
    )
    assert log.table.scan().to_arrow()["v"].to_pylist() == [v for v in range(30) if v not in (3, 4, 7, 11, 18, 29)]


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("long", pa.array([7], pa.int32()), 7),
        ("double", pa.array([0.5], pa.float32()), 0.5),
        ("timestamp_ntz", pa.array([0], pa.timestamp("us")), "1970-01-01 00:00:00"),
        ("variant", pa.array([{"metadata": b"\1\0\0", "value": b"\0"}]), {"metadata": b"\1\0\0", "value": b"\0"}),
    ],
)
def test_unlisted_types_are_read(log: Log, kind: str, column: pa.Array, expected: Any) -> None:
    change = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]} if kind == "long" else {}
    log.commit(
        0, [protocol(), metadata(struct(field("v", kind, **change))), log.file("a.parquet", pa.table({"v": column}))]
    )
    (value,) = log.table.scan().to_arrow()["v"].to_pylist()
    assert (str(value) if kind == "timestamp_ntz" else value) == expected


def test_unlisted_checkpoints_with_sidecars_are_read(uri: str) -> None:
    log = Log(uri, commits=4)
    log.two_level_checkpoint(3)
    log.remove(0, 1, 2, 3)
    assert log.rows() == [0, 1, 2, 3]


def test_unlisted_in_commit_timestamps_are_used(uri: str) -> None:
    log = Log(uri, commits=3)
    log.edit(0, "metaData", lambda meta: meta["configuration"].update({"delta.enableInCommitTimestamps": "true"}))
    for version in range(2):
        log.edit(version, "commitInfo", lambda info, at=version: info.update({"inCommitTimestamp": 1000 * (at + 1)}))
    assert log.rows() == [0, 1, 2]
    with pytest.raises(deltic.CorruptTableError, match="no inCommitTimestamp"):
        log.table.snapshot(timestamp="1970-01-01T00:00:02.500Z")


def test_unlisted_row_ids_are_refused(uri: str) -> None:
    log = Log(uri, commits=2)
    log.edit(0, "metaData", lambda meta: meta["configuration"].update({"delta.enableRowTracking": "true"}))
    assert log.rows() == [0, 1]
    with pytest.raises(deltic.DelticError, match="row tracking"):
        log.table.scan(columns=["v", "_metadata.row_id"]).to_arrow()


# --- types of other engines ---

VECTOR_TYPE: Action = {
    "type": "udt",
    "class": "org.apache.spark.ml.linalg.VectorUDT",
    "pyClass": "pyspark.ml.linalg.VectorUDT",
    "sqlType": struct(
        field("type", "byte", False),
        field("values", {"type": "array", "elementType": "double", "containsNull": False}),
    ),
}
FEATURES = pa.struct([pa.field("type", pa.int8(), False), ("values", pa.list_(pa.float64()))])
FOREIGN: list[tuple[Any, pa.DataType, Any]] = [
    (VECTOR_TYPE, FEATURES, {"type": 1, "values": [0.5, 1.5]}),
    ({"type": "udt", "pyClass": "app.Mood", "serializedClass": "gA==", "sqlType": "double"}, pa.float64(), 0.25),
    ({"type": "array", "elementType": VECTOR_TYPE, "containsNull": True}, pa.list_(FEATURES), [None]),
    (struct(field("x", VECTOR_TYPE)), pa.struct([("x", FEATURES)]), {"x": {"type": 0, "values": None}}),
    ("interval year to month", pa.int32(), 18),
    ("interval year", pa.int32(), 12),
    ("interval day to second", pa.int64(), 86_401_000_000),
    ("INTERVAL HOUR TO MINUTE", pa.int64(), 60_000_000),
]
UNKNOWN: list[Any] = [
    "timestamp(9)",
    "interval month to day",
    {"type": "lattice", "of": "long"},
    {"type": "udt", "class": "a.B"},
    {"type": "udt", "class": 7, "sqlType": "long"},
    {"type": "udt", "class": "a.B", "sqlType": None},
    struct(field("x", {"type": "udt", "pyClass": "a.B", "sqlType": None})),
    struct(field("x", {"type": "map", "keyType": "string", "valueType": "float8", "valueContainsNull": True})),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "arrow", "value"), FOREIGN, ids=lambda value: str(value)[:40])
def test_a_foreign_type_is_read_as_it_is_stored(log: Log, kind: Any, arrow: pa.DataType, value: Any) -> None:
    rows = pa.table({"id": [1, 2], "x": pa.array([value, None], arrow)})
    stats = {"numRecords": 2, "minValues": {"id": 1}, "maxValues": {"id": 2}, "nullCount": {"id": 0, "x": 1}}
    meta = metadata(struct(field("id", "long"), field("x", kind)))
    log.commit(0, [protocol(), meta, log.file("a.parquet", rows, stats)])
    expected = [{"id": 1, "x": value}, {"id": 2, "x": None}]
    assert log.table.scan().to_arrow().to_pylist() == expected
    assert log.table.scan(columns=["id"], filter="id > 1").to_arrow().to_pylist() == [{"id": 2}]
    assert log.table.files().read_all().num_rows == 1
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"`x.* copy the rows to a table without that type"):
        deltic.write(log.uri, pa.table({"id": [3]}))
    stored = log.table.scan().to_arrow()
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"`x.*cast the data to a schema without .*`delta.type`"):
        deltic.write(f"{log.uri}-copy", stored)
    deltic.write(f"{log.uri}-copy", stored.cast(pa.schema([("id", pa.int64()), ("x", arrow)])))
    assert deltic.Table(f"{log.uri}-copy").scan().to_arrow().to_pylist() == expected
    log.table.checkpoint()
    log.remove(0)
    assert log.table.scan().to_arrow().to_pylist() == expected
    checkpointed = pq.read_table(log.path(0, "checkpoint.parquet"))["metaData"].combine_chunks().drop_null()
    assert checkpointed.to_pylist()[0]["schemaString"] == meta["metaData"]["schemaString"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNKNOWN, ids=str)
def test_an_unknown_type_affects_only_its_own_column(log: Log, kind: Any) -> None:
    meta = metadata(struct(field("id", "long"), field("x", kind)))
    log.commit(0, [protocol(), meta, log.file("a.parquet", pa.table({"id": [1, 2], "x": [5, 6]}))])
    assert log.table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1, 2]
    assert log.table.files().read_all().num_rows == 1
    assert log.table.snapshot().schema.names == ["id", "x"]
    for read in (log.table.scan, lambda: log.table.scan(columns=["x"])):
        with pytest.raises(deltic.UnsupportedFeatureError, match="column `x`") as refused:
            read().to_arrow()
        assert refused.value.features[0].startswith("type ")
    log.table.checkpoint()
    log.remove(0)
    assert log.table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1, 2]


def test_a_mapping_does_not_apply_inside_of_a_foreign_type(log: Log) -> None:
    kind = {**VECTOR_TYPE, "sqlType": struct(field("a", "long"))}
    column = field("x", kind, **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-x"})
    rows = pa.table({"col-x": pa.array([{"a": 5}])})
    log.commit(
        0, [protocol(2, 5), metadata(struct(column), **{"columnMapping.mode": "name"}), log.file("a.parquet", rows)]
    )
    assert log.table.scan().to_arrow()["x"].to_pylist() == [{"a": 5}]


# --- files that a crashed writer leaves ---


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b'{"add":{"path":"torn', b"PAR1 and not much more"])
@pytest.mark.parametrize(
    "name",
    [
        f"{0:020}.{2:020}.compacted.json",
        f"{1:020}.checkpoint.parquet",
        f"{1:020}.checkpoint.{1:010}.{1:010}.parquet",
        f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
        f"{2:020}.crc",
        "_last_checkpoint",
    ],
)
def test_a_torn_optional_file_is_ignored(uri: str, name: str, content: bytes) -> None:
    log = Log(uri, commits=3)
    (log.folder / name).write_bytes(content)
    assert log.rows() == [0, 1, 2]
    assert log.rows(1) == [0, 1]
    table = log.table
    assert table.snapshot().num_files == 3
    assert table.snapshot(timestamp="9999-12-31").version == 2
    deltic.write(table, pa.table({"v": [3]}))
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("commits", [12, 22])
def test_a_torn_checkpoint_is_ignored_with_checksums(uri: str, commits: int) -> None:
    def rows() -> list[int]:
        return sorted(deltic.Table(uri).scan().to_arrow()["v"].to_pylist())

    for i in range(commits):
        deltic.write(uri, pa.table({"v": [i]}))
    torn = sorted(Path(uri, "_delta_log").glob("*.checkpoint.parquet"))
    assert torn
    assert all(Path(uri, "_delta_log", f"{10 * at:020}.crc").exists() for at in range(1, len(torn) + 1))
    for checkpoint in torn:
        checkpoint.write_bytes(checkpoint.read_bytes()[:-9])
    assert rows() == list(range(commits))
    assert deltic.Table(uri).files().read_all().num_rows == commits
    with deltic.Table(uri).transaction(app_id="a", app_version=1) as tx:
        tx.append(pa.table({"v": [commits]}))
    with deltic.Table(uri).transaction(app_id="a", app_version=1) as tx:
        assert tx.replayed
    assert deltic.Table(uri).checkpoint() == commits
    assert pq.read_table(Path(uri, "_delta_log", f"{commits:020}.checkpoint.parquet"))["add"].null_count == 3
    assert rows() == list(range(commits + 1))


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 2, 3])
@pytest.mark.parametrize("beside", ["nothing", "a checksum", "a commit", "both"])
def test_a_json_checkpoint_cut_at_a_line_end_is_ignored(
    uri: str, lines: int, beside: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(uri, commits=3)
    path, _ = log.two_level_checkpoint(2)
    if beside in ("a checksum", "both"):
        log.checksum(2)
    if beside in ("a commit", "both"):
        deltic.write(uri, pa.table({"v": [3]}))
    whole = path.read_text().splitlines(keepends=True)
    assert [*json.loads(whole[2])] == ["protocol"]
    path.write_text("".join(whole[:lines]))
    expected = [0, 1, 2, 3] if beside in ("a commit", "both") else [0, 1, 2]
    assert log.rows() == expected
    assert any("skipped checkpoint 2 of" in record.getMessage() for record in caplog.records)
    assert log.table.snapshot().num_files == len(expected)
    assert log.table.scan(filter="v > 1").count() == len(expected) - 2
    log.remove(0)
    with pytest.raises(deltic.CorruptTableError):
        log.rows()


@pytest.mark.slow
@pytest.mark.parametrize("has_older", [False, True])
@pytest.mark.parametrize("left", [None, b"", b"PAR1 and not much more"])
def test_a_checkpoint_with_a_missing_sidecar_is_ignored(
    uri: str, has_older: bool, left: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(uri, commits=5)
    if has_older:
        log.checkpoint(1)
        log.two_level_checkpoint(2)[1].unlink()
    _, sidecar = log.two_level_checkpoint(3)
    kept = sidecar.read_bytes()
    if has_older:
        log.remove(0, 1)
    sidecar.unlink()
    if left is not None:
        sidecar.write_bytes(left)
    everything = [0, 1, 2, 3, 4]
    for filter in (None, "v >= 0"):
        assert sorted(log.table.scan(filter=filter).to_arrow()["v"].to_pylist()) == everything
        assert log.table.scan(filter=filter).count() == 5
    assert "skipped checkpoint 3 of" in caplog.text
    assert log.rows(3) == [0, 1, 2, 3]
    assert log.table.snapshot().num_files == 5
    assert log.table.files().read_all().num_rows == 5
    table = log.table
    table.scan().to_arrow()
    deltic.write(table, pa.table({"v": [5]}))
    with table.transaction() as tx:
        tx.remove("v = 0")
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [1, 2, 3, 4, 5]
    assert table.checkpoint() == 6
    assert log.rows() == [1, 2, 3, 4, 5]
    # Without an older checkpoint and the commits, the missing sidecar is an error that names it.
    log.path(6, "checkpoint.parquet").unlink()
    log.remove(2 if has_older else 0)
    with pytest.raises(deltic.DelticError, match="_sidecars"):
        log.rows(3)
    sidecar.write_bytes(kept)
    assert log.rows(3) == [0, 1, 2, 3]


def test_a_snapshot_of_a_deleted_table_does_not_read_a_new_one(uri: str) -> None:
    log = Log(uri, commits=5)
    log.two_level_checkpoint(3)
    log.remove(0, 1, 2)
    snapshot = log.table.snapshot()
    shutil.rmtree(uri)
    Log(uri, commits=7)
    with pytest.raises(deltic.DelticError, match="deleted after it was listed"):
        snapshot.scan().to_arrow()
    with pytest.raises(deltic.DelticError, match="deleted after it was listed"):
        snapshot.files().read_all()


def test_a_torn_checkpoint_without_the_older_commits_is_an_error(uri: str) -> None:
    log = Log(uri, commits=3)
    log.path(1, "checkpoint.parquet").write_bytes(b"PAR1 and not much more")
    log.remove(0)
    with pytest.raises(deltic.CorruptTableError, match=r"checkpoint\.parquet"):
        log.rows()


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_a_commit_without_an_action_is_refused(uri: str, content: bytes) -> None:
    log = Log(uri, commits=3)
    log.path(1).write_bytes(content)
    with pytest.raises(deltic.CorruptTableError, match="the commit is empty"):
        log.rows()


@pytest.mark.parametrize("first", ["absent", None, ""])
def test_metadata_without_a_schema_may_be_replaced(log: Log, first: str | None) -> None:
    schema = struct(field("v", "long"))
    early = metadata(first)
    if first == "absent":
        del early["metaData"]["schemaString"]
    log.commit(0, [{"commitInfo": {"operation": "CREATE TABLE"}}, protocol(), early])
    log.commit(1, [{"commitInfo": {"operation": "SETUP"}}, metadata(schema)])
    log.commit(2, [{"commitInfo": {"operation": "WRITE"}}, log.file("a.parquet", pa.table({"v": [7]}))])
    assert log.rows() == [7]
    assert log.table.snapshot(1).num_files == 0
    assert [entry["version"] for entry in log.table.history()] == [2, 1, 0]
    with pytest.raises(deltic.CorruptTableError, match="no schema yet"):
        log.table.snapshot(0)
    deltic.write(log.uri, pa.table({"v": [8]}))
    log.table.checkpoint()
    assert log.rows() == [7, 8]


# --- lenient JSON ---

LOOSE: dict[str, Action] = {
    "size": {"size": lambda size: str(size)},
    "padded size": {"size": lambda size: f" {size} "},
    "size as float": {"size": float},
    "time": {"modificationTime": lambda time: str(time)},
    "time as float": {"modificationTime": lambda _: 1.7e12},
    "time with a fraction": {"modificationTime": lambda _: 1.5},
    "empty time": {"modificationTime": lambda _: ""},
    "change": {"dataChange": lambda _: "true"},
    "change as number": {"dataChange": lambda _: 1},
    "row id": {"baseRowId": lambda _: "7"},
    "partition value": {"partitionValues": lambda _: {"p": 1}},
    "provider": {"clusteringProvider": lambda _: 5},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", LOOSE.values(), ids=LOOSE)
def test_lenient_scalars_in_file_actions(log: Log, change: Action) -> None:
    schema = struct(field("v", "long"), field("p", "integer"))
    adds = [log.file(f"{v}.parquet", pa.table({"v": [v]}), partitionValues={"p": "1"}) for v in (1, 2)]
    for add in adds:
        for member, loosen in change.items():
            add["add"][member] = loosen(add["add"].get(member))
    log.commit(0, [protocol(), metadata(schema, ("p",)), *adds])
    rows = [{"v": 1, "p": 1}, {"v": 2, "p": 1}]
    for _ in range(2):
        assert sorted(log.table.scan(filter="p = 1").to_arrow().to_pylist(), key=lambda row: row["v"]) == rows
        assert log.table.snapshot().num_files == 2
        log.table.checkpoint()
        log.path(0).unlink(missing_ok=True)


def test_lenient_scalars_in_other_actions(log: Log) -> None:
    schema = struct(field("v", "long"))
    loose = {"minReaderVersion": "1", "minWriterVersion": 2.0, "readerFeatures": None, "writerFeatures": None}
    meta = metadata(schema)
    meta["metaData"].update(createdTime=1.7e12, name=5, configuration={"delta.appendOnly": False, "x": 1, "y": None})
    meta["metaData"]["format"] = {}
    add, gone = (log.file(f"{v}.parquet", pa.table({"v": [v]})) for v in (1, 2))
    log.commit(0, [{"protocol": loose}, meta, add, gone])
    log.commit(
        1,
        [
            {"txn": {"appId": "a", "version": "7", "lastUpdated": 1.0}},
            {"txn": {"appId": 5, "version": 8.0}},
            {"domainMetadata": {"domain": "d", "configuration": 5, "removed": "false"}},
            {"remove": {"path": "2.parquet", "dataChange": "true", "deletionTimestamp": "1700000000000"}},
        ],
    )
    for _ in range(2):
        snapshot = log.table.snapshot()
        assert log.rows() == [1]
        assert (snapshot.transaction_version("a"), snapshot.transaction_version("5")) == (7, 8)
        assert snapshot.properties == {"delta.appendOnly": "false", "x": "1"}
        assert snapshot.metadata["name"] == "5"
        log.table.checkpoint()
        for version in (0, 1):
            log.path(version).unlink(missing_ok=True)


@pytest.mark.parametrize("size", ["4x", "1.5", "9223372036854775808", 1e19, True, {"n": 1}, [1]])
def test_invalid_numbers_are_refused(log: Log, size: Any) -> None:
    add = log.file("a.parquet", pa.table({"v": [1]}), size=size)
    log.commit(0, [protocol(), metadata(struct(field("v", "long"))), add])
    with pytest.raises(deltic.CorruptTableError, match="line 3"):
        log.rows()


# --- codecs and checkpoints ---


def test_files_are_compressed_with_the_codec_of_the_table(uri: str) -> None:
    log = Log(uri, commits=1)
    log.edit(0, "metaData", lambda meta: meta["configuration"].update({"delta.parquet.compression.codec": "brotli"}))
    commit = deltic.write(uri, pa.table({"v": [1]}))
    (add,) = (action["add"] for action in log.read(commit.version) if "add" in action)
    assert add["path"].endswith(".br.parquet")
    assert pq.read_metadata(Path(uri, add["path"])).row_group(0).column(0).compression == "BROTLI"
    assert log.rows() == [0, 1]
    deltic.create(uri + "2", pa.schema([("v", pa.int64())]), properties={"delta.parquet.compression.codec": "Brotli"})
    deltic.write(uri + "2", pa.table({"v": [1]}), compression="brotli")
    assert deltic.Table(uri + "2").scan().to_arrow()["v"].to_pylist() == [1]


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["brotli", "lzo", ""])
def test_checkpoints_are_written_despite_an_unsupported_codec(uri: str, codec: str) -> None:
    log = Log(uri, commits=2)
    log.edit(0, "metaData", lambda meta: meta["configuration"].update({"delta.parquet.compression.codec": codec}))
    assert log.table.checkpoint() == 1
    log.remove(0, 1)
    assert log.rows() == [0, 1]


def test_a_missing_size_is_not_written_as_zero(log: Log) -> None:
    add = log.file("a.parquet", pa.table({"v": [1]}))
    del add["add"]["size"]
    log.commit(0, [protocol(), metadata(struct(field("v", "long"))), add])
    log.commit(1, [{"txn": {"appId": "a", "version": 1}}])
    for write in (log.table.checkpoint, log.table.compact_log):
        with pytest.raises(deltic.CorruptTableError, match="does not say the size") as refused:
            write()
        assert refused.value.path == "a.parquet"
    assert [path.suffix for path in log.folder.glob("*.c*")] == []


def test_a_compaction_keeps_the_tags_of_removed_files(uri: str) -> None:
    log = Log(uri, commits=2)
    path = next(action["add"]["path"] for action in log.read(1) if "add" in action)
    log.append([{"remove": {"path": path, "dataChange": True, "deletionTimestamp": 5, "tags": {"a": "b", "c": None}}}])
    compacted = Path(uri, log.table.compact_log())
    removes = [
        json.loads(line)["remove"] for line in compacted.read_text().splitlines() if "remove" in json.loads(line)
    ]
    assert [remove["tags"] for remove in removes] == [{"a": "b", "c": None}]


# --- spellings of paths and lines ---


@pytest.mark.parametrize(
    ("name", "added", "removed"),
    [
        ("a.parquet", "./a.parquet", "a.parquet"),
        ("a.parquet", "a.parquet", "./a.parquet"),
        ("a.parquet", "x/../a.parquet", "a.parquet"),
        ("x/a.parquet", "x//a.parquet", "x/a.parquet"),
        ("x/a.parquet", "x/a.parquet", "x/%2E/a.parquet"),
        ("x/a.parquet", "%2Fx/a.parquet", "x/a.parquet"),
    ],
)
def test_a_file_is_removed_under_another_spelling_of_its_path(log: Log, name: str, added: str, removed: str) -> None:
    file = log.file(name, pa.table({"n": [1]}))
    file["add"]["path"] = added
    log.commit(0, [protocol(), metadata(struct(field("n", "long"))), file])
    assert log.table.scan().to_arrow().num_rows == 1
    log.commit(1, [{"remove": {"path": removed, "dataChange": True, "deletionTimestamp": 1}}])
    assert log.table.scan().to_arrow().num_rows == 0
    assert log.table.scan().count() == 0
    log.table.checkpoint()
    log.remove(0)
    assert log.table.scan().to_arrow().num_rows == 0


def test_a_commit_may_begin_with_a_byte_order_mark(log: Log) -> None:
    log.commit(0, [protocol(), metadata(struct(field("n", "long"))), log.file("a.parquet", pa.table({"n": [1]}))])
    log.path(0).write_bytes(b"\xef\xbb\xbf" + log.path(0).read_bytes())
    assert log.table.scan().to_arrow().to_pylist() == [{"n": 1}]
    deltic.write(log.uri, pa.table({"n": [2]}))
    assert log.table.scan().count() == 2


def test_a_file_that_a_checkpoint_names_twice_is_found(log: Log) -> None:
    file = log.file("a.parquet", pa.table({"n": [1]}))
    actions = [protocol(), metadata(struct(field("n", "long"))), file]
    log.commit(0, actions)
    log.checkpoint(0, actions=[*actions, file])
    (finding,) = [f for f in log.table.check().findings if f.path == "a.parquet"]
    assert (finding.kind, finding.message) == (
        "checkpoint",
        "the checkpoint names the file twice, so its rows are read twice",
    )
