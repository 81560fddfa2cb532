"""CONVERT compared with delta-spark: equal tables from the same files, and delta-spark continues that of deltic."""

from __future__ import annotations

import json
import shutil
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import deltic


def adds(uri: str) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, Path(uri, "_delta_log", f"{0:020}.json").read_text().splitlines())
    return {line["add"]["path"]: line["add"] for line in lines if "add" in line}


def fields(uri: str) -> list[dict[str, Any]]:
    lines = map(json.loads, Path(uri, "_delta_log", f"{0:020}.json").read_text().splitlines())
    schema = next(json.loads(line["metaData"]["schemaString"]) for line in lines if "metaData" in line)
    return schema["fields"]


def rows(spark: SparkSession, uri: str) -> list[str]:
    return sorted(repr(row.asDict(recursive=True)) for row in spark.read.format("delta").load(uri).collect())


def test_both_convert_alike(spark: SparkSession, uri: str) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, 3], pa.int32()),
            "n": pa.array([2**40, None, -3], pa.int64()),
            "text": ["a", "é" * 50, None],
            "f": [1.0, float("nan"), None],
            "price": pa.array([Decimal("1.20"), None, Decimal("-3.00")], pa.decimal128(9, 2)),
            "at": pa.array([datetime(2020, 1, 1, 1, 2, 3, 4567, timezone.utc), None, None], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime(1900, 1, 1), None, datetime(2021, 1, 1)], pa.timestamp("us")),
            "day": [date(2020, 1, 1), None, date(1, 1, 1)],
            "s": [{"x": 1, "y": "p"}, None, {"x": None, "y": "q"}],
            "l": [[1], None, []],
            "u": pa.array([1, 2**32 - 1, None], pa.uint32()),
            "b": [b"x", None, b"y"],
        }
    )
    for number, folder in enumerate(["p=1/q=a%20b%2Fc", "p=2/q=é 日本", "p=3/q=__HIVE_DEFAULT_PARTITION__"]):
        Path(uri, folder).mkdir(parents=True)
        pq.write_table(table, Path(uri, folder, f"x {number}.parquet"), row_group_size=2)
    theirs = uri + "-theirs"
    shutil.copytree(uri, theirs)
    spark.sql(f"CONVERT TO DELTA parquet.`{theirs}` PARTITIONED BY (p INT, q STRING)")
    deltic.convert(uri, partition_schema={"p": "integer", "q": "string"})
    assert fields(uri) == fields(theirs)
    assert {path: add["partitionValues"] for path, add in adds(uri).items()} == {
        path: add["partitionValues"] for path, add in adds(theirs).items()
    }
    expected = rows(spark, theirs)
    assert len(expected) == 9
    assert rows(spark, uri) == expected
    # By repr(), in which NaN equals NaN.
    ours, same = (sorted(map(repr, deltic.Table(at).scan().to_arrow().to_pylist())) for at in (uri, theirs))
    assert ours == same
    # No condition on `f`: Parquet's bounds ignore NaN, so Spark skips row groups with NaN.
    for condition in ("text >= 'é'", "u > 5", "day < DATE '0002-01-01'", "q IS NULL", "p = 2 AND i = 3"):
        counts = [spark.read.format("delta").load(at).where(condition).count() for at in (uri, theirs)]
        assert counts == [deltic.Table(uri).scan(filter=condition).count()] * 2, condition
    # VACUUM of delta-spark compares paths in the log with those of the listing as strings.
    spark.sql(f"VACUUM delta.`{uri}` RETAIN 0 HOURS")
    assert rows(spark, uri) == expected
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE i = 1")
    spark.sql(f"INSERT INTO delta.`{uri}` (i, p, q) VALUES (7, 3, 'new')")
    assert deltic.Table(uri).scan().count() == 7
    deltic.Table(uri).delete("i = 7")
    assert len(rows(spark, uri)) == 6
