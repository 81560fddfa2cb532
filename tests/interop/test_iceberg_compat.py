"""deltic continues tables of delta-spark with IcebergCompat or materialized partition columns."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample import log_actions
from turns import Turns, newest_adds, shape

import deltic

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("l", pa.list_(pa.field("element", pa.map_(pa.string(), pa.int32())))),
        ("s", pa.struct([("x", pa.list_(pa.field("element", pa.int32())))])),
        ("t", pa.timestamp("us", "UTC")),
        ("p", pa.string()),
        ("q", pa.date32()),
    ]
)
FLAT = pa.schema([NESTED.field(name) for name in ("id", "t", "p", "q")])
COLUMNS = {"l": "ARRAY<MAP<STRING, INT>>", "s": "STRUCT<x: ARRAY<INT>>"}


def rows_of(number: int, schema: pa.Schema) -> pa.Table:
    def row(n: int) -> dict[str, Any]:
        made = {
            "id": n,
            "l": [[("a", n), ("b", None)], None],
            "s": {"x": [n, None]},
            "t": datetime(2020, 1, 1, 0, 0, 0, n, timezone.utc),
            "p": ["a", "b c", None][n % 3],
            "q": date(2020, 1, 1 + n % 2),
        }
        return {name: made[name] for name in schema.names}

    return pa.Table.from_pylist([row(n) for n in range(number * 6, number * 6 + 6)], schema=schema)


def create(turns: Turns, schema: pa.Schema, *properties: str) -> None:
    nested = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name in schema.names)
    pairs = ", ".join(f"'delta.{name}' = '{value}'" for name, _, value in (text.partition("=") for text in properties))
    turns.sql(
        f"CREATE TABLE @ (id BIGINT, {nested + ', ' if nested else ''}t TIMESTAMP, p STRING, q DATE) USING delta "
        f"PARTITIONED BY (q, p) TBLPROPERTIES ({pairs})"
    )


def check_files(turns: Turns, theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    """Check that files of both have the same columns and field ids, partition columns last and without statistics."""
    (wanted,) = {tuple(shape(turns.file(add))) for add in theirs}
    for add in ours:
        assert tuple(shape(turns.file(add))) == wanted
        partitions = list(add["partitionValues"])
        assert sorted(turns.file(add).schema_arrow.names[-2:]) == sorted(partitions)
        assert not set(partitions) & set(add["stats"]["nullCount"])
        assert add["stats"]["numRecords"] == turns.file(add).metadata.num_rows
        found = pq.read_table(turns.uri + "/" + add["path"]) if "%" not in add["path"] else None
        if found is not None:
            for name in partitions:
                (value,) = set(found[name].to_pylist())
                assert (None if value is None else str(value)) == add["partitionValues"][name]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_iceberg_compat(turns: Turns, version: int) -> None:
    schema = FLAT if version == 1 else NESTED
    tracking = ["enableRowTracking=true", "columnMapping.mode=name"] if version == 3 else []
    create(turns, schema, f"enableIcebergCompatV{version}=true", "enableDeletionVectors=false", *tracking)
    turns.spark_appends(rows_of(0, schema))
    theirs = newest_adds(turns.uri)
    check_files(turns, theirs, turns.append(rows_of(1, schema)))
    turns.take_turns(lambda number: rows_of(number + 2, schema))


@pytest.mark.parametrize(
    "properties", [["feature.materializePartitionColumns=supported"], ["enableMaterializePartitionColumnsFeature=true"]]
)
def test_partition_columns_in_files(turns: Turns, properties: list[str]) -> None:
    create(turns, NESTED, *properties, "enableDeletionVectors=false")
    turns.spark_appends(rows_of(0, NESTED))
    theirs = newest_adds(turns.uri)
    check_files(turns, theirs, turns.append(rows_of(1, NESTED)))
    turns.take_turns(lambda number: rows_of(number + 2, NESTED))


def test_a_table_of_deltics_with_partition_columns_in_files(turns: Turns) -> None:
    properties = {"delta.enableMaterializePartitionColumnsFeature": "true"}
    deltic.write(turns.uri, rows_of(0, NESTED), partition_by=["q", "p"], properties=properties)
    turns.model.append(rows_of(0, NESTED))
    ours = newest_adds(turns.uri)
    turns.spark_appends(rows_of(1, NESTED))
    check_files(turns, newest_adds(turns.uri), ours)
    turns.take_turns(lambda number: rows_of(number + 2, NESTED))


def test_rows_that_deltic_rewrites_keep_their_ids_for_iceberg(turns: Turns) -> None:
    create(turns, FLAT, "enableIcebergCompatV3=true", "enableRowTracking=true", "columnMapping.mode=name")
    turns.append(rows_of(0, FLAT))
    turns.append(rows_of(1, FLAT))
    deltic.Table(turns.uri).delete("id = 3")
    turns.model = [pa.concat_tables(turns.model).filter([n != 3 for n in range(12)])]
    turns.check("deltic's DELETE")
    hidden = {
        name: number for add in newest_adds(turns.uri) for name, number in shape(turns.file(add)) if name[0] == "_"
    }
    assert set(hidden.values()) in (set(), {"2147483540", "2147483539"})
    turns.append(rows_of(2, FLAT))
    turns.spark_appends(rows_of(3, FLAT))


def test_a_feature_that_was_dropped_and_left_checkpoints_protected(turns: Turns) -> None:
    turns.sql(
        "CREATE TABLE @ (id BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "INSERT INTO @ VALUES (1), (2)",
        "DELETE FROM @ WHERE id = 2",
        "ALTER TABLE @ DROP FEATURE deletionVectors",
    )
    turns.model = [pa.table({"id": [1]})]
    found = [action for version in range(turns.version + 1) for action in log_actions(turns.uri, version)]
    listed = [action["protocol"]["writerFeatures"] for action in found if "protocol" in action]
    assert "checkpointProtection" in listed[-1]
    turns.take_turns(lambda number: pa.table({"id": [number]}))
