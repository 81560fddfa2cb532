"""Change data feed, append-only tables and row ids: deltic appends to and overwrites tables of delta-spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from sample import log_actions, rows
from turns import Turns

import deltic


def table(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": [f"p{n % 2}" for n in ids]})


def test_overwrites_need_no_change_files(turns: Turns) -> None:
    """An overwrite adds and removes whole files, so that the change data feed follows from the actions."""
    turns.sql(
        "CREATE TABLE @ (id BIGINT, p STRING) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    turns.spark_appends(table(1, 2, 3))
    turns.append(table(4))
    turns.delete("id = 3", lambda row: row["id"] != 3)
    before = turns.version
    turns.overwrite(table(7, 8))
    with deltic.Table(turns.uri).transaction() as tx:
        tx.remove("p = 'p0'")
    assert not any("cdc" in action for v in (before + 1, before + 2) for action in log_actions(turns.uri, v))
    reader = turns.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    theirs = reader.load(turns.uri).drop("_commit_timestamp").toArrow()
    ours = deltic.Table(turns.uri).changes(0).to_arrow().drop_columns(["_commit_timestamp"])
    assert rows(theirs) == rows(ours)
    kinds = Counter((row["_commit_version"] - before, row["_change_type"], row["id"]) for row in ours.to_pylist())
    expected = [
        (1, "delete", 1),
        (1, "delete", 2),
        (1, "delete", 4),
        (1, "insert", 7),
        (1, "insert", 8),
        (2, "delete", 8),
    ]
    assert {key: count for key, count in kinds.items() if key[0] > 0} == dict.fromkeys(expected, 1)


def test_append_only_tables(turns: Turns) -> None:
    turns.sql("CREATE TABLE @ (id BIGINT, p STRING) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')")
    turns.append(table(1))
    turns.spark_appends(table(2))
    with pytest.raises(deltic.InvalidInputError, match="append-only"):
        deltic.write(turns.uri, table(3), mode="overwrite")
    with pytest.raises(deltic.InvalidInputError, match="append-only"), deltic.Table(turns.uri).transaction() as tx:
        tx.remove("id = 1")
    turns.append(table(4))


def ids_of(turns: Turns) -> dict[int, tuple[int, int]]:
    """Row ids and commit versions by id, which both clients must read alike."""
    names = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    ours = deltic.Table(turns.uri).scan(columns=names).to_arrow().to_pylist()
    found = {row["id"]: (row[names[1]], row[names[2]]) for row in ours}
    theirs = turns.spark.read.format("delta").load(turns.uri).select(*names).collect()
    assert {row.id: (row.row_id, row.row_commit_version) for row in theirs} == found
    assert len({row_id for row_id, _ in found.values()}) == len(found)
    return found


def watermark(turns: Turns) -> int:
    return int(
        deltic.Table(turns.uri).snapshot().domains()["delta.rowTracking"].split(":")[1].split(",")[0].strip(" }")
    )


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_row_ids_continue_after_overwrites(turns: Turns, mapping: str) -> None:
    turns.sql(
        "CREATE TABLE @ (id BIGINT, p STRING) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
        f"'delta.columnMapping.mode' = '{mapping}')"
    )
    turns.append(table(1, 2))
    turns.spark_appends(table(3))
    turns.sql("UPDATE @ SET p = 'changed' WHERE id = 2")
    kept = ids_of(turns)
    turns.overwrite(table(5, 6))
    new = ids_of(turns)
    assert not {row_id for row_id, _ in new.values()} & {row_id for row_id, _ in kept.values()}
    assert {version for _, version in new.values()} == {turns.version}
    removed = [action["remove"] for action in log_actions(turns.uri, turns.version) if "remove" in action]
    assert removed
    assert all({"baseRowId", "defaultRowCommitVersion"} <= set(remove) for remove in removed)
    turns.append(table(7))
    turns.spark_appends(table(8))
    assert {n: ids_of(turns)[n] for n in (5, 6)} == new
    assert watermark(turns) == max(row_id for row_id, _ in ids_of(turns).values())


def test_row_ids_that_are_suspended(turns: Turns) -> None:
    turns.sql(
        "CREATE TABLE @ (id BIGINT, p STRING) USING delta TBLPROPERTIES ('delta.feature.rowTracking' = 'supported', "
        "'delta.enableRowTracking' = 'false')"
    )
    (numbered,) = turns.append(table(1))
    assert numbered["baseRowId"] == 0
    turns.sql("ALTER TABLE @ SET TBLPROPERTIES ('delta.rowTrackingSuspended' = 'true')")
    (suspended,) = turns.append(table(2))
    assert not {"baseRowId", "defaultRowCommitVersion"} & set(suspended)
    domains: list[Any] = [action for action in log_actions(turns.uri, turns.version) if "domainMetadata" in action]
    assert domains == []
    turns.overwrite(table(3))
    turns.sql("ALTER TABLE @ UNSET TBLPROPERTIES ('delta.rowTrackingSuspended')")
    (again,) = turns.append(table(4))
    assert again["baseRowId"] > 0
    turns.spark_appends(table(5))
