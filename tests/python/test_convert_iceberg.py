"""Conversion of Iceberg tables that pyiceberg wrote: deltic reads the rows that pyiceberg reads."""

from __future__ import annotations

import gzip
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
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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
from deltic import _deltic
from deltic.cli import main
from deltic.conversion.convert import Conversion


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
    """The physical name of a column."""
    (found,) = [field["metadata"]["delta.columnMapping.physicalName"] for field in fields(uri) if field["name"] == name]
    assert found.startswith("col-"), "no existing file has a column of this name"
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


@pytest.mark.slow
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
    # The table can be written.
    deltic.write(place(table), TYPES)
    assert converted.scan().to_arrow().num_rows == 5
    assert converted.optimize().metrics["numAddedFiles"] == 1
    assert converted.check(files=True).ok


@pytest.mark.slow
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
        # A new column with the former name of another.
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


@pytest.mark.slow
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
    assert all(field["nullable"] for field in fields(place(table))), (
        "older files may have nulls, whatever is required now"
    )
    converted.delete("part = 'a'")
    assert sorted(row["id"] for row in converted.scan().to_arrow().to_pylist()) == [1, 2]


@pytest.mark.slow
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


@pytest.mark.slow
def test_partition_evolution(catalog: Catalog) -> None:
    rows = parts([date(2020, 1, 1), None], ["a", "b"])
    table = catalog.create_table("n.t", PARTS, partition_spec=spec("part"))
    table.append(rows)
    with table.update_spec() as update:
        update.add_identity("day")
    table.append(rows)
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"partitioned by `day` now.*rewrite_data_files"):
        deltic.convert(place(table))
    # A field by which all files are partitioned remains a partition column.
    with table.update_spec() as update:
        update.remove_field("day")
    deltic.convert(place(table))
    assert assert_same(table).snapshot().partition_columns == ["part"]


