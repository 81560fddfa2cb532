"""Tables that delta-spark created with a writer feature: deltic and delta-spark write in turns.

After every step delta-spark validates the checksum, and all clients that support the feature must read the rows of a
simple model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_spark import check_checksum
from sample import log_actions
from turns import Turns, in_delta_rs, leaves, newest_adds, shape

import deltic
import deltic.spark

# --- column mapping ---

MAPPED = pa.schema(
    [
        ("id", pa.int64()),
        ("a.b", pa.int32()),
        ("c d", pa.string()),
        ("ünï`🐎", pa.date32()),
        ("x,;{}()=", pa.float64()),
        ("s", pa.struct([("p.q", pa.int32()), ("r s", pa.struct([(".", pa.string())]))])),
        ("list", pa.list_(pa.field("element", pa.struct([("k v", pa.int32())])))),
        ("map", pa.map_(pa.string(), pa.struct([("v", pa.int64())]))),
        ("part 1", pa.string()),
    ]
)
PARTS = ["a/b", "c=d e", None, "%41", "日本"]


def mapped(number: int) -> pa.Table:
    """Rows that depend on a number."""

    def row(n: int) -> dict[str, Any]:
        return {
            "id": n,
            "a.b": n if n % 9 else None,
            "c d": f"text {n}",
            "ünï`🐎": n % 365,
            "x,;{}()=": n / 3,
            "s": {"p.q": n * 2, "r s": {".": f"deep {n}"} if n % 7 else None},
            "list": [{"k v": n}, None],
            "map": [("k", {"v": n})],
            "part 1": PARTS[n % 5],
        }

    return pa.Table.from_pylist([row(n) for n in range(number * 20, number * 20 + 20)], schema=MAPPED)


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("partition", ["", "PARTITIONED BY (`part 1`)"], ids=["whole", "partitioned"])
def test_mapped_columns(turns: Turns, in_duckdb: Callable[[str], pa.Table], mode: str, partition: str) -> None:
    # DuckDB reads partition values of mapped columns as nulls, also in tables of delta-spark.
    turns.readers = [in_delta_rs] if partition else [in_duckdb, in_delta_rs]
    turns.sql(
        "CREATE TABLE @ (id BIGINT, `a.b` INT, `c d` STRING, `ünï``🐎` DATE, `x,;{}()=` DOUBLE, "
        "s STRUCT<`p.q`: INT, `r s`: STRUCT<`.`: STRING>>, list ARRAY<STRUCT<`k v`: INT>>, "
        f"map MAP<STRING, STRUCT<v: BIGINT>>, `part 1` STRING) USING delta {partition} "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', 'delta.enableDeletionVectors' = 'false')"
    )
    turns.spark_appends(mapped(0))
    (theirs, *_) = newest_adds(turns.uri)
    (ours, *_) = turns.append(mapped(8))
    # delta-spark writes the partition column into its files too, though the table does not require it.
    assert shape(turns.file(ours)) == shape(turns.file(theirs))[: -1 if partition else None]
    assert all(
        identifier for path, identifier in shape(turns.file(ours)) if not path.endswith((".element", ".key", ".value"))
    )
    # The log has physical names only.
    for part in ("minValues", "maxValues", "nullCount"):
        assert leaves(ours["stats"][part]) == leaves(theirs["stats"][part])
    assert set(ours["partitionValues"]) == set(theirs["partitionValues"])
    assert "part" not in ours["path"].split("/")[0]
    turns.take_turns(mapped)


def test_a_table_that_was_mapped_later_renamed_and_changed(turns: Turns, in_duckdb: Callable[[str], pa.Table]) -> None:
    turns.readers = [in_duckdb, in_delta_rs]
    turns.sql("CREATE TABLE @ (id BIGINT, text STRING, gone INT, s STRUCT<x: INT, y: STRING>) USING delta")
    old = pa.table({"id": [1], "text": ["a"], "gone": pa.array([1], pa.int32()), "s": [{"x": 1, "y": "y"}]})
    old = old.cast(
        pa.schema([*old.schema][:3]).append(pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.string())])))
    )
    turns.spark_appends(old)
    turns.append(old)
    turns.sql(
        "ALTER TABLE @ SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE @ RENAME COLUMN text TO `new text`",
        "ALTER TABLE @ RENAME COLUMN s.x TO z",
        "ALTER TABLE @ DROP COLUMN gone",
        "ALTER TABLE @ ADD COLUMN (gone STRING)",
    )
    struct = pa.struct([("z", pa.int32()), ("y", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("new text", pa.string()), ("s", struct), ("gone", pa.string())])
    before = [{"id": 1, "new text": "a", "s": {"z": 1, "y": "y"}, "gone": None}] * 2

    def new(number: int) -> pa.Table:
        made = [{"id": number, "new text": "b", "s": {"z": number, "y": None}, "gone": "back"}]
        return pa.Table.from_pylist(made, schema=schema)

    turns.model = [pa.Table.from_pylist(before, schema=schema)]
    turns.check("the renames")
    (add,) = turns.append(new(0))
    physical = [path for path, _ in shape(turns.file(add))]
    assert physical[:4] == ["id", "text", "s", "s.x"]
    assert physical[5].startswith("col-")
    turns.take_turns(new)


# --- clustered tables ---


def wide(number: int) -> pa.Table:
    names = [f"c{n}" for n in range(40)]
    return pa.table({name: pa.array(range(number * 10, number * 10 + 10), pa.int64()) for name in names})


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_clustered_tables(turns: Turns, in_duckdb: Callable[[str], pa.Table], mapping: str) -> None:
    turns.readers = [in_duckdb]
    columns = ", ".join(f"c{n} BIGINT" for n in range(40))
    turns.sql(
        f"CREATE TABLE @ ({columns}) USING delta CLUSTER BY (c35, c0) "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}', 'delta.dataSkippingNumIndexedCols' = '36', "
        "'delta.enableDeletionVectors' = 'false')"
    )
    turns.spark_appends(wide(0))
    # Clustering columns have statistics even beyond `delta.dataSkippingNumIndexedCols`.
    (theirs,) = newest_adds(turns.uri)
    (ours,) = turns.append(wide(8))
    for part in ("minValues", "maxValues", "nullCount"):
        assert leaves(ours["stats"][part]) == leaves(theirs["stats"][part])
    turns.sql("ALTER TABLE @ SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'c35,c0,c7')")
    (ours,) = turns.append(wide(9))
    assert len(ours["stats"]["minValues"]) == 3
    domain = deltic.Table(turns.uri).snapshot().domains()["delta.clustering"]
    turns.take_turns(wide)
    assert deltic.Table(turns.uri).snapshot().domains()["delta.clustering"] == domain
    assert "clusteringProvider" not in ours
    turns.sql("OPTIMIZE @ FULL")
    turns.check("OPTIMIZE")
    assert {add.get("clusteringProvider") for add in newest_adds(turns.uri)} == {"liquid"}
    turns.append(wide(10))


def test_clustering_columns_always_have_statistics(turns: Turns) -> None:
    turns.sql("CREATE TABLE @ (a BIGINT, s STRUCT<x: BIGINT, y: BIGINT>, b BIGINT) USING delta CLUSTER BY (b, s.y)")
    row = pa.table({"a": [1], "s": [{"x": 2, "y": 3}], "b": [4]})
    turns.spark_appends(row)
    # delta-spark refuses this property, so the commit is written by hand, as by another writer.
    change: dict[str, Any] = {}
    for version in range(turns.version + 1):
        for action in log_actions(turns.uri, version):
            change = action if "metaData" in action else change
    change["metaData"]["configuration"]["delta.dataSkippingNumIndexedCols"] = "1"
    path = Path(turns.uri, "_delta_log", f"{turns.version + 1:020}.json")
    path.write_text(
        json.dumps({"commitInfo": {"operation": "SET TBLPROPERTIES", "timestamp": 0}}) + "\n" + json.dumps(change)
    )
    (add,) = turns.append(row)
    assert add["stats"]["minValues"] == {"a": 1, "s": {"y": 3}, "b": 4}
    deltic.Table(turns.uri).checkpoint()
    turns.append(row)


def test_a_concurrent_change_of_the_clustering_columns(turns: Turns) -> None:
    """Files written for the old clustering columns may lack statistics of the new ones."""
    turns.sql("CREATE TABLE @ (a BIGINT, b BIGINT, c BIGINT) USING delta CLUSTER BY (a)")
    row = pa.table({"a": [1], "b": [2], "c": [3]})
    turns.append(row)
    table = deltic.Table(turns.uri)
    with pytest.raises(deltic.MetadataChangedError, match="clustered by `b`"), table.transaction() as tx:
        tx.append(row)
        turns.sql("ALTER TABLE @ CLUSTER BY (b)")
    turns.append(row)
    with table.transaction() as tx:
        tx.append(row)
        turns.sql("ALTER TABLE @ CLUSTER BY NONE")
    turns.model.append(row)
    turns.check("CLUSTER BY NONE")


# --- type widening ---


def test_widened_columns(turns: Turns) -> None:
    turns.sql(
        "CREATE TABLE @ (b TINYINT, i INT, f FLOAT, d DECIMAL(6, 2), n INT, day DATE, "
        "s STRUCT<x: SMALLINT>, list ARRAY<INT>, part INT) USING delta PARTITIONED BY (part) "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')",
        "INSERT INTO @ VALUES (1, 2, 0.1, 1234.56, 5, DATE'2020-01-02', named_struct('x', 7), array(8), 3), "
        "(null, null, null, null, null, null, null, null, null)",
        "ALTER TABLE @ CHANGE COLUMN b TYPE BIGINT",
        "ALTER TABLE @ CHANGE COLUMN i TYPE DOUBLE",
        "ALTER TABLE @ CHANGE COLUMN f TYPE DOUBLE",
        "ALTER TABLE @ CHANGE COLUMN d TYPE DECIMAL(12, 4)",
        "ALTER TABLE @ CHANGE COLUMN n TYPE DECIMAL(14, 2)",
        "ALTER TABLE @ CHANGE COLUMN day TYPE TIMESTAMP_NTZ",
        "ALTER TABLE @ CHANGE COLUMN s.x TYPE INT",
        "ALTER TABLE @ CHANGE COLUMN list.element TYPE BIGINT",
        "ALTER TABLE @ CHANGE COLUMN part TYPE BIGINT",
    )
    turns.model = [turns.spark.read.format("delta").load(turns.uri).toArrow()]
    schema = turns.model[0].schema
    big = turns.model[0].to_pylist()[0] | {"b": 2**40, "i": 0.5, "list": [2**40], "part": 2**40}

    def table(number: int) -> pa.Table:
        plain = turns.model[0].to_pylist()[0] | {"b": number, "part": number % 3}
        return pa.Table.from_pylist([plain, big | {"b": 2**40 + number}], schema=schema)

    added = turns.append(table(0))
    assert {add["partitionValues"]["part"] for add in added} == {"0", str(2**40)}
    (large,) = [add for add in added if add["partitionValues"]["part"] != "0"]
    assert large["stats"]["minValues"]["b"] == 2**40
    assert large["stats"]["maxValues"]["i"] == 0.5
    turns.take_turns(table)
    table_now = deltic.Table(turns.uri)
    assert table_now.scan(filter=f"part = {2**40} AND b > {2**40}").count() > 0
    metadata = [
        action["metaData"]
        for v in range(turns.version + 1)
        for action in log_actions(turns.uri, v)
        if "metaData" in action
    ]
    assert metadata[-1]["schemaString"].count("delta.typeChanges") == 9
    turns.sql("ALTER TABLE @ CHANGE COLUMN s.x TYPE BIGINT")
    turns.model = [turns.spark.read.format("delta").load(turns.uri).toArrow()]
    schema = turns.model[0].schema
    turns.append(table(9))


# --- identity columns ---


def ids(turns: Turns) -> list[int]:
    """The identity values, which both clients must read alike."""
    check_checksum(turns.spark, turns.uri, needed=False)
    found = sorted(deltic.Table(turns.uri).scan().to_arrow()["id"].to_pylist())
    assert found == sorted(row.id for row in turns.spark.read.format("delta").load(turns.uri).select("id").collect())
    return found


@pytest.mark.some(2)
@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("kind", ["ALWAYS", "BY DEFAULT"])
def test_identity_columns(turns: Turns, kind: str, mapping: str) -> None:
    turns.sql(
        f"CREATE TABLE @ (id BIGINT GENERATED {kind} AS IDENTITY (START WITH 10 INCREMENT BY -2), name STRING) "
        f"USING delta TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}')",
    )
    names = pa.table({"name": ["a", "b", "c"]})
    deltic.write(turns.uri, names)
    assert ids(turns) == [6, 8, 10]
    turns.sql("INSERT INTO @ (name) SELECT 'd' FROM range(0, 3, 1, 1)")
    assert ids(turns) == [0, 2, 4, 6, 8, 10]
    given = pa.table({"id": [77], "name": ["x"]})
    if kind == "ALWAYS":
        with pytest.raises(deltic.InvalidInputError, match="GENERATED ALWAYS"):
            deltic.write(turns.uri, given)
    else:
        deltic.write(turns.uri, given)
        turns.sql("DELETE FROM @ WHERE id = 77")
    deltic.write(turns.uri, names, mode="overwrite")
    assert ids(turns) == [-6, -4, -2]
    turns.describe()
    turns.sql("INSERT INTO @ (name) VALUES ('e')")
    assert ids(turns) == [-8, -6, -4, -2]


def test_spark_tasks_number_rows_apart(turns: Turns) -> None:
    turns.sql(
        "CREATE TABLE @ (id BIGINT GENERATED ALWAYS AS IDENTITY, n BIGINT) USING delta",
        "INSERT INTO @ (n) SELECT id FROM range(0, 100, 1, 3)",
    )
    rows_of_spark = turns.spark.range(0, 1000, 1, 5).selectExpr("id AS n")
    deltic.spark.write(rows_of_spark, turns.uri)
    deltic.spark.register(turns.spark)
    rows_of_spark.write.format("deltic").mode("append").save(turns.uri)
    turns.sql("INSERT INTO @ (n) SELECT id FROM range(0, 100, 1, 3)")
    found = ids(turns)
    assert len(found) == len(set(found)) == 2200
    assert all(number >= 1 for number in found)
