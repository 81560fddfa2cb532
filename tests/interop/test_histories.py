"""Random histories of all operations by deltic and delta-spark in turns, compared with a simple model: `histories`.

Three times as many histories are by deltic alone, which are ten times faster and have twice as many steps. delta-rs and
DuckDB read all tables that they support. `DELTIC_HISTORIES=200` tests 200 seeds, starting with `DELTIC_HISTORIES_FROM`,
with `DELTIC_HISTORY_STEPS` steps each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from histories import History
from pyspark.sql import SparkSession
from turns import in_delta_rs

if TYPE_CHECKING:
    import duckdb

pytestmark = pytest.mark.usefixtures("validating")

FIRST = int(os.environ.get("DELTIC_HISTORIES_FROM", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("DELTIC_HISTORIES", "2")))
STEPS = int(os.environ.get("DELTIC_HISTORY_STEPS", "8"))

Reader = Callable[[str], "pa.Table | None"]


REFUSALS = (
    "unsupported",
    "not support",
    # delta-rs: files of a shallow clone; a date as partition value of a column widened to a timestamp.
    "outside table root",
    "as 'timestamp_ntz'",
)


def where_supported(read: Callable[[str], pa.Table]) -> Reader:
    """Wrap a reader to return None if the client does not support the table."""

    def reader(uri: str) -> pa.Table | None:
        try:
            return read(uri)
        except Exception as error:
            if not any(words in str(error).lower() for words in REFUSALS):
                raise
            return None

    return reader


@pytest.fixture(scope="module", autouse=True)
def filters_without_dictionaries(spark: SparkSession) -> Iterator[None]:
    """Turn off Spark's filters on Parquet dictionaries, which take -0.0 to be less than 0.0 in every writer's files."""
    spark.conf.set("parquet.filter.dictionary.enabled", "false")
    yield
    spark.conf.unset("parquet.filter.dictionary.enabled")


@pytest.fixture(scope="module")
def others(connection: duckdb.DuckDBPyConnection) -> dict[str, Reader]:
    """Readers besides deltic and delta-spark."""

    def in_duckdb(uri: str) -> pa.Table:
        return connection.execute(f"SELECT * FROM delta_scan('{uri}')").to_arrow_table()

    return {"delta-rs": where_supported(in_delta_rs), "DuckDB": where_supported(in_duckdb)}


@pytest.mark.parametrize("seed", SEEDS)
def test_both_take_turns(spark: SparkSession, others: dict[str, Reader], tmp_path: Path, seed: int) -> None:
    History(spark, str(tmp_path), seed, others).run(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS.start, SEEDS.start + 3 * len(SEEDS)))
def test_deltic_alone(others: dict[str, Reader], tmp_path: Path, seed: int) -> None:
    History(None, str(tmp_path), seed, others).run(2 * STEPS)