@pytest.mark.slow
def test_an_empty_table(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", PARTS)
    assert deltic.convert(place(table)).num_files == 0
    assert deltic.Table(place(table)).scan().to_arrow().num_rows == 0


@pytest.mark.slow
def test_files_that_are_no_longer_live_are_left_out(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", PARTS, partition_spec=spec("part"))
    table.append(parts([None, None], ["a", "b"]))
    table.delete("part = 'a'")
    table.overwrite(parts([None, None], ["c", "d"]), "part = 'b'")
    assert deltic.convert(place(table)).num_files == 2
    assert_same(table)


@pytest.mark.slow
def test_a_metadata_file_may_be_named(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    table = catalog.create_table("n.t", PARTS)
    table.append(parts([None], ["a"]))
    older = table.metadata_location
    table.append(parts([None], ["b"]))
    copied = place(table) + " and more"
    shutil.copytree(place(table), copied)
    assert deltic.convert(older).num_files == 1, "the given metadata file is used"
    # The metadata of the copy refers to files of the original table.
    newest = Path(copied, "metadata", Path(table.metadata_location).name)
    assert main(["convert", str(newest)]) == 0
    assert "2 files converted" in capsys.readouterr().out
    assert all(add["path"].startswith(f"file:{place(table)}/data/") for add in adds(copied))
    assert_same(table, copied)
    with pytest.raises(deltic.InvalidInputError, match="folder `metadata`"):
        deltic.convert("/somewhere/v1.metadata.json")


ID = pa.schema([("id", pa.int64())])


def made(catalog: Catalog, appends: int, name: str = "n.t", **options: Any) -> Iceberg:
    """A table with one row for each append, and a metadata file for each append and the creation."""
    table = catalog.create_table(name, ID, **options)
    for number in range(appends):
        table.append(pa.table({"id": [number]}))
    return table


def metadata_files(table: Iceberg) -> list[Path]:
    """The metadata files by age, the oldest first."""
    return sorted(Path(place(table), "metadata").glob("*.metadata.json*"), key=lambda path: path.stat().st_mtime_ns)


def renamed(table: Iceberg, name: Callable[[int], str]) -> Path:
    """Rename the metadata files; return their folder."""
    for number, path in enumerate(metadata_files(table)):
        path.rename(path.with_name(name(number + 1)))
    return Path(place(table), "metadata")


def planned(table: Iceberg) -> int:
    return deltic.convert(place(table), dry_run=True).num_files


NAMED = "pass the metadata file that the catalog names"


@pytest.mark.slow
@pytest.mark.parametrize("hint", [None, "", "1", "2", "3", "v2", "v2.metadata.json"])
def test_a_hint_does_not_hide_a_newer_version(catalog: Catalog, hint: str | None) -> None:
    table = made(catalog, 2)
    folder = renamed(table, lambda number: f"v{number}.metadata.json")
    if hint is not None:
        (folder / "version-hint.text").write_text(hint)
    assert planned(table) == 2


@pytest.mark.slow
@pytest.mark.parametrize("hint", ["4", "nonsense", "v"])
def test_a_hint_of_no_version_is_refused(catalog: Catalog, hint: str) -> None:
    table = made(catalog, 1)
    folder = renamed(table, lambda number: f"v{number}.metadata.json")
    (folder / "version-hint.text").write_text(hint)
    with pytest.raises(deltic.InvalidInputError, match=f"no such metadata; {NAMED}"):
        deltic.convert(place(table))


@pytest.mark.slow
def test_an_unreadable_hint_is_an_error(catalog: Catalog) -> None:
    table = made(catalog, 1)
    hint = Path(place(table)) / "metadata" / "version-hint.text"
    hint.symlink_to(hint)
    with pytest.raises(deltic.DelticError, match=r"version-hint\.text"):
        deltic.convert(place(table))


def test_a_hint_decides_between_two_metadata_files_of_one_number(catalog: Catalog) -> None:
    table = made(catalog, 1)
    newest = metadata_files(table)[-1]
    twin = newest.with_name(f"{newest.name.split('-')[0]}-00000000-0000-4000-8000-000000000000.metadata.json")
    shutil.copy(newest, twin)
    with pytest.raises(deltic.InvalidInputError, match="may both be the newest metadata"):
        deltic.convert(place(table))
    (newest.parent / "version-hint.text").write_text(twin.name)
    assert planned(table) == 1
    # The hint names the older of the two, so the newer one may be the current metadata.
    (newest.parent / "version-hint.text").write_text(newest.name)
    with pytest.raises(deltic.InvalidInputError, match=f"was written after it.*{NAMED}"):
        deltic.convert(place(table))


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["01989999-aaaa-7000-8000-000000000000", "0199a010-0000-7000-8000-000000000001"],
        ["00000-first", "00001-second"],
        ["v1", "2"],
        ["v1", "v2x"],
        ["v1", "00002-00000000-0000-4000-8000-000000000000"],
        ["v1", "v99999999999999999999999"],
    ],
    ids=str,
)
def test_names_without_comparable_numbers_are_refused(catalog: Catalog, names: list[str]) -> None:
    table = made(catalog, 1)
    renamed(table, lambda number: f"{names[number - 1]}.metadata.json")
    with pytest.raises(deltic.InvalidInputError, match=NAMED):
        deltic.convert(place(table))
    assert deltic.convert(metadata_files(table)[-1]).num_files == 1


def test_a_single_metadata_file_needs_no_number(catalog: Catalog) -> None:
    table = made(catalog, 0)
    renamed(table, lambda _: "any.metadata.json")
    assert planned(table) == 0


@pytest.mark.slow
@pytest.mark.parametrize("appends", [0, 1, 2, 3])
def test_a_location_with_metadata_of_two_tables_is_refused(catalog: Catalog, appends: int) -> None:
    before = made(catalog, 2)
    catalog.drop_table("n.t")
    table = made(catalog, appends, location=before.location())
    if appends == 3:
        # The newest metadata file is the right one here; only older files show that there were two tables.
        assert planned(table) == 3
        for path in metadata_files(table)[3:-1]:
            path.unlink()
    with pytest.raises(deltic.InvalidInputError, match=NAMED):
        deltic.convert(place(table))
    assert deltic.convert(table.metadata_location).num_files == appends
    assert_same(table)


@pytest.mark.slow
def test_truncated_metadata_is_an_error(catalog: Catalog) -> None:
    table = made(catalog, 1)
    older, newest = metadata_files(table)
    older.write_text("{")
    with pytest.raises(deltic.InvalidInputError, match=rf"{newest.name}` is the newest .* {NAMED}"):
        deltic.convert(place(table))
    newest.touch()
    with pytest.raises(deltic.InvalidInputError, match=rf"(?s){older.name} cannot be read.*{NAMED}"):
        deltic.convert(place(table))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v{}.metadata.json.gz", "v{}.gz.metadata.json"])
def test_compressed_metadata_is_found(catalog: Catalog, name: str) -> None:
    table = made(catalog, 2)
    renamed(table, lambda number: f"v{number}.metadata.json")
    newest = metadata_files(table)[-1]
    compressed = newest.with_name(name.format(3))
    compressed.write_bytes(gzip.compress(newest.read_bytes()))
    newest.unlink()
    assert planned(table) == 2
    assert deltic.convert(compressed).num_files == 2
    assert deltic.Table(place(table)).scan().to_arrow().num_rows == 2


def test_compressed_metadata_has_a_limit(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(catalog, 1)
    newest = metadata_files(table)[-1]
    newest.write_bytes(gzip.compress(newest.read_bytes()))
    monkeypatch.setattr("deltic.conversion.iceberg._LARGEST", 100)
    with pytest.raises(deltic.InvalidInputError, match="more than 1 GiB"):
        deltic.convert(newest)


@pytest.mark.slow
def test_a_concurrent_iceberg_commit_is_a_conflict(catalog: Catalog) -> None:
    table = made(catalog, 1)
    for given in (place(table), table.metadata_location):
        conversion = Conversion.of(deltic.Table(given), None, True, {})
        work = _deltic.convert_distributed(conversion.table._core, conversion.partitions, conversion.options, False)
        table.append(pa.table({"id": [7]}))
        while tasks := work.next_tasks(2, 1):
            work.take([_deltic.read_footers(task, None) for task in tasks])
        with pytest.raises(deltic.InvalidInputError, match=r"written meanwhile.*convert again"):
            work.commit()
        assert not Path(place(table), "_delta_log").exists()


def without(table: Iceberg, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite the only data file without a column, as by writers that omit partition columns."""
    from pyiceberg.manifest import DataFile

    (file,) = Path(place(table)).rglob("*.parquet")
    pq.write_table(pq.ParquetFile(file).read().drop_columns([name]), file, store_schema=False)
    size = file.stat().st_size
    monkeypatch.setattr(DataFile, "file_size_in_bytes", property(lambda _: size), raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"a", None])
@pytest.mark.parametrize("type", ["string", "binary"])
def test_values_that_only_manifests_have_are_not_lost(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, type: str, value: bytes | None
) -> None:
    schema = column(StringType() if type == "string" else BinaryType())
    by_c = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c"))
    table = catalog.create_table("n.t", schema, partition_spec=by_c)
    arrow = pa.string() if type == "string" else pa.binary()
    table.append(pa.table({"id": [1], "c": pa.array([value]).cast(pa.binary()).cast(arrow)}))
    without(table, "c", monkeypatch)
    if type == "string":
        assert deltic.convert(place(table), dry_run=True).num_files == 1, "the table is partitioned by it"
        with table.update_spec() as update:
            update.remove_field("c")
    if value is None:
        deltic.convert(place(table))
        assert deltic.Table(place(table)).scan().to_arrow()["c"].to_pylist() == [None]
        return
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"does not have the column `c`.*rewrite_data_files"):
        deltic.convert(place(table))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "now", "value"),
    [
        (IntegerType(), LongType(), 5),
        (FloatType(), DoubleType(), 0.1),
        (DecimalType(9, 2), DecimalType(12, 2), Decimal("1.20")),
        (DateType(), TimestampType(), date(2020, 1, 2)),
    ],
    ids=str,
)
def test_partition_columns_whose_type_changed(catalog: Catalog, before: Any, now: Any, value: Any) -> None:
    by_c = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c"))
    table = catalog.create_table("n.t", column(before), partition_spec=by_c)
    arrow = table.schema().as_arrow().field("c").type
    table.append(pa.table({"id": [1], "c": pa.array([value], arrow)}))
    if before == DateType():
        # A type promotion of format version 3, which pyiceberg does not support.
        def promote(metadata: dict[str, Any]) -> None:
            later = json.loads(json.dumps(metadata["schemas"][-1]))
            later["schema-id"] += 1
            later["fields"][1]["type"] = "timestamp"
            metadata["schemas"].append(later)
            metadata["current-schema-id"] = later["schema-id"]

        edited(table, promote)
        with pytest.raises(deltic.UnsupportedFeatureError, match="`c` has the type timestamp, and had the type date"):
            deltic.convert(place(table))
        return
    with table.update_schema() as update:
        update.update_column("c", now)
    deltic.convert(place(table))
    table.refresh()
    (row,) = deltic.Table(place(table)).scan().to_arrow().to_pylist()
    assert row == {"id": 1, "c": pa.array([value], arrow).cast(table.schema().as_arrow().field("c").type)[0].as_py()}


def test_required_columns_may_have_nulls_in_older_files(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", column(LongType()))
    table.append(pa.table({"id": [1, None], "c": [1, 2]}))
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", required=True)
        update.add_column("must", StringType(), required=True)
    deltic.convert(place(table))
    converted = deltic.Table(place(table))
    assert converted.scan(filter="id IS NULL").to_arrow()["c"].to_pylist() == [2]
    assert converted.scan(filter="must IS NULL").to_arrow().num_rows == 2
    assert converted.check(files=True).ok


def test_files_of_iceberg_are_not_converted_without_its_metadata(catalog: Catalog) -> None:
    table = made(catalog, 1)
    (file,) = Path(place(table)).rglob("*.parquet")
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.replace_schema_metadata({"iceberg.schema": "{}"}), file)
    with pytest.raises(deltic.UnsupportedFeatureError, match="one of an Iceberg table"):
        deltic.convert(Path(place(table), "data"))
    pq.write_table(rows, file, store_schema=False)
    assert deltic.convert(Path(place(table), "data")).num_rows == 1


def test_column_mapping_is_by_id(catalog: Catalog) -> None:
    table = made(catalog, 1)
    for properties in (
        {"delta.columnMapping.mode": "none"},
        {"delta.columnmapping.mode": "NONE"},
        {"delta.columnMapping.maxColumnId": "1"},
    ):
        with pytest.raises(deltic.InvalidInputError, match="leave the property out"):
            deltic.convert(place(table), properties=properties)
    deltic.convert(place(table), properties={"delta.columnmapping.mode": "ID"})
    properties = deltic.Table(place(table)).snapshot().properties
    assert [value for key, value in properties.items() if key.lower() == "delta.columnmapping.mode"] == ["id"]


def test_a_table_behind_a_symbolic_link_has_relative_paths(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("n.t", PARTS)
    table.append(parts([None], ["a"]))
    link = tmp_path / "link"
    link.symlink_to(place(table))
    deltic.convert(link)
    assert not any(add["path"].startswith(("/", "file:")) for add in adds(str(link)))
    assert deltic.Table(link).vacuum(0, force=True).files_deleted > 0, "Iceberg's metadata files are deleted"
    assert deltic.Table(link).scan().to_arrow().num_rows == 1


def column(type: Any) -> Schema:
    return Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "c", type, required=False))


@pytest.mark.slow
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


@pytest.mark.slow
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
    """Edit the newest metadata file."""
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
    # Iceberg would use its name mapping here.
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


@pytest.mark.parametrize("kind", ["deletes", "data"])
def test_delete_files_are_refused(catalog: Catalog, kind: str) -> None:
    from pyiceberg import manifest

    table = made(catalog, 1)
    snapshot = table.current_snapshot()
    assert snapshot is not None

    class Deletes(manifest.ManifestWriterV2):
        def content(self) -> manifest.ManifestContent:
            return manifest.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    counts = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    file = manifest.DataFile.from_args(
        content=manifest.DataFileContent.POSITION_DELETES,
        file_path=f"file://{place(table)}/data/deletes.parquet",
        file_format=manifest.FileFormat.PARQUET,
        partition=manifest.Record(),
        record_count=1,
        file_size_in_bytes=10,
        **{name: {} for name in counts},
        **dict.fromkeys(("key_metadata", "split_offsets", "equality_ids", "sort_order_id")),
    )
    file._spec_id = 0
    writer = Deletes if kind == "deletes" else manifest.ManifestWriterV2
    folder = f"file://{place(table)}/metadata"
    output = table.io.new_output(f"{folder}/deletes-m0.avro")
    with writer(table.spec(), table.schema(), output, snapshot.snapshot_id, "null") as entries:
        added = manifest.ManifestEntryStatus.ADDED
        entries.add_entry(
            manifest.ManifestEntry.from_args(
                status=added,
                snapshot_id=snapshot.snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
        )
    manifests = [*snapshot.manifests(table.io), entries.to_manifest_file()]
    output = table.io.new_output(f"{folder}/list.avro")
    with manifest.write_manifest_list(
        2, output, snapshot.snapshot_id, snapshot.parent_snapshot_id, 1, "null"
    ) as listed:
        listed.add_manifests(manifests)
    edited(table, lambda m: [each.update({"manifest-list": f"{folder}/list.avro"}) for each in m["snapshots"]])
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


def test_wrong_calls_and_damaged_metadata_are_refused(catalog: Catalog) -> None:
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
