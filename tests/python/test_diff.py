"""`Table.diff`: the differences of two versions, compared with known numbers and with multisets of rows."""

import json
import random
import re
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from changed_rows import IDS, VECTORS
from log_files import Log, field, metadata, protocol, remove, struct
from test_display import Balanced

import deltic
from deltic.cli import main
from deltic.inspection.row_keys import row_keys

NAN = float("nan")


def multiset(rows: pa.Table) -> Counter[str]:
    """Rows as a multiset of strings, in which NaN equals NaN."""
    return Counter(repr(sorted(row.items())) for row in rows.to_pylist())


def of_kind(diff: deltic.Diff, kind: str) -> Counter[str]:
    rows = diff.to_arrow()
    chosen = rows.filter(pa.compute.equal(rows["_change_type"], kind))
    return multiset(chosen.drop_columns([n for n in ("_change_type", "_metadata.row_id") if n in rows.column_names]))


def rows_of(table: deltic.Table, version: int) -> Counter[str]:
    return multiset(table.snapshot(version).scan().to_arrow())


def test_files_and_rows_by_hand(uri: str) -> None:
    deltic.write(uri, pa.table({"p": [1, 1, 2], "v": [1, 2, 3]}), partition_by=["p"], properties=VECTORS)
    table = deltic.Table(uri)
    deltic.write(uri, pa.table({"p": [2, 3], "v": [4, 5]}))
    table.delete("v = 1")
    table.delete("v = 3")
    sizes = {row["path"]: row["size"] for v in range(4) for row in table.snapshot(v).files().read_all().to_pylist()}
    diff = table.diff(0)
    assert (diff.from_version, diff.to_version, diff.rows) == (0, 3, None)
    # Row 3: its file is removed. Row 1: deleted by a vector in the file of row 2. Rows 4 and 5: new files.
    found = {row.pop("partition"): row for row in diff.partitions.to_pylist()}
    counts = ("files_added", "files_removed", "files_changed", "rows_added", "rows_removed")
    assert {label: tuple(row[name] for name in counts) for label, row in found.items()} == {
        "p=1": (0, 0, 1, 0, 1),
        "p=2": (1, 1, 0, 1, 1),
        "p=3": (1, 0, 0, 1, 0),
    }
    first, last = (
        {row["path"] for row in table.snapshot(version).files().read_all().to_pylist()} for version in (0, 3)
    )
    assert diff.bytes_added == sum(sizes[path] for path in last - first)
    assert diff.bytes_removed == sum(sizes[path] for path in first - last)
    assert (diff.files_added, diff.files_removed, diff.files_changed) == (2, 1, 1)
    assert (diff.rows_added, diff.rows_removed) == (2, 2)
    assert (diff.before.num_rows, diff.after.num_rows) == (3, 3)
    assert (diff.columns, diff.properties, diff.metadata) == ([], {}, {})
    back = table.diff(3, 0)
    assert (back.files_added, back.files_removed, back.files_changed) == (1, 2, 1)
    assert (back.rows_added, back.rows_removed) == (2, 2)


def labels(diff: deltic.Diff) -> dict[str, tuple[int, int]]:
    """Numbers of added and removed files by partition, whose labels must be unique."""
    rows = diff.partitions.to_pylist()
    found = {row["partition"]: (row["files_added"], row["files_removed"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_labels_of_partitions_are_unique(uri: str) -> None:
    kinds = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int64())])
    rows = [("NULL", "x"), (None, "x"), ("1/b=2", "3"), ("1", "2/b=3"), ("é %", "a b")]
    data = pa.table([[a for a, _ in rows], [b for _, b in rows], range(len(rows))], schema=kinds)
    deltic.create(uri, kinds, partition_by=["a", "b"])
    deltic.write(uri, data)
    assert labels(deltic.Table(uri).diff(0)) == {
        "a=NULL/b=x": (1, 0),
        "a=__HIVE_DEFAULT_PARTITION__/b=x": (1, 0),
        "a=1%2Fb%3D2/b=3": (1, 0),
        "a=1/b=2%2Fb%3D3": (1, 0),
        "a=é %25/b=a b": (1, 0),
    }


