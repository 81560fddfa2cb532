"""Numbers of processes and commits, and the summary at the end.

The suite runs in its own process: see the Makefile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import delta_spark
import pytest
from exclusive_store import STORE, build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITERS = int(os.environ.get("DELTIC_WRITERS", "8"))
"""Processes that append concurrently."""
APPENDS = int(os.environ.get("DELTIC_APPENDS", "25"))
"""Appends of each process."""
MIXED_APPENDS = int(os.environ.get("DELTIC_MIXED_APPENDS", "25"))
"""Minimum number of commits of each process other than delta-spark."""
KILLS = int(os.environ.get("DELTIC_KILLS", "20"))
"""Number of processes that are killed while they write."""

_lines: list[str] = []


def report(line: str) -> None:
    """Print a line at the end of the run."""
    _lines.append(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _lines:
        terminalreporter.write_line(f"soak: {line}")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A delta-spark session that validates checksums before and after each of its commits."""
    store = build(tmp_path_factory.mktemp("store"), delta_spark.jars())
    settings = {"spark.delta.logStore.file.impl": STORE, **delta_spark.VALIDATING}
    made = delta_spark.session(tmp_path_factory.mktemp("warehouse"), settings, cores=1, more_jars=(store,))
    yield made
    made.stop()
