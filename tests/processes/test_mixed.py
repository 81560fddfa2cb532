"""deltic, delta-rs and delta-spark write to one table concurrently, and read the same rows at the end."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from conftest import MIXED_APPENDS, report
from delta_spark import check_checksum
from proof import check_checksums, committed_ids, leftovers, read_log
from writers import SCHEMA, Committed, Refused, Work, append, append_by_deltalake, event, rewrite, row, running

import deltic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

STATEMENTS = max(4, MIXED_APPENDS // 8)
"""Number of Spark's rounds. In the time of each, the other writers make many commits."""
PAUSE = 1.5
"""Maximum pause in seconds between two commits of the other writers, which continue until Spark is done."""


def spark_writes(spark: SparkSession, uri: str) -> tuple[set[str], set[str]]:
    """Append to the shared part and to Spark's own, delete from its own; return the ids of kept and deleted rows."""
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
    # Spark's first write takes many seconds. The other writers would be done by then.
    first = pa.concat_tables([row("first", 0, "spark"), row("first", 1, "shared")])
    spark.createDataFrame(first).coalesce(1).write.format("delta").mode("append").save(uri)
    works = [
        (append, Work(uri, "path", MIXED_APPENDS, how="path", pause=PAUSE)),
        (append, Work(uri, "handle", MIXED_APPENDS, how="handle", pause=PAUSE)),
        (append, Work(uri, "transaction", MIXED_APPENDS, how="transaction", part="quiet", pause=PAUSE)),
        (append_by_deltalake, Work(uri, "deltalake", MIXED_APPENDS, pause=PAUSE)),
        (rewrite, Work(uri, "rewriter", MIXED_APPENDS, pause=PAUSE)),
    ]
    received: dict[str, list[Any]] = {}
    more = event()
    more.set()
    with running(works, more) as processes:
        began = time.perf_counter()
        kept, gone = spark_writes(spark, uri)
        more.clear()
        for process in processes:
            received[process.work.name] = process.everything()
        seconds = time.perf_counter() - began
    for name, messages in received.items():
        # The rewriter may lose every race against the appends.
        assert name == "rewriter" or any(isinstance(one, Committed) for one in messages), f"{name} made no commit"
        # delta-rs may also fail with other errors, which end its process.
        assert name == "deltalake" or len(messages) >= MIXED_APPENDS, f"{name} ended after {len(messages)} commits"
    check_rows(uri, received, kept | {"first-0", "first-1"}, gone)
    commits = read_log(uri, mixed=True)
    leftovers(uri, commits)
    agreeing = check_checksums(uri, commits)
    table.write_checksum()
    check_checksum(spark, uri)
    theirs = spark.read.format("delta").load(uri).select("id").toArrow()["id"].to_pylist()
    assert Counter(theirs) == committed_ids(table)
    theirs = deltalake.DeltaTable(uri).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    assert Counter(theirs) == committed_ids(table)
    refused = Counter(name for name, messages in received.items() for one in messages if isinstance(one, Refused))
    engines = Counter(engine_of(actions) for actions in commits)
    report(
        f"mixed writers: {len(commits)} commits ({', '.join(f'{n} {who}' for who, n in engines.most_common())}) in "
        f"{seconds:.1f} s, refused: {dict(refused) or 'none'}; {agreeing} checksums agree"
    )


def engine_of(actions: list[dict[str, Any]]) -> str:
    (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    text = str(info.get("engineInfo", "")).lower()
    return "delta-spark" if "spark" in text else "delta-rs" if "delta-rs" in text or "kernel" in text else text


def check_rows(uri: str, received: dict[str, list[Any]], kept: set[str], gone: set[str]) -> None:
    """Check that all acknowledged rows exist once. Rows of delta-rs writes that raised an error may exist too."""
    ids = committed_ids(deltic.Table(uri))
    assert set(ids.values()) == {1}, ids.most_common(3)
    acknowledged = {
        id for messages in received.values() for one in messages if isinstance(one, Committed) for id in one.kept
    }
    refused = {id for messages in received.values() for one in messages if isinstance(one, Refused) for id in one.ids}
    assert acknowledged | kept <= set(ids)
    assert set(ids) <= acknowledged | kept | refused
    assert not gone & set(ids)