def test_partitions_of_every_type_are_named_as_in_a_path(uri: str) -> None:
    columns = {
        "t": pa.array([1_500], pa.timestamp("us", "UTC")),
        "n": pa.array([0], pa.timestamp("us")),
        "d": pa.array([1], pa.date32()),
        "x": pa.array([b"a/b"]),
        "y": pa.array([True]),
        "m": pa.array([Decimal("-1.50")]),
    }
    data = pa.table({**columns, "v": [1]})
    deltic.create(uri, data.schema, partition_by=list(columns))
    deltic.write(uri, data)
    table = deltic.Table(uri)
    (path,) = table.snapshot().files().read_all()["path"].to_pylist()
    folders = unquote(path).rpartition("/")[0]
    assert list(labels(table.diff(0))) == [folders]


def test_a_partition_column_that_was_renamed_is_the_same(uri: str) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    data = pa.table({"p": [1, 2], "v": [1, 2]})
    deltic.write(uri, data, partition_by=["p"], properties=properties)
    table = deltic.Table(uri)
    table.rename_column("p", "q")
    table.update({"v": "9"}, "q = 1")
    assert labels(table.diff(0)) == {"q=1": (1, 1)}
    assert labels(table.diff(table.snapshot().version, 0)) == {"p=1": (1, 1)}


@pytest.mark.parametrize(("columns", "label"), [(["b"], "b=1"), (["a", "b"], "a=1/b=1"), ([], "")])
def test_other_partition_columns_are_other_partitions(uri: str, columns: list[str], label: str) -> None:
    data = pa.table({"a": [1], "b": [1], "v": [1]})
    deltic.write(uri, data, partition_by=["a"])
    deltic.write(uri, data, mode="overwrite", schema_mode="overwrite", partition_by=columns)
    assert labels(deltic.Table(uri).diff(0)) == {"a=1": (0, 1), label: (1, 0)}


def test_a_version_does_not_differ_from_itself(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1]}))
    diff = deltic.Table(uri).diff(0, 0, rows=True)
    assert diff.partitions.num_rows == diff.to_arrow().num_rows == 0
    assert "nothing differs" in repr(diff)
    assert Balanced(diff._repr_html_())


def test_schema_properties_and_features(uri: str) -> None:
    fields = [("a", pa.int32()), ("b", pa.string()), ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())]))]
    properties = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true", "kept": "1", "gone": "1"}
    deltic.create(uri, pa.schema(fields), properties=properties, name="old")
    table = deltic.Table(uri)
    table.rename_column("a", "c")
    table.rename_column("s.x", "z")
    table.drop_columns(["b"])
    table.add_columns([pa.field("d", pa.date32())])
    table.set_properties({"kept": "2", "delta.appendOnly": "true"})
    table.unset_properties(["gone"])
    table.add_feature("domainMetadata")
    diff = table.diff(0)
    assert [tuple(change) for change in diff.columns] == [
        ("dropped", "b", "string", None),
        ("renamed", "c", "a", "c"),
        ("renamed", "s.z", "s.x", "s.z"),
        ("added", "d", None, "date"),
    ]
    properties = dict(diff.properties)
    properties.pop("delta.columnMapping.maxColumnId")
    assert properties == {"delta.appendOnly": (None, "true"), "gone": ("1", None), "kept": ("1", "2")}
    assert (diff.features_added, diff.features_dropped) == (["domainMetadata"], [])
    back = table.diff(diff.to_version, 0)
    assert {change.kind for change in back.columns} == {"dropped", "renamed", "added"}
    assert back.features_dropped == ["domainMetadata"]


def test_types_and_nullability(uri: str) -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("l", pa.list_(pa.int16()))])
    deltic.create(uri, schema)
    deltic.write(uri, pa.table({"a": ["x"], "l": [[1]]}), mode="overwrite", schema_mode="overwrite")
    diff = deltic.Table(uri).diff(0)
    assert [tuple(change) for change in diff.columns] == [
        ("nullability", "a", "not null", "nullable"),
        ("retyped", "a", "integer", "string"),
        ("retyped", "l.element", "short", "long"),
    ]
    with pytest.raises(deltic.InvalidInputError, match="column `a` was string and is integer"):
        deltic.Table(uri).diff(1, 0, rows=True)


