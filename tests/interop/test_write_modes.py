"""All write modes: delta-spark reads and continues the table, and validates its checksums."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from delta_spark import check_checksum

import deltic

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import SparkSession  # noqa: E402

pytestmark = pytest.mark.usefixtures("validating")

FIRST = pa.table({"p": ["a", "b", None], "n": pa.array([1, 2, 3], pa.int32())})
WAYS: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "append": (FIRST, {}),
    "overwrite": (FIRST.slice(0, 1), {"mode": "overwrite"}),
    "dynamic": (pa.table({"p": ["a", None], "n": [7, 8]}), {"mode": "overwrite", "partition_overwrite": "dynamic"}),
    "merge": (pa.table({"p": ["a"], "n": [9], "x": [{"y": 1.5}]}), {"schema_mode": "merge"}),
    "widen": (pa.table({"p": ["a"], "n": [1 << 40]}), {"schema_mode": "merge"}),
    "replace columns": (
        pa.table({"q": [1, 2], "z": ["u", "v"]}),
        {"mode": "overwrite", "schema_mode": "overwrite", "partition_by": "q"},
    ),
    "rearrange": (FIRST, {"mode": "overwrite", "data_change": False}),
    "files": (
        FIRST,
        {
            "sort_by": "n",
            "max_rows_per_file": 1,
            "row_group_rows": 1,
            "compression": "gzip",
            "compression_level": 9,
            "column_options": {"n": {"encoding": "delta_binary_packed", "bloom_filter": True}},
            "commit_info": {"job_id": "nightly"},
        },
    ),
}


def spread(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("way", WAYS)
def test_delta_spark_reads_and_continues_the_table(spark: SparkSession, uri: str, way: str) -> None:
    deltic.write(uri, FIRST, partition_by="p", properties={"delta.enableTypeWidening": "true"})
    data, options = WAYS[way]
    deltic.write(uri, data, **options)
    for step in range(2):
        theirs = spark.read.format("delta").load(uri)
        ours = deltic.Table(uri).scan().to_arrow().to_pylist()
        assert spread([row.asDict(recursive=True) for row in theirs.collect()]) == spread(ours)
        check_checksum(spark, uri, needed=step == 0)
        if step == 0:
            # Append the table to itself.
            theirs.write.format("delta").mode("append").save(uri)
    deltic.write(uri, deltic.Table(uri).scan(), mode="overwrite")
    check_checksum(spark, uri)
    assert spark.read.format("delta").load(uri).count() == deltic.Table(uri).scan().to_arrow().num_rows
