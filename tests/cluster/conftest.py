"""A Spark session on a standalone cluster of two workers, and what the same statements give on `local[2]`.

The suite runs in its own process: see `tests/soak`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession
from standalone import LIGHT, standalone, wait_for_executors
from statements import STATEMENTS, Rows, changes_of, made, rows_of, same

from deltic.spark.dml import frame_source, rows

ALL_CASES = os.environ.get("DELTIC_CASES") == "all"
"""Whether all cases are run: each takes many seconds, since an executor is started again."""
SUCCEEDING = [("merge", "_changer"), ("write", "_writer"), ("optimize", "_rewriter")]
"""Statements, and jobs of theirs that the loss of an executor only delays."""
if ALL_CASES:
    SUCCEEDING += [("delete", "_changer"), ("update", "_changer"), ("merge", "source"), ("divided merge", "source")]
    SUCCEEDING += [("native write", "source"), ("save", "source")]
EXECUTOR_KILLS = int(os.environ.get("DELTIC_EXECUTOR_KILLS", "0"))
"""Number of executors that are killed at random moments."""
LONGEST_DELAY = 1.5
"""Seconds after the start of a statement in which an executor is killed."""

_lines: list[str] = []


def report(line: str) -> None:
    """Print a line at the end of the run."""
    _lines.append(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _lines:
        terminalreporter.write_line(f"soak: {line}")


def session(master: str, warehouse: Path, **settings: Any) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .appName("deltic tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Many plans on tiny tables: code generation costs more than it saves.
        .config("spark.driver.extraJavaOptions", LIGHT)
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.driver.host", "127.0.0.1")
    )
    for name, value in settings.items():
        builder = builder.config(f"spark.{name.replace('_', '.')}", value)
    made_session = builder.getOrCreate()
    made_session.sparkContext.setLogLevel("OFF")
    return made_session


@pytest.fixture(autouse=True, scope="session")
def many_tasks() -> Iterator[None]:
    """Make every file worth a task."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "BYTES_PER_TASK", 1)
        patched.setattr(frame_source, "KEPT_BYTES", 0)
        yield


@pytest.fixture(scope="session")
def locally(tmp_path_factory: pytest.TempPathFactory, many_tasks: None) -> dict[str, tuple[Rows, list[str]]]:
    """The rows and changes of statements on `local[2]`. A process has one session at a time."""
    local = session("local[2]", tmp_path_factory.mktemp("warehouse"))
    results = {}
    for name in {name for name, _ in SUCCEEDING}:
        table = made(str(tmp_path_factory.mktemp("local") / "table"))
        STATEMENTS[name].run(local, table.uri, same)
        results[name] = rows_of(table), changes_of(table)
    local.stop()
    return results


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, locally: dict[str, tuple[Rows, list[str]]]
) -> Iterator[SparkSession]:
    with standalone(tmp_path_factory.mktemp("cluster")) as master:
        started = session(
            master,
            tmp_path_factory.mktemp("warehouse"),
            executor_cores="1",
            executor_memory="1g",
            executor_extraJavaOptions=LIGHT,
            task_maxFailures="2",
        )
        yield started
        started.stop()


@pytest.fixture
def spark(cluster: SparkSession) -> SparkSession:
    """The session on the cluster, with both executors."""
    wait_for_executors(cluster)
    return cluster


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")
