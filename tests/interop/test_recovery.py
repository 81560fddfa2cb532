"""A log whose end deltic has moved away: delta-spark and delta-rs read the last readable version, and append to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltic

deltalake = pytest.importorskip("deltalake")

pytestmark = pytest.mark.usefixtures("validating")


@pytest.mark.parametrize("damage", ["missing", "torn", "last torn"])
@pytest.mark.parametrize("next_writer", ["deltic", "delta-spark", "delta-rs"])
def test_others_continue_a_recovered_log(spark: SparkSession, uri: str, damage: str, next_writer: str) -> None:
    """Spark wrote the log, with Hadoop's checksum files beside it."""
    for value in range(6):
        spark.range(value, value + 1).write.format("delta").mode("append").save(uri)
    log = Path(uri, "_delta_log")
    at = 5 if damage == "last torn" else 4
    assert (log / f".{at:020}.json.crc").exists()
    if damage == "missing":
        (log / f"{at:020}.json").unlink()
    else:
        (log / f"{at:020}.json").write_bytes((log / f"{at:020}.json").read_bytes()[:-20])
    deltic.Table(uri).repair(dry_run=False, recover_to=at - 1)

    def rows() -> list[int]:
        found = sorted(row.id for row in spark.read.format("delta").load(uri).collect())
        assert found == sorted(deltic.Table(uri).scan().to_arrow()["id"].to_pylist())
        assert found == sorted(pa.table(deltalake.DeltaTable(uri).to_pyarrow_table())["id"].to_pylist())
        assert deltic.Table(uri).check(files=True).ok
        return found

    assert rows() == list(range(at))
    expected = list(range(at))
    for value in (100, 101, 102):
        if next_writer == "deltic":
            deltic.write(uri, pa.table({"id": [value]}))
        elif next_writer == "delta-rs":
            deltalake.write_deltalake(uri, pa.table({"id": [value]}), mode="append")
        else:
            spark.range(value, value + 1).write.format("delta").mode("append").save(uri)
        expected.append(value)
        assert rows() == expected
    assert deltalake.DeltaTable(uri).version() == at + 2
