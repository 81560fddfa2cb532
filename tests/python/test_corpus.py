"""Tables of other writers (`corpus`): each must return exactly the writer's rows, or be refused with a typed error."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import CORPUS, ENTRIES, for_each
from sample import rows

import deltic

REFUSED = (
    deltic.CorruptTableError,
    deltic.UnsupportedFeatureError,
    deltic.TableNotFoundError,
    deltic.VersionNotFoundError,
)


def expected_rows(where: str) -> pa.Table:
    """The expected rows of a table, with INT96 timestamps as microseconds."""
    path = CORPUS / where
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    tables = [pq.read_table(file, partitioning=None, coerce_int96_timestamp_unit="us") for file in files]
    return pa.concat_tables(tables, promote_options="permissive")


def zoned(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert timestamps of expected rows to UTC or to local times, as in the table's schema."""
    for index, field in enumerate(table.schema):
        if not pa.types.is_timestamp(field.type) or field.name not in schema.names:
            continue
        wanted = schema.field(field.name).type
        if pa.types.is_timestamp(wanted) and wanted != field.type:
            table = table.set_column(index, field.name, table.column(index).cast(pa.timestamp("us")).cast(wanted))
    return table


def check_rows(snapshot: deltic.Snapshot, entry: dict[str, Any], where: str) -> None:
    read = snapshot.scan().to_arrow()
    expected = zoned(expected_rows(where), read.schema)
    assert set(read.schema.names) == set(expected.schema.names)
    found, wanted = rows(read), rows(expected)
    assert found.total() == wanted.total()
    missing, extra = wanted - found, found - wanted
    assert not missing, f"{missing.total()} rows are missing or differ, such as {next(iter(missing))}; got {extra}"


@pytest.mark.slow
@for_each("entry", ENTRIES, [entry["id"] for entry in ENTRIES])
def test_table(entry: dict[str, Any]) -> None:
    table = deltic.Table(CORPUS / entry["table_path"])
    if entry["expect_snapshot"] == "error":
        with pytest.raises(REFUSED):
            table.snapshot()
        return
    snapshot = table.snapshot()
    assert snapshot.version == entry["version"]
    assert set(snapshot.schema.names) == set(entry["columns"])
    assert snapshot.partition_columns == entry["partition_columns"]
    if entry["expect"] == "error":
        try:
            found = snapshot.scan().to_arrow()
        except deltic.DelticError:
            return
        assert entry["tolerance"], f"read {found.num_rows} rows instead of an error: {entry['expect_error']}"
        assert found.num_rows == 0
        return
    assert snapshot.num_files == entry["active_files"]
    if entry["expected"]:
        check_rows(snapshot, entry, entry["expected"])
    elif entry["expected_rows"] is not None:
        assert snapshot.scan().to_arrow().num_rows == entry["expected_rows"]
    for version, where in (entry["expected_versions"] or {}).items():
        check_rows(table.snapshot(int(version.removeprefix("v"))), entry, where)
