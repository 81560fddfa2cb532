"""`drop_feature("columnMapping")` rewrites files under the names of the schema, by the commit that removes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed_rows import MAPPED
from log_files import Log, field, metadata, protocol, struct
from object_store import ObjectStore, object_store
from sample import adds, log_actions

import deltic
from deltic import InvalidInputError, Table

PLACE = pa.struct([("city", pa.string()), ("zip", pa.int32())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("place", PLACE),
        ("tags", pa.list_(pa.struct([("k", pa.string())]))),
        ("sizes", pa.map_(pa.string(), pa.struct([("n", pa.int64())]))),
        ("extra", pa.string()),
        ("part", pa.string()),
    ]
)


def batch(*ids: int) -> pa.Table:
    made = [
        {
            "id": n,
            "place": {"city": f"c{n}", "zip": n * 10} if n % 3 else None,
            "tags": [{"k": f"t{n}"}, None],
            "sizes": [("a", {"n": n}), ("b", None)],
            "extra": f"gone {n}",
            "part": [None, "x", "a b/c=d%"][n % 3],
        }
        for n in ids
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def later(*ids: int) -> pa.Table:
    """Rows for the table of `changed`."""
    columns = [("number", pa.int64()), ("extra", pa.int64()), ("half", pa.string())]
    return pa.table(
        {"number": ids, "extra": [n * 7 for n in ids], "half": ["x" for _ in ids]}, schema=pa.schema(columns)
    )


def changed(table: Table, properties: dict[str, str], **layout: Any) -> None:
    """Files of several schemas: columns are renamed, dropped, and added again under the name of a dropped one."""
    deltic.create(table, SCHEMA, properties=properties, **layout)
    deltic.write(table, batch(0, 1, 2, 3))
    table.rename_column("id", "number")
    table.rename_column("place.zip", "code")
    table.rename_column("tags.element.k", "key")
    table.rename_column("sizes.value.n", "count")
    table.rename_column("part", "half")
    table.drop_columns(["extra", "place.city"])
    table.add_columns([deltic.field("extra", "long")])
    deltic.write(table, later(10, 11))
    table.delete("number = 2")


def rows(table: Table, *columns: str, key: str = "number") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan(list(columns) or None).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row[key])


def features(table: Table) -> set[str]:
    return set(table.snapshot().protocol.get("writerFeatures") or [])


def removal(table: Table) -> int:
    """The version that removed column mapping."""
    (version,) = [entry["version"] for entry in table.history() if entry["operation"] == "REMOVE COLUMN MAPPING"]
    return int(version)


def names(uri: str, path: str) -> list[str]:
    """The leaves of a data file, by their paths."""
    schema = pq.ParquetFile(Path(uri, path)).schema
    assert "field_id" not in str(schema).replace("field_id=-1", "")
    return [schema.column(leaf).path for leaf in range(len(schema))]


TRACKED = {
    **MAPPED,
    "delta.enableRowTracking": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
}
IDS = ("_metadata.row_id", "_metadata.row_commit_version")
LEAVES = [
    "number",
    "place.code",
    "tags.list.element.key",
    "sizes.key_value.key",
    "sizes.key_value.value.count",
    "extra",
]


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("layout", [{}, {"partition_by": ["part"]}, {"cluster_by": ["id", "place.zip"]}])
@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_have_the_names_of_the_schema(uri: str, mode: str, layout: dict[str, Any], truncates: bool) -> None:
    table = Table(uri)
    changed(table, TRACKED | {"delta.columnMapping.mode": mode, "note": "kept"}, **layout)
    columns = [*pa.schema(table.snapshot().schema).names, *IDS]
    before, old = rows(table, *columns), table.snapshot().version
    old_files = table.snapshot().files().read_all()["path"].to_pylist()
    if truncates:
        with pytest.raises(InvalidInputError, match="call it again"):
            table.drop_feature("columnMapping", truncate_history=True)
    else:
        table.drop_feature("columnMapping")
        assert "columnMapping" not in features(table)
        assert "checkpointProtection" in features(table)
    assert rows(table, *columns) == before
    assert rows(Table(uri), *columns) == before
    assert table.check(files=True).ok

    version = removal(table)
    assert version == old + 1
    actions = log_actions(uri, version)
    assert not any(action.get("add", {}).get("dataChange") for action in actions)
    assert {action["remove"]["path"] for action in actions if "remove" in action} == set(old_files)
    assert not any(action["remove"]["dataChange"] for action in actions if "remove" in action)
    assert not any("deletionVector" in add for add in adds(uri, version))
    (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
    assert "columnMapping" not in json.dumps(metadata)
    assert metadata["configuration"]["note"] == "kept"

    is_partitioned = "partition_by" in layout
    leaves = LEAVES if is_partitioned else [*LEAVES[:-1], "half", LEAVES[-1]]
    rows_counted = 0
    for add in adds(uri, version):
        path = add["path"].replace("%25", "%")
        stored = [name for name in names(uri, path) if not name.startswith("_row")]
        assert stored == leaves
        assert set(add["partitionValues"]) == ({"half"} if is_partitioned else set())
        assert add["stats"]["minValues"].keys() >= {"number"}
        assert add["stats"]["nullCount"].keys() <= {"number", "place", "tags", "sizes", "extra", "half"}
        rows_counted += add["stats"]["numRecords"]
    assert rows_counted == len(before)
    (history,) = [entry for entry in table.history() if entry["version"] == version]
    assert history["operationMetrics"]["numCopiedRows"] == str(len(before))
    assert history["operationMetrics"]["numRewrittenFiles"] == str(len(old_files))
    if "cluster_by" in layout:
        assert table.detail().clustering_columns == ["number", "place.code"]
        domains = [action["domainMetadata"] for action in actions if "domainMetadata" in action]
        (clustering,) = [domain for domain in domains if domain["domain"] == "delta.clustering"]
        assert json.loads(clustering["configuration"])["clusteringColumns"] == [["number"], ["place", "code"]]

    # The table goes on without column mapping.
    deltic.write(table, later(20))
    table.delete("number = 10")
    assert [row["number"] for row in rows(table)] == [0, 1, 3, 11, 20]
    table.optimize()
    assert table.check(files=True).ok


def test_the_change_data_feed(uri: str) -> None:
    """It has no change for the rewritten rows, and older changes are not read under the new names."""
    table = Table(uri)
    changed(table, TRACKED)
    table.drop_feature("columnMapping")
    version = removal(table)
    assert table.changes(version).to_arrow().num_rows == 0
    for first in (1, version - 1):
        with pytest.raises(InvalidInputError, match=r"delta\.columnMapping\.mode"):
            table.changes(first)


@pytest.mark.parametrize("properties", [MAPPED, TRACKED])
@pytest.mark.parametrize("layout", [{}, {"partition_by": ["part"]}])
def test_versions_are_compared_by_names(uri: str, layout: dict[str, Any], properties: dict[str, str]) -> None:
    table = Table(uri)
    changed(table, properties, **layout)
    old = table.snapshot().version
    table.drop_feature("columnMapping")
    same = table.diff(old, table.snapshot().version, rows=True)
    assert same.columns == []
    assert same.rows is not None
    assert same.rows.num_rows == 0
    # A file of the first version has as many rows in its partition as the one that replaces it.
    assert same.partitions.num_rows == (2 if layout else 1)
    assert same.partitions["rows_added"] == same.partitions["rows_removed"]
    deltic.write(table, later(20))
    table.update({"extra": "9"}, "number = 10")
    found = table.diff(old, table.snapshot().version, rows=True)
    assert found.rows is not None
    changes = [(row["_change_type"], row["number"], row["extra"]) for row in found.rows.to_pylist()]
    kinds = ("update_preimage", "update_postimage") if properties is TRACKED else ("delete", "insert")
    assert sorted(changes, key=str) == sorted([("insert", 20, 140), (kinds[0], 10, 70), (kinds[1], 10, 9)], key=str)


@pytest.mark.parametrize("properties", [MAPPED, {}], ids=["created", "enabled later"])
def test_versions_of_other_column_mappings_are_compared_by_names(uri: str, properties: dict[str, str]) -> None:
    table = Table(uri)
    rows = pa.table({"id": [1, 2], "place": [{"zip": 1}, {"zip": 2}], "part": ["a", "b"]})
    deltic.write(table, rows, partition_by=["part"], properties=properties)
    table.set_properties(MAPPED)
    table.rename_column("id", "number")
    table.rename_column("place.zip", "code")
    table.rename_column("part", "half")
    old = table.snapshot().version
    table.drop_feature("columnMapping")
    dropped = table.snapshot().version
    table.set_properties(MAPPED)
    again = table.snapshot().version
    table.restore(old)
    restored = table.snapshot().version
    for before, after in [(dropped, restored), (restored, dropped), (again, restored), (old, again), (old, restored)]:
        found = table.diff(before, after, rows=True)
        assert found.columns == [], (before, after)
        assert found.rows is not None
        assert found.rows.num_rows == 0, (before, after)
    # Between these the mapping was only enabled: renamed columns are the same.
    table.restore(dropped)
    start = table.snapshot().version
    table.set_properties(MAPPED)
    table.rename_column("number", "n")
    assert [(change.kind, change.column) for change in table.diff(start).columns] == [("renamed", "n")]


def test_files_of_a_version_before_column_mapping_are_kept(uri: str) -> None:
    table = Table(uri)
    deltic.write(table, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    table.set_properties(MAPPED)
    table.rename_column("id", "number")
    table.drop_columns(["v"])
    deltic.write(table, pa.table({"number": [3]}))
    table.restore(0)
    before = table.files().read_all()["path"]
    table.drop_feature("columnMapping")
    assert "columnMapping" not in features(table)
    assert table.files().read_all()["path"] == before
    assert "REMOVE COLUMN MAPPING" not in [entry["operation"] for entry in table.history()]
    assert not [key for key in table.snapshot().properties if "columnMapping" in key]
    deltic.write(table, pa.table({"id": [4], "v": ["d"]}))
    assert rows(table, key="id") == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 4, "v": "d"}]
    assert table.check(files=True).ok


def test_older_versions_stay_as_they_are(uri: str) -> None:
    table = Table(uri)
    changed(table, TRACKED)
    old, before = table.snapshot().version, rows(table)
    first = table.snapshot(1).scan().to_arrow().to_pylist()
    table.drop_feature("columnMapping")
    deltic.write(table, later(20))
    assert table.snapshot(1).scan().to_arrow().to_pylist() == first
    table.restore(old)
    assert rows(table) == before
    assert {"columnMapping", "checkpointProtection"} <= features(table)
    assert table.check(files=True).ok
    # Dropped for a second time.
    table.drop_feature("columnMapping")
    assert rows(table) == before
    assert table.check(files=True).ok


def test_files_are_skipped_by_the_new_statistics(uri: str) -> None:
    """The open handle knows the files by their old statistics."""
    table = Table(uri)
    deltic.write(table, pa.table({"id": [1, 2], "p": ["a", "b"]}), partition_by="p", properties=MAPPED)
    deltic.write(table, pa.table({"id": [3, 4], "p": ["a", "b"]}))
    table.rename_column("id", "n")
    table.rename_column("p", "q")
    plan = table.plan(filter="n = 4 AND q = 'b'")
    assert (plan.files_kept, plan.files_total) == (1, 4)
    assert table.checkpoint() == 3
    table.drop_feature("columnMapping")
    for handle in (table, Table(uri)):
        plan = handle.plan(filter="n = 4 AND q = 'b'")
        assert (plan.files_kept, plan.files_total) == (1, 2)
        assert handle.scan(filter="n = 4").to_arrow().to_pylist() == [{"n": 4, "q": "b"}]
        assert handle.plan(filter="n > 4").files_kept == 0


def test_files_that_have_the_names_are_not_rewritten(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2]}))
    table = Table(uri)
    table.set_properties(MAPPED)
    files = table.snapshot().files().read_all()["path"].to_pylist()
    table.drop_feature("columnMapping")
    assert table.snapshot().files().read_all()["path"].to_pylist() == files
    assert "REMOVE COLUMN MAPPING" not in [entry["operation"] for entry in table.history()]


def test_a_table_without_files(uri: str) -> None:
    table = Table(uri)
    deltic.create(table, SCHEMA, properties=MAPPED)
    table.rename_column("id", "number")
    table.drop_feature("columnMapping")
    deltic.write(table, batch(1).rename_columns(["number", *SCHEMA.names[1:]]))
    assert rows(table)[0]["number"] == 1
    assert table.check(files=True).ok


@pytest.mark.parametrize("character", list(" ,;{}()\n\t="))
def test_names_that_need_column_mapping(uri: str, character: str) -> None:
    name = f"a{character}b"
    inside = pa.field("s", pa.struct([(name, pa.int64())]))
    for column, made in ((name, pa.field(name, pa.int64())), (f"s.{name}", inside)):
        table = Table(f"{uri}/{len(column)}")
        deltic.create(table, pa.schema([made]), properties=MAPPED)
        version = table.snapshot().version
        for truncates in (False, True):
            with pytest.raises(InvalidInputError, match="allowed only with column mapping; rename it") as caught:
                table.drop_feature("columnMapping", truncate_history=truncates)
            shown = column.replace("\n", r"\n").replace("\t", r"\t")
            assert f"`{shown}`" in str(caught.value)
        assert table.snapshot().version == version
        quoted = f"s.`{name}`" if column.startswith("s.") else f"`{name}`"
        table.rename_column(quoted, "c")
        table.drop_feature("columnMapping")
        assert "columnMapping" not in features(table)


def test_rules_hold_under_their_names(uri: str) -> None:
    table = Table(uri)
    deltic.write(table, pa.table({"id": [1, 2], "v": ["a", None]}), properties=MAPPED)
    table.rename_column("id", "n")
    table.add_constraint("positive", "n > 0")
    table.drop_feature("columnMapping")
    with pytest.raises(InvalidInputError, match="positive"):
        deltic.write(table, pa.table({"n": [-1], "v": ["b"]}))
    table.update({"v": "'c'"}, "v IS NULL")
    assert rows(table, key="n") == [{"n": 1, "v": "a"}, {"n": 2, "v": "c"}]


@pytest.mark.parametrize("again", ["not", "enabled again", "enabled again and renamed"])
def test_numbers_are_not_given_out_again_by_a_restore(uri: str, again: str) -> None:
    """The older version has the identity column under a physical name, the newest one has none, or another."""
    identity = {
        f"delta.identity.{key}": value for key, value in (("start", 1), ("step", 1), ("allowExplicitInsert", False))
    }

    def mapped(number: int) -> dict[str, Any]:
        return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}

    schema = struct(field("n", "long", False, **identity, **mapped(1)), field("v", "string", **mapped(2)))
    properties = {"columnMapping.mode": "name", "columnMapping.maxColumnId": "2"}
    listed = protocol(2, 7, writerFeatures=["identityColumns", "columnMapping"])
    Log.empty(uri, listed, metadata(schema, **properties))
    table = Table(uri)
    deltic.write(table, pa.table({"v": ["a"]}))
    old = table.snapshot().version
    table.drop_feature("columnMapping")
    if again != "not":
        table.set_properties(MAPPED)
    deltic.write(table, pa.table({"v": ["b"]}))
    if again.endswith("renamed"):
        table.rename_column("n", "m")
    table.restore(old)
    deltic.write(table, pa.table({"v": ["c"]}))
    assert [(row["n"], row["v"]) for row in rows(table, key="n")] == [(1, "a"), (3, "c")]


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.mark.parametrize("data_change", [True, False])
def test_a_concurrent_write_is_a_conflict(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, data_change: bool
) -> None:
    """Its file has the old names, also if it is said to change no data."""
    table = Table("s3://bucket/table", store.options)
    deltic.write(table, pa.table({"id": [1, 2]}), properties=MAPPED)
    before = dict(store.files)
    deltic.write(Table(table.uri, store.options), pa.table({"id": [3]}))
    commit = "bucket/table/_delta_log/00000000000000000001.json"
    lines = store.files.pop(commit)[0].replace(
        b'"dataChange":true', b'"dataChange":%s' % str(data_change).lower().encode()
    )
    for path in store.files.keys() - before.keys():
        if "_delta_log" in path:
            del store.files[path]
    files = set(store.files)
    put = store.put

    def put_second(path: str, body: bytes, only_new: bool) -> bool:
        if path == commit and commit not in store.files:
            assert len(set(store.files) - files) == 1
            put(commit, lines, True)
        return put(path, body, only_new)

    monkeypatch.setattr(store, "put", put_second)
    with pytest.raises(deltic.CommitConflictError):
        table.drop_feature("columnMapping")
    assert set(store.files) - files <= {commit, commit.replace(".json", ".crc")}
    assert rows(table, key="id") == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert "columnMapping" in features(table)
    table.drop_feature("columnMapping")
    assert rows(table, key="id") == [{"id": 1}, {"id": 2}, {"id": 3}]
