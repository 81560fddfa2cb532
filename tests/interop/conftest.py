"""Fixtures of the interoperability tests. Each suite runs in its own process: see the Makefile."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from delta_spark import VALIDATING, session
from log_files import Log, remove
from sample import every_type, log_actions

import deltic

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession
    from turns import Turns


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a random sample of the cases of tests marked `some`; all of them with DELTIC_CASES=all."""
    if os.environ.get("DELTIC_CASES") == "all":
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("some") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for found in cases.values():
        mark = found[0].get_closest_marker("some")
        assert mark is not None
        left_out |= set(random.sample(found, max(len(found) - mark.args[0], 0)))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def flights() -> pa.Table:
    """Rows of every type, with two partition columns; `origin` has nulls and special characters."""
    table = every_type(120)
    origins = [["EWR", "JFK", "a b/c=d%", None][i % 4] for i in range(120)]
    return table.append_column("origin", pa.array(origins)).append_column(
        "month", pa.array([i % 3 for i in range(120)])
    )


FILTERS = [
    "month = 1",
    "month = 1 AND integer > 50000",
    "origin = 'JFK' OR id < 3",
    "origin IS NULL",
    "id BETWEEN 30 AND 40",
    "string LIKE 'row 1%'",
    "date >= DATE '2013-03-01'",
    "NOT (month = 1)",
    "byte = -128",
    "big_decimal > 10",
    "boolean AND double < 10.5",
]
"""Filters that mean the same in every engine."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One delta-spark session for all modules. Its VACUUM accepts a retention of zero, and runs in one task."""
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    }
    made = session(tmp_path_factory.mktemp("warehouse"), settings)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def validating(spark: SparkSession) -> Iterator[None]:
    """Let the session validate checksums for the duration of a module."""
    before = {name: spark.conf.get(name, None) for name in VALIDATING}
    for name, value in VALIDATING.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of comparisons, which depends on DELTIC_FILTER_SEEDS."""
    matrix = sys.modules.get("test_matrix")
    if matrix is not None and matrix.COMPARED:
        terminalreporter.write_line(f"rows compared with delta-spark {matrix.COMPARED.total()} times")


def with_reused_sidecars(uri: str, flights: pa.Table) -> pa.Table:
    """Write a table whose last checkpoint reuses sidecars of the one before; return its rows."""
    properties = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "100"}
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=["month"], properties=None if start else properties)
        deltic.Table(uri).checkpoint()
    log = Path(uri, "_delta_log")
    # One file is removed: its sidecar is rewritten, the others are reused.
    add = next(action["add"] for action in log_actions(uri, 1) if "add" in action)
    Log(uri).commit(3, [remove(add["path"], deletionTimestamp=4102444800000)])
    assert deltic.Table(uri).checkpoint() == 3
    hints = [json.loads(line)["v2Checkpoint"] for line in (log / "_last_checkpoint").read_text().splitlines()]
    assert len(hints[0]["sidecarFiles"]) == 4
    # delta-spark requires the commit of the checkpoint's version.
    kept = (hints[0]["path"], "_last_checkpoint", f"{3:020}.json")
    for file in log.iterdir():
        if file.is_file() and file.name not in kept:
            file.unlink()
    month = int(add["partitionValues"]["month"])
    return flights.filter([not (40 <= i < 80 and i % 3 == month) for i in range(120)])


@pytest.fixture(scope="session")
def connection() -> duckdb.DuckDBPyConnection:
    """DuckDB with its delta extension, which is installed as a wheel."""
    duckdb = pytest.importorskip("duckdb")
    wheel = pytest.importorskip("duckdb_extension_delta", reason="the wheel duckdb-extension-delta is not installed")
    extensions = sorted(Path(wheel.__file__).parent.rglob("delta.duckdb_extension"))
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    try:
        connection.execute(f"LOAD '{extensions[0]}'")
    except (IndexError, duckdb.Error) as error:
        pytest.skip(f"the delta extension does not load: {error}")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@pytest.fixture
def turns(spark: SparkSession, uri: str, validating: None) -> Turns:
    """A table that deltic and delta-spark write in turns, in a session that validates checksums."""
    from turns import Turns

    return Turns(spark, uri)


@pytest.fixture
def in_duckdb(connection: duckdb.DuckDBPyConnection) -> Callable[[str], pa.Table]:
    """A function that reads a table in DuckDB."""

    def in_duckdb(uri: str) -> pa.Table:
        return connection.execute(f"SELECT * FROM delta_scan('{uri}')").to_arrow_table()

    return in_duckdb