NESTED = pa.struct([("a", pa.list_(pa.int64()))])
VALUES = {
    "f": pa.array([NAN, NAN, 0.0, -0.0, None, None], pa.float64()),
    "d": pa.array([Decimal("1.20"), None, None, None, None, None], pa.decimal128(9, 2)),
    "s": pa.array(
        [{"a": None}, None, {"a": [1, None]}, {"a": []}, None, None], pa.struct([("a", pa.list_(pa.int64()))])
    ),
    "m": pa.array([[("k", 1)], [], None, None, None, None], pa.map_(pa.string(), pa.int64())),
    "t": pa.array(["", "N", "1:N", None, None, None]),
}


def test_rows_with_nan_null_nested_values_and_duplicates(uri: str) -> None:
    first = pa.table(VALUES)
    deltic.write(uri, first)
    # The same rows in another order and other files, without the last row and with the first one twice.
    deltic.write(uri, pa.concat_tables([first.slice(3, 2), first.slice(0, 3), first.slice(0, 1)]), mode="overwrite")
    table = deltic.Table(uri)
    diff = table.diff(0, rows=True)
    assert of_kind(diff, "insert") == multiset(first.slice(0, 1))
    assert of_kind(diff, "delete") == multiset(first.slice(5))
    assert diff.row_counts() == {"insert": 1, "delete": 1, "update_preimage": 0, "update_postimage": 0}
    assert diff.to_arrow().schema.names == ["_change_type", *first.column_names]


def two_of(kind: pa.DataType, *values: Any) -> pa.Array:
    return pa.array([*values, None], kind)


EVERY_TYPE = {
    **{f"int{bits}": two_of(getattr(pa, f"int{bits}")(), -1, 1) for bits in (8, 16, 32, 64)},
    "float": two_of(pa.float32(), 0.5, NAN),
    "double": two_of(pa.float64(), 0.5, -0.5),
    "decimal": two_of(pa.decimal128(38, 10), Decimal("1.5"), Decimal("-1.5")),
    "string": two_of(pa.string(), "a", ""),
    "binary": two_of(pa.binary(), b"\x00", b"\xff"),
    "boolean": two_of(pa.bool_(), True, False),
    "date": two_of(pa.date32(), 0, 1),
    "timestamp": two_of(pa.timestamp("us", "UTC"), 0, 1),
    "timestamp_ntz": two_of(pa.timestamp("us"), 0, 1),
    "struct": two_of(pa.struct([("x", pa.string())]), {"x": None}, {"x": ""}),
    "list": two_of(pa.list_(pa.date32()), [], [1]),
    "map": two_of(pa.map_(pa.string(), pa.binary()), [("k", None)], [("k", b"")]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_TYPE)
def test_values_of_every_type_are_distinguished(uri: str, name: str) -> None:
    values = EVERY_TYPE[name]
    deltic.write(uri, pa.table({"v": pa.concat_arrays([values, values.slice(0, 1)])}))
    for at in range(3):
        # The first value occurs twice; one of them is removed.
        kept = pa.concat_arrays([values.slice(0, at), values.slice(at + 1), values.slice(0, 1)])
        deltic.write(uri, pa.table({"v": kept}), mode="overwrite")
        diff = deltic.Table(uri).diff(0, at + 1, rows=True)
        assert of_kind(diff, "delete") == multiset(pa.table({"v": values.slice(at, 1)}))
        assert of_kind(diff, "insert") == Counter()


def test_variants_are_distinguished(uri: str) -> None:
    log = Log.empty(uri)
    variant = [pa.array([{"metadata": b"\1\0\0", "value": value}]) for value in (b"\0", b"\4")]
    adds = [log.file(f"{at}.parquet", pa.table({"v": column})) for at, column in enumerate(variant)]
    log.commit(0, [protocol(), metadata(struct(field("v", "variant"))), adds[0]])
    log.commit(1, [adds[1]])
    (row,) = log.table.diff(0, rows=True).to_arrow().to_pylist()
    assert row == {"_change_type": "insert", "v": {"metadata": b"\1\0\0", "value": b"\4"}}


ODD: list[list[Any]] = [
    ["", None],
    [None, ""],
    ["1:a", "b"],
    ["1:a1:b", ""],
    ["N", None],
    [None, "N"],
    ["NN", ""],
    ["a", "1:b"],
    ["a1:", "b"],
]


def test_keys_of_different_rows_differ() -> None:
    rows = [[pa.array([value], pa.string()) for value in row] for row in ODD]
    keys = [row_keys(row, 1)[0].as_py() for row in rows]
    assert len(set(keys)) == len(ODD)
    lists = [None, [], [None], [None, None], [[]], [[], []], [[None]], [["a"], ["b"]], [["a", "b"]], [["a1:b"]]]
    flat = pa.array([*lists, None, *lists], pa.list_(pa.list_(pa.string())))
    nested = row_keys([flat], len(flat)).to_pylist()
    assert len(set(nested)) == len(lists)
    assert nested[: len(lists)] == nested[len(lists) + 1 :]
    # Slices, whose offsets do not start at 0.
    assert row_keys([flat.slice(3, 5)], 5).to_pylist() == nested[3:8]
    entry = pa.map_(pa.string(), pa.struct([("x", pa.float32())]))
    maps = pa.array([[("a", {"x": NAN})], [("a", None)], [], None, [("a", {"x": None})]], entry)
    assert len(set(row_keys([maps], 5).to_pylist())) == 5
    assert row_keys([maps.slice(1, 3)], 3).to_pylist() == row_keys([maps], 5).to_pylist()[1:4]


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS, IDS, {**VECTORS, **IDS}], ids=["", "v", "t", "vt"])
@pytest.mark.parametrize("seed", range(3))
def test_random_histories_match_multisets(uri: str, seed: int, properties: dict[str, str]) -> None:
    chosen = random.Random(seed)

    def some(count: int) -> pa.Table:
        values = [chosen.choice([1.5, NAN, None, 0.0]) for _ in range(count)]
        lists = [chosen.choice([None, [], [1], [None, 2]]) for _ in range(count)]
        numbers = pa.array([chosen.randrange(4) for _ in range(count)], pa.int64())
        return pa.table({"p": numbers, "n": numbers, "f": pa.array(values, pa.float64()), "l": lists}, SCHEMA)

    deltic.write(uri, some(20), partition_by=["p"], properties=properties)
    table = deltic.Table(uri)
    for _ in range(6):
        step = chosen.randrange(4)
        if step == 0:
            deltic.write(uri, some(8))
        elif step == 1:
            table.delete(f"n = {chosen.randrange(4)} AND f IS NULL")
        elif step == 2:
            table.update({"f": "f + 1"}, f"n = {chosen.randrange(4)}")
        else:
            table.optimize()
    last = table.snapshot().version
    for first in range(last + 1):
        for start, end in ((first, last), (last, first)):
            diff = table.diff(start, end, rows=True)
            old, new = rows_of(table, start), rows_of(table, end)
            gone = of_kind(diff, "delete") + of_kind(diff, "update_preimage")
            came = of_kind(diff, "insert") + of_kind(diff, "update_postimage")
            if properties.get("delta.enableRowTracking") != "true":
                assert (gone, came) == (old - new, new - old)
            else:
                assert old - gone + came == new
                assert not of_kind(diff, "update_preimage") - old
            # Row counts from file actions agree with the rows.
            assert diff.rows_added is not None
            assert diff.rows_removed is not None
            assert diff.rows_added - diff.rows_removed == new.total() - old.total()


SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.int64()))])


def test_updates_by_row_ids(uri: str) -> None:
    deltic.write(uri, pa.table({"k": [1, 2, 3, 4], "v": [0, 0, 0, 0]}), properties=IDS)
    table = deltic.Table(uri)
    table.update({"v": "v + k"}, "k >= 3")
    table.update({"v": "0"}, "k = 4")
    table.delete("k = 1")
    deltic.write(uri, pa.table({"k": [5], "v": [5]}))
    table.optimize()
    diff = table.diff(0, rows=True)
    rows = diff.to_arrow().to_pylist()
    ids = {
        row["k"]: row["_metadata.row_id"]
        for row in table.snapshot(0).scan(["k", "_metadata.row_id"]).to_arrow().to_pylist()
    }
    found = [(row["_change_type"], row["k"], row["v"]) for row in rows]
    # Row 4 was changed and changed back, row 2 was only rewritten.
    assert sorted(found) == [
        ("delete", 1, 0),
        ("insert", 5, 5),
        ("update_postimage", 3, 3),
        ("update_preimage", 3, 0),
    ]
    assert found.index(("update_postimage", 3, 3)) == found.index(("update_preimage", 3, 0)) + 1
    assert all(row["_metadata.row_id"] == ids[row["k"]] for row in rows if row["k"] in ids)


