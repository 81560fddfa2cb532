"""Iceberg tables, written by pyiceberg, that become Delta tables: deltic reads the rows that pyiceberg reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as Iceberg
from pyiceberg.transforms import BucketTransform, IdentityTransform, YearTransform
from pyiceberg.types import (
    DateType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import deltic
from deltic.cli import main


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = SqlCatalog("tests", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}/warehouse")
    found.create_namespace("n")
    return found


def place(table: Iceberg) -> str:
    return table.location().removeprefix("file://")


def sorted_rows(rows: pa.Table) -> list[str]:
    return sorted(repr(row) for row in rows.to_pylist())


def assert_same(table: Iceberg, uri: str | None = None) -> deltic.Table:
    converted = deltic.Table(uri or place(table))
    theirs = table.scan().to_arrow()
    ours = converted.scan().to_arrow()
    assert ours.column_names == theirs.column_names
    assert sorted_rows(ours) == sorted_rows(theirs)
    assert converted.check(files=True).ok
    return converted


def fields(uri: str) -> list[dict[str, Any]]:
    lines = map(json.loads, Path(uri, "_delta_log", f"{0:020}.json").read_text().splitlines())
    found: list[dict[str, Any]] = next(json.loads(x["metaData"]["schemaString"]) for x in lines if "metaData" in x)[
        "fields"
    ]
    return found


def physical(uri: str, name: str) -> str:
    """By what the log and new files call a column."""
    (found,) = [field["metadata"]["delta.columnMapping.physicalName"] for field in fields(uri) if field["name"] == name]
    assert found.startswith("col-"), "no file that is there has a column of the name"
    return str(found)


def adds(uri: str) -> list[dict[str, Any]]:
    lines = map(json.loads, Path(uri, "_delta_log", f"{0:020}.json").read_text().splitlines())
    return [line["add"] for line in lines if "add" in line]


TYPES = pa.table(
    {
        "b": [True, None],
        "i": pa.array([1, None], pa.int32()),
        "l": [2**40, None],
        "f": pa.array([1.5, None], pa.float32()),
        "d": [float("nan"), 2.5],
        "price": pa.array([Decimal("1.20"), None], pa.decimal128(9, 2)),
        "day": [date(2020, 1, 2), None],
        "local": pa.array([datetime(1960, 1, 1, 1, 2, 3, 4), None], pa.timestamp("us")),
        "at": pa.array([datetime(2020, 1, 1, tzinfo=timezone.utc), None], pa.timestamp("us", "UTC")),
        "s": ["é" * 50, None],
        "bytes": [b"x", None],
        "struct": [{"x": 1, "y": {"z": "p"}}, None],
        "list": [[{"n": 1}, None], []],
        "map": pa.array([[("k", [1, 2])], None], pa.map_(pa.string(), pa.list_(pa.int64()))),
    }
)


def test_every_type(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", TYPES.schema)
    table.append(TYPES)
    table.append(TYPES.slice(0, 1))
    before = {path: path.read_bytes() for path in Path(place(table)).rglob("*") if path.is_file()}
    planned = deltic.convert(place(table), dry_run=True)
    assert (planned.version, planned.num_rows) == (None, 3)
    assert not Path(place(table), "_delta_log").exists()
    done = deltic.convert(place(table), name="converted")
    assert (done.version, done.num_files, done.num_rows) == (0, 2, 3)
    converted = assert_same(table)
    assert all(Path(path).read_bytes() == bytes for path, bytes in before.items())
    properties = converted.snapshot().properties
    assert (properties["delta.columnMapping.mode"], converted.detail().name) == ("id", "converted")
    assert int(properties["delta.columnMapping.maxColumnId"]) == table.metadata.last_column_id
    (info,) = converted.history()
    assert (info["operation"], info["operationParameters"]["sourceFormat"]) == ("CONVERT", "iceberg")
    stats = [json.loads(add["stats"]) for add in adds(place(table))]
    assert sorted(each["numRecords"] for each in stats) == [1, 2]
    (both,) = [each for each in stats if each["numRecords"] == 2]
    long, integer, struct = (physical(place(table), name) for name in ("l", "i", "struct"))
    assert (both["minValues"][long], both["nullCount"][integer]) == (2**40, 1)
    assert 1 in both["minValues"][struct].values()
    assert not any(add["path"].startswith(("/", "file:")) for add in adds(place(table)))
    with pytest.raises(deltic.TableExistsError):
        deltic.convert(place(table))
    # And it goes on as any other table.
    deltic.write(place(table), TYPES)
    assert converted.scan().to_arrow().num_rows == 5
    assert converted.optimize().metrics["numAddedFiles"] == 1
    assert converted.check(files=True).ok


def test_an_evolved_schema(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", pa.schema([("a", pa.int64()), ("b", pa.string()), ("gone", pa.int64())]))
    table.append(pa.table({"a": [1, 2], "b": ["x", "y"], "gone": [7, 8]}))
    with table.update_schema() as update:
        update.rename_column("a", "first")
        update.delete_column("gone")
        update.add_column("new", LongType())
        update.add_column("s", StructType(NestedField(100, "in", StringType(), required=False)))
    table.append(pa.table({"first": [3], "b": ["z"], "new": [30], "s": [{"in": "p"}]}))
    with table.update_schema() as update:
        # Another column under the name of one that was.
        update.add_column("a", StringType())
        update.add_column("gone", StringType())
        update.rename_column("s.in", "within")
        update.move_first("new")
    deltic.convert(place(table))
    converted = assert_same(table)
    assert converted.scan(filter="first = 2", columns=["a", "first", "gone"]).to_arrow().to_pylist() == [
        {"a": None, "first": 2, "gone": None}
    ]
    assert converted.plan(filter="first = 3").files_kept == 1
    ids = {field["name"]: field["metadata"]["delta.columnMapping.id"] for field in fields(place(table))}
    assert ids == {field.name: field.field_id for field in table.schema().fields}
    deltic.write(place(table), pa.table({"first": [9], "a": ["later"]}))
    assert converted.scan(filter="a = 'later'").to_arrow()["first"].to_pylist() == [9]


PARTS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "day", DateType(), required=False, doc="of the visit"),
    NestedField(3, "part", StringType(), required=False),
    NestedField(4, "at", TimestamptzType(), required=False),
    NestedField(5, "local", TimestampType(), required=False),
)


def parts(days: list[date | None], names: list[str | None]) -> pa.Table:
    moments = [datetime(2020, 1, 1, 0, 0, n, 5) for n in range(len(days))]
    columns = {
        "id": pa.array(range(len(days)), pa.int64()),
        "day": pa.array(days, pa.date32()),
        "part": pa.array(names, pa.string()),
        "at": pa.array([moment.replace(tzinfo=timezone.utc) for moment in moments], pa.timestamp("us", "UTC")),
        "local": pa.array(moments, pa.timestamp("us")),
    }
    schema = pa.schema([pa.field(name, array.type, name != "id") for name, array in columns.items()])
    return pa.table(columns, schema=schema)


def spec(*names: str) -> PartitionSpec:
    chosen = [PARTS.find_field(name) for name in names]
    made = (PartitionField(f.field_id, 1000 + n, IdentityTransform(), f.name) for n, f in enumerate(chosen))
    return PartitionSpec(*made)


@pytest.mark.parametrize("names", [["part"], ["day", "part"], ["at"], ["local", "day"], ["id"]], ids=",".join)
def test_identity_partitions_are_partitions(catalog: Catalog, names: list[str]) -> None:
    table = catalog.create_table("n.t", PARTS, partition_spec=spec(*names))
    table.append(parts([date(2020, 1, 1), date(1960, 5, 5), None], ["a", "b/c =é", None]))
    deltic.convert(place(table))
    converted = assert_same(table)
    assert converted.snapshot().partition_columns == names
    keys = {physical(place(table), name) for name in names}
    assert all(set(add["partitionValues"]) == keys for add in adds(place(table)))
    (row,) = converted.scan(filter=f"{names[0]} IS NOT NULL AND id = 1").to_arrow().to_pylist()
    assert row["part"] == "b/c =é"
    comments = {field["name"]: field["metadata"].get("comment") for field in fields(place(table))}
    assert comments["day"] == "of the visit"
    assert [field["nullable"] for field in fields(place(table))] == [False, True, True, True, True]
    converted.delete("part = 'a'")
    assert sorted(row["id"] for row in converted.scan().to_arrow().to_pylist()) == [1, 2]


def test_other_transforms_do_not_partition(catalog: Catalog) -> None:
    transforms = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "id_bucket"),
        PartitionField(2, 1001, YearTransform(), "day_year"),
        PartitionField(3, 1002, IdentityTransform(), "part"),
    )
    table = catalog.create_table("n.t", PARTS, partition_spec=transforms)
    table.append(parts([date(2020, 1, 1), date(1960, 5, 5), None], ["a", "b", None]))
    deltic.convert(place(table))
    assert assert_same(table).snapshot().partition_columns == ["part"]


def test_partition_evolution(catalog: Catalog) -> None:
    rows = parts([date(2020, 1, 1), None], ["a", "b"])
    table = catalog.create_table("n.t", PARTS, partition_spec=spec("part"))
    table.append(rows)
    with table.update_spec() as update:
        update.add_identity("day")
    table.append(rows)
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"partitioned by `day` now.*rewrite_data_files"):
        deltic.convert(place(table))
    # What every file has one value of still partitions.
    with table.update_spec() as update:
        update.remove_field("day")
    deltic.convert(place(table))
    assert assert_same(table).snapshot().partition_columns == ["part"]


def test_an_empty_table(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", PARTS)
    assert deltic.convert(place(table)).num_files == 0
    assert deltic.Table(place(table)).scan().to_arrow().num_rows == 0


def test_files_that_are_no_longer_live_are_left_out(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", PARTS, partition_spec=spec("part"))
    table.append(parts([None, None], ["a", "b"]))
    table.delete("part = 'a'")
    table.overwrite(parts([None, None], ["c", "d"]), "part = 'b'")
    assert deltic.convert(place(table)).num_files == 2
    assert_same(table)


def test_a_metadata_file_may_be_named(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    table = catalog.create_table("n.t", PARTS)
    table.append(parts([None], ["a"]))
    older = table.metadata_location
    table.append(parts([None], ["b"]))
    copied = place(table) + " and more"
    shutil.copytree(place(table), copied)
    assert deltic.convert(older).num_files == 1, "the version that was named"
    # The copy names the files of the table that it is a copy of, which are outside of it.
    newest = Path(copied, "metadata", Path(table.metadata_location).name)
    assert main(["convert", str(newest)]) == 0
    assert "2 files converted" in capsys.readouterr().out
    assert all(add["path"].startswith(f"file:{place(table)}/data/") for add in adds(copied))
    assert_same(table, copied)
    with pytest.raises(deltic.InvalidInputError, match="folder `metadata`"):
        deltic.convert("/somewhere/v1.metadata.json")


def test_a_hint_or_the_largest_number_says_which_is_newest(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", PARTS)
    table.append(parts([None], ["a"]))
    metadata = Path(place(table), "metadata")
    newest = max(metadata.glob("*.metadata.json"))
    twin = metadata / f"{newest.name.split('-')[0]}-another.metadata.json"
    shutil.copy(newest, twin)
    with pytest.raises(deltic.InvalidInputError, match="may both be the newest metadata"):
        deltic.convert(place(table))
    (metadata / "version-hint.text").write_text(min(metadata.glob("*.metadata.json")).name)
    assert deltic.convert(place(table), dry_run=True).num_files == 0
    (metadata / "version-hint.text").write_text("7")
    shutil.copy(newest, metadata / "v7.metadata.json")
    assert deltic.convert(place(table)).num_files == 1


def test_a_table_behind_a_symbolic_link_names_its_own_files_as_its_own(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("n.t", PARTS)
    table.append(parts([None], ["a"]))
    link = tmp_path / "link"
    link.symlink_to(place(table))
    deltic.convert(link)
    assert not any(add["path"].startswith(("/", "file:")) for add in adds(str(link)))
    assert deltic.Table(link).vacuum(0, force=True).files_deleted > 0, "metadata that nobody needs any more"
    assert deltic.Table(link).scan().to_arrow().num_rows == 1


def column(type: Any) -> Schema:
    return Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "c", type, required=False))


@pytest.mark.parametrize(
    "type",
    [
        TimeType(),
        UUIDType(),
        FixedType(3),
        ListType(3, TimeType(), element_required=False),
        MapType(3, StringType(), 4, UUIDType(), value_required=False),
        StructType(NestedField(3, "t", FixedType(2), required=False)),
    ],
    ids=str,
)
def test_types_that_no_delta_table_has_are_refused_by_column(catalog: Catalog, type: Any) -> None:
    table = catalog.create_table("n.t", column(type))
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"the column `c.*has the Iceberg type (time|uuid|fixed)"):
        deltic.convert(place(table))
    assert not Path(place(table), "_delta_log").exists()


def test_a_column_that_was_widened_is_refused(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", column(IntegerType()))
    table.append(pa.table({"id": [1], "c": pa.array([1], pa.int32())}))
    with table.update_schema() as update:
        update.update_column("c", LongType())
    with pytest.raises(
        deltic.UnsupportedFeatureError, match="`c` has the type integer in the file and long"
    ) as refused:
        deltic.convert(place(table))
    assert refused.value.path is not None
    table.overwrite(table.scan().to_arrow())
    deltic.convert(place(table))
    assert_same(table)


def edited(table: Iceberg, edit: Callable[[dict[str, Any]], None]) -> None:
    """Has the newest metadata say something that pyiceberg does not write."""
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    edit(metadata)
    path.write_text(json.dumps(metadata))


def test_an_initial_default_is_refused(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", column(LongType()))
    edited(table, lambda m: m["schemas"][-1]["fields"][1].update({"initial-default": 5}))
    with pytest.raises(deltic.UnsupportedFeatureError, match="`c` has the value 5 in files"):
        deltic.convert(place(table))


def test_files_without_field_ids_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("n.t", column(LongType()))
    pq.write_table(pa.table({"id": [1], "c": [2]}), tmp_path / "plain.parquet")
    # Iceberg finds their columns by names, with a mapping of its own.
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "c": 2}]
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"`id` of the file has no field id.*plain\.parquet"):
        deltic.convert(place(table))


def test_the_empty_string_is_no_partition_value(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", PARTS, partition_spec=spec("part"))
    table.append(parts([None], [""]))
    with pytest.raises(
        deltic.UnsupportedFeatureError, match="`part` is the empty string, which a Delta table reads as null"
    ):
        deltic.convert(place(table))


def test_delete_files_are_refused(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import ManifestContent, ManifestFile

    table = catalog.create_table("n.t", column(LongType()))
    table.append(pa.table({"id": [1], "c": [2]}))
    # pyiceberg writes no delete files: its manifest is taken for one.
    monkeypatch.setattr(ManifestFile, "content", property(lambda _: ManifestContent.DELETES), raising=False)
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"compact the Iceberg table first"):
        deltic.convert(place(table))


@pytest.mark.parametrize("name", ["ORC", "AVRO"])
def test_files_of_other_formats_are_refused(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from pyiceberg.manifest import DataFile, FileFormat

    table = catalog.create_table("n.t", column(LongType()))
    table.append(pa.table({"id": [1], "c": [2]}))
    monkeypatch.setattr(DataFile, "file_format", property(lambda _: FileFormat[name]), raising=False)
    with pytest.raises(deltic.UnsupportedFeatureError, match=f"format {name}"):
        deltic.convert(place(table))


def test_wrong_calls_and_damaged_metadata_are_told_of(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", column(LongType()))
    table.append(pa.table({"id": [1], "c": [2]}))
    with pytest.raises(deltic.InvalidInputError, match="leave partition_schema out"):
        deltic.convert(place(table), partition_schema={"c": "long"})
    with pytest.raises(deltic.InvalidInputError, match="columnMapping"):
        deltic.convert(place(table), properties={"delta.columnMapping.mode": "name"})
    (file,) = Path(place(table)).rglob("*.parquet")
    bytes = file.read_bytes()
    file.unlink()
    with pytest.raises(deltic.DelticError, match=file.name):
        deltic.convert(place(table))
    file.write_bytes(bytes)
    for manifest in Path(place(table)).rglob("*-m0.avro"):
        manifest.write_text("no avro")
    with pytest.raises(deltic.InvalidInputError, match="cannot be read"):
        deltic.convert(place(table))
    edited(table, lambda m: m.pop("schemas"))
    with pytest.raises(deltic.InvalidInputError, match="cannot be read"):
        deltic.convert(place(table))
    assert not Path(place(table), "_delta_log").exists()


def test_without_pyiceberg_it_says_what_to_install(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(uri, "metadata").mkdir(parents=True)
    Path(uri, "metadata", "v1.metadata.json").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg.serializers", None)
    with pytest.raises(ModuleNotFoundError, match=r"deltic\[iceberg\]"):
        deltic.convert(uri)
