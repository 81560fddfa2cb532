"""deltic, delta-rs and delta-spark write to one table at the same time, and read the same rows at the end."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from conftest import MIXED_APPENDS, report
from delta_spark import check_checksum
from proof import check_checksums, committed_ids, leftovers, read_log
from writers import SCHEMA, Refused, Told, Work, append, append_by_deltalake, event, rewrite, row, running

import deltic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

STATEMENTS = max(4, MIXED_APPENDS // 8)
"""What Spark does; each takes it long enough for the others to do much more."""
PAUSE = 1.5
"""Seconds at most between two commits of the others, which go on until Spark is done."""


def spark_writes(spark: SparkSession, uri: str) -> tuple[set[str], set[str]]:
    """Appends to a part that others append to, and deletes from its own; returns the ids that were added or removed."""
    kept, gone = set(), set()
    for number in range(STATEMENTS):
        for name, part in (("spark", "shared"), ("own", "spark")):
            data = row(f"{name}-{number}", number, part)
            spark.createDataFrame(data).coalesce(1).write.format("delta").mode("append").save(uri)
            kept.update(data["id"].to_pylist())
        if number % 3 == 2:
            id = f"own-{number - 1}-{number - 1}"
            spark.sql(f"DELETE FROM delta.`{uri}` WHERE part = 'spark' AND id = '{id}'")
            kept.discard(id)
            gone.add(id)
    return kept, gone


def test_three_kinds_of_writers_on_one_table(spark: SparkSession, uri: str) -> None:
    table = deltic.Table(uri)
    deltic.create(table, SCHEMA, ["part"], properties={"delta.checkpointInterval": "7"})
    # The first of everything takes Spark many seconds, in which the others would be done.
    first = pa.concat_tables([row("first", 0, "spark"), row("first", 1, "shared")])
    spark.createDataFrame(first).coalesce(1).write.format("delta").mode("append").save(uri)
    works = [
        (append, Work(uri, "path", MIXED_APPENDS, how="path", pause=PAUSE)),
        (append, Work(uri, "handle", MIXED_APPENDS, how="handle", pause=PAUSE)),
        (append, Work(uri, "transaction", MIXED_APPENDS, how="transaction", part="quiet", pause=PAUSE)),
        (append_by_deltalake, Work(uri, "deltalake", MIXED_APPENDS, pause=PAUSE)),
        (rewrite, Work(uri, "rewriter", MIXED_APPENDS, pause=PAUSE)),
    ]
    told: dict[str, list[Any]] = {}
    more = event()
    more.set()
    with running(works, more) as processes:
        began = time.perf_counter()
        kept, gone = spark_writes(spark, uri)
        more.clear()
        for process in processes:
            told[process.work.name] = process.everything()
        seconds = time.perf_counter() - began
    for name, said in told.items():
        # Who rewrites what others append to may lose every race.
        assert name == "rewriter" or any(isinstance(one, Told) for one in said), f"{name} got nothing done"
        # delta-rs may also fail in ways that it has no name for.
        assert name == "deltalake" or len(said) >= MIXED_APPENDS, f"{name} ended after {len(said)} commits"
    check_rows(uri, told, kept | {"first-0", "first-1"}, gone)
    commits = read_log(uri, mixed=True)
    leftovers(uri, commits)
    agreeing = check_checksums(uri, commits)
    table.write_checksum()
    check_checksum(spark, uri)
    theirs = spark.read.format("delta").load(uri).select("id").toArrow()["id"].to_pylist()
    assert Counter(theirs) == committed_ids(table)
    theirs = deltalake.DeltaTable(uri).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    assert Counter(theirs) == committed_ids(table)
    refused = Counter(name for name, said in told.items() for one in said if isinstance(one, Refused))
    engines = Counter(engine_of(actions) for actions in commits)
    report(
        f"mixed writers: {len(commits)} commits ({', '.join(f'{n} {who}' for who, n in engines.most_common())}) in "
        f"{seconds:.1f} s, refused: {dict(refused) or 'none'}; {agreeing} checksums agree"
    )


def engine_of(actions: list[dict[str, Any]]) -> str:
    (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    text = str(info.get("engineInfo", "")).lower()
    return "delta-spark" if "spark" in text else "delta-rs" if "delta-rs" in text or "kernel" in text else text


def check_rows(uri: str, told: dict[str, list[Any]], kept: set[str], gone: set[str]) -> None:
    """All acknowledged rows are there once; rows of a failed write by delta-rs may be there, too."""
    ids = committed_ids(deltic.Table(uri))
    assert set(ids.values()) == {1}, ids.most_common(3)
    acknowledged = {id for said in told.values() for one in said if isinstance(one, Told) for id in one.kept}
    refused = {id for said in told.values() for one in said if isinstance(one, Refused) for id in one.ids}
    assert acknowledged | kept <= set(ids)
    assert set(ids) <= acknowledged | kept | refused
    assert not gone & set(ids)