@pytest.mark.slow
def test_rows_across_a_change_of_schema(uri: str) -> None:
    struct = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    data = pa.table({"a": [1, 2], "b": ["x", "y"], "s": pa.array([{"x": 1, "y": 2}, None], struct)})
    properties = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    deltic.write(uri, data, properties=properties)
    table = deltic.Table(uri)
    table.rename_column("a", "c")
    table.rename_column("s.x", "z")
    table.drop_columns(["b"])
    table.add_columns([pa.field("d", pa.date32())])
    # Changes of the schema change no rows.
    assert table.diff(0, rows=True).to_arrow().num_rows == 0
    table.update({"c": "9"}, "c = 2")
    diff = table.diff(0, rows=True)
    same = {"s": None, "d": None}
    assert diff.to_arrow().to_pylist() == [
        {"_change_type": "delete", "c": 2, **same},
        {"_change_type": "insert", "c": 9, **same},
    ]


def test_wider_types_hold_the_same_rows(uri: str) -> None:
    deltic.write(uri, pa.table({"a": pa.array([1, 2], pa.int32())}), properties={"delta.enableTypeWidening": "true"})
    wider = pa.table({"a": pa.array([2, 3], pa.int64())})
    deltic.write(uri, wider, mode="overwrite", schema_mode="overwrite")
    found = deltic.Table(uri).diff(0, rows=True).to_arrow().to_pylist()
    assert found == [{"_change_type": "delete", "a": 1}, {"_change_type": "insert", "a": 3}]


def test_maps_and_lists_of_a_wider_type_hold_the_same_rows(uri: str) -> None:
    def rows(number: pa.DataType, last: int) -> pa.Table:
        maps = pa.array([None, [], [("a", 1), ("b", None)], None, [("c", last)]], pa.map_(pa.string(), number))
        return pa.table({"m": maps, "l": pa.array([None, [], [1, None], None, [2]], pa.list_(number))})

    deltic.write(uri, rows(pa.int32(), 2))
    deltic.write(uri, rows(pa.int64(), 3), mode="overwrite", schema_mode="overwrite")
    found = deltic.Table(uri).diff(0, rows=True).to_arrow().to_pylist()
    assert found == [
        {"_change_type": "delete", "m": [("c", 2)], "l": [2]},
        {"_change_type": "insert", "m": [("c", 3)], "l": [2]},
    ]


def test_only_files_that_differ_are_read(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1]}))
    (old,) = Path(uri).rglob("*.parquet")
    deltic.write(uri, pa.table({"v": [2]}))
    old.unlink()
    table = deltic.Table(uri)
    assert table.diff(0, rows=True).to_arrow().to_pylist() == [{"_change_type": "insert", "v": 2}]
    for path in Path(uri).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(deltic.CorruptTableError):
        table.diff(0, rows=True)


def test_rows_of_vectors_with_equal_cardinality(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1, 2, 3]}), properties=VECTORS)
    table = deltic.Table(uri)
    table.delete("v = 1")
    # As after RESTORE: the file is added again without its vector.
    log = Log(uri)
    (add,), (marked,) = log.of(0, "add"), log.of(1, "add")
    gone = {"deletionTimestamp": 0, "deletionVector": marked["deletionVector"]}
    log.commit(2, [remove(add["path"], **gone), {"add": add}])
    table = deltic.Table(uri)
    table.delete("v = 3")
    found = table.diff(1, rows=True).to_arrow().to_pylist()
    assert found == [{"_change_type": "delete", "v": 3}, {"_change_type": "insert", "v": 1}]


def test_vectors_with_equal_cardinality_are_distinguished(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1, 2, 3]}), properties={"delta.enableDeletionVectors": "true"})
    table = deltic.Table(uri)
    table.delete("v = 1")
    table.restore(0)
    table.delete("v = 2")
    diff = table.diff(1)
    assert (diff.files_changed, diff.files_added, diff.files_removed) == (1, 0, 0)
    assert "differ in their deletion vectors" in repr(diff)
    assert table.diff(1, 1).files_changed == 0


