"""UPDATE compared with delta-spark: the same updates of equal tables have equal results, which both clients read."""

from __future__ import annotations

import logging
import random
import shutil
from functools import partial

import deltalake
import duckdb
import pyarrow as pa
import pytest
from assigned import EXPRESSIONS, KINDS, create, succeeds
from changed_rows import FEED, FEW, IDS, VECTORS, Changed, counted, label, read_by_spark, same

import deltic

pyspark = pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError  # noqa: E402
from pyspark.errors import AnalysisException, ArithmeticException, PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

SETS = [
    {"k": "k + 1"},
    {"p": "'c'", "d": "CAST('NaN' AS DOUBLE)"},
    {"p": "NULL", "k": "CASE WHEN k > 4 THEN n ELSE 0 END"},
    {"s.x": "k", "k": "7"},
    {"s": "NULL", "p": "concat(coalesce(p, 'é'), '/b')"},
    {"d": "coalesce(d, k) * 2"},
    {"s.y": "coalesce(p, 'none')", "p": "s.y"},
    {"p": "''"},
]
CONDITIONS = [
    "k = 3",
    "p = 'a'",
    "p IS NULL OR k > 6",
    "s.x = 1 AND p <> 'c'",
    "n % 3 = 0",
    "d = CAST('NaN' AS DOUBLE)",
    "d > 0.5",
    "true",
]


@pytest.mark.some(3)
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("properties", FEW, ids=label)
def test_both_update_alike(spark: SparkSession, uri: str, properties: dict[str, str], partitioned: bool) -> None:
    rng = random.Random(f"{properties} {partitioned}")
    ours = Changed.create(uri, properties, partitioned)
    for _ in range(2):
        ours.append(rng, 12)
    theirs = uri + "-theirs"
    shutil.copytree(uri, theirs)
    for step in range(3):
        set, where = rng.choice(SETS), rng.choice(CONDITIONS)
        assigned = ", ".join(f"{column} = {value}" for column, value in set.items())
        spark.sql(f"UPDATE delta.`{theirs}` SET {assigned} WHERE {where}")
        commit = deltic.Table(uri).update(set, where)
        wanted = read_by_spark(spark, theirs).to_pylist()
        before = ours.rows
        after = {row["n"]: row for row in wanted}
        updated = {
            row["n"]
            for row in spark.createDataFrame(
                pa.Table.from_pylist(list(before.values()), schema=deltic.Table(uri).snapshot().schema)
            )
            .where(where)
            .select("n")
            .collect()
        }
        assert commit.metrics["numUpdatedRows"] == len(updated)
        if updated:
            ours.check(after, updated, read_by_spark(spark, uri), deltic.Table(theirs).scan().to_arrow())
            if FEED.items() <= properties.items():
                version = commit.version
                options = {"readChangeFeed": "true", "startingVersion": version, "endingVersion": version}
                changes = spark.read.format("delta").options(**options).load(uri).toArrow()
                same(
                    counted(changes.to_pylist()),
                    counted(deltic.Table(uri).changes(version, version).to_arrow().to_pylist()),
                )
        # deltic continues with the table of delta-spark.
        if step == 1:
            shutil.rmtree(uri)
            shutil.copytree(theirs, uri)
            ours.ids = _ids(uri) if IDS.items() <= properties.items() else {}


def _ids(uri: str) -> dict[int, tuple[int, int]]:
    columns = ["n", "_metadata.row_id", "_metadata.row_commit_version"]
    rows = deltic.Table(uri).scan(columns=columns).to_arrow().to_pylist()
    return {row["n"]: (row["_metadata.row_id"], row["_metadata.row_commit_version"]) for row in rows}


def test_row_ids_are_read_alike(spark: SparkSession, uri: str) -> None:
    table = Changed.create(uri, {**VECTORS, **IDS}, False)
    table.append(random.Random(3), 20)
    deltic.Table(uri).update({"k": "n"}, "n % 4 = 1")
    columns = ["n", "_metadata.row_id", "_metadata.row_commit_version"]
    theirs = spark.read.format("delta").load(uri).select(*columns).toArrow().to_pylist()
    assert {row["n"]: (row["row_id"], row["row_commit_version"]) for row in theirs} == _ids(uri)


