"""`drop_feature("typeWidening")` rewrites files with narrower types than the table's, and no others."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import object_store

import deltic
from deltic import Table

WIDENING = {"delta.enableTypeWidening": "true"}


def live(table: Table) -> set[str]:
    files: list[str] = table.snapshot().files().read_all()["path"].to_pylist()
    return set(files)


def types(uri: str, path: str) -> dict[str, pa.DataType]:
    schema = pq.read_schema(io.BytesIO(Path(uri, path).read_bytes()))
    return {field.name: field.type for field in schema}


def rows(table: Table, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan(list(columns) or None).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("truncates", [False, True])
def test_only_files_of_narrower_types_are_rewritten(uri: str, truncates: bool) -> None:
    properties = {
        **WIDENING,
        "delta.enableRowTracking": "true",
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
    }
    day = datetime.date(2024, 2, 29)
    narrow = {"id": [1, 2, 3], "n": [7, None, -9], "price": [Decimal("1.25")] * 3, "day": [day, None, day]}
    schema = pa.schema([("id", pa.int64()), ("n", pa.int16()), ("price", pa.decimal128(5, 2)), ("day", pa.date32())])
    deltic.write(uri, pa.table(narrow, schema=schema), properties=properties)
    table = Table(uri)
    table.alter_column("n", type="long")
    table.alter_column("price", type="decimal(12,4)")
    table.alter_column("day", type="timestamp_ntz")
    wide = pa.table(
        {"id": [4], "n": [2**40], "price": [Decimal("12345678.0625")], "day": [datetime.datetime(2024, 1, 1, 12)]},
        schema=pa.schema(
            [("id", pa.int64()), ("n", pa.int64()), ("price", pa.decimal128(12, 4)), ("day", pa.timestamp("us"))]
        ),
    )
    old = live(table)
    deltic.write(table, wide)
    kept = live(table) - old
    table.delete("id = 3")
    assert live(table) == old | kept
    columns = ["id", "n", "price", "day", "_metadata.row_id", "_metadata.row_commit_version"]
    before, version = rows(table, *columns), table.snapshot().version
    if truncates:
        with pytest.raises(deltic.InvalidInputError, match="call it again"):
            table.drop_feature("typeWidening", truncate_history=True)
    else:
        table.drop_feature("typeWidening")
        assert "typeWidening" not in table.snapshot().protocol.get("readerFeatures", [])
    assert rows(table, *columns) == before
    new = live(table)
    assert new & (old | kept) == kept
    (rewritten,) = new - kept
    of_file = types(uri, rewritten)
    assert [of_file[name] for name in schema.names] == list(wide.schema.types)
    assert "typeChanges" not in table.snapshot().metadata["schemaString"]
    assert not any(key.startswith("delta.enableTypeWidening") for key in table.snapshot().properties)
    operations = [entry["operation"] for entry in reversed(table.history()) if entry["version"] > version]
    assert operations[:2] == ["UNSET TBLPROPERTIES", "REORG"]
    changed = table.changes(version + 1).to_arrow()
    assert changed.num_rows == 0
    assert table.check(files=True).ok


def test_nested_types(uri: str) -> None:
    properties = {**WIDENING, "delta.columnMapping.mode": "name"}
    nested = pa.struct([("k", pa.int32())])
    schema = pa.schema(
        [("id", pa.int64()), ("s", nested), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.int32(), pa.int16()))]
    )
    data = {"id": [1], "s": [{"k": 5}], "l": [[1, None]], "m": [[(1, 2)]]}
    for path, type in (("s.k", "long"), ("l.element", "long"), ("m.key", "long"), ("m.value", "int")):
        location = f"{uri}/{path}"
        deltic.write(location, pa.table(data, schema=schema), properties=properties)
        table = Table(location)
        table.alter_column(path, type=type)
        before, old = rows(table), live(table)
        table.drop_feature("typeWidening")
        assert rows(table) == before
        assert live(table).isdisjoint(old), path
        assert "typeChanges" not in table.snapshot().metadata["schemaString"]


def test_no_file_is_rewritten_without_narrower_types(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2]}), properties=WIDENING)
    table = Table(uri)
    table.add_columns([pa.field("n", pa.int32())])
    table.alter_column("n", type="long")
    old = live(table)
    table.drop_feature("typeWidening")
    assert live(table) == old
    assert rows(table) == [{"id": 1, "n": None}, {"id": 2, "n": None}]


def test_each_footer_is_read_once() -> None:
    with object_store() as store:
        table = Table("s3://bucket/table", store.options)
        deltic.write(table, pa.table({"n": pa.array([1], pa.int32())}), properties=WIDENING)
        table.alter_column("n", type="long")
        for number in range(3):
            deltic.write(table, pa.table({"n": [number]}))
        wide = live(table)
        read: list[str] = []
        store.before = lambda method, path: read.append(path) if method == "GET" else None
        table.drop_feature("typeWidening")
        store.before = None
        kept = wide & live(table)
        assert len(kept) == 3
        assert [read.count(f"bucket/table/{path}") for path in kept] == [1, 1, 1]


def test_a_file_with_a_broken_footer_is_named(uri: str) -> None:
    deltic.write(uri, pa.table({"id": pa.array([1], pa.int32())}), properties=WIDENING)
    table = Table(uri)
    table.alter_column("id", type="long")
    (path,) = live(table)
    Path(uri, path).write_bytes(b"x" * Path(uri, path).stat().st_size)
    with pytest.raises(deltic.CorruptTableError) as caught:
        table.drop_feature("typeWidening")
    assert caught.value.path is not None
    assert path in caught.value.path
    assert "typeWidening" in table.snapshot().protocol["readerFeatures"]
    assert "typeChanges" in json.dumps(table.snapshot().metadata["schemaString"])


def test_partition_values_that_are_dates_are_not_left_behind(uri: str) -> None:
    """Other clients do not read the string of a date as a timestamp."""
    rows = pa.table({"day": pa.array([datetime.date(2024, 1, 1)]), "id": [1]})
    deltic.write(uri, rows, partition_by="day", properties=WIDENING)
    table = Table(uri)
    table.alter_column("day", type="timestamp_ntz")
    version = table.snapshot().version
    for truncates in (False, True):
        with pytest.raises(deltic.InvalidInputError, match="partition values of the column `day` may be dates"):
            table.drop_feature("typeWidening", truncate_history=truncates)
    assert table.snapshot().version == version