def test_wrong_arguments(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1]}))
    table = deltic.Table(uri)
    for arguments, message in (
        ((None,), "give from_version or from_timestamp"),
        ((-1,), "from_version"),
        ((0, "1"), "to_version"),
        ((0, None, 1), "rows must be True or False"),
    ):
        with pytest.raises(deltic.InvalidInputError, match=message):
            table.diff(*arguments)  # type: ignore[arg-type]
    with pytest.raises(deltic.VersionNotFoundError):
        table.diff(0, 7)
    with pytest.raises(deltic.InvalidInputError, match="rows=True"):
        table.diff(0).to_arrow()
    deltic.write(uri + "2", pa.table({"_change_type": [1]}))
    with pytest.raises(deltic.InvalidInputError, match="_change_type"):
        deltic.Table(uri + "2").diff(0, rows=True)


def test_what_is_shown_is_escaped(uri: str) -> None:
    name = "<script>&\x1b[31m"
    deltic.create(uri, pa.schema([("v", pa.int64())]))
    table = deltic.Table(uri)
    table.add_columns([pa.field(name, pa.string())])
    table.set_properties({name: name})
    deltic.write(uri, pa.table({"v": [1], name: [name]}))
    diff = table.diff(0, rows=True)
    page = diff._repr_html_()
    assert Balanced(page)
    assert page.isprintable()
    assert "<script>" not in page
    assert all(line.isprintable() for line in repr(diff).split("\n"))


def test_versions_by_their_time(uri: str) -> None:
    log = Log(uri, commits=3)
    log.modified({0: 1_000_000, 1: 2_000_000, 2: 3_000_000})
    table = deltic.Table(uri)
    for arguments, versions in (
        ({"from_timestamp": "1970-01-01T00:17:00Z"}, (0, 2)),
        ({"from_timestamp": datetime(1970, 1, 1, 0, 34), "to_version": 0}, (1, 0)),
        ({"from_version": 2, "to_timestamp": "1970-01-01T00:17:00Z"}, (2, 0)),
        ({"from_timestamp": "1970-01-01T00:17:00Z", "to_timestamp": "1970-01-01T00:34:00Z"}, (0, 1)),
    ):
        diff = table.diff(**arguments)
        assert (diff.from_version, diff.to_version) == versions
    with pytest.raises(deltic.VersionNotFoundError):
        table.diff(from_timestamp="1970-01-01")
    for wrong, message in (
        ({}, "give from_version or from_timestamp"),
        ({"from_version": 0, "from_timestamp": "1971-01-01"}, "give from_version or from_timestamp"),
        ({"from_version": 0, "to_version": 1, "to_timestamp": "1971-01-01"}, "give to_version or to_timestamp"),
        ({"from_version": 0, "to_timestamp": 5}, "to_timestamp must be a datetime"),
        ({"from_timestamp": "soon"}, "from_timestamp 'soon' is not ISO 8601"),
    ):
        with pytest.raises(deltic.InvalidInputError, match=message):
            table.diff(**wrong)


@pytest.mark.slow
def test_the_command_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    deltic.write(uri, pa.table({"v": [1, 2]}))
    deltic.write(uri, pa.table({"v": [2, 3]}), mode="overwrite")
    assert main(["diff", uri, "0"]) == 0
    assert "files added" in capsys.readouterr().out
    assert main(["diff", uri, "0", "1", "--rows"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == ["- v=1", "+ v=3"]
    assert main(["diff", uri, "0", "--rows", "--json"]) == 0
    summary, *rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert (summary["files_added"], summary["rows"]["insert"]) == (1, 1)
    assert rows == [{"_change_type": "delete", "v": 1}, {"_change_type": "insert", "v": 3}]
    assert main(["diff", uri, "0", "--rows", "--limit", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "- v=1"
    assert captured.err == "deltic: 1 of 2 rows: --limit\n"
    assert main(["diff", uri, "0", "--rows", "--json", "--limit", "0"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["diff", uri, "0", "--rows", "--limit", "2"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["diff", uri, "2999-01-01", "0"]) == 0
    assert re.search(r"files removed +1, ", capsys.readouterr().out)
    assert main(["diff", uri, "9"]) == 1
    assert "9" in capsys.readouterr().err


def test_what_was_not_set_is_shown_as_that(uri: str) -> None:
    deltic.create(uri, pa.schema([("a", pa.int64())]), properties={"gone": "1"})
    table = deltic.Table(uri)
    table.set_properties({"new": "3"})
    table.unset_properties(["gone"])
    lines = dict(table.diff(0).lines())
    assert (lines["property new"], lines["property gone"]) == ("not set → 3", "1 → not set")