def test_metrics_and_history_are_those_of_delta_spark(spark: SparkSession, uri: str) -> None:
    for properties in ({}, VECTORS, {**VECTORS, **FEED}, FEED):
        ours = uri + label(properties)
        table = Changed.create(ours, properties, True)
        table.append(random.Random(1), 30)
        theirs = ours + "-theirs"
        shutil.copytree(ours, theirs)
        spark.sql(f"UPDATE delta.`{theirs}` SET k = 1, s.y = 'z' WHERE n < 11")
        deltic.Table(ours).update({"k": "1", "s.y": "'z'"}, "n < 11")
        wanted, found = (deltic.Table(uri).history(limit=1)[0] for uri in (theirs, ours))
        assert found["operation"] == wanted["operation"]
        assert found["operationParameters"].keys() == wanted["operationParameters"].keys()
        counts = ["numUpdatedRows", "numCopiedRows", "numAddedFiles", "numDeletionVectorsAdded"]
        # With deletion vectors delta-spark counts the marked file as removed, and deltic does not.
        counts += [] if VECTORS.items() <= properties.items() else ["numRemovedFiles"]
        found_metrics, wanted_metrics = found["operationMetrics"], wanted["operationMetrics"]
        assert {name: found_metrics[name] for name in counts} == {name: wanted_metrics[name] for name in counts}
        assert wanted_metrics.keys() <= found_metrics.keys()


RULES = """
    CREATE TABLE delta.`{uri}` (
        id BIGINT NOT NULL, day DATE, code VARCHAR(3), small TINYINT,
        year INT GENERATED ALWAYS AS (year(day)), text STRING DEFAULT 'it''s'
    ) USING delta PARTITIONED BY (year)
    TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported', 'delta.constraints.c' = 'id < 100')
"""


