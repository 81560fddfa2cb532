"""Columns with a collation are read, written and copied; conditions on them are refused: they would compare bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import COPIES_AND_VECTORS
from log_files import Log, field, metadata, protocol, struct

import deltic
from deltic import Table, UnsupportedFeatureError

REFUSED = "column (t.|target.)?name has the collation spark.UTF8_LCASE"
NAME = field("name", "string", __COLLATIONS={"name": "spark.UTF8_LCASE"})
NEW = pa.table({"id": [2, 4], "name": ["B", "D"]})


def table_of_names(uri: str, partition: tuple[str, ...] = (), properties: dict[str, str] | None = None) -> Table:
    features = ["collations", "domainMetadata", "checkConstraints", "deletionVectors", "appendOnly", "invariants"]
    listed = protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=features)
    columns = struct(field("id", "long"), NAME)
    made = metadata(columns, partition)
    made["metaData"]["configuration"] = properties or {}
    Log.empty(uri, listed, made)
    deltic.write(uri, pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}), mode="append")
    return Table(uri)


def merge(table: Table, on: str) -> Any:
    return table.merge(NEW, on, "s", "t").when_matched_update_all().when_not_matched_insert_all().execute()


CONDITIONS: dict[str, Callable[[Table], Any]] = {
    "scan": lambda table: table.scan(filter="name = 'B'").to_arrow(),
    "like": lambda table: table.scan(filter="name LIKE 'B%'").to_arrow(),
    "count": lambda table: table.scan(filter="upper(name) IN ('B', 'C')").count(),
    "delete": lambda table: table.delete("name = 'B'"),
    "update": lambda table: table.update({"id": "id + 1"}, where="name BETWEEN 'A' AND 'B'"),
    "update with": lambda table: table.update({"id": "CASE WHEN name = 'B' THEN 7 ELSE id END"}),
    "merge": lambda table: merge(table, "s.name = t.name"),
    "merge on both": lambda table: merge(table, "s.id = t.id AND s.name <=> t.name"),
    "replace_where": lambda table: deltic.write(table.uri, NEW, mode="overwrite", replace_where="name >= 'B'"),
    "constraint": lambda table: table.add_constraint("some", "name <> 'x'"),
    "optimize": lambda table: table.optimize("name = 'B'"),
}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("partition", [(), ("name",)], ids=["", "partitioned"])
def test_conditions_on_a_column_with_a_collation_are_refused(uri: str, partition: tuple[str, ...], name: str) -> None:
    table = table_of_names(uri, partition)
    with pytest.raises(UnsupportedFeatureError, match=REFUSED) as refused:
        CONDITIONS[name](table)
    assert "evaluate this in Spark" in str(refused.value)
    assert Table(uri).snapshot().version == 1


@COPIES_AND_VECTORS
def test_a_column_with_a_collation_is_read_and_copied(uri: str, properties: dict[str, str]) -> None:
    table = table_of_names(uri, properties=properties)
    assert table.scan(filter="name IS NULL").to_arrow()["id"].to_pylist() == [3]
    assert table.scan(filter="name IS NOT NULL AND id > 1").to_arrow()["name"].to_pylist() == ["b"]
    table.update({"id": "id + 10"}, where="id <= 2")
    table.update({"name": "coalesce(name, 'c')"}, where="name IS NULL")
    merge(table, "s.id + 10 = t.id")
    table.delete("id = 4")
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 2, "name": "B"}, {"id": 3, "name": "c"}, {"id": 11, "name": "a"}]


def test_partitions_with_a_collation_are_not_overwritten_by_their_bytes(uri: str) -> None:
    table = table_of_names(uri, ("name",))
    with pytest.raises(UnsupportedFeatureError, match=REFUSED):
        deltic.write(uri, NEW, mode="overwrite", partition_overwrite="dynamic")
    deltic.write(uri, NEW, mode="overwrite")
    assert table.scan().to_arrow()["name"].to_pylist() == ["B", "D"]


def test_rows_are_not_checked_by_a_constraint_on_a_collation(uri: str) -> None:
    columns = struct(field("id", "long"), NAME)
    listed = protocol(1, 7, writerFeatures=["collations", "domainMetadata", "checkConstraints"])
    Log.empty(uri, listed, metadata(columns, **{"constraints.lower": "name = 'b'"}))
    with pytest.raises(UnsupportedFeatureError, match=REFUSED):
        deltic.write(uri, NEW, mode="append")
