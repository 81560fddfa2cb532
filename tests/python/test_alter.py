"""Changes of a table's metadata: each method alone, several in one commit, and refused changes."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import MAPPED
from log_files import Log, field, metadata, protocol, struct

import deltic
from deltic import InvalidInputError, Table, UnsupportedFeatureError

ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "place": [{"city": "Ulm", "zip": 89}, {"city": "Rom", "zip": 1}],
        "tags": [[{"k": "a"}], []],
        "part": ["x", "y"],
    }
)


@pytest.fixture
def table(uri: str) -> Table:
    deltic.write(uri, ROWS, partition_by=["part"])
    return Table(uri)


def info(table: Table) -> dict[str, Any]:
    """The commit info of the newest version, with JSON in its parameters parsed."""
    entry = dict(table.history(1)[0])
    parameters = {}
    for key, value in entry["operationParameters"].items():
        try:
            parameters[key] = json.loads(value)
        except (TypeError, ValueError):
            parameters[key] = value
    return {**entry, "operationParameters": parameters}


def fields(table: Table) -> dict[str, dict[str, Any]]:
    stored = json.loads(table.snapshot().metadata["schemaString"])
    return {field["name"]: field for field in stored["fields"]}


def rows(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    keys = [name for name in ("key", "the id", "id") if name in table.snapshot().schema.names]
    return sorted(found, key=lambda row: str([row[name] for name in keys[:1]] or row))


@contextmanager
def refused(message: str) -> Iterator[None]:
    """The change is refused with this message, which must not speak of creating a table."""
    with pytest.raises(InvalidInputError, match=message) as caught:
        yield
    assert not re.search(r"(?i)cannot create|creat\w* this table|this table .{0,20}created", str(caught.value))


def features(table: Table) -> set[str]:
    return set(table.snapshot().protocol.get("writerFeatures", []))


def test_columns_are_added(table: Table) -> None:
    new = [deltic.field("day", "date", comment="of the visit"), pa.field("note", pa.string())]
    commit = table.add_columns(new, after="id")
    assert (commit.version, commit.attempts, commit.num_added_files) == (1, 1, 0)
    assert table.snapshot().schema.names == ["id", "day", "note", "place", "tags", "part"]
    assert fields(table)["day"]["metadata"] == {"comment": "of the visit"}
    commit_info = info(table)
    assert commit_info["operation"] == "ADD COLUMNS"
    assert [column["column"]["name"] for column in commit_info["operationParameters"]["columns"]] == ["day", "note"]
    assert [column["position"] for column in commit_info["operationParameters"]["columns"]] == ["AFTER id", "AFTER day"]
    table.add_columns(deltic.field("place.country", "string"))
    table.add_columns(pa.schema([("tags.element.v", pa.int64())]))
    first = rows(table)[0]
    assert first["place"] == {"city": "Ulm", "zip": 89, "country": None}
    assert (first["day"], first["tags"]) == (None, [{"k": "a", "v": None}])
    more = {**first, "id": 3, "note": "new", "place": {"city": "Bonn", "zip": 53, "country": "de"}}
    deltic.write(table, pa.Table.from_pylist([more], schema=table.scan().schema))
    assert rows(table)[-1] == more
    assert table.check().ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "after", "message"),
    [
        (pa.field("ID", pa.int64()), None, "there is a column `ID` already"),
        (pa.field("new", pa.int64(), nullable=False), None, "must be nullable"),
        (pa.field("id.x", pa.int64()), None, "`id` is of the type integer, and columns are in structs"),
        (pa.field("nowhere.x", pa.int64()), None, "no column `nowhere`: the table has `id`, `place`"),
        (pa.field("x", pa.int64()), "nowhere", "no column `nowhere` in the table to come after"),
        (pa.field("a;b", pa.int64()), None, "has the character ';'"),
        (deltic.field("x", "long", default="1"), None, "cannot have a default: existing rows"),
        (deltic.field("x", "long", generated="id"), None, "cannot become generated"),
        (deltic.field("x", "long", identity={}), None, "cannot become an identity"),
        ([], None, "no column to add"),
        ("x long", None, "fields must be pyarrow fields"),
        ([("x", pa.int64())], None, "fields must be pyarrow fields"),
        (pa.field("x", pa.time32("s")), None, "Arrow type time32"),
    ],
)
def test_columns_that_cannot_be_added(table: Table, new: Any, after: str | None, message: str) -> None:
    with refused(message):
        table.add_columns(new, after=after)
    assert table.snapshot().version == 0


def test_columns_are_renamed_and_dropped_where_they_are_mapped(table: Table) -> None:
    for verb in (lambda: table.rename_column("id", "key"), lambda: table.drop_columns(["id"])):
        with refused(r"set_properties\(\{\"delta.columnMapping.mode\": \"name\"\}\)"):
            verb()
    before = rows(table)
    table.set_properties(MAPPED)
    stored = fields(table)
    assert [stored[name]["metadata"]["delta.columnMapping.physicalName"] for name in stored] == list(stored)
    inner = stored["place"]["type"]["fields"]
    assert [field["metadata"]["delta.columnMapping.id"] for field in inner] == [3, 4]
    assert table.snapshot().properties["delta.columnMapping.maxColumnId"] == "7"
    assert "columnMapping" in table.snapshot().protocol["readerFeatures"]
    assert rows(table) == before
    table.rename_column("id", "the id")
    commit_info = info(table)
    assert (commit_info["operation"], commit_info["operationParameters"]) == (
        "RENAME COLUMN",
        {"oldColumnPath": "id", "newColumnPath": "`the id`"},
    )
    table.rename_column("place.zip", "code")
    table.rename_column("tags.element.k", "tags.element.key")
    table.rename_column("part", "half")
    assert table.snapshot().partition_columns == ["half"]
    assert rows(table)[0] == {
        "the id": 1,
        "place": {"city": "Ulm", "code": 89},
        "tags": [{"key": "a"}],
        "half": "x",
    }
    assert table.scan(filter="half = 'y' AND `the id` > 1").count() == 1
    table.drop_columns(["place.city", "tags"])
    assert info(table)["operationParameters"] == {"columns": ["place.city", "tags"]}
    assert rows(table) == [
        {"the id": 1, "place": {"code": 89}, "half": "x"},
        {"the id": 2, "place": {"code": 1}, "half": "y"},
    ]
    # A new column with the name of a dropped one does not have its values.
    table.add_columns(pa.field("tags", pa.int64()))
    assert [row["tags"] for row in rows(table)] == [None, None]
    assert table.snapshot().properties["delta.columnMapping.maxColumnId"] == "8"
    assert table.check().ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.rename_column("nope", "x"), "no column `nope`"),
        (lambda t: t.rename_column("id", "PLACE"), "a column `PLACE` already"),
        (lambda t: t.rename_column("place.zip", "id.zip"), "cannot be moved"),
        (lambda t: t.rename_column("tags.element", "x"), "columns are in structs"),
        (lambda t: t.rename_column("id", "a.b"), "cannot be moved"),
        (lambda t: t.drop_columns("part"), "partitioned by `part`"),
        (lambda t: t.drop_columns(["place.zip", "place.city"]), "the only one of `place`"),
        (lambda t: t.drop_columns([]), "no column to drop"),
        (lambda t: t.drop_columns(["id", "id"]), "no column `id`"),
        (lambda t: t.set_properties({"delta.columnMapping.mode": "none"}), "Table.drop_feature"),
        (lambda t: t.set_properties({"delta.columnMapping.mode": "id"}), "cannot go from name to id"),
        (lambda t: t.unset_properties(["delta.columnMapping.mode"]), "Table.drop_feature"),
        (lambda t: t.unset_properties("delta.columnMapping.maxColumnId"), "not by hand"),
        (lambda t: t.replace_columns(pa.schema([("id", pa.int32()), ("new", pa.int32())])), "use `rename_column`"),
    ],
)
def test_changes_of_mapped_columns_that_are_refused(table: Table, change: Any, message: str) -> None:
    table.set_properties(MAPPED)
    with refused(message):
        change(table)
    assert table.snapshot().version == 1


def test_columns_are_altered(table: Table) -> None:
    table.alter_column("id", comment="of the visit")
    table.alter_column("place.zip", comment="code")
    table.alter_column("place", position="first")
    table.alter_column("place.city", position="after zip")
    table.alter_column("id", position=("after", "tags"))
    assert table.snapshot().schema.names == ["place", "tags", "id", "part"]
    assert table.snapshot().schema.field("place").type.field(0).name == "zip"
    assert fields(table)["id"]["metadata"] == {"comment": "of the visit"}
    commit_info = info(table)
    assert (commit_info["operation"], commit_info["operationParameters"]["position"]) == ("CHANGE COLUMN", "AFTER tags")
    assert commit_info["operationParameters"]["column"]["name"] == "id"
    table.alter_column("id", comment="")
    assert fields(table)["id"]["metadata"] == {}
    assert rows(table)[0]["place"] == {"zip": 89, "city": "Ulm"}


def test_not_null_can_be_relaxed_and_not_asked_for(uri: str) -> None:
    deltic.create(uri, pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())]))
    table = Table(uri)
    table.alter_column("a", nullable=True)
    deltic.write(table, pa.table({"a": pa.array([None], pa.int64()), "b": [1]}))
    with refused("`b` may hold nulls already, so it stays nullable"):
        table.alter_column("b", nullable=False)


def test_types_are_widened(uri: str) -> None:
    schema = pa.schema(
        [
            ("a", pa.int32()),
            ("l", pa.list_(pa.int16())),
            ("m", pa.map_(pa.string(), pa.float32())),
            ("d", pa.decimal128(5, 2)),
        ]
    )
    row = {"a": 1, "l": [2], "m": [("k", 0.5)], "d": None}
    deltic.write(uri, pa.Table.from_pylist([row], schema=schema))
    table = Table(uri)
    with refused(r"set `delta\.enableTypeWidening` to true first"):
        table.alter_column("a", type=pa.int64())
    table.set_properties({"delta.enableTypeWidening": "true"})
    table.alter_column("a", type=pa.int64())
    table.alter_column("a", type="decimal(22,2)")
    table.alter_column("l.element", type="integer")
    table.alter_column("m.value", type="double")
    table.alter_column("d", type=pa.decimal128(7, 4))
    stored = fields(table)
    assert stored["a"]["metadata"]["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long"},
        {"fromType": "long", "toType": "decimal(22,2)"},
    ]
    assert stored["l"]["metadata"]["delta.typeChanges"] == [
        {"fieldPath": "element", "fromType": "short", "toType": "integer"}
    ]
    assert stored["m"]["metadata"]["delta.typeChanges"][0]["fieldPath"] == "value"
    assert "typeWidening" in table.snapshot().protocol["readerFeatures"]
    assert rows(table) == [{**row, "a": 1}]
    for name, kind, message in [
        ("a", "long", "cannot go from the type decimal"),
        ("m.key", "binary", "cannot go from the type string"),
        ("d", "decimal(8,5)", None),
        ("l", "string", "cannot go from the type array"),
        ("a", "text", "is not a type of Delta"),
        ("a", "decimal(40,2)", "is not a type of Delta"),
    ]:
        if message is None:
            table.alter_column(name, type=kind)
            continue
        with refused(message):
            table.alter_column(name, type=kind)
    assert table.check().ok


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no change of the column `id` is given"),
        ({"name": "nope", "comment": "x"}, "no column `nope`"),
        ({"position": "last"}, "neither `first` nor `after`"),
        ({"position": "after id.x"}, "no column `id.x`"),
        ({"position": 1}, 'position must be "first" or "after x"'),
        ({"name": "tags.element", "comment": "x"}, "only its type can change"),
        ({"name": "place.zip", "default": "1"}, "only whole columns have defaults"),
        ({"default": 1}, "default must be a string of SQL, not int: write '1'"),
        ({"nullable": "yes"}, "nullable must be True or False"),
        ({"type": 5}, "type must be a pyarrow type or the name of a type"),
    ],
)
def test_columns_that_cannot_be_altered(table: Table, arguments: dict[str, Any], message: str) -> None:
    with refused(message):
        table.alter_column(**{"name": "id", **arguments})
    assert table.snapshot().version == 0


def test_a_default_brings_its_feature_and_is_for_rows_from_then_on(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1], "n": [1]}))
    table = Table(uri)
    for default, error in (
        ("'x'", InvalidInputError),
        ("id + 1", InvalidInputError),
        ("frob()", deltic.UnsupportedFeatureError),
    ):
        with pytest.raises(error, match="the default of the column `n`"):
            table.alter_column("n", default=default)
    assert (table.snapshot().version, table.snapshot().protocol) == (0, {"minReaderVersion": 1, "minWriterVersion": 2})
    table.alter_column("n", default="7")
    assert "allowColumnDefaults" in table.snapshot().protocol["writerFeatures"]
    assert table.snapshot().schema.field("n").metadata == {b"CURRENT_DEFAULT": b"7"}
    deltic.write(table, [{"id": 2}])
    table.alter_column("n", default=None)
    assert table.snapshot().schema.field("n").metadata is None
    deltic.write(table, [{"id": 3}])
    assert table.scan().to_arrow().sort_by("id")["n"].to_pylist() == [1, 7, None]


def test_columns_are_replaced(table: Table) -> None:
    table.alter_column("id", comment="kept")
    given = pa.schema(
        [
            ("part", pa.string()),
            ("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())]))),
            ("new", pa.date32()),
            ("ID", pa.int32()),
            ("place", ROWS.schema.field("place").type),
        ]
    )
    table.replace_columns(given)
    assert table.snapshot().schema.names == ["part", "tags", "new", "id", "place"]
    assert fields(table)["id"]["metadata"] == {"comment": "kept"}
    assert info(table)["operation"] == "REPLACE COLUMNS"
    assert rows(table)[0]["tags"] in ([{"k": "a", "v": None}], [])
    for schema, message in [
        (given.remove(3), "`id` would be gone"),
        (given.set(3, pa.field("id", pa.string())), "cannot go from the type integer to string"),
        (given.append(pa.field("x", pa.int64(), nullable=False)), "must be nullable"),
        (given.append(pa.field("Part", pa.string())), "two columns"),
        (5, "schema must be pyarrow fields"),
    ]:
        with refused(message):
            table.replace_columns(schema)
    table.set_properties(MAPPED)
    table.replace_columns(pa.schema([given.field("part"), pa.field("id", pa.int32())]))
    assert rows(table) == [{"part": "x", "id": 1}, {"part": "y", "id": 2}]


def test_properties_name_and_description(table: Table) -> None:
    table.set_properties({"delta.enableDeletionVectors": "true", "owner": "me"})
    assert info(table)["operationParameters"]["properties"] == {"delta.enableDeletionVectors": "true", "owner": "me"}
    assert "deletionVectors" in features(table)
    table.unset_properties("owner")
    assert table.snapshot().properties == {"delta.enableDeletionVectors": "true"}
    assert info(table)["operationParameters"] == {"properties": ["owner"], "ifExists": False}
    table.set_name("visits")
    table.set_description("Who came")
    metadata = table.snapshot().metadata
    assert (metadata["name"], metadata["description"]) == ("visits", "Who came")
    assert info(table)["operationParameters"]["properties"] == {"comment": "Who came"}
    table.set_name(None)
    table.set_description(None)
    assert {"name", "description"}.isdisjoint(table.snapshot().metadata)
    for change, message in [
        (lambda: table.unset_properties(["owner"]), "`owner` is not set"),
        (lambda: table.set_properties({"delta.appendOnli": "true"}), "did you mean `delta.appendOnly`"),
        (lambda: table.set_properties({"delta.appendOnly": "perhaps"}), "true or false"),
        (lambda: table.set_properties({"delta.constraints.x": "id > 0"}), r"add it with `Table\.add_constraint`"),
        (lambda: table.set_properties({"delta.enableRowTracking": "true"}), "Table.enable_row_tracking"),
        (lambda: table.set_properties({"a": 1}), "property 'a' must be a string"),
        (lambda: table.drop_constraint("x"), "no constraint `x`: it has none"),
    ]:
        with refused(message):
            change()
    assert table.snapshot().version == 6


def test_columns_after_an_escaped_quote_are_found(uri: str) -> None:
    h = deltic.field("h", "int", generated=r"hash('it\'s', amount)")
    deltic.create(uri, pa.schema([pa.field("amount", pa.int32()), h]), properties={"delta.enableTypeWidening": "true"})
    with refused("`h`"):
        Table(uri).alter_column("amount", type="long")
    # A raw string has no escapes. The unknown function is not the reason for the refusal.
    ids = [{"delta.columnMapping.id": n, "delta.columnMapping.physicalName": f"c{n}"} for n in (1, 2)]
    schema = struct(field("p", "string", **ids[0]), field("other", "integer", **ids[1]))
    properties = {"columnMapping.mode": "name", "columnMapping.maxColumnId": "2", "constraints.c": r"f(p, r'\', other)"}
    log = Log.empty(f"{uri}-raw", protocol(2, 5), metadata(schema, **properties))
    with refused("`c`"):
        log.table.rename_column("other", "new")


def test_an_append_conflicts_with_a_column_dropped_and_added_again(uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    deltic.create(uri, schema, properties={"delta.columnMapping.mode": "name"})
    ours, theirs = Table(uri), Table(uri)
    deltic.write(ours, pa.table({"id": [1], "x": [10]}))

    def overtaken() -> None:
        with ours.transaction() as tx:
            tx.append(pa.table({"id": [3], "x": [30]}))
            with theirs.transaction() as other:
                other.drop_columns("x")
                other.add_columns(pa.field("x", pa.int64()))

    with pytest.raises(deltic.MetadataChangedError):
        overtaken()
    deltic.write(Table(uri), pa.table({"id": [2], "x": [20]}))
    assert theirs.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "x": None}, {"id": 2, "x": 20}]


def test_a_feature_is_not_dropped_in_a_commit_that_uses_it(uri: str) -> None:
    deltic.create(uri, pa.schema([("id", pa.int64())]), properties={"delta.enableRowTracking": "true"})
    deltic.write(uri, pa.table({"id": [1, 2]}))
    table, free = Table(uri), Table(f"{uri}-free")
    deltic.write(free, pa.table({"id": [1]}), properties={"delta.feature.domainMetadata": "supported"})

    def both(table: Table, *steps: Callable[[deltic.Transaction], Any]) -> None:
        with table.transaction() as tx:
            for step in steps:
                step(tx)

    for of, first, second in [
        (table, lambda tx: tx.delete("id < 10"), lambda tx: tx.drop_feature("rowTracking")),
        (table, lambda tx: tx.drop_feature("rowTracking"), lambda tx: tx.append(pa.table({"id": [3]}))),
        (free, lambda tx: tx.set_domain("app", "{}"), lambda tx: tx.drop_feature("domainMetadata")),
    ]:
        with pytest.raises(InvalidInputError, match=r"commit first|in another one"):
            both(of, first, second)
    assert (table.snapshot().version, table.scan().count()) == (1, 2)


@pytest.mark.parametrize("winner", ["optimize", "restore"])
def test_dropping_row_tracking_conflicts_with_commits_that_assign_ids(uri: str, winner: str) -> None:
    deltic.create(uri, pa.schema([("id", pa.int64())]), properties={"delta.enableRowTracking": "true"})
    for first in (0, 10):
        deltic.write(uri, pa.table({"id": range(first, first + 10)}))
    table = Table(uri)

    def overtaken() -> None:
        with table.transaction() as tx:
            tx.drop_feature("rowTracking")
            Table(uri).optimize() if winner == "optimize" else Table(uri).restore(1)

    with pytest.raises(deltic.CommitConflictError):
        overtaken()
    table.drop_feature("rowTracking")
    table.enable_row_tracking()
    deltic.write(table, pa.table({"id": range(100, 130)}))
    ids = table.scan(columns=["_metadata.row_id"]).to_arrow().column(0).to_pylist()
    assert len(set(ids)) == len(ids)


def test_features_are_added(table: Table) -> None:
    table.add_feature("vacuumProtocolCheck")
    assert info(table)["operation"] == "UPGRADE PROTOCOL"
    assert "vacuumProtocolCheck" in features(table)
    with refused("does not exist"):
        table.add_feature("zebra")
    with pytest.raises(UnsupportedFeatureError):
        table.add_feature("catalogManaged")


def clustering(table: Table) -> Any:
    domain = table.snapshot().domains().get("delta.clustering")
    return None if domain is None else json.loads(domain)["clusteringColumns"]


def test_a_table_is_clustered(uri: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string())])), ("flag", pa.bool_())])
    deltic.create(uri, schema, cluster_by=["a", "S.x"], properties=MAPPED)
    table = Table(uri)
    stored = fields(table)
    physical = {name: stored[name]["metadata"]["delta.columnMapping.physicalName"] for name in stored}
    inner = stored["s"]["type"]["fields"][0]["metadata"]["delta.columnMapping.physicalName"]
    assert clustering(table) == [[physical["a"]], [physical["s"], inner]]
    assert table.detail().clustering_columns == ["a", "s.x"]
    assert {"clustering", "domainMetadata"} <= features(table)
    table.rename_column("a", "b")
    assert table.detail().clustering_columns == ["b", "s.x"]
    for dropped in ("b", "s"):
        with refused("clustered by"):
            table.drop_columns(dropped)
    deltic.write(table, pa.table({"b": [1], "s": [{"x": "k"}], "flag": [True]}))
    table.cluster_by("s.x")
    assert info(table)["operationParameters"] == {"oldClusteringColumns": "b,s.x", "newClusteringColumns": "s.x"}
    table.drop_columns("b")
    table.cluster_by(None)
    assert (clustering(table), table.detail().clustering_columns) == ([], [])
    for columns, message in [
        ("flag", "of the type boolean"),
        ("nope", "no column `nope`"),
        (["s.x", "s.x"], "there twice"),
        (5, "columns must be a list of names"),
    ]:
        with refused(message):
            table.cluster_by(columns)  # type: ignore[arg-type]
    deltic.create(table, schema, mode="replace", cluster_by="a")
    assert clustering(table) == [["a"]]
    deltic.create(table, schema, mode="replace")
    assert clustering(table) is None
    assert table.check().ok


def operations(table: Table, newest: int) -> list[str]:
    return [commit["operation"] for commit in table.history(newest)]


DROPPED = ["DROP FEATURE", "Empty Commit", "Empty Commit", "Empty Commit"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feature", "properties"),
    [
        ("changeDataFeed", {"delta.enableChangeDataFeed": "true"}),
        ("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}),
        ("rowTracking", {"delta.enableRowTracking": "true"}),
        ("clustering", {}),
        ("domainMetadata", {}),
        ("checkConstraints", {}),
    ],
)
def test_writer_features_are_dropped(uri: str, feature: str, properties: dict[str, str]) -> None:
    table = Table(uri)
    clusters = "a" if feature == "clustering" else None
    deltic.create(table, pa.schema([("a", pa.int64())]), properties=properties, cluster_by=clusters)
    if feature not in features(table):
        table.add_feature(feature)
    deltic.write(table, pa.table({"a": [1, 2]}))
    version = table.snapshot().version
    commit = table.drop_feature(feature)
    assert commit.version == table.snapshot().version == version + 1
    assert feature not in features(table)
    assert table.snapshot().properties == {}
    commit_info = info(table)
    assert (commit_info["operation"], commit_info["operationParameters"]) == (
        "DROP FEATURE",
        {"featureName": feature, "truncateHistory": False},
    )
    assert clustering(table) is None
    adds = table.snapshot().files().read_all().to_pylist()
    assert not any(add.get("base_row_id") for add in adds)
    deltic.write(table, pa.table({"a": [3]}))
    assert sorted(row["a"] for row in rows(table)) == [1, 2, 3]
    assert table.check(files=True).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feature", "properties"),
    [
        ("columnMapping", MAPPED),
        ("deletionVectors", {"delta.enableDeletionVectors": "true"}),
        ("typeWidening", {"delta.enableTypeWidening": "true"}),
        ("v2Checkpoint", {"delta.checkpointPolicy": "v2"}),
        ("vacuumProtocolCheck", {}),
    ],
)
def test_reader_features_are_dropped_with_checkpoint_protection(
    uri: str, feature: str, properties: dict[str, str]
) -> None:
    deltic.write(uri, pa.table({"a": [1, 2]}))
    table = Table(uri)
    if properties:
        table.set_properties(properties)
    else:
        table.add_feature(feature)
    deltic.write(table, pa.table({"a": [3]}))
    version = table.snapshot().version
    with table.transaction(operation="DROP") as tx, refused(r"Table\.drop_feature"):
        tx.drop_feature(feature)
    assert table.snapshot().version == version
    commit = table.drop_feature(feature)
    change = "SET TBLPROPERTIES" if feature == "v2Checkpoint" else "UNSET TBLPROPERTIES"
    disabling = [*DROPPED, change] if properties else DROPPED
    assert operations(table, len(disabling)) == disabling
    assert commit.version == table.snapshot().version == version + len(disabling)
    protocol = table.snapshot().protocol
    assert feature not in features(table)
    assert "checkpointProtection" in features(table)
    assert (protocol["minReaderVersion"], protocol.get("readerFeatures")) == (1, None)
    protection = {"delta.requireCheckpointProtectionBeforeVersion": str(commit.version)}
    assert table.snapshot().properties == protection
    checkpoints = sorted(Path(uri, "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(path.name[:20]) for path in checkpoints][-4:] == [commit.version - left for left in (3, 2, 1, 0)]
    deltic.write(table, pa.table({"a": [4]}))
    assert sorted(row["a"] for row in rows(table)) == [1, 2, 3, 4]
    assert table.snapshot(version=version).scan().to_arrow().num_rows == 3
    assert table.check(files=True).ok


@pytest.mark.slow
def test_dropping_a_feature_continues_after_an_interruption(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}))
    table = Table(uri)
    table.set_properties({"delta.enableDeletionVectors": "true"})
    table.unset_properties("delta.enableDeletionVectors")
    table.drop_feature("deletionVectors")
    assert operations(table, 5) == [*DROPPED, "UNSET TBLPROPERTIES"]
    assert table.snapshot().version == 6


def with_domain(table: Table) -> None:
    with table.transaction() as tx:
        tx.add_feature("domainMetadata")
        tx.set_domain("billing", "{}")


def with_features(*names: str) -> Callable[[Table], None]:
    def uses(table: Table) -> None:
        for name in names:
            table.add_feature(name)

    return uses


ICEBERG = ("columnMapping", "icebergCompatV2", "icebergWriterCompatV1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uses", "feature", "message"),
    [
        (with_domain, "domainMetadata", "metadata domain `billing`"),
        (lambda table: table.cluster_by("a"), "domainMetadata", "needed by `clustering`"),
        (with_features("domainMetadata", "collations"), "domainMetadata", "needed by `collations`"),
        (with_features(*ICEBERG), "icebergCompatV2", "needed by `icebergWriterCompatV1`"),
        (
            with_features("columnMapping", "columnMappingUsageTracking"),
            "columnMapping",
            "needed by `columnMappingUsageTracking`",
        ),
        (lambda table: None, "appendOnly", "cannot be dropped; those that can are"),
        (lambda table: None, "rowTracking", "does not have the feature"),
        (lambda table: None, "zebra", "does not have the feature"),
    ],
)
def test_features_that_cannot_be_dropped(uri: str, uses: Any, feature: str, message: str) -> None:
    deltic.write(uri, pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]}))
    table = Table(uri)
    uses(table)
    before = (table.snapshot().version, table.snapshot().protocol, table.snapshot().metadata)
    with refused(message):
        table.drop_feature(feature)
    with table.transaction(operation="DROP") as tx, pytest.raises(InvalidInputError):
        tx.drop_feature(feature)
    assert (table.snapshot().version, table.snapshot().protocol, table.snapshot().metadata) == before


def test_dropping_a_feature_conflicts_with_a_write(uri: str) -> None:
    deltic.create(uri, pa.schema([("a", pa.int64())]), properties={"delta.enableRowTracking": "true"})
    table = Table(uri)

    def drop() -> None:
        with table.transaction(operation="DROP") as tx:
            tx.drop_feature("rowTracking")
            deltic.write(uri, pa.table({"a": [1]}))

    with pytest.raises(deltic.CommitConflictError):
        drop()
    assert "rowTracking" in features(table)


def test_partitions_and_clustering_exclude_each_other(table: Table, uri: str) -> None:
    with refused("partitioned by `part`"):
        table.cluster_by("id")
    with pytest.raises(InvalidInputError, match="partitioned by `part`"):
        deltic.create(uri + "2", ROWS.schema, ["part"], cluster_by=["id"])
    assert not Table(uri + "2").exists()


def test_files_have_statistics_of_clustering_columns_set_in_the_same_commit(uri: str) -> None:
    deltic.create(uri, pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table = Table(uri)
    with table.transaction() as tx:
        tx.cluster_by("b")
        tx.append(pa.table({"a": [1], "b": [7]}))
    (file,) = table.files().read_all().to_pylist()
    assert file["min"]["b"] == 7
    assert clustering(table) == [["b"]]


def test_two_clusterings_conflict(uri: str) -> None:
    deltic.create(uri, pa.schema([("a", pa.int64()), ("b", pa.int64())]), cluster_by="a")
    table = Table(uri)
    tx = table.transaction()
    tx.__enter__()
    tx.cluster_by("b")
    Table(uri).cluster_by(None)
    with pytest.raises(deltic.ConcurrentTransactionError):
        tx.__exit__(None, None, None)
    assert clustering(table) == []


def test_several_verbs_are_one_commit(table: Table) -> None:
    with table.transaction() as tx:
        tx.set_properties(MAPPED)
        tx.rename_column("id", "key")
        tx.add_columns(pa.field("id", pa.string()))
        tx.drop_columns("tags")
        tx.set_description("Everything at once")
        tx.append(pa.table({"key": pa.array([9], pa.int32()), "id": ["new"], "part": ["z"], "place": [None]}))
    assert tx.committed is not None
    assert tx.committed.version == 1
    assert [(row["key"], row["id"]) for row in rows(table)] == [(1, None), (2, None), (9, "new")]
    commit_info = info(table)
    assert commit_info["operation"] == "TRANSACTION"
    steps = [step["operation"] for step in commit_info["operationParameters"]["operations"]]
    names = ["SET TBLPROPERTIES", "RENAME COLUMN", "ADD COLUMNS", "DROP COLUMNS", "SET TBLPROPERTIES"]
    assert steps == names
    assert [next(iter(action)) for action in Log(table.uri).read(1)].count("metaData") == 1
    with table.transaction() as tx:
        tx.append(pa.table({"key": pa.array([10], pa.int32()), "part": ["z"]}))
        with refused("rows were written under the old metadata"):
            tx.drop_columns("id")


def test_a_change_conflicts_with_another(table: Table) -> None:
    def change() -> None:
        with table.transaction() as tx:
            tx.set_name("mine")
            Table(table.uri).set_name("theirs")

    with pytest.raises(deltic.MetadataChangedError):
        change()
    assert table.snapshot().metadata["name"] == "theirs"
    with table.transaction() as tx:
        tx.add_columns(pa.field("new", pa.int64()))
        deltic.write(Table(table.uri), ROWS.slice(0, 1))
    assert len(rows(table)) == 3


def test_a_handle_with_outdated_state_alters_the_newest_version(table: Table) -> None:
    deltic.write(table, ROWS)
    assert table.remembers()
    Table(table.uri).add_columns(pa.field("new", pa.int64()))
    # The handle's cached state lacks the column, which the newest version has.
    table.alter_column("new", comment="of others")
    assert fields(table)["new"]["metadata"] == {"comment": "of others"}


# --- new tables


def test_fields_have_the_metadata_of_the_protocol() -> None:
    every = deltic.field("a", "long", False, comment="c", identity={"start": 5, "step": -2, "always": False})
    assert (every.name, every.type, every.nullable) == ("a", pa.int64(), False)
    assert every.metadata == {
        b"comment": b"c",
        b"delta.identity.start": b"5",
        b"delta.identity.step": b"-2",
        b"delta.identity.allowExplicitInsert": b"true",
    }
    assert deltic.field("a", pa.list_(pa.int8())).metadata is None
    assert deltic.field("a", "int", default="1 + 1").metadata == {b"CURRENT_DEFAULT": b"1 + 1"}
    for arguments, message in [
        ({"type": "number"}, "is not a type of Delta"),
        ({"default": 5}, "default must be a string of SQL, not int: write '5'"),
        ({"generated": True}, "generated must be a string of SQL"),
        ({"default": "1", "generated": "2"}, "one of default, generated and identity"),
        ({"identity": {"step": 0}}, "a step that is not 0"),
        ({"identity": {"by": 1}}, "start, step and always, not by"),
        ({"identity": True}, "identity must be a mapping"),
        ({"type": "string", "identity": {}}, "an identity column is a long, not string"),
        ({"comment": 1}, "comment must be a string"),
        ({"nullable": None}, "nullable must be True or False"),
    ]:
        with refused(message):
            deltic.field(**{"name": "a", "type": "long", **arguments})


def test_a_mapped_table_from_the_start(uri: str) -> None:
    schema = pa.schema([("a b", pa.int64()), ("s", pa.struct([("x", pa.int64())])), ("p", pa.string())])
    deltic.create(uri, schema, partition_by="p", properties=MAPPED)
    stored = fields(Table(uri))
    metadata = [field["metadata"] for field in [*stored.values(), *stored["s"]["type"]["fields"]]]
    assert [field["delta.columnMapping.id"] for field in metadata] == [1, 2, 4, 3]
    names = [field["delta.columnMapping.physicalName"] for field in metadata]
    assert len(set(names)) == 4
    assert all(name.startswith("col-") and len(name) == 40 for name in names)
    assert Table(uri).snapshot().properties == {**MAPPED, "delta.columnMapping.maxColumnId": "4"}


def test_modes_of_creating(uri: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("p", pa.string())])
    with pytest.raises(deltic.TableNotFoundError, match="no table to replace"):
        deltic.create(uri, schema, mode="replace")
    assert deltic.create(uri, schema, "p", mode="create_or_replace", name="n").version == 0
    with pytest.raises(deltic.TableExistsError):
        deltic.create(uri, schema)
    left = deltic.create(uri, schema, mode="ignore")
    assert (left.version, left.attempts) == (0, 0)
    table = Table(uri)
    deltic.write(table, pa.table({"a": [1, 2], "p": ["x", "y"]}))
    old = table.snapshot()
    other = pa.schema([("b", pa.string())])
    commit = deltic.create(table, other, mode="replace", properties={"mine": "1"}, description="d")
    assert commit.version == 2
    new = table.snapshot()
    assert (new.schema.names, new.partition_columns, new.num_files) == (["b"], [], 0)
    assert (new.properties, new.metadata["description"]) == ({"mine": "1"}, "d")
    assert "name" not in new.metadata
    assert new.metadata["id"] != old.metadata["id"]
    assert len(old.scan().to_arrow()) == 2
    assert info(table)["operation"] == "REPLACE TABLE"
    deltic.write(table, pa.table({"b": ["x"]}))
    assert deltic.create(uri, schema, mode="create_or_replace").version == 4
    assert info(table)["operation"] == "CREATE OR REPLACE TABLE"
    assert table.scan().count() == 0
    assert table.check().ok
    with pytest.raises(InvalidInputError, match="mode must be"):
        deltic.create(uri, schema, mode="overwrite")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="at least one column"):
        deltic.create(uri, pa.schema([]), mode="replace")
    table.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(InvalidInputError, match="append-only"):
        deltic.create(uri, schema, mode="replace")
    assert table.snapshot().version == 5


def test_a_replacement_keeps_properties_that_history_needs(uri: str) -> None:
    schema = pa.schema([("a", pa.int64())])
    deltic.write(uri, pa.table({"a": [1]}))
    table = Table(uri)
    table.set_properties({**MAPPED, "delta.enableInCommitTimestamps": "true"})
    since = table.snapshot().properties
    kept = {"delta.enableInCommitTimestamps": "true", **MAPPED}
    deltic.create(table, schema, mode="replace", properties=kept)
    replaced = table.snapshot()
    # Time travel needs the version since which in-commit timestamps exist, and column ids are not assigned twice.
    assert {key: replaced.properties[key] for key in since if key.startswith("delta.inCommit")} == {
        key: since[key] for key in since if key.startswith("delta.inCommit")
    }
    assert replaced.properties["delta.columnMapping.maxColumnId"] == "2"
    assert fields(table)["a"]["metadata"]["delta.columnMapping.id"] == 2
    assert len(table.history()) == 3
    deltic.create(table, schema, mode="replace")
    assert table.snapshot().properties == {"delta.columnMapping.maxColumnId": "2"}
    assert {"columnMapping", "inCommitTimestamp"} <= features(table)


@pytest.mark.slow
def test_replacing_conflicts_with_a_write(uri: str) -> None:
    deltic.write(uri, pa.table({"a": [1]}))
    table = Table(uri)

    def append() -> None:
        with table.transaction() as tx:
            tx.append(pa.table({"a": [2]}))
            deltic.create(uri, pa.schema([("b", pa.string())]), mode="replace")

    with pytest.raises(deltic.CommitConflictError):
        append()
    assert table.scan().count() == 0


@pytest.mark.parametrize("mode", ["error", "ignore", "create_or_replace"])
def test_two_creators_race(uri: str, mode: Any) -> None:
    schema = pa.schema([("a", pa.int64())])
    outcomes: list[Any] = []
    start = threading.Barrier(6)

    def create() -> None:
        start.wait()
        try:
            outcomes.append(deltic.create(uri, schema, mode=mode))
        except deltic.DelticError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commits = [outcome for outcome in outcomes if isinstance(outcome, deltic.Commit)]
    made = sorted(commit.version for commit in commits if commit.attempts)
    assert len(outcomes) == 6
    if mode == "create_or_replace":
        # A concurrent replacement is a conflict.
        assert made == list(range(len(made)))
        assert all(isinstance(o, deltic.Commit | deltic.CommitConflictError) for o in outcomes)
        return
    assert made == [0]
    if mode == "ignore":
        assert [commit.version for commit in commits] == [0] * 6
        return
    assert sum(isinstance(outcome, deltic.TableExistsError) for outcome in outcomes) == 5


def test_altering_keeps_unknown_properties(uri: str) -> None:
    """deltic keeps properties that it does not know."""
    deltic.write(uri, pa.table({"a": [1]}))
    log = Path(uri, "_delta_log", f"{0:020}.json")
    text = log.read_text().replace('"configuration":{}', '"configuration":{"other.engine":"x"}')
    log.write_text(text)
    log.with_suffix(".crc").unlink(missing_ok=True)
    table = Table(uri)
    table.add_columns(pa.field("b", pa.int64()))
    assert table.snapshot().properties == {"other.engine": "x"}


# --- details of a table


def test_detail_is_what_spark_describes(table: Table) -> None:
    table.set_name("visits")
    table.set_properties({"delta.enableDeletionVectors": "true"})
    detail = table.detail()
    assert (detail.version, detail.format, detail.name, detail.num_files, detail.num_rows) == (
        2,
        "delta",
        "visits",
        2,
        2,
    )
    assert detail.size_in_bytes == sum(path.stat().st_size for path in Path(table.uri).rglob("part-*.parquet"))
    assert detail.partition_columns == ["part"]
    assert detail.table_features == ["appendOnly", "deletionVectors", "invariants"]
    assert detail.last_modified is not None
    assert detail.created_at is not None
    assert detail.last_modified >= detail.created_at
    fields = detail.to_dict()
    assert set(fields) == {
        *("format", "id", "name", "description", "location", "createdAt", "lastModified", "partitionColumns"),
        *("clusteringColumns", "numFiles", "sizeInBytes", "properties", "minReaderVersion", "minWriterVersion"),
        *("tableFeatures", "numRows", "version"),
    }
    assert fields["id"] == table.snapshot().metadata["id"]
    assert "rows: 2 in 2 files" in repr(detail)
    assert "partitioned by: part" in repr(detail)
    assert table.uri in detail._repr_html_()
    assert table.snapshot(0).detail().name is None
    with table.transaction() as tx:
        assert tx.detail().version == 2


def test_detail_of_a_table_without_row_counts(table: Table) -> None:
    log = Log(table.uri)
    log.edit(0, "add", lambda add: add.pop("stats"))
    log.path(0, "crc").unlink(missing_ok=True)
    assert Table(table.uri).detail().num_rows is None
    assert "rows: unknown in 2 files" in repr(Table(table.uri).detail())


@pytest.mark.parametrize(
    ("type", "identity", "message"),
    [
        (pa.int64(), {"start": 1, "step": 0}, "step"),
        (pa.int64(), {"start": 1}, "step"),
        (pa.int32(), {"start": 1, "step": 1}, "long"),
    ],
)
def test_invalid_identity_columns_are_refused(
    uri: str, type: pa.DataType, identity: dict[str, int], message: str
) -> None:
    metadata = {f"delta.identity.{key}": str(value) for key, value in identity.items()}
    schema = pa.schema([pa.field("id", type, metadata=metadata), pa.field("a", pa.int64())])
    with pytest.raises(InvalidInputError, match=message):
        deltic.create(uri, schema)
    assert not Table(uri).exists()