def test_rules_are_those_of_delta_spark(spark: SparkSession, uri: str) -> None:
    for name in ("ours", "theirs"):
        spark.sql(RULES.format(uri=f"{uri}-{name}"))
        spark.sql(
            f"INSERT INTO delta.`{uri}-{name}` (id, day, code, small, text) "
            "VALUES (1, DATE'2020-01-01', 'abc', 1, 'x'), (2, NULL, NULL, NULL, NULL)"
        )
    at = f"delta.`{uri}-theirs`"
    table = deltic.Table(f"{uri}-ours")
    # PySpark does not convert delta-spark's own exceptions.
    refused = [
        ("id", "id + 98", Py4JJavaError, "DELTA_VIOLATE_CONSTRAINT", "CHECK constraint `c`"),
        ("id", "NULL", Py4JJavaError, "DELTA_VIOLATE_CONSTRAINT|DELTA_NOT_NULL", "id is not nullable"),
        ("code", "'abcd'", Py4JJavaError, "DELTA_EXCEED_CHAR_VARCHAR_LIMIT", "code"),
        ("small", "id + 200", ArithmeticException, "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE", "`small`"),
        ("year", "5", Py4JJavaError, "DELTA_VIOLATE_CONSTRAINT", "generated column `year`"),
        (
            "small",
            "1 / 0",
            ArithmeticException,
            "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE|DIVIDE_BY_ZERO",
            "division by zero",
        ),
        ("nope", "1", AnalysisException, "UNRESOLVED_COLUMN", "no column `nope`"),
    ]
    for column, value, error, theirs, ours in refused:
        with pytest.raises(error, match=theirs):
            spark.sql(f"UPDATE {at} SET {column} = {value}")
        with pytest.raises(deltic.InvalidInputError, match=ours):
            table.update({column: value})
    for set in (
        {"day": "date_add(coalesce(day, DATE'2021-06-01'), 400)"},
        {"text": "DEFAULT"},
        {"small": "id * 3", "code": "id"},
        {"year": "year(day)"},
        {"text": "small", "day": "TIMESTAMP'1999-12-31 23:00:00'"},
    ):
        assigned = ", ".join(f"{column} = {value}" for column, value in set.items())
        spark.sql(f"UPDATE {at} SET {assigned}")
        table.update(set)
        wanted = sorted(read_by_spark(spark, f"{uri}-theirs").to_pylist(), key=repr)
        assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == wanted, set
        assert sorted(read_by_spark(spark, f"{uri}-ours").to_pylist(), key=repr) == wanted


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", KINDS)
def test_assigned_values_are_cast_as_by_delta_spark(spark: SparkSession, uri: str, kind: str) -> None:
    rng = random.Random(kind)
    create(spark, uri)
    theirs = uri + "-theirs"
    shutil.copytree(uri, theirs)
    ours = deltic.Table(uri)
    for value in EXPRESSIONS:
        k = rng.randrange(1, 4)
        sql = f"UPDATE delta.`{theirs}` SET to_{kind} = {value} WHERE k = {k}"
        is_stored = succeeds(partial(spark.sql, sql), (PySparkException, Py4JJavaError))
        update = partial(ours.update, {f"to_{kind}": value}, f"k = {k}")
        assert succeeds(update, (deltic.InvalidInputError,)) == is_stored, (value, k)
        found, wanted = (
            table.scan(columns=[f"to_{kind}"], filter=f"k = {k}").to_arrow() for table in (ours, deltic.Table(theirs))
        )
        assert found.to_pylist() == wanted.to_pylist(), (value, k)
    same_rows = (read_by_spark(spark, at).sort_by("k").to_pylist() for at in (uri, theirs))
    assert next(same_rows) == next(same_rows)


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_files_of_spark_keep_their_columns(
    spark: SparkSession, uri: str, mapping: str, caplog: pytest.LogCaptureFixture
) -> None:
    spark.sql(f"""
        CREATE TABLE delta.`{uri}` (id BIGINT, value INT, text STRING, price DECIMAL(12, 2), large DECIMAL(30, 4),
            day DATE, real DOUBLE, at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, inner STRUCT<x: INT, y: STRING>,
            items ARRAY<BIGINT>, counts MAP<STRING, INT>)
        USING delta
        TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}', 'delta.enableDeletionVectors' = 'false')""")
    # The default is INT96, of which all columns are written again.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.sql(f"""
        INSERT INTO delta.`{uri}` SELECT id, CAST(id % 100 AS INT), IF(id % 9 = 0, NULL, concat('é', id)), id / 7, -id,
            date_add(DATE '0900-01-01', CAST(id * 60 AS INT)), IF(id % 8 = 0, CAST('NaN' AS DOUBLE), id / 3),
            timestamp_micros(id * 1234567891), CAST(timestamp_micros(id * 1234567) AS TIMESTAMP_NTZ),
            CAST(CAST(id AS STRING) AS BINARY), struct(CAST(id AS INT), IF(id % 2 = 0, NULL, 'y')),
            sequence(0L, id % 4), map('k', CAST(id AS INT))
        FROM range(0, 20000, 1, 1)""")
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    before = read_by_spark(spark, uri).sort_by("id")
    caplog.set_level(logging.DEBUG, logger="deltic")
    deltic.Table(uri).update({"value": "value + 1000", "inner.y": "text"}, "id % 10 = 3")
    assert not [record for record in caplog.records if "UPDATE writes all" in record.getMessage()]
    expected = before.to_pylist()
    for row in expected:
        if row["id"] % 10 == 3:
            row["value"] += 1000
            row["inner"]["y"] = row["text"]
    found = [read_by_spark(spark, uri), deltic.Table(uri).scan().to_arrow()]
    if mapping == "none":
        files = deltalake.DeltaTable(uri).file_uris()
        found.append(duckdb.sql(f"SELECT * FROM read_parquet({files})").to_arrow_table())
    for rows in found:
        for name in before.schema.names:
            values = rows.sort_by("id").column(name).cast(before.schema.field(name).type).to_pylist()
            assert repr(values) == repr([row[name] for row in expected]), name
    for where in (
        "value = 1003", "text = 'é777'", "day = DATE '1000-01-04'", "real > 6000", "real = 1", "price > 2850",
        "large < -19990",
        "at > TIMESTAMP '1970-10-13 00:00:00'", "inner.y = 'é13'", "inner.x = 19999", "text IS NULL", "id > 19990",
    ):  # fmt: skip
        counted = spark.sql(f"SELECT count(*) FROM delta.`{uri}` WHERE {where}").first()
        unskipped = sum(
            1 for _ in spark.createDataFrame(pa.Table.from_pylist(expected, before.schema)).where(where).collect()
        )
        assert counted is not None
        assert counted[0] == unskipped == deltic.Table(uri).scan(filter=where).count(), where
    assert deltic.Table(uri).check(files=True).ok
