"""MERGE compared with delta-spark: the same merges of equal tables have equal results, which both clients read."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from assigned import EXPRESSIONS, KINDS, create, succeeds
from changed_rows import FEED, FEW, VECTORS, Changed, counted, key, label, read_by_spark, same, some_row, table_of

import deltic

pyspark = pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError  # noqa: E402
from pyspark.errors import PySparkException, UnsupportedOperationException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

CONDITIONS = [
    "s.n = t.n",
    "s.n <=> t.n AND t.n >= 0",
    "t.n = s.n AND (t.p <> 'c' OR t.p IS NULL)",
    "s.n = t.n AND s.k < 5",
    "s.n + 1 = t.n + 1",
    "t.n <= s.n AND s.n <= t.n",
]


def clauses(rng: random.Random, merge: deltic.Merge[Any]) -> str:
    """Add random clauses to a merge of deltic; return the same clauses as SQL."""
    chosen = rng.sample(["delete", "set", "all", "insert all", "insert", "gone", "left"], rng.randrange(1, 6))
    sql = []
    if "delete" in chosen:
        merge.when_matched_delete("t.k < 3 AND s.p = t.p")
        sql.append("WHEN MATCHED AND t.k < 3 AND s.p = t.p THEN DELETE")
    if "set" in chosen:
        merge.when_matched_update({"k": "s.k + t.k", "t.s.y": "t.p", "p": deltic.lit("é/1")}, "s.k > 4")
        sql.append("WHEN MATCHED AND s.k > 4 THEN UPDATE SET k = s.k + t.k, t.s.y = t.p, p = 'é/1'")
    if "all" in chosen:
        merge.when_matched_update_all()
        sql.append("WHEN MATCHED THEN UPDATE SET *")
    if "insert all" in chosen:
        merge.when_not_matched_insert_all("s.p = 'a'")
        sql.append("WHEN NOT MATCHED AND s.p = 'a' THEN INSERT *")
    if "insert" in chosen:
        merge.when_not_matched_insert({"n": "n", "d": "k", "p": "'i'"})
        sql.append("WHEN NOT MATCHED THEN INSERT (n, d, p) VALUES (s.n, s.k, 'i')")
    if "gone" in chosen:
        merge.when_not_matched_by_source_delete("t.p = 'b'")
        sql.append("WHEN NOT MATCHED BY SOURCE AND t.p = 'b' THEN DELETE")
    if "left" in chosen:
        merge.when_not_matched_by_source_update({"d": "n / 2", "p": "concat(p, 'x')"}, "t.k = 1")
        sql.append("WHEN NOT MATCHED BY SOURCE AND t.k = 1 THEN UPDATE SET d = t.n / 2, p = concat(t.p, 'x')")
    return " ".join(sql)


COUNTS = [
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceDeleted",
]


@pytest.mark.some(3)
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("properties", FEW, ids=label)
def test_both_merge_alike(spark: SparkSession, uri: str, properties: dict[str, str], partitioned: bool) -> None:
    rng = random.Random(f"{properties} {partitioned}")
    ours = Changed.create(uri, properties, partitioned)
    for _ in range(2):
        ours.append(rng, 12)
    theirs = uri + "-theirs"
    shutil.copytree(uri, theirs)
    for _ in range(3):
        some = rng.sample(sorted(ours.rows), min(len(ours.rows), rng.randrange(8)))
        source = {n: some_row(rng, n) for n in some} | ours.new_rows(rng, rng.randrange(4))
        rows, on = table_of(source.values()), rng.choice(CONDITIONS)
        merge = deltic.Table(uri).merge(rows, on, source_alias="s", target_alias="t")
        sql = clauses(rng, merge)
        spark.createDataFrame(rows).createOrReplaceTempView("news")
        spark.sql(f"MERGE INTO delta.`{theirs}` t USING news s ON {on} {sql}")
        commit = merge.execute()
        entry = deltic.Table(theirs).history(limit=1)[0]
        if entry["operation"] == "MERGE" and commit.attempts:
            wanted = {name: int(entry["operationMetrics"][name]) for name in COUNTS}
            assert {name: commit.metrics[name] for name in COUNTS} == wanted, sql
        wanted_rows = Counter(map(key, read_by_spark(spark, theirs).to_pylist()))
        for found in (
            deltic.Table(uri).scan().to_arrow(),
            read_by_spark(spark, uri),
            deltic.Table(theirs).scan().to_arrow(),
        ):
            same(Counter(map(key, found.to_pylist())), wanted_rows)
        assert deltic.Table(uri).check(files=True).ok
        if FEED.items() <= properties.items() and commit.attempts:
            version = deltic.Table(theirs).snapshot().version
            same(
                counted(deltic.Table(uri).changes(commit.version, commit.version).to_arrow().to_pylist()),
                counted(deltic.Table(theirs).changes(version, version).to_arrow().to_pylist()),
            )
            options = {"readChangeFeed": "true", "startingVersion": commit.version, "endingVersion": commit.version}
            changes = spark.read.format("delta").options(**options).load(uri).toArrow()
            same(
                counted(changes.to_pylist()), counted(deltic.Table(uri).changes(commit.version).to_arrow().to_pylist())
            )
        # Each client continues with the table of the other.
        uri, theirs = theirs, uri
        ours.rows = {row["n"]: row for row in deltic.Table(uri).scan().to_arrow().to_pylist()}


def test_history_is_that_of_delta_spark(spark: SparkSession, uri: str) -> None:
    for properties in ({}, VECTORS):
        ours = uri + label(properties)
        table = Changed.create(ours, properties, False)
        table.append(random.Random(1), 20)
        theirs = ours + "-theirs"
        shutil.copytree(ours, theirs)
        source = table_of([some_row(random.Random(2), n) for n in (3, 5, 40)])
        spark.createDataFrame(source).createOrReplaceTempView("news")
        spark.sql(
            f"MERGE INTO delta.`{theirs}` t USING news s ON s.n = t.n WHEN MATCHED AND s.n = 3 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        merge = deltic.Table(ours).merge(source, "s.n = t.n", source_alias="s", target_alias="t")
        merge.when_matched_delete("s.n = 3").when_matched_update_all().when_not_matched_insert_all().execute()
        wanted, found = (deltic.Table(uri).history(limit=1)[0] for uri in (theirs, ours))
        assert found["operation"] == wanted["operation"]
        assert found["operationParameters"].keys() == wanted["operationParameters"].keys()
        times = {"materializeSourceTimeMs"}
        assert wanted["operationMetrics"].keys() - times <= found["operationMetrics"].keys()


def test_schemas_evolve_alike(spark: SparkSession, uri: str) -> None:
    base = pa.table({"id": [1, 2], "v": ["a", "b"], "st": [{"x": 1}, {"x": 2}]})
    source = pa.table({"id": [2, 3], "v": ["B", "C"], "st": [{"x": 20, "y": "q"}, None], "new": [1.5, 2.5]})
    spark.createDataFrame(source).createOrReplaceTempView("wider")
    for number, (sql, build) in enumerate(
        [
            (
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
                lambda merge: merge.when_matched_update_all().when_not_matched_insert_all(),
            ),
            (
                "WHEN MATCHED THEN UPDATE SET new = s.new WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
                lambda merge: merge.when_matched_update({"new": "s.new"}).when_not_matched_insert(
                    {"id": "s.id", "v": "s.v"}
                ),
            ),
            (
                "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
                lambda merge: merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all(),
            ),
        ]
    ):
        ours, theirs = f"{uri}{number}", f"{uri}{number}-theirs"
        for name in (ours, theirs):
            deltic.write(name, base, properties=VECTORS if number else None)
        spark.sql(f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{theirs}` t USING wider s ON s.id = t.id {sql}")
        merge = deltic.Table(ours).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
        build(merge.with_schema_evolution()).execute()
        wanted = read_by_spark(spark, theirs)
        assert deltic.Table(ours).snapshot().schema.names == wanted.schema.names
        for found in (deltic.Table(ours).scan().to_arrow(), read_by_spark(spark, ours)):
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist())), sql


def test_types_are_widened_as_by_delta_spark(spark: SparkSession, uri: str) -> None:
    narrow = {"b": pa.int8(), "s": pa.int16(), "f": pa.float32(), "d": pa.decimal128(5, 2)}
    wide = {"b": pa.int64(), "s": pa.int32(), "f": pa.float64(), "d": pa.decimal128(9, 3)}

    def rows(first: int, types: dict[str, pa.DataType]) -> pa.Table:
        columns = {"d": pa.array([Decimal(1), Decimal(2)], types["d"])}
        for name in "bsf":
            columns[name] = pa.array([1, 2]).cast(types[name])
        return pa.table({"id": [first, first + 1], **columns})

    spark.createDataFrame(rows(2, wide)).createOrReplaceTempView("wide")
    for number, sql in enumerate(("UPDATE SET *", "UPDATE SET b = w.b, f = w.f")):
        ours, theirs = f"{uri}{number}", f"{uri}{number}-theirs"
        for name in (ours, theirs):
            deltic.write(name, rows(1, narrow), properties={**VECTORS, "delta.enableTypeWidening": "true"})
        spark.sql(
            f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{theirs}` t USING wide w ON w.id = t.id WHEN MATCHED THEN {sql}"
        )
        merge = deltic.Table(ours).merge(rows(2, wide), "w.id = t.id", source_alias="w", target_alias="t")
        merge = merge.with_schema_evolution()
        (merge.when_matched_update({"b": "w.b", "f": "w.f"}) if number else merge.when_matched_update_all()).execute()
        wanted = read_by_spark(spark, theirs)
        assert read_by_spark(spark, ours).schema.types == wanted.schema.types
        for found in (deltic.Table(ours).scan().to_arrow(), read_by_spark(spark, ours)):
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist())), sql


def test_what_delta_spark_refuses_is_refused(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2], "v": pa.array([1, 2], pa.int8())}))
    twice = pa.table({"id": [1, 1], "v": [5, 6]})
    spark.createDataFrame(twice).createOrReplaceTempView("twice")
    several = (UnsupportedOperationException, "DELTA_MULTIPLE_SOURCE_ROW_MATCHING", "several rows of the source")
    # PySpark does not convert delta-spark's own exceptions.
    unresolved = (Py4JJavaError, "DELTA_MERGE_UNRESOLVED_EXPRESSION")
    for sql, build, (error, theirs, ours) in (
        ("WHEN MATCHED THEN UPDATE SET v = s.v", lambda merge: merge.when_matched_update({"v": "s.v"}), several),
        ("WHEN MATCHED AND s.v > 1 THEN DELETE", lambda merge: merge.when_matched_delete("s.v > 1"), several),
        (
            "WHEN MATCHED THEN UPDATE SET v = s.v + 200",
            lambda merge: merge.when_matched_update({"v": "s.v + 200"}),
            several,
        ),
        (
            "WHEN MATCHED THEN UPDATE SET nope = 1",
            lambda merge: merge.when_matched_update({"nope": "1"}),
            (*unresolved, "no column `nope`"),
        ),
        (
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)",
            lambda merge: merge.when_not_matched_insert({"id": "t.id"}),
            (*unresolved, "`t.id` has no value here"),
        ),
    ):
        with pytest.raises(error, match=theirs):
            spark.sql(f"MERGE INTO delta.`{uri}` t USING twice s ON s.id = t.id {sql}")
        merge = deltic.Table(uri).merge(twice, "s.id = t.id", source_alias="s", target_alias="t")
        build(merge)
        with pytest.raises(deltic.InvalidInputError, match=ours):
            merge.execute()
    assert deltic.Table(uri).snapshot().version == 0
    spark.sql(f"MERGE INTO delta.`{uri}` t USING twice s ON s.id = t.id WHEN MATCHED THEN DELETE")
    assert deltic.Table(uri).scan().count() == 1


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", KINDS)
def test_assigned_values_are_cast_as_by_delta_spark(spark: SparkSession, uri: str, kind: str) -> None:
    """Of rows of the source, by SET and by VALUES."""
    rng = random.Random(kind)
    create(spark, uri)
    theirs, source = uri + "-theirs", uri + "-source"
    for copy in (theirs, source):
        shutil.copytree(uri, copy)
    ours = deltic.Table(uri)
    for value in rng.sample(EXPRESSIONS, 10):
        k = rng.randrange(1, 4)
        sql = f"MERGE INTO delta.`{theirs}` t USING (SELECT * FROM delta.`{source}` WHERE k = {k}) s ON s.k {{0}} t.k "
        sql += f"WHEN MATCHED THEN UPDATE SET to_{kind} = {{1}} "
        sql += f"WHEN NOT MATCHED THEN INSERT (k, to_{kind}) VALUES (s.k, {{1}})"
        of_source = of_source_columns(value)
        # The row is updated, and then one with the same `k` is inserted.
        for comparison in ("=", "+ 10 ="):
            is_stored = succeeds(
                partial(spark.sql, sql.format(comparison, of_source)), (PySparkException, Py4JJavaError)
            )
            merge = ours.merge(
                deltic.Table(source).scan(filter=f"k = {k}").to_arrow(), f"s.k {comparison} t.k", "s", "t"
            )
            merge.when_matched_update({f"to_{kind}": of_source})
            merge.when_not_matched_insert({"k": "s.k", f"to_{kind}": of_source})
            assert succeeds(merge.execute, (deltic.InvalidInputError,)) == is_stored, (value, k)
            found, wanted = (
                table.scan(columns=["k", f"to_{kind}"]).to_arrow() for table in (ours, deltic.Table(theirs))
            )
            assert counted_rows(found) == counted_rows(wanted), (value, k)


def of_source_columns(value: str) -> str:
    """The expression over the columns of the source."""
    return re.sub(r"'[^']*'|\b(?:" + "|".join(KINDS) + r")\b", lambda m: m[0] if m[0][0] == "'" else f"s.{m[0]}", value)


def counted_rows(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))
