"""Statements of `deltic.spark` that change rows, and plain models of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import FEED, VECTORS
from pyspark.sql import DataFrame, SparkSession

import deltic
import deltic.spark
from deltic import Table
from deltic.spark.dml import rows

Row = tuple[int, str, int]
Rows = list[Row]
Through = Callable[[DataFrame], DataFrame]
"""What is done to the rows that Spark gives to a statement."""

COLUMNS = "id long, part string, n long"
FIRST: Rows = [(id, "ab"[id % 2], 10 * id) for id in range(60)]
SOURCE: Rows = [(id, "c", -id) for id in range(0, 120, 3)]
APPENDED: Rows = [(id, "ac"[id % 2], 0) for id in range(200, 240)]


def same(frame: DataFrame) -> DataFrame:
    return frame


def made(uri: str) -> Table:
    """Three files in each of two partitions, with deletion vectors and a change data feed."""
    for start in range(0, 60, 20):
        created: dict[str, Any] = {} if start else {"properties": VECTORS | FEED, "partition_by": ["part"]}
        data = [dict(zip(("id", "part", "n"), row, strict=True)) for row in FIRST[start : start + 20]]
        deltic.write(uri, pa.Table.from_pylist(data), **created)
    return Table(uri)


@dataclass(frozen=True)
class Statement:
    run: Callable[[SparkSession, str, Through], Any]
    model: Callable[[Rows], Rows]


def frame(spark: SparkSession, given: Rows, through: Through) -> DataFrame:
    """Rows in four partitions, which Spark computes without a shuffle."""
    return through(spark.createDataFrame(spark.sparkContext.parallelize(given, 4), COLUMNS))


def upsert(spark: SparkSession, uri: str, through: Through) -> deltic.Merge[deltic.Commit]:
    merge = deltic.spark.merge(spark, uri, frame(spark, SOURCE, through), "source.id = target.id")
    merge = merge.when_matched_delete("source.id % 4 = 0").when_matched_update({"n": "source.n"})
    merge = merge.when_not_matched_insert_all("source.id < 110")
    merge = merge.when_not_matched_by_source_update({"n": "target.n + 1"}, "target.id % 10 = 7")
    return merge.when_not_matched_by_source_delete("target.id % 10 = 8")


def upserted(given: Rows) -> Rows:
    source, result = {id: (id, part, n) for id, part, n in SOURCE}, []
    for id, part, n in given:
        if id in source:
            result += [] if id % 4 == 0 else [(id, part, source[id][2])]
        elif id % 10 != 8:
            result.append((id, part, n + 1 if id % 10 == 7 else n))
    there = {id for id, _, _ in given}
    return result + [row for id, row in source.items() if id not in there and id < 110]


def divided_upsert(spark: SparkSession, uri: str, through: Through) -> deltic.Commit:
    """The same with a source that counts as large: its rows stay on the executors."""
    merge = upsert(spark, uri, through)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "LARGE_SOURCE", 0)
        return merge.execute()


def save(spark: SparkSession, uri: str, through: Through) -> None:
    deltic.spark.register(spark)
    frame(spark, APPENDED, through).write.format("deltic").mode("append").save(uri)


STATEMENTS = {
    "delete": Statement(
        lambda spark, uri, _: deltic.spark.delete(spark, uri, "id % 7 = 3"),
        lambda given: [row for row in given if row[0] % 7 != 3],
    ),
    "update": Statement(
        lambda spark, uri, _: deltic.spark.update(spark, uri, {"n": "n + id"}, "id % 5 = 1"),
        lambda given: [(id, part, n + id if id % 5 == 1 else n) for id, part, n in given],
    ),
    "merge": Statement(lambda spark, uri, through: upsert(spark, uri, through).execute(), upserted),
    "divided merge": Statement(divided_upsert, upserted),
    "write": Statement(
        lambda spark, uri, through: deltic.spark.write(frame(spark, APPENDED, through), uri),
        lambda given: given + APPENDED,
    ),
    "native write": Statement(
        lambda spark, uri, through: deltic.spark.write(frame(spark, APPENDED, through), uri, engine="native"),
        lambda given: given + APPENDED,
    ),
    "save": Statement(save, lambda given: given + APPENDED),
    "optimize": Statement(lambda spark, uri, _: deltic.spark.optimize(spark, uri), lambda given: given),
}


def rows_of(table: Table) -> Rows:
    found = table.scan(columns=["id", "part", "n"]).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def changes_of(table: Table) -> list[str]:
    """The rows of the last commit's change data feed."""
    feed = table.changes(start=table.snapshot().version).to_arrow().drop_columns(["_commit_timestamp"])
    return sorted(map(repr, feed.to_pylist()))


def data_files(uri: str) -> set[Path]:
    return {path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def named_files(uri: str) -> set[Path]:
    """The data files that some commit names."""
    log = "".join(path.read_text() for path in Path(uri, "_delta_log").glob("*.json"))
    return {path for path in data_files(uri) if path.name in log}
